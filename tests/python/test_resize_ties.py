"""Nearest elements of Resize, also where an output position lies in the middle between two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

import arenaplan as ap
from light_models import onnx_runtime
from single_node import expected, node_graph, node_model

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "asymmetric",
    "align_corners",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
RATIOS = (0.25, 0.3, 0.5, 0.6, 0.75, 17 / 28, 1.2, 1.5, 2.0, 2.25, 2.5, 3.0)


class Line(NamedTuple):
    """A line of elements that is resized: each element is its own position."""

    length: int
    target: int
    coordinates: str
    rounding: str
    scale: float | None = None
    """The scale if that is given, and not the length of the output."""

    def inputs(self) -> list[np.ndarray | None]:
        x = np.arange(self.length, dtype=np.float32)
        if self.scale is None:
            return [x, None, None, np.array([self.target])]
        return [x, None, np.array([self.scale], np.float32)]

    def attributes(self) -> dict[str, str]:
        return {
            "mode": "nearest",
            "coordinate_transformation_mode": self.coordinates,
            "nearest_mode": self.rounding,
        }

    def positions(self) -> list[list[int]]:
        """Return the elements that are taken here, by ONNX Runtime and by the reference."""
        inputs, attributes = self.inputs(), self.attributes()
        constants = [len(inputs) - 1]
        model = node_model("Resize", inputs, attributes, opset=19, outputs=1, constants=constants)
        feed = {"in0": inputs[0]}
        (run,) = onnx_runtime(model).run(None, feed)
        (reference,) = expected(model, inputs, "reference")
        graph = node_graph("Resize", inputs, [run], attributes, opset=19, constants=constants)
        (own,) = ap.Executor(graph).run(feed).values()
        return [array.astype(int).tolist() for array in (own, run, reference)]


TIES = {
    "symmetric, on an element": (Line(7, 3, "half_pixel_symmetric", "ceil", 0.5), [1, 3, 5]),
    "symmetric, in the middle": (
        Line(6, 4, "half_pixel_symmetric", "round_prefer_floor", 0.75),
        [0, 2, 3, 4],
    ),
    "a scale that is not a binary fraction": (
        Line(28, 17, "half_pixel", "round_prefer_floor"),
        [0, 2, 4, 5, 7, 9, 10, 12, 13, 15, 17, 18, 20, 22, 23, 25, 27],
    ),
}


@pytest.mark.parametrize(("line", "wanted"), TIES.values(), ids=list(TIES))
def test_a_tie_is_the_tie_that_it_is_by_arithmetic(line: Line, wanted: list[int]) -> None:
    own, *oracles = line.positions()
    assert own == wanted
    assert wanted in oracles


def lines() -> Iterator[Line]:
    random = np.random.default_rng(20261126)
    for coordinates in COORDINATES:
        for rounding in ROUNDINGS:
            for _ in range(6):
                length = int(random.integers(1, 40))
                yield Line(length, int(random.integers(1, 40)), coordinates, rounding)
                scale = float(np.float32(random.choice(RATIOS)))
                target = int(np.floor(np.float32(length) * np.float32(scale)))
                if target:
                    yield Line(length, target, coordinates, rounding, scale)


def test_where_both_oracles_agree_so_does_every_nearest_element() -> None:
    agreed = 0
    for line in lines():
        own, run, reference = line.positions()
        if run == reference:
            agreed += 1
            assert own == run, line
    assert agreed > 200
