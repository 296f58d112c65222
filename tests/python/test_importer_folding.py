"""What is constant is computed when somebody asks, and then it is right."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.formats.onnx import load_onnx
from arenaplan.formats.onnx.budget import MAX_COMPUTED
from arenaplan.formats.onnx.evaluate import EVALUATORS
from models import model, node, ops, shapes
from raising import raises

# What onnx's node tests need that no plan can have, or that only a run can tell.
_EXCUSED = (
    errors.UnboundDim,
    errors.UnknownShape,
    errors.UnsupportedDtype,
    errors.UnsupportedSubgraph,
)


@pytest.fixture(scope="module")
def node_cases() -> list[Any]:
    """Return onnx's node tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_model_tests(kind="node")


def outputs_of(proto: onnx.ModelProto) -> tuple[ap.Graph, list[np.ndarray]]:
    """Return a model of constants, and its outputs."""
    imported = load_onnx(proto)
    return imported, [imported.data(index) for index in imported.outputs]


def test_shapes_agree_with_those_that_node_tests_declare(node_cases: list[Any]) -> None:
    seen: Counter[str] = Counter()
    for case in node_cases:
        try:
            imported = load_onnx(case.model)
        except _EXCUSED as error:
            seen[type(error).__name__] += 1
            continue
        assert not [w for w in imported.warnings if "declared" in w], case.name
        for info in case.model.graph.output:
            dims = [d.dim_value for d in info.type.tensor_type.shape.dim if d.HasField("dim_value")]
            if len(dims) == len(info.type.tensor_type.shape.dim) and dims:
                assert list(imported.find(info.name).shape) == dims, case.name
        seen["imported"] += 1
    assert seen["imported"] > 0.9 * len(node_cases)


def test_folding_computes_what_node_tests_expect(node_cases: list[Any]) -> None:
    folded = set()
    for case in node_cases:
        outputs = case.model.graph.output
        if not case.data_sets or not all(info.type.HasField("tensor_type") for info in outputs):
            continue
        given, expected = case.data_sets[0]
        proto = onnx.ModelProto()
        proto.CopyFrom(case.model)
        try:
            stored = [
                numpy_helper.from_array(array, info.name)
                for array, info in zip(given, proto.graph.input, strict=True)
            ]
        except (AttributeError, TypeError, ValueError, NotImplementedError):
            continue  # sequences, strings and optional values are no arrays
        proto.graph.initializer.extend(stored)
        try:
            imported = load_onnx(proto)
        except (*_EXCUSED, errors.ShapeMismatch):
            continue  # a sequence that is fed as an array is a mismatch
        if imported.nodes:
            continue
        for index, array in zip(imported.outputs, expected, strict=True):
            data, wanted = imported.data(index), np.asarray(array)
            assert (data.dtype, data.shape) == (wanted.dtype, wanted.shape), case.name
            narrow = data.dtype.itemsize < 4
            np.testing.assert_allclose(
                data.astype(complex),
                wanted.astype(complex),
                rtol=1e-2 if narrow else 1e-5,
                atol=1e-7,
                err_msg=case.name,
            )
        folded.update(known.op_type for known in case.model.graph.node)
    assert set(EVALUATORS) <= folded


def test_a_chain_over_a_shape_becomes_one_number() -> None:
    proto = model(
        [
            node("Shape", "x", "s"),
            node("Gather", "s last", "d", axis=0),
            node("Unsqueeze", "d zero", "u"),
            node("Concat", "minus u", "t", axis=0),
            node("Reshape", "x t", "y"),
        ],
        {"x": [2, 3, "n"]},
        weights={"last": np.array(-1), "zero": np.array([0]), "minus": np.array([-1])},
    )
    imported = load_onnx(proto, bind={"n": 7})
    assert ops(imported) == ["Reshape"]
    assert shapes(imported) == {"y": (6, 7)}


def test_random_operators_are_not_folded() -> None:
    proto = model(
        [node("RandomNormal", "", "r", shape=[2, 3]), node("Add", "r w", "y")],
        weights={"w": np.ones((2, 3), "f")},
    )
    assert ops(load_onnx(proto)) == ["RandomNormal", "Add"]


