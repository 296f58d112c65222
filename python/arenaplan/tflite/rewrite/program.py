"""A model as rewriting sees it: operators in order, images, and the rules for their rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from arenaplan.graph.ops.window_ops import Side, lead
from arenaplan.tflite.rewrite.image_rows import Answer, Span, Window, answers
from arenaplan.tflite.rewrite.patch import Shape


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a program."""

    name: str
    shape: Shape
    item: int
    """Bytes of an element; 0 if elements are smaller than a byte."""
    is_stored: bool
    """Whether the tensor has memory of its own outside of the arena, as constants have."""

    @property
    def is_image(self) -> bool:
        """Whether a range of rows is a range of bytes."""
        return len(self.shape) == 4 and self.shape[0] == 1 and self.item > 0 and min(self.shape) > 0

    @property
    def row(self) -> int:
        """Bytes of a row of an image."""
        return self.shape[2] * self.shape[3] * self.item

    @property
    def size(self) -> int:
        """Bytes."""
        count = self.item
        for dim in self.shape:
            count *= dim
        return count


Order: TypeAlias = Literal["pixels", "elements", "places", "unknown"]


class Slab(NamedTuple):
    """An operand or result of one call: rows, columns, and bytes of a pixel."""

    rows: int
    columns: int
    pixel: int


@dataclass(frozen=True, slots=True)
class RowRule:
    """How an operator works by rows; its result is output 0, and it has no other."""

    images: tuple[int, ...]
    """Positions of the inputs that are read by rows; all others are needed whole."""
    window: Window
    order: Order = "unknown"
    """
    In which steps the kernel reads and writes, one after the other. Reference kernels alone are
    known to go pixel by pixel, or element by element in the order of memory; ``"places"`` and
    ``"elements"`` have the result at the address of an operand with every kernel.
    """


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a program."""

    name: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    rule: RowRule | None
    """``None`` if the operator cannot be split by rows."""
    work: int
    """Multiplications, or comparisons and sums of pooling; 0 if unknown."""
    time: float = 0.0
    """Expected time of the whole operator; the unit is the same for all operators."""


@dataclass(frozen=True, slots=True)
class Program:
    """Operators in the order in which they run."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    _answers: dict[tuple[int, Span, bool], Answer | None] = field(
        default_factory=dict, compare=False, repr=False
    )

    _distances: dict[tuple[int, int, Slab, Slab, int, int], int] = field(
        default_factory=dict, compare=False, repr=False
    )

    def answer(self, position: int, request: Span, *, padded: bool) -> Answer | None:
        """
        Return the call of an operator that makes some rows of its result, if there is one.

        A call that makes no row in vain is preferred, then the way that is asked for.
        """
        key = (position, request, padded)
        if key not in self._answers:
            self._answers[key] = self._find(position, request, padded=padded)
        return self._answers[key]

    def _find(self, position: int, request: Span, *, padded: bool) -> Answer | None:
        rule = self.operators[position].rule
        found = () if rule is None else answers(rule.window, request)
        for answer in found:
            if answer.made == request and answer.way != "padded":
                return answer
        wanted = "padded" if padded else "kept"
        return next((a for a in found if a.way == wanted), next(iter(found), None))

    def distance(self, rule: RowRule, operand: Slab, result: Slab, above: int, left: int) -> int:
        """
        Return the bytes by which the writing of a result is ahead of the reading at most.

        Parameters
        ----------
        rule : RowRule
            The operator, whose order is known.
        operand, result : Slab
            What one call reads and writes.
        above, left : int
            Rows and columns of padding that the call adds itself.
        """
        if rule.order in ("elements", "places"):
            return 0
        key = (rule.window.stride, rule.window.across, operand, result, above, left)
        if key not in self._distances:
            rows = Side(operand.rows, result.rows, rule.window.stride, above)
            columns = Side(operand.columns, result.columns, rule.window.across, left)
            self._distances[key] = lead(1, rows, columns, (operand.pixel, result.pixel), 1)
        return self._distances[key]

    @property
    def time(self) -> float:
        """Expected time of all operators."""
        return sum(operator.time for operator in self.operators)

    @property
    def work(self) -> int:
        """Work of all operators."""
        return sum(operator.work for operator in self.operators)
