"""What a long plan tells while it is being made."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import arenaplan as ap
import light_models


def test_a_plan_tells_which_phase_it_is_in() -> None:
    told: list[dict[str, Any]] = []
    plan = ap.plan(ap.load(light_models.path("resnet50")), on_progress=told.append, target="ideal")
    stages = [progress["stage"] for progress in told]
    assert stages.index("fusion") < stages.index("order")
    assert stages[-1] not in ("fusion", "order")
    assert told[-1]["peak"] == plan.arena_bytes
    assert all(a["seconds"] <= b["seconds"] for a, b in pairwise(told))


def test_what_a_callback_raises_ends_the_search() -> None:
    def stop(progress: dict[str, Any]) -> None:
        raise RuntimeError(progress["stage"])

    with pytest.raises(RuntimeError, match="fusion"):
        ap.plan(ap.load(light_models.path("densenet121")), on_progress=stop, target="ideal")


@pytest.mark.parametrize("target", ["numpy", "ideal"])
def test_a_callback_that_returns_false_ends_the_search(target: str) -> None:
    graph, calls = ap.load(light_models.path("densenet121")), []

    def end(progress: dict[str, Any]) -> bool:
        calls.append(progress)
        return len(calls) < 3

    plan = ap.plan(graph, on_progress=end, target=target)
    plan.check(graph)
    assert len(calls) < 10
    assert plan.order_search == "given"
    # Ended anywhere, it has no more bytes than first fit in the order of the model.
    assert plan.arena_bytes < ap.plan(graph, optimize="none", target="ideal").arena_bytes


@pytest.mark.parametrize("target", ["numpy", "ideal"])
def test_without_time_values_are_packed_all_the_same(target: str) -> None:
    graph = ap.load(light_models.path("densenet121"))
    plan = ap.plan(graph, time_limit=0.0, target=target)
    plan.check(graph)
    assert plan.order_search == "given"
    assert plan.arena_bytes < 2 * ap.plan(graph, target=target).arena_bytes


@pytest.mark.parametrize("limit", [-1.0, float("nan")])
def test_a_time_limit_is_a_number_of_seconds(limit: float) -> None:
    with pytest.raises(ap.errors.InvalidOption, match="time_limit"):
        ap.plan(ap.Graph(), time_limit=limit)


def test_a_packing_ends_when_the_callback_returns_false() -> None:
    calls: list[dict[str, Any]] = []
    sizes = [1 + 37 * index % 101 for index in range(2000)]
    live = [(7 * index % 500, 7 * index % 500 + 1 + index % 90) for index in range(2000)]
    packing = ap.pack(sizes, live, on_progress=lambda told: bool(calls.append(told)))
    assert len(calls) <= 2
    assert not packing.interrupted
    assert packing.status == "feasible"
