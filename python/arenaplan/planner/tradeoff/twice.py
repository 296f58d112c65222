"""Values that two steps make, each for itself, and plans that store some of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from arenaplan.planner.tradeoff.faster import ROUNDS, WIDER, bytes_within, faster
from arenaplan.planner.tradeoff.maker import Maker, Timed
from arenaplan.planner.tradeoff.ways import padded, scratch_of


class _Twice(NamedTuple):
    """A value that two steps make, each for itself, and three steps that make it once."""

    first: int
    second: int
    """Positions of the two steps."""
    bytes: int
    """Those of the value."""
    nodes: tuple[list[int], list[int], list[int]]
    """The steps that make the value, use it as the first one does, and as the second one does."""
    scratch: int
    """Bytes of scratch memory with which those are fastest."""
    gain: float
    """Seconds that are saved."""


def storing(maker: Maker, least: Timed, limit: float, tried: Sequence[Timed]) -> list[Timed]:
    """Return plans that store ever more of the values that the plan of fewest bytes makes twice."""
    found: list[Timed] = []
    below = bytes_within(tried, limit)
    timed: Timed | None = least
    while timed is not None and timed.seconds > limit and len(found) < ROUNDS:
        timed = _stored(maker, timed, limit, below)
        if timed is not None:
            found.append(timed)
    if not found:
        return found
    last = found[-1]
    found += faster(maker, last, limit, below)
    # Less scratch memory may do.
    low, high = least.plan.arena_bytes, bytes_within(found, limit)
    steps = [list(nodes) for nodes in last.plan.steps]
    while high < below and high > low * WIDER and len(found) < 2 * ROUNDS:
        middle = int(low + high) // 2
        other = maker.finish(last.draft, steps, [], middle)
        found.append(other)
        low, high = (low, middle) if other.seconds <= limit else (middle, high)
    return found


def _stored(maker: Maker, timed: Timed, limit: float, below: float) -> Timed | None:
    """
    Return a plan that makes once and stores what others make twice, if that is fast enough.

    Values are stored where fewest bytes are live, until the time is within the limit.
    """
    plan = timed.plan
    found = _made_twice(maker, timed)
    if not found or plan.overlapped or plan.strips:
        return None
    live, scratch = plan.live_bytes[: len(plan.steps)], scratch_of(plan)
    held = [
        live_now - sum(scratch.get(node, 0) for node in nodes)
        for live_now, nodes in zip(live, plan.steps, strict=True)
    ]
    order = sorted(found, key=lambda each: each.bytes + max(held[each.first : each.second + 1]))
    seconds, room = timed.seconds, plan.arena_bytes
    stored: list[_Twice] = []
    for each in order:
        steps = {each.first, each.second}
        need = each.bytes + each.scratch + max(held[each.first : each.second + 1])
        is_apart = all(steps.isdisjoint((other.first, other.second)) for other in stored)
        if seconds > limit and need < below and is_apart:
            stored.append(each)
            seconds -= each.gain
            room = max(room, need)
    if not stored:
        return None
    replaced = {at: [list(nodes)] for at, nodes in enumerate(plan.steps)}
    for each in stored:
        made, uses, others = each.nodes
        replaced[each.first], replaced[each.second] = [made, uses], [others]
    wanted = [nodes for at in sorted(replaced) for nodes in replaced[at]]
    return maker.finish(timed.draft, wanted, [], room)


def _made_twice(maker: Maker, timed: Timed) -> list[_Twice]:
    """Return the values that exactly two steps make, and whose second making costs time."""
    plan, graph = timed.plan, maker.graph
    runs: dict[int, list[int]] = {}
    repeated = set(plan.repeated)
    for at, nodes in enumerate(plan.steps):
        for node in repeated.intersection(nodes):
            runs.setdefault(node, []).append(at)
    pairs = {(found[0], found[1]) for found in runs.values() if len(found) == 2}
    twice = []
    for first, second in sorted(pairs):
        common = set(plan.steps[first]) & set(plan.steps[second])
        parts = [[node for node in plan.steps[first] if node in common]]
        parts += [[node for node in plan.steps[at] if node not in common] for at in (first, second)]
        if not all(parts):
            continue
        made = {value: node for node in common for value in graph.nodes[node].outputs}
        read = {
            value
            for part in parts[1:]
            for node in part
            for value in graph.nodes[node].inputs
            if value in made
        }
        if len(read) != 1:
            continue
        (value,) = read
        if value is None or made[value] != parts[0][-1]:
            continue
        best = [
            min(maker.backend.step_seconds(graph, part, staged=False), key=lambda way: way[1])
            for part in parts
        ]
        before = timed.steps[first] + timed.steps[second]
        gain = before - sum(seconds for _, seconds in best)
        if gain > 0:
            size = padded(maker.sizes[value], plan.alignment)
            scratch = max(size for size, _ in best)
            a, b, c = parts
            twice.append(_Twice(first, second, size, (a, b, c), scratch, gain))
    return twice
