"""
Models of one operator each with drawn weights, scales and zero points, and their expected outputs.

``tflite_outputs.json`` has digests of what the interpreter of tflite-micro computes. Run as a
program where that is installed, this module writes the file anew.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np

import arenaplan as ap
from arenaplan.graph import Graph
from arenaplan.run.numpy import supported_ops
from tflm_operators import Case, Operand, cases, model_of

EXPECTED = Path(__file__).with_name("tflite_outputs.json")
RUNS = 2
"""Runs in a row of each model: states live on."""

INEXACT = frozenset({"COS", "LOG", "LOG_SOFTMAX", "SIN"})
"""Operators of real numbers whose last bit is that of another library."""

_OUTPUT_FIXED = frozenset({"L2_NORMALIZATION", "LOGISTIC", "LOG_SOFTMAX", "SOFTMAX", "TANH"})
_ONE_SCALE = frozenset(
    {
        *("ADD_N", "AVERAGE_POOL_2D", "CONCATENATION", "MAXIMUM", "MAX_POOL_2D", "MINIMUM"),
        *("PADV2", "REDUCE_MAX", "REDUCE_MIN", "RELU6"),
    }
)
_WHOLE = frozenset(
    {"BATCH_TO_SPACE_ND", "EMBEDDING_LOOKUP", "EXPAND_DIMS", "SPACE_TO_BATCH_ND", "SPLIT"}
)
"""Operators whose constants of whole numbers are no biases."""


def run_cases() -> Iterator[Case]:
    """Yield the cases whose operator the executor runs."""
    known = set(supported_ops("tflite"))
    for case in cases():
        if case.custom is None and case.name in known and case.title not in _REFUSED:
            yield case


_REFUSED = frozenset({"LOG_SOFTMAX-int8"})
"""Cases that the executor refuses."""


def varied(case: Case, seed: int) -> Case:
    """Return a case with drawn constants, scales and zero points."""
    draw = random.Random(f"{case.title}/{seed}")

    def operand(given: Operand | None, *, is_output: bool = False) -> Operand | None:
        if given is None:
            return None
        data, count = given.data, prod(given.shape)
        if data is not None and tuple(data) == (0,):
            if given.dtype == "float32":
                data = [draw.randint(-4096, 4096) / 2048 for _ in range(count)]
            elif given.dtype in ("int8", "int16"):
                most = 127 if given.dtype == "int8" else 3000
                data = [draw.randint(-most, most) for _ in range(count)]
            elif given.dtype in ("int32", "int64") and case.name not in _WHOLE:
                data = [draw.randint(-2000, 2000) for _ in range(count)]
        given = given._replace(data=data)
        if given.dtype not in ("int8", "int16") or (is_output and case.name in _OUTPUT_FIXED):
            return given
        scale = 10 ** draw.uniform(-2.2, -0.8)
        if given.dtype == "int16" and case.name in ("LOGISTIC", "TANH"):
            scale = draw.choice([2.0**-12, 2.0**-11, 10 ** draw.uniform(-4.5, -3)])
        is_shifted = given.dtype == "int8" and data is None and not given.is_variable
        zero = draw.randint(-128, 127) if is_shifted else 0
        return given._replace(scale=_single(scale), zero_point=zero)

    inputs = [operand(each) for each in case.inputs]
    outputs = [operand(each, is_output=True) for each in case.outputs]
    first = inputs[0]
    assert first is not None
    if case.name in _ONE_SCALE:
        inputs = [_like(each, first) for each in inputs]
        if case.name != "ADD_N":
            outputs = [_like(each, first) for each in outputs]
    if case.name == "DIV" and first.dtype == "int8":
        # Quotients that vanish are shifted by more bits than a number has, which C leaves open.
        inputs[1] = inputs[1]._replace(data=[draw.randint(60, 120)], zero_point=0)
        inputs[0] = first._replace(zero_point=0)
        outputs[0] = outputs[0]._replace(scale=_single(first.scale / inputs[1].scale / 60))
    if case.name == "FULLY_CONNECTED" and first.dtype != "float32":
        inputs[2] = inputs[2]._replace(scale=_single(first.scale * inputs[1].scale), axis=-1)
    if case.name == "SVDF" and first.dtype != "float32":
        scale = _single(inputs[4].scale * inputs[2].scale)
        inputs[3] = inputs[3]._replace(scale=scale, axis=-1)
    return case._replace(inputs=inputs, outputs=outputs)


def _single(number: float) -> float:
    """Return a number as a file stores it."""
    (single,) = struct.unpack("<f", struct.pack("<f", number))
    return single


def _like(operand: Operand | None, first: Operand) -> Operand | None:
    """Return an operand of the same type with the scale of the first."""
    if operand is None or operand.dtype != first.dtype:
        return operand
    return operand._replace(scale=first.scale, zero_point=first.zero_point)


def inputs_of(graph: Graph, seed: str) -> dict[str, np.ndarray]:
    """Return inputs of which every byte is drawn; real numbers are some units large."""
    arrays = {}
    for index in graph.inputs:
        value = graph.values[index]
        count = prod(value.shape)
        drawn = hashlib.shake_256(f"{seed}/{value.name}".encode()).digest(8 * count)
        dtype = np.dtype(value.dtype)
        if dtype.kind == "f":
            numbers = np.frombuffer(drawn, "<i2")[:count].astype(dtype) / dtype.type(8192)
        elif dtype.kind == "b":
            numbers = np.frombuffer(drawn, np.uint8)[:count] % 2 == 1
        elif dtype.itemsize > 2:
            numbers = np.frombuffer(drawn, np.uint8)[:count].astype(dtype) % 3
        else:
            numbers = np.frombuffer(drawn, dtype.newbyteorder("<"))[:count].astype(dtype)
        arrays[value.name] = numbers.reshape(value.shape)
    return arrays


def models(case: Case, seeds: int = 1) -> Iterator[tuple[str, bytes]]:
    """Yield varied models of a case, and the names of their seeds."""
    for seed in range(1, seeds + 1):
        yield f"{case.title}/{seed}", model_of(varied(case, seed))


def digest(outputs: list[np.ndarray]) -> str:
    """Return a short digest of some outputs, in which 0 and -0 are equal."""
    whole = hashlib.sha256()
    for array in outputs:
        whole.update((array + 0.0 if array.dtype.kind == "f" else array).tobytes())
    return whole.hexdigest()[:12]


def _write() -> None:
    from arenaplan.deploy.adapters.interpreter import Interpreter

    expected = {}
    for case in run_cases():
        if case.name in INEXACT:
            continue
        found = []
        for seed, data in models(case):
            graph, outputs = ap.load(data), []
            interpreter = Interpreter(data)
            for run in range(RUNS):
                inputs = list(inputs_of(graph, f"{seed}/{run}").values())
                outputs += interpreter.run(inputs, len(graph.outputs))
            found.append(digest(outputs))
        expected[case.title] = " ".join(found)
    rows = ",\n".join(f" {json.dumps(title)}: {json.dumps(row)}" for title, row in expected.items())
    EXPECTED.write_text(f"{{\n{rows}\n}}\n")


if __name__ == "__main__":
    _write()
