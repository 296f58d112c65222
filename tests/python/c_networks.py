"""Random TFLite networks of one element type, of all operators that generated code has."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

import flat
from arenaplan.tflite.reader.schema import OPERATORS
from tflm_operators import TYPES

SAME, VALID = 0, 1
_SHARED: Final = frozenset(
    {
        *("AVERAGE_POOL_2D", "MAX_POOL_2D", "RESHAPE", "PAD", "CONCATENATION", "SPLIT", "SLICE"),
        *("STRIDED_SLICE", "TRANSPOSE", "RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR", "RELU6"),
        *("MAXIMUM", "MINIMUM"),
    }
)
"""Operators whose results have the scale of their operands."""


_KINDS: Final = (
    *("conv", "conv", "conv", "depthwise", "depthwise", "pool", "pool", "add", "broadcast"),
    *("unary", "unary", "concat", "pad", "slice", "resize", "split", "transpose_conv"),
    *("transpose", "strided"),
)
"""Layers, some of them more likely."""


def _bits(number: float) -> int:
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    return int(bits)


def _code(name: str) -> dict[int, Any]:
    """Return the code of an operator."""
    number = OPERATORS.index(name)
    return {0: flat.Number("b", min(number, 127)), 3: flat.Number("i", number)}


class Net:
    """A network that grows by one layer at a time."""

    def __init__(self, seed: int, dtype: str) -> None:
        self.draw, self.data = random.Random(seed), np.random.default_rng(seed)
        self.dtype = dtype
        self.tensors: list[dict[int, Any]] = []
        self.shapes: list[tuple[int, ...]] = []
        self.scales: list[tuple[float, int]] = []
        self.operators: list[dict[int, Any]] = []
        self.codes: list[str] = []
        self.buffers = [b""]
        self.activations: set[int] = set()

    def tensor(
        self, shape: Sequence[int], scale: tuple[float, int] | None = None, dtype: str = ""
    ) -> int:
        """Add an activation."""
        if scale is None:
            zero = self.draw.randint(-20, 20) if self.dtype == "int8" else 0
            scale = (self.draw.choice([0.02, 0.05, 0.1]), zero)
        kind = dtype or self.dtype
        table = flat.tensor(f"t{len(self.tensors)}", shape, TYPES[kind])
        if kind.startswith("int"):
            table[4] = {2: flat.Vector("I", [_bits(scale[0])]), 3: flat.Vector("q", [scale[1]])}
        self.activations.add(len(self.tensors))
        return self._add(table, shape, scale)

    def _add(
        self, table: dict[int, Any], shape: Sequence[int], scale: tuple[float, int] = (1.0, 0)
    ) -> int:
        self.tensors.append(table)
        self.shapes.append(tuple(shape))
        self.scales.append(scale)
        return len(self.tensors) - 1

    def numbers(self, *numbers: int, shape: Sequence[int] | None = None) -> int:
        """Add constant whole numbers."""
        self.buffers.append(struct.pack(f"<{len(numbers)}i", *numbers))
        shape = (len(numbers),) if shape is None else shape
        return self._add(
            flat.tensor(
                f"n{len(self.tensors)}", shape, TYPES["int32"], buffer=len(self.buffers) - 1
            ),
            shape,
        )

    def weights(self, shape: Sequence[int], axis: int) -> int:
        """Add weights, with a scale per channel."""
        if self.dtype == "float32":
            values = self.data.standard_normal(shape).astype(np.float32)
        else:
            values = self.data.integers(-127, 128, shape).astype(np.int8)
        self.buffers.append(values.tobytes())
        kind = "float32" if self.dtype == "float32" else "int8"
        table = flat.tensor(
            f"w{len(self.tensors)}", shape, TYPES[kind], buffer=len(self.buffers) - 1
        )
        if kind == "int8":
            count = shape[axis]
            scales = [_bits(self.draw.uniform(0.002, 0.01)) for _ in range(count)]
            table[4] = {
                2: flat.Vector("I", scales),
                3: flat.Vector("q", [0] * count),
                6: flat.Number("i", axis),
            }
        return self._add(table, shape)

    def bias(self, count: int) -> int:
        """Add a bias, or leave it out."""
        if self.draw.random() < 0.2:
            return -1
        kind = {"int8": "int32", "int16": "int64", "float32": "float32"}[self.dtype]
        values = self.data.integers(-500, 500, count).astype(kind)
        self.buffers.append(values.tobytes())
        table = flat.tensor(
            f"b{len(self.tensors)}", (count,), TYPES[kind], buffer=len(self.buffers) - 1
        )
        if kind.startswith("int"):
            table[4] = {2: flat.Vector("I", [_bits(0.001)]), 3: flat.Vector("q", [0])}
        return self._add(table, (count,))

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        shapes: Sequence[Sequence[int]],
        options: tuple[int, Any] | None = None,
        scale: tuple[float, int] | None = None,
    ) -> int:
        """Add an operator; return its first result."""
        if name not in self.codes:
            self.codes.append(name)
        if name in _SHARED:
            activations = [at for at in inputs if at in self.activations]
            scale = self.scales[activations[0]] if activations else scale
        outputs = [self.tensor(shape, scale) for shape in shapes]
        self.operators.append(flat.operator(self.codes.index(name), inputs, outputs, options))
        return outputs[0]

    def file(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """Return the model."""
        main = flat.subgraph(self.tensors, self.operators, inputs, outputs)
        return flat.write(flat.model([_code(name) for name in self.codes], [main], self.buffers))

    # -- layers ------------------------------------------------------------------------------------

    def window(self, x: int, kernel: int, stride: int, padding: int) -> tuple[int, int]:
        """Return rows and columns of a result."""
        made = [
            -(-size // stride) if padding == SAME else (size - kernel) // stride + 1
            for size in self.shapes[x][1:3]
        ]
        return made[0], made[1]

    def layer(self, x: int) -> int:
        """Add a layer behind an image."""
        draw, n = self.draw, flat.Number
        images, height, width, depth = self.shapes[x]
        kind = draw.choice(_KINDS)
        padding = draw.choice([SAME, SAME, VALID])
        kernel, stride = draw.choice([1, 2, 3]), draw.choice([1, 1, 2])
        if min(height, width) < 5:
            kernel, stride, padding = 1, 1, SAME
        act = n("b", draw.choice([0, 1, 3]))
        slide = {0: n("b", padding), 1: n("i", stride), 2: n("i", stride)}
        if kind == "conv":
            channels = draw.choice([2, 4, 8])
            made = (images, *self.window(x, kernel, stride, padding), channels)
            w = self.weights((channels, kernel, kernel, depth), 0)
            options = {**slide, 3: act, 4: n("i", 1), 5: n("i", 1)}
            return self.op("CONV_2D", [x, w, self.bias(channels)], [made], (1, options))
        if kind == "depthwise":
            many = draw.choice([1, 1, 2])
            made = (images, *self.window(x, kernel, stride, padding), depth * many)
            w = self.weights((1, kernel, kernel, depth * many), 3)
            options = {**slide, 3: n("i", many), 4: act, 5: n("i", 1), 6: n("i", 1)}
            inputs = [x, w, self.bias(depth * many)]
            return self.op("DEPTHWISE_CONV_2D", inputs, [made], (2, options))
        if kind == "pool":
            made = (images, *self.window(x, kernel, stride, padding), depth)
            options = {**slide, 3: n("i", kernel), 4: n("i", kernel), 5: act}
            name = draw.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"])
            return self.op(name, [x], [made], (5, options))
        if kind == "add":
            w = self.weights((depth, 3, 3, depth), 0)
            options = {0: n("b", SAME), 1: n("i", 1), 2: n("i", 1), 4: n("i", 1), 5: n("i", 1)}
            y = self.op("CONV_2D", [x, w, self.bias(depth)], [self.shapes[x]], (1, options))
            name = draw.choice(["ADD", "SUB", "MUL"])
            pair = [x, y] if draw.random() < 0.5 else [y, x]
            number = {"ADD": 11, "SUB": 28, "MUL": 21}[name]
            return self.op(name, pair, [self.shapes[x]], (number, {0: act}))
        if kind == "broadcast":
            options = {
                0: n("b", VALID), 1: n("i", 1), 2: n("i", 1), 3: n("i", width), 4: n("i", height)
            }  # fmt: skip
            y = self.op("AVERAGE_POOL_2D", [x], [(images, 1, 1, depth)], (5, options))
            name = draw.choice(["ADD", "MUL"])
            number = {"ADD": 11, "MUL": 21}[name]
            return self.op(name, [x, y], [self.shapes[x]], (number, {0: act}))
        if kind == "unary":
            names = ["RELU", "RELU6"]
            if self.dtype != "int16":
                names += ["HARD_SWISH", "LEAKY_RELU"]
            if self.dtype == "int8":
                names += ["LOGISTIC", "TANH", "ELU"]
            name = draw.choice(names)
            fixed = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}.get(name)
            options = (75, {0: n("f", 0.1)}) if name == "LEAKY_RELU" else None
            return self.op(name, [x], [self.shapes[x]], options, fixed)
        if kind == "concat":
            axis = draw.choice([1, 2, 3])
            y = self.op("RELU6", [x], [self.shapes[x]])
            made = list(self.shapes[x])
            made[axis] *= 2
            return self.op("CONCATENATION", [x, y], [made], (10, {0: n("i", axis)}))
        if kind == "pad":
            edges = [draw.randint(0, 2) for _ in range(4)]
            amounts = self.numbers(0, 0, *edges, 0, 0, shape=(4, 2))
            made = (images, height + sum(edges[:2]), width + sum(edges[2:]), depth)
            y = self.op("PAD", [x, amounts], [made], (22, {}))
            w = self.weights((4, 3, 3, depth), 0)
            options = {0: n("b", VALID), 1: n("i", 1), 2: n("i", 1), 4: n("i", 1), 5: n("i", 1)}
            if min(made[1:3]) < 3:
                return y
            made = (images, *self.window(y, 3, 1, VALID), 4)
            return self.op("CONV_2D", [y, w, self.bias(4)], [made], (1, options))
        if kind == "slice":
            begin = [0, draw.randrange(height), draw.randrange(width), 0]
            size = [images, draw.randint(1, height - begin[1]), draw.randint(1, width - begin[2])]
            size.append(depth)
            return self.op("SLICE", [x, self.numbers(*begin), self.numbers(*size)], [size])
        if kind == "strided":
            made = (images, -(-height // 2), width, depth)
            parts = [self.numbers(0, 0, 0, 0), self.numbers(images, height, width, depth)]
            parts.append(self.numbers(1, 2, 1, 1))
            return self.op("STRIDED_SLICE", [x, *parts], [made], (32, {}))
        if kind == "resize":
            made = (images, height + draw.randint(0, 3), width + draw.randint(0, 3), depth)
            name = "RESIZE_NEAREST_NEIGHBOR"
            if self.dtype != "int16" and draw.random() < 0.5:
                name = "RESIZE_BILINEAR"
            half = n("B", int(draw.random() < 0.5))
            options = (15, {3: half}) if name == "RESIZE_BILINEAR" else (74, {1: half})
            return self.op(name, [x, self.numbers(*made[1:3])], [made], options)
        if kind == "split" and depth % 2 == 0:
            made = (images, height, width, depth // 2)
            first = self.op(
                "SPLIT", [self.numbers(3, shape=()), x], [made, made], (35, {0: n("i", 2)})
            )
            return self.op("MAXIMUM", [first, first + 1], [made])
        if kind == "transpose_conv" and height * width < 100:
            channels = draw.choice([2, 4])
            made = (images, height * 2, width * 2, channels)
            w = self.weights((channels, 3, 3, depth), 0)
            options = {0: n("b", SAME), 1: n("i", 2), 2: n("i", 2)}
            return self.op("TRANSPOSE_CONV", [self.numbers(*made), w, x], [made], (49, options))
        made = (images, width, height, depth)
        return self.op("TRANSPOSE", [x, self.numbers(0, 2, 1, 3)], [made])

    def head(self, x: int) -> list[int]:
        """Add the last layers of a classifier."""
        n, shape = flat.Number, self.shapes[x]
        mean = self.op(
            "MEAN", [x, self.numbers(1, 2)], [(shape[0], 1, 1, shape[3])], (27, {0: n("B", 1)})
        )
        rows = self.op("RESHAPE", [mean, self.numbers(shape[0], shape[3])], [(shape[0], shape[3])])
        w = self.weights((6, shape[3]), 0)
        dense = self.op(
            "FULLY_CONNECTED", [rows, w, self.bias(6)], [(shape[0], 6)], (8, {0: n("b", 0)})
        )
        scale = (1 / 256, -128) if self.dtype == "int8" else (1 / 32768, 0)
        return [self.op("SOFTMAX", [dense], [(shape[0], 6)], (9, {0: n("f", 1.0)}), scale), x]


def random_net(seed: int, dtype: str) -> bytes:
    """Return a network of some layers, and perhaps the head of a classifier."""
    draw = random.Random(f"{seed}/{dtype}")
    net = Net(seed, dtype)
    images = draw.choice([1, 1, 1, 2])
    x = first = net.tensor(
        (images, draw.randint(6, 20), draw.randint(6, 16), draw.choice([1, 3, 4]))
    )
    for _ in range(draw.randint(2, 8)):
        if prod(net.shapes[x]) > 1 << 14:
            break
        x = net.layer(x)
    outputs = net.head(x) if draw.random() < 0.5 and x != first else [x]
    return net.file([first], outputs)
