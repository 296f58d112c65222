"""MobileNetV2 with 8-bit integers, as a TFLite file: the shapes of the paper, weights of zeros."""

from __future__ import annotations

from typing import Any

import flat

_BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, repetitions, first stride: table 2 of Sandler et al., CVPR 2018."""
_OPERATORS = ("CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "AVERAGE_POOL_2D", "RESHAPE", "SOFTMAX")


def mobilenet_v2_int8(side: int = 224, classes: int = 1000) -> bytes:
    """Return the file, for square images of ``side`` pixels."""
    tensors: list[dict[int, Any]] = []
    operators: list[dict[int, Any]] = []
    buffers = [b""]

    def value(name: str, *shape: int, buffer: int = 0) -> int:
        tensors.append(flat.tensor(name, shape, flat.INT8, buffer=buffer))
        return len(tensors) - 1

    def run(kind: str, inputs: list[int], *shape: int) -> int:
        name = f"{kind.lower()}_{len(operators)}"
        if kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            inputs = [*inputs, value(f"{name}/weights", shape[-1], buffer=len(buffers))]
            buffers.append(bytes(shape[-1]))
        output = value(name, *shape)
        operators.append(flat.operator(_OPERATORS.index(kind), inputs, [output]))
        return output

    image = value("image", 1, side, side, 3)
    side //= 2
    channels = 32
    x = run("CONV_2D", [image], 1, side, side, channels)
    for expansion, wide, repetitions, first_stride in _BLOCKS:
        for repetition in range(repetitions):
            before = x
            if expansion > 1:
                x = run("CONV_2D", [x], 1, side, side, expansion * channels)
            inner = expansion * channels
            side //= first_stride if repetition == 0 else 1
            x = run("DEPTHWISE_CONV_2D", [x], 1, side, side, inner)
            x = run("CONV_2D", [x], 1, side, side, wide)
            if repetition > 0:
                x = run("ADD", [before, x], 1, side, side, wide)
            channels = wide
    x = run("CONV_2D", [x], 1, side, side, 1280)
    x = run("AVERAGE_POOL_2D", [x], 1, 1, 1, 1280)
    x = run("CONV_2D", [x], 1, 1, 1, classes)
    x = run("RESHAPE", [x], 1, classes)
    x = run("SOFTMAX", [x], 1, classes)
    codes = [flat.code(name) for name in _OPERATORS]
    graph = flat.subgraph(tensors, operators, [image], [x])
    return flat.write(flat.model(codes, [graph], buffers))
