"""
Recurrent layers by compiled kernels: layers with constant weights and usual activations.

One product makes the sums of all gates with the input, for as many steps as there is scratch
memory; one call does all these steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from arenaplan._core import CompiledKernel
from arenaplan.run.numpy.compiled import is_enabled
from arenaplan.run.numpy.constants import shared
from arenaplan.run.numpy.kernels.matmul import packed
from arenaplan.run.numpy.kernels.pieces import operand
from arenaplan.run.numpy.registry import Run, Signature, Step

FUNCTIONS = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}
"""Activations that a direction has by default."""
_SINGLE = np.dtype(np.float32)
_WEIGHTS, _BIAS = (1, 2), 3
_LENGTHS, _PEEPHOLES = 4, 7


def is_compiled(signature: Signature) -> bool:
    """Whether compiled kernels run a layer."""
    x, attributes = signature.input(0), signature.attributes
    wanted = _activations(signature)
    usual = [name.lower() for name in FUNCTIONS[signature.op]]
    known = [[], usual, usual * 2]
    if signature.op == "RNN":
        known += [["relu"], ["relu"] * 2]
    return (
        is_enabled()
        and x is not None
        and x.dtype == _SINGLE
        and all(signature.constant[at] is not None for at in _WEIGHTS)
        and (signature.input(_BIAS) is None or signature.constant[_BIAS] is not None)
        and signature.input(_LENGTHS) is None
        and signature.input(_PEEPHOLES) is None
        and not attributes.get("clip")
        and not attributes.get("layout", 0)
        and not attributes.get("input_forget", 0)
        and wanted in known
    )


def _activations(signature: Signature) -> list[str]:
    """Return the activations in all directions, in lower case; empty if usual."""
    return [name.lower() for name in signature.attributes.get("activations") or ()]


class DirectionArrays(NamedTuple):
    """The arrays for one direction."""

    x: np.ndarray
    """Shape (steps, sequences, width)."""
    block: np.ndarray
    """Sums for some steps: shape (steps, sequences, gates * hidden)."""
    hidden: np.ndarray
    """Shape (sequences, hidden)."""
    cell: np.ndarray
    made: np.ndarray | None
    """The hidden state after every step."""


def compiled_runs(
    step: Step, index: int, memory: DirectionArrays, *, backward: bool
) -> Iterator[Run]:
    """Yield functions that do all steps of a direction, which begin with the state in memory."""
    x, block, hidden, cell, made = memory
    size, rows = hidden.shape[1], block.shape[2]
    bias, late_bias = _biases(step, index, rows, size)
    inward = _matrix(step, 1, index, 0, rows)
    split = 2 * size if step.signature.op == "GRU" else rows
    early = _matrix(step, 2, index, 0, split)
    late = _matrix(step, 2, index, split, rows) if split < rows else None
    kind = step.signature.op
    if kind == "GRU" and step.attributes.get("linear_before_reset", 0):
        kind = "late GRU"
    if "relu" in _activations(step.signature):
        kind = "rectified RNN"
    starts = range(0, len(x), len(block))
    for start in reversed(starts) if backward else starts:
        some = x[start : start + len(block)]
        sums = block[: len(some)]
        target = None if made is None else made[start : start + len(some)]
        source, products = some.reshape(-1, some.shape[2]), sums.reshape(-1, rows)
        yield CompiledKernel.product(source, inward, products, bias)
        yield CompiledKernel.recurrent(
            kind, sums, hidden, cell, early, late, late_bias, target, backward
        )


def _matrix(step: Step, position: int, index: int, start: int, stop: int) -> np.ndarray:
    """Return the weights of some gates in a direction, in reading order."""
    weights = operand(step, position)
    part = weights[index, start:stop].T
    details = ("recurrent", index, start, stop)
    made, _ = shared([weights], details, lambda: (packed(part, 1.0), None))
    return made


def _biases(
    step: Step, index: int, rows: int, size: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the bias of the sums with the input, and of the last product in a late GRU."""
    given = step.input(_BIAS)
    if given is None:
        return None, None
    inward, recurrent = given[index, :rows], given[index, rows:]
    total = np.ascontiguousarray(inward + recurrent)
    if not (step.signature.op == "GRU" and step.attributes.get("linear_before_reset", 0)):
        return total, None
    total[-size:] = inward[-size:]
    return total, np.ascontiguousarray(recurrent[-size:])


def load_state(state: np.ndarray, initial: np.ndarray | None) -> Run:
    """Return a function that begins with a state, or with zeros."""
    return partial(state.fill, 0) if initial is None else partial(np.copyto, state, initial)
