"""Plans in which nodes run again, and values that replace an input or a state at its address."""

from __future__ import annotations

import json
from functools import cache, partial
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base.errors import InvalidOption
from arenaplan.cli import main
from raising import raises

ROWS = 64
LAYERS = 8


def training_step(width: int = 32) -> ap.Graph:
    """Return layers ``tanh(x w)``, their gradients, and an update of each ``w`` in place."""
    graph = ap.Graph("step")
    node = partial(graph.node, version=14)
    random = np.random.default_rng(7)
    form = (ROWS, width)
    square = (width, width)
    x = graph.input("x", form)
    rate = graph.constant("rate", (), data=np.float32(0.01))
    saved = []
    last = x
    for layer in range(LAYERS):
        initial = random.normal(0, 0.2, square).astype(np.float32)
        w = graph.state(f"w{layer}", square, initial=initial)
        (z,) = node(
            "MatMul",
            [last, w],
            [(f"z{layer}", form, "float32")],
            name=f"mul{layer}",
            pure=True,
            cost=2 * ROWS * width * width,
        )
        (y,) = node(
            "Tanh",
            [z],
            [(f"y{layer}", form, "float32")],
            name=f"tanh{layer}",
            in_place=[(0, 0)],
            pure=True,
            cost=8 * ROWS * width,
        )
        saved.append((last, w, y))
        last = y
    graph.output(last)
    gradient = last
    for layer, (read, w, y) in reversed(list(enumerate(saved))):
        keywords = {"pure": True, "cost": 8 * ROWS * width}

        def named(name: str, shape: tuple[int, ...], at: int = layer) -> list[ap.ValueSpec]:
            return [(f"{name}{at}", shape, "float32")]

        (s,) = node("Mul", [y, y], named("s", form), **keywords)
        (t,) = node("Mul", [s, gradient], named("t", form), in_place=[(0, 0)], **keywords)
        (d,) = node("Sub", [gradient, t], named("d", form), in_place=[(1, 0)], **keywords)
        attributes = {"perm": (1, 0)}
        (rt,) = node(
            "Transpose", [read], named("rt", (width, ROWS)), attributes=attributes, **keywords
        )
        (wt,) = node("Transpose", [w], named("wt", square), attributes=attributes, **keywords)
        (dw,) = node("MatMul", [rt, d], named("dw", square), pure=True, cost=10**5)
        (gradient,) = node("MatMul", [d, wt], named("g", form), pure=True, cost=10**5)
        (step,) = node("Mul", [dw, rate], named("step", square), in_place=[(0, 0)])
        (new,) = node("Sub", [w, step], named("new", square), in_place=[(0, 0)])
        graph.write_back(new, w)
    graph.output(gradient)
    return graph


def test_a_recomputed_run_equals_a_plain_one_bit_by_bit():
    graph = training_step()
    graph.target = "numpy"
    plain = ap.plan(graph, target="numpy", workspace="none", optimize="views,in-place")
    plan = ap.plan(
        graph,
        target="numpy",
        workspace="none",
        optimize="views,in-place",
        recompute=int(plain.arena_bytes * 0.9),
    )
    assert plan.schedule is not None
    assert len(plan.schedule) > len(graph.nodes)
    assert plan.arena_bytes <= 0.9 * plain.arena_bytes
    assert 0 < plan.extra_bound <= plan.extra_cost or plan.extra_bound == 0
    x = np.random.default_rng(3).normal(size=(ROWS, 32)).astype(np.float32)
    with ap.Executor(graph, plain) as first, ap.Executor(graph, plan) as second:
        for _ in range(3):
            expected, found = first.run({"x": x}), second.run({"x": x})
            assert expected.keys() == found.keys()
            for name, array in expected.items():
                assert np.array_equal(array, found[name]), name


def test_states_have_the_new_content_after_a_run():
    graph = ap.Graph("count")
    n = graph.state("n", (4,), initial=np.zeros(4, np.float32))
    one = graph.constant("one", (4,), data=np.ones(4, np.float32))
    (new,) = graph.node("Add", [n, one], [("new", (4,), "float32")], in_place=[(0, 0)], version=14)
    graph.write_back(new, n)
    graph.output(new)
    graph.target = "numpy"
    with ap.Executor(graph) as executor:
        runs = [executor.run({})["new"].copy() for _ in range(3)]
    assert [run[0] for run in runs] == [1, 2, 3]


def test_an_update_needs_no_bytes_of_its_own():
    graph = ap.Graph("update")
    p, g = graph.input("p", (1 << 20,)), graph.input("g", (1 << 20,))
    (new,) = graph.node("Sub", [p, g], [("new", (1 << 20,), "float32")], in_place=[(0, 0)])
    graph.output(new)
    graph.write_back(new, p)
    plan = ap.plan(graph)
    assert plan.arena_bytes == 8 << 20
    assert plan["new"].offset == plan["p"].offset
    again = ap.Graph.from_json(graph.to_json())
    assert again.digest == graph.digest
    assert again.write_backs == graph.write_backs


