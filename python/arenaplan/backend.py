"""
Backends: code that runs the plans of a target, as far as the planner depends on it.

A backend says which scratch memory its kernels need, and estimates the time of a run. Planning
looks a backend up here by the name of the plan's target and imports none, so that a backend may
import planning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import os

    from arenaplan._core import Plan, Strips
    from arenaplan.graph import Choice, Graph
    from arenaplan.symbols import Operators

Source: TypeAlias = "str | os.PathLike[str] | bytes"
"""A model file, or the content of one."""

Scratch: TypeAlias = "Mapping[int, Sequence[Sequence[Choice]]]"
"""By node, the choices of size of each of its scratch buffers."""


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

    def regions(self, graph: Graph) -> Regions | None:
        """Return what is known of running steps of a graph strip by strip; ``None`` if nothing."""


class StripCost(Protocol):
    """The bytes and the time of some steps that run strip by strip."""

    @property
    def rows(self) -> int:
        """Rows of the result that are made at once."""

    @property
    def bytes(self) -> int:
        """Scratch memory, line buffers among it."""

    @property
    def seconds(self) -> float:
        """Estimated seconds of a run."""


class Regions(Protocol):
    """Runs of steps of one graph as a backend could run them strip by strip."""

    def ending(
        self, steps: Sequence[Sequence[int]], last: int, longest: int, most: int
    ) -> Iterable[tuple[int, Sequence[StripCost]]]:
        """
        Yield the runs of steps that can run strip by strip and end with one step.

        Parameters
        ----------
        steps : sequence of sequence of int
            The nodes of each step, in order.
        last : int
            Position of the last step.
        longest : int
            Most steps of a run.
        most : int
            Most bytes of line buffers.

        Yields
        ------
        tuple
            The position of the first step, and the costs for several heights of strips.
        """

    def strips(self, nodes: Sequence[int], rows: int) -> tuple[Sequence[int], Strips] | None:
        """
        Return how nodes run in strips of so many rows.

        Returns
        -------
        tuple or None
            The nodes in the order in which they run, and the places of their line buffers; nothing
            if they cannot run so after all.
        """


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
