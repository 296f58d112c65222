"""Gradients against finite differences, and how they are put together."""

from __future__ import annotations

import os
import zlib
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base.errors import InvalidOption, ShapeMismatch
from arenaplan.formats.onnx.function_bodies import INLINED
from arenaplan.train import operators
from arenaplan.train.gradients import RULES
from gradient_cases import CASES, Case, Differentiated
from raising import raises

DRAWS = int(os.environ.get("ARENAPLAN_GRADIENT_DRAWS", "2"))
"""Random nodes per operator."""
CONSTANT = {"StopGradient", "Sign", "Floor", "Ceil", "Round", "Assign"}
"""Operators through which no gradient flows, and one that writes a state."""


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_the_derivative_by_differences(name: str) -> None:
    for draw in range(DRAWS):
        rng = np.random.default_rng([zlib.crc32(name.encode()), draw])
        case = CASES[name](rng)
        node = Differentiated(case, rng)
        found = node.gradients()
        directions = {key: rng.standard_normal(x.shape) for key, x in node.inputs.items()}
        expected = node.slope(directions)
        product = sum(float(np.sum(found[f"{key}.grad"] * v)) for key, v in directions.items())
        assert product == pytest.approx(expected, rel=1e-6, abs=1e-7), (draw, node.forward.nodes)


@pytest.mark.parametrize("name", CASES)
def test_gradients_at_zeros_are_numbers_where_results_are(name: str) -> None:
    """Powers of 0 to 0 and norms of zeros have the gradient 0, as in other frameworks."""
    for draw in range(3):
        rng = np.random.default_rng([zlib.crc32(name.encode()), draw])
        node = Differentiated(CASES[name](rng), rng)
        node.inputs = {key: np.zeros_like(x) for key, x in node.inputs.items()}
        found = node.gradients()
        if np.isfinite(found["loss"]):
            assert not any(np.isnan(array).any() for array in found.values()), draw


def test_every_rule_is_tested() -> None:
    assert {name.split()[0] for name in CASES} - (INLINED[""] - RULES.keys()) | CONSTANT == set(
        RULES
    )


@pytest.mark.parametrize("name", sorted({"Max", "MaxPool", "ReduceMax", "Relu", "GlobalMaxPool"}))
def test_gradients_in_float32_and_verified(name: str) -> None:
    rng = np.random.default_rng(9)
    node = Differentiated(CASES[name](rng), rng, np.float32)
    with ap.Executor(node.train.graph) as executor:
        found = executor.run(node.inputs, verify=True)
    assert all(found[f"{key}.grad"].dtype == np.float32 for key in node.inputs)


# -- how gradients are put together ---------------------------------------------------------------