def test_a_reader_that_needs_the_new_content_is_named():
    graph = ap.Graph("update")
    p = graph.state("p", (16,))
    (new,) = graph.node("Neg", [p], [("new", (16,), "float32")], in_place=[(0, 0)])
    graph.node("Sub", [p, new], [("change", (16,), "float32")], name="late")
    graph.write_back(new, p)
    with raises("InvalidWriteBack", match="'late'"):
        ap.plan(graph)


def test_goals_are_met_or_refused():
    graph = training_step()
    most = ap.plan(graph, optimize="all,-order").arena_bytes
    plan = ap.plan(graph, recompute="20%")
    assert plan.arena_bytes < most
    assert plan.extra_cost <= 0.2
    plan.check(graph)
    assert ap.plan(graph, recompute=most).schedule is None
    with raises("RecomputeExceeded", match="none needs fewer than"):
        ap.plan(graph, recompute="1KiB")
    for wrong in ("-1%", "x%"):
        with pytest.raises(InvalidOption):
            ap.plan(graph, recompute=wrong)


def test_a_plan_with_scratch_memory_meets_a_budget_or_is_refused():
    graph = training_step()
    free = ap.plan(graph, target="numpy", recompute="0%").arena_bytes
    for part in (1.0, 0.9):
        plan = ap.plan(graph, target="numpy", recompute=int(free * part))
        assert plan.arena_bytes <= int(free * part)
        plan.check(graph)
    with raises("RecomputeExceeded", match=f"in {free // 10:,} bytes"):
        ap.plan(graph, target="numpy", recompute=free // 10)


def test_bytes_that_an_arena_was_found_for_are_enough():
    graph = training_step()
    most = ap.plan(graph, optimize="all,-order").arena_bytes
    for part in (0.95, 0.85):
        found = ap.plan(graph, recompute=int(most * part)).arena_bytes
        for more in (0, 63):
            assert ap.plan(graph, recompute=found + more).arena_bytes <= found + more


def test_equal_graphs_have_equal_plans():
    budget = int(ap.plan(training_step(), optimize="all,-order").arena_bytes * 0.85)
    plans = [ap.plan(training_step(), recompute=budget) for _ in range(2)]
    assert plans[0].to_json() == plans[1].to_json()


def test_curves_fall():
    curve = ap.recompute_curve(training_step())
    sizes = [point.arena_bytes for point in curve.points]
    extra = [point.extra for point in curve.points]
    assert sizes == sorted(sizes, reverse=True)
    assert extra == sorted(extra)
    assert all(point.bound <= point.extra for point in curve.points)
    assert sizes[-1] >= curve.floor


def chain(stages: int) -> ap.Graph:
    """Return stages with equal bytes and equal work, and the way back."""
    graph = ap.Graph("chain")
    values = [graph.input("x", (64,))]
    for at in range(stages):
        spec = [(f"a{at}", (64,), "float32")]
        values += graph.node("Stage", values[-1:], spec, pure=True, cost=1)
    last = values[-1]
    for at in reversed(range(stages)):
        spec = [(f"g{at}", (64,), "float32")]
        reads = [last, values[at]]
        (last,) = graph.node("Back", reads, spec, in_place=[(0, 0)], pure=True, cost=1)
    graph.output(last)
    return graph


@cache
def reversal_steps(stages: int, slots: int) -> int:
    """Return how often stages run to reverse a chain with so many checkpoints, at least."""
    if stages <= 1:
        return 0
    if slots == 1:
        return stages * (stages - 1) // 2
    steps = reversal_steps
    return min(k + steps(stages - k, slots - 1) + steps(k, slots) for k in range(1, stages))


@pytest.mark.parametrize("stages", [16, 32])
def test_chains_are_reversed_by_the_binomial_schedule(stages: int):
    """
    Work is that of the closed optimum (Griewank and Walther 2000) at every budget.

    Besides checkpoints, a stage that runs again needs its operand, its result and a gradient.
    """
    for slots in range(2, stages - 3):
        plan = ap.plan(chain(stages), recompute=(slots + 3) * 256)
        most = reversal_steps(stages, slots) - (stages - 1)
        assert plan.arena_bytes <= (slots + 3) * 256
        assert round(plan.extra_cost * 2 * stages) <= most, slots


def test_the_command_writes_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    graph = training_step()
    path, out = tmp_path / "step.graph.json", tmp_path / "plan.json"
    graph.save(path)
    assert main(["recompute", str(path), "--max-extra", "20%", "-o", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["again"]
    assert document["extra_cost"] <= 0.2
    assert ap.Plan.load(out).schedule == document["schedule"]
    assert main(["check", str(path), str(out)]) == 0
    capsys.readouterr()
    assert main(["recompute", str(path), "--curve"]) == 0
    assert "floor" in capsys.readouterr().out
    assert main(["recompute", str(path), "--budget", "1KiB"]) != 0
    assert main(["recompute", str(path), "--strategy", "sqrt-n"]) == 0


def test_the_command_writes_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Names of ``checkpoint_name`` are saved if the plan reads their values behind the last one."""
    graph = ap.Graph("step")
    x = graph.input("x", (64,))
    (a,) = graph.node("exp", [x], [("a:1", (64,), "float32")], name="exp:0", pure=True, cost=9)
    (b,) = graph.node("neg", [a], [("b:2", (64,), "float32")], name="neg:1", pure=True, cost=9)
    (c,) = graph.node("sin", [b], [("sin:3", (64,), "float32")], name="sin:2", pure=True, cost=9)
    (d,) = graph.node("mul", [c, a], [("mul:4", (64,), "float32")], name="mul:3", cost=9)
    graph.output(d)
    path, out = tmp_path / "step.graph.json", tmp_path / "policy.py"
    graph.save(path)
    command = ["recompute", str(path), "--max-extra", "0%", "--to"]
    assert main([*command, "jax-policy"]) == 0
    found = capsys.readouterr()
    assert found.out == ('jax.checkpoint_policies.save_only_these_names(\n    "a",\n    "b",\n)\n')
    assert "extra work" in found.err or "no node" in found.err
    assert main([*command, "jax-policy", "-o", str(out)]) == 0
    assert out.read_text() == found.out
    capsys.readouterr()
    assert main([*command, "json"]) == 0
    ap.Plan.from_json(capsys.readouterr().out.encode()).check(graph)
    assert main(["recompute", str(path), "--curve", "--to", "json"]) == 2
    other = tmp_path / "other.graph.json"
    training_step().save(other)
    capsys.readouterr()
    assert main(["recompute", str(other), "--max-extra", "5%", "--to", "jax-policy"]) == 2
    assert "checkpoint_name" in capsys.readouterr().err


def test_a_paged_run_equals_a_plain_one_bit_by_bit():
    graph = training_step()
    graph.target = "numpy"
    keywords = {"target": "numpy", "optimize": "views,in-place", "workspace": "none"}
    plain = ap.plan(graph, **keywords)
    budget = int(plain.arena_bytes * 0.88)
    without = ap.plan(graph, recompute=budget, **keywords)
    plan = ap.plan(graph, recompute=budget, page_to=ap.Space("host", cost=1), **keywords)
    assert plan.extra_cost <= without.extra_cost
    assert [space.name for space in plan.spaces] == ["arena", "host"]
    assert plan.spaces[0].arena_bytes <= budget
    copies = [it for it in plan.schedule or () if isinstance(it, ap.Transfer)]
    assert {it.way for it in copies} == {"out", "in"}
    assert ap.Plan.from_json(plan.to_json().encode()).schedule == plan.schedule
    x = np.random.default_rng(3).normal(size=(ROWS, 32)).astype(np.float32)
    with ap.Executor(graph, plain) as first, ap.Executor(graph, plan) as second:
        for verify in (False, False, True):
            expected, found = first.run({"x": x}), second.run({"x": x}, verify=verify)
            assert expected.keys() == found.keys()
            for name, array in expected.items():
                assert np.array_equal(array, found[name]), name


def test_a_slow_memory_needs_a_cost_and_a_goal():
    graph = training_step()
    for page_to, keywords in [
        ("host=1GiB", {"recompute": "5%"}),
        ("a=1GiB@1,b=1GiB@1", {"recompute": "5%"}),
        ("host=1GiB@1", {}),
        ("host=1GiB@1", {"recompute": "sqrt-n"}),
    ]:
        with pytest.raises(InvalidOption, match=r"page_to|paging"):
            ap.plan(graph, page_to=page_to, **keywords)
    with pytest.raises(InvalidOption, match=r"'out' or 'in'"):
        ap.Transfer(0, "away")
    with pytest.raises(InvalidOption, match="slow memory"):
        graph.scheduled([0, ap.Transfer(graph.nodes[0].outputs[0] or 0, "out")])


def test_the_command_copies_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    graph = training_step()
    path, out = tmp_path / "step.graph.json", tmp_path / "plan.json"
    graph.save(path)
    goal = ["--max-extra", "10%", "--page-to", "host=1GiB@1"]
    assert main(["recompute", str(path), *goal, "-o", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["copied"]
    assert [space["name"] for space in document["spaces"]] == ["arena", "host"]
    assert json.loads(out.read_text())["recomputed"]["schedule"] == document["schedule"]
    schema = json.loads(ap.planner.plan_schema())
    jsonschema.validate(json.loads(out.read_text()), schema)
    assert main(["check", str(path), str(out)]) == 0
    capsys.readouterr()
    assert main(["recompute", str(path), *goal]) == 0
    assert "copies out and in" in capsys.readouterr().out
