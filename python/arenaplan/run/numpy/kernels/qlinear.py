"""
Elementwise operators and pools on small integers, as written by ONNX Runtime's quantizer.

Operands are integers with a scale and a zero point each. The formulas, and the rounding order, are
those of ONNX Runtime's kernels for x86-64 (MLAS), so that results are equal bit for bit. Where
those kernels multiply and add without rounding in between (fused multiply-add), products are made
in double precision: the product of an 8-bit integer and a single-precision number is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from arenaplan._core import CompiledKernel
from arenaplan.base.errors import UnsupportedOp
from arenaplan.graph import Choice
from arenaplan.run.numpy.chains import sum_of_quantized
from arenaplan.run.numpy.compiled import is_enabled
from arenaplan.run.numpy.cuts import ELEMENTWISE
from arenaplan.run.numpy.kernels.pieces import (
    Blocks,
    blockwise,
    operand,
    result,
    saturate,
)
from arenaplan.run.numpy.registry import (
    MICROSOFT,
    Run,
    Signature,
    Step,
    compiled_kernel,
    kernel,
    scratch_bytes,
)

_BOTH = Blocks("float64", "float32", is_wide=True)
_REAL = Blocks("float32", is_wide=True)
_PAIR = Blocks("float32", "float32", is_wide=True)
_SINGLE = np.float32
_CODES = 256
"""Number of different 8-bit integers."""


def number(step: Step, position: int) -> np.float32:
    """Return a scale or a zero point, which is a single number; 0 if omitted."""
    array = step.input(position)
    if array is None:
        return _SINGLE(0)
    if array.size != 1:
        raise UnsupportedOp(
            f"node {step.signature.name!r} ({step.signature.op}): input {position} has "
            f"{array.size} numbers, and no kernel runs that"
        )
    return _SINGLE(array.reshape(()))


def round_to(real: np.ndarray, output: np.ndarray) -> None:
    """Write real numbers, which are changed, to integers: rounded, ties to even, and saturated."""
    np.rint(real, out=real)
    saturate(real, output)


# -- two operands -----------------------------------------------------------------------------


@kernel("QLinearAdd", domain=MICROSOFT, workspace=_BOTH.declare, cut=ELEMENTWISE)
def qlinear_add(step: Step) -> Run | None:
    """Write ``a * (A / C) + b * (B / C)`` and the part that zero points add."""

    def add(
        a: np.ndarray, b: np.ndarray, output: np.ndarray, wide: np.ndarray, real: np.ndarray
    ) -> None:
        first, second, shift = sum_of_quantized([number(step, at) for at in (1, 2, 4, 5, 6, 7)])
        np.multiply(b, second, out=wide, dtype=np.float64)
        np.add(wide, shift, out=wide)
        np.copyto(real, wide, casting="same_kind")
        np.multiply(a, first, out=wide, dtype=np.float64)
        np.add(wide, real, out=wide)
        np.copyto(real, wide, casting="same_kind")
        round_to(real, output)

    inputs = [operand(step, 0), operand(step, 3)]
    return blockwise(add, inputs, result(step), _BOTH.arrays(step))


@kernel("QLinearMul", domain=MICROSOFT, workspace=_PAIR.declare, cut=ELEMENTWISE)
def qlinear_mul(step: Step) -> Run | None:
    """Write ``(a - zero) * (b - zero) * (A * B / C)``."""

    def multiply(
        a: np.ndarray, b: np.ndarray, output: np.ndarray, real: np.ndarray, other: np.ndarray
    ) -> None:
        # 9-bit products are exact in single precision.
        np.subtract(a, number(step, 2), out=real, dtype=np.float32)
        np.subtract(b, number(step, 5), out=other, dtype=np.float32)
        np.multiply(real, other, out=real)
        np.multiply(real, number(step, 1) * number(step, 4) / number(step, 6), out=real)
        np.add(real, number(step, 7), out=real)
        round_to(real, output)

    inputs = [operand(step, 0), operand(step, 3)]
    return blockwise(multiply, inputs, result(step), _PAIR.arrays(step))


# -- rows and windows -------------------------------------------------------------------------


def _softmax_scratch(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for a row's exponentials and sums."""
    output = signature.outputs[0]
    if output is None or 0 in output.shape:
        return []
    length = prod(output.shape[_softmax_axis(signature, len(output.shape)) :])
    sizes = (scratch_bytes((length,), dtype) for dtype in (np.float32, np.float32, np.intp))
    return [[Choice(sum(sizes), 0.0)]]


