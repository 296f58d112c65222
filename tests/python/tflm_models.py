"""TFLite models for TensorFlow Lite Micro: random ones with scratch memory, and one with state."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from math import prod
from typing import Any

import flat

_ONE = struct.unpack("<I", struct.pack("<f", 1.0))[0]
"""The bits of the scale of every tensor."""

_WIDTH = 64
INT16 = 7
_LONGEST = 64


class _Writer:
    """A model of bytes, whose images are columns: ``1 x height x 64 x 1``."""

    def __init__(self, seed: int, *, words: bool = False) -> None:
        self.draw = random.Random(seed)
        self.type = INT16 if words else flat.INT8
        self.tensors: list[dict[int, Any]] = []
        self.heights: list[int] = []
        """Per tensor its height; 0 for constants."""
        self.operators: list[dict[int, Any]] = []
        self.names: list[str] = []
        """Operators by code."""
        self.buffers = [b""]

    def image(self, height: int) -> int:
        shape = (1, height, _WIDTH, 1)
        self.heights.append(height)
        self.tensors.append(flat.tensor(f"t{len(self.tensors)}", shape, self.type, scale=_ONE))
        return len(self.tensors) - 1

    def other(self, shape: Sequence[int], type_: int | None = None, *, state: bool = False) -> int:
        """Add a tensor that is no image."""
        self.heights.append(0)
        kind = self.type if type_ is None else type_
        name = f"t{len(self.tensors)}"
        self.tensors.append(flat.tensor(name, shape, kind, scale=_ONE, variable=state))
        return len(self.tensors) - 1

    def weights(self, shape: Sequence[int], type_: int = flat.INT8) -> int:
        """Add constants of 1."""
        letter = {flat.INT8: "b", INT16: "h", flat.INT32: "i"}[type_]
        content = struct.pack(f"<{prod(shape)}{letter}", *[1] * prod(shape))
        index = self.constant(shape, type_, content)
        self.tensors[index][4] = {2: flat.Vector("I", [_ONE]), 3: flat.Vector("q", [0])}
        return index

    def reshaped(self, index: int, shape: Sequence[int]) -> int:
        """Add a reshape of a tensor."""
        result = self.image(shape[1]) if len(shape) == 4 else self.other(shape)
        self.operator("RESHAPE", [index, self.numbers(*shape)], result)
        return result

    def constant(self, shape: Sequence[int], type_: int, content: bytes) -> int:
        self.buffers.append(content)
        self.heights.append(0)
        scale = _ONE if type_ == flat.INT8 else None
        name = f"t{len(self.tensors)}"
        self.tensors.append(
            flat.tensor(name, shape, type_, buffer=len(self.buffers) - 1, scale=scale)
        )
        return len(self.tensors) - 1

    def numbers(self, *numbers: int, shape: Sequence[int] | None = None) -> int:
        content = struct.pack(f"<{len(numbers)}i", *numbers)
        return self.constant(shape or (len(numbers),), flat.INT32, content)

    def operator(
        self, name: str, inputs: Sequence[int], output: int, options: tuple[int, Any] | None = None
    ) -> None:
        if name not in self.names:
            self.names.append(name)
        self.operators.append(flat.operator(self.names.index(name), inputs, [output], options))

    def any(self, longest: int = _LONGEST) -> int:
        images = [i for i, height in enumerate(self.heights) if 0 < height <= longest]
        return images[-1 - int(len(images) * self.draw.random() ** 2)]

    # -- layers ---------------------------------------------------------------------------

    def transpose_conv(self) -> None:
        x = self.any()
        height = self.heights[x]
        shape = self.numbers(1, height, _WIDTH, 1)
        weights = self.constant((1, 1, 1, 1), flat.INT8, b"\1")
        step = flat.Number("i", 1)
        self.operator(
            "TRANSPOSE_CONV",
            [shape, weights, x],
            self.image(height),
            (49, {0: flat.Number("b", 0), 1: step, 2: step}),
        )

    def mirror_pad(self) -> None:
        x = self.any(_LONGEST - 2)
        if self.heights[x] < 2:
            return
        amounts = self.numbers(0, 0, 1, 1, 0, 0, 0, 0, shape=(4, 2))
        self.operator("MIRROR_PAD", [x, amounts], self.image(self.heights[x] + 2), (77, {}))

    def pad(self) -> None:
        x = self.any(_LONGEST // 2)
        more = self.draw.randint(1, _LONGEST // 2)
        amounts = self.numbers(0, 0, 0, more, 0, 0, 0, 0, shape=(4, 2))
        self.operator("PAD", [x, amounts], self.image(self.heights[x] + more), (22, {}))

    def slice(self) -> None:
        x = self.any()
        height = self.draw.randint(1, self.heights[x])
        begin = self.numbers(0, self.draw.randint(0, self.heights[x] - height), 0, 0)
        size = self.numbers(1, height, _WIDTH, 1)
        self.operator("SLICE", [x, begin, size], self.image(height))

    def concatenation(self) -> None:
        first, second = self.any(_LONGEST // 2), self.any(_LONGEST // 2)
        height = self.heights[first] + self.heights[second]
        axis = (10, {0: flat.Number("i", 1)})
        self.operator("CONCATENATION", [first, second], self.image(height), axis)

    def mean(self) -> None:
        x = self.any()
        keep = (27, {0: flat.Number("B", 1)})
        self.operator("MEAN", [x, self.numbers(3)], self.image(self.heights[x]), keep)

    def batch_matmul(self) -> None:
        x = self.any()
        ones = self.weights((1, 1, 1, 1), self.type)
        self.operator("BATCH_MATMUL", [x, ones], self.image(self.heights[x]), (101, {}))

    def svdf(self) -> None:
        x = self.any(4)
        count = self.heights[x] * _WIDTH
        operands = [
            self.reshaped(x, (1, count)),
            self.weights((_WIDTH, count)),
            self.weights((_WIDTH, 2), INT16),
            self.weights((_WIDTH,), flat.INT32),
            self.other((1, 2 * _WIDTH), INT16, state=True),
        ]
        result = self.other((1, _WIDTH))
        self.operator("SVDF", operands, result, (6, {0: flat.Number("i", 1)}))
        self.reshaped(result, (1, 1, _WIDTH, 1))

    def lstm(self) -> None:
        x = self.any()
        shape = (1, self.heights[x], _WIDTH)
        square = (_WIDTH, _WIDTH)
        operands = [
            self.reshaped(x, shape),
            *(self.weights(square) for _ in range(8)),
            *(-1,) * 3,
            *(self.weights((_WIDTH,), flat.INT32) for _ in range(4)),
            *(-1,) * 2,
            self.other((1, _WIDTH), state=True),
            self.other((1, _WIDTH), INT16, state=True),
            *(-1,) * 4,
        ]
        result = self.other(shape)
        options = (71, {0: flat.Number("b", 4)})
        self.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, result, options)
        self.reshaped(result, (1, *shape[1:], 1))

    def add(self) -> None:
        first = self.any()
        same = [i for i, height in enumerate(self.heights) if height == self.heights[first]]
        second = self.draw.choice(same)
        self.operator("ADD", [first, second], self.image(self.heights[first]), (11, {}))


def random_bytes_model(seed: int, *, scratch: bool, words: bool = False, shown: int = 0) -> bytes:
    """
    Return a model of images, whose kernels ask for scratch memory or do not.

    The images are of ``int8``, or of ``int16`` if ``words`` is set. As many of those that an
    operator reads are outputs, too, as ``shown`` says.

    The scales are 1, so that kernels round nothing; what is too large, saturates.
    """
    writer = _Writer(seed, words=words)
    writer.image(writer.draw.randint(2 if scratch else 4, _LONGEST // 2))
    layers = [writer.pad, writer.slice, writer.concatenation, writer.add]
    if scratch:
        writer.transpose_conv()
        layers += [writer.transpose_conv, writer.transpose_conv, writer.mean]
        layers.append(writer.batch_matmul)
        if not words:
            layers += [writer.mirror_pad, writer.lstm]
            if any(0 < height <= 4 for height in writer.heights):
                layers.append(writer.svdf)
    for _ in range(writer.draw.randint(3, 12)):
        writer.draw.choice(layers)()
    images = [i for i, height in enumerate(writer.heights) if height]
    read = {i for operator in writer.operators for i in operator[1].values}
    # The runtime's oracle looks at the first output; all images that nobody reads are outputs.
    outputs = [i for i in reversed(images) if i not in read]
    inside = [i for i in images if i in read and i != 0]
    outputs += writer.draw.sample(inside, min(shown, len(inside))) if shown else []
    main = flat.subgraph(writer.tensors, writer.operators, [0], outputs)
    return flat.write(flat.model([flat.code(n) for n in writer.names], [main], writer.buffers))


def running_sum(count: int = 16, start: bytes = b"") -> bytes:
    """Return a model with a variable, which a second subgraph sets to zero or ``start``, once."""
    shape = (1, count)
    call = (103, {0: flat.Number("i", 1)})
    variable = (111, {0: "", 1: "sum"})
    outer = [
        flat.tensor("x", shape),
        flat.tensor("handle", (1,), flat.RESOURCE),
        flat.tensor("before", shape),
        flat.tensor("sum", shape),
        flat.tensor("y", shape),
    ]
    operators = [
        flat.operator(0, [], [], call),
        flat.operator(1, [], [1], variable),
        flat.operator(2, [1], [2], (112, {})),
        flat.operator(3, [2, 0], [3], (11, {})),
        flat.operator(4, [1, 3], [], (113, {})),
        flat.operator(5, [3], [4]),
    ]
    inner = [
        flat.tensor("inner handle", (1,), flat.RESOURCE),
        flat.tensor("zeros", shape, buffer=1),
    ]
    inside = [
        flat.operator(1, [], [0], variable),
        flat.operator(4, [0, 1], [], (113, {})),
    ]
    names = ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ADD", "ASSIGN_VARIABLE", "NEG")
    graphs = [
        flat.subgraph(outer, operators, [0], [4]),
        flat.subgraph(inner, inside, [], [], "start"),
    ]
    return flat.write(
        flat.model([flat.code(n) for n in names], graphs, [b"", start or bytes(4 * count)])
    )


def branches() -> dict[int, Any]:
    """Return a model that makes two large tensors before it makes them small."""
    tensors = [
        flat.tensor("x", (1, 4)),
        *(flat.tensor(name, (1, 256)) for name in ("a", "b")),
        *(flat.tensor(name, (1, 4)) for name in ("small_a", "small_b", "y")),
        flat.tensor("wide", (256, 4), buffer=1),
        flat.tensor("narrow", (4, 256), buffer=2),
    ]
    operators = [
        flat.operator(0, [0, 6], [1]),
        flat.operator(0, [0, 6], [2]),
        flat.operator(0, [1, 7], [3]),
        flat.operator(0, [2, 7], [4]),
        flat.operator(1, [3, 4], [5]),
    ]
    codes = [flat.code("FULLY_CONNECTED"), flat.code("ADD")]
    main = flat.subgraph(tensors, operators, [0], [5])
    return flat.model(codes, [main], [b"", bytes(4096), bytes(4096)])
