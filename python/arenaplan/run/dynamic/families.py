"""
Plans for a model whose dimensions vary: one arena that is large enough for every shape.

The largest shape alone does not decide the arena size: the peak and even the graph's nodes may
depend on the shape. Since importing a model takes milliseconds, every shape is looked at. If the
checker accepts the offsets found for a larger shape, no search runs. Otherwise the shape gets a
plan by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, Unpack

from arenaplan.base.amounts import whole_number
from arenaplan.base.arguments import typed
from arenaplan.base.errors import (
    CapacityExceeded,
    InvalidOption,
    PlanError,
    PlannerError,
    ShapeMismatch,
    UnsupportedModel,
)
from arenaplan.base.progress import Watch, checked_seconds
from arenaplan.base.quoting import listed
from arenaplan.formats import open_model
from arenaplan.graph import Graph
from arenaplan.graph.model import Model, flat_sizes
from arenaplan.planner.plan_options import PlanKeywords, PlanOptions, resolve
from arenaplan.planner.planning import plan as plan_graph
from arenaplan.run.dynamic.shapes import MAX_SHAPES, RangeBind, Shape, Shapes, Size

if TYPE_CHECKING:
    from arenaplan._core import Arena, Plan, Target

Source: TypeAlias = "str | os.PathLike[str] | bytes | Callable[[Mapping[str, Size]], Graph]"
"""A model file, the content of one, or a function that makes the graph for given sizes."""

OnProgress: TypeAlias = Callable[[int, int], object]
"""Called with the number of shapes that were looked at, and of all."""

InputShapes: TypeAlias = tuple[tuple[int, ...], ...]

_TRIES = 8
"""Plans of graphs with equal names that are tried before a shape gets its own."""


class PlannedShape(NamedTuple):
    """A shape that the solver planned, since no earlier plan served it."""

    shape: Shape
    plan: Plan


class PlanFamily:
    """
    Plans for every shape that a model may be run with, in a single arena.

    Made by :func:`plan_family`.
    """

    def __init__(self, model: Source, shapes: Shapes, options: PlanOptions) -> None:
        self._graph_with = model if callable(model) else open_model(model)
        self._shapes = shapes
        self._options = options
        self._planned: list[PlannedShape] = []
        self._server: dict[Shape, int] = {}
        self._exact: dict[Shape, Plan] = {}
        self._by_inputs: dict[InputShapes, Shape] = {}
        self._same_inputs: tuple[Shape, Shape] | None = None
        self.inputs: tuple[str, ...] = ()
        """Names of the graph's inputs."""
        self.warnings: list[str] = []
        """What the importer had to assume about any shape, one sentence each."""
        self.left_out: list[dict[str, Size]] = []
        """Combinations of sizes that the model forbids, since shapes of operands would not fit."""

    def __repr__(self) -> str:
        return f"PlanFamily({self.model!r}, {self._shapes}, {self.arena_bytes} bytes)"

    def __len__(self) -> int:
        """Return the number of shapes."""
        return len(self._shapes)

    def __iter__(self) -> Iterator[dict[str, Size]]:
        """Iterate over the shapes, as sizes by name, largest first."""
        return map(self._shapes.bound, self._shapes)

    # -- what is planned ---------------------------------------------------------------

    @property
    def model(self) -> str:
        """The model's name."""
        return self._largest.plan.model

    @property
    def bind(self) -> dict[str, list[Size]]:
        """The sizes for every name, smallest first."""
        return {name: list(reversed(sizes)) for name, sizes in self._shapes.choices.items()}

    @property
    def arena_bytes(self) -> int:
        """
        Arena bytes in which every shape can run.

        An upper bound, checked for each shape: the shape's own plan has no more bytes, or the
        offsets from another shape's plan serve.
        """
        return sum(self._spaces.values())

    @property
    def lower_bound(self) -> int:
        """Bytes below which some shape has no plan with the same order and sharing."""
        return max(planned.plan.lower_bound for planned in self._planned)

    @property
    def gap(self) -> float:
        """Distance from ``lower_bound`` to ``arena_bytes``, as a fraction of ``lower_bound``."""
        return self.arena_bytes / self.lower_bound - 1.0 if self.lower_bound else 0.0

    @property
    def status(self) -> str:
        """Status for ``arena_bytes``: ``"optimal"`` or less, as for a plan."""
        status = self._largest.plan.status
        met = status == "feasible" and self.lower_bound == self.arena_bytes
        return "optimal" if met else status

    @property
    def planned(self) -> list[tuple[dict[str, Size], Plan]]:
        """The shapes that the solver planned, and their plans, whose offsets serve all others."""
        return [(self._shapes.bound(planned.shape), planned.plan) for planned in self._planned]

    @property
    def target(self) -> Target:
        """The runner that the plans are for."""
        return self._largest.plan.target

    @property
    def alignment(self) -> int:
        """Alignment for every offset, in bytes."""
        return self._largest.plan.alignment

    @property
    def options(self) -> dict[str, Any]:
        """The options that the plans were made with."""
        return self._largest.plan.options

    # -- one shape ---------------------------------------------------------------------

    def required_bytes(self, /, **sizes: object) -> int:
        """
        Return the bytes that a shape needs, such as ``required_bytes(batch=8)``.

        Never more than :attr:`arena_bytes`. Raises as :meth:`at`.
        """
        return self.at(**sizes).arena_bytes

    def at(self, /, **sizes: object) -> Plan:
        """
        Return the plan for a shape, such as ``at(batch=8)``.

        The plan is made on first use: normally by :func:`plan`, or with a larger shape's offsets
        if the result is smaller.

        Raises
        ------
        UnknownDim, UnboundDim, SizeError
            If the sizes name no shape in the family. A name with a single size may be left out.
        """
        shape = self._shapes.find(sizes)
        plan = self._exact.get(shape)
        if plan is None:
            with self._naming(shape):
                graph = self._graph(shape)
                served = self._planned[self._server[shape]].plan.resized(graph)
                plan = plan_graph(graph, replace(self._options, budget=None))
            if served.arena_bytes < plan.arena_bytes or not _within(plan, self._spaces):
                plan = served
            self._exact[shape] = plan
        return plan

    def graph(self, /, **sizes: object) -> Graph:
        """Return the graph for a shape; raises as :meth:`at`."""
        return self._graph(self._shapes.find(sizes))

    def commit(self) -> Arena:
        """
        Allocate an arena that every shape can run in.

        Raises
        ------
        UnsupportedModel
            If the plans have several memory spaces.
        """
        if len(self._spaces) > 1:
            raise UnsupportedModel("one arena cannot be several memory spaces")
        return self._largest.plan.commit()

    def to_model(self, on_progress: OnProgress | None = None) -> Model:
        """
        Return each shape's graph with the plan from :meth:`at`, to be written to a file.

        Shapes without their own plan are planned now. A whole shape that was given for an
        input has a dimension for each number: ``image[0]``, ``image[1]`` and so on.

        Parameters
        ----------
        on_progress : callable, optional
            Called after each shape, with the number of shapes done and the total.

        Examples
        --------
        >>> import arenaplan as ap
        >>> def layer(sizes):
        ...     graph = ap.Graph("layer")
        ...     x = graph.input("x", (sizes["batch"], 64))
        ...     (y,) = graph.node("MatMul", [x], [("y", (sizes["batch"], 16), "float32")])
        ...     graph.output(y)
        ...     return graph
        >>> family = ap.plan_family(layer, bind={"batch": range(1, 33)})
        >>> family.to_model()
        Model('layer', 32 shapes, 10240 bytes)
        """
        shapes = [self._shapes.bound(shape) for shape in self._shapes]

        def rows() -> Iterator[tuple[list[int], Graph, Plan]]:
            for done, sizes in enumerate(shapes, 1):
                yield list(flat_sizes(sizes).values()), self.graph(**sizes), self.at(**sizes)
                if on_progress is not None:
                    on_progress(done, len(shapes))

        return Model(self.model, list(flat_sizes(shapes[0])), rows())

    # -- for the executor --------------------------------------------------------------

    def check_inputs(self) -> None:
        """
        Raise unless a run's input shapes tell the family's shapes apart.

        Raises
        ------
        InvalidOption
            If a name was given several sizes that make no difference to inputs.
        """
        if self._same_inputs is not None:
            first, second = map(self._shapes.text, self._same_inputs)
            raise InvalidOption(
                f"the inputs have the same shapes with {first} and with {second}: bind what no "
                "input has as dimension to one number"
            )

    def find_inputs(self, shapes: InputShapes) -> dict[str, Size] | None:
        """Return the sizes that give the graph's inputs these shapes, or ``None``."""
        shape = self._by_inputs.get(shapes)
        return None if shape is None else self._shapes.bound(shape)

    def fitted(self, /, **sizes: object) -> tuple[Graph, Plan]:
        """
        Return a shape's graph, and a plan in the family's arena, without a search.

        The plan has the offsets from a planned shape, and may need more bytes than the plan
        that :meth:`at` returns.
        """
        shape = self._shapes.find(sizes)
        with self._naming(shape):
            graph = self._graph(shape)
            return graph, self._planned[self._server[shape]].plan.resized(graph)

    # -- planning ----------------------------------------------------------------------

    @property
    def _largest(self) -> PlannedShape:
        """The plan that needs most bytes."""
        return max(self._planned, key=lambda planned: planned.plan.arena_bytes)

    @property
    def _spaces(self) -> dict[str, int]:
        """Bytes that every shape finds enough, by memory space."""
        largest: dict[str, int] = {}
        for planned in self._planned:
            for name, nbytes in _space_bytes(planned.plan).items():
                largest[name] = max(nbytes, largest.get(name, 0))
        return largest

    def _graph(self, shape: Shape) -> Graph:
        """Return a shape's graph."""
        return self._graph_with(self._shapes.bound(shape))

    @contextmanager
    def _naming(self, shape: Shape) -> Iterator[None]:
        """Let an error name the shape at which it happened."""
        try:
            yield
        except PlannerError as error:
            if len(self) > 1:
                error.args = (f"with {self._shapes.text(shape)}: {error}",)
            raise

    def _cover(self, on_progress: OnProgress | None, watch: Watch) -> None:
        """Find plans that serve all shapes."""
        is_over = False
        candidates: dict[int, list[int]] = {}
        warnings: dict[str, None] = {}
        for done, (shape, graph) in enumerate(self._possible(), 1):
            with self._naming(shape):
                warnings.update(dict.fromkeys(graph.warnings))
                graph.covers.require_whole(graph.name)
                self._note_inputs(graph, shape)
                known = candidates.setdefault(_names(graph), [])
                server = next((i for i in known if _serves(self._planned[i].plan, graph)), None)
                if server is None:
                    server = self._add(
                        shape,
                        _planned(graph, self._options, 0.0 if is_over else watch.seconds_left),
                    )
                    if len(known) < _TRIES:
                        known.append(server)
                self._server[shape] = server
            if on_progress is not None and on_progress(done, len(self)) is False:
                is_over = True
        self.warnings = list(warnings)
        impossible = [shape for shape in self._shapes if shape not in self._server]
        self.left_out = list(map(self._shapes.bound, impossible))
        self._shapes.leave_out(set(impossible))
        for shape, plan in self._planned:
            try:
                with self._naming(shape):
                    plan.fits()
            except CapacityExceeded as error:
                error.plan, error.family = plan, self
                raise

    def _possible(self) -> Iterator[tuple[Shape, Graph]]:
        """
        Yield the shapes that the model permits, with their graphs.

        A shape whose graph contradicts the bound sizes is left out, unless all shapes do so:
        the model is then wrong about the name.
        """
        doubtful: list[Shape] = []
        refused: ShapeMismatch | None = None
        for shape in self._shapes:
            try:
                with self._naming(shape):
                    graph = self._graph(shape)
            except ShapeMismatch as error:
                refused = refused or error
                continue
            if graph.contradicts and len(self) > 1:
                doubtful.append(shape)
                continue
            yield shape, graph
        if self._planned:
            return
        for shape in doubtful:
            yield shape, self._graph(shape)
        if refused is not None and not doubtful:
            raise refused

    def _add(self, shape: Shape, plan: Plan) -> int:
        """Note the plan for a shape that was planned by itself, and return the position."""
        self._planned.append(PlannedShape(shape, plan))
        self._exact[shape] = plan
        return len(self._planned) - 1

    def _note_inputs(self, graph: Graph, shape: Shape) -> None:
        """Remember how a run's inputs identify a shape."""
        values = [graph.values[index] for index in graph.inputs]
        names = tuple(value.name for value in values)
        if not self._server:
            self.inputs = names
        elif names != self.inputs:
            raise InvalidOption(
                f"the graph has the inputs {listed(names)}, and with the largest sizes "
                f"{listed(self.inputs)}"
            )
        first = self._by_inputs.setdefault(tuple(value.shape for value in values), shape)
        if first != shape and self._same_inputs is None:
            self._same_inputs = first, shape