def _softmax_axis(signature: Signature, rank: int) -> int:
    """Return the first axis of a row; from standard version 13 on, the row has a single axis."""
    old = signature.attributes.get("opset", 13) < 13
    # ONNX Runtime takes the last dimension by default, also where the standard took the second.
    axis = int(signature.attributes.get("axis", -1)) % max(rank, 1)
    if not old and axis != rank - 1:
        raise UnsupportedOp(
            f"node {signature.name!r} ({signature.op}): no kernel runs axis {axis} of {rank}"
        )
    return axis


@kernel("QLinearSoftmax", domain=MICROSOFT, workspace=_softmax_scratch)
def qlinear_softmax(step: Step) -> Run | None:
    """Exponentials by a table that is as large as the sum permits, added in order."""
    x, output = operand(step, 0), result(step)
    if output.size == 0:
        return None
    length = prod(output.shape[_softmax_axis(step.signature, output.ndim) :])
    rows, targets = x.reshape(-1, length), output.reshape(-1, length)
    scratch = step.scratch()
    powers, sums = scratch.array((length,)), scratch.array((length,))
    shifted = scratch.array((length,), np.intp)

    def run() -> None:
        table = _powers(number(step, 1), length)
        factor, zero = np.floor(_SINGLE(1) / number(step, 3)), number(step, 4)
        for row, target in zip(rows, targets, strict=True):
            # The largest element is taken as the largest integer.
            np.add(row, _CODES - 1 - int(row.max()), out=shifted, dtype=np.intp)
            np.take(table, shifted, out=powers, mode="clip")
            np.add.accumulate(powers, out=sums)
            np.multiply(powers, factor, out=powers)
            np.divide(powers, sums[-1], out=powers)
            np.rint(powers, out=powers)
            np.add(powers, zero, out=powers)
            round_to(powers, target)

    return run


def _has_known_scales(signature: Signature) -> bool:
    """Return whether a node's powers and factors are known before a run."""
    given, made = signature.inputs, signature.outputs[0]
    tensors = [given[0] if given else None, made]
    if not is_enabled() or any(tensor is None or 0 in tensor.shape for tensor in tensors):
        return False
    known = (signature.constant_data(at) is not None for at in range(1, len(given)) if given[at])
    return all(known) and all(tensor.dtype.itemsize == 1 for tensor in tensors if tensor)


@compiled_kernel("QLinearSoftmax", domain=MICROSOFT, when=_has_known_scales)
def _compiled_softmax(step: Step) -> Run:
    x, output = operand(step, 0), result(step)
    length = prod(output.shape[_softmax_axis(step.signature, output.ndim) :])
    factor, zero = np.floor(_SINGLE(1) / number(step, 3)), number(step, 4)
    powers = _powers(number(step, 1), length)
    return CompiledKernel.table_softmax(
        x.reshape(-1), length, powers, float(factor), float(zero), output.reshape(-1)
    )


def _powers(scale: np.float32, length: int) -> np.ndarray:
    """Return the exponentials of all differences to the largest integer, times a large number."""
    room = float(np.log(np.finfo(np.float32).max / _SINGLE(length)))
    shift = max(0.0, room - 5) / float(scale)
    differences = np.arange(_CODES, dtype=np.float64) - (_CODES - 1) + shift
    return np.exp(differences * float(scale)).astype(np.float32)


def _sum_scratch(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for the sum over each channel."""
    output = signature.outputs[0]
    return [] if output is None else [[Choice(2 * scratch_bytes(output.shape, np.int32), 0.0)]]


@kernel("QLinearGlobalAveragePool", domain=MICROSOFT, workspace=_sum_scratch)
def qlinear_global_average_pool(step: Step) -> Run | None:
    """Scale the sum over each channel."""
    x, output = operand(step, 0), result(step)
    if output.size == 0:
        return None
    last = bool(step.attributes.get("channels_last", 0))
    axes = tuple(range(1, x.ndim - 1) if last else range(2, x.ndim))
    count = prod(x.shape[axis] for axis in axes)
    scratch = step.scratch()
    sums, real = scratch.array(output.shape, np.int32), scratch.array(output.shape, np.float32)

    def run() -> None:
        np.add.reduce(x, axes, np.int32, sums, keepdims=True)
        np.subtract(sums, int(number(step, 2)) * count, out=sums)
        np.copyto(real, sums, casting="unsafe")
        np.multiply(real, number(step, 1) / (number(step, 3) * _SINGLE(count)), out=real)
        np.rint(real, out=real)
        np.add(real, number(step, 4), out=real)
        round_to(real, output)

    return run
