"""Conversion between real numbers and small integers with a scale and a zero point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from arenaplan.base.errors import UnsupportedDtype
from arenaplan.graph import ops
from arenaplan.graph.ops.boxes import Box, Footprint, Uncuttable
from arenaplan.graph.ops.own_ops import EXTREMES, QUANTIZATION, REQUANTIZE, SCALE
from arenaplan.run.numpy.cuts import ELEMENTWISE, SCALED
from arenaplan.run.numpy.kernels.pieces import (
    Blocks,
    blockwise,
    in_sequence,
    invalid,
    normalized_axis,
    operand,
    result,
    saturate,
)
from arenaplan.run.numpy.registry import Cut, Run, Signature, Step, kernel

_REAL = Blocks("float32")
_WIDE = Blocks("float32", is_wide=True)


Part: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _converting(
    step: Step, body: Callable[..., Any], integers: np.ndarray, blocks: Blocks | None
) -> Run | None:
    """Return a function that runs ``body(x, scale, zero_point, y, *real)`` per part with scales."""
    if integers.dtype.kind not in "iu" and integers.dtype != np.float32:
        raise UnsupportedDtype(
            f"node {step.signature.name!r} ({step.signature.op}) quantizes to {integers.dtype}"
        )
    x, scale, zero, y = operand(step, 0), operand(step, 1), step.input(2), result(step)
    if y.size == 0:
        return None
    if zero is None:
        zero = np.zeros(scale.shape, np.float32)
    elif step.signature.constant[2] is not None:
        zero = zero.astype(np.float32)  # Otherwise NumPy would convert the zero point in every run.
    scratch = [] if blocks is None else blocks.arrays(step)
    return in_sequence(
        *(blockwise(body, part[:3], part[3], scratch) for part in _parts(step, x, scale, zero, y))
    )


def _parts(
    step: Step, x: np.ndarray, scale: np.ndarray, zero: np.ndarray, y: np.ndarray
) -> Iterator[Part]:
    """Yield views of the operands in whose shapes the scales broadcast to the elements."""
    if scale.size == 1:
        yield x, scale.reshape(()), zero.reshape(()), y
        return
    axis = normalized_axis(step, step.attributes.get("axis", 1), x.ndim)
    size = int(step.attributes.get("block_size", 0))
    if size <= 0:
        shape = (-1, *(1,) * (x.ndim - axis - 1))
        yield x, scale.reshape(shape), zero.reshape(shape), y
        return
    count, rest = divmod(x.shape[axis], size)
    before = (slice(None),) * axis
    if count:
        inside = (*before, slice(count * size))
        split = (*x.shape[:axis], count, size, *x.shape[axis + 1 :])
        scales, zeros = (
            np.expand_dims(array[(*before, slice(count))], axis + 1) for array in (scale, zero)
        )
        yield x[inside].reshape(split), scales, zeros, y[inside].reshape(split)
    if rest:
        last, behind = (*before, slice(count, None)), (*before, slice(count * size, None))
        yield x[behind], scale[last], zero[last], y[behind]


def _quantize(
    x: np.ndarray, scale: np.ndarray, zero: np.ndarray, y: np.ndarray, real: np.ndarray
) -> None:
    np.divide(x, scale, out=real, casting="unsafe")
    if y.dtype.kind == "f":  # A copy of narrow floats, which are rounded where they are stored.
        np.add(real, zero, out=y, casting="unsafe")
        return
    np.rint(real, out=real)
    np.add(real, zero, out=real, casting="unsafe")
    saturate(real, y)


def _dequantize(
    x: np.ndarray, scale: np.ndarray, zero: np.ndarray, y: np.ndarray, *scratch: np.ndarray
) -> None:
    # A wide output is as large as scratch memory would be.
    real = scratch[0] if scratch else y
    np.copyto(real, x, casting="unsafe")
    np.subtract(real, zero, out=real, casting="unsafe")
    np.multiply(real, scale, out=y, casting="same_kind")


def _is_narrow(signature: Signature) -> bool:
    """Return whether a node's results are not single-precision numbers."""
    output = signature.outputs[0]
    return output is not None and output.dtype != np.float32


