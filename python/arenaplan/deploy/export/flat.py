"""
Writes a FlatBuffer in front of an old FlatBuffer.

Offsets in a FlatBuffer point forward, relative to their own position. New objects therefore go in
front of the old content and may point into the old content, which moves as a whole by a multiple of
the strictest alignment, without changing a byte.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, cast

from arenaplan.base.errors import UnsupportedModel, fault
from arenaplan.tflite.reader.flatbuffer import Table
from arenaplan.tflite.reader.tflite_model import MAX_FILE

BLOCK: Final = 64
"""The old content moves by a multiple of this byte count; FlatBuffers align to at most 32."""

_DATA_ALIGNMENT: Final = 16


class Old(NamedTuple):
    """An object in the old content, by position."""

    at: int


class Scalar(NamedTuple):
    """A number in a table, with a type as in :mod:`struct`."""

    code: str
    value: int


class Numbers(NamedTuple):
    """A vector of numbers."""

    code: str
    values: Sequence[int]


class Content(NamedTuple):
    """A byte vector, aligned for tensor data."""

    data: bytes


class FlatText(NamedTuple):
    """A string."""

    text: str


Fields: TypeAlias = Mapping[int, "Item"]
"""A table: fields by slot."""

Item: TypeAlias = "Old | Scalar | Numbers | Content | FlatText | Mapping[int, Item] | list[Item]"
"""A list is a vector of tables."""


def copied(table: Table, scalars: Mapping[int, str], slots: int, changes: Fields) -> Fields:
    """
    Return an old table's fields, some of them changed.

    Parameters
    ----------
    table : Table
        The old table.
    scalars : mapping of int to str
        Types of number fields; all other fields are offsets.
    slots : int
        Number of slots with known types.
    changes : Fields
        New fields, which replace old fields.

    Raises
    ------
    UnsupportedModel
        If the table has a field with an unknown type, from a later format version.
    """
    fields: dict[int, Item] = {}
    for slot in range(table.slots):
        if slot in changes or slot not in table:
            continue
        if slot >= slots:
            raise UnsupportedModel(f"{table.what} has field {slot} of an unknown later version")
        code = scalars.get(slot)
        target = table.target(slot) if code is None else None
        if code is not None:
            fields[slot] = Scalar(code, table.number(slot, code))
        elif target is not None:
            fields[slot] = Old(target)
    return fields | dict(changes)


def written_before(root: Fields, identifier: bytes, old: bytes) -> bytes:
    """
    Return a file whose root is ``root`` and that ends with the old content.

    Raises
    ------
    ModelError
        If the file would have more bytes than offsets can span.
    """
    writer = _Writer(identifier)
    writer.write(root)
    shift = -(-len(writer.data) // BLOCK) * BLOCK
    if shift + len(old) > MAX_FILE:
        raise fault("ModelTooLarge", f"the rewritten file would have more than {MAX_FILE} bytes")
    return writer.finished(shift) + old


class _Writer:
    """Objects in the order of discovery, so that each comes after all objects that point to it."""

    def __init__(self, identifier: bytes) -> None:
        self.data = bytearray(4) + identifier
        self._pending: list[tuple[int, Item]] = []
        self._old: list[tuple[int, int]] = []
        self._places: dict[int, int] = {}

    def write(self, root: Fields) -> None:
        """
        Append all objects reachable from ``root``.

        An object that is met twice is shared, if the object also lies behind the second place.
        """
        self._pending.append((0, root))
        for place, item in self._pending:
            if isinstance(item, Old):
                self._old.append((place, item.at))
                continue
            if self._places.get(id(item), 0) <= place:
                self._places[id(item)] = self._put(item)
            struct.pack_into("<I", self.data, place, self._places[id(item)] - place)

    def finished(self, shift: int) -> bytes:
        """Return the bytes that go before the old content, which begins at ``shift``."""
        for place, target in self._old:
            struct.pack_into("<I", self.data, place, shift + target - place)
        return bytes(self.data).ljust(shift, b"\0")

    def _align(self, alignment: int, after: int = 0) -> None:
        """Make the position ``after`` bytes from here a multiple of ``alignment``."""
        self.data += bytes(-(len(self.data) + after) % alignment)

    def _put(self, item: Item) -> int:
        """Append an object; return the object's position."""
        if isinstance(item, FlatText):
            return self._vector(item.text.encode() + b"\0", len(item.text.encode()), 4)
        if isinstance(item, Content):
            return self._vector(item.data, len(item.data), _DATA_ALIGNMENT)
        if isinstance(item, Numbers):
            content = struct.pack(f"<{len(item.values)}{item.code}", *item.values)
            return self._vector(content, len(item.values), struct.calcsize(item.code))
        if isinstance(item, Mapping):
            return self._table(item)
        return self._vector_of_tables(cast("list[Item]", item))

    def _vector_of_tables(self, items: list[Item]) -> int:
        """Append offsets to tables that follow."""
        at = self._vector(bytes(4 * len(items)), len(items), 4)
        for index, item in enumerate(items):
            self._pending.append((at + 4 + 4 * index, item))
        return at

    def _vector(self, content: bytes, count: int, alignment: int) -> int:
        """Append a vector whose elements begin at a multiple of ``alignment``."""
        self._align(max(4, alignment), after=4)
        at = len(self.data)
        self.data += struct.pack("<I", count) + content
        return at

    def _table(self, fields: Fields) -> int:
        """Append a table, widest fields first, so that no field needs padding."""
        widths = {
            slot: struct.calcsize(item.code) if isinstance(item, Scalar) else 4
            for slot, item in fields.items()
        }
        widest = max(widths.values(), default=4)
        places, place = {}, 4 if widest <= 4 else 8
        for slot in sorted(widths, key=lambda slot: (-widths[slot], slot)):
            places[slot] = place
            place += widths[slot]
        slots = max(fields, default=-1) + 1
        self._align(2)
        vtable = len(self.data)
        offsets = (places.get(slot, 0) for slot in range(slots))
        self.data += struct.pack(f"<HH{slots}H", 4 + 2 * slots, place, *offsets)
        self._align(max(4, widest))
        table = len(self.data)
        self.data += struct.pack("<i", table - vtable) + bytes(place - 4)
        for slot, item in fields.items():
            if isinstance(item, Scalar):
                struct.pack_into(f"<{item.code}", self.data, table + places[slot], item.value)
            else:
                self._pending.append((table + places[slot], item))
        return table
