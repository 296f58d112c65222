"""Random models of layers that planners trip over: shared operands, odd windows, bytes, states."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import arenaplan as ap

Shape = tuple[int, ...]
OPSET = 21


class OddModel:
    """
    A model of float images or rows that grows by one odd layer at a time.

    Parameters
    ----------
    without : collection of str
        Layers that the model does not have, by method.
    """

    def __init__(self, seed: int, without: Collection[str] = ()) -> None:
        self.without = without
        self.draw, self.data = random.Random(seed), np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []
        rows = [(6, 8), (5, 5), (1, 7), (16, 16), (2, 5, 8)]
        images: list[Shape] = [(1, 4, 9, 9), (1, 3, 12, 5), (2, 4, 17), (1, 8, 24, 20)]
        images += [(1, 2, 4, 6, 5), (3, 4, 7, 7)]
        self.shape_of_input = self.draw.choice([*rows, *rows, *images, *images, (), (0, 4, 6)])
        self.values: list[tuple[str, Shape]] = [("x", self.shape_of_input)]
        for _ in range(self.draw.randint(2, 10)):
            self.layer()

    # -- parts ---------------------------------------------------------------------------

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def weights(self, *shape: int) -> np.ndarray:
        return self.data.uniform(-0.5, 0.5, shape).astype(np.float32)

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def keep(self, name: str, shape: Shape) -> None:
        self.values.append((name, shape))

    def pick(self) -> tuple[str, Shape]:
        """Return a value; young ones are more likely."""
        return self.values[-1 - int(len(self.values) * self.draw.random() ** 3)]

    # -- layers --------------------------------------------------------------------------

    def layer(self) -> None:
        x, shape = self.pick()
        fitting: list[Callable[[str, Shape], None]] = [
            self.unary,
            self.unary,
            self.binary,
            self.broadcast,
            self.quantized,
            self.converted,
            self.reshaped,
        ]
        if len(shape) == 2:
            fitting += [self.gram, self.gram, self.product]
        if shape and 0 not in shape:
            fitting += [self.normalized, self.reduced, self.padded, self.tiled, self.gathered]
            fitting += [self.halved]
        if len(shape) > 2 and 0 not in shape:
            fitting += [self.depthwise, self.depthwise, self.convolved, self.convolved_bytes]
            fitting += [self.convolved, self.pooled, self.pooled, self.split, self.scaled]
            fitting += [self.batch_normalized, self.enlarged, self.transposed]
        kept = [layer for layer in fitting if layer.__name__ not in self.without]
        self.draw.choice(kept)(x, shape)

    def unary(self, x: str, shape: Shape) -> None:
        ops = ["Relu", "Abs", "Neg", "Tanh", "Sigmoid", "HardSwish", "LeakyRelu", "Mish", "Elu"]
        self.keep(self.op(self.draw.choice([*ops, "Softplus", "Gelu", "Erf", "Exp"]), x), shape)

    def binary(self, x: str, shape: Shape) -> None:
        same = [name for name, known in self.values if known == shape]
        other = self.draw.choice(
            [*same, x, self.constant(0.5), self.constant(self.weights(*shape))]
        )
        op = self.draw.choice(["Add", "Sub", "Mul", "Max", "Min"])
        pair = [x, other] if self.draw.random() < 0.5 else [other, x]
        self.keep(self.op(op, *pair), shape)

    def broadcast(self, x: str, shape: Shape) -> None:
        """Work with a constant, or a value, of which some dimensions repeat."""
        fitting = [
            name
            for name, known in self.values
            if len(known) <= len(shape)
            and all(n in (1, m) for n, m in zip(known[::-1], shape[::-1], strict=False))
        ]
        kept = tuple(n if self.draw.random() < 0.5 else 1 for n in shape)
        weights = self.weights(*kept[self.draw.randint(0, len(kept)) :])
        other = self.draw.choice([*fitting, self.constant(weights)])
        if self.draw.random() < 0.2:
            slopes = self.constant(np.abs(weights) + 0.1)
            return self.keep(self.op("PRelu", x, slopes), shape)
        pair = [x, other] if self.draw.random() < 0.5 else [other, x]
        return self.keep(self.op(self.draw.choice(["Add", "Sub", "Mul", "Max"]), *pair), shape)

    def steps(self) -> tuple[str, str]:
        dtype = self.draw.choice([np.int8, np.uint8])
        zero = self.draw.randint(0, 9)
        return self.constant(self.draw.choice([0.02, 0.05])), self.constant(zero, dtype)

    def quantized(self, x: str, shape: Shape) -> None:
        steps = self.steps()
        made = self.op("QuantizeLinear", x, *steps)
        self.keep(self.op("DequantizeLinear", made, *steps), shape)

    def converted(self, x: str, shape: Shape) -> None:
        half = self.op("Cast", x, to=onnx.TensorProto.FLOAT16)
        if self.draw.random() < 0.5:
            half = self.op("Relu", half)
        self.keep(self.op("Cast", half, to=onnx.TensorProto.FLOAT), shape)

    def reshaped(self, x: str, shape: Shape) -> None:
        size = int(np.prod(shape))
        target = self.draw.choice([(size,), (1, size), shape[::-1], (*shape, 1)])
        if self.draw.random() < 0.4 and len(shape) > 1:
            self.keep(self.op("Transpose", x, perm=[*range(len(shape))][::-1]), shape[::-1])
        else:
            self.keep(self.op("Reshape", x, self.constant(target, np.int64), allowzero=1), target)

    def gram(self, x: str, shape: Shape) -> None:
        """Multiply a value by itself, as it is or made by another node."""
        rows, columns = shape
        made = self.op(self.draw.choice(["Relu", "Tanh", "Softmax"]), x)
        made = self.draw.choice([made, x])
        kind = self.draw.randint(0, 3)
        if kind == 0:
            self.keep(self.op("Gemm", made, made, transB=1), (rows, rows))
        elif kind == 1:
            self.keep(self.op("Gemm", made, made, transA=1), (columns, columns))
        elif kind == 2 and rows == columns:
            self.keep(self.op("MatMul", made, made), shape)
        else:
            self.keep(
                self.op("MatMul", made, self.op("Transpose", made, perm=[1, 0])), (rows, rows)
            )

    def product(self, x: str, shape: Shape) -> None:
        width = self.draw.choice([1, 3, 16])
        made = self.op("MatMul", x, self.constant(self.weights(shape[1], width)))
        self.keep(made, (shape[0], width))

    def normalized(self, x: str, shape: Shape) -> None:
        kind = self.draw.randint(0, 2)
        if kind == 0:
            made = self.op("Softmax", x, axis=self.draw.randrange(len(shape)))
        elif kind == 1 and len(shape) > 2:
            scales = [self.constant(self.weights(shape[1]) + 1), self.constant(np.zeros(shape[1]))]
            made = self.op("InstanceNormalization", x, *scales)
        else:
            axis = self.draw.randrange(len(shape))
            scales = [self.constant(self.weights(*shape[axis:])) for _ in range(2)]
            made = self.op("LayerNormalization", x, *scales, axis=axis)
        self.keep(made, shape)

    def reduced(self, x: str, shape: Shape) -> None:
        """Reduce one axis, and often use the result where the value is."""
        axis = self.draw.randrange(len(shape))
        op = self.draw.choice(["ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2"])
        made = self.op(op, x, self.constant([axis], np.int64), keepdims=1)
        self.keep(made, (*shape[:axis], 1, *shape[axis + 1 :]))
        if self.draw.random() < 0.6:
            self.keep(self.op(self.draw.choice(["Sub", "Mul"]), x, made), shape)

    def scaled(self, x: str, shape: Shape) -> None:
        """Scale channels by what a global average of them says."""
        made = self.op("GlobalAveragePool", x)
        if self.draw.random() < 0.7:
            window = {"kernel_shape": [1] * len(shape[2:])}
            ones = (1,) * len(shape[2:])
            weights = self.constant(self.weights(shape[1], shape[1], *ones))
            made = self.op("Conv", made, weights, **window)
        made = self.op(self.draw.choice(["Sigmoid", "HardSigmoid"]), made)
        pair = [x, made] if self.draw.random() < 0.7 else [made, x]
        self.keep(self.op("Mul", *pair), shape)

    def padded(self, x: str, shape: Shape) -> None:
        pads = [self.draw.choice([0, 0, 1, 2]) for _ in range(2 * len(shape))]
        mode = self.draw.choice(["constant", "edge", "wrap", "reflect"])
        if mode in ("wrap", "reflect") and min(shape) < 4:
            mode = "edge"
        made = self.op("Pad", x, self.constant(pads, np.int64), mode=mode)
        ends = zip(pads, pads[len(shape) :], strict=False)
        self.keep(made, tuple(n + a + b for n, (a, b) in zip(shape, ends, strict=True)))

    def tiled(self, x: str, shape: Shape) -> None:
        if np.prod(shape) > 4096:
            return self.unary(x, shape)
        times = [self.draw.choice([1, 1, 2]) for _ in shape]
        wider = tuple(n * k for n, k in zip(shape, times, strict=True))
        return self.keep(self.op("Tile", x, self.constant(times, np.int64)), wider)

    def gathered(self, x: str, shape: Shape) -> None:
        """Take some places of an axis, or every second, or all in the other direction."""
        axis = self.draw.randrange(len(shape))
        if self.draw.random() < 0.5:
            places = [self.draw.randrange(shape[axis]) for _ in range(self.draw.randint(1, 5))]
            made = self.op("Gather", x, self.constant(places, np.int64), axis=axis)
            return self.keep(made, (*shape[:axis], len(places), *shape[axis + 1 :]))
        step = self.draw.choice([2, -1, 1])
        bounds = (-1, -(2**31), step) if step < 0 else (0, 2**31, step)
        ends = [self.constant([number], np.int64) for number in (*bounds[:2], axis, step)]
        made = self.op("Slice", x, *ends)
        left = shape[axis] if abs(step) == 1 else -(-shape[axis] // 2)
        return self.keep(made, (*shape[:axis], left, *shape[axis + 1 :]))

    def halved(self, x: str, shape: Shape) -> None:
        """Split an axis in two, and gate one half by the other."""
        even = [axis for axis, n in enumerate(shape) if n % 2 == 0]
        if not even:
            return self.unary(x, shape)
        axis = self.draw.choice(even)
        names = [f"half{len(self.nodes)}_{part}" for part in range(2)]
        self.nodes.append(helper.make_node("Split", [x], names, axis=axis, num_outputs=2))
        half = (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :])
        if self.draw.random() < 0.5:
            self.values += [(name, half) for name in names]
            return None
        return self.keep(self.op("Mul", names[0], self.op("Sigmoid", names[1])), half)

    def window(self, space: Shape) -> tuple[dict[str, Any], Shape] | None:
        """Return a window that moves over space, and the positions that it has."""
        extent = [self.draw.randint(1, 4) for _ in space]
        strides = [self.draw.randint(1, 4) for _ in space]
        dilations = [self.draw.randint(1, 2) for _ in space]
        reach = [(k - 1) * d for k, d in zip(extent, dilations, strict=True)]
        pads = [self.draw.randint(0, n) for n in reach * 2]
        ends = zip(space, pads, pads[len(space) :], reach, strides, strict=False)
        out = [(n + a + b - r - 1) // s + 1 for n, a, b, r, s in ends]
        window = {"kernel_shape": extent, "strides": strides, "dilations": dilations}
        return ({**window, "pads": pads}, tuple(out)) if min(out) > 0 else None

    def convolution(self, x: str, shape: Shape, channels: int, group: int) -> tuple[str, Shape]:
        found = self.window(shape[2:])
        if found is None:
            return self.op("Relu", x), shape
        window, out = found
        weights = self.weights(channels, shape[1] // group, *window["kernel_shape"])
        more = [self.constant(self.weights(channels))] if self.draw.random() < 0.5 else []
        made = self.op("Conv", x, self.constant(weights), *more, group=group, **window)
        return made, (shape[0], channels, *out)

    def depthwise(self, x: str, shape: Shape) -> None:
        if self.draw.random() < 0.5:
            x = self.op("Relu", x)
        channels = shape[1] * self.draw.choice([1, 1, 2])
        self.keep(*self.convolution(x, shape, channels, shape[1]))

    def convolved(self, x: str, shape: Shape) -> None:
        self.keep(*self.convolution(x, shape, self.draw.choice([2, 8]), 1))

    def convolved_bytes(self, x: str, shape: Shape) -> None:
        """Quantize, convolve, and quantize again: the usual form of quantized layers."""
        steps = self.steps()
        if self.draw.random() < 0.7:
            x = self.op("DequantizeLinear", self.op("QuantizeLinear", x, *steps), *steps)
        group = shape[1] if self.draw.random() < 0.4 else 1
        made, out = self.convolution(x, shape, shape[1] if group > 1 else 4, group)
        if self.draw.random() < 0.5:
            made = self.op("Relu", made)
        steps = self.steps()
        self.keep(self.op("DequantizeLinear", self.op("QuantizeLinear", made, *steps), *steps), out)

    def pooled(self, x: str, shape: Shape) -> None:
        found = self.window(shape[2:])
        if found is None or any(
            p >= k for p, k in zip(found[0]["pads"], found[0]["kernel_shape"] * 2, strict=True)
        ):
            return self.unary(x, shape)
        window, out = found
        if self.draw.random() < 0.4:
            made = self.op("AveragePool", x, count_include_pad=self.draw.randint(0, 1), **window)
        else:
            made = self.op("MaxPool", x, **window)
        return self.keep(made, (*shape[:2], *out))

    def batch_normalized(self, x: str, shape: Shape) -> None:
        mean, bias, scale, spread = self.weights(4, shape[1])
        rows = [self.constant(row) for row in (scale, bias, mean, np.abs(spread) + 0.5)]
        self.keep(self.op("BatchNormalization", x, *rows), shape)

    def enlarged(self, x: str, shape: Shape) -> None:
        if np.prod(shape) > 4096:
            return self.unary(x, shape)
        wider = (*shape[:2], *(2 * n for n in shape[2:]))
        mode = self.draw.choice(["nearest", "linear"])
        sizes = self.constant(wider, np.int64)
        return self.keep(self.op("Resize", x, "", "", sizes, mode=mode), wider)

    def transposed(self, x: str, shape: Shape) -> None:
        """Convolve the other way: each position adds to a window."""
        if np.prod(shape) > 4096:
            return self.unary(x, shape)
        extent = [self.draw.randint(1, 3) for _ in shape[2:]]
        strides = [self.draw.randint(1, 2) for _ in shape[2:]]
        weights = self.constant(self.weights(shape[1], 3, *extent))
        made = self.op("ConvTranspose", x, weights, kernel_shape=extent, strides=strides)
        ends = zip(shape[2:], extent, strides, strict=True)
        return self.keep(made, (shape[0], 3, *((n - 1) * s + k for n, k, s in ends)))

    def split(self, x: str, shape: Shape) -> None:
        """Work on parts, and join them."""
        first = self.draw.randint(1, max(1, shape[1] - 1))
        bounds = [(0, first), (first, shape[1])] if first < shape[1] else [(0, first)]
        parts = []
        for bound in bounds:
            ends = [self.constant([number], np.int64) for number in (*bound, 1)]
            part = self.op("Slice", x, *ends)
            parts.append(self.op("Relu", part) if self.draw.random() < 0.5 else part)
        self.keep(self.op("Concat", *parts, axis=1), shape)

    # -- model ---------------------------------------------------------------------------

    def model(self) -> onnx.ModelProto:
        """Return the model; its outputs are what nothing reads, and sometimes one more."""
        read = {name for node in self.nodes for name in node.input}
        names = {name for node in self.nodes for name in node.output}
        loose = [name for name, _ in self.values if name in names - read]
        more = [name for name, _ in self.values if name in names and name not in loose]
        if more and (self.draw.random() < 0.3 or not loose):
            loose.append(self.draw.choice(more))
        graph = helper.make_graph(
            self.nodes,
            "odd",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, self.shape_of_input)],
            [onnx.ValueInfoProto(name=name) for name in loose],
            self.stored,
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10
        )

    def feed(self) -> dict[str, np.ndarray]:
        return {"x": self.data.uniform(-1, 1, self.shape_of_input).astype(np.float32)}


def state_program(seed: int) -> ap.Graph:
    """Return a graph of states that nodes read, replace and add to, in some order."""
    draw = random.Random(seed)
    graph = ap.Graph("states")
    op = ap.train.operators(graph)
    size = draw.choice([4, 16, 64])
    first = np.linspace(-1, 1, size, dtype=np.float32)
    states = [graph.parameter(f"s{k}", first * (k + 1)) for k in range(draw.randint(1, 3))]
    values = [graph.input("x", (size,)), *states]
    fresh = []
    assigned = set()
    for _ in range(draw.randint(3, 9)):
        kind = draw.random()
        if kind < 0.25 and fresh and len(assigned) < len(states):
            state = draw.choice([s for s in states if s not in assigned])
            assigned.add(state)
            op.Assign(state, draw.choice(fresh))
        elif kind < 0.6:
            values.append(op.Tanh(draw.choice(values)))
            fresh.append(values[-1])
        else:
            values.append(getattr(op, draw.choice(["Add", "Mul"]))(*draw.choices(values, k=2)))
            fresh.append(values[-1])
    if not fresh:
        fresh.append(op.Neg(values[0]))
    graph.output(op.Add(fresh[-1], draw.choice(values)))
    return graph
