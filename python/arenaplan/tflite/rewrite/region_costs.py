"""
Estimated region costs: live bytes, new operators, extra work.

A step's live bytes are needed by any placement: operand rows for later strips, finished result
rows, and the strip's tensors. Live bytes are a lower bound for the arena's head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from arenaplan.tflite.rewrite.patch import Moved
from arenaplan.tflite.rewrite.program import OperatorProgram, RowRule, Slab
from arenaplan.tflite.rewrite.strip_patches import steps_of
from arenaplan.tflite.rewrite.strip_regions import (
    Scope,
    SplitRegion,
    Strip,
    StripCall,
    extra_work,
    strips_of,
)


@dataclass(frozen=True, slots=True)
class TailCosts:
    """Bytes that a runtime keeps beside the arena's head, for good."""

    operators: tuple[int, ...]
    """By old operator: another call."""
    slice: int
    pad: int
    concat: int
    tensor: int
    """Another tensor."""
    overlap: bool = False
    """Whether results may be written over operands."""


class Candidate(NamedTuple):
    """A region and the region's costs."""

    region: SplitRegion
    peak: int
    """Most live bytes in the region's steps, if every copy is made at the same time."""
    bound: int
    """Most live bytes in the region's steps, whenever each copy is made."""
    tail: int
    """Bytes the runtime keeps for the region's new operators and results."""
    work: int
    """Extra work."""
    operators: int
    """New operators."""


class Saved(NamedTuple):
    """Result bytes that are also operand bytes."""

    expected: int
    most: int


class Lives:
    """First and last step of each tensor in a program, by operator position."""

    def __init__(self, program: OperatorProgram, *, overlap: bool = False) -> None:
        count = len(program.operators)
        self.overlap = overlap
        self.program = program
        self.first = [count] * len(program.tensors)
        self.last = [-1] * len(program.tensors)
        for tensor in program.inputs:
            self.first[tensor], self.last[tensor] = -1, max(self.last[tensor], -1)
        for position, operator in enumerate(program.operators):
            for index in operator.inputs:
                if index is not None:
                    self.last[index] = position
            for index in operator.outputs:
                self.first[index] = min(self.first[index], position)
                self.last[index] = max(self.last[index], position)
        for tensor in program.outputs:
            self.last[tensor] = count
        self.rows = [tensor.row if tensor.is_image else 0 for tensor in program.tensors]
        self.images: list[list[int]] = []
        """Per operator, the operands read by rows."""
        for operator in program.operators:
            places = () if operator.rule is None else operator.rule.images
            found = dict.fromkeys(operator.inputs[place] for place in places)
            self.images.append([i for i in found if i is not None])
        self.sizes = [
            0 if tensor.is_stored else tensor.size + -tensor.size % 16 for tensor in program.tensors
        ]

    def around(self, first: int, last: int, without: frozenset[int]) -> int:
        """Return the bytes live throughout an operator run, without some tensors."""
        return sum(
            size
            for tensor, size in enumerate(self.sizes)
            if size
            and tensor not in without
            and self.first[tensor] < first
            and self.last[tensor] > last
        )

    def may_overwrite(self, rule: RowRule) -> bool:
        """Return whether a result can be written over an operand."""
        return rule.order in ("elements", "places") or (self.overlap and rule.order == "pixels")

    def plain(self, position: int) -> int:
        """Return the bytes that are live while a whole operator runs."""
        live = sum(
            size
            for tensor, size in enumerate(self.sizes)
            if size and self.first[tensor] <= position <= self.last[tensor]
        )
        operator = self.program.operators[position]
        if operator.rule is None or not self.may_overwrite(operator.rule):
            return live
        dying = {x: self.sizes[x] for x in self.images[position] if self.last[x] == position}
        made = self.program.tensors[operator.outputs[0]].shape[1]
        window = operator.rule.window
        return live - self.saved(position, dying, window.rows, made, window.before).expected

    def saved(
        self, position: int, dying: dict[int, int], rows: int, made: int, above: int
    ) -> Saved:
        """
        Return the bytes that a call saves by writing the result over operands.

        Parameters
        ----------
        dying : dict of int to int
            Per operand, the bytes that no later call needs.
        rows, made : int
            Operand and result rows.
        above : int
            Padding rows that the call adds.
        """
        operator = self.program.operators[position]
        rule = operator.rule
        if rule is None or not self.may_overwrite(rule) or not dying:
            return Saved(0, 0)
        y = self.program.tensors[operator.outputs[0]]
        result = Slab(made, y.shape[2], y.shape[3] * y.item)
        size = made * y.row
        best = 0
        for operand, bytes_ in dying.items():
            x = self.program.tensors[operand]
            slab = Slab(rows, x.shape[2], x.shape[3] * x.item)
            left = rule.window.columns[0]
            distance = self.program.distance(rule, slab, result, above, left)
            best = max(best, min(size - distance, bytes_))
        return Saved(best, min(size, sum(dying.values())))


