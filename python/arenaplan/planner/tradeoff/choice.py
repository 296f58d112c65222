"""
Time beside bytes: the least arena of the plans that are fast enough.

A plan with every technique is made first. Where it is slower than the limit, each of its steps
has other *ways* to run: with more scratch memory, with its output beside the input and not over
it, and node by node. A way needs some bytes at its step and takes some time. The bytes of an
arena are those of its highest step, so for an arena of given size each step takes the fastest way
that fits it, and the smallest size whose steps together are within the limit is found by
bisection. A plan with these ways is packed, and measured again by the estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from arenaplan._core import Plan, StripChoice, Strips, StripSearch
from arenaplan.graph.backend import RowKernels
from arenaplan.planner.tradeoff.faster import ROUNDS, WIDER, bytes_within, faster, polished
from arenaplan.planner.tradeoff.maker import Maker, Point, Timed
from arenaplan.planner.tradeoff.twice import storing
from arenaplan.planner.tradeoff.ways import steps_of

_SLOW = ("overlap", "streaming", "fusion", "duplicate")
"""Techniques that may cost time."""


class Chosen(NamedTuple):
    """The plan that was chosen, and the points that were tried."""

    plan: Plan
    tried: tuple[Point, ...]
    """Of the plans that were tried, those that no other one beats, ascending bytes."""


def chosen(
    maker: Maker,
    max_slowdown: float,
    steps: list[list[int]] | None,
    strips: Sequence[Strips] = (),
) -> Chosen:
    """
    Return the plan with the fewest bytes that is fast enough, and of equal bytes the fastest.

    Parameters
    ----------
    max_slowdown : float
        How many times as long as the fastest way to run the graph a plan may take; infinite
        if bytes alone count.
    steps : list of list of int, optional
        The steps to run, if the caller gives them; then there is no choice.
    strips : sequence of Strips
        How those run strip by strip.
    """
    draft = maker.draft(maker.names, steps, strips)
    first = maker.finish(draft, steps, strips=strips)
    # Several workers are weighed by the planner's own times.
    several = maker.options["workers"] != 1
    if steps is not None or maker.memories[0] is not None or several:
        return Chosen(first.plan, (first.point,))
    plain = maker.finish(maker.draft([]), optimize="none")
    tried = [first]
    quickest = min(_quickest(maker, plain), first.seconds)
    limit = max_slowdown * quickest
    if not maker.watch.is_over:
        tried += _narrow(maker)
    needs_others = first.plan.arena_bytes > draft.arena_bytes or first.seconds > limit
    if needs_others and not maker.watch.is_over:
        tried += _others(maker, first, limit)
    quickest = min(quickest, *(timed.seconds for timed in tried))
    limit = max_slowdown * quickest
    for timed in [] if maker.watch.is_over else list(tried):
        tried += faster(maker, timed, limit, bytes_within(tried, limit))
    if bytes_within([plain, *tried], limit) == inf and not maker.watch.is_over:
        tried += faster(maker, plain, limit, inf)
    if not maker.watch.is_over:
        tried += storing(maker, min(tried, key=lambda timed: timed.point), limit, tried)
    tried += _in_strips(maker, plain, limit, bytes_within([plain, *tried], limit))
    if bytes_within(tried, limit) > plain.plan.arena_bytes:
        # As that plan, and values share bytes besides.
        tried.append(maker.finish(plain.draft, None, [], plain.plan.arena_bytes))
    within = [timed for timed in tried if timed.seconds <= limit]
    if within:
        best = min(within, key=lambda timed: timed.point)
    else:
        best = min([plain, *tried], key=lambda timed: timed.seconds)
    if not maker.watch.is_over:
        best = polished(maker, best)
    tried += [plain, best]
    estimate = [round(seconds * 1e9) for seconds in (best.seconds, min(quickest, best.seconds))]
    return Chosen(best.plan.with_estimate(*estimate), _pareto(timed.point for timed in tried))


def _quickest(maker: Maker, plain: Timed) -> float:
    """Return the estimated seconds of the graph node by node, with any scratch memory."""
    return sum(step.ways[-1].seconds for step in steps_of(maker, plain))


def _pareto(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return the points that no other one beats."""
    found: list[Point] = []
    for point in sorted(points):
        if not found or point.seconds < found[-1].seconds:
            found.append(point)
    return tuple(found)


