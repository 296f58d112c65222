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

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple

from arenaplan import _core
from arenaplan._core import Plan, Strips, StripSearch
from arenaplan.backend import Backend
from arenaplan.graph import Graph, Node
from arenaplan.watch import Watch

_ROUNDS = 4
"""Largest number of rounds in which the steps of a plan are taken apart further."""
_WIDER = 1.03
"""The part of its bytes that an arena grows by where offsets were not found."""
_WORTHWHILE = 0.98
"""A plan of equal bytes is made if it takes at most this part of the time."""
_SLOW = ("overlap", "streaming", "fusion", "recompute")
"""Techniques that may cost time."""


class Point(NamedTuple):
    """Bytes and seconds of a plan that was tried."""

    bytes: int
    """Bytes of the arena."""
    seconds: float
    """Estimated seconds of one run."""


class Timed(NamedTuple):
    """A plan, and how long its steps take."""

    plan: Plan
    steps: Sequence[float]
    """Estimated seconds of each step."""
    draft: Plan
    """The plan without workspaces that it was made from."""

    @property
    def seconds(self) -> float:
        """Estimated seconds of one run."""
        return sum(self.steps)

    @property
    def point(self) -> Point:
        """Bytes and seconds."""
        return Point(self.plan.arena_bytes, self.seconds)


class Chosen(NamedTuple):
    """The plan that was chosen, and the points that were tried."""

    plan: Plan
    tried: tuple[Point, ...]
    """Of the plans that were tried, those that no other one beats, ascending bytes."""


class Maker:
    """
    Makes plans of one graph with workspaces.

    The scratch memory of a fused group is known only once the group and its overlaps are known. So
    a plan without workspaces, a *draft*, comes first.
    """

    def __init__(
        self,
        graph: Graph,
        options: dict[str, object],
        honored: Sequence[str],
        memories: tuple[Any, Any],
        backend: Backend,
        watch: Watch,
        costs: list[int] | None = None,
    ) -> None:
        self.costs = costs
        self.graph = graph
        self.options = options
        self.memories = memories
        self.backend = backend
        self.watch = watch
        self.sizes: list[int] = graph.core.sizes
        self.honored = list(honored)
        """The techniques that the target honors."""
        wanted = options["optimize"]
        self.names = self.honored if wanted is None else str(wanted).split(",")
        self.names = [name for name in self.names if name in self.honored]

    def draft(
        self,
        names: Iterable[str],
        steps: list[list[int]] | None = None,
        strips: Sequence[Strips] = (),
    ) -> Plan:
        """Return a plan without workspaces that uses some techniques."""
        bare = {
            **self.options,
            "optimize": ",".join(names) or "none",
            "workspace": "none",
        }
        if self.options["workers"] == 1:
            bare["max_slowdown"] = None
        return _core.plan(
            self.graph.core,
            bare,
            steps,
            *self.memories,
            on_progress=self.watch.tell,
            time_limit=self.watch.seconds_left,
            strips=strips,
            costs=self.costs,
        )

    def finish(
        self,
        draft: Plan,
        steps: list[list[int]] | None = None,
        overlapping: list[int] | None = None,
        room: int = 0,
        optimize: str | None = None,
        strips: Sequence[Strips] = (),
    ) -> Timed:
        """
        Return the plan of a draft with workspaces.

        Parameters
        ----------
        steps : list of list of int, optional
            The steps to run; the steps of the draft if left out.
        overlapping : list of int, optional
            The last nodes of the steps whose output may overlap an input.
        room : int, default 0
            Bytes up to which workspaces may raise the peak.
        optimize : str, optional
            Other techniques than those of the options.
        strips : sequence of Strips
            How steps run strip by strip, for those that do.
        """
        overlapped = draft.overlapped if overlapping is None else overlapping
        wanted = steps or draft.steps
        core = self.graph.core_for("auto", wanted, overlapped, self.backend.name, strips)
        plan = _core.plan(
            core,
            self.options if optimize is None else {**self.options, "optimize": optimize},
            steps,
            *self.memories,
            draft,
            self.watch.tell,
            room,
            overlapping,
            self.watch.seconds_left,
            strips,
            self.costs,
        )
        return Timed(plan, self.backend.seconds(self.graph, plan), draft)


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
    limit = max_slowdown * min(plain.seconds, first.seconds)
    needs_others = first.plan.arena_bytes > draft.arena_bytes or first.seconds > limit
    if needs_others and not maker.watch.is_over:
        tried += _others(maker, first, limit)
    fastest = min(plain.seconds, *(timed.seconds for timed in tried))
    limit = max_slowdown * fastest
    for timed in [] if maker.watch.is_over else list(tried):
        tried += _faster(maker, timed, limit, _bytes_within(tried, limit))
    if not maker.watch.is_over:
        tried += _storing(maker, min(tried, key=lambda timed: timed.point), limit, tried)
    tried += _in_strips(maker, plain, limit, _bytes_within([plain, *tried], limit))
    if _bytes_within(tried, limit) > plain.plan.arena_bytes:
        # As that plan, and values share bytes besides.
        tried.append(maker.finish(plain.draft, None, [], plain.plan.arena_bytes))
    within = [timed for timed in tried if timed.seconds <= limit]
    best = min(within or [plain], key=lambda timed: timed.point)
    if not maker.watch.is_over:
        best = _polished(maker, best)
    tried += [plain, best]
    estimate = [round(seconds * 1e9) for seconds in (best.seconds, min(fastest, best.seconds))]
    return Chosen(best.plan.with_estimate(*estimate), _pareto(timed.point for timed in tried))


