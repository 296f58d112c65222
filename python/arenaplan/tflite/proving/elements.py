"""
Numbers that stand for elements of tensors.

Two elements with equal numbers have equal bits in every run. A non-negative number is an element
made by an input or operator of the original. Negative numbers are, from the top: places outside an
image, elements with known values, elements that operators make from known values only, and elements
in doubt, which equal no element, not even themselves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arenaplan.base.errors import UnsupportedModel
from arenaplan.base.quoting import quoted

Shape: TypeAlias = "tuple[int, ...]"
Elements: TypeAlias = "NDArray[np.int64]"

OUTSIDE: Final = -1
"""A place outside an image, which a window skips."""

_FIRST_VALUE: Final = -2
"""The value whose bits are 0; larger bits are below."""

_LAST_VALUE: Final = _FIRST_VALUE - (1 << 32) + 1

_FIRST_DERIVED: Final = -(1 << 34)
"""First result made from known values; later results are below."""

DOUBT: Final = -(1 << 40)
"""Numbers up to this bound are elements in doubt."""

_BITS: Final = {
    **dict.fromkeys((3, 6, 9, 21, 22), 8),
    **dict.fromkeys((1, 7, 16, 18), 16),
    **dict.fromkeys((0, 2, 13, 15), 32),
    **dict.fromkeys((4, 8, 10, 12), 64),
    11: 128,
    17: 4,
    19: 2,
    20: 4,
}
"""Element bits by type. Strings and variants are absent."""

MOST_ELEMENTS: Final = 1 << 27
"""Most elements in all tensors of a model."""


def value(bits: int) -> int:
    """Return the number for an element with a value; ``bits`` is the value as unsigned bits."""
    return _FIRST_VALUE - bits


def is_value(number: int) -> bool:
    """Return whether a number stands for a known value."""
    return _LAST_VALUE <= number <= _FIRST_VALUE


def bits_of(number: int) -> int:
    """Return a known value's bits."""
    return _FIRST_VALUE - number


def item_bytes(type_: int) -> int:
    """Return an element's bytes in memory; 0 if unknown. Small elements are not packed."""
    bits = _BITS.get(type_, 0)
    return max(8, bits) // 8 if bits else 0


def values_of(content: bytes, type_: int, shape: Shape) -> Elements | None:
    """Return numbers for a constant's elements, if these have 8, 16 or 32 bits."""
    bits = _BITS.get(type_, 0)
    if bits not in (8, 16, 32) or len(content) != prod(shape) * bits // 8:
        return None
    found = np.frombuffer(content, f"<u{bits // 8}").astype(np.int64)
    return (_FIRST_VALUE - found).reshape(shape)


class ElementOrigin(NamedTuple):
    """The original tensor whose elements have numbers from ``first`` on."""

    first: int
    name: str
    shape: Shape


class Doubt(NamedTuple):
    """Why elements are in doubt."""

    operator: int
    reason: str


@dataclass(slots=True)
class Names:
    """Numbers given so far, for both models."""

    _next: int = 0
    _origins: list[ElementOrigin] = field(default_factory=list)
    _contents: dict[tuple[object, ...], int] = field(default_factory=dict)
    _derived: dict[tuple[object, ...], int] = field(default_factory=dict)
    _last_derived: int = _FIRST_DERIVED
    _doubts: list[Doubt] = field(default_factory=list)

    def fresh(self, name: str, shape: Shape) -> Elements:
        """Return numbers for a tensor made by the original."""
        count = prod(shape)
        if self._next + count > MOST_ELEMENTS:
            raise UnsupportedModel(
                f"tensor {quoted(name)}: the model has more than {MOST_ELEMENTS:,} elements"
            )
        self._origins.append(ElementOrigin(self._next, name, shape))
        found = np.arange(self._next, self._next + count, dtype=np.int64).reshape(shape)
        self._next += count
        return found

    def content(self, key: tuple[object, ...], name: str, shape: Shape) -> Elements:
        """Return numbers for a constant whose elements have no value numbers."""
        if key not in self._contents:
            self._contents[key] = len(self._origins)
            return self.fresh(name, shape)
        first = self._origins[self._contents[key]].first
        return np.arange(first, first + prod(shape), dtype=np.int64).reshape(shape)

    def derived(self, key: tuple[object, ...], count: int) -> Elements:
        """
        Return numbers for elements that an operator makes from known values only.

        Equal keys, which stand for the operator's parameters and the values, give equal numbers.
        """
        if key not in self._derived:
            self._derived[key] = self._last_derived
            self._last_derived -= count
        first = self._derived[key]
        return np.arange(first, first - count, -1, dtype=np.int64)

    def doubt(self, operator: int, reason: str) -> int:
        """Return the number for elements in doubt."""
        self._doubts.append(Doubt(operator, reason))
        return DOUBT - len(self._doubts) + 1

    def why(self, number: int) -> Doubt:
        """Return the reason for a doubt."""
        return self._doubts[DOUBT - number]

    def told(self, number: int) -> str:
        """Return text for an element."""
        if number <= DOUBT:
            return "a value that is not proven"
        if number == OUTSIDE:
            return "nothing"
        if is_value(number):
            return f"the constant {bits_of(number):#x}"
        if number < 0:
            return "what an operator makes of constants"
        origin = self._origins[bisect_right(self._origins, number, key=lambda o: o.first) - 1]
        return f"{place(number - origin.first, origin.shape)} of tensor {quoted(origin.name)}"


def first_twins(*tables: Elements) -> Sequence[Elements]:
    """Return, per row in each table, the index of the first equal row over all tables."""
    whole = np.concatenate(tables)
    _, first, group = np.unique(whole, axis=0, return_index=True, return_inverse=True)
    return np.split(first[group.ravel()], np.cumsum([len(table) for table in tables])[:-1])


def place(position: int, shape: Shape) -> str:
    """Return text for an element's place: the row, if the tensor is an image."""
    where = [int(i) for i in np.unravel_index(position, shape)] if shape else []
    if len(shape) == 4:
        return f"row {where[1]} (column {where[2]}, channel {where[3]})"
    return f"element {where}"
