"""Random image networks as TFLite files, and an evaluator that keeps tensors in an arena."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import flat
from arenaplan.tflite.reader.tflite_model import TfliteModel, TfliteOperator

_SCALE = struct.unpack("<I", struct.pack("<f", 0.05))[0]
_WEIGHT_SCALE = struct.unpack("<I", struct.pack("<f", 0.01))[0]
_BIAS_SCALE = struct.unpack("<I", struct.pack("<f", 0.0005))[0]
ZERO = -7
"""Zero point of every activation; not 0, so that padding with zeros is noticed."""
SAME, VALID = 0, 1


def image(name: str, shape: Sequence[int]) -> dict[int, Any]:
    """Return an activation of int8."""
    table = flat.tensor(name, shape, flat.INT8)
    table[4] = {2: flat.Vector("I", [_SCALE]), 3: flat.Vector("q", [ZERO])}
    return table


class Network:
    """A network of images, built layer by layer."""

    def __init__(self, seed: int, shape: Sequence[int]) -> None:
        self.draw = random.Random(seed)
        self.tensors: list[dict[int, Any]] = []
        self.shapes: list[tuple[int, ...]] = []
        self.operators: list[dict[int, Any]] = []
        self.codes: list[str] = []
        self.buffers = [b""]
        self.tensor(image("x", shape), shape)

    def tensor(self, table: dict[int, Any], shape: Sequence[int]) -> int:
        self.tensors.append(table)
        self.shapes.append(tuple(shape))
        return len(self.tensors) - 1

    def activation(self, shape: Sequence[int]) -> int:
        return self.tensor(image(f"t{len(self.tensors)}", shape), shape)

    def constant(self, values: np.ndarray, type_: int, scales: Sequence[int], axis: int) -> int:
        self.buffers.append(values.tobytes())
        table = flat.tensor(
            f"c{len(self.tensors)}", values.shape, type_, buffer=len(self.buffers) - 1
        )
        zeros = flat.Vector("q", [0] * len(scales))
        table[4] = {2: flat.Vector("I", scales), 3: zeros, 6: flat.Number("i", axis)}
        return self.tensor(table, values.shape)

    def operator(
        self, name: str, inputs: Sequence[int], output: int, options: tuple[int, Any] | None
    ) -> int:
        if name not in self.codes:
            self.codes.append(name)
        self.operators.append(flat.operator(self.codes.index(name), inputs, [output], options))
        return output

    def bytes(self) -> np.random.Generator:
        return np.random.default_rng(self.draw.randrange(1 << 30))

    # -- layers -------------------------------------------------------------------------------

    def conv(
        self,
        x: int,
        channels: int,
        kernel: int = 3,
        stride: int = 1,
        padding: int = SAME,
        dilation: int = 1,
    ) -> int:
        _, height, width, depth = self.shapes[x]
        shape = (1, *_made((height, width), kernel, stride, padding, dilation), channels)
        values = self.bytes().integers(-127, 128, (channels, kernel, kernel, depth), np.int8)
        weights = self.constant(values, flat.INT8, [_WEIGHT_SCALE] * channels, 0)
        values = self.bytes().integers(-500, 500, (channels,), np.int32)
        bias = self.constant(values, flat.INT32, [_BIAS_SCALE] * channels, 0)
        n = flat.Number
        options = {
            0: n("b", padding),
            1: n("i", stride),
            2: n("i", stride),
            4: n("i", dilation),
            5: n("i", dilation),
        }
        y = self.activation(shape)
        return self.operator("CONV_2D", [x, weights, bias], y, (1, options))

    def depthwise(self, x: int, kernel: int = 3, stride: int = 1, padding: int = SAME) -> int:
        _, height, width, depth = self.shapes[x]
        shape = (1, *_made((height, width), kernel, stride, padding, 1), depth)
        values = self.bytes().integers(-127, 128, (1, kernel, kernel, depth), np.int8)
        weights = self.constant(values, flat.INT8, [_WEIGHT_SCALE] * depth, 3)
        values = self.bytes().integers(-500, 500, (depth,), np.int32)
        bias = self.constant(values, flat.INT32, [_BIAS_SCALE] * depth, 0)
        n = flat.Number
        options = {
            0: n("b", padding),
            1: n("i", stride),
            2: n("i", stride),
            3: n("i", 1),
            5: n("i", 1),
            6: n("i", 1),
        }
        y = self.activation(shape)
        return self.operator("DEPTHWISE_CONV_2D", [x, weights, bias], y, (2, options))

    def pool(self, x: int, name: str, kernel: int, stride: int, padding: int = SAME) -> int:
        _, height, width, depth = self.shapes[x]
        shape = (1, *_made((height, width), kernel, stride, padding, 1), depth)
        n = flat.Number
        options = {
            0: n("b", padding),
            1: n("i", stride),
            2: n("i", stride),
            3: n("i", kernel),
            4: n("i", kernel),
        }
        return self.operator(name, [x], self.activation(shape), (5, options))

    def add(self, a: int, b: int) -> int:
        return self.operator("ADD", [a, b], self.activation(self.shapes[a]), (11, {}))

    def pad(self, x: int, rows: Sequence[int], columns: Sequence[int]) -> int:
        _, height, width, depth = self.shapes[x]
        amounts = np.array([[0, 0], rows, columns, [0, 0]], np.int32)
        self.buffers.append(amounts.tobytes())
        table = flat.tensor(f"p{len(self.tensors)}", (4, 2), flat.INT32)
        table[2] = flat.Number("I", len(self.buffers) - 1)
        pads = self.tensor(table, (4, 2))
        y = self.activation((1, height + sum(rows), width + sum(columns), depth))
        return self.operator("PAD", [x, pads], y, (22, {}))

    def relu(self, x: int) -> int:
        return self.operator("RELU", [x], self.activation(self.shapes[x]), None)

    def file(self, outputs: Sequence[int]) -> bytes:
        main = flat.subgraph(self.tensors, self.operators, [0], outputs)
        codes = [flat.code(name) for name in self.codes]
        return flat.write(flat.model(codes, [main], self.buffers))


def _made(
    sizes: Sequence[int], kernel: int, stride: int, padding: int, dilation: int
) -> tuple[int, ...]:
    reach = (kernel - 1) * dilation + 1
    return tuple(
        -(-size // stride) if padding == SAME else (size - reach) // stride + 1 for size in sizes
    )


def random_network(seed: int) -> bytes:
    """Return a network of convolutions, pools and sums with all kinds of windows."""
    draw = random.Random(seed)
    net = Network(seed, (1, draw.randint(9, 24), draw.choice([8, 12, 16]), draw.choice([1, 2, 4])))
    x = 0
    for _ in range(draw.randint(2, 7)):
        height, width = net.shapes[x][1:3]
        kind = draw.choice(
            ["conv", "conv", "depthwise", "pool", "residual", "relu", "point", "pad"]
        )
        padding = draw.choice([SAME, SAME, VALID])
        if min(height, width) < 8 and kind != "relu":
            kind, padding = "point", SAME
        if kind == "conv":
            dilation = draw.choice([1, 1, 2])
            stride = 1 if dilation > 1 else draw.choice([1, 1, 2, 3])
            kernel = 3 if dilation > 1 else draw.choice([2, 3, 3, 5])
            x = net.conv(x, draw.choice([4, 8]), kernel, stride, padding, dilation)
        elif kind == "depthwise":
            x = net.depthwise(x, draw.choice([3, 3, 5]), draw.choice([1, 2]), padding)
        elif kind == "pool":
            name = draw.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"])
            x = net.pool(x, name, draw.choice([2, 3]), draw.choice([1, 2]), padding)
        elif kind == "residual":
            y = net.conv(x, net.shapes[x][3], 3)
            y = net.relu(y) if draw.random() < 0.5 else y
            x = net.add(x, y) if draw.random() < 0.5 else net.add(y, x)
        elif kind == "relu":
            x = net.relu(x)
        elif kind == "pad":
            x = net.pad(x, (draw.randint(0, 2), draw.randint(0, 2)), (1, draw.randint(0, 1)))
        else:
            x = net.conv(x, draw.choice([4, 8, 16]), 1)
    return net.file([x])


def pyramid(size: int = 32, channels: int = 16) -> bytes:
    """Return a network whose first layers need most bytes, as those for images do."""
    net = Network(3, (1, size, size, 4))
    x = net.conv(0, channels, 3, 1)
    x = net.conv(x, channels, 3, 2)
    x = net.conv(x, channels, 1)
    x = net.pool(x, "AVERAGE_POOL_2D", size // 2, size // 2, VALID)
    return net.file([x])


# -- evaluation -------------------------------------------------------------------------------


def evaluate(
    model: TfliteModel, inputs: Sequence[np.ndarray], offsets: Sequence[int] | None = None
) -> list[np.ndarray]:
    """
    Return the outputs of a model, computed with exact integers and a rounding of our own.

    With offsets, every tensor lives in one arena at its offset and nowhere else, and operators read
    and write it element by element, in the order of reference kernels.
    """
    main = model.subgraphs[0]
    top = 1 << 20
    arena = np.full(top, 85, np.int8)
    loose: dict[int, np.ndarray] = {}

    def shape(index: int) -> tuple[int, ...]:
        found = main.tensors[index].shape
        assert found is not None
        return found

    def get(index: int) -> np.ndarray:
        tensor = main.tensors[index]
        if model.is_constant(tensor):
            dtype = np.int8 if tensor.type == flat.INT8 else np.int32
            return np.frombuffer(model.content(tensor.buffer), dtype).reshape(shape(index))
        if offsets is None:
            return loose[index]
        size = int(np.prod(shape(index)))
        at = offsets[index]
        assert at >= 0
        return arena[at : at + size].reshape(shape(index))

    def put(index: int, value: np.ndarray) -> None:
        assert value.shape == shape(index), (value.shape, shape(index))
        if offsets is None:
            loose[index] = value.astype(np.int8)
        else:
            at = offsets[index]
            arena[at : at + value.size] = value.astype(np.int8).ravel()

    for index, value in zip(main.inputs, inputs, strict=True):
        put(index, value)
    for operator in main.operators:
        arrays = [get(index) for index in operator.inputs if index is not None]
        (result,) = (index for index in operator.outputs if index is not None)
        if offsets is None or operator.name in ("SLICE", "PAD", "CONCATENATION"):
            put(result, _computed(operator, [a.copy() for a in arrays], shape(result)))
        else:
            out = get(result)
            for place, value in _elements(operator, arrays, shape(result)):
                out[place] = value
    return [get(index) for index in main.outputs]


def _elements(
    operator: TfliteOperator, arrays: list[np.ndarray], shape: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield the place and value of each element, computed when it is asked for."""
    if operator.name in ("ADD", "RELU"):
        for place in np.ndindex(*shape):
            part = [np.array(np.broadcast_to(a, shape)[place]) for a in arrays]
            yield place, int(_computed(operator, part, ()))
        return
    look = _Look(operator, arrays, shape)
    for place in np.ndindex(*shape):
        yield place, int(_rounded_if(operator, look.value(arrays, *place[1:])))


