"""The product of byte rows and a constant matrix, with exact sums and a byte result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from arenaplan._core import (
    ByteResult,
    CompiledKernel,
    pack_quantized_matrix,
    packed_quantized_matrix,
    quantized_lanes,
    quantized_product,
    quantized_product_scratch,
)
from arenaplan.graph import Choice
from arenaplan.run.numpy.compiled import is_enabled
from arenaplan.run.numpy.constants import shared
from arenaplan.run.numpy.kernels.quantized_conv import (
    Encoding,
    Weights,
    digest,
    has_sums,
)
from arenaplan.run.numpy.registry import Scratch, Tensor, scratch_bytes

_CALL = 1.5e3
"""Nanoseconds per call."""
_TERMS = 46.0
"""Sum terms per nanosecond."""
_ROUNDED = 1.5
"""Nanoseconds in which a result is rounded."""
_FEW_ROWS = 1.3
"""How many times as long a product takes that reads the matrix for eight rows at a time."""
_ROWS = 8


@dataclass(frozen=True)
class QuantizedProduct:
    """A byte product; the matrix is loaded at preparation."""

    rows: int
    depth: int
    columns: int
    image: Encoding
    """The rows' encoding."""
    result: Encoding
    divisor: float
    """The result scale."""
    bounds: tuple[float, float]
    """Smaller and larger real numbers become these bounds."""
    weights: Callable[[], Weights]

    @property
    def writes_over(self) -> bool:
        """Whether the result may be the rows' memory, where each row is read first."""
        return self.depth == self.columns

    def choices(self) -> tuple[Choice, ...]:
        """Return the scratch memory sizes to declare."""
        time = _CALL + self.rows * self.columns * (self.depth / _TERMS + _ROUNDED)
        least, most = (
            scratch_bytes((quantized_product_scratch(rows, self.depth, self.columns),))
            for rows in (1, self.rows)
        )
        if least == most:
            return (Choice(least, time),)
        return Choice(least, time * _FEW_ROWS), Choice(most, time)

    def bind(self, image: np.ndarray, output: np.ndarray, scratch: Scratch) -> CompiledKernel:
        """Return the kernel, bound to the operands and the remaining scratch memory."""
        weights = self.weights()
        scale, shift = weights.factors(self.columns)
        addend = weights.addend
        start = None if addend is None else np.ascontiguousarray(addend.reshape(-1), np.int32)
        finish = ByteResult(scale, shift, *self.bounds, self.divisor, self.result.compiled(), start)
        blocks = [
            quantized_product_scratch(rows, self.depth, self.columns)
            for rows in range(_ROWS, self.rows + _ROWS, _ROWS)
        ]
        within = [size for size in blocks if scratch_bytes((size,)) <= scratch.left]
        own = scratch.array((max(within),))
        rows = image.view(np.uint8).reshape(-1, self.depth)
        target = output.view(np.uint8).reshape(-1, self.columns)
        matrix, lanes = self._packed(weights.integers)
        return quantized_product(rows, self.image.compiled(), matrix, finish, target, own, lanes)

    def _packed(self, integers: np.ndarray) -> tuple[np.ndarray, int]:
        """
        Return the matrix in reading order, which executors share.

        The second result is the number of matrix rows per lane.
        """

        def pack() -> tuple[np.ndarray, int]:
            elements = np.ascontiguousarray(integers)
            lanes = quantized_lanes(elements)
            size = packed_quantized_matrix(self.depth, self.columns, lanes)
            packed = np.empty(size, np.float32)
            pack_quantized_matrix(elements, packed, lanes)
            return packed, lanes

        return shared([], ("quantized product", integers.shape, digest(integers)), pack)


def quantized_product_of(
    rows: Tensor,
    made: Tensor,
    encodings: tuple[Encoding, Encoding],
    weights: Callable[[], Weights],
    *,
    divisor: float = 1.0,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> QuantizedProduct | None:
    """
    Return a byte product, if the compiled kernel runs the product.

    Parameters
    ----------
    rows, made : Tensor
        The rows, and the result.
    encodings : (Encoding, Encoding)
        The encodings of both.
    """
    if not is_enabled() or not rows.shape or not made.shape or 0 in (*rows.shape, *made.shape):
        return None
    depth, columns = rows.shape[-1], made.shape[-1]
    if not has_sums(encodings, depth):
        return None
    count = prod(rows.shape[:-1])
    return QuantizedProduct(count, depth, columns, *encodings, divisor, bounds, weights)
