"""
Costs: scratch memory and time of steps, declared by runtimes for planning.

Planning looks costs up here by target name without importing runtimes, so a runtime may import
planning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from arenaplan._core import Strips
    from arenaplan.graph.effects import Choice


class Way(NamedTuple):
    """A way to run something."""

    bytes: int
    """Scratch memory, or all that is live meanwhile."""
    nanoseconds: int


class StepCost(NamedTuple):
    """Scratch memory and time of fused nodes."""

    workspaces: Sequence[Sequence[Choice]]
    """
    The size choices for each scratch buffer. A choice's cost is the step's time with that size, in
    a unit common to all choices in the step.
    """
    ways: Sequence[Way]
    """Total scratch memory, and time; ascending bytes, at least one entry."""


class RowCost(NamedTuple):
    """The ways to make some result rows in one call."""

    rows: int
    ways: Sequence[Way]
    """A way per tried scratch size; empty if so many rows cannot be made."""


class RowKernel(NamedTuple):
    """Nodes performed by one call, on any rows of the last node's result."""

    nodes: Sequence[int]
    takes: int | None
    """
    The operand in whose rows the first node makes the result; each other node overwrites the
    previous node's result.
    """
    costs: Sequence[RowCost]
    """Costs for some row counts, ascending; interpolated linearly between."""


StepForm: TypeAlias = Literal["whole", "staged", "continued"] | "Strips"
"""The form in which fused nodes run: the name of a form, or the strips."""


class Costs(Protocol):
    """
    A runtime's costs for the steps of a graph.

    The core queries costs and decides. Equal queries have equal answers.
    """

    @property
    def row_moves(self) -> tuple[int, int] | None:
        """
        Nanoseconds for a call that moves line buffer rows, and for a thousand moved bytes.

        ``None`` if no step runs strip by strip.
        """

    def step(self, nodes: Sequence[int], form: StepForm) -> StepCost | None:
        """
        Return the cost of fused nodes; ``None`` if no kernel runs the nodes in the form.

        Parameters
        ----------
        nodes : sequence of int
            Node indices, in order; at least one.
        form : StepForm
            - ``"whole"``: piece by piece.
            - ``"staged"``: piece by piece, while the output overlaps an input at a distance.
            - ``"continued"``: one call in which each node replaces the result of the node before.
              The first node may take over an input as if alone; all nodes work in the first
              node's first scratch buffer.
            - :class:`arenaplan.Strips`: strip by strip, with the line buffers in the first scratch
              buffer. Rows at an edge may be unlike others, which no kernel may run.
        """

    def groupings(self) -> Sequence[list[list[int]]]:
        """Return step sequences to compare with the core's own search."""

    def row_kernels(self, nodes: Sequence[int]) -> Sequence[RowKernel]:
        """
        Return the kernels that perform nodes on some rows, skipping nodes without such a kernel.
        """


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
    if target in _KERNELS and graph.target in ("numpy", "tflm", target):
        _KERNELS[target](graph)


def register(target: str, costs: Callable[[Any], Costs]) -> None:
    """
    Register a runtime's costs for a target name.

    Plans for the target then have scratch memory, and are compared by the runtime's times.

    Parameters
    ----------
    target : str
        Name of a :class:`arenaplan.Target`.
    costs : callable
        Returns the costs for a :class:`arenaplan.Graph`.
    """
    _RUNTIMES[target] = costs


def has_costs(target: str) -> bool:
    """Return whether a runtime declares costs for the target name."""
    return target in _RUNTIMES


def costs_of(target: str, graph: Any) -> Costs | None:
    """Return the costs for a graph's steps; ``None`` without a runtime that declares costs."""
    runtime = _RUNTIMES.get(target)
    return None if runtime is None else runtime(graph)
