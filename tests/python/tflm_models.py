"""TFLite models for TensorFlow Lite Micro: random ones with scratch memory, and one with state."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

import flat

_ONE = struct.unpack("<I", struct.pack("<f", 1.0))[0]
"""The bits of the scale of every tensor."""

_WIDTH = 64
_LONGEST = 64


class _Writer:
    """A model of bytes, whose images are columns: ``1 x height x 64 x 1``."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
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
        self.tensors.append(flat.tensor(f"t{len(self.tensors)}", shape, flat.INT8, scale=_ONE))
        return len(self.tensors) - 1

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

    def add(self) -> None:
        first = self.any()
        same = [i for i, height in enumerate(self.heights) if height == self.heights[first]]
        second = self.draw.choice(same)
        self.operator("ADD", [first, second], self.image(self.heights[first]), (11, {}))


def random_bytes_model(seed: int, *, scratch: bool) -> bytes:
    """
    Return a model of ``int8`` images, whose kernels ask for scratch memory or do not.

    The scales are 1, so that kernels round nothing; what is too large, saturates.
    """
    writer = _Writer(seed)
    writer.image(writer.draw.randint(4, _LONGEST // 2))
    layers = [writer.pad, writer.slice, writer.concatenation, writer.add]
    if scratch:
        writer.transpose_conv()
        layers += [writer.transpose_conv, writer.transpose_conv, writer.mirror_pad]
    for _ in range(writer.draw.randint(3, 12)):
        writer.draw.choice(layers)()
    images = [i for i, height in enumerate(writer.heights) if height]
    read = {i for operator in writer.operators for i in operator[1].values}
    # The runtime's oracle looks at the first output; all that nobody reads are outputs.
    outputs = [i for i in reversed(images) if i not in read]
    main = flat.subgraph(writer.tensors, writer.operators, [0], outputs)
    return flat.write(flat.model([flat.code(n) for n in writer.names], [main], writer.buffers))


def running_sum(count: int = 16) -> bytes:
    """Return a model with a variable, which a second subgraph sets to zero, once."""
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
    return flat.write(flat.model([flat.code(n) for n in names], graphs, [b"", bytes(4 * count)]))


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