def candidate(
    lives: Lives, costs: TailCosts, scope: Scope, region: SplitRegion, most_work: int
) -> Candidate | None:
    """Return a region with costs; None if the split is impossible or has too much extra work."""
    strips = strips_of(lives.program, scope, region)
    if strips is None:
        return None
    work = extra_work(lives.program, strips)
    if work > most_work:
        return None
    operators, tail = _new(lives.program, costs, scope, region, strips)
    peak, bound = _Peak(lives, scope, region, strips).bytes()
    return Candidate(
        region,
        peak,
        bound,
        tail,
        work,
        operators,
    )


def _new(
    program: OperatorProgram,
    costs: TailCosts,
    scope: Scope,
    region: SplitRegion,
    strips: tuple[Strip, ...],
) -> tuple[int, int]:
    """Return how many operators a region adds, and the bytes the runtime keeps for them."""
    movers = {"slice": costs.slice, "pad": costs.pad, "concat": costs.concat}
    steps = steps_of(program, scope, region, strips)
    replaced = [costs.operators[position] for position in range(scope.first, scope.last + 1)]
    tail = sum(
        movers[step.kind] if isinstance(step, Moved) else costs.operators[step.operator]
        for step in steps
    )
    # Inner tensors are gone; the last concatenation makes the result.
    more = len(steps) - len(replaced)
    return more, tail - sum(replaced) + more * costs.tensor