@kernel("QuantizeLinear", workspace=_REAL.declare, cut=SCALED)
def quantize_linear(step: Step) -> Run | None:
    """Write ``x/scale + zero_point``, rounded and bounded."""
    return _converting(step, _quantize, result(step), _REAL)


_REAL_IF_NARROW = Blocks("float32", when=_is_narrow)


@kernel("DequantizeLinear", workspace=_REAL_IF_NARROW.declare, cut=SCALED)
def dequantize_linear(step: Step) -> Run | None:
    """Write ``(x - zero_point)·scale``."""
    blocks = _REAL_IF_NARROW if _is_narrow(step.signature) else None
    return _converting(step, _dequantize, operand(step, 0), blocks)


@kernel("DynamicQuantizeLinear", workspace=_WIDE.declare)
def dynamic_quantize_linear(step: Step) -> Run | None:
    """Quantize to 8 bits with the scale that just covers the range."""
    x, y, scale, zero = operand(step, 0), result(step, 0), result(step, 1), result(step, 2)
    if y.size == 0:
        raise invalid(step, "an empty tensor has no range")
    choose = partial(range_of, x, scale, zero)
    inputs = [x, scale.reshape(()), zero.reshape(())]
    return in_sequence(choose, blockwise(_quantize, inputs, y, _WIDE.arrays(step)))


def _extremes_cut(signature: Signature, box: Box) -> Footprint:
    x, made = signature.input(0), signature.outputs[0]
    if x is None or made is None:
        raise Uncuttable
    return ops.Extremes(len(made.shape) - 1).footprint([x.shape], made.shape, box)


@kernel(EXTREMES, domain=QUANTIZATION, cut=Cut(_extremes_cut))
def extremes(step: Step) -> Run | None:
    """Write the least and the greatest element in each part."""
    x, y = operand(step, 0), result(step)
    if x.size == 0:
        raise invalid(step, "an empty tensor has no range")
    axes = tuple(range(y.ndim - 1, x.ndim))
    low, high = y[..., 0], y[..., 1]

    def run() -> None:
        np.minimum.reduce(x, axis=axes, out=low)
        np.maximum.reduce(x, axis=axes, out=high)

    return run


@kernel(SCALE, domain=QUANTIZATION)
def scale_of(step: Step) -> Run | None:
    """Write the scale and the zero point for some numbers."""
    x, scale, zero = operand(step, 0), result(step, 0), result(step, 1)
    if x.size == 0:
        raise invalid(step, "an empty tensor has no range")
    return partial(range_of, x, scale, zero)


@kernel(REQUANTIZE, domain=QUANTIZATION, workspace=_REAL.declare, cut=ELEMENTWISE)
def requantize(step: Step) -> Run | None:
    """Write sums times scales, bounded and rounded, plus a zero point, as MLAS does."""
    x, scale, zero, y = operand(step, 0), operand(step, 1), step.input(2), result(step)
    if zero is not None and step.signature.constant[2] is None:
        raise invalid(step, "its zero point is no constant")
    limits, point = np.iinfo(y.dtype), 0 if zero is None else int(zero.reshape(()))

    def convert(x: np.ndarray, scale: np.ndarray, y: np.ndarray, real: np.ndarray) -> None:
        np.copyto(real, x, casting="same_kind")  # Sums in double precision.
        np.multiply(real, scale, out=real)
        np.clip(real, limits.min - point, limits.max - point, out=real)
        np.rint(real, out=real)
        np.add(real, point, out=real)
        np.copyto(y, real, casting="unsafe")

    return blockwise(convert, [x, scale], y, _REAL.arrays(step))


def range_of(x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> None:
    """
    Write the scale and the zero point of 8-bit integers that just cover the numbers and zero.

    Every step is in single precision, as in ONNX Runtime, whose scale of zeros alone is 1.
    """
    low = min(np.float32(0), np.minimum.reduce(x, axis=None))
    high = max(np.float32(0), np.maximum.reduce(x, axis=None))
    unit = (high - low) / np.float32(255) if high > low else np.float32(1)
    scale.fill(unit)
    # Python rounds to even, too, and takes less time for one number.
    zero.fill(round(min(max(0.0, float(np.float32(0) - low / unit)), 255.0)))
