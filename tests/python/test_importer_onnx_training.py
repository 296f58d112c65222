"""Gradient graphs as the training part of ONNX Runtime writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import arenaplan as ap
from arenaplan.base import errors

MICROSOFT = "com.microsoft"


def load(
    nodes: list[Any],
    inputs: dict[str, tuple[int, ...]],
    outputs: list[str],
    constants: dict[str, np.ndarray] | None = None,
) -> ap.Graph:
    """Read a model whose inputs hold float32, or int64 if their names begin with ``i``."""

    def described(name: str, shape: Any) -> Any:
        kind = TensorProto.INT64 if name.startswith("i") else TensorProto.FLOAT
        return helper.make_tensor_value_info(name, kind, shape)

    graph = helper.make_graph(
        nodes,
        "gradients",
        [described(name, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return ap.load(helper.make_model(graph, opset_imports=opsets).SerializeToString())


def contrib(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(kind, inputs, outputs, domain=MICROSOFT, **attributes)


def step() -> ap.Graph:
    """Return a layer, its loss, its gradients and an update by Adam."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["y"]),
        contrib("SoftmaxCrossEntropy", ["y", "t"], ["loss", "log_prob"]),
        contrib("SoftmaxCrossEntropyGrad", ["one", "log_prob", "t"], ["y_grad"]),
        contrib("ReluGrad", ["y_grad", "h"], ["h_grad"]),
        helper.make_node("Gemm", ["x", "h_grad"], ["w_grad"], transA=1),
        contrib("ReduceSumTraining", ["h_grad", "axes"], ["b_grad"], keepdims=0),
        contrib(
            "AdamOptimizer",
            ["rate", "i_count", "w", "w_grad", "m", "v"],
            ["new_count", "new_m", "new_v", "new_w"],
        ),
        contrib("SGDOptimizer", ["rate", "b", "b_grad"], ["new_b"]),
    ]
    shapes = {
        "x": (32, 64), "t": (32, 16), "w": (64, 16), "b": (16,), "m": (64, 16), "v": (64, 16),
        "rate": (), "i_count": (),
    }  # fmt: skip
    constants = {"one": np.ones((), np.float32), "axes": np.array([0])}
    results = ["loss", "new_count", "new_m", "new_v", "new_w", "new_b"]
    return load(nodes, shapes, results, constants)


def test_a_step_is_read_with_the_shapes_of_its_gradients() -> None:
    graph = step()
    shapes = {name: graph.find(name).shape for name in ("y_grad", "h_grad", "w_grad", "b_grad")}
    assert shapes == {"y_grad": (32, 16), "h_grad": (32, 16), "w_grad": (64, 16), "b_grad": (16,)}
    assert graph.find("loss").shape == ()
    assert graph.find("new_count").dtype == "int64"


def test_optimizers_write_over_the_parameters_that_they_replace() -> None:
    graph = step()
    pairs = {"new_w": "w", "new_m": "m", "new_v": "v", "new_b": "b", "new_count": "i_count"}
    for new, old in pairs.items():
        graph.write_back(graph.find(new).index, graph.find(old).index)
    plan = ap.plan(graph, target="nodes")
    plan.check(graph)
    for new, old in pairs.items():
        places = [plan.placements[graph.find(name).index] for name in (new, old)]
        assert places[0].offset == places[1].offset
    assert plan.arena_bytes < ap.plan(step(), target="nodes").arena_bytes


@pytest.mark.parametrize(
    ("node", "shapes"),
    [
        (contrib("GeluGrad", ["a", "a"], ["y"]), [(4, 8, 6, 6)]),
        (contrib("LayerNormalizationGrad", ["a", "a", "c", "d", "d"], ["y", "z", "u"]),
         [(4, 8, 6, 6), (6,), (6,)]),
        (contrib("SimplifiedLayerNormalizationGrad", ["a", "a", "c", "d"], ["y", "z"]),
         [(4, 8, 6, 6), (6,)]),
        (contrib("BatchNormalizationGrad", ["a", "a", "e", "e", "e"], ["y", "z", "u"]),
         [(4, 8, 6, 6), (8,), (8,)]),
        (helper.make_node("ConvGrad", ["a", "a", "w"], ["y", "z", "u"]),
         [(4, 8, 6, 6), (5, 8, 3, 3), (5,)]),
        (contrib("GatherGrad", ["s", "i", "c"], ["y"]), [(9, 6)]),
        (contrib("DivGrad", ["a", "a", "c"], ["y", "z"]), [(4, 8, 6, 6), (6,)]),
        (contrib("ConcatTraining", ["a", "a"], ["y", "z"], axis=1), [(4, 16, 6, 6), (2,)]),
        (contrib("InPlaceAccumulator", ["a", "a"], ["y"]), [(4, 8, 6, 6)]),
    ],
)  # fmt: skip
def test_gradients_have_the_shapes_of_operands(node: Any, shapes: list[Any]) -> None:
    inputs = {
        "a": (4, 8, 6, 6), "c": (6,), "d": (4, 8, 6, 1), "e": (8,), "w": (5, 8, 3, 3), "i": (1,),
    }  # fmt: skip
    graph = load([node], inputs, list(node.output), {"s": np.array([9, 6])})
    assert [graph.find(name).shape for name in node.output] == shapes
    ap.plan(graph, target="nodes").check(graph)


def test_elementwise_gradients_take_over_their_operands() -> None:
    graph = load([contrib("TanhGrad", ["a", "b"], ["y"])], {"a": (8, 8), "b": (8, 8)}, ["y"])
    (node,) = graph.nodes
    assert {pair.input for pair in node.effects.in_place} == {0, 1}


def test_operators_without_a_known_shape_are_named() -> None:
    nodes = [
        contrib("MysteryGrad", ["a"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    with pytest.raises(errors.UnknownShape, match="MysteryGrad"):
        load(nodes, {"a": (8, 8)}, ["z"])
