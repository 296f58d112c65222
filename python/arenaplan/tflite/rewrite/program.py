"""A model for rewriting: operators in order, images, and row rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from arenaplan.graph.ops.window_ops import Axis, lead
from arenaplan.tflite.rewrite.image_rows import Answer, RowWindow, Span, answers
from arenaplan.tflite.rewrite.patch import Shape


@dataclass(frozen=True, slots=True)
class ProgramTensor:
    """A program's tensor."""

    name: str
    shape: Shape
    item: int
    """Bytes per element; 0 if elements are smaller than a byte."""
    is_stored: bool
    """Whether the tensor's memory is outside the arena, as for constants."""

    @property
    def is_image(self) -> bool:
        """Whether a row range is a byte range."""
        return len(self.shape) == 4 and self.shape[0] == 1 and self.item > 0 and min(self.shape) > 0

    @property
    def row(self) -> int:
        """Bytes in an image row."""
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
    """A call's operand or result: rows, columns, and bytes per pixel."""

    rows: int
    columns: int
    pixel: int


@dataclass(frozen=True, slots=True)
class RowRule:
    """How an operator works by rows. The result is output 0, the only output."""

    images: tuple[int, ...]
    """Positions of inputs that are read by rows; all other inputs are needed whole."""
    window: RowWindow
    order: Order = "unknown"
    """
    The steps in which the kernel reads and writes, one after the other. Only reference kernels are
    known to go pixel by pixel, or element by element in memory order; with ``"places"`` and
    ``"elements"``, every kernel allows the result at an operand's address.
    """


@dataclass(frozen=True, slots=True)
class ProgramOperator:
    """A program's operator."""

    name: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    rule: RowRule | None
    """``None`` if the operator cannot be split by rows."""
    work: int
    """Multiplications, or pooling's comparisons and sums; 0 if unknown."""
    time: float = 0.0
    """Expected time for the whole operator; the unit is the same for all operators."""


@dataclass(frozen=True, slots=True)
class OperatorProgram:
    """Operators in execution order."""

    tensors: tuple[ProgramTensor, ...]
    operators: tuple[ProgramOperator, ...]
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
        Return an operator call that makes some result rows, if possible.

        Calls without useless rows are preferred, then the requested way.
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
        Return the most bytes by which writing the result is ahead of reading.

        Parameters
        ----------
        rule : RowRule
            The operator's rule, with a known order.
        operand, result : Slab
            Operand and result of one call.
        above, left : int
            Padding rows and columns that the call adds.
        """
        if rule.order in ("elements", "places"):
            return 0
        key = (rule.window.stride, rule.window.across, operand, result, above, left)
        if key not in self._distances:
            rows = Axis(operand.rows, result.rows, 1, rule.window.stride, before=above)
            columns = Axis(operand.columns, result.columns, 1, rule.window.across, before=left)
            self._distances[key] = lead(1, rows, columns, (operand.pixel, result.pixel), 1)
        return self._distances[key]

    @property
    def time(self) -> float:
        """Expected time for all operators."""
        return sum(operator.time for operator in self.operators)

    @property
    def work(self) -> int:
        """Total work."""
        return sum(operator.work for operator in self.operators)
