"""
Regions: neighboring operators that run strip by strip.

A region's result is cut into row strips. Each strip is computed from the needed operand rows
through all operators in the region before the next strip begins (patch-based inference: MCUNetV2,
Lin et al. 2021). Rows needed by two strips are computed twice, or kept between strips in a line
buffer (StreamNet, Zheng et al. 2023).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from arenaplan.tflite.rewrite.image_rows import Answer, Span
from arenaplan.tflite.rewrite.program import OperatorProgram

MOST_OPERANDS: Final = 10
"""Most operands of a concatenation in TensorFlow Lite Micro (``kMaxInputNum``)."""


class SplitRegion(NamedTuple):
    """A run of operators, with a way to split the run."""

    first: int
    last: int
    cuts: tuple[int, ...]
    """Result rows at which a new strip begins, except the first."""
    padded: frozenset[int] = frozenset()
    """Operators that are padded explicitly wherever that is possible."""
    held: frozenset[int] = frozenset()
    """Tensors inside the region whose rows are kept between strips."""


class StripCall(NamedTuple):
    """An operator call for a strip."""

    operator: int
    answer: Answer
    request: Span
    """Result rows that are needed and not yet computed."""


class Strip(NamedTuple):
    """All calls for a strip."""

    calls: tuple[StripCall, ...]
    needs: dict[int, Span]
    """By tensor that the region computes, the rows that this strip uses."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Facts about an operator run that hold for every split."""

    first: int
    last: int
    result: int
    """The region's only tensor that is used outside."""
    inside: frozenset[int]
    """Tensors that the region computes, the result included."""
    operands: frozenset[int]
    """Images that the region reads by rows and does not compute."""


def scope_of(program: OperatorProgram, first: int, last: int) -> Scope | None:
    """Return the facts about an operator run; None if the run cannot be split."""
    inside: set[int] = set()
    operands: set[int] = set()
    for position in range(first, last + 1):
        operator = program.operators[position]
        if operator.rule is None:
            return None
        for place, index in enumerate(operator.inputs):
            if index is None or program.tensors[index].is_stored:
                continue
            if place not in operator.rule.images:
                if index in inside:
                    return None  # Needed whole.
            elif index not in inside:
                operands.add(index)
        inside.add(operator.outputs[0])
    outside = set(program.outputs)
    for position, operator in enumerate(program.operators):
        if position > last:
            outside.update(i for i in operator.inputs if i is not None)
    results = inside & outside
    if len(results) != 1 or program.operators[last].outputs[0] not in results:
        return None
    used = {
        i
        for position in range(first, last + 1)
        for i in program.operators[position].inputs
        if i is not None
    }
    if not inside - results <= used:
        return None
    return Scope(first, last, results.pop(), frozenset(inside), frozenset(operands))


def even_cuts(rows: int, strips: int) -> tuple[int, ...]:
    """Return cuts into strips with nearly equal numbers of rows."""
    return tuple(rows * strip // strips for strip in range(1, strips))


def strips_of(
    program: OperatorProgram, scope: Scope, region: SplitRegion
) -> tuple[Strip, ...] | None:
    """
    Return each strip's calls; None if the split is impossible.

    Rows held by the region are computed only once.
    """
    rows = program.tensors[scope.result].shape[1]
    edges = (0, *region.cuts, rows)
    strips: list[Strip] = []
    done: dict[int, int] = {}
    for start, stop in pairwise(edges):
        if start >= stop:
            return None
        strip = _strip(program, scope, region, (start, stop), done)
        if strip is None:
            return None
        strips.append(strip)
        for tensor in region.held:
            if tensor in strip.needs:
                done[tensor] = max(done.get(tensor, 0), strip.needs[tensor][1])
    return tuple(strips)


def _strip(
    program: OperatorProgram, scope: Scope, region: SplitRegion, span: Span, done: dict[int, int]
) -> Strip | None:
    """Return the calls that make some result rows, last operator first."""
    needs: dict[int, Span] = {scope.result: span}
    calls: list[StripCall] = []
    for position in range(region.last, region.first - 1, -1):
        operator = program.operators[position]
        rule, result = operator.rule, operator.outputs[0]
        if rule is None or result not in needs:
            continue
        start, stop = needs[result]
        if result in region.held and result in done:
            # Rows made by another strip are available, unless released.
            if done[result] >= stop:
                return None
            start = max(start, done[result])
        answer = program.answer(position, (start, stop), padded=position in region.padded)
        if answer is None:
            return None
        calls.append(StripCall(position, answer, (start, stop)))
        for place in rule.images:
            operand = operator.inputs[place]
            if operand in scope.inside and operand is not None:
                first, last = needs.get(operand, answer.operand)
                needs[operand] = (min(first, answer.operand[0]), max(last, answer.operand[1]))
    return Strip(tuple(reversed(calls)), needs)


def extra_work(program: OperatorProgram, strips: Iterable[Strip]) -> int:
    """Return the work that strips do beyond the whole operators' work, in the same unit."""
    made: dict[int, int] = {}
    for strip in strips:
        for call in strip.calls:
            rows = call.answer.made[1] - call.answer.made[0]
            made[call.operator] = made.get(call.operator, 0) + rows
    extra = 0
    for position, rows in made.items():
        operator = program.operators[position]
        whole = program.tensors[operator.outputs[0]].shape[1]
        extra += operator.work * (rows - whole) // whole
    return extra
