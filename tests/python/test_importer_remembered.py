"""Facts about nodes that the ONNX importer remembers: never those of another node."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import arenaplan as ap
from arenaplan.formats.onnx.op import OnnxOperand
from arenaplan.formats.onnx.remembered import Facts, facts_of

FLOAT = TensorProto.FLOAT


def model(
    nodes: list[NodeProto],
    *constants: np.ndarray,
    version: int = 18,
    shape: tuple[int, ...] = (4, 6),
) -> ModelProto:
    """Return a model with the input ``x`` of floats, the output ``y``, and constants."""
    stored = [numpy_helper.from_array(array, f"c{at}") for at, array in enumerate(constants)]
    x = helper.make_tensor_value_info("x", FLOAT, shape)
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(nodes, "small", [x], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])


def last(nodes: list[NodeProto], *constants: np.ndarray) -> tuple[tuple[int, ...], Any]:
    """Return shape and node of the result, of a model that is read twice."""
    data = model(nodes, *constants).SerializeToString()
    graph, again = ap.load(data), ap.load(data)
    assert graph.to_json() == again.to_json()
    assert [node.attributes for node in graph.nodes] == [node.attributes for node in again.nodes]
    return graph.find("y").shape, graph.nodes[-1]


def test_shapes_that_constants_decide_are_those_of_their_own_constant() -> None:
    reshape = [helper.make_node("Reshape", ["x", "c0"], ["y"])]
    shapes = [last(reshape, np.array(shape))[0] for shape in ((6, 4), (2, 12), (6, 4), (24, 1))]
    assert shapes == [(6, 4), (2, 12), (6, 4), (24, 1)]


def test_slices_have_the_offset_of_their_own_constant() -> None:
    cut = [helper.make_node("Slice", ["x", "c0", "c1"], ["y"])]
    offsets = [
        last(cut, np.array([row]), np.array([row + 1]))[1].effects.views[0].offset
        for row in (1, 2, 0)
    ]
    assert offsets == [24, 48, 0]


def test_attributes_of_other_types_and_signs_are_others() -> None:
    def alpha(value: float) -> float:
        return float(
            last([helper.make_node("Elu", ["x"], ["y"], alpha=value)])[1].attributes["alpha"]
        )

    assert [str(alpha(value)) for value in (0.0, -0.0, 1.0, 0.0)] == ["0.0", "-0.0", "1.0", "0.0"]
    kept = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=1)
    gone = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    assert [last([node])[0] for node in (kept, gone, kept)] == [(1, 1), (), (1, 1)]


def test_an_operand_that_is_read_twice_is_moved_once() -> None:
    relu = helper.make_node("Relu", ["x"], ["a"])
    _, once = last([relu, helper.make_node("Add", ["a", "a"], ["y"])])
    _, twice = last([relu, helper.make_node("Add", ["a", "x"], ["y"])])
    assert twice.cost == 8 * 3 * 96
    assert once.cost == 8 * 2 * 96


def test_results_that_are_left_out_are_part_of_what_a_node_is() -> None:
    norm, scale = ["LayerNormalization", ["x", "c0"]], np.ones(6, np.float32)
    _, alone = last([helper.make_node(*norm, ["y"])], scale)
    _, both = last([helper.make_node(*norm, ["y", "mean"])], scale)
    _, all_three = last([helper.make_node(*norm, ["y", "mean", "deviation"])], scale)
    _, skipped = last([helper.make_node(*norm, ["y", "", "deviation"])], scale)
    _, again = last([helper.make_node(*norm, ["y"])], scale)
    assert [len(node.outputs) for node in (alone, both, skipped, again)] == [1, 2, 3, 1]
    assert alone.effects == again.effects != both.effects
    assert all_three.cost > skipped.cost == both.cost


def test_constants_are_not_taken_over_like_computed_operands() -> None:
    ones = np.ones((4, 6), np.float32)
    _, fixed = last([helper.make_node("Add", ["x", "c0"], ["y"])], ones)
    relu = helper.make_node("Relu", ["x"], ["a"])
    _, computed = last([relu, helper.make_node("Add", ["x", "a"], ["y"])], ones)
    assert [pair.input for pair in fixed.effects.in_place] == [0]
    assert [pair.input for pair in computed.effects.in_place] == [0, 1]
    outside = model([helper.make_node("Add", ["x", "c0"], ["y"])], ones)
    (tensor,) = outside.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights"), ("length", "96")):
        tensor.external_data.add(key=key, value=value)
    (node,) = ap.load(outside.SerializeToString()).nodes
    assert [pair.input for pair in node.effects.in_place] == [0]


def test_versions_of_an_operator_are_apart() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"])
    nodes = [
        ap.load(model([node], version=version, shape=(4, 6, 5)).SerializeToString()).nodes[0]
        for version in (12, 13, 12)
    ]
    assert [node.version for node in nodes] == [12, 13, 12]
    # Before version 13, everything from dimension 1 on belongs together.
    assert [node.effects.flows[0].pieces for node in nodes] == [4, 24, 4]


def test_a_node_that_is_refused_is_refused_again() -> None:
    wrong = model([helper.make_node("Relu", ["x"], ["y"], axis=1)]).SerializeToString()
    bad = model([helper.make_node("Concat", ["x"], ["y"], axis=7)]).SerializeToString()
    for _ in range(2):
        with pytest.raises(ap.errors.InvalidAttribute, match="axis 7"):
            ap.load(bad)
        ap.load(wrong)  # An attribute that the operator has not.
    many = model([helper.make_node("Relu", ["x", "x"], ["y"])]).SerializeToString()
    for _ in range(2):
        with pytest.raises(ap.errors.InvalidOperand, match="has 2 inputs"):
            ap.load(many)


def test_tensors_of_a_model_are_not_remembered() -> None:
    made = []
    for number in (1, 2):
        value = numpy_helper.from_array(np.array([number], np.float32))
        fill = helper.make_node("ConstantOfShape", ["shape"], ["filled"], value=value)
        shape = helper.make_node("Shape", ["x"], ["shape"])
        data = model([shape, fill, helper.make_node("Add", ["x", "filled"], ["y"])])
        with ap.Executor(ap.load(data.SerializeToString())) as run:
            made.append(float(run.run({"x": np.zeros((4, 6), np.float32)})["y"][0, 0]))
    assert made == [1, 2]
    facts = Facts()
    assert not facts.remember({"value": object()})
    assert facts.attributes is None


def test_long_attributes_are_not_remembered() -> None:
    def found(count: int) -> Facts | None:
        node = helper.make_node("Op", ["a"], ["b"], numbers=list(range(count)))
        return facts_of("Op", "", 1, node.attribute, [OnnxOperand("a", (2,), "float32")], ["b"])

    known = found(10)
    assert known is not None
    assert found(10) is known
    assert found(11) is not known
    assert found(2000) is None


def test_declared_types_are_compared_for_each_node() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    plain = model(nodes)
    wrong = model(nodes)
    wrong.graph.value_info.append(helper.make_tensor_value_info("a", FLOAT, (4, 7)))
    other = model(nodes)
    other.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.INT64, (4, 6)))
    assert ap.load(plain.SerializeToString()).warnings == []
    (warning,) = ap.load(wrong.SerializeToString()).warnings
    assert "(4, 7)" in warning
    with pytest.raises(ap.errors.ShapeMismatch, match="declared to hold int64"):
        ap.load(other.SerializeToString())


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_of_garbage_is_as_before(enabled: bool) -> None:
    good = model([helper.make_node("Relu", ["x"], ["y"])]).SerializeToString()
    bad = model([helper.make_node("Relu", ["z"], ["y"])]).SerializeToString()
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        ap.load(good)
        assert gc.isenabled() == enabled
        with pytest.raises(ap.errors.UndefinedValue):
            ap.load(bad)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()
