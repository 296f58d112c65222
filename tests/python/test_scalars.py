"""A value without dimensions is moved like any other, by every runner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.deploy.code import generated
from c_programs import COMPILERS, SANITIZERS, CodeProgram
from host_device import COMPILER, HostDevice

OPTIONS: list[dict[str, Any]] = [{}, {"optimize": "none"}]
MOVES: dict[str, list[Any]] = {
    "Identity": [],
    "Transpose": [],
    "Reshape": [np.zeros(0, np.int64)],
    "Expand": [np.zeros(0, np.int64)],
    "Squeeze": [],
    "Unsqueeze": [np.array([0])],
    "Gather": [np.int64(0)],
    "Pad": [np.zeros(0, np.int64)],
    "Slice": [np.zeros(0, np.int64), np.zeros(0, np.int64)],
    "Tile": [np.zeros(0, np.int64)],
    "CenterCropPad": [np.zeros(0, np.int64)],
}
NO_CODE = {"Tile", "CenterCropPad"}


def chain(moves: dict[str, list[Any]]) -> ap.Graph:
    """Return a graph that moves a number again and again, and negates it between."""
    graph = ap.Graph("scalars")
    op = ap.train.operators(graph)
    found = op.Neg(graph.input("x", ()))
    for name, more in moves.items():
        found = op.Neg(getattr(op, name)(found, *more))
    graph.output(op.Abs(found))
    return graph


def numbers(runs: list[dict[str, np.ndarray]]) -> list[float]:
    return [float(array) for found in runs for array in found.values()]


FEEDS = [{"x": np.array(number, np.float32)} for number in (2.5, -1.5)]


@pytest.mark.parametrize("options", OPTIONS)
def test_scalars_in_the_arena_of_the_executor(options: dict[str, Any]) -> None:
    graph = chain(MOVES)
    with ap.Executor(graph, ap.plan(graph, target="numpy", **options)) as executor:
        assert numbers([executor.run(feed, verify=True) for feed in FEEDS]) == [2.5, 1.5]
        assert numbers([executor.run(feed) for feed in FEEDS]) == [2.5, 1.5]


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("options", OPTIONS)
def test_scalars_on_a_device(options: dict[str, Any]) -> None:
    graph = chain(MOVES)
    plan = ap.plan(graph, target="cupy", **options)
    with ap.Executor(graph, plan, device=HostDevice()) as executor:
        assert numbers([executor.run(feed) for feed in FEEDS]) == [2.5, 1.5]


@pytest.mark.skipif(not COMPILERS, reason="no C compiler")
@pytest.mark.parametrize("options", OPTIONS)
def test_scalars_in_generated_code(options: dict[str, Any], tmp_path: Path) -> None:
    graph = chain({name: more for name, more in MOVES.items() if name not in NO_CODE})
    files = generated(graph, ap.plan(graph, target="c-code", **options), name="model")
    program = CodeProgram(graph, files, tmp_path, flags=["-O1", *SANITIZERS])
    assert numbers(program.run(FEEDS)) == [2.5, 1.5]
