"""Operands: the facts on which an operator's meaning may depend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple, Protocol, TypeAlias

Shape: TypeAlias = tuple[int, ...]

BITS: Mapping[str, int] = {
    "bool": 8,
    "int2": 2,
    "uint2": 2,
    "int4": 4,
    "uint4": 4,
    "float4_e2m1fn": 4,
    "int8": 8,
    "uint8": 8,
    "float8_e4m3fn": 8,
    "float8_e4m3fnuz": 8,
    "float8_e5m2": 8,
    "float8_e5m2fnuz": 8,
    "float8_e8m0fnu": 8,
    "int16": 16,
    "uint16": 16,
    "float16": 16,
    "bfloat16": 16,
    "int32": 32,
    "uint32": 32,
    "float32": 32,
    "int64": 64,
    "uint64": 64,
    "float64": 64,
    "complex64": 64,
    "complex128": 128,
}
"""Element size by type, in bits."""


class Operand(Protocol):
    """An array that an operator reads or writes, in row-major order."""

    @property
    def shape(self) -> Shape:
        """Dimensions."""

    @property
    def dtype(self) -> str:
        """Element type: a key in :data:`BITS`."""

    @property
    def is_fixed(self) -> bool:
        """Whether no output can share the bytes: constants and variables."""


class Array(NamedTuple):
    """A plain :class:`Operand`."""

    shape: Shape
    dtype: str
    is_fixed: bool = False


class Operands:
    """A node's operands; ``None`` for an omitted optional operand."""

    __slots__ = ("inputs", "outputs", "x", "y")

    def __init__(self, inputs: Sequence[Operand | None], outputs: Sequence[Operand | None]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.x = inputs[0] if inputs else None
        """The first input, if any."""
        self.y = outputs[0] if outputs else None
        """The first output, if any."""


def array_bytes(shape: Shape, dtype: str) -> int:
    """Return an array's bytes, with elements smaller than a byte packed."""
    return (prod(shape) * BITS[dtype] + 7) // 8


def size(operand: Operand) -> int:
    """Return an operand's bytes."""
    return array_bytes(operand.shape, operand.dtype)


def row(operand: Operand, axis: int) -> int:
    """Return the bytes between consecutive indices along a dimension."""
    return prod(operand.shape[axis + 1 :]) * BITS[operand.dtype] // 8


def from_front(axis: int, rank: int) -> int | None:
    """Return an axis counted from the front; negative axes count from the end."""
    axis += rank if axis < 0 else 0
    return axis if 0 <= axis < rank else None


def leading(operand: Operand, axis: int) -> int | None:
    """
    Return an axis if all dimensions before are 1, so that ranges along the axis are contiguous.
    """
    at = from_front(axis, len(operand.shape))
    is_range = at is not None and BITS[operand.dtype] >= 8 and prod(operand.shape[:at]) == 1
    return at if is_range else None
