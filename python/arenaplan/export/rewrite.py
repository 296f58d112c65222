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
from arenaplan.importers.tflite.model import MAX_FILE, Model, Operator
from arenaplan.importers.tflite.schema import (
    IDENTIFIER,
    ModelField,
    OperatorField,
    SubgraphField,
)

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


def isolated(model: Model, subgraph: int, position: int, name: str, content: bytes) -> bytes:
    """
    Return a model that has one operator of ``model``, its tensors, and one metadata entry.

    The tensors are in the order of the operator's inputs, outputs and intermediates, each once.
    Everything that the operator refers to stays where it is, behind the new tables.

    Raises
    ------
    UnsupportedModel
        If the file names bytes by their position, which would move.
    """
    if any(buffer.is_far for buffer in model.buffers):
        raise UnsupportedModel("the file keeps data behind the model, by position; it cannot grow")
    size = len(_single(model, subgraph, position, name, content, MAX_FILE))
    shift = -(-size // _BLOCK) * _BLOCK
    if shift + len(model.data) > MAX_FILE:
        raise ModelTooLarge(f"the file would have more than {MAX_FILE} bytes")
    prefix = _single(model, subgraph, position, name, content, shift)
    return prefix.ljust(shift, b"\0") + model.data


def operands_of(operator: Operator) -> list[int]:
    """Return the tensors of an operator, each once, as :func:`isolated` numbers them."""
    places = (*operator.inputs, *operator.outputs, *operator.intermediates)
    return list(dict.fromkeys(index for index in places if index is not None))


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

    def vector_of_numbers(self, numbers: Sequence[int]) -> int:
        """Append a vector of numbers of 32 bits."""
        self.align(4)
        return self.put(f"I{len(numbers)}i", len(numbers), *numbers)

    def vector_of_bytes(self, content: bytes, alignment: int, *, terminated: bool = False) -> int:
        """Append bytes, aligned, and return their vector."""
        self.align(alignment, after=4)
        vector = self.put("I", len(content))
        self.data += content + bytes(terminated)
        return vector


def _single(
    model: Model, subgraph: int, position: int, name: str, content: bytes, shift: int
) -> bytes:
    """Return the bytes that go before the old file, which begins at ``shift``."""
    old = model.root.tables(ModelField.SUBGRAPHS, "subgraph")[subgraph]
    table = old.tables(SubgraphField.OPERATORS, "operator")[position]
    described = model.subgraphs[subgraph]
    operator = described.operators[position]
    operands = operands_of(operator)
    tensors = old.targets(SubgraphField.TENSORS, "tensor")
    buffers = model.root.targets(ModelField.BUFFERS, "buffer")
    given = [
        operands.index(index)
        for index in dict.fromkeys(operator.inputs)
        if index is not None and not model.is_constant(described.tensors[index])
    ]
    made = [operands.index(index) for index in operator.outputs if index is not None]

    out = _Writer()
    out.put("I", 0)
    out.data += IDENTIFIER
    root, fields = out.table([4, 4, 4, 0, 4, 0, 4])
    out.point(0, root)
    struct.pack_into("<I", out.data, fields[ModelField.VERSION], model.root.number(0, "I"))
    codes = model.root.target(ModelField.OPERATOR_CODES)
    if codes is not None:
        out.point(fields[ModelField.OPERATOR_CODES], shift + codes)
    vector, (place,) = out.vector_of_offsets(1)
    out.point(fields[ModelField.SUBGRAPHS], vector)
    graph, (its_tensors, inputs, outputs, operators) = out.table([4, 4, 4, 4])
    out.point(place, graph)
    vector, places = out.vector_of_offsets(len(operands))
    out.point(its_tensors, vector)
    for at, index in zip(places, operands, strict=True):
        out.point(at, shift + tensors[index])
    out.point(inputs, out.vector_of_numbers(given))
    out.point(outputs, out.vector_of_numbers(made))
    vector, (place,) = out.vector_of_offsets(1)
    out.point(operators, vector)
    options = table.target(OperatorField.OPTIONS)
    custom = table.target(OperatorField.CUSTOM_OPTIONS)
    widths = [4, 4, 4, 4 if options else 0, 4 if options else 0, 4 if custom else 0, 0, 0, 4]
    entry, at_fields = out.table(widths)
    out.point(place, entry)
    code = table.number(OperatorField.OPCODE_INDEX, "I")
    struct.pack_into("<I", out.data, at_fields[OperatorField.OPCODE_INDEX], code)
    for slot, indices in (
        (OperatorField.INPUTS, operator.inputs),
        (OperatorField.OUTPUTS, operator.outputs),
        (OperatorField.INTERMEDIATES, operator.intermediates),
    ):
        numbers = [-1 if index is None else operands.index(index) for index in indices]
        out.point(at_fields[slot], out.vector_of_numbers(numbers))
    if options is not None:
        kind = table.number(OperatorField.OPTIONS_TYPE, "B")
        struct.pack_into("<B", out.data, at_fields[OperatorField.OPTIONS_TYPE], kind)
        out.point(at_fields[OperatorField.OPTIONS], shift + options)
    if custom is not None:
        out.point(at_fields[OperatorField.CUSTOM_OPTIONS], shift + custom)
    _point_to_data(out, fields, buffers, [], shift, name, content)
    return bytes(out.data)


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

    _point_to_data(out, fields, buffers, entries, shift, name, content)
    return bytes(out.data)


def _point_to_data(
    out: _Writer,
    fields: Sequence[int],
    buffers: Sequence[int],
    entries: Sequence[int],
    shift: int,
    name: str,
    content: bytes,
) -> None:
    """Append vectors of the old buffers and metadata, with one more of each."""
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
