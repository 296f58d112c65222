"""Runs TFLite models in the unmodified interpreter of TensorFlow Lite Micro."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import arenaplan as ap

ARENA = 4_000_000
RUNS = 20


class Tflm:
    """The unmodified interpreter."""

    def __init__(self, runtime: Any, data: bytes) -> None:
        self._interpreter = runtime.Interpreter.from_bytes(data, arena_size=ARENA)

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        for index, array in enumerate(inputs):
            self._interpreter.set_input(array, index)
        self._interpreter.invoke()
        return [self._interpreter.get_output(0).copy()]

    def head(self, capfd: pytest.CaptureFixture[str]) -> int:
        """Return what the interpreter says of the part of its arena that is planned."""
        capfd.readouterr()
        self._interpreter.print_allocations()
        found = re.search(r"Arena allocation head (\d+) bytes", capfd.readouterr().err)
        assert found
        return int(found[1])


def tflm_or_skip() -> Any:
    """Return a function that makes an interpreter of a model, or skip the test."""
    runtime = pytest.importorskip("tflite_micro").runtime
    return lambda data: Tflm(runtime, data)


def random_inputs(data: bytes, seed: int) -> list[np.ndarray]:
    """Return an array of random bits for every input of a model."""
    rng = np.random.default_rng(seed)
    graph = ap.load(data)
    arrays = []
    for index in graph.inputs:
        value = graph.values[index]
        if value.dtype == "float32":
            arrays.append(rng.standard_normal(value.shape).astype(np.float32))
        elif value.dtype == "bool":
            arrays.append(np.full(value.shape, seed % 2 == 0))
        else:
            bounds = np.iinfo(value.dtype)
            arrays.append(
                rng.integers(bounds.min, bounds.max, value.shape, value.dtype, endpoint=True)
            )
    return arrays


def assert_same(first: Tflm, second: Tflm, data: bytes) -> None:
    """Compare what two models compute from the same inputs, one run after the other."""
    for seed in range(RUNS):
        inputs = random_inputs(data, seed)
        for a, b in zip(first.run(inputs), second.run(inputs), strict=True):
            assert a.tobytes() == b.tobytes()
