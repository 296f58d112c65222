"""Graphs built by hand whose nodes say what pieces they can work in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import arenaplan as ap
from networks import F32


class Builder:
    """A graph whose nodes say what pieces they can work in."""

    def __init__(self) -> None:
        self.graph = ap.Graph("test")
        self.shapes: dict[int, tuple[int, ...]] = {}

    def input(self, name: str, *shape: int, dtype: str = F32) -> int:
        value = self.graph.input(name, shape, dtype)
        self.shapes[value] = shape
        return value

    def weight(self, *shape: int, low: float = -0.5, high: float = 0.5) -> int:
        index = len(self.graph.values)
        rng = np.random.default_rng(index)
        data = rng.uniform(low, high, shape).astype(np.float32)
        value = self.graph.constant(f"w{index}", shape, F32, data)
        self.shapes[value] = shape
        return value

    def node(
        self,
        op: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        pieces: int,
        follows: Sequence[int] = (),
        *,
        dtype: str = F32,
        in_place: Sequence[int] = (),
        loads: Sequence[int] = (),
        version: int = 18,
        **rest: Any,
    ) -> int:
        name = f"v{len(self.graph.values)}"
        (value,) = self.graph.node(
            op,
            inputs,
            [(name, tuple(shape), dtype)],
            name=f"{op}_{name}",
            version=version,
            flows=[(0, pieces, tuple(follows))],
            in_place=[(at, 0) for at in in_place],
            loads=loads,
            **rest,
        )
        assert value is not None
        self.shapes[value] = tuple(shape)
        return value

    def elementwise(self, op: str, *inputs: int, **rest: Any) -> int:
        shape = np.broadcast_shapes(*(self.shapes[value] for value in inputs))
        full = [at for at, value in enumerate(inputs) if self.shapes[value] == shape]
        return self.node(op, inputs, shape, int(np.prod(shape)), full, in_place=full, **rest)

    def conv(self, x: int, channels: int, kernel: int = 3, stride: int = 1, group: int = 1) -> int:
        n, fan_in, *image = self.shapes[x]
        pad = kernel // 2
        out = [(size + 2 * pad - kernel) // stride + 1 for size in image]
        shape = (n, channels, *out)
        weights = self.weight(channels, fan_in // group, *[kernel] * len(image))
        attributes = {
            "pads": [pad] * (2 * len(image)),
            "strides": [stride] * len(image),
            "group": group,
        }
        apart = group == fan_in > 1
        return self.node(
            "Conv",
            [x, weights, self.weight(channels)],
            shape,
            n * fan_in if apart else int(np.prod(shape)),
            [0] if apart else [],
            loads=[0],
            attributes=attributes,
        )

    def planes(
        self, op: str, x: int, image: Sequence[int], others: Sequence[int] = (), **rest: Any
    ) -> int:
        """Add a node that works on every channel by itself, and makes images of a size."""
        n, channels = self.shapes[x][:2]
        return self.node(op, [x, *others], (n, channels, *image), n * channels, [0], **rest)

    def pool(self, op: str, x: int, kernel: int = 2, stride: int = 2, **attributes: Any) -> int:
        pads = attributes.setdefault("pads", [0, 0, 0, 0])
        sizes = zip(self.shapes[x][2:], pads[:2], pads[2:], strict=True)
        image = [(size + a + b - kernel) // stride + 1 for size, a, b in sizes]
        attributes |= {"kernel_shape": [kernel] * 2, "strides": [stride] * 2}
        return self.planes(op, x, image, attributes=attributes)

    def transpose(self, x: int, *order: int) -> int:
        shape = [self.shapes[x][axis] for axis in order]
        moved = max(axis for axis, other in enumerate(order) if axis != other)
        pieces = int(np.prod(shape[: moved + 1]))
        return self.node("Transpose", [x], shape, pieces, attributes={"perm": order})

    def batch_norm(self, x: int) -> int:
        channels = self.shapes[x][1]
        statistics = [self.weight(channels), self.weight(channels), self.weight(channels)]
        variance = self.weight(channels, low=0.5, high=2)
        shape = self.shapes[x]
        return self.node(
            "BatchNormalization",
            [x, *statistics, variance],
            shape,
            int(np.prod(shape)),
            [0],
            in_place=[0],
        )

    def matmul(self, a: int, b: int) -> int:
        left, right = self.shapes[a], self.shapes[b]
        batch = np.broadcast_shapes(left[:-2], right[:-2])
        shape = (*batch, left[-2], right[-1])
        follows = [0] if left[:-1] == shape[:-1] else []
        return self.node("MatMul", [a, b], shape, int(np.prod(shape[:-1])), follows, loads=[0])

    def rows(self, op: str, x: int, **rest: Any) -> int:
        shape = self.shapes[x]
        pieces = int(np.prod(shape[:-1]))
        return self.node(op, [x], shape, pieces, [0], in_place=[0], attributes={"axis": -1}, **rest)

    def reshape(self, x: int, *shape: int) -> int:
        data = np.array(shape, np.int64)
        target = self.graph.constant(f"s{len(self.graph.values)}", (len(shape),), "int64", data)
        name = f"v{len(self.graph.values)}"
        (value,) = self.graph.node(
            "Reshape", [x, target], [(name, shape, F32)], views=[(0, 0)], version=18
        )
        assert value is not None
        self.shapes[value] = shape
        return value


def attention(heads: int = 3, length: int = 67, width: int = 8) -> ap.Graph:
    b = Builder()
    q = b.input("q", 1, heads, length, width)
    k = b.input("k", 1, heads, width, length)
    v = b.input("v", 1, heads, length, width)
    scores = b.elementwise("Mul", b.matmul(q, k), b.weight(1))
    masked = b.elementwise("Add", scores, b.input("mask", 1, 1, length, length))
    b.graph.output(b.matmul(b.rows("Softmax", masked), v))
    return b.graph


def large_groups() -> Iterator[tuple[str, ap.Graph, list[list[int]]]]:
    """Yield graphs with operands of about a megabyte, and which of their nodes run as one."""
    b = Builder()
    x = b.elementwise("Neg", b.input("x", 1, 64, 80, 80))
    y = b.elementwise("Neg", b.input("y", 1, 64, 80, 80))
    total = b.elementwise("Add", b.batch_norm(b.conv(b.elementwise("Relu", x), 64)), y)
    gate = b.elementwise("Sigmoid", total)
    b.graph.output(b.elementwise("Mul", total, gate))
    yield "residual", b.graph, [[0], [1], [2, 3, 4, 5, 6, 7]]

    b = Builder()
    x = b.elementwise("Neg", b.input("x", 1, 64, 80, 80))
    loaded = b.elementwise("Relu", b.batch_norm(x))
    b.graph.output(b.elementwise("Add", b.conv(loaded, 64, kernel=1), b.weight(64, 1, 1)))
    yield "pre-activation", b.graph, [[0], [1, 2, 3, 4]]

    b = Builder()
    x = b.elementwise("Neg", b.input("x", 1, 512, 768))
    up = b.elementwise("Gelu", b.matmul(x, b.weight(768, 1024)), version=20)
    b.graph.output(b.elementwise("Add", b.matmul(up, b.weight(1024, 768)), x))
    yield "perceptron", b.graph, [[0], [1, 2, 3, 4]]

    yield "attention", attention(12, 256, 64), [[0, 1, 2, 3, 4]]
