"""
Regions: nodes that run strip by strip, through several windows.

A strip is some rows of the last result. For each strip, every member makes the rows that its
readers need and that are not there yet. Rows that a later strip needs stay in line buffers, so that
no row is made twice (StreamNet, Zheng et al., NeurIPS 2023). A plan states the rows of a strip and
the places of all line buffers, and the core replays them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from arenaplan._core import Strips
from arenaplan.graph import Graph
from arenaplan.graph.costs import RowKernel
from arenaplan.graph.ops.boxes import Uncuttable
from arenaplan.run.numpy.groups import NotAGroup
from arenaplan.run.numpy.stages import LIMITS, Former, Stage

_NEVER = 1 << 40
"""A row that is needed by no strip."""
ROW_MOVES = _MOVE, _MOVED = 900, 63
"""Nanoseconds to move rows to the front of a line buffer: for the call, and per 1,000 bytes."""


# -- rows over time -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Times:
    """The rows that one stage makes for each strip."""

    start: np.ndarray
    stop: np.ndarray
    active: np.ndarray
    """Whether the stage makes any rows."""

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """Yield strip, first row, and row after the last."""
        for strip in np.flatnonzero(self.active).tolist():
            yield strip, int(self.start[strip]), int(self.stop[strip])


class Needs(NamedTuple):
    """The rows of a value that readers need, by strip."""

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
    np.maximum.accumulate(needs.high[:-1], out=before[1:])
    return before


def add_needs(stage: Stage, times: Times, needs: dict[int, Needs]) -> None:
    """
    Add the rows that a stage reads.

    Raises
    ------
    Uncuttable
        If a window sees no row in some strip.
    """
    active = times.active
    for value, window, rows in stage.reads:
        first = (times.start * window.stride - window.before) // window.scale
        last = (times.stop - 1) * window.stride - window.before + window.extent - 1
        low = np.minimum(np.maximum(first, 0), rows)
        high = np.minimum(np.maximum(last // window.scale + 1, 0), rows)
        if (active & (low >= high)).any():
            raise Uncuttable
        low, high = np.where(active, low, _NEVER), np.where(active, high, 0)
        known = needs.get(value)
        if known is not None:
            low, high = np.minimum(known.low, low), np.maximum(known.high, high)
        needs[value] = Needs(low, high)


class Held(NamedTuple):
    """A value's line buffer."""

    base: np.ndarray
    """The row in the first place, for each strip."""
    rows: int
    is_kept: bool
    """Whether rows stay from strip to strip."""


def held_by(needs: Needs, times: Times) -> Held:
    """Return the line buffer that a value needs."""
    base = np.maximum.accumulate(np.where(times.active, needs.low, 0))
    rows = int(np.where(times.active, times.stop - base, 0).max())
    return Held(base, rows, bool(((needs.high > 0) & (needs.low < _before(needs))).any()))


def strips_needs(rows: int, height: int) -> Needs:
    """Return the rows of the last result for each strip."""
    low = np.arange(0, rows, height)
    return Needs(low, np.minimum(low + height, rows))


def _moving(stage: Stage, held: Held, times: Times) -> float:
    """Return the nanoseconds in which rows that stay are moved, as many at once as are new."""
    strips = int(times.active.sum())
    made = int(np.where(times.active, times.stop - times.start, 0).sum())
    new = max(made // strips, 1)
    kept = max(held.rows - new, 0)
    return strips * (-(-kept // new) * _MOVE + _MOVED * kept * stage.row_bytes / 1000)


# -- a region -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Region:
    """Stages that run strip by strip, and the places of their rows."""

    stages: tuple[Stage, ...]
    times: tuple[Times, ...]
    """Per stage."""
    held: Mapping[int, Held]
    """Per value that has a line buffer."""
    home: Mapping[int, int]
    """For each inner value, the value whose rows hold it: a value with a line buffer, or the
    result.
    """
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


def region_of(former: Former, nodes: Sequence[int], strips: Strips, limit: int) -> Region:
    """
    Return the region for some nodes.

    Parameters
    ----------
    strips : Strips
        The strip height, and the places of line buffers.
    limit : int
        Bytes for the kernels' own workspaces, if the kernels can work with so few.

    Raises
    ------
    NotAGroup
        If the nodes cannot run strip by strip.
    """
    stages = former.stages(nodes)
    if stages is None or not stages:
        raise NotAGroup("a node does not make rows from rows")
    try:
        return _region(stages, strips, limit)
    except (Uncuttable, KeyError):
        raise NotAGroup("nodes do not pass rows on to each other") from None


def _region(stages: Sequence[Stage], strips: Strips, limit: int) -> Region:
    last = stages[-1]
    needs = {last.value: strips_needs(last.rows, strips.rows)}
    home = _homes(strips)
    times: list[Times] = []
    held: dict[int, Held] = {}
    scratch, seconds = 0, 0.0
    for stage in reversed(stages):
        needed = needs[stage.value]
        time = times_of(needed)
        add_needs(stage, time, needs)
        for _, start, stop in time.spans():
            run = stage.work(start, stop).within(limit)
            scratch = max(scratch, run.scratch)
            seconds += run.nanoseconds * 1e-9
        if stage is not last and stage.value not in home:
            held[stage.value] = hold = held_by(needed, time)
            if hold.is_kept:
                seconds += _moving(stage, hold, time) * 1e-9
        times.append(time)
    times.reverse()
    return Region(tuple(stages), tuple(times), held, home, strips, seconds, scratch)


def _homes(strips: Strips) -> dict[int, int]:
    """Return for each value that is made in another value's rows the value with the memory."""
    home: dict[int, int] = {}
    for pair in reversed(strips.in_place):
        home[pair.value] = home.get(pair.of, pair.of)
    return home


# -- kernels on rows ------------------------------------------------------------------------


class RowKernels:
    """The stages of one graph; see :class:`arenaplan.graph.costs.Costs`."""

    def __init__(self, graph: Graph) -> None:
        self.former = Former(graph)

    def of(self, nodes: Iterable[int]) -> list[RowKernel]:
        """Return the stages for nodes, with costs."""
        former = self.former
        able = former.order(node for node in nodes if former.member(node) is not None)
        found = []
        at = 0
        for stage in former.stages(able) or ():
            own = able[at : at + len(stage.members)]
            at += len(own)
            found.append(RowKernel(own, former.in_place(own[0]), stage.costs()))
        return found

    def can_run(self, nodes: Sequence[int], strips: Strips) -> bool:
        """Return whether nodes can run in these strips."""
        try:
            region_of(self.former, nodes, strips, LIMITS[0])
        except NotAGroup:
            return False  # Rows at an edge are made in another way than inner rows.
        return True