def gradients(train: ap.train.TrainingGraph, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    with ap.Executor(train.graph) as executor:
        return executor.run(inputs, verify=True)


def two(a: float = 2, b: float = 5) -> dict[str, np.ndarray]:
    return {"a": np.full(3, a, np.float32), "b": np.full(3, b, np.float32)}


def pair() -> tuple[ap.Graph, int, int]:
    graph = ap.Graph()
    return graph, graph.input("a", (3,)), graph.input("b", (3,))


def test_a_loss_that_is_listed_twice_counts_twice() -> None:
    """K-02: NNVM keeps the last incoming gradient of an entry alone."""
    graph, a, _ = pair()
    y = operators(graph).Add(a, a)
    seeds = [np.array([1, 2, 3], np.float32), np.array([10, 20, 30], np.float32)]
    train = ap.train.gradient(graph, of=[y, y], wrt=[a], seeds=seeds)
    assert gradients(train, **two())["a.grad"].tolist() == [22, 44, 66]


def test_the_same_gradient_of_two_values_is_returned_through_a_copy() -> None:
    graph, a, b = pair()
    loss = operators(graph).ReduceSum(operators(graph).Add(a, b), keepdims=0)
    train = ap.train.gradient(graph, of=loss, wrt=[a, b, a])
    assert len(set(train.gradients)) == 3
    found = gradients(train, **two())
    assert found["a.grad"].tolist() == found["b.grad"].tolist() == [1, 1, 1]
    assert "Identity" in {node.op for node in train.graph.nodes}


def test_a_loss_is_its_own_gradient_when_it_is_differentiated_by_itself() -> None:
    graph, a, _ = pair()
    train = ap.train.gradient(graph, of=a, wrt=[a], seeds=[np.full(3, 7, np.float32)])
    assert gradients(train, **two())["a.grad"].tolist() == [7, 7, 7]


@pytest.mark.parametrize(("count", "expected"), [(1, []), (2, ["Add"]), (3, ["Sum"]),
                                                 (7, ["Sum"]), (8, ["Add"] * 7)])  # fmt: skip
def test_gradients_of_one_value_are_added_by_one_node_below_the_cap(
    count: int, expected: list[str]
) -> None:
    graph, a, _ = pair()
    parts = [operators(graph).Mul(a, np.float32(k + 1)) for k in range(count)]
    total = operators(graph).Concat(*parts, axis=0)
    loss = operators(graph).ReduceSum(total, keepdims=0)
    train = ap.train.gradient(graph, of=loss, wrt=[a])
    added = train.graph.nodes[len(graph.nodes) :]
    assert [node.op for node in added if node.op in ("Add", "Sum")] == expected
    found = gradients(train, **two())["a.grad"]
    assert found.tolist() == [sum(range(1, count + 1))] * 3


def test_a_chain_of_additions_adds_in_place() -> None:
    """MXNet's `_grad_add`: from the cap on no two terms are needed at once."""

    def arena(cap: int) -> int:
        graph = ap.Graph()
        a = graph.input("a", (1024,))
        total = operators(graph).Mul(a, np.float32(1))
        for k in range(1, 12):
            total = operators(graph).Add(operators(graph).Mul(a, np.float32(k)), total)
        loss = operators(graph).ReduceSum(operators(graph).Mul(total, total), keepdims=0)
        train = ap.train.gradient(graph, of=loss, wrt=[a], sum_cap=cap)
        return ap.plan(train.graph, optimize="in-place,order,views").arena_bytes

    assert arena(8) < arena(100)


def test_no_gradient_flows_through_a_stop() -> None:
    graph, a, b = pair()
    product = operators(graph).Mul(operators(graph).StopGradient(a), b)
    loss = operators(graph).ReduceSum(operators(graph).Add(product, a), keepdims=0)
    found = gradients(ap.train.gradient(graph, of=loss, wrt=[a, b]), **two())
    assert found["a.grad"].tolist() == [1, 1, 1]
    assert found["b.grad"].tolist() == [2, 2, 2]


def test_a_value_may_be_taken_for_constant() -> None:
    graph, a, b = pair()
    square = operators(graph).Mul(a, a)
    loss = operators(graph).ReduceSum(
        operators(graph).Mul(operators(graph).Add(square, a), b), keepdims=0
    )
    found = gradients(ap.train.gradient(graph, of=loss, wrt=[a], stop=[square]), **two())
    assert found["a.grad"].tolist() == [5, 5, 5]


def test_a_gradient_that_no_rule_feeds_is_zero() -> None:
    graph, a, _ = pair()
    loss = operators(graph).ReduceSum(operators(graph).Floor(a), keepdims=0)
    assert gradients(ap.train.gradient(graph, of=loss, wrt=[a]), **two())["a.grad"].tolist() == [
        0,
        0,
        0,
    ]


def test_a_value_that_no_loss_depends_on_is_named() -> None:
    graph, a, b = pair()
    loss = operators(graph).ReduceSum(a, keepdims=0)
    with raises("NotDifferentiable", match=r"wrt\[1\] \('b'\)"):
        ap.train.gradient(graph, of=loss, wrt=[a, b])
    index = graph.input("i", (2,), "int64")
    with raises("NotDifferentiable", match="'i' holds int64"):
        ap.train.gradient(graph, of=loss, wrt=[index])


def test_a_node_without_a_rule_is_named() -> None:
    graph, a, _ = pair()
    marks = operators(graph).Det(operators(graph).Expand(a, np.array([3, 3])), name="marks")
    loss = operators(graph).ReduceSum(marks, keepdims=0)
    with raises("NotDifferentiable", match="'marks': operator Det has no gradient"):
        ap.train.gradient(graph, of=loss, wrt=[a])
    assert ap.train.gradient(
        graph, of=operators(graph).ReduceSum(a, keepdims=0), wrt=[a]
    )  # It is not on the way.


def test_seeds_have_the_shape_of_losses() -> None:
    graph, a, b = pair()
    y = operators(graph).Mul(a, b)
    with pytest.raises(ShapeMismatch, match="sum it, or give seeds"):
        ap.train.gradient(graph, of=y, wrt=[a])
    seed = graph.input("seed", (2,))
    with pytest.raises(ShapeMismatch, match=r"float32 of shape \(2,\)"):
        ap.train.gradient(graph, of=y, wrt=[a], seeds=[seed])
    with pytest.raises(InvalidOption, match="1 for 2 losses"):
        ap.train.gradient(graph, of=[y, y], wrt=[a], seeds=[None])


def test_a_seed_may_be_a_value() -> None:
    graph, a, b = pair()
    y = operators(graph).Mul(a, b)
    train = ap.train.gradient(graph, of=y, wrt=[a], seeds=[b])
    assert gradients(train, **two())["a.grad"].tolist() == [25, 25, 25]


def test_the_forward_graph_is_left_as_it_was() -> None:
    graph, a, _ = pair()
    x = operators(graph).Dropout(a, np.float32(0.5), np.bool_(True))
    loss = operators(graph).ReduceSum(x, keepdims=0)
    before = graph.to_json()
    ap.train.gradient(graph, of=loss, wrt=[a])
    assert graph.to_json() == before


def test_a_gradient_reads_the_old_content_of_a_state_that_is_replaced() -> None:
    """Versions: the backward pass must not multiply by the new content."""
    graph, a, _ = pair()
    w = graph.parameter("w", np.full(3, 3, np.float32))
    y = operators(graph).Mul(a, w)
    operators(graph).Assign(w, y)
    loss = operators(graph).ReduceSum(operators(graph).Mul(y, y), keepdims=0)
    train = ap.train.gradient(graph, of=loss, wrt=[a])
    with ap.Executor(train.graph) as executor:
        found = [executor.run(two(2), verify=True)["a.grad"].tolist() for _ in range(2)]
    # The derivative of (a w)² is 2 a w², with w = 3 and then w = 6.
    assert found == [[36] * 3, [144] * 3]


def test_a_gradient_flows_through_the_new_content_of_a_state() -> None:
    graph, a, _ = pair()
    w = graph.parameter("w", np.full(3, 3, np.float32))
    new = operators(graph).Assign(w, operators(graph).Mul(a, np.float32(4)))
    loss = operators(graph).ReduceSum(operators(graph).Mul(new, new), keepdims=0)
    train = ap.train.gradient(graph, of=loss, wrt=[a])
    assert gradients(train, **two(2))["a.grad"].tolist() == [64] * 3


def test_a_gradient_that_reads_a_state_that_a_node_has_mutated_is_refused() -> None:
    graph, a, _ = pair()
    w = graph.parameter("w", np.ones(3, np.float32))
    y = operators(graph).Mul(a, w)
    graph.node("Write", [w, y], [], mutates=[0])
    loss = operators(graph).ReduceSum(y, keepdims=0)
    with raises("NotDifferentiable", match="reads state 'w', which a later node"):
        ap.train.gradient(graph, of=loss, wrt=[a])
    assert ap.train.gradient(graph, of=loss, wrt=[w])  # That one reads `a`.


def test_parts_of_the_graph_that_nobody_asks_for_are_not_differentiated() -> None:
    graph = ap.Graph()
    image = graph.input("x", (1, 1, 6, 6))
    w = graph.parameter("w", np.ones((1, 1, 3, 3), np.float32))
    loss = operators(graph).ReduceSum(operators(graph).Conv(image, w), keepdims=0)
    train = ap.train.gradient(graph, of=loss, wrt=[w])
    made = {node.op for node in train.graph.nodes[len(graph.nodes) :]}
    assert "ConvGradWeight" in made
    assert "ConvTranspose" not in made


def test_ties_go_to_the_first_greatest_element_of_a_window() -> None:
    graph = ap.Graph()
    x = graph.input("x", (1, 1, 4))
    loss = operators(graph).ReduceSum(operators(graph).MaxPool(x, kernel_shape=[3]), keepdims=0)
    found = gradients(
        ap.train.gradient(graph, of=loss, wrt=[x]), x=np.array([[[1, 2, 2, 2]]], np.float32)
    )
    assert found["x.grad"].tolist() == [[[0, 2, 0, 0]]]


# -- random graphs --------------------------------------------------------------------------------


def random_graph(rng: np.random.Generator, nodes: int) -> Case:
    """Nodes that read any earlier values, so that gradients meet at values with several readers."""
    arrays = [rng.standard_normal(shape) for shape in ((3, 4), (1, 4), (3, 1), (4, 4), ())]

    def compose(o: Any, v: list[int]) -> int:
        # The first draws are made again for the same graph.
        own = np.random.default_rng(seed)
        wide = [v[0], o.Add(v[0], v[1]), o.Mul(v[0], v[2])]

        def pick() -> int:
            return wide[own.integers(0, len(wide))]

        for _ in range(nodes):
            a, b = pick(), pick()
            made = [
                lambda a=a, b=b: o.Mul(o.Tanh(a), b),
                lambda a=a, b=b: o.Sub(a, o.ReduceMean(b, [-1], keepdims=1)),
                lambda a=a: o.Softmax(a, axis=0),
                lambda a=a: o.Tanh(o.MatMul(a, v[3])),
                lambda a=a, b=b: o.Slice(o.Concat(a, b, axis=0), [1], [6], [0], [2]),
                lambda a=a, b=b: o.Div(a, o.Add(o.Mul(b, b), v[4] if own.random() < 0.1 else 2.0)),
                lambda a=a, b=b: o.Where(o.Less(a, b), o.Sin(a), b),
                lambda a=a: o.Transpose(o.Relu(o.Transpose(a))),
            ][own.integers(0, 8)]()
            wide.append(made)
        return o.Sum(*wide[-4:], o.Mul(v[4], wide[3]), o.MatMul(wide[1], v[3]), wide[2])

    seed = int(rng.integers(0, 1 << 32))
    return Case(arrays, compose)


def test_gradients_of_random_graphs_are_derivatives_by_differences() -> None:
    for draw in range(2 * DRAWS):
        rng = np.random.default_rng([77, draw])
        node = Differentiated(random_graph(rng, int(rng.integers(3, 13))), rng)
        directions = {key: rng.standard_normal(x.shape) for key, x in node.inputs.items()}
        found = node.gradients(optimize="none")
        product = sum(float(np.sum(found[f"{key}.grad"] * v)) for key, v in directions.items())
        slopes = [node.slope(directions, step) for step in (1e-6, 1e-7)]
        assert product == pytest.approx(slopes[0], rel=1e-5, abs=1e-5 * (1 + abs(slopes[1]))), draw
