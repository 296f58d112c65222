"""
Regions: nodes that run strip by strip, through several windows.

A strip is some rows of the last result. For each strip, every member makes the rows that its
readers need and that are not there yet. Rows that a later strip needs stay in line buffers, so that
no row is made twice (StreamNet, Zheng et al., NeurIPS 2023). A plan states the rows of a strip and
the places of all line buffers, and the core replays them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from arenaplan._core import Strips
from arenaplan.base.errors import fault
from arenaplan.graph import Choice
from arenaplan.graph.ops import ROWS
from arenaplan.graph.ops.boxes import Uncuttable
from arenaplan.run.numpy.groups import Group, Member, NotAGroup
from arenaplan.run.numpy.registry import Run, Scratch, Signature
from arenaplan.run.numpy.stages import Former, Stage, Work, part
from arenaplan.run.numpy.streaming import hosted_choices, hosted_run, run_in_turn
from arenaplan.run.numpy.tiles import Kept, best_within, part_of, prepared

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


class HeldRows(NamedTuple):
    """A value's line buffer."""

    base: np.ndarray
    """The row in the first place, for each strip."""
    rows: int
    is_kept: bool
    """Whether rows stay from strip to strip."""


def held_by(needs: Needs, times: Times) -> HeldRows:
    """Return the line buffer that a value needs."""
    base = np.maximum.accumulate(np.where(times.active, needs.low, 0))
    rows = int(np.where(times.active, times.stop - base, 0).max())
    return HeldRows(base, rows, bool(((needs.high > 0) & (needs.low < _before(needs))).any()))


def strips_needs(rows: int, height: int) -> Needs:
    """Return the rows of the last result for each strip."""
    low = np.arange(0, rows, height)
    return Needs(low, np.minimum(low + height, rows))


def _moving(stage: Stage, held: HeldRows, times: Times) -> float:
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
    held: Mapping[int, HeldRows]
    """Per value that has a line buffer."""
    home: Mapping[int, int]
    """For each inner value, the value whose rows hold it: a value with a line buffer, or the
    result.
    """
    strips: Strips
    works: Mapping[Work, int]
    """The work of all calls, with the number of calls that have it."""
    moving: float
    """Nanoseconds in which rows that stay are moved."""

    @property
    def line_bytes(self) -> int:
        """Bytes of all line buffers."""
        sizes = {stage.value: stage.row_bytes for stage in self.stages}
        ends = (line.offset + line.rows * sizes[line.value] for line in self.strips.buffers)
        return max(ends, default=0)

    def way(self, limit: int) -> Choice:
        """
        Return the scratch memory that the kernels need for themselves, and the nanoseconds.

        Parameters
        ----------
        limit : int
            Bytes for the kernels' own workspaces, if the kernels can work with so few.
        """
        calls = [(work.within(limit), count) for work, count in self.works.items()]
        scratch = max((run.scratch for run, _ in calls), default=0)
        return Choice(scratch, self.moving + sum(run.nanoseconds * n for run, n in calls))


def region_of(former: Former, nodes: Sequence[int], strips: Strips) -> Region:
    """
    Return the region for some nodes.

    Parameters
    ----------
    strips : Strips
        The strip height, and the places of line buffers.

    Raises
    ------
    NotAGroup
        If the nodes cannot run strip by strip: rows at an edge may be made in another way than
        inner rows.
    """
    stages = former.stages(nodes)
    if not stages:
        raise NotAGroup("a node does not make rows from rows")
    try:
        return _region(stages, strips)
    except (Uncuttable, KeyError):
        raise NotAGroup("nodes do not pass rows on to each other") from None


def _region(stages: Sequence[Stage], strips: Strips) -> Region:
    last = stages[-1]
    needs = {last.value: strips_needs(last.rows, strips.rows)}
    home = _homes(strips)
    times: list[Times] = []
    held: dict[int, HeldRows] = {}
    works: Counter[Work] = Counter()
    moving = 0.0
    for stage in reversed(stages):
        needed = needs[stage.value]
        time = times_of(needed)
        add_needs(stage, time, needs)
        works.update(stage.work(start, stop) for _, start, stop in time.spans())
        if stage is not last and stage.value not in home:
            held[stage.value] = hold = held_by(needed, time)
            if hold.is_kept:
                moving += _moving(stage, hold, time)
        times.append(time)
    times.reverse()
    return Region(tuple(stages), tuple(times), held, home, strips, works, moving)


def _homes(strips: Strips) -> dict[int, int]:
    """Return for each value that is made in another value's rows the value with the memory."""
    home: dict[int, int] = {}
    for pair in reversed(strips.in_place):
        home[pair.value] = home.get(pair.of, pair.of)
    return home


# -- with memory -------------------------------------------------------------------------------


