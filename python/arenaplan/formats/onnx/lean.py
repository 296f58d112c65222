"""
ONNX files without the data of large initializers.

The protobuf reader copies every weight, but a plan reads no weights. So the data stays in the file:
an initializer whose data :func:`lean` left out has an external data entry ``OWN``, with the offset
in the model's own file and the length.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from onnx import TensorProto

Content: TypeAlias = "bytes | mmap.mmap"
"""A file's bytes."""

OWN: Final = b"arenaplan.offset"

LARGE: Final = 1 << 16
"""Fewest data bytes that are left out."""

_GRAPH, _INITIALIZER, _RAW_DATA, _EXTERNAL = 7, 5, 9, 13
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5


class _Field(NamedTuple):
    """A message field."""

    number: int
    start: int
    body: int
    """Where the content begins, which is a message or bytes if ``has_length``."""
    stop: int
    has_length: bool


class _UnusualError(Exception):
    """The message is truncated, or uses features known only to the protobuf reader."""


def lean(content: Content) -> bytes:
    """
    Return a model's message without the data of large initializers.

    All other bytes are kept; an unusual message is returned unchanged.
    """
    try:
        return b"".join(_model(memoryview(content)))
    except _UnusualError:
        return content[:]


def own_offset(proto: TensorProto) -> tuple[int, int] | None:
    """
    Return the offset and length of a tensor's data in the model's own file.

    ``None`` if the message has the data. A model that itself uses the entry names bytes in its own
    file.
    """
    if len(proto.external_data) != 1 or proto.external_data[0].key != OWN.decode():
        return None
    offset, _, length = proto.external_data[0].value.partition(",")
    is_number = offset.isdecimal() and length.isdecimal()
    return (int(offset), int(length)) if is_number and len(offset + length) < 40 else None


def _model(data: memoryview) -> Iterator[memoryview | bytes]:
    """Yield the parts of a model, whose graph must be a single field."""
    graphs = [field for field in _fields(data, 0, len(data)) if field.number == _GRAPH]
    if len(graphs) != 1 or not graphs[0].has_length:
        raise _UnusualError
    (graph,) = graphs
    inner = [bytes(part) for part in _graph(data, graph.body, graph.stop)]
    yield data[: graph.start]
    yield _tag(_GRAPH) + _varint(sum(map(len, inner)))
    yield from inner
    yield data[graph.stop :]


def _graph(data: memoryview, start: int, stop: int) -> Iterator[memoryview | bytes]:
    """Yield the parts of a graph."""
    kept = start
    for field in _fields(data, start, stop):
        if field.number == _INITIALIZER and field.has_length and field.stop - field.body >= LARGE:
            left = _tensor(data, field.body, field.stop)
            if left is not None:
                yield data[kept : field.start]
                yield _tag(_INITIALIZER) + _varint(len(left)) + left
                kept = field.stop
    yield data[kept:stop]


def _tensor(data: memoryview, start: int, stop: int) -> bytes | None:
    """Return a tensor without data; ``None`` without data, or with external data already."""
    fields = list(_fields(data, start, stop))
    raw = [field for field in fields if field.number == _RAW_DATA]
    if len(raw) != 1 or not raw[0].has_length or raw[0].stop - raw[0].body < LARGE:
        return None
    if any(field.number == _EXTERNAL for field in fields):
        return None
    texts = OWN, f"{raw[0].body},{raw[0].stop - raw[0].body}".encode()
    entry = b"".join(_tag(at) + _varint(len(text)) + text for at, text in enumerate(texts, 1))
    entry = _tag(_EXTERNAL) + _varint(len(entry)) + entry
    return b"".join((data[start : raw[0].start], entry, data[raw[0].stop : stop]))


def _fields(data: memoryview, start: int, stop: int) -> Iterator[_Field]:
    """Yield a message's fields."""
    at = start
    while at < stop:
        first = at
        tag, at = _read(data, at, stop)
        kind, size = tag & 7, 0
        if kind == _LENGTH:
            size, at = _read(data, at, stop)
        elif kind == _VARINT:
            _, end = _read(data, at, stop)
            size = end - at
        elif kind in (_EIGHT, _FOUR):
            size = 8 if kind == _EIGHT else 4
        else:
            raise _UnusualError
        if size > stop - at:
            raise _UnusualError
        yield _Field(tag >> 3, first, at, at + size, kind == _LENGTH)
        at += size


def _read(data: memoryview, at: int, stop: int) -> tuple[int, int]:
    """Return the number at a position, and the next position."""
    number = shift = 0
    while at < stop and shift < 70:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
    raise _UnusualError


def _varint(number: int) -> bytes:
    """Encode a number as in messages."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _tag(number: int) -> bytes:
    """Return the start of a field with a length."""
    return _varint(number << 3 | _LENGTH)
