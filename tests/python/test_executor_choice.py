"""A call of ``ap.Executor`` makes the executor that the model needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import arenaplan as ap
from arenaplan.base.errors import InvalidOption, PlannerError


def onnx_file(folder: Path, op: str, result: list[Any], kind: int) -> Path:
    """Write a model of one node, whose input has a batch dimension."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    y = helper.make_tensor_value_info("y", kind, result)
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "one", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    path = folder / f"{op}.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture
def negate(tmp_path: Path) -> Path:
    """Return a model of any batch."""
    return onnx_file(tmp_path, "Neg", ["batch", 3], TensorProto.FLOAT)


@pytest.fixture
def find(tmp_path: Path) -> Path:
    """Return a model whose result has a size that data decides."""
    return onnx_file(tmp_path, "NonZero", [2, "count"], TensorProto.INT64)


X = np.array([[0, 1, 0], [2, 0, 3]], np.float32)


@pytest.mark.parametrize(
    ("bind", "kind"),
    [
        ({"batch": 2}, ap.Executor),
        ({"x": (2, 3)}, ap.Executor),
        ({"batch": range(1, 4)}, ap.run.DynamicExecutor),
        ({"batch": [1, 2]}, ap.run.DynamicExecutor),
        ([{"batch": 1}, {"batch": 2}], ap.run.DynamicExecutor),
    ],
    ids=str,
)
def test_sizes_choose_the_executor(negate: Path, bind: Any, kind: type[Any]) -> None:
    for model in (negate, str(negate), negate.read_bytes()):
        with ap.Executor(model, bind=bind) as executor:
            assert type(executor) is kind
            np.testing.assert_array_equal(executor.run({"x": X})["y"], -X)


def test_families_and_functions_are_models_of_several_shapes(negate: Path) -> None:
    family = ap.plan_family(negate, {"batch": [1, 2]}, target="numpy")
    with ap.Executor(family) as executor:
        assert type(executor) is ap.run.DynamicExecutor
        np.testing.assert_array_equal(executor.run({"x": X})["y"], -X)
    with ap.Executor(lambda sizes: ap.load(negate, bind=sizes), bind={"batch": [2]}) as executor:
        assert type(executor) is ap.run.DynamicExecutor


def test_sizes_that_data_decides_are_found_out_in_stages(find: Path) -> None:
    with ap.Executor(find, bind={"batch": 2}) as executor:
        assert type(executor) is ap.run.StagedExecutor
        np.testing.assert_array_equal(executor.run({"x": X})["y"], np.nonzero(X))


@pytest.mark.parametrize(
    "option",
    [{"workers": 2}, {"threads": 2}, {"seed": 1}, {"buffers": {"x": X}}, {"capture": True}],
    ids=str,
)
def test_options_of_one_graph_are_refused_for_more(
    find: Path, negate: Path, option: dict[str, Any]
) -> None:
    (name,) = option
    with pytest.raises(InvalidOption, match=f"{name}: a model whose sizes data decides"):
        ap.Executor(find, bind={"batch": 2}, **option)
    with pytest.raises(InvalidOption, match=f"{name}: a model of several shapes"):
        ap.Executor(negate, bind={"batch": [1, 2]}, **option)
    plan = ap.plan(ap.load(negate, bind={"batch": 2}), target="numpy")
    with pytest.raises(InvalidOption, match="plan: a model of several shapes"):
        ap.Executor(negate, plan, bind={"batch": [1, 2]})


def test_what_no_executor_takes_is_refused(negate: Path) -> None:
    graph = ap.load(negate, bind={"batch": 2})
    with pytest.raises(InvalidOption, match="a Graph has its sizes already"):
        ap.Executor(graph, bind={"batch": 2})
    with pytest.raises(InvalidOption, match="'tpu' is not cpu, cuda or cuda:NUMBER"):
        ap.Executor(graph, device="tpu")
    for wrong in (None, 5, {"x": 1}):
        with pytest.raises(PlannerError):
            ap.Executor(wrong)  # type: ignore[arg-type]
