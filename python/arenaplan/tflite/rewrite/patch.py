"""
A change of a model's operators, free of any file format.

A patch replaces the operators of a model by a list of others: operators that stay, operators that
repeat an old one on other tensors, and operators that only move elements. A tensor is named by a
number: numbers below the count of old tensors are old tensors, larger ones are new tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from arenaplan.base.errors import InternalError

Shape: TypeAlias = tuple[int, ...]

Mover: TypeAlias = Literal["slice", "pad", "concat"]
"""Operators that only move elements; names of the file format belong to the writer."""


class Rows(NamedTuple):
    """
    Rows of an old tensor that a tensor holds.

    Row ``i`` of the tensor is row ``start + i`` of the old one. Rows outside of ``exact`` have
    other values than the old tensor: an operator has seen padding where the old one saw rows.
    """

    tensor: int
    start: int
    stop: int
    exact: tuple[int, int]


class NewTensor(NamedTuple):
    """A tensor that is computed; element type and quantization are those of an old tensor."""

    name: str
    like: int
    shape: Shape
    rows: Rows | None
    """``None`` for the result of a padding, whose border is no part of an old tensor."""


class NewConstant(NamedTuple):
    """A constant of 32-bit numbers."""

    name: str
    shape: Shape
    values: tuple[int, ...]


class Kept(NamedTuple):
    """An old operator as it is, by its position."""

    operator: int


class Repeated(NamedTuple):
    """An old operator with the same parameters on other tensors."""

    operator: int
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    unpadded: bool
    """Whether the operator pads nothing, instead of the padding that it had."""


class Moved(NamedTuple):
    """An operator that only moves elements."""

    kind: Mover
    inputs: tuple[int, ...]
    output: int
    axis: int = 0
    """Dimension of a concatenation."""


Step: TypeAlias = Kept | Repeated | Moved


@dataclass(frozen=True, slots=True)
class Patch:
    """New tensors and the new list of operators."""

    old_tensors: int
    """Count of the tensors before the change."""
    tensors: tuple[NewTensor | NewConstant, ...]
    steps: tuple[Step, ...]

    def new(self, number: int) -> NewTensor | NewConstant:
        """Return a new tensor by its number."""
        if not 0 <= number - self.old_tensors < len(self.tensors):
            raise InternalError(f"the patch has no new tensor {number}")
        return self.tensors[number - self.old_tensors]

    def is_new(self, number: int) -> bool:
        """Return whether a number names a new tensor."""
        return number >= self.old_tensors


def identity(old_tensors: int, old_operators: int) -> Patch:
    """Return the patch that keeps every operator."""
    return Patch(old_tensors, (), tuple(Kept(position) for position in range(old_operators)))
