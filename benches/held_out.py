"""
Networks that no kernel was tuned on: other families, sizes and widths than in :mod:`time_models`.

Channels are no powers of two where those of a family are not. ``speed.py`` times them with
``--held-out``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from time_models import Writer


def bottleneck(side: int, widths: list[int], depth: int) -> onnx.ModelProto:
    """Return a residual network of bottlenecks, with a stem of stride 4."""
    w = Writer("bottleneck")
    x = w.conv(w.input(1, 3, side, side), 3, widths[0], 7, 2)
    x = w.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    inward = widths[0]
    for level, width in enumerate(widths):
        for at in range(depth):
            stride = 2 if level and not at else 1
            y = w.conv(w.conv(x, inward, width, 1), width, width, 3, stride)
            y = w.conv(y, width, 4 * width, 1, relu="")
            if not at:
                x = w.conv(x, inward, 4 * width, 1, stride, relu="")
            x = w.op("Relu", w.op("Add", y, x))
            inward = 4 * width
    return _classified(w, x, inward)


def mobile(side: int, blocks: list[tuple[int, int, int, int]], squeezes: bool) -> onnx.ModelProto:
    """
    Return inverted residual blocks: width, kernel, stride and repetitions of each stage.

    With ``squeezes``, they have gates per channel and Swish; Clip otherwise.
    """
    w = Writer("mobile")

    def activated(x: str) -> str:
        if squeezes:
            return w.op("Mul", x, w.op("Sigmoid", x))
        return w.op("Clip", x, w.scalar(0.0), w.scalar(6.0))

    inward = 24 if squeezes else 20
    x = activated(w.conv(w.input(1, 3, side, side), 3, inward, 3, 2, relu=""))
    for width, kernel, stride, count in blocks:
        for at in range(count):
            inner, step = 4 * inward, stride if not at else 1
            y = activated(w.conv(x, inward, inner, 1, relu=""))
            y = activated(w.conv(y, inner, inner, kernel, step, group=inner, relu=""))
            if squeezes:
                gate = w.conv(w.op("GlobalAveragePool", y), inner, inward // 4, 1)
                y = w.op("Mul", y, w.conv(gate, inward // 4, inner, 1, relu="Sigmoid"))
            y = w.conv(y, inner, width, 1, relu="")
            x = w.op("Add", x, y) if at and step == 1 else y
            inward = width
    return _classified(w, x, inward)


def isotropic(side: int, width: int, depth: int) -> onnx.ModelProto:
    """Return 7x7 depthwise convolutions and perceptrons on patches of four by four pixels."""
    w = Writer("isotropic")
    weights = w.weight(width, 3, 4, 4)
    x = w.op("Conv", w.input(1, 3, side, side), weights, w.weight(width), strides=[4, 4])
    for _ in range(depth):
        y = w.conv(x, width, width, 7, group=width, relu="")
        y = w.norm(w.op("Transpose", y, perm=[0, 2, 3, 1]), width)
        y = w.linear(w.gelu(w.linear(y, width, 4 * width)), 4 * width, width)
        x = w.op("Add", x, w.op("Transpose", y, perm=[0, 3, 1, 2]))
    return _classified(w, x, width)


def decoder(layers: int, length: int, width: int, heads: int, words: int) -> onnx.ModelProto:
    """Return a transformer with a causal mask, whose words are looked up in a table."""
    w = Writer("decoder")
    table = w.weight(words, width)
    x = w.op("Gather", table, w.input(1, length, dtype=onnx.TensorProto.INT64))
    mask = np.triu(np.full((length, length), -1e9, np.float32), 1)
    w.weights["mask"] = mask
    shape = w.numbers(1, length, heads, width // heads)
    for _ in range(layers):
        y = w.linear(w.norm(x, width), width, 3 * width)
        w.nodes.append(
            onnx.helper.make_node(
                "Split",
                [y, w.numbers(width, width, width)],
                [f"{y}_{name}" for name in "qkv"],
                axis=-1,
            )
        )
        q, k, v = (
            w.op("Transpose", w.op("Reshape", f"{y}_{name}", shape), perm=order)
            for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3]))
        )
        scores = w.op("Add", w.op("Mul", w.op("MatMul", q, k), w.scalar(0.125)), "mask")
        y = w.op("Transpose", w.op("MatMul", w.op("Softmax", scores), v), perm=[0, 2, 1, 3])
        y = w.op("Reshape", y, w.numbers(1, length, width))
        x = w.op("Add", x, w.linear(y, width, width))
        y = w.gelu(w.linear(w.norm(x, width), width, 4 * width))
        x = w.op("Add", x, w.linear(y, 4 * width, width))
    return w.model(w.op("MatMul", w.norm(x, width), w.op("Transpose", table, perm=[1, 0])))


def recurrent(kind: str, steps: int, width: int, hidden: int, layers: int) -> onnx.ModelProto:
    """Return layers of one recurrent operator, and a classifier of every step."""
    w = Writer(kind)
    gates = {"LSTM": 4, "GRU": 3}[kind]
    x, inward = w.input(steps, 1, width), width
    for _ in range(layers):
        weights = (w.weight(1, gates * hidden, each) for each in (inward, hidden))
        y = w.op(kind, x, *weights, hidden_size=hidden)
        x, inward = w.op("Squeeze", y, w.numbers(1)), hidden
    return w.model(w.op("Softmax", w.linear(x, hidden, 40), axis=-1))


def spoken(length: int, width: int, depth: int) -> onnx.ModelProto:
    """Return convolutions over one dimension with residuals, as keyword spotters have."""
    w = Writer("spoken")
    x = w.op("Conv", w.input(1, 40, length), w.weight(width, 40, 9), pads=[4, 4])
    for _ in range(depth):
        y = w.op("Conv", x, w.weight(width, 1, 9), pads=[4, 4], group=width)
        y = w.op("Conv", y, w.weight(width, width, 1), w.weight(width))
        x = w.op("Relu", w.op("Add", x, y))
    return _classified(w, x, width)


def _classified(w: Writer, x: str, width: int) -> onnx.ModelProto:
    """Return the model with a classifier."""
    x = w.op("Flatten", w.op("GlobalAveragePool", x))
    return w.model(w.op("Gemm", x, w.weight(100, width), w.weight(100), transB=1))


_MOBILE = [(24, 3, 2, 2), (40, 5, 2, 3), (80, 3, 2, 3), (112, 5, 1, 2), (192, 5, 2, 2)]
_TINY = [(12, 3, 1, 1), (24, 3, 2, 2), (44, 3, 2, 2)]

FULL: dict[str, Callable[[], onnx.ModelProto]] = {
    "bottleneck_200": lambda: bottleneck(200, [64, 128, 256, 512], 2),
    "mobile_208": lambda: mobile(208, _MOBILE, False),
    "efficient_192": lambda: mobile(192, _MOBILE, True),
    "isotropic_176": lambda: isotropic(176, 144, 5),
    "decoder_100": lambda: decoder(5, 100, 512, 8, 8000),
    "lstm_200": lambda: recurrent("LSTM", 200, 80, 256, 2),
}
"""Models of full size."""
SMALL: dict[str, Callable[[], onnx.ModelProto]] = {
    "bottleneck_48": lambda: bottleneck(48, [12, 24, 40], 1),
    "mobile_56": lambda: mobile(56, _TINY, False),
    "efficient_72": lambda: mobile(72, _TINY, True),
    "isotropic_40": lambda: isotropic(40, 40, 3),
    "decoder_24": lambda: decoder(2, 24, 96, 3, 600),
    "spoken_98": lambda: spoken(98, 44, 4),
    "gru_40": lambda: recurrent("GRU", 40, 40, 64, 1),
}
"""Small ones."""
MODELS = FULL | SMALL
"""All of them by name."""
