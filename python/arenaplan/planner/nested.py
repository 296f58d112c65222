"""
Graphs inside nodes: loops and branches, whose bodies need bytes while the node runs.

A body is planned by itself. Body inputs are the node's operands, which are outside; results are
inside, and copied to the node's results when the body is done. So any number of runs is right. If a
node has several bodies, a single body runs at a time, and the largest counts. The bytes are an
additional node result without readers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from arenaplan.graph import Graph
from arenaplan.planner.planning import plan

_TECHNIQUES: Final = ("views", "in-place", "elision")
"""Techniques for bodies: techniques that keep the order and the pieces of a body's nodes, since the
body's plan is not stored.
"""


def inner_bytes(bodies: Iterable[Graph]) -> int:
    """
    Return the bytes that a node needs to run its bodies.

    Parameters
    ----------
    bodies : iterable of Graph
        Graphs whose operands are constants, so that operands take no planned bytes.
    """
    plans = (plan(body, optimize=_TECHNIQUES, effort="fast") for body in bodies)
    return max((found.arena_bytes for found in plans), default=0)


def declare_inner(graph: Graph, node: str, bodies: Iterable[Graph]) -> tuple[int, ...]:
    """Declare the bytes for a node's bodies, and return the declared value, if any."""
    size = inner_bytes(bodies)
    return (graph.value(f"{node}.inner", (size,), "uint8"),) if size else ()
