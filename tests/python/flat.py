"""Writes small TFLite files by hand, so that tests can make what no converter would."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Number(NamedTuple):
    """A scalar with its layout."""

    code: str
    value: int


class Vector(NamedTuple):
    """A vector of scalars."""

    code: str
    values: Sequence[int]


class Data(NamedTuple):
    """A vector of bytes, aligned to 16."""

    content: bytes


Field = "Number | Vector | Data | str | Mapping[int, Any] | list[Any]"
"""A mapping is a table by slot, and a list a vector of tables."""


def write(root: Mapping[int, Any], identifier: bytes = b"TFL3") -> bytes:
    """Return a FlatBuffer: every object comes after the one that points to it."""
    out = bytearray(4) + identifier
    pending: list[tuple[int, Any]] = [(0, root)]
    done: dict[int, int] = {}
    for place, item in pending:
        if id(item) in done and not isinstance(item, (str, Number)):
            at = done[id(item)]
        else:
            at = _put(out, item, pending)
            done[id(item)] = at
        struct.pack_into("<I", out, place, at - place)
    return bytes(out)


def _align(out: bytearray, alignment: int, after: int = 0) -> None:
    out += bytes(-(len(out) + after) % alignment)


def _put(out: bytearray, item: Any, pending: list[tuple[int, Any]]) -> int:
    if isinstance(item, str):
        item = Data(item.encode() + b"\0")
        _align(out, 4)
        at = len(out)
        out += struct.pack("<I", len(item.content) - 1) + item.content
        return at
    if isinstance(item, Data):
        _align(out, 16, after=4)
        at = len(out)
        out += struct.pack("<I", len(item.content)) + item.content
        return at
    if isinstance(item, Vector):
        _align(out, 8, after=4)
        at = len(out)
        out += struct.pack(f"<I{len(item.values)}{item.code}", len(item.values), *item.values)
        return at
    if isinstance(item, list):
        _align(out, 4)
        at = len(out)
        out += struct.pack("<I", len(item)) + bytes(4 * len(item))
        pending += [(at + 4 + 4 * index, element) for index, element in enumerate(item)]
        return at
    return _put_table(out, item, pending)


def _put_table(out: bytearray, table: Mapping[int, Any], pending: list[tuple[int, Any]]) -> int:
    slots = max(table, default=-1) + 1
    _align(out, 8)
    vtable = len(out)
    places, place = {}, 4
    for slot, item in sorted(table.items()):
        width = struct.calcsize(item.code) if isinstance(item, Number) else 4
        place += -place % width
        places[slot] = place
        place += width
    out += struct.pack("<HH", 4 + 2 * slots, place)
    out += struct.pack(f"<{slots}H", *(places.get(slot, 0) for slot in range(slots)))
    _align(out, 8)
    at = len(out)
    out += struct.pack("<i", at - vtable) + bytes(place - 4)
    for slot, item in sorted(table.items()):
        if isinstance(item, Number):
            struct.pack_into(f"<{item.code}", out, at + places[slot], item.value)
        else:
            pending.append((at + places[slot], item))
    return at


FLOAT32, INT32, STRING, INT8, RESOURCE, INT4 = 0, 2, 5, 9, 13, 17

CODES = {
    "FULLY_CONNECTED": 9,
    "ADD": 0, "CONCATENATION": 2, "CONV_2D": 3, "LOGISTIC": 14, "RELU": 19, "RESHAPE": 22,
    "SVDF": 27, "CUSTOM": 32, "SPLIT": 49, "NEG": 59, "SLICE": 65, "IF": 118, "WHILE": 119,
    "CALL_ONCE": 129, "VAR_HANDLE": 142, "READ_VARIABLE": 143, "ASSIGN_VARIABLE": 144, "ABS": 101,
    "SQUARE": 92, "STRIDED_SLICE": 45, "BATCH_MATMUL": 126,
    "PAD": 34, "MEAN": 40, "MAX_POOL_2D": 17, "TRANSPOSE_CONV": 67, "MIRROR_PAD": 100,
    "AVERAGE_POOL_2D": 1, "DEPTHWISE_CONV_2D": 4, "SOFTMAX": 25,
    "DYNAMIC_UPDATE_SLICE": 151, "UNIDIRECTIONAL_SEQUENCE_LSTM": 44, "LESS": 58, "MUL": 18,
    "TANH": 28, "TILE": 69, "TOPK_V2": 48, "BROADCAST_TO": 130, "WHERE": 109, "UNIQUE": 103,
    "STABLEHLO_COMPOSITE": 206, "SUB": 41,
}  # fmt: skip


def tensor(
    name: str,
    shape: Sequence[int] | None,
    type_: int = FLOAT32,
    *,
    buffer: int = 0,
    signature: Sequence[int] | None = None,
    variable: bool = False,
    scale: int | None = None,
) -> dict[int, Any]:
    """Return the table of a tensor; ``scale`` is the bits of its only scale."""
    table: dict[int, Any] = {1: Number("b", type_), 2: Number("I", buffer), 3: name}
    if shape is not None:
        table[0] = Vector("i", shape)
    if signature is not None:
        table[7] = Vector("i", signature)
    if variable:
        table[5] = Number("B", 1)
    if scale is not None:
        table[4] = {2: Vector("I", [scale]), 3: Vector("q", [0])}
    return table


def operator(
    code: int,
    inputs: Sequence[int],
    outputs: Sequence[int],
    options: tuple[int, Mapping[int, Any]] | None = None,
) -> dict[int, Any]:
    """Return the table of an operator; ``code`` is a position among the operator codes."""
    table: dict[int, Any] = {
        0: Number("I", code),
        1: Vector("i", inputs),
        2: Vector("i", outputs),
    }
    if options is not None:
        table[3] = Number("B", options[0])
        table[4] = options[1]
    return table


def subgraph(
    tensors: list[Any],
    operators: list[Any],
    inputs: Sequence[int],
    outputs: Sequence[int],
    name: str = "main",
) -> dict[int, Any]:
    """Return the table of a subgraph."""
    return {
        0: tensors,
        1: Vector("i", inputs),
        2: Vector("i", outputs),
        3: operators,
        4: name,
    }


def code(name: str, custom: str | None = None) -> dict[int, Any]:
    """Return the table of an operator code."""
    number = CODES[name]
    table: dict[int, Any] = {0: Number("b", min(number, 127)), 3: Number("i", number)}
    if custom is not None:
        table[1] = custom
    return table


def model(
    codes: list[Any],
    subgraphs: list[Any],
    buffers: Sequence[bytes] = (b"",),
    metadata: Sequence[tuple[str, int]] = (),
    signatures: list[Any] | None = None,
) -> dict[int, Any]:
    """Return the root table; write it with :func:`write`."""
    table: dict[int, Any] = {
        0: Number("I", 3),
        1: codes,
        2: subgraphs,
        3: "made by a test",
        4: [{0: Data(content)} if content else {} for content in buffers],
    }
    if metadata:
        table[6] = [{0: name, 1: Number("I", buffer)} for name, buffer in metadata]
    if signatures is not None:
        table[7] = signatures
    return table


def chain(*ops: str, shape: Sequence[int] = (1, 8), type_: int = FLOAT32) -> dict[int, Any]:
    """Return a model that applies unary operators one after the other."""
    tensors = [tensor(f"t{index}", shape, type_) for index in range(len(ops) + 1)]
    operators = [operator(index, [index], [index + 1]) for index in range(len(ops))]
    return model([code(name) for name in ops], [subgraph(tensors, operators, [0], [len(ops)])])


def fragmented(*, reshape: bool = False) -> dict[int, Any]:
    """
    Return a model for which TensorFlow Lite Micro's own planner needs 1,152 bytes, not 864.

    Largest first puts the 576 bytes of ``t3`` below ``t2``, and 432 bytes of ``t0`` leave too
    little room for ``t1`` between them.
    """
    counts = (108, 72, 72, 144, 36)
    tensors = [tensor(f"t{index}", (count,)) for index, count in enumerate(counts)]
    tensors += [tensor(name, (1,), INT32, buffer=b) for b, name in enumerate("abc", start=1)]
    operators = [
        operator(0, [0, 5, 6], [1]),
        operator(2, [1], [2]),
        operator(1, [2, 2], [3], (10, {})),
        operator(0, [3, 5, 7], [4]),
    ]
    codes = [code("SLICE"), code("CONCATENATION"), code("NEG")]
    last = 4
    if reshape:
        tensors.append(tensor("square", (6, 6)))
        operators.append(operator(3, [4], [8]))
        codes.append(code("RESHAPE"))
        last = 8
    data = [b"", struct.pack("<i", 0), struct.pack("<i", 72), struct.pack("<i", 36)]
    return model(codes, [subgraph(tensors, operators, [0], [last])], data)
