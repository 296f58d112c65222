"""
Operators on images, row by row.

An image is a tensor of ``1 x height x width x channels`` in this order of memory, so that a range
of rows is a range of bytes. A result row of an operator needs a window of rows of its operand.
:func:`answers` lists the ways in which one call of the unchanged kernel on some rows of the
operand yields given rows of the result, bit by bit:

- ``"kept"``: the operator with the padding it has. Near the end of the rows that it is given, it
  sees padding where the whole image has rows, and such result rows have other values. They are
  part of the answer and must be cut off.
- ``"bare"``: the operator without padding, where no padding is needed.
- ``"padded"``: explicit padding with the value that stands for zero, then the operator without
  padding. Products with padding are zero, so that sums are equal. Pooling has no such value: the
  count of an average leaves padding out, and a maximum never sees it.
- ``"moved"``: an operator that pads explicitly, with other amounts.

The first row must be in the right phase of the stride, which depends on how the format divides
padding between both ends. The search therefore tries ranges and tests each, instead of a formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Span: TypeAlias = tuple[int, int]
"""Rows from the first to before the last."""

Way: TypeAlias = Literal["kept", "bare", "padded", "moved"]


@dataclass(frozen=True, slots=True)
class Window:
    """How the rows of a result depend on those of the operand."""

    kernel: int
    """Rows that one result row sees, from the first to the last tap."""
    stride: int
    before: int
    """Rows of padding in front of the first row."""
    rows: int
    """Rows of the operand."""
    made: int
    """Rows of the result."""
    is_same: bool
    """Whether the operator pads so that the result has as many rows as the operand, divided by the
    stride; otherwise it pads nothing."""
    columns: tuple[int, int]
    """Columns of padding on the left and on the right."""
    is_linear: bool
    """Whether padding adds zeros, as in a convolution."""
    is_padding: bool = False
    """Whether the operator does nothing but pad."""
    across: int = 1
    """Stride of columns."""

    def sees(self, row: int) -> Span:
        """Return the rows of the operand that a result row depends on."""
        first = row * self.stride - self.before
        return max(0, first), min(self.rows, first + self.kernel)

    def needs(self, span: Span) -> Span:
        """Return the rows of the operand that some result rows depend on."""
        if self.is_padding:
            first, last = (min(max(0, row - self.before), self.rows) for row in span)
            return first, last
        return self.sees(span[0])[0], self.sees(span[1] - 1)[1]

    @property
    def is_pointwise(self) -> bool:
        """Whether each result row depends on the row in its place alone."""
        return self.kernel == self.stride == 1 and not self.is_padding


class Answer(NamedTuple):
    """One call of a kernel on some rows of its operand."""

    way: Way
    operand: Span
    """Rows of the operand that the kernel is given."""
    made: Span
    """Rows of the result by their place; those outside of the request can be wrong, and may lie
    outside of the result."""
    above: int = 0
    """Rows of explicit padding above the operand."""
    below: int = 0


def answers(window: Window, request: Span) -> tuple[Answer, ...]:
    """
    Return the ways to make some rows of a result, each way at most once.

    Parameters
    ----------
    window : Window
        The operator.
    request : Span
        Rows of the result, at least one.
    """
    return tuple(_answers(window, request))


def _answers(window: Window, request: Span) -> Iterator[Answer]:
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


def _kept(window: Window, request: Span, need: Span) -> Answer | None:
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


def _made(window: Window, start: int, stop: int) -> Span | None:
    """Return the rows that the operator makes of a range of its operand, if in phase."""
    count = -(-(stop - start) // window.stride)
    padding = max((count - 1) * window.stride + window.kernel - (stop - start), 0)
    first, rest = divmod(start - padding // 2 + window.before, window.stride)
    return None if rest else (first, first + count)
