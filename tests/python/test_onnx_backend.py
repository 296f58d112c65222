"""
The node tests of the ONNX standard, through the whole of arenaplan.

Each is a model of one node (or of the function that defines it) with inputs and the
outputs they should give. It is written to a file, imported, planned, and run twice:
once with every check there is, and once warm. A test must pass, or be refused with a
typed error; ``data/onnx_backend_unsupported.txt`` lists those that are refused, and
why. Run this file as a script to write the list anew.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base.errors import (
    PlannerError,
    UnboundDim,
    UnknownShape,
    UnsupportedDtype,
    UnsupportedModel,
)

onnx = pytest.importorskip("onnx")

LISTED = Path(__file__).parent / "data" / "onnx_backend_unsupported.txt"
REFUSALS = (UnboundDim, UnknownShape, UnsupportedDtype, UnsupportedModel)
"""Errors that say that a model is beyond us, not that something went wrong. The first
two are shapes of intermediate results that depend on data."""


RANDOM = ("test_bernoulli", "test_training_dropout_default", "test_training_dropout_mask")
"""Tests whose expected data are one draw of random numbers, by the first letters of their names.
Shapes and types are compared; the numbers have tests of their own."""


class Outcome:
    """What came of one node test: at most one of a refusal and a failure."""

    def __init__(self, refusal: str = "", failure: str = "") -> None:
        self.refusal = refusal
        self.failure = failure


@pytest.fixture(scope="session")
def outcomes() -> Mapping[str, Outcome]:
    """What came of every node test, by name."""
    return dict(run_all())


def run_all() -> Iterator[tuple[str, Outcome]]:
    """Run every node test."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():  # Some tests are made by overflowing on purpose.
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for case in cases:
            onnx.save(case.model, path)
            yield case.name, outcome_of(case, path)


def outcome_of(case: Any, path: Path) -> Outcome:
    """Run one node test, whose model is in a file."""
    try:
        executor = ap.Executor(path)
        graph = executor.graph
        for inputs, expected in case.data_sets:
            names = [graph.values[index].name for index in graph.inputs]
            given = dict(zip(names, map(array_of, inputs), strict=True))
            executor.run(given, verify=True)
            arrays = [array for each in expected for array in arrays_of(each)]
            for got, wanted in zip(executor.run(given).values(), arrays, strict=True):
                if case.name.startswith(RANDOM) or case.name == "test_training_dropout":
                    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
                else:
                    compare(got, wanted, case.rtol, case.atol)
    except REFUSALS as error:
        return Outcome(refusal=type(error).__name__)
    except ap.errors.ExecutionError as error:
        if isinstance(error.__cause__, REFUSALS):
            return Outcome(refusal=type(error.__cause__).__name__)
        return Outcome(failure=f"{error} ({error.__cause__!r})")
    except (PlannerError, AssertionError) as error:
        return Outcome(failure=f"{type(error).__name__}: {error}")
    return Outcome()


def array_of(value: Any) -> np.ndarray:
    """Return data of a test as an array."""
    if isinstance(value, onnx.TensorProto):
        return np.asarray(onnx.numpy_helper.to_array(value))
    return np.asarray(value)


def arrays_of(value: Any) -> list[np.ndarray]:
    """Return an output of a test as arrays: a sequence leaves a graph as its elements."""
    if isinstance(value, onnx.SequenceProto):
        value = onnx.numpy_helper.to_list(value)
    return [np.asarray(each) for each in value] if isinstance(value, list) else [array_of(value)]


def compare(got: np.ndarray, wanted: np.ndarray, rtol: float, atol: float) -> None:
    """Raise if an output is not what it should be."""
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    if got.dtype.isbuiltin != 1:  # A type of the package ml_dtypes, compared as for float16.
        if got.dtype.name == "bfloat16":
            rtol = max(rtol, 2 * 2**-7)
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    if got.dtype == np.float16:
        # Expected data were rounded after each step, ours are at the end: two units in the last
        # place may lie between, which is more than the tolerance of the tests.
        rtol = max(rtol, 2 * float(np.finfo(np.float16).eps))
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol)


def unsupported(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return a line for each test that was refused."""
    return sorted(f"{name} {each.refusal}" for name, each in outcomes.items() if each.refusal)


def summary(outcomes: Mapping[str, Outcome]) -> str:
    """Return how many tests passed, and how many were refused for which reason."""
    refusals = Counter(each.refusal for each in outcomes.values() if each.refusal)
    failed = sum(bool(each.failure) for each in outcomes.values())
    passed = len(outcomes) - failed - refusals.total()
    reasons = ", ".join(f"{count} {reason}" for reason, count in refusals.most_common())
    return (
        f"ONNX {onnx.__version__} node tests: {passed} of {len(outcomes)} pass, {failed} fail, "
        f"{refusals.total()} unsupported ({reasons})"
    )


def write_list(outcomes: Mapping[str, Outcome]) -> None:
    """Write the list of what is unsupported."""
    header = [
        f"# onnx {onnx.__version__}",
        "# Node tests that are refused, and the class of the error that says so.",
        "# Written by tests/python/test_onnx_backend.py, run as a script.",
    ]
    LISTED.write_text("\n".join([*header, *unsupported(outcomes)]) + "\n", encoding="utf-8")


def read_list() -> tuple[str, Sequence[str]]:
    """Return the version of ONNX that the list is for, and its lines."""
    first, *rest = LISTED.read_text(encoding="utf-8").splitlines()
    return first.removeprefix("# onnx "), [line for line in rest if not line.startswith("#")]


def test_what_is_supported_passes(
    outcomes: Mapping[str, Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(f"\n{summary(outcomes)}")
    failures = {name: each.failure for name, each in outcomes.items() if each.failure}
    assert not failures, "\n".join(f"{name}: {text}" for name, text in failures.items())


def test_what_is_unsupported_is_listed(outcomes: Mapping[str, Outcome]) -> None:
    version, listed = read_list()
    if version != onnx.__version__:
        pytest.skip(f"the list is for the tests of onnx {version}; this is {onnx.__version__}")
    assert unsupported(outcomes) == listed


if __name__ == "__main__":
    found = dict(run_all())
    write_list(found)
    print(summary(found))
    sys.exit(any(each.failure for each in found.values()))
