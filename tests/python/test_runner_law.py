"""Whatever a plan for the executor contains, the executor runs: odd random models and states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from odd_models import OddModel, state_program

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "fast": {"effort": "fast"},
    "everything": {"optimize": "all", "max_slowdown": None},
    "no scratch memory": {"workspace": "none"},
    "safe in every order": {"parallel_safe": True},
    "three workers": {"workers": 3},
    "inputs written over": {"inputs": "reuse"},
    "memory of the caller": {"inputs": "caller", "outputs": "caller"},
    "aligned to 8": {"alignment": 8},
    "aligned to 256": {"alignment": 256, "inputs": "keep"},
}


def close(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], steps: float) -> None:
    """Raise unless results agree: fused nodes round once where others round twice."""
    for name, array in wanted.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=steps, err_msg=name)


def run_model(seed: int, options: dict[str, Any]) -> None:
    """Plan, check, run and verify an odd model."""
    model = OddModel(seed)
    graph, feed = ap.load(model.model().SerializeToString()), model.feed()
    with ap.Executor(graph, ap.plan(graph, optimize="none", target="numpy")) as executor:
        wanted = executor.run(feed)
    plan = ap.plan(graph, target="numpy", **options)
    plan.check(graph)
    with ap.Executor(graph, plan, workers=options.get("workers", 1)) as executor:
        close(executor.run(feed), wanted, 0.2)
        first = executor.run(feed, verify=options.get("workers", 1) == 1)
        again = executor.run(feed)
    for name, array in first.items():
        np.testing.assert_array_equal(again[name], array)


def run_program(seed: int, options: dict[str, Any]) -> None:
    """Plan, check and run states, several times, and compare each run."""
    graph = state_program(seed)
    feed = {"x": np.linspace(0, 1, graph.values[0].shape[0], dtype=np.float32)}
    plain = ap.plan(graph, optimize="none", target="numpy")
    plan = ap.plan(graph, target="numpy", **options)
    plan.check(graph)
    workers = options.get("workers", 1)
    with ap.Executor(graph, plain) as one, ap.Executor(graph, plan, workers=workers) as other:
        for _ in range(3):
            close(other.run(feed), one.run(feed), 1e-5)
        close(other.states(), one.states(), 1e-5)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("part", range(2))
def test_every_plan_of_an_odd_model_runs(name: str, part: int) -> None:
    for seed in range(10 * part, 10 * part + 10):
        run_model(seed, OPTIONS[name])


@pytest.mark.parametrize("name", OPTIONS)
def test_every_plan_of_states_runs(name: str) -> None:
    for seed in range(12):
        run_program(seed, OPTIONS[name])


def test_a_floor_is_of_the_steps_that_were_chosen_too() -> None:
    """Steps that NumPy's kernels propose may need less than all that the core had tried."""
    for alignment in (64, 256):
        run_model(70085, {"inputs": "keep", "alignment": alignment})


@pytest.mark.parametrize("seed", [5100203, 5100815])
def test_an_output_in_the_place_of_planes_is_written_plane_by_plane(seed: int) -> None:
    run_model(seed, OPTIONS["three workers"])


def test_a_verified_run_tells_a_repeated_node_from_a_step() -> None:
    """A node may end a step of one call, and run again inside of another call."""
    for seed in (9900047, 9900091, 9900254):
        run_model(seed, {"parallel_safe": True})
