"""
Convolutions and products of real numbers, in the order of the reference kernels.

A sum is made one product after the other, each rounded to ``float32``: BLAS, which adds in another
order, would differ in the last bits. So there is one pass over all sums for each product.
"""

from __future__ import annotations

import numpy as np

from arenaplan.run.numpy.kernels.pieces import operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, scratch_bytes
from arenaplan.run.numpy.tflite.images import Border, blocks
from arenaplan.run.numpy.tflite.tflite_facts import FLOAT, constant_operand, float_range
from arenaplan.run.numpy.tflite.tflite_products import Separate, Unrolled, tap_sum


class Finish:
    """Adds a bias and clamps, as ``ActivationFunctionWithMinMax``."""

    def __init__(self, signature: Signature, bias: int) -> None:
        self._low, self._high = (FLOAT.type(bound) for bound in float_range(signature))
        given = signature.input(bias) is not None
        self._bias = constant_operand(signature, bias).reshape(-1) if given else None

    def run(self, sums: np.ndarray, output: np.ndarray) -> Run:
        """Return a function that turns sums into results."""
        low, high, bias = self._low, self._high, self._bias

        def finish() -> None:
            # Without a bias the addend makes 0 of -0, as a sum that begins with 0 does.
            np.add(sums, 0 if bias is None else bias, out=sums)
            np.maximum(sums, low, out=sums)
            np.minimum(sums, high, out=output)

        return finish


def summed(a: np.ndarray, b: np.ndarray, sums: np.ndarray, products: np.ndarray) -> Run:
    """Return a function that multiplies matrices, one product of each sum at a time."""
    pairs = [(a[:, k, None], b[k]) for k in range(a.shape[1])]

    def run() -> None:
        sums.fill(0)
        for column, row in pairs:
            np.multiply(column, row, out=products)
            np.add(sums, products, out=sums)

    return run


class RealConvolution(Unrolled):
    """``CONV_2D`` of real numbers."""

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature)
        self.border = Border(self.image, self.rows, self.columns, FLOAT, 0, 0)

    def scratch(self, count: int) -> int:
        """Return the bytes for making ``count`` rows at a time."""
        pixels = count * self.columns.made
        size = scratch_bytes((pixels, self.inner)) + scratch_bytes((pixels, self.channels))
        size += scratch_bytes((pixels, self.channels // self.groups))
        return size + (0 if self.is_plain else self.border.scratch(count))

    def bind(self, step: Step, count: int) -> list[Run]:
        """Return functions that make the rows, ``count`` at a time."""
        x, y, scratch = operand(step, 0), result(step), step.scratch()
        pixels, width = count * self.columns.made, self.channels // self.groups
        patches = scratch.array((pixels, self.inner))
        sums = scratch.array((pixels, self.channels))
        products = scratch.array((pixels, width))
        copy = None if self.is_plain else self.border.array(count, scratch)
        finish = Finish(self.signature, 2)
        weights = constant_operand(self.signature, 1).reshape(self.groups, width, self.inner)
        matrices = np.ascontiguousarray(weights.transpose(0, 2, 1))
        runs: list[Run] = []
        for block in blocks(x.shape[0], self.rows.made, count):
            size = (block.stop - block.start) * self.columns.made
            output = y[block.image, block.start : block.stop].reshape(size, self.channels)
            for group in range(self.groups):
                runs.append(self.unroll(x, copy, patches[:size], block, group))
                made = sums[:size, group * width : (group + 1) * width]
                runs.append(summed(patches[:size], matrices[group], made, products[:size]))
            runs.append(finish.run(sums[:size], output))
        return runs


class RealDepthwise(Separate):
    """``DEPTHWISE_CONV_2D`` of real numbers."""

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature)
        self.border = Border(self.image, self.rows, self.columns, FLOAT, 0, 0)

    def scratch(self, count: int) -> int:
        """Return the bytes for making ``count`` rows at a time."""
        pixels = count * self.columns.made
        return self.border.scratch(count) + 2 * scratch_bytes((pixels, self.channels))

    def bind(self, step: Step, count: int) -> list[Run]:
        """Return functions that make the rows, ``count`` at a time."""
        x, y, scratch = operand(step, 0), result(step), step.scratch()
        shape = (count, self.columns.made, self.depth, self.channels // self.depth)
        sums, products = (scratch.array(shape) for _ in range(2))
        copy = self.border.array(count, scratch)
        finish = Finish(self.signature, 2)
        weights = constant_operand(self.signature, 1)
        taps = weights.reshape(self.rows.taps, self.columns.taps, *shape[2:])
        runs: list[Run] = []
        for block in blocks(x.shape[0], self.rows.made, count):
            height = block.stop - block.start
            size = height * self.columns.made
            output = y[block.image, block.start : block.stop].reshape(size, self.channels)
            windows = self.border.windows(copy, height)[..., None]
            runs.append(self.border.load(x, copy, block))
            runs.append(tap_sum(windows, taps, sums[:height], products[:height]))
            runs.append(finish.run(sums[:height].reshape(size, self.channels), output))
        return runs
