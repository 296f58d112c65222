"""
Image operators, row by row.

An image is a tensor ``1 x height x width x channels`` in this memory order, so a row range is a
byte range. A result row needs a window of operand rows. :func:`answers` lists the ways in which one
call of the unchanged kernel on some operand rows yields given result rows, bit by bit:

- ``"kept"``: the operator with unchanged padding. Near the end of the given rows, the kernel sees
  padding where the whole image has rows; the affected result rows have wrong values and must be cut
  off.
- ``"bare"``: the operator without padding, where no padding is needed.
- ``"padded"``: explicit padding with the value that represents zero, then the operator without
  padding. Products with padding are zero, so sums are equal. Pooling has no such value: averages do
  not count padding, and maxima never see padding.
- ``"moved"``: an operator that pads explicitly, with new amounts.

The first row must have the right stride phase, which depends on how the format divides padding
between both ends. The search therefore tests ranges instead of using a formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Span: TypeAlias = tuple[int, int]
"""Rows from the first to before the last."""

Way: TypeAlias = Literal["kept", "bare", "padded", "moved"]


@dataclass(frozen=True, slots=True)
class RowWindow:
    """How result rows depend on operand rows."""

    kernel: int
    """Rows that a result row sees, from the first to the last tap."""
    stride: int
    before: int
    """Padding rows in front of the first row."""
    rows: int
    """Operand rows."""
    made: int
    """Result rows."""
    is_same: bool
    """
    Whether the operator pads so that the result has the operand's rows divided by the stride;
    otherwise there is no padding.
    """
    columns: tuple[int, int]
    """Padding columns on the left and right."""
    is_linear: bool
    """Whether padding adds zeros, as in a convolution."""
    is_padding: bool = False
    """Whether the operator only pads."""
    across: int = 1
    """Column stride."""

    def sees(self, row: int) -> Span:
        """Return the operand rows that a result row depends on."""
        first = row * self.stride - self.before
        return max(0, first), min(self.rows, first + self.kernel)

    def needs(self, span: Span) -> Span:
        """Return the operand rows that some result rows depend on."""
        if self.is_padding:
            first, last = (min(max(0, row - self.before), self.rows) for row in span)
            return first, last
        return self.sees(span[0])[0], self.sees(span[1] - 1)[1]

    @property
    def is_pointwise(self) -> bool:
        """Whether each result row depends only on the operand row in the same place."""
        return self.kernel == self.stride == 1 and not self.is_padding


class Answer(NamedTuple):
    """One kernel call on some operand rows."""

    way: Way
    operand: Span
    """Operand rows passed to the kernel."""
    made: Span
    """
    Result rows by place; rows outside the request can be wrong, and may lie outside the result.
    """
    above: int = 0
    """Explicit padding rows above the operand."""
    below: int = 0


def answers(window: RowWindow, request: Span) -> tuple[Answer, ...]:
    """
    Return the ways to make some result rows, each way at most once.

    Parameters
    ----------
    window : RowWindow
        The operator.
    request : Span
        Result rows, at least one.
    """
    return tuple(_answers(window, request))


def _answers(window: RowWindow, request: Span) -> Iterator[Answer]:
    need = window.needs(request)
    first = request[0] * window.stride - window.before
    last = (request[1] - 1) * window.stride - window.before + window.kernel
    above, below = max(0, -first), max(0, last - window.rows)
    if need[0] >= need[1]:
        return  # Rows that see padding only.
    if window.is_padding:
        yield Answer("moved", need, request, above, below)
        return
    if not window.is_same:
        yield Answer("kept", need, request)
        return
    kept = _kept(window, request, need)
    if kept is not None:
        yield kept
    if window.columns == (0, 0) and above == below == 0:
        yield Answer("bare", need, request)
    elif window.is_linear:
        yield Answer("padded", need, request, above, below)


def _kept(window: RowWindow, request: Span, need: Span) -> Answer | None:
    """Return the answer with the operator's own padding that makes the fewest rows."""
    reach = window.kernel + window.stride
    best: tuple[int, int, Answer] | None = None
    for start in range(need[0], max(-1, need[0] - reach - 1), -1):
        for stop in range(need[1], min(window.rows, need[1] + reach) + 1):
            made = _made(window, start, stop)
            if made is None or not made[0] <= request[0] or not request[1] <= made[1]:
                continue
            # All rows between are as good as both ends: windows move with the rows.
            ends = (request[0], request[1] - 1)
            if all(start <= a and b <= stop for a, b in map(window.sees, ends)):
                rank = (made[1] - made[0], stop - start)
                if best is None or rank < best[:2]:
                    best = (*rank, Answer("kept", (start, stop), made))
    return None if best is None else best[2]


def _made(window: RowWindow, start: int, stop: int) -> Span | None:
    """Return the rows made from an operand range, if in phase."""
    count = -(-(stop - start) // window.stride)
    padding = max((count - 1) * window.stride + window.kernel - (stop - start), 0)
    first, rest = divmod(start - padding // 2 + window.before, window.stride)
    return None if rest else (first, first + count)
