"""
The importer of programs that ``torch.export.save`` wrote, without torch.

The archive is a zip with the graph as JSON (:mod:`~arenaplan.importers.pt2.archive`);
what ATen operators do to memory is one table
(:data:`~arenaplan.importers.pt2.effects.EFFECTS`). What only depends on parameters is
constant, and needs no memory of the arena.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from arenaplan.importers.common import Bind
from arenaplan.importers.pt2.archive import Source, read_graph
from arenaplan.importers.pt2.walk import Walk

if TYPE_CHECKING:
    from arenaplan.graph import Graph

__all__ = ["load_pt2", "open_pt2"]


def load_pt2(source: Source, *, bind: Bind | None = None) -> Graph:
    """
    Read an exported PyTorch program.

    Parameters
    ----------
    source : path or bytes
        The archive.
    bind : mapping, optional
        Numbers for symbolic dimensions by name, ``{"s0": 1}``, and whole shapes for inputs
        by name, ``{"x": (1, 3, 224, 224)}``.

    Returns
    -------
    Graph
        The program in the order of the file, without what is constant. Values that an
        operator writes in place are values of their own that may take over its operand.

    Raises
    ------
    PlannerError
        If the program is malformed or cannot be planned; the message names the place.
    OSError
        If the file cannot be read.
    """
    return open_pt2(source)(bind)


def open_pt2(source: Source) -> Callable[[Bind | None], Graph]:
    """
    Read an exported PyTorch program, and return a function that makes its graph.

    Raises
    ------
    PlannerError, OSError
        As :func:`load_pt2`, and so does the function.
    """
    document, path = read_graph(source)
    name = "" if path is None else path.stem
    return lambda bind: Walk(document, name, bind).run()