def test_operators_without_evaluator_stay_nodes() -> None:
    weights = {"a": np.ones((2, 3), "f")}
    assert ops(load_onnx(model([node("Erf", "a", "y")], weights=weights))) == ["Erf"]


def test_positions_of_what_is_not_zero_are_known_if_the_data_is() -> None:
    proto = model([node("NonZero", "w", "y")], weights={"w": np.array([[1, 0], [2, 3]])})
    imported, (data,) = outputs_of(proto)
    assert not imported.nodes
    np.testing.assert_array_equal(data, [[0, 1, 1], [0, 0, 1]])


def test_huge_constants_take_no_memory_to_plan() -> None:
    proto = model(
        [
            node("ConstantOfShape", "s", "w", value=onnx.helper.make_tensor("", 1, [1], [0.5])),
            node("Transpose", "w", "t"),
            node("MatMul", "x t", "y"),
        ],
        {"x": [1, 1 << 14]},
        weights={"s": np.array([1 << 14, 1 << 14])},
    )
    imported = load_onnx(proto)
    assert ops(imported) == ["MatMul"]
    assert ap.plan(imported, target="ideal").arena_bytes == 2 * (1 << 16)


def test_a_shape_to_fill_may_be_stored_in_either_form() -> None:
    value = numpy_helper.from_array(np.array([7], np.int32))
    stored = [
        numpy_helper.from_array(np.array([2, 3]), "s"),
        TensorProto(name="s", data_type=TensorProto.INT64, dims=[2], int64_data=[2, 3]),
    ]
    results = []
    for target in stored:
        proto = model([node("ConstantOfShape", "s", "y", value=value)], weights={"s": target})
        _, (data,) = outputs_of(proto)
        results.append((data.dtype, data.tolist()))
    assert results == [(np.int32, [[7] * 3] * 2)] * 2


def test_a_chain_of_100_000_constants_is_computed_without_recursion() -> None:
    steps = 100_000
    nodes = [node("Add", f"c{i} one", f"c{i + 1}") for i in range(steps)]
    size = 1 << 14  # bytes; small enough to be kept, large enough to notice if all were
    weights = {"c0": np.zeros(size // 8, np.int64), "one": np.ones(1, np.int64)}
    imported = load_onnx(model(nodes, outputs=f"c{steps}", weights=weights))
    assert imported.data(imported.outputs[0])[0] == steps


def test_shared_constants_are_computed_once() -> None:
    # If they were not, 60 doublings would take 2**60 additions.
    nodes = [node("Add", f"c{i} c{i}", f"c{i + 1}") for i in range(60)]
    imported = load_onnx(model(nodes, outputs="c60", weights={"c0": np.ones(1)}))
    assert imported.data(imported.outputs[0]) == 2.0**60


def test_constants_that_say_shapes_are_computed_within_a_budget() -> None:
    size = MAX_COMPUTED // 8
    proto = model(
        [
            node("Range", "zero many one", "r"),
            node("ReduceMax", "r", "m", keepdims=1),
            node("Expand", "x m", "y"),
        ],
        {"x": [1]},
        weights={"zero": np.array(0), "many": np.array(size), "one": np.array(1)},
    )
    with raises("BudgetExceeded", match="constant 'r'"):
        load_onnx(proto)


@pytest.mark.parametrize("opset", [9, 12, 17, 21])
def test_axes_are_an_attribute_or_an_input(opset: int) -> None:
    old = opset < 13
    steps = [
        node("Squeeze", "w", "a", axes=[0]) if old else node("Squeeze", "w axes", "a"),
        node("Unsqueeze", "a", "b", axes=[0]) if old else node("Unsqueeze", "a axes", "b"),
        node("ReduceSum", "b", "y", axes=[0]) if old else node("ReduceSum", "b axes", "y"),
    ]
    weights = {"w": np.ones((1, 2, 3), "f")}
    if not old:
        weights["axes"] = np.array([0])
    _, (data,) = outputs_of(model(steps, weights=weights, opset=opset))
    assert data.shape == (1, 2, 3)
