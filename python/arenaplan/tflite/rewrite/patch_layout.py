"""The memory of a patch's steps, derived from the old operators' memory."""

from __future__ import annotations

from math import prod

from arenaplan.base.errors import InternalError
from arenaplan.tflite.rewrite.patch import Kept, Moved, NewTensor, Patch, Repeated
from arenaplan.tflite.rewrite.program import OperatorProgram, Slab
from arenaplan.tflite.rewrite.tensor_groups import (
    UNIT,
    GroupLayout,
    GroupRead,
    Lead,
    OperandCopy,
    Use,
)


def layout_of_patch(
    program: OperatorProgram, old: GroupLayout, patch: Patch, *, overlap: bool = False
) -> GroupLayout:
    """
    Return the memory of a patch's steps, by patch tensor numbers.

    Parameters
    ----------
    program : OperatorProgram
        The model.
    old : GroupLayout
        The memory of the model's steps.
    patch : Patch
        The change.
    overlap : bool, default False
        Whether kernels may write over operands; as in ``old``.
    """
    return _Layout(program, old, patch, overlap=overlap).layout()


class _Layout:
    def __init__(
        self, program: OperatorProgram, old: GroupLayout, patch: Patch, *, overlap: bool
    ) -> None:
        self._overlap = overlap
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

    def layout(self) -> GroupLayout:
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
        return GroupLayout(boxes, tuple(uses))

    def _repeated(self, step: Repeated) -> Use:
        reads = dict.fromkeys(i for i in step.inputs if i is not None and self._boxes[i])
        found = tuple(GroupRead(i, 0, self._boxes[i]) for i in reads)
        return Use(found, step.outputs, leads=self._leads(step))

    def _leads(self, step: Repeated) -> tuple[Lead, ...]:
        """Return the operands that the result may be written over."""
        rule, result = self._program.operators[step.operator].rule, step.outputs[0]
        if (
            rule is None
            or rule.order == "unknown"
            or (rule.order == "pixels" and not self._overlap)
        ):
            return ()
        is_exact = rule.order == "places" or not self._overlap
        found = []
        for place in rule.images:
            source = step.inputs[place]
            if source is None:
                continue
            if is_exact:
                if self._fits(source, result):
                    found.append(Lead(source, result, 0, is_exact=True))
                continue
            shape, made = self._shape(source), self._shape(result)
            operand = Slab(shape[1], shape[2], shape[3] * self._item(source))
            slab = Slab(made[1], made[2], made[3] * self._item(result))
            window = rule.window
            above = left = 0
            begin, first = self._start(source), self._start(result)
            if begin is not None and first is not None:
                above = begin - first * window.stride + window.before
                left = window.columns[0]
            distance = self._program.distance(rule, operand, slab, above, left)
            apart = min(distance + -distance % UNIT, self._boxes[result])
            found.append(Lead(source, result, apart))
        return tuple(found)

    def _fits(self, source: int, result: int) -> bool:
        """Return whether a result can be at the address of an operand with equal element count."""
        old, new = self._item(source), self._item(result)
        return new <= old and (new == old or new == 1)

    def _start(self, number: int) -> int | None:
        """Return the old tensor's row that a tensor begins with; None after padding."""
        if not self._patch.is_new(number):
            return 0
        new = self._patch.new(number)
        if isinstance(new, NewTensor) and new.rows is not None:
            return new.rows.start
        return None

    def _moved(self, step: Moved) -> Use:
        source, target = step.inputs[0], step.output
        if step.kind == "pad":
            return Use((GroupRead(source, 0, self._boxes[source]),), (target,))
        if step.kind == "concat":
            reads, copies, at = [], [], 0
            for operand in step.inputs:
                reads.append(GroupRead(operand, 0, self._boxes[operand]))
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
        read = GroupRead(source, start // UNIT * UNIT, stop + -stop % UNIT)
        copies = self._copy(source, target, start, 0, size)
        return Use((read,), (target,), tuple(copies), is_idempotent=True)

    def _copy(self, source: int, target: int, first: int, at: int, size: int) -> list[OperandCopy]:
        """Return a copy in whole units, or no copy."""
        whole = source if first or self._sizes[source] > self._sizes[target] else target
        if max(first, at) + size == self._sizes[whole]:
            size += -size % UNIT  # Both are rounded up by as much.
        if first % UNIT or at % UNIT or size % UNIT:
            return []
        return [OperandCopy(source, target, first, at, size)]

    def _shape(self, number: int) -> tuple[int, ...]:
        if self._patch.is_new(number):
            return self._patch.new(number).shape
        return self._program.tensors[number].shape

    def _item(self, number: int) -> int:
        if self._patch.is_new(number):
            new = self._patch.new(number)
            return self._program.tensors[new.like].item if isinstance(new, NewTensor) else 4
        return self._program.tensors[number].item
