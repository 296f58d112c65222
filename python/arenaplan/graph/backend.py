"""
Backends: code that runs the plans of a target, as far as the planner depends on it.

A backend says which scratch memory its kernels need, and estimates the time of a run. Planning
looks a backend up here by the name of the plan's target and imports none, so that a backend may
import planning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from arenaplan.graph.scratch import SCRATCH, Scratch, Steps

if TYPE_CHECKING:
    from arenaplan._core import Plan, Strips
    from arenaplan.graph.graph import Graph


class Backend(Protocol):
    """Interface of a runtime for planning."""

    @property
    def name(self) -> str:
        """The name of its target."""

    def workspaces(
        self,
        graph: Graph,
        steps: Iterable[Sequence[int]] | None = None,
        strips: Sequence[Strips] = (),
    ) -> Scratch:
        """
        Return the scratch buffers of steps, by the last node of each.

        Parameters
        ----------
        graph : Graph
            The graph that is planned.
        steps : iterable of sequence of int, optional
            The nodes that run as one; each node by itself if left out. The cost of a choice is
            the time of the step with it, in any unit that is the same for all choices of a node.
        strips : sequence of Strips
            How steps run strip by strip, for those that do: their first scratch buffer holds the
            line buffers.
        """

    def staging(self, graph: Graph, steps: Iterable[Sequence[int]]) -> Scratch:
        """Return the scratch buffers of steps whose output overlaps an input, likewise."""

    def seconds(self, graph: Graph, plan: Plan) -> Sequence[float]:
        """
        Return the estimated seconds of each step of a plan.

        The estimate covers what the plan decides: nodes that run as one, the sizes of
        scratch buffers, outputs that overlap inputs, and copies that sharing spares.
        """

    def step_seconds(
        self, graph: Graph, nodes: Sequence[int], *, staged: bool
    ) -> Sequence[tuple[int, float]]:
        """
        Return the ways to run nodes as one: bytes of scratch memory, and estimated seconds.

        Parameters
        ----------
        nodes : sequence of int
            Nodes that run as one, or one node.
        staged : bool
            Whether the output overlaps an input.
        """

    def narrow_steps(self, graph: Graph) -> Sequence[list[list[int]]]:
        """
        Return several ways to form steps that might be fast in few bytes.

        They pass on small integers; there are none if the graph is not quantized.
        """

    def row_kernels(self, graph: Graph) -> RowKernels | None:
        """Return what is known of running steps of a graph strip by strip; ``None`` if nothing."""


class Way(NamedTuple):
    """A way to run something."""

    bytes: int
    """Scratch memory, or all that is live meanwhile."""
    nanoseconds: int


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


class RowKernels(Protocol):
    """The kernels of one graph that make some rows of their result from some rows of operands."""

    @property
    def moves(self) -> tuple[int, int]:
        """Nanoseconds of a call that moves rows in a line buffer, and of a thousand bytes."""

    def of(self, nodes: Iterable[int]) -> Sequence[RowKernel]:
        """Return the kernels that perform nodes; those that have none are left out."""

    def can_run(self, nodes: Sequence[int], strips: Strips) -> bool:
        """Return whether nodes can run in these strips: rows at an edge may be unlike others."""


_BACKENDS: dict[str, Callable[[], Backend]] = {}


def register(target: str, load: Callable[[], Backend]) -> None:
    """
    Give the target of this name a backend.

    Plans for that target then have workspaces, and are weighed by the backend's times.

    Parameters
    ----------
    target : str
        Name of a :class:`arenaplan.Target`.
    load : callable
        Returns the backend; called whenever it is needed.
    """

    def scratch_of(
        graph: Graph, steps: Steps | None, staged: Steps, strips: Sequence[Strips]
    ) -> tuple[Scratch, Scratch]:
        backend = load()
        return backend.workspaces(graph, steps, strips), backend.staging(graph, staged)

    _BACKENDS[target] = load
    SCRATCH[target] = scratch_of


def backend_of(target: str) -> Backend | None:
    """Return the backend of the target of this name; ``None`` if it has none."""
    load = _BACKENDS.get(target)
    return None if load is None else load()
