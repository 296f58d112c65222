"""
The importer for exported PyTorch programs: live programs, and files without torch.

The archive written by ``torch.export.save`` is a zip with the graph as JSON
(:mod:`~arenaplan.formats.pt2.archive`, :mod:`~arenaplan.formats.pt2.pt2_document`). The archive and
a live program (:mod:`~arenaplan.formats.pt2.pt2_live`) become the same
:class:`~arenaplan.formats.pt2.pt2_program.Pt2Program`; a table has the canonical operators for ATen
(:data:`~arenaplan.formats.pt2.pt2_operators.OPERATORS`). Values that only depend on parameters are
constant, and need no arena memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arenaplan.base.quoting import quoted
from arenaplan.formats.pt2.archive import Source, read_graph
from arenaplan.formats.pt2.pt2_document import read_program
from arenaplan.formats.pt2.pt2_live import read_joint, read_live
from arenaplan.formats.pt2.pt2_step import has_tensors, traced_step
from arenaplan.formats.pt2.pt2_walk import graph_of
from arenaplan.formats.trees import Donate
from arenaplan.graph.sizes import Bind

if TYPE_CHECKING:
    from arenaplan.graph import Graph

__all__ = [
    "graph_of_joint",
    "graph_of_live",
    "graph_of_step",
    "has_tensors",
    "load_pt2",
    "open_pt2",
]


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
        The program in file order, with constants folded. A value written in place is a new value
        that may take over the operand.

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
    Read an exported PyTorch program; return a function that builds the graph.

    Raises
    ------
    PlannerError, OSError
        As :func:`load_pt2`, here and in the returned function.
    """
    document, path = read_graph(source)
    name = "" if path is None else path.stem
    program = read_program(document)
    return lambda bind: graph_of(program, name, bind)


def graph_of_live(exported: Any, name: str, bind: Bind | None) -> Graph:
    """Read a live program: see :func:`arenaplan.from_exported_program`."""
    return graph_of(read_live(exported), name, bind)


def graph_of_joint(module: Any, donate: Mapping[int, int], name: str, bind: Bind | None) -> Graph:
    """Read a joint graph: see :func:`arenaplan.formats.from_joint_graph`."""
    joint = read_joint(module, donate)
    return graph_of(joint.program, name, bind, replaced=joint.replaced)


def graph_of_step(step: Any, args: Sequence[Any], donate: Donate, name: str) -> Graph:
    """Read a training step: see :func:`arenaplan.from_train_step`."""
    traced = traced_step(step, args, donate)
    graph = graph_of_joint(traced.module, traced.donate, name, None)
    inputs = [node.name for node in traced.module.graph.nodes if node.op == "placeholder"]
    states = {value.name for value in graph.values if value.kind == "state"}
    graph.warnings += [
        f"no result replaces the donated argument {quoted(inputs[at])}: it is an input like others"
        for at in traced.unreplaced
        if inputs[at] not in states
    ]
    return graph
