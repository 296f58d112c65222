"""One object, one figure: what commands say of a plan is what ``plan`` says, and lists add up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import arenaplan as ap
import flat
import light_models
from arenaplan.cli import main
from arenaplan.planner.peak import held_at


def _convolutions(path: Path) -> Path:
    """Write a network whose kernels need scratch memory, with a concatenation and a residual."""
    rng = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> Any:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "a.w"], ["a"], pads=[1] * 4, name="a"),
        helper.make_node("Relu", ["a"], ["b"], name="b"),
        helper.make_node("Conv", ["b", "c.w"], ["c"], pads=[1] * 4, name="c"),
        helper.make_node("Add", ["b", "c"], ["d"], name="d"),
        helper.make_node("Concat", ["d", "b"], ["e"], axis=1, name="e"),
        helper.make_node("Conv", ["e", "y.w"], ["y"], name="y"),
    ]
    stored = [weights("a.w", 8, 3, 3, 3), weights("c.w", 8, 8, 3, 3), weights("y.w", 4, 16, 1, 1)]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 24, 24])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 24, 24])
    graph = helper.make_graph(nodes, "convolutions", [image], [made], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def _step() -> ap.Graph:
    """Return four layers, and the nodes behind that read them in reverse."""
    graph = ap.Graph("step")
    values = [graph.input("x", (256,))]
    for layer in range(4):
        made = [(f"a{layer}", (256,), "float32")]
        values += graph.node("Layer", values[-1:], made, pure=True, cost=1)
    last = values[-1]
    for layer in reversed(range(4)):
        made = [(f"g{layer}", (256,), "float32")]
        read = [last, values[layer]]
        (last,) = graph.node("Back", read, made, in_place=[(0, 0)], pure=True, cost=1)
    graph.output(last)
    return graph


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A model of each format."""
    lite, step = tmp_path / "lite.tflite", tmp_path / "step.json"
    lite.write_bytes(flat.write(flat.fragmented()))
    step.write_text(_step().to_json())
    return {
        "onnx": _convolutions(tmp_path / "convolutions.onnx"),
        "light": light_models.path("squeezenet"),
        "lite": lite,
        "step": step,
    }


OPTIONS = (
    "",
    "--target nodes",
    "--target ideal",
    "--target c",
    "--workspace none",
    "--optimize all,-views",
    "--effort fast --inputs caller",
    "--workers 2",
)

FIGURES: dict[str, tuple[str, ...]] = {
    "explain": ("arena_bytes",),
    "inspect": ("arena_bytes",),
    "map --to json -o -": ("arena_bytes",),
    "gate --budget 1GiB": ("gates", "rows", "bytes"),
    "export --to csv -o OUT": ("arena_bytes",),
}


