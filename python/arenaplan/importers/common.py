"""Common parts of importers: sizes of arrays, and names fit for a message."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TypeAlias

from arenaplan.errors import InvalidDim, RankTooLarge, SizeOverflow

Shape: TypeAlias = tuple[int, ...]
Bind: TypeAlias = Mapping[str, int | Sequence[int]]
Source: TypeAlias = "str | os.PathLike[str] | bytes"
"""A model file, or the content of one."""

MAX_BYTES = 2**63 - 1
"""Most bytes that one array can have: the address space of a 64-bit machine."""

MAX_RANK = 1024
"""Most dimensions that a shape can have; arrays have 64, and no model comes near."""

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
"""Size of one element of each type."""


def quoted(name: str, limit: int = 80) -> str:
    """Return ``name`` in quotes, shortened and with unprintable characters escaped."""
    return repr(name) if len(name) <= limit else f"{name[:limit]!r}…"


def listed(names: Iterable[str], limit: int = 10) -> str:
    """Return the first few of ``names`` in quotes, and how many more there are."""
    names = list(names)
    text = ", ".join(quoted(name) for name in names[:limit])
    return text if len(names) <= limit else f"{text} and {len(names) - limit} more"


def array_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of an array, elements smaller than a byte packed."""
    return (prod(shape) * BITS[dtype] + 7) // 8


def checked_bytes(name: str, shape: Shape, dtype: str) -> int:
    """
    Return the bytes of value ``name``.

    A zero dimension makes an array empty, however large the others are.

    Raises
    ------
    SizeOverflow
        If no machine can address that many.
    RankTooLarge
        If the shape has absurdly many dimensions.
    """
    if len(shape) > MAX_RANK:
        raise RankTooLarge(f"value {quoted(name)} has {len(shape)} dimensions")
    size = (prod(shape) * BITS[dtype] + 7) // 8
    if size > MAX_BYTES:
        dims = "x".join(map(str, shape[:16])) + ("…" if len(shape) > 16 else "")
        raise SizeOverflow(f"value {quoted(name)} of shape {dims} and type {dtype} is too large")
    return size


def whole_number(number: object, what: str) -> int:
    """Return a dimension that a caller gave; refuse values that only look like a number."""
    if isinstance(number, bool):
        raise TypeError(f"{what} is {number!r}, not a whole number")
    try:
        dim = operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} is {number!r}, not a whole number") from None
    if dim < 0:
        raise InvalidDim(f"{what} is negative: {dim}")
    return dim
