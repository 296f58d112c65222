"""Whatever a field of a file holds, commands end with an answer or a typed error."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import arenaplan as ap
from arenaplan.cli import main
from arenaplan.planner import Hazards, SharedPlan
from file_forms import changed, sealed, steps, windows

SHARE = 23
"""Of so many changes of a file, one is tried: a prime, so that all fields have turns."""
WHOLE = ("options.", "spaces.", "workspaces.")
"""Fields of which every change is tried: sizes and positions that reports compute with."""
FORMS = (
    "plan of two memories",
    "plan with strips",
    "plan with repetitions",
    "plan with a timetable",
    "plan with memory of the caller",
    "graph",
    "shared plan",
    "hazards",
    "model of two shapes",
)
COMMANDS = 16
"""Changes of each file that commands are called with."""


def _graph() -> ap.Graph:
    graph = ap.Graph("a state")
    x = graph.input("x", (64,))
    state = graph.state("s", (64,))
    (y,) = graph.node("Add", [x, state], [("y", (64,), "float32")], in_place=[(0, 0), (1, 0)])
    (z,) = graph.node("Neg", [y], [("z", (64,), "float32")])
    graph.write_back(y, state)
    graph.output(z)
    return graph


@cache
def _forms() -> dict[str, tuple[str, Callable[[bytes], Any], Any]]:
    """Return by form the text of a file, the function that uses such a text, and the graph."""
    graph, net, again = _graph(), ap.load(windows()), steps()
    strips = ap.plan(net, target="numpy", max_slowdown=None)
    assert strips.strips
    plans = {
        "plan of two memories": (ap.plan(graph, target="c", spaces="near=1KiB,far=8KiB"), graph),
        "plan with strips": (strips, net),
        "plan with repetitions": (ap.plan(again, recompute="30%"), again),
        "plan with a timetable": (ap.plan(net, target="numpy", workers=2), net),
        "plan with memory of the caller": (ap.plan(net, target="numpy", inputs="caller"), net),
    }
    assert plans["plan with memory of the caller"][0].workspaces
    forms: dict[str, tuple[str, Callable[[bytes], Any], Any]] = {
        name: (plan.to_json(), _use_plan, graph) for name, (plan, graph) in plans.items()
    }
    forms["graph"] = (graph.core.to_json(), _use_graph, None)
    shared = ap.plan_together([again, again], "never-together", target="c")
    forms["shared plan"] = (shared.to_json(), _use_shared, again)
    plan = ap.plan(again, target="c")
    forms["hazards"] = (plan.hazards(again).to_json(), _use_hazards, (plan, again))
    rows = [([size], layer := _layer(size), ap.plan(layer, target="c")) for size in (1, 2)]
    forms["model of two shapes"] = (ap.Model("layer", ["batch"], rows).to_json(), _use_model, None)
    assert tuple(forms) == FORMS
    return forms


def _layer(size: int) -> ap.Graph:
    graph = ap.Graph("layer")
    x = graph.input("x", (size, 64))
    (y,) = graph.node("MatMul", [x], [("y", (size, 16), "float32")])
    graph.output(y)
    return graph


def _use_plan(text: bytes, graph: ap.Graph) -> None:
    plan = ap.Plan.from_json(text)
    assert len(plan.placements) == len(plan.bytes_moved)
    for step in range(len(plan.steps)):
        plan.live_at(step)
    assert isinstance(plan._repr_html_(), str)
    plan.check(graph)


def _use_graph(text: bytes, _: None) -> None:
    plan = ap.plan(ap.Graph.from_json(text), effort="fast")
    assert plan.arena_bytes >= plan.lower_bound


def _use_shared(text: bytes, graph: ap.Graph) -> None:
    SharedPlan.from_json(text).check([graph, graph])


def _use_hazards(text: bytes, made: tuple[ap.Plan, ap.Graph]) -> None:
    plan, graph = made
    plan.check_hazards(graph, Hazards.from_json(text))


def _use_model(text: bytes, _: None) -> None:
    model = ap.Model.from_json(text)
    for sizes in model:
        assert model.at(**sizes).arena_bytes <= model.arena_bytes


@pytest.mark.parametrize("form", FORMS)
def test_every_content_of_every_field_ends_in_an_answer_or_a_typed_error(form: str) -> None:
    text, use, made = _forms()[form]
    use(text.encode(), made)
    outcomes = {"refused": 0, "used": 0}
    for at, (name, document) in enumerate(changed(json.loads(text))):
        if at % SHARE and not name.startswith(WHOLE):
            continue
        try:
            use(sealed(document), made)
        except ap.PlannerError:
            outcomes["refused"] += 1
        except BaseException as error:
            raise AssertionError(f"{form}: {name}: {type(error).__name__}: {error}") from error
        else:
            outcomes["used"] += 1
    assert outcomes["refused"] > 5, outcomes


@pytest.mark.parametrize("form", FORMS)
def test_no_command_ends_in_a_traceback(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, _, _ = _forms()[form]
    path, graph = tmp_path / "file.json", tmp_path / "graph.json"
    _graph().save(graph)
    documents = list(changed(json.loads(text)))
    for name, document in documents[:: max(1, len(documents) // COMMANDS)]:
        path.write_bytes(sealed(document))
        for words in (
            ("check", graph, path),
            ("diff", path, path),
            ("map", path, "-o", tmp_path / "map.html"),
            ("gate", graph, "--baseline", path),
            ("plan", path, "--effort", "fast"),
        ):
            assert main(list(map(str, words))) in (0, 1, 2, 3), f"{words[0]}: {name}"
    capsys.readouterr()
