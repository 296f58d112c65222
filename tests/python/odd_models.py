"""Random models of layers that planners trip over: shared operands, odd windows, bytes, states."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import arenaplan as ap

Shape = tuple[int, ...]
OPSET = 21


class OddModel:
    """A model of float images or rows that grows by one odd layer at a time."""

    def __init__(self, seed: int) -> None:
        self.draw, self.data = random.Random(seed), np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []
        rows = [(6, 8), (5, 5), (1, 7), (16, 16)]
        shapes: list[Shape] = [*rows, (1, 4, 9, 9), (1, 3, 12, 5), (2, 4, 17), (), (0, 4, 6)]
        self.shape_of_input = self.draw.choice([*shapes, *shapes[:-2]])
        self.values: list[tuple[str, Shape]] = [("x", self.shape_of_input)]
        for _ in range(self.draw.randint(2, 7)):
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
            self.quantized,
            self.converted,
            self.reshaped,
        ]
        if len(shape) == 2:
            fitting += [self.gram, self.gram, self.product, self.normalized]
        if len(shape) > 2 and 0 not in shape:
            fitting += [self.depthwise, self.depthwise, self.convolved, self.convolved_bytes]
            fitting += [self.pooled, self.split]
        self.draw.choice(fitting)(x, shape)

    def unary(self, x: str, shape: Shape) -> None:
        op = self.draw.choice(["Relu", "Abs", "Neg", "Tanh", "Sigmoid", "HardSwish", "LeakyRelu"])
        self.keep(self.op(op, x), shape)

    def binary(self, x: str, shape: Shape) -> None:
        same = [name for name, known in self.values if known == shape]
        other = self.draw.choice(
            [*same, x, self.constant(0.5), self.constant(self.weights(*shape))]
        )
        op = self.draw.choice(["Add", "Sub", "Mul", "Max", "Min"])
        pair = [x, other] if self.draw.random() < 0.5 else [other, x]
        self.keep(self.op(op, *pair), shape)

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
        if 0 in shape:
            return self.unary(x, shape)
        self.keep(self.op("Softmax", x, axis=self.draw.choice([0, 1])), shape)
        return None

    def window(self, space: Shape) -> tuple[dict[str, Any], Shape] | None:
        """Return a window that moves over space, and the positions that it has."""
        extent = [self.draw.randint(1, 4) for _ in space]
        strides = [self.draw.randint(1, 4) for _ in space]
        dilations = [self.draw.randint(1, 2) for _ in space]
        pads = [self.draw.randint(0, (k - 1) * d) for k, d in zip(extent, dilations, strict=True)]
        out = [
            (n + 2 * p - ((k - 1) * d + 1)) // s + 1
            for n, p, k, d, s in zip(space, pads, extent, dilations, strides, strict=True)
        ]
        window = {"kernel_shape": extent, "strides": strides, "dilations": dilations}
        return ({**window, "pads": pads * 2}, tuple(out)) if min(out) > 0 else None

    def convolution(self, x: str, shape: Shape, channels: int, group: int) -> tuple[str, Shape]:
        found = self.window(shape[2:])
        if found is None:
            return self.op("Relu", x), shape
        window, out = found
        weights = self.weights(channels, shape[1] // group, *window["kernel_shape"])
        made = self.op("Conv", x, self.constant(weights), group=group, **window)
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
        self.keep(self.op("MaxPool", x, **window), (*shape[:2], *out))
        return None

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
