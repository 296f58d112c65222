"""Elementwise nodes performed by the kernel before them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from networks import F32, noise, small_network


def steps(graph: ap.Graph, **options: Any) -> list[str]:
    """Return the operators that a planned run has steps for."""
    executor = ap.Executor(graph, ap.plan(graph, workspace="auto", **options, target="numpy"))
    return [node.op for node in executor._setup.program.nodes]


def test_a_convolution_performs_what_follows_it_in_place() -> None:
    assert steps(small_network()) == ["Conv", "Conv", "Softmax"]


def test_nothing_is_performed_early_that_the_plan_did_not_put_in_place() -> None:
    every = ["Conv", "Conv", "BatchNormalization", "Add", "Relu", "Softmax"]
    assert steps(small_network(), optimize="all,-in-place") == every


def test_a_value_with_two_readers_ends_an_epilogue() -> None:
    graph = ap.Graph()
    x = graph.input("x", (1, 2, 4, 4))
    w = graph.constant("w", (2, 2, 1, 1), F32, noise(2, 2, 1, 1))
    (y,) = graph.node("Conv", [x, w], [("y", (1, 2, 4, 4), F32)], version=13)
    (r,) = graph.node("Relu", [y], [("r", (1, 2, 4, 4), F32)], version=13)
    (s,) = graph.node("Add", [r, y], [("s", (1, 2, 4, 4), F32)], version=13, in_place=[(0, 0)])
    graph.output(s)
    assert steps(graph) == ["Conv", "Relu"]  # The sum follows the second reader.


def test_an_output_of_the_graph_ends_an_epilogue() -> None:
    graph = ap.Graph()
    x = graph.input("x", (1, 2, 4, 4))
    w = graph.constant("w", (2, 2, 1, 1), F32, noise(2, 2, 1, 1))
    (y,) = graph.node("Conv", [x, w], [("y", (1, 2, 4, 4), F32)], version=13)
    (r,) = graph.node("Relu", [y], [("r", (1, 2, 4, 4), F32)], version=13, in_place=[(0, 0)])
    graph.output(y)
    graph.output(r)
    result = ap.Executor(graph).run({"x": noise(1, 2, 4, 4)}, verify=True)
    np.testing.assert_array_equal(np.maximum(result["y"], 0), result["r"])


def test_an_addend_that_is_not_there_yet_ends_an_epilogue() -> None:
    graph = ap.Graph()
    shape = (1, 2, 4, 4)
    x = graph.input("x", shape)
    w = graph.constant("w", (2, 2, 1, 1), F32, noise(2, 2, 1, 1))
    (y,) = graph.node("Conv", [x, w], [("y", shape, F32)], version=13)
    (late,) = graph.node("Neg", [x], [("late", shape, F32)], version=13)
    (s,) = graph.node("Add", [y, late], [("s", shape, F32)], version=13, in_place=[(0, 0)])
    graph.output(s)
    assert steps(graph) == ["Conv", "Neg", "Add"]


def followed(op: str, *, computed_weights: bool = False) -> ap.Graph:
    """Return a heavy node and every elementwise node that can be performed with it."""
    rng = np.random.default_rng(5)
    graph = ap.Graph()
    shape = (2, 6, 8, 8)
    x = graph.input("x", shape)
    gate = graph.input("gate", (2, 6, 1, 1))

    def weight(name: str, *dims: int) -> int:
        return graph.constant(name, dims, F32, rng.uniform(0.5, 1.5, dims).astype(np.float32))

    kernel_shape = (6, 6, 3, 3)
    w = graph.input("w", kernel_shape) if computed_weights else weight("w", *kernel_shape)
    statistics = [weight(name, 6) for name in "stmv"]
    if op == "BatchNormalization":
        operands, attributes = [x, *statistics], {}
    else:
        operands, attributes = [x, w, weight("b", 6)], {"pads": [1] * 4}
    low, high = (
        graph.constant(name, (), F32, np.array(limit, np.float32))
        for name, limit in (("low", -2), ("high", 20))
    )
    (value,) = graph.node(op, operands, [("host", shape, F32)], attributes=attributes, version=15)
    chain: list[tuple[str, list[int], int]] = [
        ("Mul", [weight("c1", 6, 1, 1)], 0),
        ("Add", [weight("c2", 1, 6, 1, 1)], 1),
        ("BatchNormalization", statistics, 0),
        ("Mul", [gate], 0),
        ("Relu", [], 0),
        ("Add", [x], 1),
        ("Mul", [weight("c3")], 0),
        ("Add", [weight("c4", 8, 8)], 0),
        ("Sum", [x], 0),
        ("Clip", [low, high], 0),
    ]
    for k, (later, others, place) in enumerate(chain):
        operands = [value, *others] if place == 0 else [*others, value]
        (value,) = graph.node(
            later, operands, [(f"v{k}", shape, F32)], version=15, in_place=[(place, 0)]
        )
    graph.output(value)
    return graph


@pytest.mark.parametrize(
    ("op", "computed_weights"),
    [
        ("Conv", False),
        ("Conv", True),
        ("ConvTranspose", False),
        ("ConvTranspose", True),
        ("BatchNormalization", False),
    ],
)
def test_an_epilogue_computes_what_its_nodes_would(op: str, computed_weights: bool) -> None:
    graph = followed(op, computed_weights=computed_weights)
    shapes = {graph.values[index].name: graph.values[index].shape for index in graph.inputs}
    inputs = {name: noise(*shape, seed=k) for k, (name, shape) in enumerate(shapes.items())}
    # Transposed convolutions perform no other node, and a chain performs those that follow.
    assert steps(graph) == (["ConvTranspose", "Mul"] if op == "ConvTranspose" else [op])
    with ap.Executor(graph) as executor:
        (together,) = executor.run(inputs, verify=True).values()
    with ap.Executor(graph, ap.plan(graph, optimize="all,-in-place", target="ideal")) as executor:
        assert len(executor._setup.program.nodes) == len(graph.nodes)
        (apart,) = executor.run(inputs, verify=True).values()
    assert np.unique(apart).size > 100
    np.testing.assert_allclose(together, apart, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(), (1,), (3, 5)])
def test_functions_in_one_place_take_one_call(shape: tuple[int, ...]) -> None:
    graph = ap.Graph()
    x = graph.input("x", shape)
    most = graph.constant("most", (), F32, np.array(5, F32))
    values = [x]
    for op, place in (("Sqrt", 0), ("Max", 0), ("Div", 1)):
        operands = [most, values[-1]] if place else [values[-1], most][: 1 if op == "Sqrt" else 2]
        values += graph.node(op, operands, [(op, shape, F32)], version=13, in_place=[(place, 0)])
    graph.output(values[-1])
    plan = ap.plan(graph, target="numpy")
    assert plan.continued == [1, 2]
    place = plan.placements[values[1]]
    assert place is not None
    assert place.offset == plan.placements[values[3]].offset  # type: ignore[union-attr]
    plan.check(graph)
    with ap.Executor(graph, plan) as executor:
        assert len(executor._setup.program.nodes) == 1
        for number in (100, 4):
            (y,) = executor.run({"x": np.full(shape, number, F32)}, verify=True).values()
            np.testing.assert_array_equal(y, np.full(shape, 5 / max(number**0.5, 5), F32))
