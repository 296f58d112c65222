"""Graphs from callers: a graph or a model file's path."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from arenaplan.base.errors import InvalidOption

if TYPE_CHECKING:
    from arenaplan.graph.graph import Graph
    from arenaplan.graph.sizes import Source

_LOADERS: list[Callable[[Source], Graph]] = []


def register_loader(load: Callable[[Source], Graph]) -> None:
    """Read model files with ``load``, which is given from above: this wing knows no formats."""
    _LOADERS[:] = [load]


def graph_of(graph: Graph | Source) -> Graph:
    """
    Return the given graph, or the graph of the given model file.

    Raises
    ------
    InvalidOption
        If ``graph`` is neither.
    PlannerError, OSError
        If the file cannot be read as a model.
    """
    from arenaplan.graph.graph import Graph  # Not for the help of commands, which imports this.

    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, (str, bytes, os.PathLike)):
        return _LOADERS[-1](graph)
    kind = type(graph).__name__
    raise InvalidOption(f"a graph or the path of a model file is needed, not {kind!r}")
