"""From regions to a patch: every strip's operators and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arenaplan.base.errors import InternalError
from arenaplan.tflite.rewrite.image_rows import Span
from arenaplan.tflite.rewrite.patch import (
    Kept,
    Moved,
    NewConstant,
    NewTensor,
    Patch,
    Repeated,
    Shape,
    Step,
    TensorRows,
)
from arenaplan.tflite.rewrite.program import OperatorProgram
from arenaplan.tflite.rewrite.strip_regions import (
    MOST_OPERANDS,
    Scope,
    SplitRegion,
    Strip,
    StripCall,
    scope_of,
    strips_of,
)

_LONGEST: Final = 24
"""Most characters from an old name in a strip's name."""


def patch_of(program: OperatorProgram, regions: Sequence[SplitRegion]) -> Patch:
    """
    Return the patch that runs regions strip by strip.

    Parameters
    ----------
    program : OperatorProgram
        The model.
    regions : sequence of SplitRegion
        Regions that do not overlap.

    Raises
    ------
    InternalError
        If a region cannot be split as described.
    """
    emitter = _Emitter(program)
    begins = {region.first: region for region in regions}
    position = 0
    while position < len(program.operators):
        region = begins.get(position)
        if region is None:
            emitter.steps.append(Kept(position))
            position += 1
            continue
        scope = scope_of(program, region.first, region.last)
        strips = None if scope is None else strips_of(program, scope, region)
        if scope is None or strips is None:
            raise InternalError(f"operators {region.first} to {region.last} cannot be split so")
        emitter.region(scope, region, strips)
        position = region.last + 1
    return emitter.patch()


def steps_of(
    program: OperatorProgram, scope: Scope, region: SplitRegion, strips: Sequence[Strip]
) -> list[Step]:
    """Return the steps that run a region strip by strip."""
    emitter = _Emitter(program)
    emitter.region(scope, region, strips)
    return emitter.steps


class _Slab:
    """A tensor with some rows of an old tensor."""

    __slots__ = ("number", "start", "stop")

    def __init__(self, number: int, start: int, stop: int) -> None:
        self.number = number
        self.start = start
        self.stop = stop


