"""Ways to run a step of a plan: bytes that are live meanwhile, and time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from arenaplan._core import Plan
from arenaplan.graph import Node
from arenaplan.planner.tradeoff.maker import Maker, Timed


class Way(NamedTuple):
    """A way to run a step of a plan."""

    bytes: int
    """Live at the step."""
    seconds: float
    parts: Sequence[Sequence[int]] = ()
    """The steps in its place, if it runs in several."""
    staged: bool = False
    """Whether its output overlaps an input."""


class Step(NamedTuple):
    """A step and the ways to run it: ascending bytes, descending seconds."""

    nodes: Sequence[int]
    ways: list[Way]

    def fastest(self, room: int) -> Way:
        """Return the fastest way that needs at most so many bytes, or the smallest."""
        return self.ways[max(bisect_right(self.ways, room, key=lambda way: way.bytes) - 1, 0)]


def steps_of(maker: Maker, timed: Timed) -> list[Step]:
    """Return all steps of a plan with the ways to run them."""
    plan = timed.plan
    live = plan.live_bytes[: len(plan.steps)]  # A plan without nodes has a step to hold values.
    scratch = scratch_of(plan)
    overlapped = _overlaps(plan)
    in_strips = {each.node for each in plan.strips}
    repeated = set(plan.repeated)
    found = []
    for nodes, seconds, held in zip(plan.steps, timed.steps, live, strict=True):
        if nodes[-1] in in_strips:
            found.append(Step(nodes, [Way(held, seconds)]))
            continue
        own = sum(scratch.get(node, 0) for node in nodes)
        shared = overlapped.get(nodes[-1])
        ways = [Way(held, seconds, staged=shared is not None)]
        if seconds > 0.0:
            now = _Now(held - own, own, seconds, frozenset(repeated.intersection(nodes)))
            ways += _ways(maker, nodes, shared, now, plan.alignment)
        found.append(Step(nodes, best_of(ways)))
    return found


def scratch_of(plan: Plan) -> dict[int, int]:
    """Return the bytes of scratch memory by node."""
    scratch: dict[int, int] = {}
    for work in plan.workspaces:
        scratch[work.node] = scratch.get(work.node, 0) + padded(work.bytes, plan.alignment)
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
) -> list[Way]:
    """Return the ways to run a step, with other scratch memory or in parts."""
    declared = maker.backend.step_seconds(maker.graph, nodes, staged=shared is not None)
    fitting = [seconds for size, seconds in declared if size <= now.scratch]
    # The estimate of the plan knows more: copies that sharing spares, and chains in one place.
    known = now.seconds - min(fitting, default=declared[0][1])
    ways = [
        Way(now.held + size, known + seconds, staged=shared is not None)
        for size, seconds in declared
    ]
    if shared is not None:
        ways += [
            Way(now.held + shared + size, known + seconds)
            for size, seconds in maker.backend.step_seconds(maker.graph, nodes, staged=False)
        ]
    held = now.held + (shared or 0)
    if len(nodes) > 1 and not now.repeated:
        single = [[node] for node in nodes]
        apart = _apart(maker, nodes, alignment)
        ways += [Way(held + size, seconds, single) for size, seconds in apart]
    for parts, size in _halves(maker, nodes, now.repeated, alignment):
        halves = [
            Step(
                part,
                best_of(
                    Way(*way) for way in maker.backend.step_seconds(maker.graph, part, staged=False)
                ),
            )
            for part in parts
        ]
        ways += [Way(held + size + level, seconds, parts) for level, seconds in _in_turn(halves)]
    return ways


def _in_turn(steps: Sequence[Step]) -> list[tuple[int, float]]:
    """Return the ways to run steps one after the other: the most bytes of one, and seconds."""
    least = max(step.ways[0].bytes for step in steps)
    levels = {way.bytes for step in steps for way in step.ways if way.bytes >= least}
    return [(level, sum(step.fastest(level).seconds for step in steps)) for level in sorted(levels)]


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
            yield parts, padded(sizes[value], alignment)


def _apart(maker: Maker, nodes: Sequence[int], alignment: int) -> list[tuple[int, float]]:
    """Return the ways to run nodes one by one: bytes besides live ones, and seconds."""
    graph, backend = maker.graph, maker.backend
    inner = _inner_bytes(maker, nodes, alignment)
    members = []
    for node, held in zip(nodes, inner, strict=True):
        declared = backend.step_seconds(graph, [node], staged=False)
        ways = [Way(held + size, seconds) for size, seconds in declared]
        if _shows(graph.nodes[node]):
            ways = [Way(held, 0.0)]
        members.append(Step([node], best_of(ways)))
    return _in_turn(members)


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
                size = padded(maker.sizes[value], alignment)
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


def _shows(node: Node) -> bool:
    """Whether a node may have nothing to do, since its results show other values."""
    return bool(node.effects.views)


def padded(size: int, alignment: int) -> int:
    """Return a size that is rounded up to a multiple of the alignment."""
    return -(-size // alignment) * alignment


def best_of(ways: Iterable[Way]) -> list[Way]:
    """Return the ways that no other one beats; of equal ones the first, which changes least."""
    found: list[Way] = []
    for way in sorted(ways, key=lambda way: (way.bytes, way.seconds)):
        if not found or way.seconds < found[-1].seconds:
            found.append(way)
    return found
