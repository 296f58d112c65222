"""Random convolutional networks: strides, dilations, groups, padding, pools, sums, branches."""

from __future__ import annotations

import random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VERSION = 17


class Network:
    """Writes an ONNX model of images, node by node."""

    def __init__(self, seed: int, shape: tuple[int, ...]) -> None:
        self.random = random.Random(seed)
        self._data = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.input = shape
        self.shapes: dict[str, tuple[int, ...]] = {"x": shape}

    def weight(self, *shape: int) -> str:
        """Return a constant; sums over it are about as large as one element of an image."""
        name = f"w{len(self.weights)}"
        spread = 1.0 / np.sqrt(max(int(np.prod(shape[1:])), 1))
        data = self._data.standard_normal(shape).astype(np.float32) * np.float32(spread)
        self.weights.append(numpy_helper.from_array(data, name))
        return name

    def node(self, op: str, inputs: list[str], shape: tuple[int, ...], **attributes: object) -> str:
        """Return the result of a node."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        self.shapes[name] = shape
        return name

    def conv(
        self,
        x: str,
        channels: int,
        kernel: int = 3,
        *,
        stride: int = 1,
        dilation: int = 1,
        group: int = 1,
        pads: tuple[int, int] | None = None,
        bias: bool = True,
    ) -> str:
        """Add a convolution; pads are those above and on the left, below and on the right."""
        n, c, h, w = self.shapes[x]
        extent = (kernel - 1) * dilation + 1
        first, last = (extent // 2, (extent - 1) // 2) if pads is None else pads
        h, w = ((size + first + last - extent) // stride + 1 for size in (h, w))
        inputs = [x, self.weight(channels, c // group, kernel, kernel)]
        inputs += [self.weight(channels)] if bias else []
        return self.node(
            "Conv",
            inputs,
            (n, channels, h, w),
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            dilations=[dilation] * 2,
            group=group,
            pads=[first, first, last, last],
        )

    def pool(self, x: str, op: str, kernel: int, stride: int, *, ceil: bool = False) -> str:
        """Add a pool."""
        n, c, h, w = self.shapes[x]
        pad = self.random.choice([0, kernel // 2]) if kernel > 2 else 0
        sizes = []
        for size in (h, w):
            free = size + 2 * pad - kernel
            count = free // stride + 1
            if ceil and free % stride and count * stride < size + pad:
                count += 1
            sizes.append(count)
        return self.node(
            op,
            [x],
            (n, c, *sizes),
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[pad] * 4,
            ceil_mode=int(ceil),
        )

    def unary(self, x: str) -> str:
        """Add an activation, or a normalization."""
        shape = self.shapes[x]
        kind = self.random.choice(["Relu", "Relu", "Clip", "Norm", "Swish", "Sigmoid", "None"])
        if kind == "Clip":
            self.weights += [
                numpy_helper.from_array(np.float32(value), f"w{len(self.weights) + at}")
                for at, value in enumerate((-0.8, 0.9))
            ]
            bounds = [weight.name for weight in self.weights[-2:]]
            return self.node("Clip", [x, *bounds], shape)
        if kind == "Norm":
            scale, shift, mean = (self.weight(shape[1]) for _ in range(3))
            variance = np.abs(self._data.standard_normal(shape[1])).astype(np.float32) + 0.5
            self.weights.append(numpy_helper.from_array(variance, f"w{len(self.weights)}"))
            inputs = [x, scale, shift, mean, self.weights[-1].name]
            return self.node("BatchNormalization", inputs, shape)
        if kind == "Swish":
            return self.node("Mul", [x, self.node("Sigmoid", [x], shape)], shape)
        return x if kind == "None" else self.node(kind, [x], shape)

    def residual(self, x: str) -> str:
        """Add a block with a sum, perhaps of a projection."""
        channels = self.random.choice([self.shapes[x][1], 4, 6])
        y = self.unary(self.conv(x, self.random.choice([3, 5]), self.random.choice([1, 3])))
        y = self.conv(y, channels, 3, dilation=self.random.choice([1, 1, 2]))
        skip = x if channels == self.shapes[x][1] else self.conv(x, channels, 1, bias=False)
        pair = self.random.sample([y, skip], 2)
        return self.unary(self.node("Add", pair, self.shapes[y]))

    def branches(self, x: str) -> str:
        """Add two convolutions that are joined by channels."""
        one, two = self.conv(x, 3, 1), self.unary(self.conv(x, 4, 3))
        n, _, h, w = self.shapes[two]
        parts = [one, two, x] if self.random.random() < 0.3 else [one, two]
        channels = sum(self.shapes[part][1] for part in parts)
        return self.node("Concat", parts, (n, channels, h, w), axis=1)

    def widen(self, x: str) -> str:
        """Add a transposed convolution."""
        n, c, h, w = self.shapes[x]
        kernel, pad = self.random.choice([(2, 0), (3, 1), (4, 1)])
        h, w = (2 * (size - 1) + kernel - 2 * pad for size in (h, w))
        return self.node(
            "ConvTranspose",
            [x, self.weight(c, 3, kernel, kernel), self.weight(3)],
            (n, 3, h, w),
            kernel_shape=[kernel] * 2,
            strides=[2, 2],
            pads=[pad] * 4,
        )

    def model(self, *outputs: str) -> onnx.ModelProto:
        """Return the model."""

        def value(name: str) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name])

        made = [value(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "cnn", [value("x")], made, self.weights)
        opset = helper.make_opsetid("", VERSION)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
        onnx.checker.check_model(model)
        return model


def random_cnn(seed: int, layers: int = 7) -> onnx.ModelProto:
    """Return a random network, the same for the same seed."""
    chosen = random.Random(seed)
    shape = (chosen.choice([1, 1, 2]), 3, chosen.randint(17, 30), chosen.randint(9, 20))
    network = Network(seed, shape)
    x = "x"
    for _ in range(layers):
        rows = network.shapes[x][2]
        kind = chosen.choice(["conv", "conv", "depth", "pool", "residual", "branches", "widen"])
        if kind == "widen" and rows > 24:
            kind = "pool"
        if kind == "pool" and rows < 8:
            kind = "residual"
        channels = network.shapes[x][1]
        if kind == "conv":
            kernel, stride = chosen.choice([1, 3, 3, 5]), chosen.choice([1, 1, 2])
            stride = stride if rows > 9 else 1
            pads = chosen.choice([None, (0, kernel - 1), (kernel - 1, 0)])
            x = network.conv(x, chosen.choice([4, 6]), kernel, stride=stride, pads=pads)
        elif kind == "depth":
            x = network.conv(x, channels * chosen.choice([1, 2]), 3, group=channels)
        elif kind == "pool":
            op = chosen.choice(["MaxPool", "MaxPool", "AveragePool"])
            kernel = chosen.choice([2, 3])
            x = network.pool(x, op, kernel, chosen.choice([1, 2]), ceil=chosen.random() < 0.4)
        elif kind == "residual":
            x = network.residual(x)
        elif kind == "branches":
            x = network.branches(x)
        else:
            x = network.widen(x)
        x = network.unary(x)
    outputs = [x]
    if chosen.random() < 0.3 and network.nodes:
        outputs.append(chosen.choice(network.nodes).output[0])
    return network.model(*dict.fromkeys(outputs))
