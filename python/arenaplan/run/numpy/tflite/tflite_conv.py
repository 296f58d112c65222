"""
Convolutions of integers and of real numbers.

A convolution unrolls the windows for some rows. Integer matrices are multiplied as floats with
BLAS: sums of whole numbers are exact in any order as long as each partial sum has fewer bits than a
float's significand (:func:`~arenaplan.run.numpy.tflite.tflite_products.exact_float`). Real numbers
are multiplied in the order of the reference kernels (:mod:`arenaplan.run.numpy.tflite.real`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from arenaplan.run.numpy.constants import shared
from arenaplan.run.numpy.kernels.pieces import operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, scratch_bytes
from arenaplan.run.numpy.tflite.fixed import Multiplier, multiplier_of
from arenaplan.run.numpy.tflite.images import blocks
from arenaplan.run.numpy.tflite.real import Finish
from arenaplan.run.numpy.tflite.rescale import Rescale
from arenaplan.run.numpy.tflite.tflite_facts import (
    Quantity,
    activation_range,
    constant_operand,
    dtype_at,
    encoding,
    refused,
)
from arenaplan.run.numpy.tflite.tflite_products import (
    Separate,
    Unrolled,
    made_by_rows,
    product,
    tap_sum,
)

_INT32: Final = 2
"""The type code."""


def channel_multipliers(
    signature: Signature, x: Quantity, weights: Quantity, y: Quantity, channels: int
) -> list[Multiplier]:
    """Return the factor by channel: ``PopulateConvolutionQuantizationParams``."""
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
    """Return whether sums have 64 bits: 16-bit inputs, unless the bias says otherwise."""
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


def finish_of(signature: Signature, channels: int, *, is_real: bool) -> Finish | Rescale:
    """Return the last part of a convolution."""
    return Finish(signature, 2) if is_real else rescale_of(signature, channels)


class TfliteConvolution(Unrolled):
    """``CONV_2D``."""

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature)
        self.set_numbers(self.weights)

    def scratch(self, count: int) -> int:
        """Return the bytes for making ``count`` rows at a time."""
        pixels = count * self.columns.out
        size = scratch_bytes((pixels, self.inner), self.dtype)
        size += scratch_bytes((pixels, self.channels), self.dtype)
        if self.is_real:
            size += scratch_bytes((pixels, self.channels // self.groups), self.dtype)
        else:
            size += Rescale.scratch(self.channels, pixels)
        return size + (0 if self.is_plain else self.border.scratch(count))

    def matrices(self) -> np.ndarray:
        """Return the weights as one matrix per group, result channels last."""

        def make() -> tuple[np.ndarray, None]:
            grouped = self.weights.reshape(self.groups, -1, self.inner)
            return np.ascontiguousarray(grouped.transpose(0, 2, 1).astype(self.dtype)), None

        return shared([self.weights], ("tflite", self.groups, self.dtype.str), make)[0]

    def bind(self, step: Step, count: int) -> list[Run]:
        """Return functions that make the rows, ``count`` at a time."""
        x, y, scratch = operand(step, 0), result(step), step.scratch()
        pixels, width = count * self.columns.out, self.channels // self.groups
        patches = scratch.array((pixels, self.inner), self.dtype)
        sums = scratch.array((pixels, self.channels), self.dtype)
        products = scratch.array((pixels, width), self.dtype) if self.is_real else None
        copy = None if self.is_plain else self.border.array(count, scratch)
        finish = finish_of(self.signature, self.channels, is_real=self.is_real)
        matrices = self.matrices()
        runs: list[Run] = []
        for block in blocks(x.shape[0], self.rows.out, count):
            size = (block.stop - block.start) * self.columns.out
            output = y[block.image, block.start : block.stop].reshape(size, self.channels)
            for group in range(self.groups):
                runs.append(self.unroll(x, copy, patches[:size], block, group))
                made = sums[:size, group * width : (group + 1) * width]
                runs.append(product(patches[:size], matrices[group], made, products))
            runs += finish.bind(sums[:size], output, scratch.rest())
        return runs


class Depthwise(Separate):
    """``DEPTHWISE_CONV_2D``."""

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature)
        self.set_numbers(self.weights.reshape(-1, self.channels).T)

    def scratch(self, count: int) -> int:
        """Return the bytes for making ``count`` rows at a time."""
        pixels = count * self.columns.out
        rescale = 0 if self.is_real else Rescale.scratch(self.channels, pixels)
        sums = scratch_bytes((pixels, self.channels), self.dtype)
        return rescale + self.border.scratch(count) + 2 * sums

    def bind(self, step: Step, count: int) -> list[Run]:
        """Return functions that make the rows, ``count`` at a time."""
        x, y, scratch = operand(step, 0), result(step), step.scratch()
        shape = (count, self.columns.out, self.depth, self.channels // self.depth)
        sums, products = (scratch.array(shape, self.dtype) for _ in range(2))
        copy = self.border.array(count, scratch)
        finish = finish_of(self.signature, self.channels, is_real=self.is_real)
        taps = self.weights.astype(self.dtype).reshape(
            self.rows.kernel, self.columns.kernel, *shape[2:]
        )
        runs: list[Run] = []
        for block in blocks(x.shape[0], self.rows.out, count):
            height = block.stop - block.start
            size = height * self.columns.out
            output = y[block.image, block.start : block.stop].reshape(size, self.channels)
            windows = self.border.windows(copy, height)[..., None]
            runs.append(self.border.load(x, copy, block))
            runs.append(tap_sum(windows, taps, sums[:height], products[:height]))
            flat = sums[:height].reshape(size, self.channels)
            runs += finish.bind(flat, output, scratch.rest())
        return runs


def _work(signature: Signature) -> TfliteConvolution | Depthwise:
    """Return the way to run a convolution."""
    check_operands(signature)
    return (Depthwise if signature.op == "DEPTHWISE_CONV_2D" else TfliteConvolution)(signature)


made_by_rows("CONV_2D", "DEPTHWISE_CONV_2D", work=_work)
