"""Small graphs that several test files run."""

from __future__ import annotations

import numpy as np

import arenaplan as ap

F32 = "float32"


def small_network(*, relu_in_place: bool = True) -> ap.Graph:
    """Return Conv, BatchNormalization, Add of a shortcut, Relu, Softmax, with weights."""
    rng = np.random.default_rng(3)
    graph = ap.Graph("small")
    shape = (1, 8, 12, 12)
    x = graph.input("x", shape)

    def weight(name: str, *dims: int, low: float = -0.3, high: float = 0.3) -> int:
        data = rng.uniform(low, high, dims).astype(np.float32)
        return graph.constant(name, dims, F32, data)

    place = [(0, 0)] if relu_in_place else []
    (stem,) = graph.node(
        "Conv",
        [x, weight("w0", 8, 8, 3, 3)],
        [("stem", shape, F32)],
        attributes={"pads": [1] * 4},
        version=17,
    )
    (main,) = graph.node(
        "Conv",
        [stem, weight("w1", 8, 8, 3, 3), weight("b1", 8)],
        [("main", shape, F32)],
        attributes={"pads": [1] * 4},
        version=17,
        name="conv",
    )
    statistics = [weight("s", 8), weight("t", 8), weight("m", 8), weight("v", 8, low=0.5, high=2)]
    (normal,) = graph.node(
        "BatchNormalization",
        [main, *statistics],
        [("normal", shape, F32)],
        version=15,
        in_place=place,
    )
    (total,) = graph.node(
        "Add", [normal, stem], [("total", shape, F32)], version=14, in_place=place
    )
    (active,) = graph.node("Relu", [total], [("active", shape, F32)], version=14, in_place=place)
    (result,) = graph.node("Softmax", [active], [("y", shape, F32)], version=13, in_place=place)
    graph.output(result)
    return graph


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
