"""
Regions: nodes that run strip by strip, through several windows.

A strip is some rows of the last result. For each strip, every member makes the rows that its
readers need and that are not there yet. Rows that a later strip needs stay in line buffers, so that
no row is made twice (StreamNet, Zheng et al., NeurIPS 2023). A plan states the rows of a strip and
the places of all line buffers, and the core replays them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from arenaplan._core import LineBuffer, RowsInPlace, Strips
from arenaplan.executor.groups import NotAGroup
from arenaplan.executor.stages import LIMITS, TRIED, Former, Stage, padded
from arenaplan.graph import Graph
from arenaplan.ops.boxes import Uncuttable

_HEIGHTS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
"""Rows of a strip that are tried."""
_NEVER = 1 << 40
"""A row that is needed by no strip."""
_MOVES, _MOVED = 900.0, 0.25
"""Nanoseconds of moving rows to the front of a line buffer: for the call, and per element."""


# -- rows over time -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Times:
    """The rows that one stage makes for each strip."""

    start: np.ndarray
    stop: np.ndarray
    active: np.ndarray
    """Whether it makes any."""

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """Yield strip, first row, and row after the last."""
        for strip in np.flatnonzero(self.active).tolist():
            yield strip, int(self.start[strip]), int(self.stop[strip])


class Needs(NamedTuple):
    """
    The rows of a value that its readers need for each strip.

    The last axis of these arrays, and of all below, is that of the strips. Axes before it are of
    strips with other heights.
    """

    low: np.ndarray
    high: np.ndarray
    """0 where none is needed."""


def times_of(needs: Needs) -> Times:
    """Return the rows that are needed and not there yet."""
    start = np.maximum(needs.low, _before(needs))
    return Times(start, needs.high, start < needs.high)


def _before(needs: Needs) -> np.ndarray:
    """Return the row after the last that earlier strips need, for each strip."""
    before = np.zeros_like(needs.high)
    np.maximum.accumulate(needs.high[..., :-1], axis=-1, out=before[..., 1:])
    return before


def add_needs(stage: Stage, times: Times, needs: dict[int, Needs]) -> np.ndarray:
    """Add the rows that a stage reads, and return whether a window sees no row in some strip."""
    active = times.active
    blind = np.zeros(active.shape[:-1], bool)
    for value, window, rows in stage.reads:
        first = (times.start * window.stride - window.before) // window.scale
        last = (times.stop - 1) * window.stride - window.before + window.extent - 1
        low = np.minimum(np.maximum(first, 0), rows)
        high = np.minimum(np.maximum(last // window.scale + 1, 0), rows)
        blind |= (active & (low >= high)).any(axis=-1)
        low, high = np.where(active, low, _NEVER), np.where(active, high, 0)
        known = needs.get(value)
        if known is not None:
            low, high = np.minimum(known.low, low), np.maximum(known.high, high)
        needs[value] = Needs(low, high)
    return blind


class Held(NamedTuple):
    """The line buffer of a value."""

    base: np.ndarray
    """The row in the first place, for each strip."""
    rows: np.ndarray
    is_kept: np.ndarray
    """Whether rows stay from strip to strip."""


def held_by(needs: Needs, times: Times) -> Held:
    """Return the line buffer that a value needs."""
    base = np.maximum.accumulate(np.where(times.active, needs.low, 0), axis=-1)
    rows = np.where(times.active, times.stop - base, 0).max(axis=-1)
    stays = (needs.high > 0) & (needs.low < _before(needs))
    return Held(base, rows, np.asarray(stays.any(axis=-1)))


def strips_needs(rows: int, heights: np.ndarray) -> Needs:
    """Return the rows of the last result for each strip, by height of the strips."""
    low = np.arange(-(-rows // int(heights.min()))) * heights[..., None]
    is_there = low < rows
    high = np.minimum(low + heights[..., None], rows)
    return Needs(np.where(is_there, low, _NEVER), np.where(is_there, high, 0))


# -- costs ----------------------------------------------------------------------------------


class Cost(NamedTuple):
    """What a region needs with strips of some height."""

    rows: int
    """Rows of a strip."""
    bytes: int
    """Line buffers, which live at once, and scratch memory."""
    seconds: float


class Endings:
    """
    The costs of all regions that end with one value, with strips of all heights at once.

    Stages are added from the last one back; rows depend on later stages only.
    """

    def __init__(self, last: Stage, stages: int, most: int) -> None:
        heights = np.array([rows for rows in _HEIGHTS if 2 * rows <= last.rows], np.int64)
        self._last = last
        self._most = most
        self._at = 0
        self._stages: dict[int, int] = {}
        """Per value, the position of the last stage that reads it."""
        # By height; sums over the stages.
        self._heights = heights
        self._needs = {last.value: strips_needs(last.rows, heights)} if heights.size else {}
        self._brief = np.zeros((heights.size, stages), np.int64)
        """Also by stage, the bytes of line buffers whose rows do not stay."""
        self._kept = np.zeros(heights.size, np.int64)
        """Bytes of all other line buffers."""
        self._scratch = np.zeros((heights.size, len(TRIED)), np.int64)
        self._time = np.zeros((heights.size, len(TRIED)))
        """Nanoseconds."""

    def add(self, stage: Stage, in_place: bool) -> None:
        """Add the stage before those that there are."""
        if self._heights.size:
            self._add(stage, in_place)
        for read in stage.reads:
            self._stages.setdefault(read.value, self._at)
        self._at += 1

    def _add(self, stage: Stage, in_place: bool) -> None:
        needs = self._needs.pop(stage.value)
        times = times_of(needs)
        fits = ~add_needs(stage, times, self._needs)
        if stage is not self._last and not in_place:
            held = held_by(needs, times)
            sizes = padded(held.rows * stage.row_bytes)
            self._kept += np.where(held.is_kept, sizes, 0)
            self._time += np.where(held.is_kept, _moving(stage, held, times), 0.0)[:, None]
            brief = np.where(held.is_kept, 0, sizes)
            self._brief[:, self._stages[stage.value] : self._at + 1] += brief[:, None]
        # The work of heights that need too many rows is not asked for.
        fits &= self._bytes() <= self._most
        self._add_runs(stage, times, fits)
        self._keep(fits & (self._bytes() <= self._most))

    def _add_runs(self, stage: Stage, times: Times, fits: np.ndarray) -> None:
        """Add the work of a stage; heights in whose strips it cannot run fit no more."""
        is_run = times.active & fits[:, None]
        # No rows take neither time nor memory.
        runs = stage.usual(np.where(is_run, times.stop - times.start, 0))
        fits &= runs.can_run.all(axis=-1)
        self._scratch = np.maximum(self._scratch, runs.scratch.max(axis=-1).T)
        self._time += runs.nanoseconds.sum(axis=-1).T

    def _keep(self, fits: np.ndarray) -> None:
        """Forget heights that do not fit."""
        if fits.all():
            return
        self._heights, self._brief, self._kept = (
            each[fits] for each in (self._heights, self._brief, self._kept)
        )
        self._scratch, self._time = self._scratch[fits], self._time[fits]
        self._needs = {
            value: Needs(needs.low[fits], needs.high[fits]) for value, needs in self._needs.items()
        }

    def _bytes(self) -> np.ndarray:
        """Return the bytes of line buffers and of the least scratch memory."""
        total: np.ndarray = self._lines() + self._scratch.min(axis=1)
        return total

    def _lines(self) -> np.ndarray:
        """Return the bytes of line buffers."""
        lines: np.ndarray = self._kept + self._brief.max(axis=1, initial=0)
        return lines

    def costs(self) -> list[Cost]:
        """Return the costs of the region of the stages that were added, if they are low enough."""
        sizes = self._lines()[:, None] + self._scratch
        return [
            Cost(rows, size, time * 1e-9)
            for rows, own, times in zip(
                self._heights.tolist(), sizes.tolist(), self._time.tolist(), strict=True
            )
            for size, time in zip(own, times, strict=True)
            if size <= self._most
        ]


def _moving(stage: Stage, held: Held, times: Times) -> np.ndarray:
    """Return the nanoseconds in which rows that stay are moved, as many at once as are new."""
    strips = times.active.sum(axis=-1)
    made = np.where(times.active, times.stop - times.start, 0).sum(axis=-1)
    new = np.maximum(made / strips, 1.0)
    kept = np.maximum(held.rows - new, 0.0)
    moved = kept * stage.row_bytes / stage.made.dtype.itemsize
    nanoseconds: np.ndarray = strips * (-(-kept // new) * _MOVES + _MOVED * moved)
    return nanoseconds


# -- a region -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Region:
    """Stages that run strip by strip, and where their rows are."""

    stages: tuple[Stage, ...]
    times: tuple[Times, ...]
    """Per stage."""
    held: Mapping[int, Held]
    """Per value that has a line buffer."""
    home: Mapping[int, int]
    """Per value inside, the value in whose rows it is: with a line buffer, or the result."""
    strips: Strips
    seconds: float
    scratch: int
    """Bytes that the kernels need for themselves."""

    @property
    def line_bytes(self) -> int:
        """Bytes of all line buffers."""
        sizes = {stage.value: stage.row_bytes for stage in self.stages}
        ends = (line.offset + line.rows * sizes[line.value] for line in self.strips.buffers)
        return max(ends, default=0)


def region_of(
    former: Former, nodes: Sequence[int], rows: int, limit: int, given: Strips | None = None
) -> Region:
    """
    Return the region of some nodes, in an order of :meth:`Former.order`.

    Parameters
    ----------
    rows : int
        Rows of the result in one strip.
    limit : int
        Bytes that the kernels' own workspaces may have, if they can.
    given : Strips, optional
        The places of line buffers, if a plan has them.

    Raises
    ------
    NotAGroup
        If the nodes cannot run so.
    """
    stages = former.stages(nodes)
    if stages is None or not stages:
        raise NotAGroup("a node does not make rows from rows")
    try:
        return _region(former, nodes, stages, rows, limit, given)
    except (Uncuttable, KeyError):
        raise NotAGroup("nodes do not pass rows on to each other") from None


def _region(
    former: Former,
    nodes: Sequence[int],
    stages: Sequence[Stage],
    rows: int,
    limit: int,
    given: Strips | None,
) -> Region:
    last = stages[-1]
    needs = {last.value: strips_needs(last.rows, np.array(rows))}
    home, pairs = _homes(former, nodes, last.value)
    times: list[Times] = []
    held: dict[int, Held] = {}
    scratch, seconds = 0, 0.0
    for stage in reversed(stages):
        needed = needs[stage.value]
        time = times_of(needed)
        if add_needs(stage, time, needs).any():
            raise Uncuttable
        for _, start, stop in time.spans():
            run = stage.work(start, stop).within(limit)
            scratch = max(scratch, run.scratch)
            seconds += run.nanoseconds * 1e-9
        if stage is not last and stage.value not in home:
            held[stage.value] = hold = held_by(needed, time)
            if hold.is_kept:
                seconds += float(_moving(stage, hold, time)) * 1e-9
        times.append(time)
    times.reverse()
    if given is None:
        buffers = _placed(stages, held, home)
        given = Strips(nodes[-1], rows, buffers, pairs)
    return Region(tuple(stages), tuple(times), held, home, given, seconds, scratch)


def _homes(
    former: Former, nodes: Sequence[int], last: int
) -> tuple[dict[int, int], list[RowsInPlace]]:
    """Return the values that are made in the rows of others: where in the end, and where next."""
    of: dict[int, int] = {}
    inside = {value for node in nodes for value in former.graph.nodes[node].outputs}
    for node in nodes:
        taken = former.in_place(node)
        made = former.graph.nodes[node].outputs[0]
        if taken is not None and made is not None and taken in inside:
            of[taken] = made
    home: dict[int, int] = {}
    pairs = []
    for node in nodes:
        value = former.graph.nodes[node].outputs[0]
        if value is None or value not in of:
            continue
        pairs.append(RowsInPlace(value, of[value]))
        end = of[value]
        while end in of:
            end = of[end]
        home[value] = end
    return home, pairs


def _placed(
    stages: Sequence[Stage], held: Mapping[int, Held], home: Mapping[int, int]
) -> list[LineBuffer]:
    """Return places for all line buffers: those of rows that do not stay share bytes."""
    position = {stage.value: at for at, stage in enumerate(stages)}
    first = dict(position)
    end: dict[int, int] = {}
    for at, stage in enumerate(stages):
        root = home.get(stage.value, stage.value)
        first[root] = min(first.get(root, at), at)
        for read in stage.reads:
            value = home.get(read.value, read.value)
            if value in held:
                end[value] = max(end.get(value, at), at)
    spans = {
        value: (0, len(stages)) if hold.is_kept else (first[value], end[value] + 1)
        for value, hold in held.items()
    }
    sizes = {
        value: padded(int(hold.rows) * stages[position[value]].row_bytes)
        for value, hold in held.items()
    }
    offsets: dict[int, int] = {}
    for value in sorted(held, key=lambda v: (not held[v].is_kept, -sizes[v], v)):
        low, high = spans[value]
        blocked = sorted(
            (offsets[other], offsets[other] + sizes[other])
            for other in offsets
            if spans[other][0] < high and low < spans[other][1]
        )
        at = 0
        for start, stop in blocked:
            if start - at >= sizes[value]:
                break
            at = max(at, stop)
        offsets[value] = at
    return [
        LineBuffer(v, offsets[v], int(held[v].rows)) for v in sorted(held, key=position.__getitem__)
    ]


# -- all regions of a plan's steps ----------------------------------------------------------


class Regions:
    """The regions of the steps of one graph; see :class:`arenaplan.backend.Regions`."""

    def __init__(self, graph: Graph) -> None:
        self._former = Former(graph)

    def ending(
        self, steps: Sequence[Sequence[int]], last: int, longest: int, most: int
    ) -> Iterator[tuple[int, list[Cost]]]:
        """Yield the first step of each region that ends with a step, and its costs."""
        former, graph = self._former, self._former.graph
        first = last + 1
        while first > max(last - longest, 0) and all(map(former.member, steps[first - 1])):
            first -= 1
        nodes = former.order([node for step in steps[first : last + 1] for node in step])
        stages = former.stages(nodes)
        if not stages or stages[-1].members[-1].value != self._made(steps[last][-1]):
            return
        home, _ = _homes(former, nodes, stages[-1].value)
        step_of = {node: at for at in range(first, last + 1) for node in steps[at]}
        endings = Endings(stages[-1], len(stages), most)
        inside: set[int] = set()
        left = [len(step) for step in steps[: last + 1]]
        lowest = last + 1
        at = len(nodes)
        for stage in reversed(stages):
            own = nodes[at - len(stage.members) : at]
            at -= len(stage.members)
            inside.update(own)
            for node in own:
                value = self._made(node)
                readers = former.readers.get(value, ()) if value is not None else ()
                is_exit = value == stages[-1].value
                if not is_exit and (value in graph.outputs or not readers):
                    return
                if not is_exit and not inside.issuperset(readers):
                    return
            try:
                endings.add(stage, stage.value in home)
            except KeyError:
                return
            for node in own:
                left[step_of[node]] -= 1
                lowest = min(lowest, step_of[node])
            if not any(left[lowest : last + 1]):
                costs = endings.costs()
                if not costs:
                    return
                yield lowest, costs

    def strips(self, nodes: Sequence[int], rows: int) -> tuple[list[int], Strips] | None:
        """Return nodes in the order in which they run, and the places of their line buffers."""
        ordered = self._former.order(nodes)
        try:
            return ordered, region_of(self._former, ordered, rows, LIMITS[0]).strips
        except NotAGroup:
            return None  # Rows at an edge are made in another way than those between.

    def _made(self, node: int) -> int | None:
        return next((v for v in self._former.graph.nodes[node].outputs if v is not None), None)
