"""A plan of one model beside another model is refused as such, by every command and call."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import arenaplan as ap
from arenaplan.cli import main
from file_forms import DOORBELL, products, steps, windows
from raising import raises

KINDS = ("windows", "windows in strips", "products", "repeated", "doorbell", "doorbell for tflm")
PAIRS = [
    (model, plan)
    for model, plan in permutations(KINDS, 2)
    if model.split()[0] != plan.split()[0] and model in ("windows", "products", "doorbell")
]
"""A model, and whose plan it is given."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path, Any]]:
    """Return a function from a kind to a model file, the file of a plan, and the graph."""
    folder = tmp_path_factory.mktemp("foreign")
    made: dict[str, tuple[Path, Path, Any]] = {}

    def make(kind: str) -> tuple[Path, Path, Any]:
        if kind in made:
            return made[kind]
        options: dict[str, Any] = {"target": "numpy"}
        path = folder / f"{kind.split()[0]}.onnx"
        if kind.startswith("windows"):
            path.write_bytes(windows())
            options["max_slowdown"] = None if kind.endswith("strips") else 1.1
        elif kind == "products":
            path.write_bytes(products())
        elif kind == "repeated":
            path = folder / "repeated.json"
            steps().save(path)
            options = {"recompute": "30%"}
        else:
            path = DOORBELL
            options = {"target": "tflm" if kind.endswith("tflm") else "numpy"}
        bound = {"bind": {"batch": 4}} if kind == "products" else {}
        graph = ap.load(path, **bound)
        plan = folder / f"{kind}.plan.json"
        ap.plan(graph, **options).save(plan)
        made[kind] = path, plan, graph
        return made[kind]

    return make


@pytest.mark.parametrize(("model", "plan"), PAIRS)
def test_commands_refuse_the_plan_of_another_model(
    model: str,
    plan: str,
    files: Callable[[str], tuple[Path, Path, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, file = files(model)[0], files(plan)[1]
    bind = ["--bind", "batch=4"] if model == "products" else []
    for words in (
        ["check", path, file, *bind],
        ["run", path, "--plan", file, *bind],
        ["export", path, "--to", "c", "--plan", file, "-o", tmp_path / "plan.h", *bind],
    ):
        code = main(list(map(str, words)))
        said = capsys.readouterr().err
        assert code in (1, 2, 3), f"{words[0]}: {said}"
        assert "InternalError" not in said
        assert code != 1 or "made for" in said or "does not belong" in said, f"{words[0]}: {said}"


@pytest.mark.parametrize(("model", "plan"), PAIRS)
def test_calls_refuse_the_plan_of_another_model(
    model: str, plan: str, files: Callable[[str], tuple[Path, Path, Any]]
) -> None:
    graph, foreign = files(model)[2], ap.Plan.load(files(plan)[1])
    own = ap.plan(graph)
    with pytest.raises(ap.PlannerError):
        foreign.check(graph)
    with pytest.raises(ap.PlannerError):
        ap.Executor(graph, foreign)
    with pytest.raises(ap.PlannerError):
        foreign.hazards(graph)
    with pytest.raises(ap.PlannerError):
        foreign.check_hazards(graph, own.hazards(graph))
    with pytest.raises(ap.PlannerError):
        ap.Model("m", [], [([], graph, foreign)])


def test_the_refusal_names_both_models() -> None:
    one, other = ap.load(windows()), steps()
    with raises("PlanMismatch", match=r"made for 'steps', whose digest begins with '\w{12}'"):
        ap.plan(other, target="numpy", workspace="none").check(one)
