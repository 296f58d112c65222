"""Time beside bytes: backends, estimates, and plans that are fast enough."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import pytest

import arenaplan as ap
from arenaplan.base.errors import InvalidOption
from arenaplan.cli import main
from arenaplan.graph import costs
from arenaplan.planner.plan_options import PlanOptions
from networks import noise
from step_costs import step_seconds, step_ways

F32 = "float32"
SLOW = ("fusion", "streaming", "overlap")


def perceptron(rows: int = 64, width: int = 64, hidden: int = 512, layers: int = 2) -> ap.Graph:
    """Products with a wide value between them, which streaming never makes as a whole."""
    rng = np.random.default_rng(0)
    graph = ap.Graph("perceptron")
    graph.target = "numpy"

    def weight(*dims: int) -> int:
        data = rng.standard_normal(dims).astype(np.float32) / 8
        return graph.constant(f"w{len(graph.values)}", dims, F32, data)

    def product(x: int, inward: int, outward: int) -> int:
        flows = [(0, rows, (0,))]
        spec = (f"p{len(graph.nodes)}", (rows, outward), F32)
        operands = [x, weight(inward, outward)]
        return graph.node("MatMul", operands, [spec], version=13, flows=flows)[0] or 0

    x = graph.input("x", (rows, width))
    for _ in range(layers):
        wide = product(x, width, hidden)
        spec = (f"r{len(graph.nodes)}", (rows, hidden), F32)
        made = graph.node("Relu", [wide], [spec], version=14, in_place=[(0, 0)],
                          flows=[(0, rows * hidden, (0,))])  # fmt: skip
        x = product(made[0] or 0, hidden, width)
    graph.output(x)
    return graph


def seconds(graph: ap.Graph, plan: ap.Plan) -> float:
    return sum(step_seconds(graph, plan))


# -- the choice ---------------------------------------------------------------------------------


def test_streaming_that_costs_time_is_left_out_by_default() -> None:
    graph = perceptron()
    least = ap.plan(graph, max_slowdown=None)
    plain = ap.plan(graph, optimize="none")
    plan = ap.plan(graph)
    assert least.arena_bytes < plan.arena_bytes <= plain.arena_bytes
    assert seconds(graph, least) > 1.1 * seconds(graph, plain)
    assert seconds(graph, plan) <= 1.1 * seconds(graph, plain)
    plan.check(graph)


@pytest.mark.parametrize("rows", [8, 64, 256])
@pytest.mark.parametrize("limit", [1.0, 1.05, 1.5, 4.0, None])
def test_the_limit_is_kept_and_more_time_never_costs_bytes(rows: int, limit: float | None) -> None:
    graph = perceptron(rows)
    plan = ap.plan(graph, max_slowdown=limit)
    assert plan.estimate is not None
    mine, fastest = plan.estimate.seconds, plan.estimate.fastest_seconds
    assert mine == pytest.approx(seconds(graph, plan), rel=1e-3)
    if limit is not None:
        assert mine <= limit * fastest * (1 + 1e-6)
        looser = ap.plan(graph, max_slowdown=2 * limit)
        assert looser.arena_bytes <= plan.arena_bytes
    assert plan.arena_bytes <= ap.plan(graph, optimize="none").arena_bytes


def test_of_equal_bytes_the_fastest_plan_is_taken() -> None:
    # The wide layer makes the peak; to stream the narrow ones would save nothing.
    graph = perceptron(rows=128, layers=3)
    plan = ap.plan(graph, max_slowdown=1e9)
    for left_out in SLOW:
        names = [name for name in ap.planner.techniques() if name != left_out]
        other = ap.plan(graph, optimize=names, max_slowdown=1e9)
        if other.arena_bytes == plan.arena_bytes:
            assert seconds(graph, plan) <= seconds(graph, other) * (1 + 1e-9)


def test_plans_with_a_limit_are_equal_whenever_they_are_made() -> None:
    graph = perceptron(32, hidden=256)
    first = ap.plan(graph)
    assert first.to_json() == ap.plan(graph).to_json()
    assert first.to_json() == ap.plan(perceptron(32, hidden=256)).to_json()


@pytest.mark.parametrize("limit", [1.0, 1.3, 2.0, None])
def test_plans_within_any_limit_compute_the_same(limit: float | None) -> None:
    graph = perceptron(40, hidden=300)
    given = {"x": noise(40, 64)}
    with ap.Executor(graph, ap.plan(graph, optimize="none")) as executor:
        expected = executor.run(given)
    with ap.Executor(graph, ap.plan(graph, max_slowdown=limit)) as executor:
        found = executor.run(given, verify=True)
        assert executor.scratch_bytes == 0
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)


def test_a_plan_for_no_runtime_has_no_limit() -> None:
    graph = perceptron()
    plan = ap.plan(graph, target="ideal")
    assert plan.options["max_slowdown"] is None
    assert plan.estimate is None
    assert plan.arena_bytes == ap.plan(graph, target="ideal", max_slowdown=1.0).arena_bytes


def test_a_limit_and_an_estimate_are_part_of_the_plan_file() -> None:
    plan = ap.plan(perceptron(), max_slowdown=1.25)
    document = json.loads(plan.to_json())
    assert document["options"]["max_slowdown"] == 1250
    estimate = document["search"]["estimate"]
    assert estimate["nanoseconds"] >= estimate["fastest_nanoseconds"] > 0
    again = ap.Plan.from_json(plan.to_json().encode())
    assert (again.estimate, again.options) == (plan.estimate, plan.options)
    assert again.options["max_slowdown"] == 1.25


@pytest.mark.parametrize("limit", [0.99, 0, -1, float("nan")])
def test_a_limit_below_the_fastest_plan_is_refused(limit: float) -> None:
    with pytest.raises(InvalidOption, match="max_slowdown"):
        ap.plan(perceptron(8), max_slowdown=limit)


@pytest.mark.parametrize("limit", [True, "1.1"])
def test_a_limit_is_a_number(limit: object) -> None:
    with pytest.raises(TypeError, match="max_slowdown"):
        ap.plan(perceptron(8), max_slowdown=limit)  # type: ignore[arg-type]


# -- estimates ----------------------------------------------------------------------------------


def test_weights_that_are_read_again_for_every_tile_cost_time() -> None:
    graph = perceptron(rows=256, layers=1)
    ways = step_ways(graph, [0, 1, 2])
    assert len(ways) > 2
    sizes, times = zip(*ways, strict=True)
    assert list(sizes) == sorted(sizes)
    assert list(times) == sorted(times, reverse=True)
    alone = sum(min(time for _, time in step_ways(graph, [node])) for node in range(3))
    # No tile is offered that takes a multiple of the time.
    assert times[0] < 5 * alone + 100_000


def test_a_step_takes_longer_if_its_tensors_are_larger() -> None:
    times = [
        seconds(graph, ap.plan(graph, optimize="none"))
        for graph in (perceptron(rows) for rows in (64, 128, 256, 512))
    ]
    assert all(a < b for a, b in itertools.pairwise(times))


def test_a_value_that_is_shown_takes_next_to_no_time() -> None:
    graph = ap.Graph()
    graph.target = "numpy"
    x = graph.input("x", (512, 512))
    (y,) = graph.node("Relu", [x], [("y", (512, 512), F32)], version=14)
    (z,) = graph.node("Identity", [y], [("z", (512, 512), F32)], views=[(0, 0)], version=14)
    (out,) = graph.node("Neg", [z], [("out", (512, 512), F32)], version=13)
    graph.output(out)
    shown = step_seconds(graph, ap.plan(graph, optimize="views"))[1]
    copied = step_seconds(graph, ap.plan(graph, optimize="none"))[1]
    assert shown < 0.1 * copied


# -- backends -----------------------------------------------------------------------------------


class Machine:
    """A runner whose every step needs 64 bytes and a second, and twice that as part of a group."""

    name = "machine"
    row_moves = None

    def costs(self, graph: ap.Graph) -> Machine:
        return self

    def step(self, nodes: Sequence[int], form: costs.StepForm) -> costs.StepCost | None:
        if form not in ("whole", "staged"):
            return None
        seconds = 1 if len(nodes) == 1 else 2 * len(nodes)
        slot = (ap.graph.Choice(64 * len(nodes), 1.0),)
        return costs.StepCost((slot,), [costs.Way(64 * len(nodes), seconds * 10**9)])

    def groupings(self) -> list[list[list[int]]]:
        return []

    def row_kernels(self, nodes: Sequence[int]) -> list[costs.RowKernel]:
        return []


@pytest.fixture
def machine() -> Iterator[ap.Target]:
    costs.register("machine", Machine().costs)
    yield ap.Target("machine", ap.planner.techniques())
    costs._RUNTIMES.pop("machine")


def test_a_second_backend_makes_checks_and_saves_plans(machine: ap.Target, tmp_path: Path) -> None:
    graph = perceptron()
    plan = ap.plan(graph, target=machine)
    assert all(len(nodes) == 1 for nodes in plan.steps)
    assert {work.bytes for work in plan.workspaces} == {64}
    assert len(plan.workspaces) == len(graph.nodes)
    least = ap.plan(graph, target=machine, max_slowdown=None)
    assert any(len(nodes) > 1 for nodes in least.steps)
    assert least.arena_bytes < plan.arena_bytes
    for made in (plan, least):
        made.save(tmp_path / "plan.json")
        again = ap.Plan.load(tmp_path / "plan.json")
        again.check(graph)
        again.check(graph.core_for("auto", made.steps, made.overlapped, "machine"))


# -- the command line -----------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file with the same perceptron."""
    helper, path = onnx.helper, tmp_path / "perceptron.onnx"
    rng = np.random.default_rng(0)
    weights = {
        "a": rng.standard_normal((64, 512)).astype(np.float32),
        "b": rng.standard_normal((512, 64)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [64, 64]) for name in "xy"]
    tensors = [onnx.numpy_helper.from_array(data, name) for name, data in weights.items()]
    graph = helper.make_graph(nodes, "perceptron", infos[:1], infos[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_the_command_line_takes_a_limit(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = []
    for limit in ("none", "1.1"):
        assert main(["plan", str(model), "--json", "--max-slowdown", limit]) == 0
        sizes.append(json.loads(capsys.readouterr().out)["arena_bytes"])
    assert sizes[0] < sizes[1]
    assert main(["plan", str(model), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arena_bytes"] == sizes[1]
    assert main(["run", str(model), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arena_bytes"] == sizes[1]
    with pytest.raises(SystemExit) as refused:
        main(["plan", str(model), "--max-slowdown", "0.9"])
    assert refused.value.code == 2


def test_explain_tells_bytes_and_time_of_every_technique(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(model), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["levels"]) == set(found["switched"]) == set(ap.planner.techniques())
    assert found["levels"]["streaming"]["bytes"] <= found["levels"]["order"]["bytes"]
    points = [(point["bytes"], point["seconds"]) for point in found["points"]]
    assert len(points) > 1
    assert points == sorted(points)
    assert all(a[1] > b[1] for a, b in itertools.pairwise(points))
    assert found["arena_bytes"] in [size for size, _ in points]
    assert main(["explain", str(model)]) == 0
    text = capsys.readouterr().out
    assert "plans that were tried and that no other plan beats" in text
    assert "chosen" in text


LAYERS = {"rows": 24, "width": 32, "hidden": 96}


@pytest.mark.parametrize("limit", [1.0, 1.1, 2.0, None])
@pytest.mark.parametrize("workspace", ["auto", "none"])
def test_each_row_of_explain_is_the_plan_that_it_names(
    limit: float | None, workspace: Literal["auto", "none"]
) -> None:
    graph = perceptron(**LAYERS)
    options = PlanOptions(max_slowdown=limit, workspace=workspace)
    found = ap.explain(graph, options)
    known = ap.planner.techniques()
    assert found.plan.to_json() == ap.plan(graph, options).to_json()
    assert found.without.bytes == ap.plan(graph, options, optimize="none").arena_bytes
    for at, name in enumerate(known):
        level = ap.plan(graph, options, optimize=known[: at + 1])
        assert found.levels[name].bytes == level.arena_bytes, name
        left = ap.plan(graph, options, optimize=[other for other in known if other != name])
        assert found.switched[name].bytes == left.arena_bytes, name


@pytest.mark.parametrize("rows", [16, 48])
@pytest.mark.parametrize("options", [{"max_slowdown": None}, {"workspace": "none"}])
def test_fewer_techniques_never_need_fewer_bytes(rows: int, options: dict[str, Any]) -> None:
    graph = perceptron(rows, hidden=200)
    whole = ap.plan(graph, **options).arena_bytes
    for name in ap.planner.techniques():
        names = [other for other in ap.planner.techniques() if other != name]
        assert ap.plan(graph, optimize=names, **options).arena_bytes >= whole, name


@pytest.mark.parametrize("limit", [1.0, 1.1, 2.0, None])
def test_a_plan_without_scratch_memory_has_no_more_bytes(limit: float | None) -> None:
    for rows in (16, 64):
        graph = perceptron(rows, hidden=300)
        for names in (["views"], ["fusion", "streaming"], ap.planner.techniques()):
            kept = ap.plan(graph, optimize=names, max_slowdown=limit)
            bare = ap.plan(graph, optimize=names, max_slowdown=limit, workspace="none")
            assert bare.arena_bytes <= kept.arena_bytes


def test_the_core_asks_a_backend_and_raises_its_errors(machine: ap.Target) -> None:
    class Broken(Machine):
        def step(self, nodes: Sequence[int], form: costs.StepForm) -> costs.StepCost:
            raise ValueError("no clock")

    costs.register("machine", Broken().costs)
    with pytest.raises(ValueError, match="no clock"):
        ap.plan(perceptron(), target=machine)


def test_an_options_table_knows_the_default_limit() -> None:
    assert PlanOptions().max_slowdown == 1.1