class _Emitter:
    """Steps and tensors of a patch under construction."""

    def __init__(self, program: OperatorProgram) -> None:
        self._program = program
        self._tensors: list[NewTensor | NewConstant] = []
        self._constants: dict[tuple[Shape, tuple[int, ...]], int] = {}
        self.steps: list[Step] = []

    def patch(self) -> Patch:
        """Return the patch."""
        return Patch(len(self._program.tensors), tuple(self._tensors), tuple(self.steps))

    def region(self, scope: Scope, region: SplitRegion, strips: Sequence[Strip]) -> None:
        """Append the calls for all strips, and the operators that join the strips."""
        parts: list[int] = []
        held: dict[int, _Slab] = {}
        for strip in strips:
            slabs: dict[int, _Slab] = {}
            cut: dict[tuple[int, Span], int] = {}
            for call in strip.calls:
                self._call(scope, call, slabs, cut)
                result = self._program.operators[call.operator].outputs[0]
                if result in region.held:
                    self._hold(strip, call, slabs, held)
            edges = strip.needs[scope.result]
            parts.append(self._rows(scope, slabs, cut, scope.result, edges))
        self._join(parts, scope.result)

    def _call(
        self,
        scope: Scope,
        call: StripCall,
        slabs: dict[int, _Slab],
        cut: dict[tuple[int, Span], int],
    ) -> None:
        """Append an operator call; cut and pad the operands."""
        operator, answer = self._program.operators[call.operator], call.answer
        if operator.rule is None:
            raise InternalError(f"operator {call.operator} has no rows")
        inputs = list(operator.inputs)
        for place in operator.rule.images:
            operand = operator.inputs[place]
            if operand is None:
                raise InternalError(f"operator {call.operator} leaves out an image")
            number = self._rows(scope, slabs, cut, operand, answer.operand)
            if answer.way == "padded":
                columns = operator.rule.window.columns
                number = self._padded(operand, number, call, columns)
            inputs[place] = number
        if answer.way == "moved":
            columns = operator.rule.window.columns
            inputs[1] = self._constant((0, 0, answer.above, answer.below, *columns, 0, 0), (4, 2))
        result = operator.outputs[0]
        made = self._strip(result, answer.made, call.request)
        self.steps.append(
            Repeated(
                call.operator, tuple(inputs), (made,), unpadded=answer.way in ("bare", "padded")
            )
        )
        slabs[result] = _Slab(made, *answer.made)

    def _rows(
        self,
        scope: Scope,
        slabs: dict[int, _Slab],
        cut: dict[tuple[int, Span], int],
        tensor: int,
        span: Span,
    ) -> int:
        """Return a tensor with exactly the given old rows, cut from a larger tensor if needed."""
        if tensor in scope.inside:
            slab = slabs[tensor]
        else:
            slab = _Slab(tensor, 0, self._program.tensors[tensor].shape[1])
        if (slab.start, slab.stop) == span:
            return slab.number
        if (slab.number, span) not in cut:
            cut[slab.number, span] = self._cut(tensor, slab, span)
        return cut[slab.number, span]

    def _cut(self, tensor: int, slab: _Slab, span: Span) -> int:
        """Append a slice that cuts rows from a tensor."""
        if not slab.start <= span[0] < span[1] <= slab.stop:
            raise InternalError(f"rows {span} of tensor {tensor} are not there")
        begin = self._constant((0, span[0] - slab.start, 0, 0))
        # -1 takes the rest in all dimensions except rows, so the size fits tensors with any width.
        size = self._constant((-1, span[1] - span[0], -1, -1))
        number = self._strip(tensor, span, span)
        self.steps.append(Moved("slice", (slab.number, begin, size), number))
        return number

    def _padded(self, tensor: int, number: int, call: StripCall, columns: Span) -> int:
        """Append explicit padding."""
        answer, old = call.answer, self._program.tensors[tensor]
        _, _, width, channels = old.shape
        rows = answer.operand[1] - answer.operand[0] + answer.above + answer.below
        amounts = (0, 0, answer.above, answer.below, *columns, 0, 0)
        pads = self._constant(amounts, (4, 2))
        shape = (1, rows, width + sum(columns), channels)
        first = answer.operand[0] - answer.above
        name = f"{old.name[:_LONGEST]}[{first}:{first + rows}]+"
        padded = self._tensor(NewTensor(name, tensor, shape, None))
        self.steps.append(Moved("pad", (number, pads), padded))
        return padded

    def _hold(
        self, strip: Strip, call: StripCall, slabs: dict[int, _Slab], held: dict[int, _Slab]
    ) -> None:
        """Join the rows from an earlier strip and the new rows."""
        result = self._program.operators[call.operator].outputs[0]
        start, stop = strip.needs[result]
        slab = slabs[result]
        if call.request[0] > start:
            before = held[result]
            span = (start, call.request[0])
            old = before.number if (before.start, before.stop) == span else None
            kept = old if old is not None else self._cut(result, before, span)
            fresh = slab.number
            if (slab.start, slab.stop) != call.request:
                fresh = self._cut(result, slab, call.request)
            joined = self._strip(result, (start, stop), (start, stop))
            self.steps.append(Moved("concat", (kept, fresh), joined, axis=1))
            slabs[result] = _Slab(joined, start, stop)
        held[result] = slabs[result]

    def _join(self, parts: Sequence[int], result: int) -> None:
        """Append the concatenation of all strips."""
        while len(parts) > MOST_OPERANDS:
            parts = [
                self._joined(result, parts[i : i + MOST_OPERANDS])
                for i in range(0, len(parts), MOST_OPERANDS)
            ]
        self.steps.append(Moved("concat", tuple(parts), result, axis=1))

    def _joined(self, result: int, parts: Sequence[int]) -> int:
        """Append the concatenation of neighboring strips."""
        if len(parts) == 1:
            return parts[0]
        spans = [self._tensors[n - len(self._program.tensors)] for n in parts]
        rows = [t.rows for t in spans if isinstance(t, NewTensor) and t.rows is not None]
        span = (rows[0].start, rows[-1].stop)
        number = self._strip(result, span, span)
        self.steps.append(Moved("concat", tuple(parts), number, axis=1))
        return number

    def _strip(self, tensor: int, span: Span, exact: Span) -> int:
        """Return a new tensor for some old rows."""
        old = self._program.tensors[tensor]
        _, _, width, channels = old.shape
        name = f"{old.name[:_LONGEST]}[{span[0]}:{span[1]}]"
        shape = (1, span[1] - span[0], width, channels)
        return self._tensor(NewTensor(name, tensor, shape, TensorRows(tensor, *span, exact)))

    def _constant(self, values: tuple[int, ...], shape: Shape | None = None) -> int:
        """Return a constant; equal constants share a tensor."""
        key = (shape or (len(values),), values)
        if key not in self._constants:
            name = f"[{','.join(map(str, values))}]"
            self._constants[key] = self._tensor(NewConstant(name, key[0], values))
        return self._constants[key]

    def _tensor(self, tensor: NewTensor | NewConstant) -> int:
        """Append a new tensor; return the tensor's number."""
        self._tensors.append(tensor)
        return len(self._program.tensors) + len(self._tensors) - 1
