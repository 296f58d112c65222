"""
The importer of JAX programs as ``jax.make_jaxpr`` makes them.

The effects of primitives on memory are one table
(:data:`~arenaplan.importers.jaxpr.effects.EFFECTS`). Calls are inlined. Loops and branches are
nodes, and their bodies are planned by themselves (:mod:`arenaplan.importers.nested`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from arenaplan.importers.jaxpr.walk import Walk

if TYPE_CHECKING:
    from arenaplan.graph import Graph

__all__ = ["graph_of_jaxpr"]


def graph_of_jaxpr(jaxpr: Any, name: str, constants: Collection[int]) -> Graph:
    """Read a jaxpr: see :func:`arenaplan.from_jaxpr`."""
    from jax.extend import core

    if not isinstance(jaxpr, core.ClosedJaxpr):
        raise TypeError(f"{type(jaxpr).__name__!r} is no ClosedJaxpr as jax.make_jaxpr returns")
    count = len(jaxpr.jaxpr.invars)
    for position in constants:
        if not 0 <= position < count:
            raise IndexError(f"there is no input {position} to be constant; there are {count}")
    return Walk(core, name).run(jaxpr, frozenset(constants))
