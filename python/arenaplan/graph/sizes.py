"""Array sizes in model files, checked against absurd figures, and model sources."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from arenaplan.base.errors import InvalidOption, fault
from arenaplan.base.quoting import quoted
from arenaplan.graph.ops import Shape, array_bytes

Bind: TypeAlias = Mapping[str, int | Sequence[int]]
"""Numbers by dimension name, and shapes by input name."""
OpenBind: TypeAlias = Mapping[str, int | str | Sequence[int]]
"""The same with equations, such as ``"past + 1"``."""
Source: TypeAlias = "str | os.PathLike[str] | bytes"
"""A model file, or a model file's content."""

MAX_BYTES = 2**63 - 1
"""Largest array, in bytes: the address space of a 64-bit machine."""

MAX_RANK = 1024
"""Most dimensions that a shape can have; arrays have 64, and no model comes near."""


def checked_bytes(name: str, shape: Shape, dtype: str) -> int:
    """
    Return the bytes in value ``name``.

    A zero dimension makes an array empty, however large the other dimensions are.

    Raises
    ------
    SizeError
        If no machine can address so many bytes.
    SizeError
        If the shape has absurdly many dimensions.
    """
    if len(shape) > MAX_RANK:
        raise fault("RankTooLarge", f"value {quoted(name)} has {len(shape)} dimensions")
    size = array_bytes(shape, dtype)
    if size > MAX_BYTES:
        dims = "x".join(map(str, shape[:16])) + ("…" if len(shape) > 16 else "")
        raise fault(
            "SizeOverflow",
            f"value {quoted(name)} of shape {dims} and type {dtype} is too large",
        )
    return size


def whole_number(number: object, what: str) -> int:
    """Return a dimension that a caller gave; refuse values that only look like a number."""
    if isinstance(number, bool):
        raise InvalidOption(f"{what} is {number!r}, not a whole number")
    try:
        dim = operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidOption(f"{what} is {number!r}, not a whole number") from None
    if dim < 0:
        raise fault("InvalidDim", f"{what} is negative: {dim}")
    return dim
