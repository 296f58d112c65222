"""Random networks over images ``(1, C, H, W)``, with layers that many runners have."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import arenaplan as ap

Shape = tuple[int, ...]
MOST = 60_000
"""Most elements of a value."""


class ImageNetwork:
    """
    A graph that grows by one layer at a time, with an input ``x``.

    Parameters
    ----------
    seed : int
        Equal seeds give equal networks.
    """

    def __init__(self, seed: int) -> None:
        self.draw, self.data = random.Random(seed), np.random.default_rng(seed)
        self.graph = ap.Graph("images")
        self.op = ap.train.operators(self.graph)
        shape = (1, self.draw.choice([1, 3]), *self.draw.choice([(24, 20), (33, 7), (16, 40)]))
        self.values: list[tuple[Any, Shape]] = [(self.graph.input("x", shape), shape)]
        for _ in range(self.draw.randint(3, 9)):
            self.draw.choice(LAYERS)(self, *self.values[-1 - self.age()])
        read = {value for node in self.graph.nodes for value in node.inputs}
        loose = [value for value, _ in self.values[1:] if int(value) not in read]
        for value in loose or [self.op.Relu(self.values[-1][0])]:
            self.graph.output(value)

    def age(self) -> int:
        """Return a number below the count of values; low numbers are more likely."""
        return int(len(self.values) * self.draw.random() ** 3)

    def weights(self, *shape: int) -> np.ndarray:
        return self.data.uniform(-0.5, 0.5, shape).astype(np.float32)

    def keep(self, make: Callable[[], Any], shape: Shape) -> None:
        """Add a layer, unless the result would be empty or large."""
        if min(shape) > 0 and np.prod(shape) <= MOST:
            self.values.append((make(), shape))

    def feed(self) -> dict[str, np.ndarray]:
        return {"x": self.data.uniform(-1, 1, self.values[0][1]).astype(np.float32)}

    # -- layers --------------------------------------------------------------------------

    def window(self, shape: Shape, extents: list[int]) -> tuple[dict[str, Any], list[int]]:
        """Return a window that moves over an image, and the positions that it has."""
        extent, stride = self.draw.choice(extents), self.draw.choice([1, 1, 2])
        pads = [self.draw.randint(0, extent - 1) for _ in range(4)]
        out = [(shape[at + 2] + pads[at] + pads[at + 2] - extent) // stride + 1 for at in range(2)]
        return {"kernel_shape": [extent] * 2, "strides": [stride] * 2, "pads": pads}, out

    def convolved(self, x: Any, shape: Shape) -> None:
        window, out = self.window(shape, [1, 2, 3, 3])
        groups = self.draw.choice([1, 1, shape[1]])
        channels = shape[1] * self.draw.choice([1, 2]) if groups > 1 else self.draw.choice([4, 16])
        weights = self.weights(channels, shape[1] // groups, *window["kernel_shape"])
        bias = self.weights(channels)
        self.keep(
            lambda: self.op.Conv(x, weights, bias, group=groups, **window), (1, channels, *out)
        )

    def pooled(self, x: Any, shape: Shape) -> None:
        window, out = self.window(shape, [2, 3])
        op = self.draw.choice([self.op.MaxPool, self.op.AveragePool])
        self.keep(lambda: op(x, **window), (*shape[:2], *out))

    def joined(self, x: Any, shape: Shape) -> None:
        fitting = [(value, known) for value, known in self.values if known[2:] == shape[2:]]
        other, known = self.draw.choice(fitting)
        made = (1, shape[1] + known[1], *shape[2:])
        self.keep(lambda: self.op.Concat(x, other, axis=1), made)

    def activated(self, x: Any, shape: Shape) -> None:
        op = self.draw.choice(["Relu", "Tanh", "Sigmoid", "HardSwish", "Mish", "Exp"])
        self.keep(lambda: getattr(self.op, op)(x), shape)

    def combined(self, x: Any, shape: Shape) -> None:
        constants = [self.weights(shape[1], 1, 1), self.weights(1, shape[2], 1)]
        same = [value for value, known in self.values if known == shape]
        other = self.draw.choice([*same, *constants, self.weights(*shape[1:])])
        op = self.draw.choice(["Add", "Mul"])
        self.keep(lambda: getattr(self.op, op)(x, other), shape)

    def padded(self, x: Any, shape: Shape) -> None:
        most = self.draw.choice([0, 2])
        pads = [self.draw.randint(0, most) for _ in range(4)]
        amounts = np.array([0, 0, *pads[:2], 0, 0, *pads[2:]])
        made = (*shape[:2], shape[2] + pads[0] + pads[2], shape[3] + pads[1] + pads[3])
        self.keep(lambda: self.op.Pad(x, amounts), made)

    def moved(self, x: Any, shape: Shape) -> None:
        if self.draw.random() < 0.5:
            made = (*shape[:2], shape[3], shape[2])
            self.keep(lambda: self.op.Transpose(x, perm=[0, 1, 3, 2]), made)
        else:
            ends = np.array([1]), np.array([shape[2] - 1]), np.array([2])
            self.keep(lambda: self.op.Slice(x, *ends), (*shape[:2], shape[2] - 2, shape[3]))

    def gated(self, x: Any, shape: Shape) -> None:
        if shape[1] % 2:
            self.keep(lambda: self.op.Mul(x, self.op.Sigmoid(self.op.GlobalAveragePool(x))), shape)
        else:
            a, b = self.op.Split(x, axis=1, num_outputs=2, outputs=2)
            half = (1, shape[1] // 2, *shape[2:])
            self.keep(lambda: self.op.Mul(a, self.op.Sigmoid(b)), half)

    def normalized(self, x: Any, shape: Shape) -> None:
        axis = self.draw.choice([1, 2, 3])
        scales = [self.weights(*shape[axis:]) for _ in range(2)]
        lines = [self.weights(shape[1]) for _ in range(3)]
        spread = np.abs(self.weights(shape[1])) + np.float32(0.3)
        kinds: list[Callable[[], Any]] = [
            lambda: self.op.LayerNormalization(x, *scales, axis=axis),
            lambda: self.op.Softmax(x, axis=axis),
            lambda: self.op.BatchNormalization(x, *lines, spread),
            lambda: self.op.LRN(x, size=3),
            lambda: self.op.PRelu(x, np.abs(lines[0].reshape(-1, 1, 1))),
        ]
        self.keep(self.draw.choice(kinds), shape)

    def enlarged(self, x: Any, shape: Shape) -> None:
        weights = self.weights(shape[1], 4, 2, 2)
        made = (1, 4, 2 * shape[2], 2 * shape[3])
        if np.prod(shape) < 8000:
            window = {"kernel_shape": [2, 2], "strides": [2, 2]}
            self.keep(lambda: self.op.ConvTranspose(x, weights, **window), made)

    def multiplied(self, x: Any, shape: Shape) -> None:
        width = self.draw.choice([3, shape[3]])
        weights = self.weights(shape[3], width)
        self.keep(lambda: self.op.MatMul(x, weights), (*shape[:3], width))


LAYERS: list[Callable[[ImageNetwork, Any, Shape], None]] = [
    ImageNetwork.convolved,
    ImageNetwork.convolved,
    ImageNetwork.convolved,
    ImageNetwork.pooled,
    ImageNetwork.pooled,
    ImageNetwork.joined,
    ImageNetwork.activated,
    ImageNetwork.combined,
    ImageNetwork.padded,
    ImageNetwork.moved,
    ImageNetwork.gated,
    ImageNetwork.normalized,
    ImageNetwork.enlarged,
    ImageNetwork.multiplied,
]