def _bytes_within(tried: Iterable[Timed], limit: float) -> float:
    """Return the fewest bytes of a plan that is fast enough."""
    within = (timed.plan.arena_bytes for timed in tried if timed.seconds <= limit)
    return min(within, default=inf)


def _pareto(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return the points that no other one beats."""
    found: list[Point] = []
    for point in sorted(points):
        if not found or point.seconds < found[-1].seconds:
            found.append(point)
    return tuple(found)


# -- other drafts -----------------------------------------------------------------------------


def _others(maker: Maker, first: Timed, limit: float) -> list[Timed]:
    """Return plans without a technique that may cost time, if one of them might be better."""
    found: list[Timed] = []
    known = [first.draft.steps]
    left: list[tuple[str, ...]] = [("overlap",)] if first.draft.overlapped else []
    left += [("recompute",)] if first.draft.repeated else []
    left += [("streaming",), _SLOW]
    for left_out in left:
        names = [name for name in maker.names if name not in left_out]
        if names == maker.names:
            continue
        draft = maker.draft(names)
        best = _bytes_within([first, *found], limit)
        if draft.arena_bytes >= best or (left_out != ("overlap",) and draft.steps in known):
            continue
        known.append(draft.steps)
        found.append(maker.finish(draft))
    return found


def _in_strips(maker: Maker, plain: Timed, limit: float, below: float) -> list[Timed]:
    """Return plans of which some steps run strip by strip, if those need fewer bytes."""
    found: list[Timed] = []
    is_wanted = "streaming" in maker.names and not maker.options["parallel_safe"]
    kernels = maker.backend.row_kernels(maker.graph) if is_wanted else None
    if kernels is None or maker.watch.is_over:
        return found
    draft = maker.draft([name for name in maker.names if name not in _SLOW])
    timed = maker.finish(draft)
    core = maker.graph.core
    known = kernels.of(StripSearch.nodes(core, timed.plan))
    if not known:
        return found
    ways = [
        [(way.bytes, _nanoseconds(way.seconds)) for way in s.ways] for s in _steps(maker, timed)
    ]
    bounds = (_most(below), _nanoseconds(limit))
    search = StripSearch(
        core, timed.plan, known, kernels.moves, ways, *bounds, maker.watch.seconds_left
    )
    least = 0
    while len(found) < _ROUNDS and not maker.watch.is_over:
        choice = search.least(least, *bounds)
        if choice is None:
            break
        nodes = {step[-1]: step for step in choice.steps}
        refused = [
            at for at, how in enumerate(choice.strips) if not kernels.can_run(nodes[how.node], how)
        ]
        for at in refused:
            search.refuse(at)
        if refused:
            continue
        other = maker.finish(timed.draft, choice.steps, [], choice.bytes, strips=choice.strips)
        found.append(other)
        if other.seconds <= limit and other.plan.arena_bytes <= choice.bytes * _WIDER:
            break
        # Offsets may not be found for all that fits by its size, and estimates are not sums.
        least = max(int(choice.bytes * _WIDER), choice.bytes + 1)
    return found


def _most(size: float) -> int:
    """Return a number of bytes or nanoseconds for the core, whose numbers end."""
    return round(min(size, 2.0**62))


def _nanoseconds(seconds: float) -> int:
    return _most(seconds * 1e9)


def _shows(node: Node) -> bool:
    """Whether a node may have nothing to do, since its results show other values."""
    return bool(node.effects.views)


# -- ways to run a step -----------------------------------------------------------------------


class _Way(NamedTuple):
    """A way to run a step of a plan."""

    bytes: int
    """Live at the step."""
    seconds: float
    parts: Sequence[Sequence[int]] = ()
    """The steps in its place, if it runs in several."""
    staged: bool = False
    """Whether its output overlaps an input."""


class _Step(NamedTuple):
    """A step and the ways to run it: ascending bytes, descending seconds."""

    nodes: Sequence[int]
    ways: list[_Way]

    def fastest(self, room: int) -> _Way:
        """Return the fastest way that needs at most so many bytes, or the smallest."""
        return self.ways[max(bisect_right(self.ways, room, key=lambda way: way.bytes) - 1, 0)]


def _steps(maker: Maker, timed: Timed) -> list[_Step]:
    """Return all steps of a plan with the ways to run them."""
    plan = timed.plan
    live = plan.live_bytes[: len(plan.steps)]  # A plan without nodes has a step to hold values.
    scratch = _scratch(plan)
    overlapped = _overlaps(plan)
    in_strips = {each.node for each in plan.strips}
    repeated = set(plan.repeated)
    found = []
    for nodes, seconds, held in zip(plan.steps, timed.steps, live, strict=True):
        if nodes[-1] in in_strips:
            found.append(_Step(nodes, [_Way(held, seconds)]))
            continue
        own = sum(scratch.get(node, 0) for node in nodes)
        shared = overlapped.get(nodes[-1])
        ways = [_Way(held, seconds, staged=shared is not None)]
        if seconds > 0.0:
            now = _Now(held - own, own, seconds, frozenset(repeated.intersection(nodes)))
            ways += _ways(maker, nodes, shared, now, plan.alignment)
        found.append(_Step(nodes, _best(ways)))
    return found


def _scratch(plan: Plan) -> dict[int, int]:
    """Return the bytes of scratch memory by node."""
    scratch: dict[int, int] = {}
    for work in plan.workspaces:
        scratch[work.node] = scratch.get(work.node, 0) + _padded(work.bytes, plan.alignment)
    return scratch


class _Now(NamedTuple):
    """The way in which a step runs in a plan."""

    held: int
    """Bytes that are live without its scratch memory."""
    scratch: int
    seconds: float
    repeated: frozenset[int]
    """Its nodes that run in other steps, too: with any, its nodes cannot run one by one."""


def _ways(
    maker: Maker, nodes: Sequence[int], shared: int | None, now: _Now, alignment: int
) -> list[_Way]:
    """Return the ways to run a step, with other scratch memory or in parts."""
    declared = maker.backend.step_seconds(maker.graph, nodes, staged=shared is not None)
    fitting = [seconds for size, seconds in declared if size <= now.scratch]
    # The estimate of the plan knows more: copies that sharing spares, and chains in one place.
    known = now.seconds - min(fitting, default=declared[0][1])
    ways = [
        _Way(now.held + size, known + seconds, staged=shared is not None)
        for size, seconds in declared
    ]
    if shared is not None:
        ways += [
            _Way(now.held + shared + size, known + seconds)
            for size, seconds in maker.backend.step_seconds(maker.graph, nodes, staged=False)
        ]
    held = now.held + (shared or 0)
    if len(nodes) > 1 and not now.repeated:
        single = [[node] for node in nodes]
        apart = _apart(maker, nodes, alignment)
        ways += [_Way(held + size, seconds, single) for size, seconds in apart]
    for parts, size in _halves(maker, nodes, now.repeated, alignment):
        first, second = (
            _Step(
                part,
                _best(
                    _Way(*way)
                    for way in maker.backend.step_seconds(maker.graph, part, staged=False)
                ),
            )
            for part in parts
        )
        for level in {way.bytes for step in (first, second) for way in step.ways}:
            if level >= max(first.ways[0].bytes, second.ways[0].bytes):
                seconds = first.fastest(level).seconds + second.fastest(level).seconds
                ways.append(_Way(held + size + level, seconds, parts))
    return ways


def _halves(
    maker: Maker, nodes: Sequence[int], repeated: frozenset[int], alignment: int
) -> Iterator[tuple[list[list[int]], int]]:
    """
    Yield a step as two, of which the first makes a narrow value for the second, and its bytes.

    Such a value takes fewer bytes than one that it is made of, as in a quantized model.
    """
    graph, sizes = maker.graph, maker.sizes
    made = {value: node for node in nodes for value in graph.nodes[node].outputs}
    for last in nodes[:-1]:
        (value, *others) = graph.nodes[last].outputs
        inside = [at for at in graph.nodes[last].inputs if at is not None and at in made]
        is_narrow = value is not None and any(sizes[at] > sizes[value] for at in inside)
        if not is_narrow or value is None or others or last in repeated:
            continue
        first = {last}
        for node in reversed(nodes):
            if node in first:
                first.update(made[at] for at in graph.nodes[node].inputs if at in made)
        rest = [node for node in nodes if node not in first]
        read = {made[at] for node in rest for at in graph.nodes[node].inputs if at in made}
        if read & first == {last}:
            parts = [[node for node in nodes if node in first], rest]
            yield parts, _padded(sizes[value], alignment)


def _apart(maker: Maker, nodes: Sequence[int], alignment: int) -> list[tuple[int, float]]:
    """Return the ways to run nodes one by one: bytes besides live ones, and seconds."""
    graph, backend = maker.graph, maker.backend
    inner = _inner_bytes(maker, nodes, alignment)
    members = []
    for node, held in zip(nodes, inner, strict=True):
        declared = backend.step_seconds(graph, [node], staged=False)
        ways = [_Way(held + size, seconds) for size, seconds in declared]
        if _shows(graph.nodes[node]):
            ways = [_Way(held, 0.0)]
        members.append(_Step([node], _best(ways)))
    least = max(member.ways[0].bytes for member in members)
    levels = {way.bytes for member in members for way in member.ways if way.bytes >= least}
    return [
        (level, sum(member.fastest(level).seconds for member in members))
        for level in sorted(levels)
    ]


def _inner_bytes(maker: Maker, nodes: Sequence[int], alignment: int) -> list[int]:
    """Return the bytes of values inside of a group that are live at each of its nodes."""
    graph = maker.graph
    last = {value: at for at, node in enumerate(nodes) for value in graph.nodes[node].inputs}
    live: dict[int | None, int] = {}
    found = []
    for at, index in enumerate(nodes):
        node = graph.nodes[index]
        made = [value for value in node.outputs if value is not None]
        if index != nodes[-1]:
            taken = {pair.input for pair in node.effects.in_place} | {
                view.input for view in node.effects.views
            }
            for value in made:
                size = _padded(maker.sizes[value], alignment)
                for position in taken:
                    operand = node.inputs[position] if position < len(node.inputs) else None
                    if live.get(operand) == size and last.get(operand) == at:
                        del live[operand]
                        break
                live[value] = size
        found.append(sum(live.values()))
        live = {value: size for value, size in live.items() if last.get(value, at) > at}
    return found


def _overlaps(plan: Plan) -> dict[int, int]:
    """Return by node the bytes that its output shares with an input that it overlaps."""
    found: dict[int, int] = {}
    placements = plan.placements
    for share in plan.shares:
        if share.rule == "overlap":
            a, b = placements[share.source], placements[share.result]
            if a is not None and b is not None:
                shared = min(a.offset + a.bytes, b.offset + b.bytes) - max(a.offset, b.offset)
                found[share.node] = found.get(share.node, 0) + max(shared, 0)
    return found


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _best(ways: Iterable[_Way]) -> list[_Way]:
    """Return the ways that no other one beats; of equal ones the first, which changes least."""
    found: list[_Way] = []
    for way in sorted(ways, key=lambda way: (way.bytes, way.seconds)):
        if not found or way.seconds < found[-1].seconds:
            found.append(way)
    return found


# -- faster plans -----------------------------------------------------------------------------


def _faster(maker: Maker, timed: Timed, limit: float, below: float) -> list[Timed]:
    """Return plans that take less time and more bytes, until one is fast enough."""
    found: list[Timed] = []
    least = timed.plan.arena_bytes
    for _ in range(_ROUNDS):
        if timed.seconds <= limit:
            break
        steps = _steps(maker, timed)
        room = _least_room(steps, least, limit)
        if room >= below:
            break
        # Offsets may not be found for all that fits by its size: the next round has more room.
        least = max(int(room * _WIDER), room + 1)
        other = _with_ways(maker, timed, steps, room)
        if other is not None:
            found.append(other)
            timed = other if other.seconds < timed.seconds else timed
    return found


def _least_room(steps: Sequence[_Step], least: int, limit: float) -> int:
    """Return the fewest bytes with which steps are fast enough, or all that are of use."""
    larger = {way.bytes for step in steps for way in step.ways if way.bytes > least}
    sizes = sorted(larger | {least})
    low, high = 0, len(sizes) - 1
    while low < high:
        middle = (low + high) // 2
        if sum(step.fastest(sizes[middle]).seconds for step in steps) <= limit:
            high = middle
        else:
            low = middle + 1
    return sizes[low]


def _with_ways(maker: Maker, timed: Timed, steps: Sequence[_Step], room: int) -> Timed | None:
    """Return a plan whose steps run in the fastest ways that need at most so many bytes."""
    wanted: list[list[int]] = []
    staged: list[int] = []
    for step in steps:
        way = step.fastest(room)
        if way.parts:
            wanted += [list(part) for part in way.parts]
        else:
            wanted.append(list(step.nodes))
            if way.staged:
                staged.append(step.nodes[-1])
    before = [list(nodes) for nodes in timed.plan.steps]
    if wanted == before and staged == timed.plan.overlapped and room <= timed.plan.arena_bytes:
        return None
    return maker.finish(timed.draft, wanted, staged, room, strips=timed.plan.strips)


# -- values that are made twice ----------------------------------------------------------------


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


def _storing(maker: Maker, least: Timed, limit: float, tried: Sequence[Timed]) -> list[Timed]:
    """Return plans that store ever more of the values that the plan of fewest bytes makes twice."""
    found: list[Timed] = []
    below = _bytes_within(tried, limit)
    timed: Timed | None = least
    while timed is not None and timed.seconds > limit and len(found) < _ROUNDS:
        timed = _stored(maker, timed, limit, below)
        if timed is not None:
            found.append(timed)
    if not found:
        return found
    last = found[-1]
    found += _faster(maker, last, limit, below)
    # Less scratch memory may do.
    low, high = least.plan.arena_bytes, _bytes_within(found, limit)
    steps = [list(nodes) for nodes in last.plan.steps]
    while high < below and high > low * _WIDER and len(found) < 2 * _ROUNDS:
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
    live, scratch = plan.live_bytes[: len(plan.steps)], _scratch(plan)
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
            size = _padded(maker.sizes[value], plan.alignment)
            scratch = max(size for size, _ in best)
            a, b, c = parts
            twice.append(_Twice(first, second, size, (a, b, c), scratch, gain))
    return twice


def _polished(maker: Maker, timed: Timed) -> Timed:
    """Return a plan of no more bytes that takes less time, if there is one."""
    steps, room = _steps(maker, timed), timed.plan.arena_bytes
    if sum(step.fastest(room).seconds for step in steps) > _WORTHWHILE * timed.seconds:
        return timed
    other = _with_ways(maker, timed, steps, room)
    if other is None or other.point >= timed.point:
        return timed
    return other if other.seconds < timed.seconds else timed
