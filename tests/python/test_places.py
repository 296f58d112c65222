"""Nodes in memories, and copies between them as nodes."""

from __future__ import annotations

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base.errors import InvalidOption


def branches() -> ap.Graph:
    """Return a graph of three branches that read one value, and their sum."""
    graph = ap.Graph("branches")
    x = graph.input("x", (8, 16))
    (a,) = graph.node("Tanh", [x], [("a", (8, 16), "float32")], name="stem", version=14)
    ends = []
    for at in range(3):
        (b,) = graph.node("Abs", [a], [(f"b{at}", (8, 16), "float32")], name=f"b{at}", version=13)
        (c,) = graph.node(
            "Mul", [b, a], [(f"c{at}", (8, 16), "float32")], name=f"c{at}", version=14
        )
        ends.append(c)
    (s,) = graph.node("Sum", ends, [("s", (8, 16), "float32")], name="sum", version=13)
    graph.output(s)
    graph.target = "numpy"
    return graph


def test_readers_of_one_memory_share_a_copy_and_results_are_equal():
    graph = branches()
    placed = ap.classic.place_nodes(
        graph, {"stem": "one", "b[01]": "two", "c[01]": "two", "sum": "one"}
    )
    added = {node.name: node for node in placed.nodes[len(graph.nodes) :]}
    # One copy of `a` for four readers, and one for each result that goes back.
    assert sorted(added) == ["a.to.two", "c0.to.one", "c1.to.one"]
    copied = added["a.to.two"].outputs[0]
    readers = [node.name for node in placed.nodes if copied in node.inputs]
    assert readers == ["b0", "c0", "b1", "c1"]
    x = np.random.default_rng(5).normal(size=(8, 16)).astype(np.float32)
    with ap.Executor(graph) as plain, ap.Executor(placed) as apart:
        for verify in (False, True):
            expected, found = plain.run({"x": x}), apart.run({"x": x}, verify=verify)
            assert np.array_equal(expected["s"], found["s"])
    plan = ap.plan(placed)
    spaces = {name: plan.spaces[plan[name].space].name for name in plan}
    assert (spaces["a"], spaces["a@two"], spaces["b0"], spaces["s"]) == ("one", "two", "two", "one")
    # A node without a memory takes that of its operand, here `stem`.
    assert spaces["b2"] == "one"


def test_nodes_before_placed_ones_take_the_memory_of_their_readers():
    placed = ap.classic.place_nodes(branches(), {"sum": "two"})
    assert {value.space for value in placed.values} == {"two"}
    assert len(placed.nodes) == len(branches().nodes)


def test_a_graph_in_one_memory_is_the_same():
    graph = branches()
    assert ap.classic.place_nodes(graph, {"*": "arena"}).digest == graph.digest


def test_states_are_changed_where_they_are():
    graph = ap.Graph("update")
    p, x = graph.state("p", (16,)), graph.input("x", (16,))
    (y,) = graph.node("Add", [x, p], [("y", (16,), "float32")], name="forward")
    (g,) = graph.node("Neg", [y], [("g", (16,), "float32")], name="backward")
    (new,) = graph.node("Sub", [p, g], [("new", (16,), "float32")], name="sub", in_place=[(0, 0)])
    graph.write_back(new, p)
    with pytest.raises(InvalidOption, match="'sub' computes in 'two' and changes 'p'"):
        ap.classic.place_nodes(graph, {"forward": "one", "sub": "two"})
    placed = ap.classic.place_nodes(graph, {"forward": "one", "backward": "two", "sub": "one"})
    assert ap.plan(placed)["new"].offset == ap.plan(placed)["p"].offset
    with pytest.raises(InvalidOption, match="no node is called 'x\\*'"):
        ap.classic.place_nodes(graph, {"x*": "two"})
