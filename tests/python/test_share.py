"""Several models in one arena, from Python and from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import arenaplan as ap
import flat
from arenaplan.base import errors
from arenaplan.cli import main
from raising import raises


def chain(name: str, *sizes: int, state: int = 0) -> ap.Graph:
    graph = ap.Graph(name)
    value = graph.input("v0", (sizes[0],), "uint8")
    kept = [graph.state("s", (state,), "uint8")] if state else []
    for index, size in enumerate(sizes[1:], start=1):
        made = (f"v{index}", (size,), "uint8")
        (value,) = graph.node("Op", [value, *kept], [made], mutates=[1] if kept else [])
    graph.output(value)
    return graph


def spans(shared: ap.planner.SharedPlan, index: int) -> list[tuple[int, int]]:
    base, plan = shared.bases[index], shared.plans[index]
    places = [place for place in plan.placements if place is not None]
    return [(base + place.offset, base + place.offset + place.bytes) for place in places]


@pytest.fixture
def models(tmp_path: Path) -> list[str]:
    paths = []
    for name, shape in (("small", (1, 8)), ("large", (1, 800))):
        path = tmp_path / f"{name}.tflite"
        path.write_bytes(flat.write(flat.chain("SOFTMAX", "SOFTMAX", shape=shape)))
        paths.append(str(path))
    return paths


def test_models_that_never_run_together_need_as_much_as_the_largest() -> None:
    graphs = [chain("a", 64, 64), chain("b", 640, 64), chain("c", 128, 256)]
    shared = ap.plan_together(graphs, "never-together", target="ideal")
    assert shared.bases == [0, 0, 0]
    assert shared.arena_bytes == shared.lower_bound == 704
    assert shared.status == "optimal"
    shared.check(graphs)
    with shared.commit() as arena:
        assert arena.nbytes == 704


def test_models_that_run_at_the_same_time_touch_different_bytes() -> None:
    graphs = [chain("a", 64, 64), chain("b", 640, 64), chain("c", 128, 256)]
    shared = ap.plan_together(graphs, "concurrent", alignment=32, target="ideal")
    assert shared.arena_bytes == shared.lower_bound == 128 + 704 + 384
    ends = [max(end for _, end in spans(shared, index)) for index in range(3)]
    starts = [min(start for start, _ in spans(shared, index)) for index in range(3)]
    assert starts[1] >= ends[0]
    assert starts[2] >= ends[1]
    shared.check(graphs)


def test_states_of_models_that_never_run_together_are_apart_from_everything() -> None:
    graphs = [chain("a", 64, 64, state=100), chain("b", 640, 64, state=200)]
    shared = ap.plan_together(graphs, "never-together", target="ideal")
    # The larger one needs 704 + 256 bytes, and the other one's state 128.
    assert shared.arena_bytes == shared.lower_bound == 704 + 256 + 128
    for own, other in ((0, 1), (1, 0)):
        start, end = spans(shared, own)[1]
        assert all(high <= start or end <= low for low, high in spans(shared, other))


def test_models_run_in_turn_in_one_arena() -> None:
    graphs, inputs = [], []
    for size in (16, 480):
        graph = ap.Graph(f"neg {size}")
        x = graph.input("x", (size,))
        (y,) = graph.node("Neg", [x], [("y", (size,), "float32")])
        (z,) = graph.node("Exp", [y], [("z", (size,), "float32")])
        graph.output(z)
        graphs.append(graph)
        inputs.append(np.linspace(-1, 1, size, dtype=np.float32))
    shared = ap.plan_together(graphs, "never-together", workspace="auto", target="numpy")
    with shared.commit() as arena:
        pairs = zip(graphs, shared.plans, strict=True)
        executors = [ap.Executor(graph, plan, arena=arena) for graph, plan in pairs]
        for _ in range(2):
            for executor, given in zip(executors, inputs, strict=True):
                np.testing.assert_allclose(
                    executor.run({"x": given}, verify=True)["z"], np.exp(-given), rtol=1e-6
                )
        with arena.lease(), raises("ArenaBusy"):
            executors[0].run({"x": inputs[0]})
        for executor in executors:
            executor.close()


def test_a_capacity_that_is_too_small_is_refused() -> None:
    graphs = [chain("a", 64, 64), chain("b", 640, 64)]
    with pytest.raises(errors.CapacityExceeded, match="needs 832"):
        ap.plan_together(graphs, "concurrent", budget=704, target="ideal")
    assert (
        ap.plan_together(graphs, "never-together", budget=704, target="ideal").status == "optimal"
    )


def test_what_cannot_be_shared_is_refused() -> None:
    graph = ap.Graph()
    x = graph.input("x", (4,), space="fast")
    graph.output(x)
    with pytest.raises(errors.InvalidOption, match="one arena"):
        ap.plan_together([graph], "concurrent", target="ideal")
    with raises("InvalidName", match="sometimes"):
        ap.plan_together([chain("a", 1)], "sometimes", target="ideal")  # type: ignore[arg-type]
    shared = ap.plan_together([chain("a", 1), chain("b", 2)], "concurrent", target="ideal")
    for graphs in ([chain("a", 1)], [chain("b", 2), chain("a", 1)], []):
        with raises("PlanMismatch"):
            shared.check(graphs)


def test_the_command_line_plans_and_checks_shared_arenas(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "shared.json")
    sizes = {}
    for share in ("never-together", "concurrent"):
        assert main(["plan", *models, "--share", share, "--json", "-o", file]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["share"] == share
        assert document["status"] == "optimal"
        assert [model["model"] for model in document["models"]] == ["small", "large"]
        sizes[share] = document["arena_bytes"]
        assert main(["check", *models, file]) == 0
        assert main(["check", *models[::-1], file]) == 1
        assert main(["check", models[0], file]) == 1
        capsys.readouterr()
    alone = [ap.plan(ap.load(model)).arena_bytes for model in models]
    assert sizes == {"never-together": max(alone), "concurrent": sum(alone)}

    assert main(["plan", *models, "--share", "concurrent"]) == 0
    assert "2 models for tflm, concurrent" in capsys.readouterr().out
    assert main(["plan", *models, "--share", "concurrent", "--budget", "5"]) == 1
    assert main(["plan", *models]) == 2
    assert main(["plan", *models, "--share", "concurrent", "--spaces", "a=1M"]) == 2
    assert main(["plan", *models, "--share", "concurrent", "--with-graph"]) == 2
    assert main(["check", models[0], str(tmp_path / "absent.json")]) == 2


def test_an_altered_file_of_shared_plans_is_refused(models: list[str], tmp_path: Path) -> None:
    file = tmp_path / "shared.json"
    assert main(["plan", *models, "--share", "concurrent", "-o", str(file)]) == 0
    text = file.read_text()
    base = json.loads(text)["plans"][1]["base"]
    assert base > 0
    for changed in (
        text.replace(f'"base":{base}', '"base":0'),
        text[:-20],
        text.replace('"offset":0', '"offset":64', 1),
        text + "x",
    ):
        file.write_text(changed)
        assert main(["check", *models, str(file)]) == 1
