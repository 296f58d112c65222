"""
Backends: code that runs the plans of a target, as far as the planner depends on it.

A backend states costs: which scratch memory its kernels need, and how long they take. Planning
looks a backend up here by the name of the plan's target and imports none, so that a backend may
import planning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import os

    from arenaplan._core import Strips
    from arenaplan.graph import Choice, Graph
    from arenaplan.symbols import Operators

Source: TypeAlias = "str | os.PathLike[str] | bytes"
"""A model file, or the content of one."""


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


class Backend(Protocol):
    """Interface of a runtime for planning."""

    @property
    def name(self) -> str:
        """The name of its target."""

    def costs(self, graph: Graph) -> Costs:
        """Return the costs of the steps of a graph."""


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
    _BACKENDS[target] = load


def backend_of(target: str) -> Backend | None:
    """Return the backend of the target of this name; ``None`` if it has none."""
    load = _BACKENDS.get(target)
    return None if load is None else load()


_READERS: list[Callable[[], Callable[[Source], Graph]]] = []


def register_reader(load: Callable[[], Callable[[Source], Graph]]) -> None:
    """
    Say how executors read model files: they lie beside importers and import none.

    Parameters
    ----------
    load : callable
        Returns the function that reads a file; called whenever it is needed.
    """
    _READERS.append(load)


def read_model(source: Source) -> Graph:
    """Return the graph of a model file."""
    return _READERS[-1]()(source)


_COMPOSERS: list[Callable[[], Callable[[Graph], Operators]]] = []


def register_composer(load: Callable[[], Callable[[Graph], Operators]]) -> None:
    """
    Say how graphs are composed of operators: graphs lie below the shapes of operators.

    Parameters
    ----------
    load : callable
        Returns the class of operators of a graph; called whenever it is needed.
    """
    _COMPOSERS.append(load)


def composer(graph: Graph) -> Operators:
    """Return the operators that append nodes to a graph."""
    return _COMPOSERS[-1]()(graph)
