"""Whole numbers and byte sizes from callers."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from fractions import Fraction
from typing import Final, TypeVar

from arenaplan.base.errors import InvalidOption, fault

_Item = TypeVar("_Item")

_UNITS: Final = {"": 1, "b": 1} | {
    name: 1 << (10 * power)
    for power, letter in enumerate("kmgt", 1)
    for name in (letter, f"{letter}b", f"{letter}ib")
}


def parse_size(text: str) -> int:
    """
    Parse a size in bytes such as ``64KiB``, ``1.5M`` or ``65536``.

    Units are powers of 1024, in either case.

    Raises
    ------
    SizeError
        If the size is not a whole number of bytes.

    Examples
    --------
    >>> parse_size("64KiB"), parse_size("1.5m")
    (65536, 1572864)
    """
    number = text.strip()
    digits = len(number) - len(number.lstrip("0123456789."))
    amount, unit = number[:digits], number[digits:].strip().lower()
    try:
        if not number.isascii() or digits > 20:
            raise ValueError
        size = Fraction(amount) * _UNITS[unit]
        if size.denominator != 1:
            raise ValueError
    except (KeyError, ValueError):
        message = f"{text!r} is not a number of bytes, such as 65536, 64KiB or 8M"
        raise fault("InvalidSize", message) from None
    return int(size)


def whole_number(number: object, what: str) -> int:
    """Return ``number`` as an int, refusing booleans and fractions."""
    if not isinstance(number, bool):
        try:
            return operator.index(number)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise InvalidOption(f"{what} is {number!r}, not a whole number")


def elements_of(values: Iterable[_Item], what: str) -> list[_Item]:
    """Return ``values`` as a list, refusing text and whatever has no elements."""
    if not isinstance(values, (str, bytes)):
        try:
            return list(values)
        except TypeError:
            pass
    raise InvalidOption(f"{what}: {values!r} is not a list")


def size_of(size: object, what: str) -> int:
    """
    Return a size in bytes, given as a number or as text with a unit.

    Examples
    --------
    >>> size_of(4096, "capacity"), size_of("4KiB", "capacity")
    (4096, 4096)
    """
    return parse_size(size) if isinstance(size, str) else whole_number(size, what)
