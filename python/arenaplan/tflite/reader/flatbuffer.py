"""
Reading an unverified FlatBuffer.

Every range is checked against the file before reading, in the two methods :meth:`FlatBuffer.number`
and :meth:`FlatBuffer.numbers`. Tables can be shared, so a small file can describe a huge model; a
work budget proportional to the file size prevents this.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final

from arenaplan.base.errors import fault

WORK_PER_BYTE: Final = 16
"""Work budget per file byte."""

_TABLE_WORK: Final = 64
"""Work per table besides its bytes, for the objects made from the table."""


@cache
def _layout(code: str, count: int = 1) -> struct.Struct:
    """Return the layout for little-endian numbers."""
    return struct.Struct(f"<{count}{code}")


class FlatBuffer:
    """
    A FlatBuffer's bytes; each range is checked before reading.

    Parameters
    ----------
    data : bytes
        The file.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._budget = WORK_PER_BYTE * len(data)

    @property
    def work(self) -> int:
        """Work so far, at most :data:`WORK_PER_BYTE` per byte."""
        return WORK_PER_BYTE * len(self.data) - self._budget

    def spend(self, work: int) -> None:
        """Count work; refuse more work than the file's size justifies."""
        self._budget -= work
        if self._budget < 0:
            raise fault(
                "BudgetExceeded",
                f"the file of {len(self.data)} bytes describes a model many times its size",
            )

    def number(self, code: str, at: int, what: str) -> int:
        """Return the number with type ``code`` (as in :mod:`struct`) at byte ``at``."""
        return self.numbers(code, 1, at, what)[0]

    def numbers(self, code: str, count: int, at: int, what: str) -> tuple[int, ...]:
        """Return ``count`` neighboring numbers from byte ``at``."""
        width = _layout(code).size
        self.check(at, count * width, what)
        self.spend(count * width)
        # A cached layout per count would fill the cache with lengths from files.
        return tuple(n for (n,) in _layout(code).iter_unpack(self.data[at : at + count * width]))

    def check(self, at: int, size: int, what: str) -> None:
        """Refuse a byte range that is not inside the file."""
        if at < 0 or at + size > len(self.data):
            raise fault(
                "FlatbufferCorrupt",
                f"{what}: {size} bytes at {at} are not inside the file of {len(self.data)} bytes, "
                "which may be cut off",
            )

    def follow(self, at: int, what: str) -> int:
        """Return the position that the offset at byte ``at`` points to."""
        offset = self.number("I", at, what)
        if offset < 4:
            raise fault("FlatbufferCorrupt", f"{what}: an offset points at itself")
        return at + offset

    def root(self, what: str) -> Table:
        """Return the table that the file begins with."""
        return Table(self, self.follow(0, what), what)


class Table:
    """
    A FlatBuffer table: fields by slot, any of which may be absent.

    Parameters
    ----------
    buffer : FlatBuffer
        The table's buffer.
    at : int
        The table's first byte.
    what : str
        The table's description, for messages.
    """

    __slots__ = ("_fields", "_size", "at", "buffer", "what")

    def __init__(self, buffer: FlatBuffer, at: int, what: str) -> None:
        self.buffer = buffer
        self.at = at
        self.what = what
        buffer.spend(_TABLE_WORK)
        vtable = at - buffer.number("i", at, what)
        length, self._size = buffer.numbers("H", 2, vtable, f"{what}: its vtable")
        if length < 4 or length % 2:
            raise fault("FlatbufferCorrupt", f"{what}: its vtable has {length} bytes")
        buffer.check(at, max(4, self._size), what)
        self._fields = buffer.numbers("H", length // 2 - 2, vtable + 4, f"{what}: its vtable")

    @property
    def slots(self) -> int:
        """Number of slots, present or absent."""
        return len(self._fields)

    def __contains__(self, slot: int) -> bool:
        """Whether a field is present."""
        return slot < len(self._fields) and self._fields[slot] != 0

    def position(self, slot: int, size: int) -> int | None:
        """Return the first byte of a field with ``size`` bytes, if present."""
        if slot not in self:
            return None
        offset = self._fields[slot]
        if offset < 4 or offset + size > self._size:
            raise fault("FlatbufferCorrupt", f"{self.what}: field {slot} lies outside the table")
        return self.at + offset

    def number(self, slot: int, code: str, default: int = 0) -> int:
        """Return a number field, or the default."""
        at = self.position(slot, _layout(code).size)
        return default if at is None else self.buffer.number(code, at, self.what)

    def target(self, slot: int) -> int | None:
        """Return the byte that a field points to, if present."""
        at = self.position(slot, 4)
        return None if at is None else self.buffer.follow(at, self.what)

    def table(self, slot: int, what: str) -> Table | None:
        """Return a table field, if present."""
        at = self.target(slot)
        return None if at is None else Table(self.buffer, at, what)

    def tables(self, slot: int, what: str) -> list[Table]:
        """Return a field with a vector of tables; empty if absent."""
        return [
            Table(self.buffer, at, f"{what} {index}")
            for index, at in enumerate(self.targets(slot, what))
        ]

    def targets(self, slot: int, what: str) -> list[int]:
        """Return the bytes that a table vector's elements point to."""
        vector = self._vector(slot, 4)
        if vector is None:
            return []
        start, count = vector
        offsets = self.buffer.numbers("I", count, start, f"{self.what}: its {what}s")
        return [start + 4 * index + offset for index, offset in enumerate(offsets)]

    def numbers(self, slot: int, code: str) -> tuple[int, ...] | None:
        """Return a field with a vector of numbers, if present."""
        vector = self._vector(slot, _layout(code).size)
        if vector is None:
            return None
        start, count = vector
        return self.buffer.numbers(code, count, start, f"{self.what}: field {slot}")

    def span(self, slot: int) -> tuple[int, int] | None:
        """Return the start and length of a byte vector field, without reading the bytes."""
        return self._vector(slot, 1)

    def string(self, slot: int) -> str | None:
        """Return a text field, if present."""
        vector = self._vector(slot, 1)
        if vector is None:
            return None
        start, count = vector
        self.buffer.spend(count)
        if self.buffer.number("B", start + count, f"{self.what}: field {slot}") != 0:
            raise fault("FlatbufferCorrupt", f"{self.what}: the text in field {slot} has no end")
        return self.buffer.data[start : start + count].decode("utf-8", "backslashreplace")

    def _vector(self, slot: int, width: int) -> tuple[int, int] | None:
        """Return a vector's first byte and length, if present."""
        at = self.target(slot)
        if at is None:
            return None
        what = f"{self.what}: field {slot}"
        count = self.buffer.number("I", at, what)
        self.buffer.check(at + 4, count * width, what)
        return at + 4, count
