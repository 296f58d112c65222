"""Windows of which some elements meet padding alone: convolutions leave these out."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.graph.ops.window_ops import Axis
from arenaplan.run.numpy import compiled
from arenaplan.run.numpy.kernels.conv_tiles import geometry
from arenaplan.run.numpy.signatures import signature_of
from convolutions import convolved
from networks import F32, noise


def convolution(
    image: tuple[int, ...], weights: tuple[int, ...], *, constant: bool = True, **attributes: Any
) -> ap.Graph:
    """Return a graph of one convolution."""
    graph = ap.Graph()
    rank = len(image) - 2
    pads = attributes.get("pads", [0] * (2 * rank))
    steps, gaps = (attributes.get(name, [1] * rank) for name in ("strides", "dilations"))
    outs = [
        (image[2 + k] + pads[k] + pads[rank + k] - (weights[2 + k] - 1) * gaps[k] - 1) // steps[k]
        + 1
        for k in range(rank)
    ]
    x = graph.input("x", image)
    data = noise(*weights, seed=1)
    w = graph.constant("w", weights, F32, data) if constant else graph.input("w", weights)
    b = graph.constant("b", weights[:1], F32, noise(weights[0], seed=2))
    shape = (image[0], weights[0], *outs)
    (y,) = graph.node("Conv", [x, w, b], [("y", shape, F32)], attributes=attributes, version=13)
    graph.output(y)
    return graph


def defined(graph: ap.Graph, feed: dict[str, np.ndarray]) -> np.ndarray:
    """Return the result in double precision, by the definition."""
    node = graph.nodes[0]
    x = feed["x"].astype(np.float64)
    w = (feed["w"] if "w" in feed else graph.data(node.inputs[1])).astype(np.float64)
    bias = graph.data(node.inputs[2]).astype(np.float64)
    return convolved(x, w, dict(node.attributes)) + bias.reshape(1, -1, *[1] * (x.ndim - 2))


def check(*shapes: tuple[int, ...], **details: Any) -> None:
    """Check the results of the compiled kernel and of NumPy."""
    for switch in (nullcontext(), compiled.disabled()):
        graph = convolution(*shapes, **details)
        values = [graph.values[index] for index in graph.inputs]
        feed = {value.name: noise(*value.shape, seed=5) for value in values}
        wanted = defined(graph, feed)
        with switch, ap.Executor(graph) as executor:
            found = executor.run(feed, verify=True)["y"]
        np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


def taps(graph: ap.Graph) -> int:
    return geometry(signature_of(graph, graph.nodes[0])).taps


@pytest.mark.parametrize(
    ("image", "weights", "attributes", "left"),
    [
        # The dilated branches of DeepLab over an image of 6 by 6: the middle alone is left.
        ((1, 8, 6, 6), (5, 8, 3, 3), {"dilations": [12, 12], "pads": [12] * 4}, 1),
        ((2, 8, 6, 6), (4, 4, 3, 3), {"dilations": [6, 3], "pads": [6, 3] * 2, "group": 2}, 3),
        ((1, 6, 5, 7), (6, 1, 3, 3), {"dilations": [5, 6], "pads": [5, 6] * 2, "group": 6}, 3),
        ((1, 3, 4), (4, 3, 7), {"dilations": [2], "pads": [6, 6]}, 3),
        # Padding on one side only, and steps.
        ((1, 4, 3, 9), (4, 4, 5, 3), {"dilations": [2, 1], "pads": [8, 0, 0, 0]}, 6),
        ((1, 4, 9, 9), (4, 4, 3, 3), {"strides": [9, 9], "pads": [1, 1, 1, 1]}, 4),
    ],
)
def test_elements_that_meet_padding_alone_are_left_out(
    image: tuple[int, ...], weights: tuple[int, ...], attributes: dict[str, Any], left: int
) -> None:
    assert taps(convolution(image, weights, **attributes)) == left
    check(image, weights, **attributes)


def test_windows_that_are_no_constants_stay_whole() -> None:
    attributes = {"dilations": [12, 12], "pads": [12] * 4}
    shapes = (1, 8, 6, 6), (5, 8, 3, 3)
    assert taps(convolution(*shapes, constant=False, **attributes)) == 9
    check(*shapes, constant=False, **attributes)


@pytest.mark.parametrize("seed", range(60))
def test_random_windows_compute_the_same(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rank = int(draw.integers(1, 3))
    groups = int(draw.choice([1, 1, 2]))
    fan_in, fan_out = (int(n) for n in draw.integers(1, 5, 2))
    kernel = [int(n) for n in draw.integers(1, 6, rank)]
    gaps = [int(n) for n in draw.integers(1, 7, rank)]
    reach = [(k - 1) * gap + 1 for k, gap in zip(kernel, gaps, strict=True)]
    pads = [int(draw.integers(0, extent + 1)) for extent in reach * 2]
    sizes = [
        max(int(draw.integers(1, 9)), extent - before - behind)
        for extent, before, behind in zip(reach, pads[:rank], pads[rank:], strict=True)
    ]
    steps = [int(n) for n in draw.integers(1, 4, rank)]
    shape = (groups * fan_out, fan_in, *kernel)
    named = {"pads": pads, "dilations": gaps, "strides": steps, "group": groups}
    check((1, groups * fan_in, *sizes), shape, **named)


def test_only_elements_that_never_meet_the_image_are_trimmed() -> None:
    draw = np.random.default_rng(3)
    for _ in range(2_000):
        kernel, stride, gap, before = (int(n) for n in draw.integers([1, 1, 1, 0], [8, 5, 8, 30]))
        axis = Axis(
            int(draw.integers(1, 12)), int(draw.integers(1, 9)), kernel, stride, gap, before, 0
        )
        kept = axis.trimmed

        def meets(tap: int, axis: Axis = axis) -> bool:
            first, stop = axis.positions(tap)
            return stop > first

        inside = [tap for tap in range(axis.kernel) if meets(tap)]
        left = range(kept.skipped, kept.skipped + kept.kernel)
        assert set(inside) <= set(left)
        assert kept.before >= 0
        for tap in left:
            assert axis.positions(tap) == kept.positions(tap - kept.skipped)
