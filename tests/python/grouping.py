"""Groups of nodes chosen greedily: whatever the core accepts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import arenaplan as ap
from arenaplan.base.errors import PlannerError

ANCHORS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
Wanted = Callable[[ap.Graph, Sequence[int]], bool]


def one_anchor(graph: ap.Graph, nodes: Sequence[int]) -> bool:
    """At most one convolution or matrix product."""
    return sum(graph.nodes[node].op in ANCHORS for node in nodes) <= 1


def anything(graph: ap.Graph, nodes: Sequence[int]) -> bool:
    """Whatever works."""
    return True


def epilogues(graph: ap.Graph, nodes: Sequence[int]) -> bool:
    """At most one convolution or matrix product, and that comes first."""
    return not any(graph.nodes[node].op in ANCHORS for node in nodes[1:])


def greedy(graph: ap.Graph, wanted: Wanted = one_anchor) -> list[list[int]]:
    """Return steps in which as many nodes as possible run as one, joined from the end."""
    order = graph.core.order
    place = {node: at for at, node in enumerate(order)}
    group = {node: [node] for node in order}
    readers: dict[int, set[int]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                readers.setdefault(value, set()).add(node.index)

    def steps(changed: dict[int, list[int]]) -> list[list[int]]:
        unique = {id(nodes): nodes for nodes in changed.values()}
        return sorted(unique.values(), key=lambda nodes: place[nodes[-1]])

    for index in reversed(order):
        made = [value for value in graph.nodes[index].outputs if value is not None]
        reading = {id(group[node]): group[node] for v in made for node in readers.get(v, ())}
        if len(reading) != 1 or len(made) != 1 or made[0] in graph.outputs:
            continue
        (target,) = reading.values()
        joined = sorted([index, *target], key=place.__getitem__)
        if joined[-1] != target[-1] or not wanted(graph, joined):
            continue
        attempt = {**group, **dict.fromkeys(joined, joined)}
        try:
            ap.plan(graph, steps=steps(attempt), target="ideal")
        except PlannerError:
            continue
        group = attempt
    return steps(group)
