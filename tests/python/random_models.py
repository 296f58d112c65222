"""Random ONNX models: layers of images and of rows, with branches, views and pieces."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 18
_MOST_ELEMENTS = 1 << 14

Shape = tuple[int, ...]


class _Writer:
    """A model that grows by one layer at a time; layers are drawn with a seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.data = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: dict[str, Shape] = {}
        self.shapes: dict[str, Shape] = {}
        """Of every value, the youngest last."""

    # -- what layers are made of --------------------------------------------------------

    def input(self, shape: Shape) -> None:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.shapes[name] = shape

    def weight(self, *shape: int, low: float = -1.0, high: float = 1.0) -> str:
        return self.constant(self.data.uniform(low, high, shape).astype(np.float32))

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, inputs: Sequence[str], *shapes: Shape, **attributes: Any) -> list[str]:
        names = [f"{op.lower()}{len(self.nodes)}_{k}" for k in range(len(shapes))]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        self.shapes.update(zip(names, shapes, strict=True))
        return names

    def pick(self, accepts: Callable[[Shape], bool]) -> str | None:
        """Return some value of a fitting shape; young ones are more likely."""
        found = [name for name, shape in self.shapes.items() if accepts(shape)]
        return found[-1 - int(len(found) * self.draw.random() ** 3)] if found else None

    def image(self) -> tuple[str, Shape] | None:
        name = self.pick(lambda shape: len(shape) == 4)
        return None if name is None else (name, self.shapes[name])

    def rows(self) -> tuple[str, Shape] | None:
        name = self.pick(lambda shape: len(shape) == 3)
        return None if name is None else (name, self.shapes[name])

    def any(self) -> tuple[str, Shape]:
        name = self.pick(lambda _: True)
        assert name is not None, "there is an input"
        return name, self.shapes[name]

    # -- layers of any shape ----------------------------------------------------------

    def unary(self) -> None:
        x, shape = self.any()
        op = self.draw.choice(
            ["Relu", "Sigmoid", "Tanh", "HardSwish", "Abs", "Neg", "Softplus", "Elu", "Identity"]
        )
        self.node(op, [x], shape)

    def clip(self) -> None:
        x, shape = self.any()
        bounds = [self.constant(np.float32(bound)) for bound in (-0.5, 0.8)]
        self.node("Clip", [x, *bounds], shape)

    def gate(self) -> None:
        """Write x * sigmoid(x)."""
        x, shape = self.any()
        (factor,) = self.node("Sigmoid", [x], shape)
        self.node("Mul", [x, factor], shape)

    def binary(self) -> None:
        x, shape = self.any()
        op = self.draw.choice(["Add", "Sub", "Mul", "Max", "Min"])
        other = self.pick(lambda found: found == shape)
        kind = self.draw.random()
        if kind < 0.15:
            other = self.weight(*[size if self.draw.random() < 0.5 else 1 for size in shape])
        elif kind < 0.3:
            small = self.pick(lambda found: _broadcasts(found, shape))
            other = small or other
        assert other is not None, "x itself has this shape"
        self.node(op, self.draw.sample([x, other], 2), shape)

    def total(self) -> None:
        x, shape = self.any()
        others = [self.pick(lambda found: found == shape) or x for _ in range(2)]
        self.node("Sum", [x, *others], shape)

    def where(self) -> None:
        x, shape = self.any()
        (mask,) = self.node("Greater", [x, self.constant(np.float32(0.1))], shape)
        del self.shapes[mask]  # Not of numbers: no other layer reads it.
        other = self.pick(lambda found: found == shape) or x
        self.node("Where", [mask, x, other], shape)

    def reshape(self) -> None:
        x, shape = self.any()
        batch, *rest = shape
        size = prod(rest)
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        first = self.draw.choice(divisors)
        if self.draw.random() < 0.5:
            target = (batch, first, size // first)
        else:
            second = self.draw.choice([d for d in divisors if size // first % d == 0])
            target = (batch, first, second, size // first // second)
        self.node("Reshape", [x, self.constant(np.array(target, np.int64))], target)

    def transpose(self) -> None:
        x, shape = self.any()
        order = [0, *self.draw.sample(range(1, len(shape)), len(shape) - 1)]
        self.node("Transpose", [x], tuple(shape[axis] for axis in order), perm=order)

    def concat(self) -> None:
        x, shape = self.any()
        axis = self.draw.randrange(len(shape))
        others = [
            self.pick(lambda found: _equal_but(found, shape, axis)) or x
            for _ in range(self.draw.choice([1, 1, 2, 3]))
        ]
        parts = self.draw.sample([x, *others], len(others) + 1)
        size = sum(self.shapes[part][axis] for part in parts)
        target = (*shape[:axis], size, *shape[axis + 1 :])
        if prod(target) <= _MOST_ELEMENTS:
            self.node("Concat", parts, target, axis=axis)

    def split(self) -> None:
        x, shape = self.any()
        axis = self.draw.randrange(len(shape))
        if shape[axis] < 2:
            return
        first = self.draw.randrange(1, shape[axis])
        sizes = [first, shape[axis] - first]
        targets = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
        self.node("Split", [x, self.constant(np.array(sizes, np.int64))], *targets, axis=axis)

    def slice(self) -> None:
        x, shape = self.any()
        axis = self.draw.randrange(len(shape))
        start = self.draw.randrange(shape[axis])
        end = self.draw.randrange(start, shape[axis]) + 1
        step = self.draw.choice([1, 1, 1, 2])
        target = (*shape[:axis], len(range(start, end, step)), *shape[axis + 1 :])
        bounds = [self.constant(np.array([bound], np.int64)) for bound in (start, end, axis, step)]
        self.node("Slice", [x, *bounds], target)

    def softmax(self) -> None:
        x, shape = self.any()
        self.node("Softmax", [x], shape, axis=self.draw.randrange(1, len(shape)))

    def mean(self) -> None:
        x, shape = self.any()
        axes = sorted(self.draw.sample(range(1, len(shape)), self.draw.choice([1, 1, 2])))
        target = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        op = self.draw.choice(["ReduceMean", "ReduceMax", "ReduceSum"])
        self.node(op, [x, self.constant(np.array(axes, np.int64))], target)

    def layer_norm(self) -> None:
        x, shape = self.any()
        scale, shift = self.weight(shape[-1]), self.weight(shape[-1])
        self.node("LayerNormalization", [x, scale, shift], shape, epsilon=0.1)

    # -- layers of images -------------------------------------------------------------

    def conv(self) -> None:
        found = self.image()
        if found is None:
            return
        x, (batch, channels, height, width) = found
        groups = [g for g in (1, 2, 4, channels) if channels % g == 0]
        group = self.draw.choice([1, 1, *groups])
        made = group * self.draw.choice([1, 2] if group == channels else [1, 2, 3, 4])
        kernel, stride = self.draw.choice([(1, 1), (1, 2), (3, 1), (3, 1), (3, 2), (2, 1)])
        pad, dilation = self.draw.choice([(kernel // 2, 1), (0, 1), (1, 2)])
        sizes = [_window(size, kernel, stride, pad, dilation) for size in (height, width)]
        target = (batch, made, *sizes)
        if min(sizes) < 1 or prod(target) > _MOST_ELEMENTS:
            return
        scale = (channels // group * kernel * kernel) ** -0.5
        shape = (made, channels // group, kernel, kernel)
        inputs = [x, self.weight(*shape, low=-2 * scale, high=2 * scale)]
        if self.draw.random() < 0.7:
            inputs.append(self.weight(made))
        self.node(
            "Conv",
            inputs,
            target,
            group=group,
            strides=[stride] * 2,
            pads=[pad] * 4,
            dilations=[dilation] * 2,
        )

    def conv_transpose(self) -> None:
        found = self.image()
        if found is None:
            return
        x, (batch, channels, height, width) = found
        made = self.draw.choice([1, 2, 3])
        target = (batch, made, 2 * height, 2 * width)
        if prod(target) <= _MOST_ELEMENTS:
            weights = self.weight(channels, made, 2, 2, low=-0.5, high=0.5)
            self.node("ConvTranspose", [x, weights], target, strides=[2, 2])

    def pool(self) -> None:
        found = self.image()
        if found is None:
            return
        x, (batch, channels, height, width) = found
        op = self.draw.choice(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"])
        if op.startswith("Global"):
            self.node(op, [x], (batch, channels, 1, 1))
            return
        kernel, stride = self.draw.choice([(2, 2), (3, 2), (3, 1)])
        pad = self.draw.choice([0, kernel // 2])
        sizes = [_window(size, kernel, stride, pad, 1) for size in (height, width)]
        if min(sizes) >= 1:
            self.node(
                op,
                [x],
                (batch, channels, *sizes),
                kernel_shape=[kernel] * 2,
                strides=[stride] * 2,
                pads=[pad] * 4,
            )

    def batch_norm(self) -> None:
        found = self.image()
        if found is None:
            return
        x, shape = found
        parameters = [self.weight(shape[1]) for _ in range(3)]
        variance = self.weight(shape[1], low=0.5, high=2.0)
        self.node("BatchNormalization", [x, *parameters, variance], shape)

    def pad(self) -> None:
        found = self.image()
        if found is None:
            return
        x, (batch, channels, height, width) = found
        target = (batch, channels, height + 1, width + 2)
        if prod(target) <= _MOST_ELEMENTS:
            amounts = self.constant(np.array([0, 0, 0, 1, 0, 0, 1, 1], np.int64))
            self.node("Pad", [x, amounts], target)

    def resize(self) -> None:
        found = self.image()
        if found is None:
            return
        x, (batch, channels, height, width) = found
        target = (batch, channels, 2 * height, 2 * width)
        if prod(target) <= _MOST_ELEMENTS:
            scales = self.constant(np.array([1, 1, 2, 2], np.float32))
            self.node(
                "Resize",
                [x, "", scales],
                target,
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            )

    def shuffle(self) -> None:
        """Exchange channels of two groups, as ShuffleNet does."""
        found = self.image()
        if found is None:
            return
        x, shape = found
        batch, channels, height, width = shape
        if channels % 2:
            return
        apart = (batch, 2, channels // 2, height, width)
        swapped = (batch, channels // 2, 2, height, width)
        (x,) = self.node("Reshape", [x, self.constant(np.array(apart, np.int64))], apart)
        (y,) = self.node("Transpose", [x], swapped, perm=[0, 2, 1, 3, 4])
        self.node("Reshape", [y, self.constant(np.array(shape, np.int64))], shape)
        del self.shapes[x], self.shapes[y]

    def inverted_residual(self) -> None:
        """Widen the channels, work on each, narrow them and add."""
        found = self.image()
        if found is None:
            return
        x, shape = found
        batch, channels, height, width = shape
        wide = (batch, 4 * channels, height, width)
        if prod(wide) > _MOST_ELEMENTS:
            return
        (y,) = self.node("Conv", [x, self.weight(wide[1], channels, 1, 1)], wide)
        (y,) = self.node("Relu", [y], wide)
        weights = self.weight(wide[1], 1, 3, 3, low=-0.5, high=0.5)
        (y,) = self.node("Conv", [y, weights], wide, group=wide[1], pads=[1] * 4)
        (y,) = self.node("HardSwish", [y], wide)
        weights = self.weight(channels, wide[1], 1, 1, low=-0.3, high=0.3)
        (y,) = self.node("Conv", [y, weights], shape)
        self.node("Add", [x, y], shape)

    # -- layers of rows ---------------------------------------------------------------

    def to_rows(self) -> None:
        found = self.image()
        if found is None:
            return
        x, (batch, channels, height, width) = found
        flat = (batch, channels, height * width)
        (y,) = self.node("Reshape", [x, self.constant(np.array(flat, np.int64))], flat)
        self.node("Transpose", [y], (batch, height * width, channels), perm=[0, 2, 1])

    def linear(self) -> None:
        found = self.rows()
        if found is None:
            return
        x, (batch, count, width) = found
        made = self.draw.choice([4, 8, 12])
        if batch * count * made <= _MOST_ELEMENTS:
            scale = 2 * width**-0.5
            weights = self.weight(width, made, low=-scale, high=scale)
            (y,) = self.node("MatMul", [x, weights], (batch, count, made))
            if self.draw.random() < 0.5:
                self.node("Add", [y, self.weight(made)], (batch, count, made))

    def attention(self) -> None:
        found = self.rows()
        if found is None:
            return
        x, (batch, count, width) = found
        if batch * count * count > _MOST_ELEMENTS:
            return
        other = self.pick(lambda shape: shape == (batch, count, width)) or x
        (keys,) = self.node("Transpose", [other], (batch, width, count), perm=[0, 2, 1])
        (scores,) = self.node("MatMul", [x, keys], (batch, count, count))
        scale = self.constant(np.float32(width**-0.5))
        (scores,) = self.node("Mul", [scores, scale], (batch, count, count))
        (scores,) = self.node("Softmax", [scores], (batch, count, count), axis=-1)
        self.node("MatMul", [scores, other], (batch, count, width))


_LAYERS = {
    8: ("conv",),
    5: ("binary",),
    4: ("unary", "concat", "pool", "linear"),
    2: (
        "clip",
        "gate",
        "split",
        "slice",
        "batch_norm",
        "shuffle",
        "inverted_residual",
        "to_rows",
        "attention",
    ),
    1: (
        "total",
        "where",
        "reshape",
        "transpose",
        "softmax",
        "mean",
        "layer_norm",
        "pad",
        "conv_transpose",
        "resize",
    ),
}
"""Layers by how likely they are."""


def _broadcasts(small: Shape, shape: Shape) -> bool:
    return len(small) == len(shape) and all(s in (1, t) for s, t in zip(small, shape, strict=True))


def _equal_but(found: Shape, shape: Shape, axis: int) -> bool:
    return len(found) == len(shape) and all(
        at == axis or a == b for at, (a, b) in enumerate(zip(found, shape, strict=True))
    )


def _window(size: int, kernel: int, stride: int, pad: int, dilation: int) -> int:
    """Return how many places a sliding window has."""
    return (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1


def random_model(seed: int) -> onnx.ModelProto:
    """
    Return a model of some ten to forty layers.

    What nobody reads is an output, and so are a few values that somebody does.
    """
    writer = _Writer(seed)
    draw = writer.draw
    for _ in range(draw.choice([1, 1, 2])):
        channels, size = draw.choice([2, 4, 6, 8]), draw.choice([4, 6, 8, 9])
        writer.input((draw.choice([1, 1, 1, 2]), channels, size, size))
    layers = [layer for weight, names in _LAYERS.items() for layer in names * weight]
    for layer in draw.choices(layers, k=draw.randrange(8, 36)):
        getattr(writer, layer)()
    read = {name for node in writer.nodes for name in node.input}
    made = [name for node in writer.nodes for name in node.output]
    outputs = [name for name in made if name not in read or draw.random() < 0.03]
    graph = helper.make_graph(
        writer.nodes,
        f"random{seed}",
        [_declared(name, shape) for name, shape in writer.inputs.items()],
        [_declared(name, writer.shapes.get(name)) for name in outputs],
        writer.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 9
    return model


def _declared(name: str, shape: Shape | None) -> onnx.ValueInfoProto:
    if shape is None:
        return onnx.ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


def random_inputs(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return numbers for the inputs of a model."""
    rng = np.random.default_rng(11)
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    return {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}