class _Look:
    """The taps of a window operator inside of its image."""

    def __init__(
        self, operator: TfliteOperator, arrays: list[np.ndarray], shape: Sequence[int]
    ) -> None:
        options = operator.options
        assert options is not None
        self.name = operator.name
        is_same = options.number(0) == SAME
        strides = (options.number(2), options.number(1))
        if "POOL" in self.name:
            taps, spread = (options.number(4), options.number(3)), (1, 1)
        else:
            taps = (arrays[1].shape[1], arrays[1].shape[2])
            slots = (5, 4) if self.name == "CONV_2D" else (6, 5)
            spread = (options.number(slots[0]), options.number(slots[1]))
        self.lines = []
        for axis in (0, 1):
            size = arrays[0].shape[1 + axis]
            where = _places(size, shape[1 + axis], taps[axis], strides[axis], spread[axis], is_same)
            self.lines.append(
                [[(t, p) for t, p in enumerate(line) if 0 <= p < size] for line in where]
            )

    def value(self, arrays: list[np.ndarray], i: int, j: int, channel: int) -> int:
        """Return the sum, maximum or mean of one window."""
        ys, xs = self.lines[0][i], self.lines[1][j]
        grid = np.ix_([p for _, p in ys], [p for _, p in xs])
        if self.name == "CONV_2D":
            part = arrays[0][0][grid].astype(np.int64) - ZERO
            kernel = arrays[1][channel][np.ix_([t for t, _ in ys], [t for t, _ in xs])]
            return int((part * kernel).sum() + arrays[2][channel])
        part = arrays[0][0][..., channel][grid].astype(np.int64)
        if self.name == "MAX_POOL_2D":
            return int(part.max())
        if self.name == "AVERAGE_POOL_2D":
            return int(part.sum() // part.size)
        kernel = arrays[1][0][..., channel][np.ix_([t for t, _ in ys], [t for t, _ in xs])]
        return int(((part - ZERO) * kernel).sum() + arrays[2][channel])


def _rounded_if(operator: TfliteOperator, value: int) -> int:
    return value if "POOL" in operator.name else int(_rounded(np.array(value)))


def _computed(
    operator: TfliteOperator, arrays: list[np.ndarray], shape: Sequence[int]
) -> np.ndarray:
    name, options = operator.name, operator.options
    x = arrays[0]
    if name == "ADD":
        return _rounded(3 * x.astype(np.int64) + 5 * arrays[1])
    if name == "RELU":
        return np.maximum(x, ZERO)
    if name == "SLICE":
        begin, size = arrays[1], arrays[2]
        ends = [d if s == -1 else b + s for b, s, d in zip(begin, size, x.shape, strict=True)]
        return x[tuple(slice(b, e) for b, e in zip(begin, ends, strict=True))]
    if name == "PAD":
        return np.pad(x, arrays[1], constant_values=ZERO)
    assert options is not None
    if name == "CONCATENATION":
        return np.concatenate(arrays, axis=options.number(0))
    down, across = options.number(2), options.number(1)
    is_same = options.number(0) == SAME
    if name in ("MAX_POOL_2D", "AVERAGE_POOL_2D"):
        taps = (options.number(4), options.number(3))
        spread = (1, 1)
    else:
        taps = (arrays[1].shape[1], arrays[1].shape[2])
        slots = (5, 4) if name == "CONV_2D" else (6, 5)
        spread = (options.number(slots[0]), options.number(slots[1]))
    rows = _places(x.shape[1], shape[1], taps[0], down, spread[0], is_same)
    columns = _places(x.shape[2], shape[2], taps[1], across, spread[1], is_same)
    out = np.zeros(shape, np.int64)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            ys = [(t, r) for t, r in enumerate(row) if 0 <= r < x.shape[1]]
            xs = [(t, c) for t, c in enumerate(column) if 0 <= c < x.shape[2]]
            part = x[0][np.ix_([r for _, r in ys], [c for _, c in xs])].astype(np.int64)
            if name == "MAX_POOL_2D":
                out[0, i, j] = part.max(axis=(0, 1))
            elif name == "AVERAGE_POOL_2D":
                out[0, i, j] = part.sum(axis=(0, 1)) // (len(ys) * len(xs))
            elif name == "CONV_2D":
                kernel = arrays[1][np.ix_(range(shape[3]), [t for t, _ in ys], [t for t, _ in xs])]
                out[0, i, j] = np.tensordot(kernel.astype(np.int64), part - ZERO, 3) + arrays[2]
            else:
                kernel = arrays[1][0][np.ix_([t for t, _ in ys], [t for t, _ in xs])]
                out[0, i, j] = (kernel.astype(np.int64) * (part - ZERO)).sum(axis=(0, 1))
                out[0, i, j] += arrays[2]
    return out if "POOL" in name else _rounded(out)


def _places(
    size: int, made: int, taps: int, stride: int, spread: int, is_same: bool
) -> list[list[int]]:
    """Return for each window the places of its taps, before the image is cut off."""
    before = 0
    if is_same:
        before = max((made - 1) * stride + (taps - 1) * spread + 1 - size, 0) // 2
    return [[i * stride - before + t * spread for t in range(taps)] for i in range(made)]


def _rounded(values: np.ndarray) -> np.ndarray:
    """Return numbers of 8 bits that depend on every bit of the sums."""
    return (values * 37 // 8) % 256 - 128
