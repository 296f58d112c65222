"""
Bytes over the length of a sequence: a curve of plans, and the longest sequence that fits.

A cache grows evenly with the length, and a decoder has thousands of lengths. So the planned lengths
are the ends, the middle, further middles where bytes bend, and lengths that the search for the
longest sequence visits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Unpack

from arenaplan.base.amounts import parse_size, whole_number
from arenaplan.base.arguments import typed
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

_HALVINGS = 3
"""How often a range is halved whose middle is not on the line between the ends."""

_BEND = 0.01
"""Part of the bytes that a middle may be off the line."""


class LengthPoint(NamedTuple):
    """A plan's bytes for a length, split by use at the peak."""

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

    Every point is a separate plan. Lengths in between have bytes near the line between two points;
    :attr:`at` plans such lengths exactly.
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
    none fits. No length behind it fits: either it was planned, too, or what the values of a shorter
    one need is too much."""
    at: Callable[[int], LengthPoint]
    """Plans one of the lengths, if it was not planned yet, and returns its point."""


@typed
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
    Plan a model for some lengths in a range, and find the longest that fits ``budget``.

    Parameters
    ----------
    model : path, bytes or callable
        A model, as for :func:`plan_family`.
    bind : mapping
        Sizes by name: a ``range`` or list for a single name, and a size or an equation, such as
        ``"past + 1"``, for each other name.
    options : PlanOptions, optional
        Options for every plan, as for :func:`plan`. Without a ``budget``, all lengths fit.
    time_limit : float, optional
        Seconds after which plans are no longer improved: the first plan found is taken.
    on_progress : callable, optional
        Called with the number of planned lengths, and the total.
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
    >>> curve = ap.run.plan_lengths(step, {"past": range(2049)}, budget="64KiB")
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
    alone, watch = replace(chosen, budget=None), Watch(None, checked_seconds(time_limit))

    def plan_of(graph: Graph) -> Plan:
        made = plan_graph(graph, alone, time_limit=watch.seconds_left)
        if on_progress is not None:
            on_progress(len(search.plans) + 1, len(lengths))
        return made

    search = _Search(
        lengths,
        lambda length: solved({**bind, name: length}),  # type: ignore[dict-item]
        graph_with,
        plan_of,
    )
    budget = None if chosen.budget is None else parse_size(str(chosen.budget))
    search.draw(0, len(lengths) - 1, _HALVINGS)
    longest = len(lengths) - 1 if budget is None else search.longest(budget)
    return LengthCurve(
        search.name,
        name,
        lengths,
        [search.at(lengths[place]) for place in sorted(search.plans)],
        budget,
        None if longest is None else search.at(lengths[longest]),
        search.at,
    )


class _Search:
    """The plans for visited lengths, by place among all lengths."""

    def __init__(
        self,
        lengths: Sequence[int],
        sizes_of: Callable[[int], dict[str, Size]],
        graph_with: Callable[[dict[str, Size]], Graph],
        plan_of: Callable[[Graph], Plan],
    ) -> None:
        self._lengths, self._sizes_of = lengths, sizes_of
        self._graph_with, self._plan_of = graph_with, plan_of
        self.plans: dict[int, tuple[Graph, Plan]] = {}
        self.name = ""

    def bytes(self, place: int) -> int:
        """Return the plan bytes for a length."""
        if place not in self.plans:
            graph = self._graph_with(self._sizes_of(self._lengths[place]))
            made = self._plan_of(graph)
            self.plans[place], self.name = (graph, made), made.model
        return self.plans[place][1].arena_bytes

    def draw(self, first: int, last: int, halvings: int) -> None:
        """Plan the ends of a range, and middles that are off the line between the ends."""
        ends, middle = (self.bytes(first), self.bytes(last)), (first + last) // 2
        if not first < middle or not halvings:
            return
        low, at, high = (self._lengths[place] for place in (first, middle, last))
        line = ends[0] + (at - low) * (ends[1] - ends[0]) / (high - low)
        if abs(self.bytes(middle) - line) > _BEND * line:
            self.draw(first, middle, halvings - 1)
            self.draw(middle, last, halvings - 1)

    def longest(self, budget: int) -> int | None:
        """
        Return the place of the longest length that fits.

        Scratch memory goes up and down with the length, and values only go up. So the search looks
        for the last length whose values fit, and from there down for a plan that fits.
        """
        low, high = -1, len(self._lengths)
        for place in sorted(self.plans):
            if self._values(place) > budget:
                high = place
                break
            low = place
        while high - low > 1:
            guess = self._guess(low, high, budget)
            fits = self._values(guess) <= budget
            low, high = (guess, high) if fits else (low, guess)
        while low >= 0 and self.bytes(low) > budget:
            low -= 1
        return low if low >= 0 else None

    def _guess(self, low: int, high: int, budget: int) -> int:
        """Return the place where the line between two planned places meets a budget."""
        first, last = self._lengths[low], self._lengths[high]
        least, most = self._values(low), self._values(high)
        reach = first + (last - first) * (budget - least) // max(most - least, 1)
        return min(max(bisect_right(self._lengths, reach) - 1, low + 1), high - 1)

    def _values(self, place: int) -> int:
        """Return the most bytes that are live at a step without scratch memory."""
        self.bytes(place)
        plan = self.plans[place][1]
        live = list(plan.live_bytes)
        for work in plan.workspaces:
            for step in range(work.live.start, work.live.end):
                live[step] -= work.bytes
        return max(live, default=0)

    def at(self, length: int) -> LengthPoint:
        """Return the plan bytes for a length, split by use."""
        place = bisect_left(self._lengths, length)
        if list(self._lengths[place : place + 1]) != [length]:
            raise InvalidOption(f"{length} is none of the {len(self._lengths):,} lengths")
        self.bytes(place)
        graph, plan = self.plans[place]
        shortest, longest = (self.plans[end][0] for end in (0, len(self._lengths) - 1))
        sizes = {value.name: value.shape for value in shortest.values}
        grows = {v.name for v in longest.values if sizes.get(v.name, v.shape) != v.shape}
        places, outer = plan.placements, {*graph.inputs, *graph.outputs}
        kinds = [v.kind == "state" or (v.index in outer and v.name in grows) for v in graph.values]
        # A value in a cache's bytes counts as a cache.
        held = {_span(place) for place, is_cache in zip(places, kinds, strict=True) if is_cache}
        rows = held_at(plan, plan.peak_step, graph)
        spans = {(row.offset, row.offset + row.bytes) for row in rows if not row.is_scratch}
        scratch = sum(row.bytes for row in rows if row.is_scratch)
        kept = union(spans & held)
        return LengthPoint(
            self._sizes_of(length),
            plan.arena_bytes,
            kept,
            union(spans) - kept,
            scratch,
            plan.status,
        )


def _span(place: Placement | None) -> tuple[int, int]:
    """Return a place's byte range."""
    return (0, 0) if place is None else (place.offset, place.offset + place.bytes)