class _Binder:
    """Binds the stages of a region to memory."""

    def __init__(
        self,
        region: Region,
        arrays: Mapping[int, np.ndarray],
        lines: np.ndarray,
        scratch: np.ndarray,
    ) -> None:
        self.region = region
        self.arrays = arrays
        self.scratch = scratch
        self.kept: Kept = {}
        self.buffers: dict[int, np.ndarray] = {}
        self._inside = {stage.value: stage.rows for stage in region.stages}
        """Rows of each value that a stage makes."""
        stages = {stage.value: stage for stage in region.stages}
        for line in region.strips.buffers:
            stage = stages[line.value]
            size = line.rows * stage.row_bytes
            if line.offset + size > lines.nbytes:
                raise fault(
                    "WorkspaceOverrun",
                    f"the line buffers of node {stage.members[-1].signature.name!r} need "
                    f"{line.offset + size} bytes, and the plan gives them {lines.nbytes}",
                )
            memory = lines[line.offset : line.offset + size]
            shape = list(stage.made.shape)
            shape[ROWS] = line.rows
            self.buffers[line.value] = memory.view(stage.made.dtype).reshape(shape)

    def runs(self) -> list[Run]:
        """Return all functions, in order."""
        found: list[Run] = []
        region = self.region
        count = len(region.times[-1].start)
        for strip in range(count):
            for stage, times in zip(region.stages, region.times, strict=True):
                if times.active[strip] and stage.value in region.held:
                    found += self._moves(region.held[stage.value], stage, times.start, strip)
            for stage, times in zip(region.stages, region.times, strict=True):
                if times.active[strip]:
                    start, stop = int(times.start[strip]), int(times.stop[strip])
                    found += self._stage(stage, strip, start, stop)
        return found

    def _moves(self, held: HeldRows, stage: Stage, starts: np.ndarray, strip: int) -> list[Run]:
        """Return functions that move the rows that stay to the front of a line buffer."""
        if strip == 0:
            return []
        before, base = int(held.base[strip - 1]), int(held.base[strip])
        shift, count = base - before, int(starts[strip]) - base
        buffer = self.buffers[stage.value]
        found: list[Run] = []
        if shift > 0:
            # Rows that are apart from each other: NumPy would copy others first.
            for at in range(0, count, shift):
                some = min(shift, count - at)
                target = buffer[:, :, at : at + some]
                source = buffer[:, :, at + shift : at + shift + some]
                found.append(partial(np.copyto, target, source))
        return found

    def _rows(self, value: int, strip: int, start: int, stop: int) -> np.ndarray:
        """Return the memory of some rows of a value."""
        region = self.region
        home = region.home.get(value, value)
        if home not in region.held:
            return self.arrays[home][:, :, start:stop]
        first = start - int(region.held[home].base[strip])
        array = self.buffers[home]
        last = first + stop - start
        if first < 0 or last > array.shape[ROWS]:
            raise NotAGroup("a line buffer does not hold the rows that a kernel reads")
        return array[:, :, first:last]

    def _stage(self, stage: Stage, strip: int, start: int, stop: int) -> list[Run]:
        output = self._rows(stage.value, strip, start, stop)
        memory: dict[int, np.ndarray] = {stage.value: output}
        if stage.hosting is None:
            (member,) = stage.members
            signature, inputs = self._operands(member, strip, start, stop)
            run = self._single(member, signature, inputs, output)
            return [] if run is None else [run]
        members = []
        made = frozenset(member.value for member in stage.members)
        for member in stage.members:
            signature, inputs = self._operands(member, strip, start, stop, made)
            members.append(replace(member, signature=signature))
            for (_, value), array in zip(member.reads(), inputs, strict=True):
                if array is not None:
                    memory[value] = array
        group = Group(tuple(members), frozenset(), frozenset())
        hosting = stage.hosting.of_parts(members)
        size = best_within(hosted_choices(group, hosting), self.scratch.nbytes).bytes
        kept = self.kept.setdefault((stage.value,), {})
        return [hosted_run(group, hosting, memory, self.scratch[:size], kept)]

    def _operands(
        self, member: Member, strip: int, start: int, stop: int, made: frozenset[int] = frozenset()
    ) -> tuple[Signature, list[np.ndarray | None]]:
        """
        Return the facts about a member that makes some rows, and its operands.

        Those that another member of the stage makes, which are in ``made``, have no array.
        """
        signature, boxes = part(member, start, stop)
        inputs: list[np.ndarray | None] = []
        for position, value in member.reads():
            box = boxes[position]
            if value in made:
                inputs.append(None)
            elif value in self._inside:
                rows = slice(0, self._inside[value]) if box is None else box[ROWS]
                inputs.append(self._rows(value, strip, rows.start, rows.stop))
            else:
                array = self.arrays[value]
                inputs.append(array if box is None else part_of(array, box))
        return signature, inputs

    def _single(
        self,
        member: Member,
        signature: Signature,
        inputs: list[np.ndarray | None],
        output: np.ndarray,
    ) -> Run | None:
        """Return a function that runs a member alone, for the rows that the signature is of."""
        operands: list[np.ndarray | None] = [None] * len(member.inputs)
        for (position, _), array in zip(member.reads(), inputs, strict=True):
            operands[position] = array
        free = Scratch(self.scratch, signature.name)
        # Parts of constants differ from strip to strip, so nothing prepared from them is kept.
        is_cut = signature.constant != member.signature.constant
        kept = {} if is_cut else self.kept.setdefault((member.value,), {})
        return prepared(member, signature, operands, output, free, free.left, kept)


def region_run(
    region: Region, arrays: Mapping[int, np.ndarray], lines: np.ndarray, scratch: np.ndarray
) -> Run:
    """
    Return a function that runs a region.

    Parameters
    ----------
    arrays : mapping of int to array
        Memory of every value that is read from outside, and of the result.
    lines : array
        Memory of the line buffers, where the plan has them.
    scratch : array
        Scratch memory of the kernels.

    Raises
    ------
    ExecutionError
        If one of them is too small.
    """
    return partial(run_in_turn, _Binder(region, arrays, lines, scratch).runs())