@typed
def plan_family(
    model: Source,
    bind: RangeBind,
    options: PlanOptions | None = None,
    *,
    max_shapes: int = MAX_SHAPES,
    time_limit: float | None = None,
    on_progress: OnProgress | None = None,
    **overrides: Unpack[PlanKeywords],
) -> PlanFamily:
    """
    Plan one arena for every shape that a model may be run with.

    Separate from :func:`plan`, since a graph's shapes are numbers: a model gives a graph per
    shape.

    Parameters
    ----------
    model : path, bytes or callable
        A model as for :func:`load`, or a function that returns the graph for given
        sizes, which it gets as one mapping by name.
    bind : mapping or list of mapping
        Sizes by name: a number, a ``range``, or a list or set of buckets; or an equation in
        other names, such as ``"past + 1"``. For an input whose dimensions have no names, a
        whole shape as a tuple, or a list of shapes. Or a list of combinations. Combinations
        that the model forbids are left out, if the model permits any.
    options : PlanOptions, optional
        Options for every plan, as for :func:`plan`.
    max_shapes : int, default 4096
        Largest number of size combinations. Importing and checking each combination takes some
        milliseconds.
    time_limit : float, optional
        Seconds after which the plan search stops: each remaining shape gets the first plan
        found.
    on_progress : callable, optional
        Called after each shape, with the number of shapes done and the total. If the function
        returns ``False``, the search ends as with a time limit.
    **overrides
        Single options by name.

    Returns
    -------
    PlanFamily
        ``arena_bytes`` holds every shape. For a single shape, ``required_bytes(batch=8)`` is the
        size and ``at(batch=8)`` the plan.

    Raises
    ------
    SizeError
        If there are more combinations than ``max_shapes``.
    CapacityExceeded
        If some shape does not fit ``budget``; the exception's ``family`` has the plans.
    PlannerError
        As :func:`load` and :func:`plan`, for the shape that the message names.

    Examples
    --------
    >>> import arenaplan as ap
    >>> def layer(sizes):
    ...     graph = ap.Graph("layer")
    ...     x = graph.input("x", (sizes["batch"], 64))
    ...     (y,) = graph.node("MatMul", [x], [("y", (sizes["batch"], 16), "float32")])
    ...     graph.output(y)
    ...     return graph
    >>> family = ap.plan_family(layer, bind={"batch": range(1, 33)})
    >>> family.arena_bytes, family.required_bytes(batch=8)
    (10240, 2560)
    >>> family.at(batch=8)
    Plan('layer', 2560 bytes, optimal)
    """
    limit = whole_number(max_shapes, "max_shapes")
    family = PlanFamily(model, Shapes(bind, limit), resolve(options, overrides))
    family._cover(on_progress, Watch(None, checked_seconds(time_limit)))
    return family


def _planned(graph: Graph, options: PlanOptions, time_limit: float | None = None) -> Plan:
    """Return the best plan for a graph, even if the plan exceeds the capacity."""
    try:
        return plan_graph(graph, options, time_limit=time_limit)
    except CapacityExceeded as error:
        if error.plan is None:
            raise
        return error.plan


def _names(graph: Graph) -> int:
    """Return a key from operators and names; only graphs with equal keys can share a plan."""
    values = tuple([value.name for value in graph.values])
    nodes = tuple([(node.name, node.op, node.inputs, node.outputs) for node in graph.nodes])
    return hash((values, nodes))


def _serves(plan: Plan, graph: Graph) -> bool:
    """Return whether a plan's offsets serve a graph, in no more bytes."""
    try:
        return _within(plan.resized(graph), _space_bytes(plan))
    except PlanError:
        return False


def _space_bytes(plan: Plan) -> dict[str, int]:
    """Return the bytes per memory space in a plan."""
    return {space.name: space.arena_bytes for space in plan.spaces}


def _within(plan: Plan, spaces: Mapping[str, int]) -> bool:
    """Return whether every memory space in a plan fits the given bytes."""
    return all(nbytes <= spaces[name] for name, nbytes in _space_bytes(plan).items())
