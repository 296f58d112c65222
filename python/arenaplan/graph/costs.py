"""
Costs: the scratch memory and the time of steps, as runtimes state them for planning.

Planning looks costs up here by the name of the plan's target and imports no runtime, so that a
runtime may import planning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from arenaplan._core import Strips
    from arenaplan.graph.effects import Choice


class Way(NamedTuple):
    """A way to run something."""

    bytes: int
    """Scratch memory, or all that is live meanwhile."""
    nanoseconds: int


class StepCost(NamedTuple):
    """Scratch memory and time of nodes that run as one."""

    workspaces: Sequence[Sequence[Choice]]
    """The choices of size of each scratch buffer. The cost of a choice is the time of the step with
    that size, in any unit that is the same for all choices of the step."""
    ways: Sequence[Way]
    """All scratch memory together, and time; ascending bytes, at least one."""


class RowCost(NamedTuple):
    """The ways to make some rows of a result in one call."""

    rows: int
    ways: Sequence[Way]
    """One per size of scratch memory that is tried; none if there is no way to make so many."""


class RowKernel(NamedTuple):
    """Nodes that one call performs, on any rows of the result of the last one."""

    nodes: Sequence[int]
    takes: int | None
    """The operand in whose rows the first node makes its result; the others take over that of the
    node before."""
    costs: Sequence[RowCost]
    """Of some numbers of rows, ascending; others lie on a line between them."""


class Costs(Protocol):
    """
    The costs that a runtime states of the steps of one graph.

    The core asks, and decides. Equal questions have equal answers.
    """

    @property
    def row_moves(self) -> tuple[int, int] | None:
        """
        Nanoseconds of a call that moves rows in a line buffer, and of a thousand bytes.

        ``None`` if no step runs strip by strip.
        """

    def step(self, nodes: Sequence[int], staged: bool) -> StepCost | None:
        """
        Return the cost of nodes that run as one; ``None`` if no kernel runs them.

        Parameters
        ----------
        nodes : sequence of int
            Indices of the nodes, in order; one node or several.
        staged : bool
            Whether the output overlaps an input at a distance.
        """

    def step_in_strips(self, nodes: Sequence[int], strips: Strips) -> StepCost | None:
        """Return the cost of nodes that run strip by strip, line buffers in the first buffer."""

    def groupings(self) -> Sequence[list[list[int]]]:
        """Return sequences of steps that are compared with those of the core's own search."""

    def row_kernels(self, nodes: Sequence[int]) -> Sequence[RowKernel]:
        """Return the kernels that perform nodes on some rows; nodes without one are left out."""

    def runs_in_strips(self, nodes: Sequence[int], strips: Strips) -> bool:
        """Return whether nodes can run in these strips: rows at an edge may be unlike others."""


_RUNTIMES: dict[str, Callable[[Any], Costs]] = {}
_KERNELS: dict[str, Callable[[Any], None]] = {}


def register_kernels(target: str, require: Callable[[Any], None]) -> None:
    """
    Give the target of this name a runtime that knows which operators it has kernels for.

    Parameters
    ----------
    target : str
        Name of a :class:`arenaplan.Target`.
    require : callable
        Raises :class:`arenaplan.errors.UnsupportedOp` for a :class:`arenaplan.Graph` with a node
        that no kernel runs.
    """
    _KERNELS[target] = require


def require_kernels(target: str, graph: Any) -> None:
    """
    Refuse a model that the target of this name has no kernels for.

    Graphs that were built by hand may have any operators, and nodes of live programs are run by
    functions of their framework.

    Raises
    ------
    UnsupportedOp
        If no kernel runs a node; the message names the node.
    """
    if target in _KERNELS and graph.target in ("numpy", "tflm"):
        _KERNELS[target](graph)


def register(target: str, costs: Callable[[Any], Costs]) -> None:
    """
    Give the target of this name a runtime that states costs.

    Plans for that target then have scratch memory, and are weighed by the runtime's times.

    Parameters
    ----------
    target : str
        Name of a :class:`arenaplan.Target`.
    costs : callable
        Returns the costs of a :class:`arenaplan.Graph`.
    """
    _RUNTIMES[target] = costs


def has_costs(target: str) -> bool:
    """Return whether a runtime states costs for the target of this name."""
    return target in _RUNTIMES


def costs_of(target: str, graph: Any) -> Costs | None:
    """Return the costs of the steps of a graph; ``None`` if no runtime states them."""
    runtime = _RUNTIMES.get(target)
    return None if runtime is None else runtime(graph)
