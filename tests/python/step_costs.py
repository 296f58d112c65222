"""The costs that the NumPy backend states of the steps of a graph, as tests look at them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import arenaplan as ap
from arenaplan import _core
from arenaplan.graph.costs import StepForm
from arenaplan.run.numpy import BACKEND

Slots = Sequence[Sequence[ap.graph.Choice]]


def workspace_choices(
    graph: ap.Graph, steps: Iterable[Sequence[int]] | None = None
) -> dict[int, Slots]:
    """Return the scratch buffers of steps, by last node."""
    return _choices(graph, steps, "whole")


def staging_choices(graph: ap.Graph, steps: Iterable[Sequence[int]]) -> dict[int, Slots]:
    """Return the scratch buffers of steps whose output overlaps an input, by last node."""
    return _choices(graph, steps, "staged")


def _choices(
    graph: ap.Graph, steps: Iterable[Sequence[int]] | None, form: StepForm
) -> dict[int, Slots]:
    costs = BACKEND.costs(graph)
    found = {}
    for nodes in [[node.index] for node in graph.nodes] if steps is None else steps:
        cost = costs.step(nodes, form)
        if cost is not None and cost.workspaces:
            found[nodes[-1]] = cost.workspaces
    return found


def step_ways(graph: ap.Graph, nodes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the ways to run nodes as one: bytes of scratch memory, and nanoseconds."""
    cost = BACKEND.costs(graph).step(nodes, "whole")
    assert cost is not None
    return [(way.bytes, way.nanoseconds) for way in cost.ways]


def step_seconds(graph: ap.Graph, plan: ap.Plan) -> list[float]:
    """Return the estimated seconds of each step of a plan."""
    times = _core.step_times(graph.core, plan, BACKEND.costs(graph))
    return [time * 1e-9 for time in times]
