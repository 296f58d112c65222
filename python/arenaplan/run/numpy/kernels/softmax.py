"""Softmax and its logarithm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod

import numpy as np

from arenaplan._core import CompiledKernel
from arenaplan.graph import Choice
from arenaplan.run.numpy.compiled import is_enabled
from arenaplan.run.numpy.cuts import SOFTMAX
from arenaplan.run.numpy.kernels.pieces import (
    address,
    in_sequence,
    normalized_axis,
    operand,
    result,
)
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.registry import (
    Run,
    Signature,
    Step,
    Tensor,
    compiled_kernel,
    scratch_bytes,
)

_BLOCK = 1 << 16
"""Elements that all passes work on before the next are fetched."""


def _layout(tensor: Tensor, attributes_axis: int | None, version: int) -> tuple[int, int, int]:
    """Return how many elements are before, along and behind the axis."""
    rank = len(tensor.shape)
    if version < 13:  # Everything from the axis on was one dimension.
        axis = (1 if attributes_axis is None else attributes_axis) % max(rank, 1)
        return prod(tensor.shape[:axis]), prod(tensor.shape[axis:]), 1
    axis = (-1 if attributes_axis is None else attributes_axis) % max(rank, 1)
    along = tensor.shape[axis] if rank else 1
    return prod(tensor.shape[:axis]), along, prod(tensor.shape[axis + 1 :])


def _signature_layout(signature: Signature) -> tuple[int, int, int] | None:
    source = signature.input(0)
    if source is None or 0 in source.shape:
        return None
    return _layout(source, signature.attributes.get("axis"), signature.version)


def _rows(before: int, along: int, behind: int) -> int:
    """Return how many rows (or columns, if the axis is not the last) are one block."""
    if behind > 1:
        return max(1, min(behind, _BLOCK // along))
    return max(1, min(before, _BLOCK // along))


def _declare(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for one value per row in a block, and a block of exponentials for the logarithm."""
    source, layout = signature.input(0), _signature_layout(signature)
    if source is None or layout is None:
        return []
    rows = _rows(*layout)
    size = scratch_bytes((rows,), source.dtype)
    if signature.op == "LogSoftmax":
        size += scratch_bytes((rows, layout[1]), source.dtype)
    return [[Choice(size, 0.0)]]


@heavy_kernel("Softmax", "LogSoftmax", workspace=_declare, cut=SOFTMAX)
def softmax(step: Step) -> Run | None:
    """Exponentiate, and divide by the sum, along one axis."""
    source, output = operand(step, 0), result(step)
    normalized_axis(step, step.attributes.get("axis", -1), source.ndim)
    layout = _signature_layout(step.signature)
    if layout is None:
        return None
    before, along, behind = layout
    rows = _rows(*layout)
    scratch = step.scratch()
    memory = scratch.array((rows,), source.dtype)
    is_log = step.signature.op == "LogSoftmax"
    powers = scratch.array((rows * along,), source.dtype) if is_log else None
    source, output = source.reshape(layout), output.reshape(layout)
    work: list[Run] = []
    if behind == 1:
        for start in range(0, before, rows):
            cut = slice(start, min(start + rows, before))
            work += _block(source[cut, :, 0], output[cut, :, 0], memory, powers, -1)
    else:
        for outer in range(before):
            for start in range(0, behind, rows):
                cut = slice(start, min(start + rows, behind))
                work += _block(source[outer, :, cut], output[outer, :, cut], memory, powers, 0)
    return in_sequence(*work)


def _is_compiled(signature: Signature) -> bool:
    """Return whether rows in single precision are contiguous."""
    source, layout = signature.input(0), _signature_layout(signature)
    if source is None or layout is None or source.dtype != np.float32:
        return False
    return is_enabled() and signature.op == "Softmax" and layout[2] == 1


@compiled_kernel("Softmax", when=_is_compiled)
def compiled_softmax(step: Step) -> Run | None:
    """Exponentiate, and divide by the sum, along the last axes."""
    source, output = operand(step, 0), result(step)
    normalized_axis(step, step.attributes.get("axis", -1), source.ndim)
    layout = _signature_layout(step.signature)
    assert layout is not None, "the kernel was chosen for such nodes"
    rows = output.reshape(layout[:2])
    if address(source) == address(output):
        return CompiledKernel.softmax(None, rows)
    return CompiledKernel.softmax(source.reshape(layout[:2]), rows)


def _block(
    source: np.ndarray,
    output: np.ndarray,
    memory: np.ndarray,
    powers: np.ndarray | None,
    axis: int,
) -> Iterator[Run]:
    """Yield the passes over a block with the summed axis first or last."""
    value = memory[: source.shape[1 + axis]]
    spread = value[:, None] if axis else value
    exponentials = output if powers is None else powers[: source.size].reshape(source.shape)
    yield partial(np.maximum.reduce, source, axis, None, value)
    yield partial(np.subtract, source, spread, output)
    yield partial(np.exp, output, exponentials)
    yield partial(np.add.reduce, exponentials, axis, None, value)
    if powers is None:
        yield partial(np.divide, output, spread, output)
    else:
        yield partial(np.log, value, value)
        yield partial(np.subtract, output, spread, output)
