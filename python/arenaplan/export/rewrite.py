"""
Putting a metadata entry into a TFLite file and leaving everything else as it is.

Offsets in a FlatBuffer point forward, relative to where they are. So a new root table,
with its fields, goes before the old content, which moves as a whole by a
multiple of the strictest alignment and does not change by a single byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from arenaplan.errors import ModelTooLarge, UnsupportedModel
from arenaplan.importers.tflite.model import MAX_FILE, Model
from arenaplan.importers.tflite.schema import IDENTIFIER, ModelField

_BLOCK: Final = 64
"""The old content moves by a multiple of this; FlatBuffers align to at most 32."""

_DATA_ALIGNMENT: Final = 16


def with_metadata(model: Model, name: str, content: bytes) -> bytes:
    """
    Return the file of ``model`` with ``content`` as its only metadata called ``name``.

    Raises
    ------
    UnsupportedModel
        If the file names bytes by their position, which would move, or its root table has
        fields that we do not know.
    """
    inside = _replaced(model, name, content)
    if inside is not None:
        return inside
    if any(buffer.is_far for buffer in model.buffers) or any(
        operator.has_far_options for graph in model.subgraphs for operator in graph.operators
    ):
        raise UnsupportedModel("the file keeps data behind the model, by position; it cannot grow")
    if model.root.slots > len(ModelField):
        raise UnsupportedModel("the model's root table has fields of an unknown later version")
    size = len(_prefix(model, name, content, MAX_FILE))  # Its size does not depend on the shift.
    shift = -(-size // _BLOCK) * _BLOCK
    if shift + len(model.data) > MAX_FILE:
        raise ModelTooLarge(f"with the plan the file would have more than {MAX_FILE} bytes")
    return _prefix(model, name, content, shift).ljust(shift, b"\0") + model.data


def _replaced(model: Model, name: str, content: bytes) -> bytes | None:
    """Return the file with ``content`` in place of the buffer of its name and size, if any."""
    places = [entry.buffer for entry in model.metadata if entry.name == name]
    if len(places) != 1:
        return None
    place = model.buffers[places[0]]
    users = [entry.buffer for entry in model.metadata]
    users += [tensor.buffer for graph in model.subgraphs for tensor in graph.tensors]
    if users.count(places[0]) != 1 or place.is_far or place.length != len(content):
        return None
    return model.data[: place.start] + content + model.data[place.start + place.length :]


class _Writer:
    """Bytes that grow, and offsets in them that are filled in when their target is known."""

    def __init__(self) -> None:
        self.data = bytearray()

    def align(self, alignment: int, after: int = 0) -> None:
        """Make the position ``after`` bytes from here a multiple of ``alignment``."""
        self.data += bytes(-(len(self.data) + after) % alignment)

    def put(self, layout: str, *numbers: int) -> int:
        """Append numbers and return where they are."""
        at = len(self.data)
        self.data += struct.pack(f"<{layout}", *numbers)
        return at

    def point(self, at: int, target: int) -> None:
        """Fill in the offset at ``at``."""
        struct.pack_into("<I", self.data, at, target - at)

    def table(self, widths: Sequence[int]) -> tuple[int, list[int]]:
        """Append a table with fields of these widths (0: absent); return it and its fields."""
        self.align(2)
        vtable = self.put("HH", 4 + 2 * len(widths), 4 + sum(widths))
        places, place = [], 4
        for width in widths:
            self.put("H", place if width else 0)
            places.append(place)
            place += width
        self.align(4)
        table = self.put("i", len(self.data) - vtable)
        self.data += bytes(sum(widths))
        return table, [table + place for place in places]

    def vector_of_offsets(self, count: int) -> tuple[int, list[int]]:
        """Append a vector of offsets that are filled in later; return it and their places."""
        self.align(4)
        vector = self.put("I", count)
        self.data += bytes(4 * count)
        return vector, [vector + 4 + 4 * index for index in range(count)]

    def vector_of_bytes(self, content: bytes, alignment: int, *, terminated: bool = False) -> int:
        """Append bytes, aligned, and return their vector."""
        self.align(alignment, after=4)
        vector = self.put("I", len(content))
        self.data += content + bytes(terminated)
        return vector


def _prefix(model: Model, name: str, content: bytes, shift: int) -> bytes:
    """Return the bytes that go before the old file, which begins at ``shift``."""
    root = model.root
    buffers = root.targets(ModelField.BUFFERS, "buffer")
    entries = [
        target
        for entry, target in zip(
            model.metadata, root.targets(ModelField.METADATA, "metadata"), strict=True
        )
        if entry.name != name
    ]
    out = _Writer()
    out.put("I", 0)
    out.data += IDENTIFIER
    slots = max(root.slots, ModelField.METADATA + 1)
    ours = {ModelField.VERSION, ModelField.BUFFERS, ModelField.METADATA}
    widths = [4 if slot in root or slot in ours else 0 for slot in range(slots)]
    table, fields = out.table(widths)
    out.point(0, table)
    struct.pack_into("<I", out.data, fields[ModelField.VERSION], root.number(0, "I"))
    for slot in range(slots):
        target = root.target(slot) if widths[slot] and slot not in ours else None
        if target is not None:
            out.point(fields[slot], shift + target)

    vector, places = out.vector_of_offsets(len(buffers) + 1)
    out.point(fields[ModelField.BUFFERS], vector)
    for place, target in zip(places, buffers, strict=False):
        out.point(place, shift + target)
    buffer, (data,) = out.table([4])
    out.point(places[-1], buffer)
    out.point(data, out.vector_of_bytes(content, _DATA_ALIGNMENT))

    vector, places = out.vector_of_offsets(len(entries) + 1)
    out.point(fields[ModelField.METADATA], vector)
    for place, target in zip(places, entries, strict=False):
        out.point(place, shift + target)
    entry, (label, number) = out.table([4, 4])
    out.point(places[-1], entry)
    struct.pack_into("<I", out.data, number, len(buffers))
    out.point(label, out.vector_of_bytes(name.encode(), 4, terminated=True))
    return bytes(out.data)
