"""Constants of a loaded model become parameters, are trained, and go back into the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import arenaplan as ap
from file_forms import DOORBELL
from raising import raises

W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
ONE = np.ones((1, 3), np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """``y = (x W) scale + shift``; a constant of each kind, and a shape."""
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "y"]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2, 2])
    nodes = [
        helper.make_node("Reshape", ["x", "dims"], ["r"]),
        helper.make_node("MatMul", ["r", "fc.w"], ["a"]),
        helper.make_node("Constant", [], ["fc.scale"], value=numpy_helper.from_array(2 * ONE)),
        helper.make_node("Mul", ["a", "fc.scale"], ["b"]),
        helper.make_node("Add", ["b", "shift"], ["y"]),
    ]
    data = {"fc.w": W, "shift": ONE, "dims": np.array([2, 4])}
    stored = [numpy_helper.from_array(array, name) for name, array in data.items()]
    graph = helper.make_graph(nodes, "m", [x], infos, stored)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file = tmp_path / "m.onnx"
    onnx.save(proto, file)
    return file


def states(graph: ap.Graph) -> list[str]:
    return [value.name for value in graph.values if value.kind == "state"]


def trained(graph: ap.Graph) -> ap.train.TrainingGraph:
    wrt = [value.index for value in graph.values if value.kind == "state"]
    op = ap.train.operators(graph)
    loss = op.ReduceSumSquare(graph.find("y").index, keepdims=0, name="loss")
    return ap.train.sgd(ap.train.gradient(graph, of=loss, wrt=wrt), lr=0.01)


def test_patterns_choose_constants_with_real_numbers(path: Path) -> None:
    assert states(ap.load(path)) == []
    assert states(ap.load(path, parameters="fc.*")) == ["fc.w", "fc.scale"]
    assert states(ap.load(path, parameters=iter(["shift", "*.w"]))) == ["fc.w", "shift"]
    assert states(ap.load(path.read_bytes(), parameters="*")) == ["fc.w", "fc.scale", "shift"]


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        ("shfit", "'shfit'.*did you mean 'shift'"),
        (["fc.*", "zz"], "'zz'.*there are 'fc.w', 'fc.scale', 'shift'"),
        ("dims", "'dims' matches no constant with real numbers"),
        ("a", "'a' matches no constant"),
    ],
)
def test_a_pattern_without_a_match_names_what_there_is(
    path: Path, patterns: str | list[str], said: str
) -> None:
    with raises("InvalidOption", match=said):
        ap.load(path, parameters=patterns)


@pytest.mark.parametrize("patterns", [3, None, ["fc.*", 3], {1: 2}])
def test_what_is_no_pattern_is_refused(path: Path, patterns: Any) -> None:
    with raises("InvalidOption", match="option parameters: .*is not one or several"):
        ap.load(path, parameters=patterns)


def test_other_formats_and_values_are_refused(path: Path) -> None:
    with raises("InvalidOption", match=r"option parameters.*\.tflite"):
        ap.load(DOORBELL, parameters="*")
    graph = ap.load(path)
    with raises("InvalidOption", match="'x' is not a constant but input"):
        graph.to_parameter(graph.find("x").index)


def test_parameters_change_no_result_and_train_as_the_formula_says(path: Path) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 2, 2) / 8
    frozen = ap.Executor(ap.load(path)).run({"x": x})["y"]
    np.testing.assert_array_equal(
        ap.Executor(ap.load(path, parameters="*")).run({"x": x})["y"], frozen
    )
    with ap.train.Trainer(trained(ap.load(path, parameters=["fc.w", "shift"]))) as trainer:
        trainer.step({"x": x}, verify=True)
        found = trainer.states()
        trainer.save_onnx(path, path.with_name("tuned.onnx"))
        with pytest.raises(FileNotFoundError):
            trainer.save_onnx(path.with_name("none.onnx"), path.with_name("t.onnx"))
    np.testing.assert_allclose(found["fc.w"], W - 0.04 * x.reshape(2, 4).T @ frozen, rtol=1e-5)
    np.testing.assert_allclose(found["shift"], ONE - 0.02 * frozen.sum(0), rtol=1e-5)
    tuned = ap.load(path.with_name("tuned.onnx"))
    want = (x.reshape(2, 4) @ found["fc.w"]) * 2 + found["shift"]
    np.testing.assert_allclose(ap.Executor(tuned).run({"x": x})["y"], want, rtol=1e-5)


def test_constants_of_nodes_are_written_and_names_of_other_models_refused(path: Path) -> None:
    with ap.train.Trainer(trained(ap.load(path, parameters="fc.scale"))) as trainer:
        trainer.step({"x": np.ones((2, 2, 2), np.float32)})
        trainer.save_onnx(path, path)
        (node,) = [node for node in onnx.load(path).graph.node if node.op_type == "Constant"]
        array = numpy_helper.to_array(node.attribute[0].t)
        np.testing.assert_array_equal(array, trainer.states()["fc.scale"])
        other = helper.make_model(helper.make_graph([], "none", [], []))
        onnx.save(other, path)
        with raises("UndefinedValue", match="stores no weight 'fc.scale'"):
            trainer.save_onnx(path, path)
