"""
Graphs inside nodes: loops and branches, whose bodies need bytes while the node runs.

A body is planned by itself. Its inputs are operands of the node, which are outside; its results
are inside, and copied to the node's results when the body is done. That is right however often a
body runs. Of several bodies one runs at a time, and so the largest counts. The bytes are one more
result of the node, without readers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from arenaplan.graph import Graph
from arenaplan.planner.planning import plan

_TECHNIQUES: Final = ("views", "in-place", "elision")
"""Techniques for bodies: those that keep the order and the pieces of the nodes of a body, since
its plan is not stored."""


def inner_bytes(bodies: Iterable[Graph]) -> int:
    """
    Return the bytes that a node needs to run its bodies.

    Parameters
    ----------
    bodies : iterable of Graph
        Graphs whose operands are constants, so that no bytes are planned for those.
    """
    plans = (plan(body, optimize=_TECHNIQUES, effort="fast") for body in bodies)
    return max((found.arena_bytes for found in plans), default=0)


def declare_inner(graph: Graph, node: str, bodies: Iterable[Graph]) -> tuple[int, ...]:
    """Declare the bytes of a node's bodies, and return their value; none if there are none."""
    size = inner_bytes(bodies)
    return (graph.value(f"{node}.inner", (size,), "uint8"),) if size else ()
