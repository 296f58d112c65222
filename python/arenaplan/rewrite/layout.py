"""The memory of a patch's steps, from that of the old operators."""

from __future__ import annotations

from math import prod

from arenaplan.errors import InternalError
from arenaplan.rewrite.patch import Kept, Moved, NewTensor, Patch, Repeated
from arenaplan.rewrite.place import UNIT, Copy, Layout, Read, Use
from arenaplan.rewrite.program import Program


def layout_of_patch(program: Program, old: Layout, patch: Patch) -> Layout:
    """
    Return the memory of a patch's steps, by the numbers of the patch.

    Parameters
    ----------
    program : Program
        The model.
    old : Layout
        The memory of the model's own steps.
    patch : Patch
        The change.
    """
    return _Layout(program, old, patch).layout()


class _Layout:
    def __init__(self, program: Program, old: Layout, patch: Patch) -> None:
        self._program = program
        self._old = old
        self._patch = patch
        self._sizes = [tensor.size for tensor in program.tensors]
        boxes = list(old.boxes)
        for new in patch.tensors:
            size = 0
            if isinstance(new, NewTensor):
                size = prod(new.shape) * program.tensors[new.like].item
            self._sizes.append(size)
            boxes.append(size + -size % UNIT)
        self._boxes = boxes

    def layout(self) -> Layout:
        """Return the layout; tensors that no step mentions have no bytes."""
        uses = [self._old.uses[0]]
        for step in self._patch.steps:
            if isinstance(step, Kept):
                uses.append(self._old.uses[step.operator + 1])
            elif isinstance(step, Repeated):
                uses.append(self._repeated(step))
            else:
                uses.append(self._moved(step))
        uses.append(self._old.uses[-1])
        seen = {tensor for use in uses for tensor in use.writes}
        boxes = tuple(box if tensor in seen else 0 for tensor, box in enumerate(self._boxes))
        return Layout(boxes, tuple(uses))

    def _repeated(self, step: Repeated) -> Use:
        reads = dict.fromkeys(i for i in step.inputs if i is not None and self._boxes[i])
        return Use(tuple(Read(i, 0, self._boxes[i]) for i in reads), step.outputs)

    def _moved(self, step: Moved) -> Use:
        source, target = step.inputs[0], step.output
        if step.kind == "pad":
            return Use((Read(source, 0, self._boxes[source]),), (target,))
        if step.kind == "concat":
            reads, copies, at = [], [], 0
            for operand in step.inputs:
                reads.append(Read(operand, 0, self._boxes[operand]))
                copies += self._copy(operand, target, 0, at, self._sizes[operand])
                at += self._sizes[operand]
            return Use(tuple(reads), (target,), tuple(copies), is_idempotent=True)
        begin = self._patch.new(step.inputs[1])
        if isinstance(begin, NewTensor):
            raise InternalError("the begin of a slice is no constant")
        shape = self._shape(source)
        start = begin.values[1] * shape[2] * shape[3] * self._item(source)
        size = self._sizes[target]
        stop = start + size
        read = Read(source, start // UNIT * UNIT, stop + -stop % UNIT)
        copies = self._copy(source, target, start, 0, size)
        return Use((read,), (target,), tuple(copies), is_idempotent=True)

    def _copy(self, source: int, target: int, first: int, at: int, size: int) -> list[Copy]:
        """Return a copy in whole units, if it is one."""
        whole = source if first or self._sizes[source] > self._sizes[target] else target
        if max(first, at) + size == self._sizes[whole]:
            size += -size % UNIT  # Both are rounded up by as much.
        if first % UNIT or at % UNIT or size % UNIT:
            return []
        return [Copy(source, target, first, at, size)]

    def _shape(self, number: int) -> tuple[int, ...]:
        if self._patch.is_new(number):
            return self._patch.new(number).shape
        return self._program.tensors[number].shape

    def _item(self, number: int) -> int:
        if self._patch.is_new(number):
            new = self._patch.new(number)
            return self._program.tensors[new.like].item if isinstance(new, NewTensor) else 4
        return self._program.tensors[number].item
