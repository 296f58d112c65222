"""
Bytes over the length of a sequence: a curve of plans, and the longest sequence that fits.

A cache grows evenly with its length, and a decoder has thousands of lengths. So a few of them are
planned over the whole range, and those that a search for the longest comes upon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Unpack

from arenaplan.base.amounts import parse_size, whole_number
from arenaplan.base.errors import InvalidOption
from arenaplan.base.formulas import solved
from arenaplan.base.progress import Watch, checked_seconds
from arenaplan.formats import open_model
from arenaplan.graph import Graph
from arenaplan.planner.peak import held_at, union
from arenaplan.planner.plan_options import PlanKeywords, PlanOptions, resolve
from arenaplan.planner.planning import plan as plan_graph
from arenaplan.run.dynamic.shapes import Size

if TYPE_CHECKING:
    from arenaplan._core import Placement, Plan
    from arenaplan.run.dynamic.families import Source

POINTS = 9
"""Lengths that are planned over the whole range."""


class LengthPoint(NamedTuple):
    """The bytes of a plan for one length, by what has them at the peak."""

    bind: dict[str, Size]
    arena_bytes: int
    caches: int
    """Of states, and of inputs and outputs whose shape has the length."""
    activations: int
    """Of all other values."""
    scratch: int
    """Of kernels."""
    status: str
    """Of the plan: ``"optimal"`` or less."""


class LengthCurve(NamedTuple):
    """
    Bytes over a length, made by :func:`plan_lengths`.

    Every point is a plan of its own. Lengths between were not looked at.
    """

    model: str
    name: str
    """The dimension."""
    lengths: Sequence[int]
    """All lengths that were asked for, shortest first."""
    points: list[LengthPoint]
    """Those that were planned, shortest first."""
    budget: int | None
    longest: LengthPoint | None
    """The longest length that fits the budget, or of all lengths without a budget; ``None`` if
    none fits. The next length was planned, too, and does not fit."""


def plan_lengths(
    model: Source,
    bind: Mapping[str, Size | str | Sequence[int]],
    options: PlanOptions | None = None,
    *,
    time_limit: float | None = None,
    on_progress: Callable[[int, int], object] | None = None,
    **overrides: Unpack[PlanKeywords],
) -> LengthCurve:
    """
    Plan a model for some lengths of a range, and find the longest that fits ``budget``.

    Parameters
    ----------
    model : path, bytes or callable
        A model, as for :func:`plan_family`.
    bind : mapping
        Sizes by name: a ``range`` or list for one name, and one size or an equation, such as
        ``"past + 1"``, for each other one.
    options : PlanOptions, optional
        Options of every plan, as for :func:`plan`. Without a ``budget``, all lengths fit.
    time_limit : float, optional
        Seconds after which plans are no longer improved: the first that is found is taken.
    on_progress : callable, optional
        Called with the number of lengths planned, and of those over the whole range.
    **overrides
        Single options by name.

    Raises
    ------
    InvalidOption
        If not exactly one name has several sizes.
    PlannerError
        As :func:`load` and :func:`plan`.

    Examples
    --------
    >>> import arenaplan as ap
    >>> def step(sizes):
    ...     graph = ap.Graph("step")
    ...     x = graph.input("past", (sizes["past"], 64))
    ...     (y,) = graph.node("ReduceSum", [x], [("y", (64,), "float32")])
    ...     graph.output(y)
    ...     return graph
    >>> curve = ap.plan_lengths(step, {"past": range(2049)}, budget="64KiB")
    >>> curve.longest.bind, curve.longest.arena_bytes, curve.longest.caches
    ({'past': 255}, 65536, 65280)
    """
    chosen = resolve(options, overrides)
    several = [name for name, sizes in bind.items() if isinstance(sizes, (range, list))]
    if len(several) != 1:
        raise InvalidOption(
            f"option bind: {len(several)} names have several sizes, and a curve is over one"
        )
    name = several[0]
    given = bind[name]
    assert isinstance(given, (range, list))
    lengths = sorted({whole_number(length, f"a size of {name!r}") for length in given})
    if not lengths:
        raise InvalidOption(f"option bind: no size is given for {name!r}")
    graph_with = model if callable(model) else open_model(model)
    search = _Search(
        lambda length: solved({**bind, name: length}),  # type: ignore[dict-item]
        graph_with,
        replace(chosen, budget=None),
        Watch(None, checked_seconds(time_limit)),
    )
    budget = None if chosen.budget is None else parse_size(str(chosen.budget))
    count = min(POINTS, len(lengths))
    for at in range(count):
        # The ends first: they tell which values have the length.
        where = (
            (0, len(lengths) - 1)[at] if at < 2 else (at - 1) * (len(lengths) - 1) // (count - 1)
        )
        search.plan(lengths[where])
        if on_progress is not None:
            on_progress(at + 1, count)
    longest: int | None = lengths[-1]
    if budget is not None:
        longest = search.longest(lengths, budget)
    return LengthCurve(
        search.name,
        name,
        lengths,
        [search.point(length, lengths) for length in sorted(search.plans)],
        budget,
        None if longest is None else search.point(longest, lengths),
    )


class _Search:
    """The plans of the lengths that were looked at."""

    def __init__(
        self,
        sizes: Callable[[int], dict[str, Size]],
        graph_with: Callable[[dict[str, Size]], Graph],
        options: PlanOptions,
        watch: Watch,
    ) -> None:
        self._sizes, self._graph_with, self._options = sizes, graph_with, options
        self._watch = watch
        self.plans: dict[int, tuple[Graph, Plan]] = {}
        self.name = ""

    def plan(self, length: int) -> Plan:
        """Return the plan for a length."""
        if length not in self.plans:
            graph = self._graph_with(self._sizes(length))
            made = plan_graph(graph, self._options, time_limit=self._watch.seconds_left)
            self.plans[length], self.name = (graph, made), made.model
        return self.plans[length][1]

    def longest(self, lengths: Sequence[int], budget: int) -> int | None:
        """Return the longest length that fits, if bytes grow with the length."""
        if self.plan(lengths[0]).arena_bytes > budget:
            return None
        low, high = 0, len(lengths)
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.plan(lengths[middle]).arena_bytes <= budget
            low, high = (middle, high) if fits else (low, middle)
        return lengths[low]

    def point(self, length: int, lengths: Sequence[int]) -> LengthPoint:
        """Return the bytes of a plan by what has them."""
        graph, plan = self.plans[length]
        shortest, longest = (self.plans[at][0] for at in (lengths[0], lengths[-1]))
        sizes = {value.name: value.shape for value in shortest.values}
        grows = {v.name for v in longest.values if sizes.get(v.name, v.shape) != v.shape}
        places, outer = plan.placements, {*graph.inputs, *graph.outputs}
        kinds = [v.kind == "state" or (v.index in outer and v.name in grows) for v in graph.values]
        # A value in the bytes of a cache counts as a cache.
        held = {_span(place) for place, is_cache in zip(places, kinds, strict=True) if is_cache}
        rows = held_at(plan, plan.peak_step, graph)
        spans = {(row.offset, row.offset + row.bytes) for row in rows if not row.is_scratch}
        scratch = sum(row.bytes for row in rows if row.is_scratch)
        kept = union(spans & held)
        return LengthPoint(
            self._sizes(length),
            plan.arena_bytes,
            kept,
            union(spans) - kept,
            scratch,
            plan.status,
        )


def _span(place: Placement | None) -> tuple[int, int]:
    """Return the bytes of a place."""
    return (0, 0) if place is None else (place.offset, place.offset + place.bytes)
