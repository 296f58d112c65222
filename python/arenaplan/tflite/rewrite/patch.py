"""
A change to a model's operators, independent of file formats.

A patch replaces a model's operators with a list of operators: kept operators, old operators
repeated on other tensors, and operators that only move elements. Tensors have numbers: numbers
below the count of old tensors are old tensors, larger numbers are new tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from arenaplan.base.errors import InternalError

Shape: TypeAlias = tuple[int, ...]

Mover: TypeAlias = Literal["slice", "pad", "concat"]
"""Operators that only move elements; the writer knows the file format's names."""


class NewTensor(NamedTuple):
    """A computed tensor, with an old tensor's element type and quantization."""

    name: str
    like: int
    shape: Shape


class NewConstant(NamedTuple):
    """A constant with 32-bit numbers."""

    name: str
    shape: Shape
    values: tuple[int, ...]


class Kept(NamedTuple):
    """An unchanged old operator, by position."""

    operator: int


class Repeated(NamedTuple):
    """An old operator with the same parameters on other tensors."""

    operator: int
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    unpadded: bool
    """Whether the operator's padding is removed."""


class Moved(NamedTuple):
    """An operator that only moves elements."""

    kind: Mover
    inputs: tuple[int, ...]
    output: int
    axis: int = 0
    """A concatenation's dimension."""


Step: TypeAlias = Kept | Repeated | Moved


@dataclass(frozen=True, slots=True)
class Patch:
    """New tensors and the new operator list."""

    old_tensors: int
    """Number of tensors before the change."""
    tensors: tuple[NewTensor | NewConstant, ...]
    steps: tuple[Step, ...]

    def new(self, number: int) -> NewTensor | NewConstant:
        """Return a new tensor by number."""
        if not 0 <= number - self.old_tensors < len(self.tensors):
            raise InternalError(f"the patch has no new tensor {number}")
        return self.tensors[number - self.old_tensors]

    def is_new(self, number: int) -> bool:
        """Return whether a number names a new tensor."""
        return number >= self.old_tensors
