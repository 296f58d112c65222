"""
An experiment: one copy of an operator for all strips, in the unmodified TensorFlow Lite Micro.

Writes ``person_detect`` with operators 0 to 3 in the body of a ``WHILE``, and prints the arena that
the result needs. With ``--call``, operators 4 to 7 are in a subgraph that two ``IF`` call. Run it
with::

    python benches/rolled.py person_detect.tflite OUT.tflite [--rows 4] [--call]

With the package ``tflite-micro``, both models run on equal inputs and outputs are compared bit by
bit. Image and result of the loop are one tensor, which the loop carries; it has the same place in
every subgraph, so that the copies that the runtime makes between subgraphs copy bytes onto
themselves. Every round cuts a window of equal size. Rows of the window outside of the image become
the zero point before the next operator sees them, by a minimum with a mask.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from pathlib import Path

import numpy as np

from arenaplan.deploy.export.flat import (
    Content,
    FlatText,
    Item,
    Numbers,
    Old,
    Scalar,
    copied,
    written_before,
)
from arenaplan.tflite.reader.flatbuffer import FlatBuffer
from arenaplan.tflite.reader.offline import METADATA_NAME, read_offsets
from arenaplan.tflite.reader.schema import (
    IDENTIFIER,
    OPERATORS,
    BufferField,
    MetadataField,
    ModelField,
    OperatorCodeField,
    OperatorField,
    SubgraphField,
    TensorField,
)
from arenaplan.tflite.reader.tflite_model import parse
from arenaplan.tflite.runtime import total

LEAST, MOST = -128, 127
INT8, INT32, BOOL = 9, 2, 6
TYPES = {"int8": INT8, "int32": INT32, "bool": BOOL}
OPTIONS = {"CONCATENATION": 10, "ADD": 11, "IF": 92, "WHILE": 93}
OPERATOR_SCALARS = {0: "I", 3: "B", 6: "b", 9: "Q", 10: "Q", 11: "B", 13: "i"}
ROWS, ROW = 24, 384
"""Rows of the result of operator 3, and bytes of one."""
DIAGONAL = 816
"""Bytes by which a depthwise convolution of 24 columns and 32 channels reads behind its result."""
PIXEL = 32
"""The same of a convolution with one tap and 32 channels."""


class Graph:
    """A subgraph that is being written."""

    def __init__(self, file: File, name: str) -> None:
        self.file, self.name = file, name
        self.tensors: list[Item] = []
        self.offsets: list[int] = []
        self.operators: list[Item] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self._old: dict[int, int] = {}
        self._constants: dict[tuple[object, ...], int] = {}

    def _add(self, item: Item, offset: int) -> int:
        self.tensors.append(item)
        self.offsets.append(offset)
        return len(self.tensors) - 1

    def old(self, number: int, offset: int = -1) -> int:
        """Return a tensor of the model."""
        if number not in self._old:
            self._old[number] = self._add(Old(self.file.tensors[number].at), offset)
        return self._old[number]

    def new(
        self,
        name: str,
        shape: Sequence[int],
        offset: int,
        like: int | None = None,
        type_: int = INT8,
        buffer: int = 0,
    ) -> int:
        """Return a new tensor with the quantization of one of the model."""
        fields: dict[int, Item] = {
            TensorField.SHAPE: Numbers("i", tuple(shape)),
            TensorField.TYPE: Scalar("b", type_),
            TensorField.BUFFER: Scalar("I", buffer),
            TensorField.NAME: FlatText(name),
        }
        scale = None
        if like is not None:
            scale = self.file.tensors[like].target(TensorField.QUANTIZATION)
        if scale is not None:
            fields[TensorField.QUANTIZATION] = Old(scale)
        return self._add(fields, offset)

    def constant(self, values: np.ndarray, like: int | None = None) -> int:
        """Return a constant; equal ones are one tensor."""
        key = (values.tobytes(), values.shape, values.dtype.name, like)
        if key not in self._constants:
            buffer = self.file.buffer(values.tobytes())
            name, type_ = f"constant {len(self.tensors)}", TYPES[values.dtype.name]
            self._constants[key] = self.new(name, values.shape, -1, like, type_, buffer)
        return self._constants[key]

    def repeat(self, position: int, operand: int, result: int) -> None:
        """Append an operator of the model with another operand and result."""
        rest = [self.old(i) for i in self.file.main.operators[position].inputs[1:] if i is not None]
        changes: dict[int, Item] = {
            OperatorField.INPUTS: Numbers("i", [operand, *rest]),
            OperatorField.OUTPUTS: Numbers("i", [result]),
        }
        self.operators.append(copied(self.file.operators[position], OPERATOR_SCALARS, 14, changes))

    def add(self, name: str, inputs: list[int], outputs: list[int], *options: int) -> None:
        """Append a new operator; its options are 32-bit numbers."""
        entry: dict[int, Item] = {
            OperatorField.OPCODE_INDEX: Scalar("I", self.file.code(name)),
            OperatorField.INPUTS: Numbers("i", inputs),
            OperatorField.OUTPUTS: Numbers("i", outputs),
        }
        if name in OPTIONS:
            entry[OperatorField.OPTIONS_TYPE] = Scalar("B", OPTIONS[name])
            entry[OperatorField.OPTIONS] = {
                slot: Scalar("i", value) for slot, value in enumerate(options)
            }
        self.operators.append(entry)

    def cut(self, source: int, begin: int, size: Sequence[int], result: int) -> None:
        """Append a slice whose begin is a tensor."""
        self.add("SLICE", [source, begin, self.constant(ints(*size))], [result])

    def table(self) -> Item:
        """Return the subgraph."""
        return {
            SubgraphField.TENSORS: self.tensors,
            SubgraphField.INPUTS: Numbers("i", self.inputs),
            SubgraphField.OUTPUTS: Numbers("i", self.outputs),
            SubgraphField.OPERATORS: self.operators,
            SubgraphField.NAME: FlatText(self.name),
        }


class File:
    """A model that is written in front of another one."""

    def __init__(self, data: bytes) -> None:
        self.model = parse(data)
        self.main = self.model.subgraphs[0]
        self._root = FlatBuffer(data).root("the model")
        main = self._root.tables(ModelField.SUBGRAPHS, "subgraph")[0]
        self.tensors = main.tables(SubgraphField.TENSORS, "tensor")
        self.operators = main.tables(SubgraphField.OPERATORS, "operator")
        self._buffers: list[Item] = self._old(ModelField.BUFFERS)
        self._codes: list[Item] = self._old(ModelField.OPERATOR_CODES)
        self._known: dict[str, int] = {}
        self._contents: dict[bytes, int] = {}

    def _old(self, slot: int) -> list[Item]:
        return [Old(at) for at in self._root.targets(slot, "table")]

    def result(self, position: int) -> int:
        """Return the tensor that an operator of the model makes."""
        number = self.main.operators[position].outputs[0]
        assert number is not None
        return number

    def buffer(self, content: bytes) -> int:
        """Return a buffer with some content."""
        if content not in self._contents:
            self._contents[content] = len(self._buffers)
            self._buffers.append({BufferField.DATA: Content(content)})
        return self._contents[content]

    def code(self, name: str) -> int:
        """Return the code of a new operator."""
        if name not in self._known:
            self._known[name] = len(self._codes)
            number = OPERATORS.index(name)
            self._codes.append(
                {
                    OperatorCodeField.DEPRECATED_CODE: Scalar("b", min(number, 127)),
                    OperatorCodeField.VERSION: Scalar("i", 1),
                    OperatorCodeField.CODE: Scalar("i", number),
                }
            )
        return self._known[name]

    def written(self, graphs: Sequence[Graph]) -> bytes:
        """Return the file."""
        offsets = [offset for graph in graphs for offset in graph.offsets]
        plan = struct.pack(f"<{3 + len(offsets)}i", 1, len(graphs), len(offsets), *offsets)
        metadata: Item = {
            MetadataField.NAME: FlatText(METADATA_NAME),
            MetadataField.BUFFER: Scalar("I", self.buffer(plan)),
        }
        root: dict[int, Item] = {
            ModelField.VERSION: Scalar("I", 3),
            ModelField.OPERATOR_CODES: self._codes,
            ModelField.SUBGRAPHS: [graph.table() for graph in graphs],
            ModelField.BUFFERS: self._buffers,
            ModelField.METADATA: [metadata],
        }
        return written_before(root, IDENTIFIER, self.model.data)


def ints(*values: int) -> np.ndarray:
    """Return numbers of 32 bits."""
    return np.array(values, np.int32)


def up(size: int) -> int:
    """Round up to the alignment of the runtime."""
    return size + -size % 16


def loop(file: File, base: int, small: int, strip: int, rows: int) -> tuple[list[Graph], int]:
    """
    Return a main graph with the loop, its condition and its body, and the carried tensor.

    The carried tensor is at ``base``, the loop's small tensors at ``small``, the strip at
    ``strip``; every round makes ``rows`` rows.
    """
    main, condition, body = (Graph(file, name) for name in ("main", "condition", "body"))
    image = file.main.inputs[0]
    made = [file.result(position) for position in range(4)]
    rounds, step = ROWS // rows, 4 * rows
    seen, kept = 2 * rows + 4, 2 * rows + 2  # Rows of operator 0, and of operator 2.
    height = max(step * (rounds - 1) + 2 * seen, 98)
    height += -height % 4
    first, second = small + 16, small + 32

    x = main.old(image, base + 2 * 96)
    above, below = (np.full((1, n, 96, 1), -1, np.int8) for n in (2, height - 98))
    start = main.new("image", (1, height, 96, 1), base, image)
    edges = [main.constant(edge, image) for edge in (above, below)]
    main.add("CONCATENATION", [edges[0], x, edges[1]], [start], 1)
    after = main.new("image and result", (height // 4, ROW), base)
    ended = main.new("begin", (2,), small, type_=INT32)
    main.add("WHILE", [start, main.constant(ints(0, 0))], [after, ended], 1, 2)
    main.inputs = [x]

    carried = condition.new("image", (height, 96), base)
    begin = condition.new("begin", (2,), small, type_=INT32)
    more = condition.new("more", (2,), first, type_=BOOL)
    condition.add("LESS", [begin, condition.constant(ints(step * rounds, 0))], [more])
    condition.inputs, condition.outputs = [carried, begin], [more]

    carried = body.new("image", (height, 96), base, image)
    begin = body.new("begin", (2,), small, type_=INT32)
    masks = [np.full((step * rounds, 1), MOST, np.int8) for _ in range(2)]
    for turn in range(rounds):
        for row in range(seen):
            if not 0 <= 2 * rows * turn - 1 + row < 48:
                masks[0][step * turn + row] = LEAST
        for row in range(kept):
            if 2 * rows * turn + row >= 48:
                masks[1][step * turn + row] = LEAST
    lowest, low = strip + 400, strip
    top = max(low + up(8 * (kept * 48 - 1) + 16), low + up((seen - 1) * 384))
    window = body.new("window", (1, 2 * seen, 96, 1), lowest + up(_behind(seen)) + 16, image)
    body.cut(carried, begin, (2 * seen, 96), window)
    strips = [body.new(f"0{mark}", (1, seen, 48, 8), lowest, made[0]) for mark in ("", " masked")]
    body.repeat(0, window, strips[0])
    mask = body.new("mask", (1, seen, 1, 1), first, made[0])
    body.cut(body.constant(masks[0], made[0]), begin, (seen, 1), mask)
    body.add("MINIMUM", [strips[0], mask], [strips[1]])
    short = body.new("0 short", (1, seen - 1, 48, 8), lowest, made[0])
    body.cut(strips[1], body.constant(ints(0, 0, 0, 0)), (1, seen - 1, 48, 8), short)
    deep = body.new("1", (1, seen - 1, 48, 8), low, made[1])
    body.repeat(1, short, deep)
    clean = body.new("1 short", (1, kept, 48, 8), top, made[1])
    body.cut(deep, body.constant(ints(0, 1, 0, 0)), (1, kept, 48, 8), clean)
    wide = [body.new(f"2{mark}", (1, kept, 48, 16), low, made[2]) for mark in ("", " masked")]
    body.repeat(2, clean, wide[0])
    mask = body.new("mask", (1, kept, 1, 1), second, made[2])
    body.cut(body.constant(masks[1], made[2]), begin, (kept, 1), mask)
    body.add("MINIMUM", [wide[0], mask], [wide[1]])
    result = body.new("3", (1, rows + 1, 24, 16), low + up(kept * 768), made[3])
    body.repeat(3, wide[1], result)
    part = body.new("3 short", (step, 96), low + up(kept * 768), image)
    body.cut(result, body.constant(ints(0, 0, 0, 0)), (1, rows, 24, 16), part)
    joined = body.new("image and result", (height, 96), base, image)
    body.add("DYNAMIC_UPDATE_SLICE", [carried, part, begin], [joined])
    later = body.new("next", (2,), small, type_=INT32)
    body.add("ADD", [begin, body.constant(ints(step, 0))], [later])
    body.inputs, body.outputs = [carried, begin], [joined, later]
    return [main, condition, body], after


def _behind(rows: int) -> int:
    """Return the bytes by which operator 0 writes ahead of its reading."""
    return max(384 * i + 8 * j + 8 - 192 * i - 2 * j for i in range(rows) for j in range(48))


def called(file: File, main: Graph, after: int) -> Graph:
    """Append operators 4 to 7 as two calls of a subgraph, the lower half first."""
    made = {position: file.result(position) for position in range(3, 8)}
    half, low = Graph(file, "half"), 14 * ROW
    chain = [
        half.new(str(position), (1, 14, 24, channels), low + offset, made[position])
        for position, channels, offset in (
            (3, 16, 2 * PIXEL + DIAGONAL + low + PIXEL),
            (4, 32, 2 * PIXEL + DIAGONAL),
            (5, 32, 2 * PIXEL),
            (6, 32, PIXEL),
        )
    ]
    chain.append(half.new("7", (1, 7, 12, 32), low, made[7]))
    for position, (operand, result) in enumerate(pairwise(chain), start=4):
        half.repeat(position, operand, result)
    half.inputs, half.outputs = chain[:1], chain[-1:]
    yes = main.constant(np.array([True]))
    begins = (0, 10)
    halves: dict[int, int] = {}
    rows: dict[int, int] = {}
    for side in (1, 0):
        operand = main.new("half", (1, 14, 24, 16), half.offsets[chain[0]], made[3])
        main.cut(after, main.constant(ints(begins[side], 0)), (14, ROW), operand)
        if side == 0:  # The result image has been read now, and its bytes are free.
            rows[1] = _rows_of(main, halves[1], 1, 0, made[7])
        halves[side] = main.new("7", (1, 7, 12, 32), low, made[7])
        main.add("IF", [yes, operand], [halves[side]], 3, 3)
    rows[0] = _rows_of(main, halves[0], 0, low, made[7])
    main.add("CONCATENATION", [rows[0], rows[1]], [main.old(made[7], 9216)], 1)
    return half


def _rows_of(main: Graph, source: int, first: int, offset: int, like: int) -> int:
    """Append the cutting of six rows."""
    result = main.new("half of 7", (1, 6, 12, 32), offset, like)
    main.cut(source, main.constant(ints(0, first, 0, 0)), (1, 6, 12, 32), result)
    return result


def plain(file: File, main: Graph, after: int, base: int) -> None:
    """Append operators 4 to 7, each written over its operand."""
    whole = main.new("3", (1, ROWS, 24, 16), base, file.result(3))
    main.cut(after, main.constant(ints(0, 0)), (ROWS, ROW), whole)
    places = (2 * PIXEL + DIAGONAL, 2 * PIXEL, PIXEL, 0)
    for position, offset in enumerate(places, start=4):
        result = main.old(file.result(position), offset)
        main.repeat(position, whole, result)
        whole = result


def rolled(data: bytes, rows: int, *, calls: bool) -> bytes:
    """Return the model with the loop."""
    file = File(data)
    size = 96 * 104
    if calls:
        graphs, after = loop(file, 0, size, size + 48, rows)
        graphs.append(called(file, graphs[0], after))
    else:
        base = 3 * PIXEL + DIAGONAL + 24 * ROW
        graphs, after = loop(file, base, 0, 48, rows)
        plain(file, graphs[0], after, base)
    main, end = graphs[0], 9216
    before = file.result(7)
    for position in range(8, len(file.main.operators)):
        result = file.result(position)
        operand = main.old(before)
        offset = main.offsets[operand]
        size = prod(file.main.tensors[before].shape or ())
        place = end if offset < end and offset + size <= end else 0
        main.repeat(position, operand, main.old(result, place))
        before = result
    main.outputs = [main.old(number) for number in file.main.outputs]
    return file.written(graphs)


def compare(data: bytes, made: bytes, inputs: int) -> None:
    """Run both models, if the interpreter is there."""
    try:
        from tflite_micro import runtime
    except ImportError:
        print("the package tflite-micro is not installed: nothing was run")
        return
    need = total(parse(made), read_offsets(parse(made))).total
    old = runtime.Interpreter.from_bytes(data, arena_size=1 << 20)
    new = runtime.Interpreter.from_bytes(made, arena_size=need)
    draw, equal, seen = np.random.default_rng(0), 0, set()
    for _ in range(inputs):
        image = draw.integers(-128, 128, (1, 96, 96, 1), np.int8)
        image = np.sort(image, axis=1 + draw.integers(2)) if draw.random() < 0.5 else image
        outputs = []
        for interpreter in (old, new):
            interpreter.set_input(image, 0)
            interpreter.invoke()
            outputs.append(interpreter.get_output(0).tobytes())
        equal += outputs[0] == outputs[1]
        seen.add(outputs[0])
    print(f"{equal} of {inputs} outputs have equal bits ({len(seen)} different ones)")


def main() -> None:
    """Run the experiment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--rows", type=int, choices=(2, 3, 4, 6), default=4)
    parser.add_argument("--call", action="store_true")
    parser.add_argument("--inputs", type=int, default=100)
    options = parser.parse_args()
    data = options.model.read_bytes()
    made = rolled(data, options.rows, calls=options.call)
    options.output.write_bytes(made)
    model = parse(made)
    for pointer in (64, 32):
        arena = total(model, read_offsets(model), pointer=pointer)
        print(f"{pointer} bits: {arena.total:,} bytes, head {arena.head:,}, tail {arena.tail:,}")
    compare(data, made, options.inputs)


if __name__ == "__main__":
    main()
