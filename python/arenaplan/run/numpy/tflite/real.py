"""
Convolutions and products of real numbers, in the order of the reference kernels.

A sum is made one product after the other, each rounded to ``float32``: BLAS, which adds in another
order, would differ in the last bits. So there is one pass over all sums for each product.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from arenaplan.run.numpy.registry import Run, Scratch, Signature
from arenaplan.run.numpy.tflite.tflite_facts import FLOAT, constant_operand, float_range


class Finish:
    """Adds a bias and clamps, as ``ActivationFunctionWithMinMax``."""

    def __init__(self, signature: Signature, bias: int) -> None:
        self._low, self._high = (FLOAT.type(bound) for bound in float_range(signature))
        given = signature.input(bias) is not None
        self._bias = constant_operand(signature, bias).reshape(-1) if given else None

    def bind(self, sums: np.ndarray, output: np.ndarray, _: Scratch) -> list[Run]:
        """Return a function that turns sums into results, as :meth:`Rescale.bind`."""
        return [partial(self._run, sums, output)]

    def _run(self, sums: np.ndarray, output: np.ndarray) -> None:
        # Without a bias the addend makes 0 of -0, as a sum that begins with 0 does.
        np.add(sums, 0 if self._bias is None else self._bias, out=sums)
        np.maximum(sums, self._low, out=sums)
        np.minimum(sums, self._high, out=output)


def summed(a: np.ndarray, b: np.ndarray, sums: np.ndarray, products: np.ndarray) -> Run:
    """Return a function that multiplies matrices, one product of each sum at a time."""
    pairs = [(a[:, k, None], b[k]) for k in range(a.shape[1])]

    def run() -> None:
        sums.fill(0)
        for column, row in pairs:
            np.multiply(column, row, out=products)
            np.add(sums, products, out=sums)

    return run
