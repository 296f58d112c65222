"""Operators that are imported as functions, and shapes that are declared behind a chain."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import defs, helper

import arenaplan as ap
from arenaplan.base.errors import UnsupportedOp
from arenaplan.formats.onnx import load_onnx
from arenaplan.formats.onnx.function_bodies import INLINED
from arenaplan.run.numpy.registry import supported_ops
from raising import raises
from single_node import expected, node_model

RNG = np.random.default_rng(20261122)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_operators_with_a_body_have_a_kernel_or_are_inlined() -> None:
    bodies = {
        schema.name
        for schema in defs.get_all_schemas()
        if schema.domain == "" and (schema.has_function or schema.has_context_dependent_function)
    }
    sequences = {"SequenceMap"}  # Its values are no arrays.
    assert bodies - set(supported_ops()) - INLINED[""] <= sequences
    assert not INLINED[""] & set(supported_ops())


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_losses_agree(op: str, reduction: str, weighted: bool) -> None:
    for shape in ((3, 5), (2, 5, 4, 3)):
        labels = RNG.integers(0, 5, (shape[0], *shape[2:]))
        inputs = [random(*shape), labels, np.abs(random(5)) + 0.1 if weighted else None]
        while inputs[-1] is None:
            inputs.pop()
        for attributes in ({}, {"ignore_index": 2}):
            attributes = {**attributes, "reduction": reduction}
            model = node_model(op, inputs, attributes, opset=13, outputs=1, constants=[])
            (wanted,) = expected(model, inputs, "onnxruntime")
            feed = {f"in{k}": array for k, array in enumerate(inputs)}
            graph = load_onnx(model)
            assert op not in {node.op for node in graph.nodes}
            with ap.Executor(graph) as executor:
                (got,) = executor.run(feed, verify=True).values()
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_values_of_a_body_are_named_after_the_operator() -> None:
    model = node_model(
        "NegativeLogLikelihoodLoss",
        [random(3, 5), RNG.integers(0, 5, 3)],
        {"reduction": "sum"},
        opset=13,
        outputs=1,
        constants=[],
    )
    model.graph.node[0].name = "loss"
    graph = load_onnx(model)
    inner = [value.name for value in graph.values if value.kind == "activation"]
    assert all(name == "out0" or name.startswith("loss/") for name in inner)


def test_operators_of_two_composers_have_names_of_their_own() -> None:
    graph = ap.Graph()
    x = graph.input("x", (3,))
    for _ in range(2):
        graph.output(ap.train.operators(graph).ReduceL2(x, keepdims=0))
    names = {value.name for value in graph.values}
    assert len(names) == len(graph.values)
    with ap.Executor(graph) as executor:
        found = executor.run({"x": np.array([2, 3, 6], np.float32)})
    assert [float(y) for y in found.values()] == [7, 7]


def test_a_body_that_is_younger_than_the_model_is_refused() -> None:
    node = helper.make_node("CausalConvWithState", ["x", "w"], ["y", "s"])
    given = [
        helper.make_tensor_value_info(*each) for each in (("x", 1, (1, 2, 4)), ("w", 1, (2, 1, 3)))
    ]
    made = [onnx.ValueInfoProto(name=name) for name in ("y", "s")]
    graph = helper.make_graph([node], "g", given, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    with pytest.raises(UnsupportedOp, match="CausalConvWithState version 20"):
        load_onnx(model)


def test_a_shape_that_is_declared_behind_a_chain_holds_in_front_of_it() -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=0),
        helper.make_node("Exp", ["sum"], ["exp"]),
        helper.make_node("Cast", ["exp"], ["y"], to=11),
    ]
    given = [
        helper.make_tensor_value_info("x", 1, (3, 4)),
        helper.make_tensor_value_info("axes", 7, (1,)),
    ]
    made = [helper.make_tensor_value_info("y", 11, (4,))]
    graph = helper.make_graph(nodes, "g", given, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    x = random(3, 4)
    executor = ap.Executor(load_onnx(model))
    got = executor.run({"x": x, "axes": np.array([0])}, verify=True)["y"]
    np.testing.assert_allclose(got, np.exp(x.sum(0)), rtol=1e-5)
    with raises("KernelError", match="makes shape"):
        executor.run({"x": x, "axes": np.array([1])})


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_causal_convolutions_agree_with_the_reference(activation: str) -> None:
    inputs = [random(2, 3, 6), random(3, 1, 4), random(3), random(2, 3, 3)]
    model = node_model(
        "CausalConvWithState",
        inputs,
        {"activation": activation},
        opset=27,
        outputs=2,
        constants=[1],
    )
    wanted = expected(model, inputs, "reference")
    with ap.Executor(load_onnx(model)) as executor:
        feed = {f"in{k}": inputs[k] for k in (0, 2, 3)}
        for got, want in zip(executor.run(feed, verify=True).values(), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