def _others(maker: Maker, first: Timed, limit: float) -> list[Timed]:
    """Return plans without a technique that may cost time, if one of them might be better."""
    found: list[Timed] = []
    known = [first.draft.steps]
    left: list[tuple[str, ...]] = [("overlap",)] if first.draft.overlapped else []
    left += [("duplicate",)] if first.draft.repeated else []
    left += [("streaming",), _SLOW]
    for left_out in left:
        names = [name for name in maker.names if name not in left_out]
        if names == maker.names:
            continue
        draft = maker.draft(names)
        best = bytes_within([first, *found], limit)
        if draft.arena_bytes >= best or (left_out != ("overlap",) and draft.steps in known):
            continue
        known.append(draft.steps)
        found.append(maker.finish(draft))
    return found


def _narrow(maker: Maker) -> list[Timed]:
    """Return plans of a quantized graph in which steps pass on small integers, if it is one."""
    if not {"fusion", "duplicate"} <= set(maker.names):
        return []
    ways: list[list[list[int]]] = []
    for steps in maker.backend.narrow_steps(maker.graph):
        if steps not in ways:
            ways.append(steps)
    return [maker.finish(maker.draft(maker.names, steps), steps) for steps in ways]


def _in_strips(maker: Maker, plain: Timed, limit: float, below: float) -> list[Timed]:
    """Return plans of which some steps run strip by strip, if those need fewer bytes."""
    found: list[Timed] = []
    is_wanted = "streaming" in maker.names and not maker.options["parallel_safe"]
    kernels = maker.backend.row_kernels(maker.graph) if is_wanted else None
    if kernels is None or maker.watch.is_over:
        return found
    draft = maker.draft([name for name in maker.names if name not in _SLOW])
    timed = maker.finish(draft)
    ways = [
        [(way.bytes, _nanoseconds(way.seconds)) for way in s.ways] for s in steps_of(maker, timed)
    ]
    bounds = (_most(below), _nanoseconds(limit))
    search, choice = _search(maker, timed, kernels, ways, bounds)
    least = 0
    while search is not None and choice is not None and not maker.watch.is_over:
        nodes = {step[-1]: step for step in choice.steps}
        refused = [
            at for at, how in enumerate(choice.strips) if not kernels.can_run(nodes[how.node], how)
        ]
        for at in refused:
            search.refuse(at)
        if not refused:
            other = maker.finish(timed.draft, choice.steps, [], choice.bytes, strips=choice.strips)
            found.append(other)
            if other.seconds <= limit and other.plan.arena_bytes <= choice.bytes * WIDER:
                break
            # Offsets may not be found for all that fits by its size, and estimates are not sums.
            least = max(int(choice.bytes * WIDER), choice.bytes + 1)
        if len(found) == ROUNDS:
            break
        choice = search.least(least, *bounds)
    return found


def _search(
    maker: Maker,
    timed: Timed,
    kernels: RowKernels,
    ways: Sequence[Sequence[tuple[int, int]]],
    bounds: tuple[int, int],
) -> tuple[StripSearch, StripChoice] | tuple[None, None]:
    """
    Return a search that knows the kernels which its least choice depends on, and that choice.

    Costs of kernels take longer to find out than the search. So the search at first knows kernels
    that can make the steps smaller which need the most bytes, and more kernels when a step that a
    choice leaves as it is decides about the bytes of that choice.
    """
    core, plan = maker.graph.core, timed.plan
    needs = [min(size for size, _ in step) for step in ways]
    most = min(bounds[0], max(needs, default=0))
    wanted = {at for at, size in enumerate(needs) if size >= most}
    position = {nodes[-1]: at for at, nodes in enumerate(plan.steps)}
    while not maker.watch.is_over:
        known = kernels.of(StripSearch.nodes(core, plan, sorted(wanted)))
        if not known:
            break
        seconds = maker.watch.seconds_left
        search = StripSearch(core, plan, known, kernels.moves, ways, *bounds, seconds)
        choice = search.least(0, *bounds)
        if choice is None:
            break
        strips = {how.node for how in choice.strips}
        whole = [position[nodes[-1]] for nodes in choice.steps if nodes[-1] not in strips]
        more = {at for at in whole if needs[at] >= choice.bytes} - wanted
        if not more:
            return search, choice
        wanted |= more
    return None, None


def _most(size: float) -> int:
    """Return a number of bytes or nanoseconds for the core, whose numbers end."""
    return round(min(size, 2.0**62))


def _nanoseconds(seconds: float) -> int:
    return _most(seconds * 1e9)
