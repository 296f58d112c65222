"""
Networks that :mod:`time` measures, built here with random weights.

They are small versions of well-known architectures; weights of layers of one shape are shared,
so that a model of twelve layers does not need twelve times the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Writer:
    """Appends nodes to a model, with names and weights that are made up as needed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.random = np.random.default_rng(0)

    def input(self, *shape: int, dtype: int = TensorProto.FLOAT) -> str:
        """Declare an input."""
        name = f"input{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def weight(self, *shape: int, key: str = "") -> str:
        """
        Return random weights; those of one shape and key are the same.

        Layers beside each other have other keys: compilers compute equal ones once.
        """
        name = f"w{'x'.join(map(str, shape))}{key}"
        if name not in self.weights:
            fan = max(int(np.prod(shape[1:])) if len(shape) > 2 else shape[0], 1)
            numbers = self.random.standard_normal(shape, np.float32) / np.float32(np.sqrt(fan))
            self.weights[name] = numbers
        return name

    def numbers(self, *values: float, dtype: Any = np.int64) -> str:
        """Return a constant list."""
        name = f"c{np.dtype(dtype).name}{'_'.join(map(str, values))}"
        self.weights.setdefault(name, np.array(values, dtype))
        return name

    def scalar(self, value: float) -> str:
        """Return a constant number."""
        name = f"s{value}"
        self.weights.setdefault(name, np.array(value, np.float32))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append a node with one output."""
        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def model(self, *outputs: str) -> onnx.ModelProto:
        """Return the model."""
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        weights = [numpy_helper.from_array(data, name) for name, data in self.weights.items()]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, infos, weights)
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return onnx.shape_inference.infer_shapes(model)

    # -- layers --------------------------------------------------------------------------

    def conv(self, x: str, inward: int, outward: int, kernel: int, stride: int = 1, group: int = 1,
             relu: str = "Relu", key: str = "") -> str:  # fmt: skip
        """Append a convolution of same size, and an activation."""
        w = self.weight(outward, inward // group, kernel, kernel, key=key)
        pads = [kernel // 2] * 4
        x = self.op("Conv", x, w, self.weight(outward), pads=pads, strides=[stride] * 2,
                    group=group)  # fmt: skip
        return self.op(relu, x) if relu else x

    def linear(self, x: str, inward: int, outward: int, key: str = "") -> str:
        """Append a matrix product and an addition."""
        x = self.op("MatMul", x, self.weight(inward, outward, key=key))
        return self.op("Add", x, self.weight(outward))

    def norm(self, x: str, width: int) -> str:
        """Append a layer normalization."""
        return self.op("LayerNormalization", x, self.weight(width), self.weight(width, key="b"))

    def gelu(self, x: str) -> str:
        """Append the exact GELU of five operators."""
        e = self.op("Erf", self.op("Div", x, self.scalar(1.4142135)))
        half = self.op("Mul", x, self.op("Add", e, self.scalar(1.0)))
        return self.op("Mul", half, self.scalar(0.5))

    def attention(self, x: str, batch: int, length: int, width: int, heads: int) -> str:
        """Append self-attention of several heads."""
        shape = self.numbers(batch, length, heads, width // heads)

        def split(key: str, order: list[int]) -> str:
            part = self.op("Reshape", self.linear(x, width, width, key), shape)
            return self.op("Transpose", part, perm=order)

        q, k, v = split("q", [0, 2, 1, 3]), split("k", [0, 2, 3, 1]), split("v", [0, 2, 1, 3])
        scores = self.op("Mul", self.op("MatMul", q, k), self.scalar(0.125))
        made = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        made = self.op("Transpose", made, perm=[0, 2, 1, 3])
        made = self.op("Reshape", made, self.numbers(batch, length, width))
        return self.linear(made, width, width)

    def transformer(self, x: str, batch: int, length: int, width: int, heads: int) -> str:
        """Append one layer of an encoder with normalization first."""
        x = self.op("Add", x, self.attention(self.norm(x, width), batch, length, width, heads))
        inner = self.gelu(self.linear(self.norm(x, width), width, 4 * width))
        return self.op("Add", x, self.linear(inner, 4 * width, width))


def encoder(layers: int, batch: int, length: int, width: int, heads: int, words: int = 0,
            last: bool = False) -> onnx.ModelProto:  # fmt: skip
    """Return a transformer; with ``words``, a product with that many columns ends it."""
    w = Writer("encoder")
    x = w.input(batch, length, width)
    for _ in range(layers):
        x = w.transformer(x, batch, length, width, heads)
    x = w.norm(x, width)
    return w.model(w.op("MatMul", x, w.weight(width, words)) if words else x)


def perceptron(rows: int, widths: list[int]) -> onnx.ModelProto:
    """Return a chain of products and activations."""
    w = Writer("perceptron")
    x = w.input(rows, widths[0])
    for inward, outward in pairwise(widths):
        x = w.op("Relu", w.linear(x, inward, outward))
    return w.model(x)


def convnext(side: int, widths: list[int], depth: int) -> onnx.ModelProto:
    """Return 7x7 depthwise convolutions, normalizations and perceptrons, channels last."""
    w = Writer("convnext")
    x = w.input(1, 3, side, side)
    x = w.conv(x, 3, widths[0], 3, 2, relu="")
    for at, width in enumerate(widths):
        for _ in range(depth):
            y = w.op("Transpose", w.conv(x, width, width, 7, group=width, relu=""),
                     perm=[0, 2, 3, 1])  # fmt: skip
            y = w.gelu(w.linear(w.norm(y, width), width, 4 * width))
            y = w.op("Transpose", w.linear(y, 4 * width, width), perm=[0, 3, 1, 2])
            x = w.op("Add", x, y)
        if at + 1 < len(widths):
            x = w.conv(x, width, widths[at + 1], 3, 2, relu="")
    return w.model(w.op("GlobalAveragePool", x))


def residual(side: int, widths: list[int], depth: int) -> onnx.ModelProto:
    """Return a residual network with two convolutions a block."""
    w = Writer("residual")
    x = w.conv(w.input(1, 3, side, side), 3, widths[0], 3)
    for at, width in enumerate(widths):
        for _ in range(depth):
            y = w.conv(w.conv(x, width, width, 3), width, width, 3, relu="")
            x = w.op("Relu", w.op("Add", x, y))
        if at + 1 < len(widths):
            x = w.conv(x, width, widths[at + 1], 3, 2)
    return w.model(w.op("GlobalAveragePool", x))


def inverted(side: int, width: int, blocks: int, activation: str = "Relu") -> onnx.ModelProto:
    """Return inverted residual blocks with depthwise convolutions."""
    w = Writer("inverted")
    x = w.conv(w.input(1, 3, side, side), 3, width, 3, 2)
    for _ in range(blocks):
        y = w.conv(x, width, 6 * width, 1, relu=activation)
        y = w.conv(y, 6 * width, 6 * width, 3, group=6 * width, relu=activation)
        x = w.op("Add", x, w.conv(y, 6 * width, width, 1, relu=""))
    return w.model(x)


def dense(side: int, width: int, growth: int, depth: int) -> onnx.ModelProto:
    """Return a block in which every convolution reads all before it."""
    w = Writer("dense")
    x = w.conv(w.input(1, 3, side, side), 3, width, 3)
    for _ in range(depth):
        y = w.conv(x, width, 4 * growth, 1)
        x = w.op("Concat", x, w.conv(y, 4 * growth, growth, 3), axis=1)
        width += growth
    return w.model(w.op("GlobalAveragePool", x))


def unet(side: int, width: int, depth: int) -> onnx.ModelProto:
    """Return convolutions down and up, with skips."""
    w = Writer("unet")
    x, inward, skips = w.input(1, 3, side, side), 3, []
    for level in range(depth):
        x = w.conv(w.conv(x, inward, width << level, 3), width << level, width << level, 3)
        inward = width << level
        skips.append((x, inward))
        x = w.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = w.conv(x, inward, inward, 3)
    for skip, channels in reversed(skips):
        x = w.op("Resize", x, "", w.numbers(1.0, 1.0, 2.0, 2.0, dtype=np.float32), mode="nearest")
        x = w.op("Concat", x, skip, axis=1)
        x = w.conv(x, inward + channels, channels, 3)
        inward = channels
    return w.model(w.conv(x, inward, 1, 1, relu="Sigmoid"))


def gated(layers: int, length: int, width: int, hidden: int) -> onnx.ModelProto:
    """Return gated perceptrons with a residual, as in Llama."""
    w = Writer("gated")
    x = w.input(1, length, width)
    for _ in range(layers):
        y = w.norm(x, width)
        gate = w.op("MatMul", y, w.weight(width, hidden))
        gate = w.op("Mul", gate, w.op("Sigmoid", gate))
        y = w.op("Mul", gate, w.op("MatMul", y, w.weight(width, hidden, key="u")))
        x = w.op("Add", x, w.op("MatMul", y, w.weight(hidden, width)))
    return w.model(x)


def branches(side: int, width: int, count: int, depth: int) -> onnx.ModelProto:
    """Return branches of separable convolutions that are added up, as a found cell has."""
    w = Writer("branches")
    x = w.conv(w.input(1, 3, side, side), 3, width, 3)
    for _ in range(depth):
        made = []
        for at in range(count):
            y = w.op("Relu", x)
            kernel = 3 if at % 2 else 5
            y = w.conv(y, width, width, kernel, group=width, relu="", key=f"b{at}")
            made.append(w.conv(y, width, width, 1, relu="", key=f"b{at}"))
        x = made[0]
        for other in made[1:]:
            x = w.op("Add", x, other)
    return w.model(w.op("GlobalAveragePool", x))


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "gpt2_small": lambda: encoder(12, 1, 128, 768, 12, 50257),
    "gpt2_tiny": lambda: encoder(2, 1, 64, 128, 4, 5000),
    "bert_2": lambda: encoder(2, 1, 16, 64, 4),
    "bert_2_long": lambda: encoder(2, 1, 256, 128, 2),
    "bert_6": lambda: encoder(6, 1, 128, 256, 4),
    "vit_s": lambda: encoder(4, 1, 197, 384, 6),
    "perceptron": lambda: perceptron(32, [784, 512, 512, 10]),
    "autoencoder": lambda: perceptron(1, [640, 128, 128, 8, 128, 128, 640]),
    "perceptron_wide": lambda: perceptron(256, [256, 2048, 256, 2048, 256]),
    "convnext_small": lambda: convnext(64, [32, 64], 2),
    "convnext_tiny": lambda: convnext(160, [96, 192, 384], 2),
    "residual_small": lambda: residual(32, [16, 32, 64], 3),
    "residual": lambda: residual(112, [64, 128, 256], 2),
    "inverted_small": lambda: inverted(64, 16, 4),
    "inverted": lambda: inverted(160, 24, 6, "HardSwish"),
    "dense_small": lambda: dense(32, 24, 12, 10),
    "dense": lambda: dense(56, 64, 32, 10),
    "unet_small": lambda: unet(64, 8, 3),
    "unet": lambda: unet(192, 24, 4),
    "llama_mini": lambda: gated(4, 128, 288, 768),
    "branches_small": lambda: branches(32, 16, 5, 4),
    "branches": lambda: branches(64, 44, 5, 4),
}
"""By name, what builds a model."""
