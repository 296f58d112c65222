"""Nodes in memories, and copies between them as nodes."""

from __future__ import annotations

import json

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base.errors import InvalidOption
from raising import raises
from test_spaces import sealed


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


@pytest.mark.parametrize("default", ["arena", "cpu"])
@pytest.mark.parametrize("seed", range(6))
def test_with_a_budget_every_value_stays_in_the_memory_of_its_node(seed: int, default: str) -> None:
    rng = np.random.default_rng(seed)
    graph = ap.Graph("random")
    values = [graph.input("x", (64,))]
    for number in range(8):
        read = [values[int(at)] for at in rng.integers(0, len(values), 2)]
        values += graph.node("Op", read, [(f"v{number}", (64,), "float32")], name=f"n{number}")
    graph.output(values[-1])
    places = {f"n{number}": str(rng.choice(["npu", default])) for number in range(8)}
    placed = ap.classic.place_nodes(graph, places, default=default)
    for order in (f"npu=64KiB,{default}=64KiB", f"{default}=64KiB,npu=64KiB"):
        plan = ap.plan(placed, target="c", spaces=order)
        plan.check(placed)
        where = {name: plan.space_name(plan[name].space) for name in plan}
        for node in placed.nodes:
            is_copy = node.op == "Transfer"
            home = node.name.rpartition(".to.")[2] if is_copy else places[node.name]
            touched = [*node.outputs, *([] if is_copy else node.inputs)]
            names = [placed.values[value].name for value in touched if value is not None]
            assert {where[name] for name in names} == {home}, node.name
    with pytest.raises(InvalidOption, match="there is no space"):
        ap.plan(ap.classic.place_nodes(graph, {"*": "npu"}), target="c", spaces="psram=64KiB,a=1")


def test_the_checker_refuses_a_value_in_a_foreign_memory() -> None:
    graph = ap.Graph("two")
    x = graph.input("x", (64,))
    (code,) = graph.node("Exp", [x], [("code", (64,), "float32")], name="encoder")
    (y,) = graph.node("Neg", [code], [("y", (64,), "float32")], name="decoder")
    graph.output(y)
    for default in ("cpu", "arena"):
        places = {"encoder": "npu", "decoder": default}
        placed = ap.classic.place_nodes(graph, places, default=default)
        plan = ap.plan(placed, target="c", spaces=f"npu=4KiB,{default}=4KiB")
        whole = ap.plan(graph, target="c", spaces=f"npu=4KiB,{default}=4KiB")
        assert {whole[name].space for name in whole} == {0}, "without places the cheapest is best"
        document = json.loads(plan.to_json())
        document["spaces"][0]["name"], document["spaces"][1]["name"] = default, "npu"
        with raises("PlanMismatch", match="is in another space"):
            ap.Plan.from_json(sealed(document)).check(placed)


def test_copies_run_beside_nodes_and_a_plan_that_moves_them_is_refused() -> None:
    graph = ap.Graph("beside")
    x = graph.input("x", (64,))
    (a,) = graph.node("Exp", [x], [("a", (64,), "float32")], name="start")
    values = [a]
    for number in range(4):
        values += graph.node(
            "Neg", values[-1:], [(f"v{number}", (64,), "float32")], name=f"n{number}"
        )
    (b,) = graph.node("Abs", [a], [("b", (64,), "float32")], name="other")
    (c,) = graph.node("Add", [values[-1], b], [("c", (64,), "float32")], name="end")
    graph.output(c)
    placed = ap.classic.place_nodes(graph, {"*": "npu", "other": "cpu"}, default="cpu")
    plan = ap.plan(placed, target="c", spaces="npu=4KiB,cpu=4KiB", workers=2)
    timetable = plan.timetable
    assert timetable is not None
    steps = [placed.nodes[step[0]].name for step in plan.steps]
    starts = dict(zip(steps, timetable.starts, strict=True))
    ends = {
        name: start + cost
        for (name, start), cost in zip(starts.items(), timetable.costs, strict=True)
    }
    copies = {"a.to.cpu": ("start", "other"), "b.to.npu": ("other", "end")}
    for copy, (source, reader) in copies.items():
        assert ends[source] <= starts[copy] < ends[copy] <= starts[reader]
        assert any(
            starts[node] < ends[copy] and starts[copy] < ends[node] for node in ("n0", "n1", "n2")
        ), "beside other nodes"
        document = json.loads(plan.to_json())
        document["timetable"]["starts"][steps.index(copy)] = starts[source]
        with raises("PlanMismatch"):
            ap.Plan.from_json(sealed(document)).check(placed)
    for number in range(len(plan)):
        document = json.loads(plan.to_json())
        place = document["values"][number]
        place["space"] = 1 - place["space"]
        with raises(("PlanMismatch", "PlanOverlap"), match="is in another space"):
            ap.Plan.from_json(sealed(document)).check(placed)