class _Peak:
    """Live bytes in a region's steps."""

    def __init__(
        self, lives: Lives, scope: Scope, region: SplitRegion, strips: tuple[Strip, ...]
    ) -> None:
        self._lives = lives
        self._program = lives.program
        self._scope = scope
        self._region = region
        self._strips = strips
        self._cropped: list[tuple[int, int]] = []
        self._rows = lives.rows
        self._images = lives.images
        self._inside = {
            position: [i for i in self._images[position] if i in scope.inside]
            for position in range(scope.first, scope.last + 1)
        }

    def bytes(self) -> tuple[int, int]:
        """Return the most live bytes in a step, and a lower bound."""
        scope, lives = self._scope, self._lives
        others = lives.around(scope.first, scope.last, scope.operands | {scope.result})
        dying = []
        for operand in scope.operands:
            if lives.last[operand] > scope.last:
                others += lives.sizes[operand]
            else:
                dying.append(operand)
        needed = self._needed(dying)
        peak = low = 0
        held: dict[int, int] = {}
        self._cropped = []
        for index, strip in enumerate(self._strips):
            # Operand bytes that this or a later call needs, and those needed after the last call.
            following = needed[index + 1][0] if index + 1 < len(needed) else 0
            ends = [*needed[index], following]
            produced = strip.needs[scope.result][0] * self._rows[scope.result]
            expected, least = self._strip(index, strip, ends, held)
            peak = max(peak, others + produced + expected)
            low = max(low, others + produced + least)
        if not self._cropped:
            return peak, low
        # Rows are copied either when cut, beside the remaining rows, or at the end, beside the
        # whole result.
        now = max(others + extra for extra, _ in self._cropped)
        later = others + lives.sizes[scope.result]
        parts = [rows for _, rows in self._cropped]
        return max(peak, min(now, later + sum(parts))), max(low, min(now, later + min(parts)))

    def _needed(self, dying: list[int]) -> list[list[int]]:
        """Return, per strip and call, the operand bytes needed from then on."""
        lows = dict.fromkeys(dying, 1 << 60)
        found: list[list[int]] = []
        size = 0
        for strip in reversed(self._strips):
            sizes: list[int] = []
            for call in reversed(strip.calls):
                start, stop = call.answer.operand
                for operand in self._images[call.operator]:
                    low = lows.get(operand)
                    # Rows between windows are never needed.
                    if low is not None and start < low:
                        size += (min(stop, low) - start) * self._rows[operand]
                        lows[operand] = start
                sizes.append(size)
            found.append(sizes[::-1])
        return found[::-1]

    def _strip(
        self, index: int, strip: Strip, ends: list[int], held: dict[int, int]
    ) -> tuple[int, int]:
        """Return the most live bytes in a strip, and a bound, without surrounding tensors."""
        scope, rows = self._scope, self._rows
        readers: dict[int, list[tuple[int, tuple[int, int]]]] = {}
        for position, call in enumerate(strip.calls):
            for operand in self._inside[call.operator]:
                readers.setdefault(operand, []).append((position, call.answer.operand))
        kept = self._kept(index)
        live: dict[int, int] = {}
        peak = least = 0
        for position, call in enumerate(strip.calls):
            result = self._program.operators[call.operator].outputs[0]
            joined = held.pop(result, 0)
            slabs = sum(live.values()) + sum(held.values())
            made = (call.answer.made[1] - call.answer.made[0]) * rows[result]
            step = slabs + joined + made + ends[position]
            if call.answer.way == "padded":
                padded = self._padded(call)
                before = slabs + joined + padded + ends[position]
                gone = 0
                for operand in self._inside[call.operator]:
                    if readers[operand][-1][0] == position:
                        gone += live.get(operand, 0) - kept.get(operand, 0)
                peak, least = max(peak, before), max(least, before)
                step += padded - gone + ends[position + 1] - ends[position]
            saved = self._saved(call, readers, position, live, kept, ends)
            if result == scope.result and call.answer.made[0] < strip.needs[result][0]:
                # Rows above the strip are already in place, and must not be overwritten.
                start, stop = strip.needs[result]
                produced = start * rows[result]
                extra = (stop - start) * rows[result]
                self._cropped.append((produced + step - saved.most + extra, extra))
            peak, least = max(peak, step - saved.expected), max(least, step - saved.most)
            start, stop = strip.needs[result]
            live[result] = (stop - start) * rows[result]
            for operand in self._inside[call.operator]:
                rest = [span for at, span in readers[operand] if at > position]
                keep = kept.get(operand, 0)
                if rest:
                    low, high = min(s for s, _ in rest), max(e for _, e in rest)
                    live[operand] = max((high - low) * rows[operand], keep)
                else:
                    live.pop(operand, None)
                    if keep:
                        held[operand] = keep
        return peak, least

    def _saved(
        self,
        call: StripCall,
        readers: dict[int, list[tuple[int, tuple[int, int]]]],
        position: int,
        live: dict[int, int],
        kept: dict[int, int],
        ends: list[int],
    ) -> Saved:
        """Return the bytes a call's result shares with operands."""
        answer = call.answer
        rule = self._program.operators[call.operator].rule
        if rule is None or not self._lives.may_overwrite(rule):
            return Saved(0, 0)
        above = 0
        rows = answer.operand[1] - answer.operand[0]
        if answer.way == "padded":
            operand = self._images[call.operator][0]
            dying = {operand: self._padded(call)}
            rows += answer.above + answer.below
        else:
            above = answer.operand[0] - answer.made[0] * rule.window.stride + rule.window.before
            dying = {}
            for operand in self._images[call.operator]:
                if operand not in self._scope.inside:
                    dying[operand] = ends[position] - ends[position + 1]
                elif readers[operand][-1][0] == position:
                    dying[operand] = live.get(operand, 0) - kept.get(operand, 0)
        made = answer.made[1] - answer.made[0]
        return self._lives.saved(call.operator, dying, rows, made, above)

    def _kept(self, index: int) -> dict[int, int]:
        """Return the bytes of each held tensor that the next strip needs."""
        if index + 1 == len(self._strips):
            return {}
        now, later = self._strips[index].needs, self._strips[index + 1].needs
        return {
            tensor: max(0, now[tensor][1] - later[tensor][0]) * self._rows[tensor]
            for tensor in self._region.held
            if tensor in now and tensor in later
        }

    def _padded(self, call: StripCall) -> int:
        """Return the bytes of a call's padded operand."""
        operator = self._program.operators[call.operator]
        if operator.rule is None:
            return 0
        operand = operator.inputs[operator.rule.images[0]]
        if operand is None:
            return 0
        tensor = self._program.tensors[operand]
        answer = call.answer
        count = answer.operand[1] - answer.operand[0] + answer.above + answer.below
        width = tensor.shape[2] + sum(operator.rule.window.columns)
        return count * width * tensor.shape[3] * tensor.item
