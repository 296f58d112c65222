"""Running a region: every stage is prepared on the rows of each strip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.graph.ops import ROWS
from arenaplan.run.numpy.groups import Group, Member, NotAGroup
from arenaplan.run.numpy.regions import Held, Region
from arenaplan.run.numpy.registry import Run, Scratch, Signature, Step, attributed
from arenaplan.run.numpy.stages import Stage, hosted_ways, part
from arenaplan.run.numpy.streaming import hosted_run, run_in_turn
from arenaplan.run.numpy.tiles import Kept, best_within, kernel_slots, kernel_workspaces, part_of


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

    def _moves(self, held: Held, stage: Stage, starts: np.ndarray, strip: int) -> list[Run]:
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
        if stage.group is None:
            (member,) = stage.members
            signature, inputs = self._operands(member, strip, start, stop)
            run = self._single(replace(member, signature=signature), inputs, output)
            return [] if run is None else [run]
        members = []
        made = stage.group.made
        for member in stage.group.members:
            signature, inputs = self._operands(member, strip, start, stop, made)
            members.append(replace(member, signature=signature))
            for (_, value), array in zip(member.reads(), inputs, strict=True):
                if array is not None:
                    memory[value] = array
        group = Group(tuple(members), frozenset(), frozenset())
        size = best_within(hosted_ways(group), self.scratch.nbytes).bytes
        kept = self.kept.setdefault((stage.value,), {})
        return [hosted_run(group, members[0], memory, self.scratch[:size], kept)]

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
        self, member: Member, inputs: list[np.ndarray | None], output: np.ndarray
    ) -> Run | None:
        """Return a function that runs a member alone."""
        operands: list[np.ndarray | None] = [None] * len(member.inputs)
        for (position, _), array in zip(member.reads(), inputs, strict=True):
            operands[position] = array
        signature = member.signature
        free = Scratch(self.scratch, signature.name)
        slots = kernel_slots(member, signature) if member.has_scratch else ()
        workspaces = kernel_workspaces(slots, free, free.left)
        outputs = tuple(
            output if at == member.slot else None for at in range(len(signature.outputs))
        )
        kept = self.kept.setdefault((member.value,), {})
        step = Step(signature, tuple(operands), outputs, workspaces, kept=kept)
        return attributed(member.kernel.prepare, step, signature)


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
