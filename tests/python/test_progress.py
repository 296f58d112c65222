"""What a long plan tells while it is being made."""

from __future__ import annotations

from collections.abc import Mapping
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
    assert plan.arena_bytes in {progress["peak"] for progress in told}
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
    # There is no time for steps in strips; without sharing of bytes it would be a hundred times.
    assert plan.arena_bytes < 3 * ap.plan(graph, target=target).arena_bytes


@pytest.mark.parametrize("limit", [-1.0, float("nan")])
def test_a_time_limit_is_a_number_of_seconds(limit: float) -> None:
    with pytest.raises(ap.errors.InvalidOption, match="time_limit"):
        ap.plan(ap.Graph(), time_limit=limit)


def test_a_packing_ends_when_the_callback_returns_false() -> None:
    calls: list[dict[str, Any]] = []
    sizes = [1 + 37 * index % 101 for index in range(2000)]
    live = [(7 * index % 500, 7 * index % 500 + 1 + index % 90) for index in range(2000)]
    packing = ap.pack(sizes, live, on_progress=lambda told: bool(calls.append(told)))
    assert len(calls) == 1
    assert not packing.interrupted
    assert packing.status == "feasible"


def chain(length: int) -> ap.Graph:
    graph = ap.Graph(f"chain{length}")
    value = graph.input("x", (1000,), "uint8")
    for index in range(length):
        size = 100 + 37 * index % 101
        (value,) = graph.node("Op", [value], [(f"v{index}", (size,), "uint8")])
    graph.output(value)
    return graph


def test_plans_of_several_graphs_and_explanations_end_when_they_are_asked_to() -> None:
    graphs = [chain(20), chain(30)]
    together = ap.plan_together(graphs, "concurrent", time_limit=0)
    together.check(graphs)
    explanation = ap.explain(graphs[0], time_limit=0)
    explanation.plan.check(graphs[0])
    calls: list[dict[str, Any]] = []

    def end(progress: dict[str, Any]) -> bool:
        calls.append(progress)
        return False

    ap.plan_together(graphs, "never-together", on_progress=end).check(graphs)
    ap.explain(graphs[0], on_progress=end).plan.check(graphs[0])
    assert calls


def test_a_family_serves_every_shape_although_its_search_was_ended() -> None:
    def model(sizes: Mapping[str, Any]) -> ap.Graph:
        graph = ap.Graph("layer")
        x = graph.input("x", (sizes["batch"], 64))
        (y,) = graph.node("MatMul", [x], [("y", (sizes["batch"], 16), "float32")])
        graph.output(y)
        return graph

    for ended in ({"time_limit": 0}, {"on_progress": lambda done, total: False}):
        family = ap.plan_family(model, bind={"batch": range(1, 9)}, **ended)  # type: ignore[arg-type]
        assert len(family) == 8
        assert family.required_bytes(batch=8) <= family.arena_bytes


def test_a_rewrite_ends_with_the_best_so_far() -> None:
    from arenaplan.deploy.fitting import fit
    from strip_models import pyramid

    data = pyramid()
    told: list[dict[str, Any]] = []
    full = fit(data, on_progress=told.append)
    ended = fit(data, on_progress=lambda progress: False)
    assert len(told) > 2
    assert [row["peak"] for row in told] == sorted((row["peak"] for row in told), reverse=True)
    assert all(row["lower_bound"] <= row["peak"] for row in told)
    assert full.total <= ended.total <= full.before.total
    assert fit(data, time_limit=0).total == ended.total
