"""Recomputation inside of branches and loops: bodies in which nodes run again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.cli import main
from arenaplan.planner.bodies import bodies_of

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from raising import raises  # noqa: E402
from random_flow import Generator, Scope  # noqa: E402

SIZE = 256


def info(name: str, shape: Sequence[int] = (SIZE,), kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def joined(depth: int, first: str, last: str) -> list[Any]:
    """Return nodes that make values, and join all of them in reverse order."""
    nodes, before, made = [], first, []
    for level in range(depth):
        op = "Sin" if level % 2 else "Cos"
        nodes.append(helper.make_node(op, [before], [f"{last}.e{level}"]))
        before = f"{last}.e{level}"
        made.append(before)
    for level in reversed(range(depth)):
        after = f"{last}.d{level}"
        nodes.append(helper.make_node("Tanh", [before], [f"{after}.t"]))
        nodes.append(helper.make_node("Exp", [made[level]], [f"{after}.x"]))
        nodes.append(helper.make_node("Add", [f"{after}.t", f"{after}.x"], [after]))
        before = after
    return [*nodes, helper.make_node("Sigmoid", [before], [last])]


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> bytes:
    stored = [
        numpy_helper.from_array(np.array(3, np.int64), "three"),
        numpy_helper.from_array(np.array(True), "true"),
    ]
    graph = helper.make_graph(nodes, "smaller", inputs, outputs, stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 9
    data: bytes = made.SerializeToString()
    return data


def looped(nodes: Sequence[Any], name: str, rounds: str = "three") -> Any:
    """Return a Loop that carries ``x`` from ``NAME.x`` to ``NAME.y``."""
    goes_on = helper.make_node("Identity", [f"{name}.c"], [f"{name}.again"])
    single = [info(f"{name}.n", (), TensorProto.INT64), info(f"{name}.c", (), TensorProto.BOOL)]
    again = info(f"{name}.again", (), TensorProto.BOOL)
    inputs = [*single, info(f"{name}.x")]
    body = helper.make_graph([*nodes, goes_on], name, inputs, [again, info(f"{name}.y")])
    return helper.make_node("Loop", [rounds, "true", "x"], ["y"], name=name, body=body)


def loop_model() -> bytes:
    loop = looped(joined(6, "l.x", "l.y"), "l")
    return model([loop], [info("x")], [info("y")])


def endless_model() -> bytes:
    """Return a loop whose number of rounds is an input."""
    loop = looped(joined(6, "l.x", "l.y"), "l", "count")
    return model([loop], [info("x"), info("count", (), TensorProto.INT64)], [info("y")])


def scan_model() -> bytes:
    nodes = [helper.make_node("Add", ["s", "row"], ["mixed"]), *joined(6, "mixed", "next")]
    nodes.append(helper.make_node("Identity", ["next"], ["out"]))
    body = helper.make_graph(nodes, "body", [info("s"), info("row")], [info("next"), info("out")])
    scan = helper.make_node("Scan", ["x", "rows"], ["y", "all"], body=body, num_scan_inputs=1)
    inputs, outputs = [info("x"), info("rows", (3, SIZE))], [info("y"), info("all", (3, SIZE))]
    return model([scan], inputs, outputs)


def branch_model() -> bytes:
    """Return a branch whose result takes over the value that the branch reads."""
    then = helper.make_graph(joined(6, "k", "t"), "then", [], [info("t")])
    other = helper.make_graph(joined(3, "k", "e"), "else", [], [info("e")])
    before = helper.make_node("Cos", ["x"], ["k"])
    chosen = helper.make_node("If", ["b"], ["y"], then_branch=then, else_branch=other)
    inputs = [info("x"), info("b", (), TensorProto.BOOL)]
    return model([before, chosen], inputs, [info("y")])


def nested_model() -> bytes:
    """Return a loop over a loop, between nodes that keep a value."""
    inner = looped(joined(5, "i.x", "i.y"), "i")
    inner.input[2] = "o.x"
    inner.output[0] = "i.out"
    outer = looped([inner, *joined(3, "i.out", "o.y")], "o")
    outer.input[2], outer.output[0] = "k", "z"
    before = helper.make_node("Cos", ["x"], ["k"])
    after = helper.make_node("Add", ["z", "k"], ["y"])
    return model([before, outer, after], [info("x")], [info("y")])


MODELS: dict[str, Callable[[], bytes]] = {
    "loop": loop_model,
    "unknown rounds": endless_model,
    "scan": scan_model,
    "branch": branch_model,
    "nested": nested_model,
}


class Joins(Generator):
    """Makes models whose bodies keep values for later nodes."""

    def fill(self, nodes: list[Any], scope: Scope, count: int, depth: int) -> None:
        for _ in range(self.random.randint(1, 2) if depth else 0):
            name, shape = self.value(scope)
            kept = [name]
            for _ in range(self.random.randint(3, 8)):
                op = self.random.choice(["Neg", "Abs", "Relu"])
                nodes.append(helper.make_node(op, [kept[-1]], [self.name()]))
                kept.append(nodes[-1].output[0])
            self.random.shuffle(kept)
            while len(kept) > 1:
                op = self.random.choice(["Max", "Min"])
                nodes.append(helper.make_node(op, [kept.pop(), kept.pop()], [self.name()]))
                kept.append(nodes[-1].output[0])
            scope.values.append((kept[0], shape))
        super().fill(nodes, scope, count, depth)


def given(graph: ap.Graph) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(3)
    found: dict[str, np.ndarray] = {}
    for index in graph.inputs:
        value = graph.values[index]
        if value.dtype == "float32":
            found[value.name] = numbers.integers(-3, 4, value.shape).astype(np.float32)
        else:
            found[value.name] = np.full(
                value.shape, 2 if value.dtype == "int64" else 1, value.dtype
            )
    return found


def results(graph: ap.Graph, plan: ap.Plan, inputs: dict[str, np.ndarray]) -> Iterator[bytes]:
    with ap.Executor(graph, plan) as executor:
        for verify in (True, False):
            found = executor.run(inputs, verify=verify)
            yield b"".join(array.tobytes() for array in found.values())


def follow(data: bytes, inputs: dict[str, np.ndarray] | None = None) -> list[ap.Plan]:
    """Check that curve, calls and runs agree, and return the plans."""
    graph, again = ap.load(data), ap.load(data)
    inputs = given(graph) if inputs is None else inputs
    (wanted,) = {*results(graph, ap.plan(graph), inputs)}
    points = ap.recompute_curve(graph).points
    for first, second in pairwise(points):
        assert first.arena_bytes > second.arena_bytes
        assert first.extra < second.extra
    plans = []
    for point in points:
        plan = ap.plan(graph, recompute=point.arena_bytes, workspace="none")
        assert plan.arena_bytes <= point.arena_bytes
        assert point.bound <= plan.extra_cost <= point.extra
        read = ap.Plan.from_json(plan.to_json())
        read.check(again)
        assert {*results(again, read, inputs)} == {wanted}
        plans.append(plan)
    return plans


@pytest.mark.parametrize("kind", MODELS)
def test_bodies_repeat_nodes_where_bytes_are_short(kind: str) -> None:
    plans = follow(MODELS[kind]())
    assert plans[-1].arena_bytes < plans[0].arena_bytes
    assert plans[-1].inner


def test_random_bodies_compute_the_same_in_fewer_bytes() -> None:
    smaller = 0
    for seed in range(10):
        generator = Joins(seed)
        made = generator.model()
        plans = follow(made.SerializeToString(), generator.inputs(made))
        smaller += sum(bool(plan.inner) for plan in plans)
    assert smaller > 5


@pytest.mark.parametrize("kind", MODELS)
def test_budgets_count_scratch_memory_too(kind: str) -> None:
    graph = ap.load(MODELS[kind]())
    plain = ap.plan(graph)
    (wanted,) = {*results(graph, plain, given(graph))}
    least = ap.recompute_curve(graph).points[-1].arena_bytes
    costs = []
    for share in (1.0, 0.9, 0.8, 0.7):
        budget = max(int(plain.arena_bytes * share), least)
        plan = ap.plan(graph, recompute=budget)
        plan.check(graph)
        assert plan.arena_bytes <= budget
        assert {*results(graph, plan, given(graph))} == {wanted}
        costs.append(plan.extra_cost)
    assert costs == sorted(costs)


def accumulation(layers: int, batch: int, width: int) -> bytes:
    """Return a Scan over batches that adds up the gradients of layers."""
    nodes: list[Any] = []

    def op(kind: str, *reads: str, made: str = "", **attributes: Any) -> str:
        made = made or f"v{len(nodes)}"
        nodes.append(helper.make_node(kind, reads, [made], **attributes))
        return made

    kept = ["image"]
    for layer in range(layers):
        kept.append(op("Tanh", op("MatMul", kept[-1], f"w{layer}")))
    error = op("Sub", kept[-1], "label")
    for layer in reversed(range(layers)):
        error = op("Mul", error, op("Sub", "one", op("Mul", kept[layer + 1], kept[layer + 1])))
        turned = op("Transpose", kept[layer], perm=[1, 0])
        op("Add", f"sum{layer}", op("MatMul", turned, error), made=f"more{layer}")
        error = op("MatMul", error, op("Transpose", f"w{layer}", perm=[1, 0]))
    sums, rows = [f"sum{it}" for it in range(layers)], [info("image", (batch, width))]
    rows.append(info("label", (batch, width)))
    made = [info(f"more{it}", (width, width)) for it in range(layers)]
    body = helper.make_graph(nodes, "b", [*(info(it, (width, width)) for it in sums), *rows], made)
    results = [f"gradient{it}" for it in range(layers)]
    starts = [f"start{it}" for it in range(layers)]
    scan = helper.make_node("Scan", [*starts, "x", "y"], results, body=body, num_scan_inputs=2)
    inputs = [*starts, *(f"w{it}" for it in range(layers))]
    given = [info(it, (width, width)) for it in inputs]
    given += [info(it, (4, batch, width)) for it in "xy"]
    one = helper.make_node("Constant", [], ["one"], value_float=1.0)
    return model([one, scan], given, [info(it, (width, width)) for it in results])


def test_gradients_that_a_scan_adds_up_need_half_of_the_bytes() -> None:
    graph = ap.load(accumulation(12, 256, 16))
    (node,) = (node for node in graph.nodes if bodies_of(node))
    (body,) = bodies_of(node)
    points = ap.recompute_curve(graph, inputs="caller", outputs="caller").points
    assert points[0].arena_bytes == body.nbytes
    half = next(point for point in points if point.arena_bytes <= body.nbytes / 2)
    assert half.extra < 0.25
    rows = [graph.values[index].name for index in graph.inputs]
    numbers = np.random.default_rng(5)
    inputs = {
        name: numbers.standard_normal(graph.values[index].shape, np.float32) / 4
        for name, index in zip(rows, graph.inputs, strict=True)
    }
    plan = ap.plan(graph, recompute=points[-1].arena_bytes + 10**6, workspace="none")
    (wanted,) = {*results(graph, ap.plan(graph, workspace="none"), inputs)}
    assert {*results(graph, plan, inputs)} == {wanted}


def test_work_inside_counts_for_each_round() -> None:
    three, unknown = ap.load(loop_model()), ap.load(endless_model())
    work = []
    for graph in (three, unknown):
        (node,) = graph.nodes
        (body,) = bodies_of(node)
        size = ap.recompute_curve(graph).points[-1].arena_bytes
        plan = ap.plan(graph, recompute=size, workspace="none")
        (smaller,) = bodies_of(graph.for_plan(plan).nodes[0])
        assert smaller.nbytes < body.nbytes
        assert plan.inner == [(0, smaller.nbytes)]
        work.append(graph.for_plan(plan).nodes[0].cost - node.cost)
        assert plan.extra_cost == pytest.approx(work[-1] / node.cost)
    assert work[0] == 3 * work[1]


def test_a_plan_with_other_bytes_inside_is_refused() -> None:
    graph = ap.load(loop_model())
    size = ap.recompute_curve(graph).points[-1].arena_bytes
    plan = ap.plan(graph, recompute=size, workspace="none")
    ((_, inside),) = plan.inner
    with raises(errors.InvalidOption, match=rf"'l' cannot run in {inside + 1:,} bytes"):
        graph.scheduled([0], inner=[(0, inside + 1)])
    with raises(errors.InvalidOption, match="there is no node 7 among 1"):
        graph.scheduled([0], inner=[(7, inside)])
    for other in (ap.load(scan_model()), ap.Graph.from_json(graph.to_json()), ap.Graph("empty")):
        with raises((errors.InvalidOption, errors.PlanError)):
            plan.check(other)


def test_the_command_names_the_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, written = tmp_path / "loop.onnx", tmp_path / "plan.json"
    path.write_bytes(loop_model())
    size = ap.recompute_curve(path).points[-1].arena_bytes
    arguments = ["recompute", str(path), "--budget", str(size)]
    assert main([*arguments, "-o", str(written)]) == 0
    assert "run inside   1 nodes, whose bodies repeat nodes" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["inside"]
    assert (row["node"], row["runs"]) == ("l", 1)
    assert main(["check", str(path), str(written)]) == 0
