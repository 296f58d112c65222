"""
Convolutions of integers.

A convolution unrolls the windows of some rows and multiplies matrices of floats with BLAS. Sums of
whole numbers are exact in any order as long as each partial sum has fewer bits than a float's
significand: see :func:`exact_float`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.constants import shared
from arenaplan.run.numpy.kernels.pieces import operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes
from arenaplan.run.numpy.tflite.fixed import Multiplier, multiplier_of
from arenaplan.run.numpy.tflite.images import Border, blocks, is_empty, row_counts
from arenaplan.run.numpy.tflite.real import RealConvolution, RealDepthwise
from arenaplan.run.numpy.tflite.rescale import Rescale
from arenaplan.run.numpy.tflite.tflite_facts import (
    DOMAIN,
    FLOAT,
    Quantity,
    activation_range,
    constant_operand,
    dtype_at,
    encoding,
    limits,
    refused,
)
from arenaplan.run.numpy.tflite.tflite_products import (
    Separate,
    Unrolled,
    in_turn,
    matrix_product,
    tap_sum,
)

_INT32: Final = 2
"""The code of the type."""
_COSTS: Final = (1.0, 1.05, 1.2, 2.0)


def exact_float(weights: np.ndarray, offset: int, x: np.dtype[Any]) -> np.dtype[Any]:
    """
    Return a float type in which sums of products are exact.

    Every partial sum of products, whatever their order, is a whole number not larger than the sum
    of the absolute products. That is at most the largest input times the sum of the absolute
    weights of one channel. Whole numbers up to 2**24 are exact as ``float32``, those up to 2**53 as
    ``float64``; so are products and sums that stay below, with and without fused multiplication.

    Parameters
    ----------
    weights : array
        Weights, channels of the result first.
    offset : int
        Addend to inputs.
    x : dtype
        Type of the inputs.
    """
    low, high = limits(x)
    largest = max(abs(low + offset), abs(high + offset))
    flat = weights.reshape(len(weights), -1)
    sizes = np.abs(flat.astype(np.int16) if flat.itemsize == 1 else flat)
    bound = largest * int(sizes.sum(axis=1, dtype=np.int64).max(initial=0))
    return np.dtype(np.float32 if bound <= 1 << 24 else np.float64)


def channel_multipliers(
    signature: Signature, x: Quantity, weights: Quantity, y: Quantity, channels: int
) -> list[Multiplier]:
    """Return the factor of each channel: ``PopulateConvolutionQuantizationParams``."""
    scales = weights.scales if len(weights.scales) > 1 else weights.scales * channels
    if len(scales) != channels:
        raise refused(signature, f"{channels} channels have {len(scales)} scales")
    return [multiplier_of(x.scale * scale / y.scale) for scale in scales]


def rescale_of(signature: Signature, channels: int) -> Rescale:
    """Return the last part of a convolution."""
    y = encoding(signature, 0, "output")
    multipliers = channel_multipliers(
        signature, encoding(signature, 0), encoding(signature, 1), y, channels
    )
    bias = None if signature.input(2) is None else constant_operand(signature, 2)
    bounds = activation_range(signature, y)
    return Rescale(multipliers, bias, y.zero, bounds, wide=is_wide(signature, 2))


def is_wide(signature: Signature, bias: int) -> bool:
    """Whether sums have 64 bits: those of 16-bit inputs whose bias does not say otherwise."""
    found = dtype_at(signature, bias)
    if dtype_at(signature, 0) != np.int16:
        return False
    if found is not None:
        return found != np.int32
    return int(signature.attributes.get("quantized_bias_type", 0)) != _INT32


def check_operands(signature: Signature, weights: int = 1) -> None:
    """Raise unless a convolution of such types runs."""
    x, w, y = dtype_at(signature, 0), dtype_at(signature, weights), signature.outputs[0]
    made = None if y is None else y.dtype
    pairs = {("int8", "int8"), ("int16", "int8"), ("float32", "float32")}
    if (str(x), str(w)) not in pairs or made != x:
        raise refused(signature, f"no kernel makes {made} of {x} with weights of type {w}")


class Convolution(Unrolled):
    """``CONV_2D`` of integers."""

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature)
        x = self.image
        self.weights = constant_operand(signature, 1)
        self.offset = -encoding(signature, 0).zero
        self.dtype = exact_float(self.weights, self.offset, x.dtype)
        self.border = Border(x, self.rows, self.columns, self.dtype, 0, self.offset)

    def scratch(self, count: int) -> int:
        """Return the bytes for making ``count`` rows at a time."""
        pixels = count * self.columns.made
        size = Rescale.scratch(self.channels, pixels)
        size += scratch_bytes((pixels, self.inner), self.dtype)
        size += scratch_bytes((pixels, self.channels), self.dtype)
        return size + (0 if self.is_plain else self.border.scratch(count))

    def matrices(self) -> np.ndarray:
        """Return the weights as one matrix per group, channels of the result last."""

        def make() -> tuple[np.ndarray, None]:
            grouped = self.weights.reshape(self.groups, -1, self.inner)
            return np.ascontiguousarray(grouped.transpose(0, 2, 1).astype(self.dtype)), None

        return shared([self.weights], ("tflite", self.groups, self.dtype.str), make)[0]

    def bind(self, step: Step, count: int) -> list[Run]:
        """Return functions that make the rows, ``count`` at a time."""
        x, y, scratch = operand(step, 0), result(step), step.scratch()
        pixels = count * self.columns.made
        patches = scratch.array((pixels, self.inner), self.dtype)
        sums = scratch.array((pixels, self.channels), self.dtype)
        copy = None if self.is_plain else self.border.array(count, scratch)
        rescale, matrices = rescale_of(self.signature, self.channels), self.matrices()
        runs: list[Run] = []
        for block in blocks(x.shape[0], self.rows.made, count):
            height = block.stop - block.start
            size = height * self.columns.made
            output = y[block.image, block.start : block.stop].reshape(size, self.channels)
            finish = rescale.bind(sums[:size], output, scratch.rest())
            for group in range(self.groups):
                runs.append(self.unroll(x, copy, patches[:size], block, group))
                width = self.channels // self.groups
                made = sums[:size, group * width : (group + 1) * width]
                runs.append(matrix_product(patches[:size], matrices[group], made))
            runs.extend(finish)
        return runs


class Depthwise(Separate):
    """``DEPTHWISE_CONV_2D`` of integers."""

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature)
        x = self.image
        self.weights = constant_operand(signature, 1)
        self.offset = -encoding(signature, 0).zero
        by_channel = self.weights.reshape(-1, self.channels).T
        self.dtype = exact_float(by_channel, self.offset, x.dtype)
        self.border = Border(x, self.rows, self.columns, self.dtype, 0, self.offset)

    def scratch(self, count: int) -> int:
        """Return the bytes for making ``count`` rows at a time."""
        pixels = count * self.columns.made
        size = Rescale.scratch(self.channels, pixels) + self.border.scratch(count)
        return size + 2 * scratch_bytes((pixels, self.channels), self.dtype)

    def bind(self, step: Step, count: int) -> list[Run]:
        """Return functions that make the rows, ``count`` at a time."""
        x, y, scratch = operand(step, 0), result(step), step.scratch()
        shape = (count, self.columns.made, self.depth, self.channels // self.depth)
        sums, products = (scratch.array(shape, self.dtype) for _ in range(2))
        copy = self.border.array(count, scratch)
        rescale = rescale_of(self.signature, self.channels)
        taps = self.weights.astype(self.dtype).reshape(
            self.rows.taps, self.columns.taps, *shape[2:]
        )
        runs: list[Run] = []
        for block in blocks(x.shape[0], self.rows.made, count):
            height = block.stop - block.start
            size = height * self.columns.made
            output = y[block.image, block.start : block.stop].reshape(size, self.channels)
            windows = self.border.windows(copy, height)[..., None]
            runs.append(self.border.load(x, copy, block))
            runs.append(tap_sum(windows, taps, sums[:height], products[:height]))
            flat = sums[:height].reshape(size, self.channels)
            runs.extend(rescale.bind(flat, output, scratch.rest()))
        return runs


def _work(signature: Signature) -> Any:
    """Return the way to run a convolution."""
    check_operands(signature)
    is_depthwise = signature.op == "DEPTHWISE_CONV_2D"
    if dtype_at(signature, 0) == FLOAT:
        return (RealDepthwise if is_depthwise else RealConvolution)(signature)
    return (Depthwise if is_depthwise else Convolution)(signature)


def _choices(signature: Signature) -> list[list[Choice]]:
    """Return the workspace: for many rows at a time, or fewer at a price."""
    if is_empty(signature):
        return []
    work = _work(signature)
    counts = row_counts(work.rows.made, work.columns.made)
    return [[Choice(work.scratch(n), cost) for n, cost in zip(counts, _COSTS, strict=False)]]


@kernel("CONV_2D", "DEPTHWISE_CONV_2D", domain=DOMAIN, workspace=_choices, in_order=True)
def convolution(step: Step) -> Run | None:
    """Make some rows at a time."""
    signature = step.signature
    if is_empty(signature):
        return None
    work = _work(signature)
    counts = row_counts(work.rows.made, work.columns.made)
    room = step.workspaces[0].nbytes
    count = next((n for n in counts if work.scratch(n) <= room), counts[-1])
    return in_turn(work.bind(step, count))
