"""Plans for several workers, hazards, and executors with threads."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest

import arenaplan as ap
from arenaplan.base.errors import InvalidOption
from arenaplan.cli import main
from arenaplan.deploy.export import EXPORTERS
from arenaplan.run.numpy.signatures import byte_size
from dynamic_models import attention, convolutions
from raising import raises
from random_models import random_inputs, random_model
from test_cli import model


def branches(width: int = 4, depth: int = 3, size: int = 4096) -> ap.Graph:
    """Return chains of nodes of one input, and their sum."""
    graph = ap.Graph("branches")
    x = graph.input("x", (size,))
    ends = []
    for branch in range(width):
        last = x
        for at in range(depth):
            name = f"v{branch}_{at}"
            op = "Exp" if at % 2 else "Tanh"
            (last,) = graph.node(op, [last], [(name, (size,), "float32")], version=13)
        ends.append(last)
    while len(ends) > 1:
        name = f"s{len(ends)}"
        (total,) = graph.node("Add", ends[:2], [(name, (size,), "float32")], version=14)
        ends = [*ends[2:], total]
    graph.output(ends[0])
    return graph


def test_plans_for_workers_have_a_timetable() -> None:
    graph = branches()
    one, four = ap.plan(graph), ap.plan(graph, workers=4)
    assert one.timetable is None
    assert one.options["workers"] == 1
    table = four.timetable
    assert table is not None
    assert (table.workers, len(table.starts)) == (4, len(four.steps))
    assert table.work == sum(table.costs)
    assert table.span == max(map(sum, zip(table.starts, table.costs, strict=True)))
    assert table.parallelism > 1.5
    assert four.arena_bytes > one.arena_bytes
    again = ap.Plan.from_json(four.to_json().encode())
    assert again.timetable == table
    assert pickle.loads(pickle.dumps(table)) == table
    again.check(graph)
    jsonschema.validate(json.loads(four.to_json()), json.loads(ap.planner.plan_schema()))


@pytest.mark.parametrize("workers", [0, -1, 1 << 32])
def test_numbers_of_workers_are_checked(workers: int) -> None:
    with pytest.raises(InvalidOption, match="workers"):
        ap.plan(branches(), workers=workers)
    with pytest.raises(TypeError):
        ap.plan(branches(), workers=1.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="workers"):
        ap.plan(branches(), workers=2, parallel_safe=True)


def test_hazards_are_checked() -> None:
    graph = branches()
    plan = ap.plan(graph)
    hazards = plan.hazards(graph)
    assert hazards.steps == len(plan.steps)
    assert len(hazards) == len(hazards.edges)
    assert [edge for step in range(hazards.steps) for edge in hazards.of(step)] == hazards.edges
    plan.check_hazards(graph, hazards)
    text = hazards.to_json()
    assert ap.planner.Hazards.from_json(text.encode()) == hazards
    assert pickle.loads(pickle.dumps(hazards)) == hazards
    jsonschema.validate(json.loads(text), json.loads(ap.planner.hazards_schema()))
    assert json.loads(text)["edges"][0] == {"after": 1, "before": 0, "kind": hazards.edges[0].kind}
    for index in range(len(hazards)):
        mutant = json.loads(text)
        del mutant["edges"][index]
        with raises("HazardMismatch"):
            plan.check_hazards(graph, ap.planner.Hazards.from_json(json.dumps(mutant).encode()))
    costs = [1] * hazards.steps
    assert hazards.timetable(costs, 1).span == hazards.steps
    assert hazards.critical_path(costs) <= hazards.steps


def test_hazards_are_written_and_checked_by_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model(tmp_path / "model.onnx")
    plan, hazards = tmp_path / "plan.json", tmp_path / "hazards.json"
    assert main(["plan", str(path), "--workers", "2", "--optimize", "none", "-o", str(plan)]) == 0
    assert "workers      2;" in capsys.readouterr().out
    assert json.loads(plan.read_text())["options"]["workers"] == 2
    to = ["export", str(path), "--plan", str(plan), "--to"]
    assert main([*to, "hazards", "-o", str(hazards)]) == 0
    assert main([*to, "hazards-c", "-o", str(tmp_path / "hazards.h")]) == 0
    capsys.readouterr()
    check = ["check", str(path), str(plan), "--hazards", str(hazards)]
    assert main(check) == 0
    assert "all needed" in capsys.readouterr().out
    assert main([*check, "--json"]) == 0
    document = json.loads(hazards.read_text())
    assert json.loads(capsys.readouterr().out)["hazards"] == len(document["edges"]) > 0
    document["edges"] = document["edges"][1:]
    hazards.write_text(json.dumps(document))
    assert main(check) == 1
    assert "may run before" in capsys.readouterr().err
    assert main(["check", str(path), "--hazards", str(hazards)]) == 2


def test_the_c_table_of_hazards_compiles_and_is_that_of_the_plan(tmp_path: Path) -> None:
    graph = branches(3, 2)
    plan = ap.plan(graph)
    hazards = plan.hazards(graph)
    (tmp_path / "plan.h").write_bytes(EXPORTERS["hazards-c"].write(graph, plan))
    (tmp_path / "main.c").write_text(
        """
        #include <stdio.h>
        #include "plan.h"
        int main(void) {
            for (unsigned step = 0; step < BRANCHES_STEPS; ++step) {
                for (unsigned at = BRANCHES_STARTS[step]; at < BRANCHES_STARTS[step + 1]; ++at)
                    printf("%u %u %u\\n", step, BRANCHES_WAITS[at], BRANCHES_KINDS[at]);
                for (unsigned at = BRANCHES_DEPENDENT_STARTS[step];
                     at < BRANCHES_DEPENDENT_STARTS[step + 1]; ++at)
                    printf("< %u %u\\n", step, BRANCHES_DEPENDENTS[at]);
                printf("@ %u\\n", BRANCHES_NODES[step]);
            }
            return 0;
        }
        """
    )
    built = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "main.c", "-o", "main"]
    subprocess.run(built, cwd=tmp_path, check=True)
    found = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    kinds = ["data", "write-after-read", "write-after-write", "control"]
    expected = []
    for step, after in enumerate(hazards.dependents()):
        expected += [f"{step} {edge.before} {kinds.index(edge.kind)}" for edge in hazards.of(step)]
        expected += [f"< {step} {other}" for other in after]
        expected.append(f"@ {plan.steps[step][-1]}")
    assert found.stdout.splitlines() == expected


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("planned", [1, 4])
def test_threads_make_the_bits_of_a_serial_run(workers: int, planned: int) -> None:
    graph = branches()
    x = np.linspace(-1, 1, 4096, dtype=np.float32)
    with ap.Executor(graph) as executor:
        (expected,) = executor.run({"x": x}).values()
    with ap.Executor(graph, ap.plan(graph, workers=planned), workers=workers) as executor:
        for _ in range(20):
            (found,) = executor.run({"x": x}).values()
            np.testing.assert_array_equal(found, expected)
        (found,) = executor.run({"x": x}, verify=True).values()
        np.testing.assert_array_equal(found, expected)


def test_an_executor_plans_for_its_workers() -> None:
    graph = branches()
    with ap.Executor(graph, workers=3) as executor:
        assert executor.plan.options["workers"] == 3
    with pytest.raises(InvalidOption, match="workers"):
        ap.Executor(graph, workers=0)


def check_in_any_timing(
    graph: ap.Graph, plan: ap.Plan, inputs: Mapping[str, np.ndarray], seed: int, share: float
) -> None:
    """Compare runs in which a share of the kernels wait, so that steps end in any order."""
    with ap.Executor(graph, plan) as executor:
        expected = executor.run(inputs)
    draw = random.Random(seed)

    def slowed(run: Callable[[], object]) -> Callable[[], object]:
        def late() -> object:
            if draw.random() < share:
                time.sleep(draw.random() / 2000)
            return run()

        return late

    for workers in (2, 4):
        with ap.Executor(graph, plan, workers=workers) as executor:
            setup = executor._setup
            assert setup is not None
            setup.program.runs[:] = [slowed(run) for run in setup.program.runs]
            del setup  # It has views of the arena.
            for _ in range(3):
                found = executor.run(inputs)
                for name, array in expected.items():
                    assert found[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("seed", range(20))
def test_random_models_on_threads_compute_the_same_bits(seed: int, tmp_path: Path) -> None:
    model, path = random_model(seed), tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    inputs = random_inputs(model)
    graph = ap.load(path)
    for plan in (ap.plan(graph), ap.plan(graph, workers=3), ap.plan(graph, workspace="none")):
        check_in_any_timing(graph, plan, inputs, seed, 0.2)


@pytest.mark.parametrize("make", [attention, convolutions])
def test_networks_in_which_every_node_waits_compute_the_same_bits(
    make: Callable[[], onnx.ModelProto], tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(make().SerializeToString())
    bind = {"batch": 2, "seq": 5} if make is attention else {"batch": 2}
    graph = ap.load(path, bind=bind)
    draw = np.random.default_rng(3)
    shapes = {graph.values[index].name: graph.values[index].shape for index in graph.inputs}
    inputs = {
        name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    for workers in (1, 4):
        check_in_any_timing(graph, ap.plan(graph, workers=workers), inputs, 3, 1.0)


def test_a_chain_waits_for_the_operands_of_all_its_steps() -> None:
    """The sum runs with the second convolution, and must find the result of the first one."""
    graph = ap.Graph("residual")
    draw = np.random.default_rng(5)
    x = graph.input("x", (1, 4, 8, 8))
    ends = []
    for name in "ab":
        w = draw.standard_normal((4, 4, 3, 3)).astype(np.float32)
        weight = graph.constant(f"w{name}", w.shape, "float32", w)
        shape = [(name, (1, 4, 8, 8), "float32")]
        attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        ends += graph.node("Conv", [x, weight], shape, attributes=attributes, version=11)
    (total,) = graph.node(
        "Add", [ends[1], ends[0]], [("sum", (1, 4, 8, 8), "float32")], version=14, in_place=[(0, 0)]
    )
    graph.output(total)
    inputs = {"x": draw.standard_normal((1, 4, 8, 8)).astype(np.float32)}
    plan = ap.plan(graph, optimize="in-place", target="numpy", workspace="none")
    with ap.Executor(graph, plan) as executor:
        (expected,) = executor.run(inputs).values()
    with ap.Executor(graph, plan, workers=2) as executor:
        setup = executor._setup
        assert setup is not None
        assert [node.op for node in setup.program.nodes] == ["Conv", "Conv"]

        def late(first: Callable[[], object] = setup.program.runs[0]) -> None:
            time.sleep(0.02)
            first()

        setup.program.runs[0] = late
        del setup  # It has views of the arena.
        for scale in (1, -1):
            (found,) = executor.run({"x": scale * inputs["x"]}).values()
            np.testing.assert_array_equal(found, scale * expected)
        del late


def test_options_trade_bytes_for_time() -> None:
    graph = branches()
    one, four = ap.plan(graph), ap.plan(graph, workers=4)
    least = ap.plan(graph, workers=4, max_slowdown=None)
    assert least.arena_bytes <= one.arena_bytes < four.arena_bytes
    spans = []
    for capacity in range(one.arena_bytes, four.arena_bytes + 1, byte_size(graph.values[0])):
        plan = ap.plan(graph, workers=4, budget=capacity)
        assert plan.arena_bytes <= capacity
        assert plan.timetable is not None
        spans.append(plan.timetable.span)
    assert spans == sorted(spans, reverse=True)
    assert four.timetable is not None
    assert spans[0] > spans[-1] <= four.timetable.span


def test_costs_of_nodes_make_the_timetable() -> None:
    graph = branches(2, 2, 16)
    costs = [1, 1, 5, 5, 1]
    for options in ({}, {"target": "numpy"}):
        plan = ap.plan(graph, workers=2, node_times=costs, **options)  # type: ignore[arg-type]
        assert plan.timetable is not None
        # The longest chain takes 11, and one worker takes 13.
        assert plan.timetable.work == 13
        assert 11 <= plan.timetable.span < 13
    for bad, message in ([1], "the graph has 5 nodes"), ([-1] * 5, "integers from 0"):
        with pytest.raises(InvalidOption, match=message):
            ap.plan(graph, workers=2, node_times=bad)
    with pytest.raises(InvalidOption, match="one worker"):
        ap.plan(graph, node_times=costs)


def test_the_first_step_that_fails_is_reported() -> None:
    graph = branches(4, 2, 64)
    x = np.zeros(64, np.float32)
    with ap.Executor(graph, workers=4) as executor:
        setup = executor._setup
        assert setup is not None
        names = [node.name for node in setup.program.nodes]

        def failing(position: int) -> Callable[[], None]:
            def run() -> None:
                raise ValueError(f"run {position}")

            return run

        kept = list(setup.program.runs)
        for position in (2, 5, 6):
            setup.program.runs[position] = failing(position)
        for _ in range(10):
            with raises("KernelError", match=rf"{names[2]}.*run 2") as caught:
                executor.run({"x": x})
            assert isinstance(caught.value.__cause__, ValueError)
            del caught  # Its frames have views of the arena.
        setup.program.runs[:] = kept
        del setup, kept
        executor.run({"x": x})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("counts", [{"workers": 2}, {"threads": 2}, {"workers": 2, "threads": 2}])
def test_an_executor_runs_in_a_fork_as_in_its_parent(counts: dict[str, int]) -> None:
    graph = ap.Graph("two branches")
    x = graph.input("x", (64, 64))
    (a,) = graph.node("Relu", [x], [("a", (64, 64), "float32")])
    (b,) = graph.node("Neg", [x], [("b", (64, 64), "float32")])
    (y,) = graph.node("MatMul", [a, b], [("y", (64, 64), "float32")])
    graph.output(y)
    feed = {"x": np.linspace(-1, 1, 4096, dtype=np.float32).reshape(64, 64)}
    with ap.Executor(graph, **counts) as executor:
        wanted = executor.run(feed)["y"]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(60)  # A fork that waits for threads of its parent ends.
                for _ in range(3):
                    code = int(not np.array_equal(executor.run(feed)["y"], wanted))
                executor.close()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        np.testing.assert_array_equal(executor.run(feed)["y"], wanted)
