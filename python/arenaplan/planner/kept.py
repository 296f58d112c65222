"""Values that a training step with recomputation keeps for the backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from arenaplan.graph import Graph

if TYPE_CHECKING:
    from arenaplan._core import Plan


def kept_labels(graph: Graph, labels: Mapping[int, str], plan: Plan) -> tuple[str, ...]:
    """
    Return labels of forward values that a schedule still reads after the forward pass.

    A value without a label counts as the nearest labeled ancestors.

    Parameters
    ----------
    graph : Graph
        A training step.
    labels : mapping
        Labels by forward value.
    plan : Plan
        A plan for the graph.
    """
    runs = graph.for_plan(plan)
    order = [runs.nodes[index] for index in plan.order]
    forward = [
        place
        for place, node in enumerate(order)
        if node.index < len(graph.nodes) and not labels.keys().isdisjoint(node.outputs)
    ]
    end = max(forward, default=-1) + 1
    early = {value for node in order[:end] for value in node.outputs}
    late = {value for node in order[end:] for value in node.inputs}
    makers = {value: node for node in graph.nodes for value in node.outputs}
    todo = sorted(v for v in early & late if v is not None and v < len(graph.values))
    found, seen = set(), set(todo)
    while todo:
        value = todo.pop()
        if value in labels:
            found.add(labels[value])
        elif value in makers:
            fresh = {x for x in makers[value].inputs if x is not None} - seen
            seen |= fresh
            todo += sorted(fresh)
    return tuple(sorted(found))