def _document(line: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(line) == 0, line
    return json.loads(capsys.readouterr().out)


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        document = document[key]
        document = document[0] if isinstance(document, list) else document
    return document


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ["onnx", "light", "step"])
def test_every_command_has_the_figures_of_plan(
    name: str,
    options: str,
    files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if name == "light" and options not in ("", "--workspace none"):
        pytest.skip("planned for a long time; the small network has the same kernels")
    path, words = str(files[name]), options.split()
    planned = _document(["plan", path, *words, "--json"], capsys)
    for command, where in FIGURES.items():
        word, *more = command.replace("OUT", str(tmp_path / "out")).split()
        if word in ("explain", "gate") and "--workers" in words:
            continue  # Techniques are of one worker, and a budget chooses another timetable.
        as_json = [] if word == "map" else ["--json"]
        found = _document([word, path, *words, *more, *as_json], capsys)
        assert _at(found, where) == planned["arena_bytes"], command
        for fact in ("lower_bound", "floor", "peak_step", "status"):
            if word in ("explain", "inspect", "map"):
                assert found[fact] == planned[fact], (command, fact)
    assert (planned["floor"] or 0) <= planned["lower_bound"] <= planned["arena_bytes"]


def test_what_if_is_about_the_plan_that_plan_makes(files: dict[str, Path]) -> None:
    for name in ("onnx", "lite", "step"):
        source = files[name]
        graph = ap.load(source)
        found = ap.report.what_if(source, top=2)
        assert found.plan.to_json() == ap.plan(graph).to_json()
        assert found.compared.arena_bytes <= found.plan.arena_bytes
        assert all(row.arena_bytes < found.compared.arena_bytes for row in found.rows)


def test_a_run_says_the_arena_of_the_plan_for_its_target(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("onnx", "lite"):
        path = str(files[name])
        ran = _document(["run", path, "--json"], capsys)
        planned = _document(["plan", path, "--target", ran["target"], "--json"], capsys)
        assert ran["arena_bytes"] == planned["arena_bytes"]
        assert main(["run", path]) == 0
        said = capsys.readouterr().out
        assert f"{planned['arena_bytes']:,}" in said
        assert f"for {ran['target']}" in said


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ["onnx", "lite", "step"])
def test_what_is_live_at_the_peak_sums_to_it(
    name: str, options: str, files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path, words = str(files[name]), options.split()
    if name == "lite" and ("--workers" in words or "--inputs" in words):
        words += ["--target", "nodes"]  # The runtime has one worker, and inputs in its arena.
    planned = _document(["plan", path, *words, "--json"], capsys)
    assert sum(row["counted"] for row in planned["peak_values"]) == planned["peak_bytes"]
    assert planned["peak_bytes"] <= planned["arena_bytes"]
    report = _document(["map", path, *words, "--to", "json", "-o", "-"], capsys)
    assert sum(row["counted"] for row in report["peak_held"]) == report["peak_bytes"]
    assert report["peak_bytes"] == planned["peak_bytes"]
    names = {row["name"] for row in (*report["values"], *report["workspaces"])}
    assert {row["name"] for row in report["peak_held"]} <= names
    for command in ("plan", "inspect", "explain"):
        if command == "explain" and "--workers" in words:
            continue
        assert main([command, path, *words]) == 0
        printed = capsys.readouterr().out
        if len(planned["peak_values"]) > 1:
            assert f"{planned['peak_bytes']:>14,}  live at once" in printed, command


@pytest.mark.parametrize("seed", range(20))
def test_at_every_step_what_is_held_sums_to_the_live_bytes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = ap.Graph("random")
    values = [graph.input("x", (int(rng.integers(1, 90)),), "uint8")]
    for number in range(int(rng.integers(3, 14))):
        read = [values[int(at)] for at in rng.integers(0, len(values), 2)]
        size = int(rng.integers(1, 200))
        made = [(f"v{number}", (size,), "uint8")]
        works = [int(rng.integers(1, 300))] if rng.random() < 0.4 else []
        values += graph.node(
            "Op", read, made, in_place=[(0, 0)], workspaces=[[(each, 1.0)] for each in works]
        )
    graph.output(values[-1])
    plan = ap.plan(graph, workspace="auto", alignment=int(2 ** rng.integers(0, 7)))
    for step, live in enumerate(plan.live_bytes):
        assert sum(held.counted for held in held_at(plan, step, graph)) == live


def test_tensors_of_the_runtime_keep_their_types_and_shapes(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(files["lite"])
    seen = _document(["map", path, "--to", "json", "-o", "-"], capsys)
    other = _document(["map", path, "--to", "json", "-o", "-", "--target", "litert"], capsys)
    facts = {row["name"]: (row["dtype"], row["shape"]) for row in other["values"]}
    shown = {row["name"]: (row["dtype"], row["shape"]) for row in seen["values"]}
    assert {name: facts[name] for name in shown} == shown
    total = _document(["plan", path, "--json"], capsys)["runtime"]["total"]
    assert seen["total_bytes"] == total


@pytest.mark.parametrize("seed", range(12))
def test_curves_begin_at_the_plan_and_plans_keep_their_promises(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = ap.Graph("random")
    values = [graph.input("x", (int(rng.integers(1, 5)) * 64,), "uint8")]
    for number in range(int(rng.integers(4, 9))):
        count = int(rng.integers(1, 3))
        read = [values[int(at)] for at in rng.integers(0, len(values), count)]
        made = [(f"v{number}", (int(rng.integers(1, 5)) * 64,), "uint8")]
        cost = int(rng.integers(1, 9))
        values += graph.node("Op", read, made, pure=True, cost=cost)
    graph.output(values[-1])
    curve = ap.recompute_curve(graph)
    first, last = curve.points[0], curve.points[-1]
    assert first.extra == 0
    assert first.arena_bytes <= ap.plan(graph).arena_bytes
    for point in curve.points:
        made = ap.plan(graph, recompute=point.arena_bytes)
        assert made.arena_bytes <= point.arena_bytes
        assert (made.extra_cost or 0.0) <= point.extra + 1e-9
        again = ap.plan(graph, recompute=f"{100 * point.extra + 1e-4}%")
        assert again.arena_bytes <= point.arena_bytes
    assert curve.floor <= last.arena_bytes
