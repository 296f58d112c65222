"""Kernels of TFLite's operators compute what TensorFlow Lite Micro's reference kernels compute."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest

import arenaplan as ap
import flat
import tflite_cases
from arenaplan.base import errors
from arenaplan.run.numpy.executor import quiet_arithmetic
from tflite_cases import EXPECTED, INEXACT, RUNS, inputs_of, models, run_cases
from tflm_operators import Case, Operand, cases, model_of

CASES = {case.title: case for case in run_cases()}
OUTPUTS = json.loads(EXPECTED.read_text())


def test_every_case_has_outputs_of_the_interpreter() -> None:
    exact = {title for title, case in CASES.items() if case.name not in INEXACT}
    assert OUTPUTS.keys() == exact
    assert len({case.name for case in CASES.values()}) >= 90


@pytest.mark.parametrize("title", OUTPUTS)
def test_outputs_are_those_that_the_interpreter_computed(title: str) -> None:
    ((seed, data),) = models(CASES[title])
    found: list[np.ndarray] = []
    with ap.Executor(data) as executor:
        for run in range(RUNS):
            inputs = inputs_of(executor.graph, f"{seed}/{run}")
            found += executor.run(inputs, verify=run == 1).values()
    assert tflite_cases.digest(found) == OUTPUTS[title]


def test_outputs_are_those_of_the_installed_interpreter() -> None:
    pytest.importorskip("tflite_micro")
    from arenaplan.deploy.adapters.interpreter import Interpreter

    for title, case in CASES.items():
        for seed, data in models(case, seeds=4):
            interpreter = Interpreter(data)
            with ap.Executor(data) as executor:
                for run in range(RUNS):
                    inputs = inputs_of(executor.graph, f"{seed}/{run}")
                    match = interpreter.compare(executor.graph, inputs, executor.run(inputs))
                    assert case.name in INEXACT or match.inexact == 0, title


def test_operators_without_a_kernel_are_refused_by_name() -> None:
    titles = set()
    for case in cases():
        if case.title not in CASES:
            with pytest.raises(errors.UnsupportedOp, match=case.name):
                ap.Executor(model_of(case))
            titles.add(case.title)
    assert {"LOG_SOFTMAX-int8", "CIRCULAR_BUFFER", "SignalRfft-int16"} <= titles


# -- memory -----------------------------------------------------------------------------------

ALLOWED = 64 << 10


def large_cases() -> list[Case]:
    """Return cases whose temporary arrays would be seen."""
    found, seen = [], set()
    for case in CASES.values():
        kind = case.name, [each and each.dtype for each in case.inputs]
        if str(kind) in seen:
            continue
        seen.add(str(kind))
        inputs = [_enlarged(each) for each in case.inputs]
        outputs = [_enlarged(each) for each in case.outputs]
        if inputs != list(case.inputs):
            found.append(case._replace(inputs=inputs, outputs=outputs))
    for dtype, sums in (("int8", "int32"), ("int16", "int64")):
        rows, columns = Operand((2, 9000), dtype), Operand((2, 64), dtype)
        weights, bias = Operand((64, 9000), "int8", (1,)), Operand((64,), sums, (1,), axis=-1)
        found.append(Case("FULLY_CONNECTED", [rows, weights, bias], [columns], (8, {})))
        scale = 1 / 256 if dtype == "int8" else 1 / 32768
        zero = -128 if dtype == "int8" else 0
        likely = rows._replace(scale=scale, zero_point=zero)
        found.append(Case("SOFTMAX", [rows], [likely], (9, {0: flat.Number("f", 1)})))
    return found


def _enlarged(operand: Operand | None) -> Operand | None:
    """Return images of 6 rows and 5 columns with 96 and 80; others as they are."""
    if operand is None or len(operand.shape) != 4 or operand.data is not None:
        return operand
    images, rows, columns, channels = operand.shape
    factor = {(6, 5): (96, 80), (3, 3): (48, 40), (8, 5): (98, 80), (18, 5): (288, 80)}
    size = factor.get((rows, columns))
    return operand if size is None else operand._replace(shape=(images, *size, channels))


def test_no_warm_step_allocates_more_than_small_change() -> None:
    seen, over = set(), []
    for case in large_cases():
        try:
            executor = ap.Executor(model_of(case))
        except (errors.ExecutionError, errors.UnsupportedOp):
            continue  # Other operands do not fit the larger one.
        inputs = inputs_of(executor.graph, case.title)
        for _ in range(2):
            executor.run(inputs)
        setup = executor._setup
        assert setup is not None
        with quiet_arithmetic():
            tracemalloc.start()
            for run, node in zip(setup.program.runs, setup.program.nodes, strict=True):
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                run()
                size = tracemalloc.get_traced_memory()[1] - before
                if size > ALLOWED:
                    over.append((case.title, node.op, size))
            tracemalloc.stop()
        seen.add(case.name)
    assert not over, over
    assert len(seen) >= 50, sorted(seen)
