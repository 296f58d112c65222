"""From sums of products to numbers of the result: multiply, round, shift, clamp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from arenaplan.executor.kernels.tflite.facts import Range
from arenaplan.executor.kernels.tflite.fixed import Multiplier, reduced
from arenaplan.executor.registry import Scratch, scratch_bytes

_BLOCK: Final = 4096
"""Elements that are worked on at a time, so that they stay in cache."""


class Rescale:
    """
    The last part of integer convolutions and products.

    Parameters
    ----------
    multipliers : sequence of Multiplier
        One per channel, or one for all.
    bias : array or None
        Addends per channel.
    zero : int
        Zero point of the result.
    bounds : Range
        Range of the result.
    wide : bool
        Whether sums have 64 bits, which are multiplied by 16-bit multipliers.
    """

    def __init__(
        self,
        multipliers: Sequence[Multiplier],
        bias: np.ndarray | None,
        zero: int,
        bounds: Range,
        *,
        wide: bool,
    ) -> None:
        values = np.array([each.value for each in multipliers], np.int64)
        shifts = np.array([each.shift for each in multipliers], np.int64)
        self._bias = None if bias is None else bias.reshape(-1).astype(np.int64)
        self._zero, self._bounds, self._wide = zero, bounds, wide
        if wide:
            self._values = np.array([reduced(each.value) for each in multipliers], np.int64)
            self._right = 15 - shifts
            self._half = np.int64(1) << (self._right - 1)
            self._left: np.ndarray | None = None
            self._negative: np.ndarray | None = None
            return
        self._values = values
        left = np.maximum(shifts, 0)
        self._left = left if left.any() else None
        self._right = np.maximum(-shifts, 0)
        self._half = (np.int64(1) << self._right) >> 1
        # Halves are rounded away from zero: a negative sum is one less before the shift, if any.
        self._negative = np.where(self._right > 0, -1, 0)

    @staticmethod
    def scratch(channels: int, pixels: int) -> int:
        """Return the bytes of scratch memory for results of some channels."""
        count = min(pixels, max(_BLOCK // max(channels, 1), 1)) * channels
        return 2 * scratch_bytes((count,), np.int64)

    def bind(self, sums: np.ndarray, output: np.ndarray, scratch: Scratch) -> list[Part]:
        """
        Return what to do with ``sums``, whose rows are pixels and whose columns are channels.

        Parameters
        ----------
        output : array
            Results, of the shape of the sums.
        """
        pixels, channels = sums.shape
        step = min(pixels, max(_BLOCK // max(channels, 1), 1))
        wide, sign = (scratch.array((step, channels), np.int64) for _ in range(2))
        parts = (slice(at, at + step) for at in range(0, pixels, step))
        return [Part(sums[part], output[part], wide, sign) for part in parts]

    def run(self, part: Part) -> None:
        """Write the results of a part."""
        sums, output, x, sign = part.sums, part.output, part.wide, part.sign
        np.copyto(x, sums, casting="unsafe")
        if self._bias is not None:
            np.add(x, self._bias, out=x)
        if self._left is not None:
            np.left_shift(x, self._left, out=x)
            _wrap(x)
        np.multiply(x, self._values, out=x)
        if not self._wide:
            # The steps of `fixed.high_product` and `fixed.halved`, in place.
            np.add(x, 1 << 30, out=x)
            np.right_shift(x, 31, out=x)
            np.right_shift(x, 63, out=sign)
            np.bitwise_and(sign, self._negative, out=sign)
            np.add(x, sign, out=x)
        np.add(x, self._half, out=x)
        np.right_shift(x, self._right, out=x)
        if self._wide:
            _wrap(x)
        np.add(x, self._zero, out=x)
        np.clip(x, *self._bounds, out=x)
        np.copyto(output, x, casting="unsafe")


class Part:
    """Memory of some pixels."""

    __slots__ = ("output", "sign", "sums", "wide")

    def __init__(
        self, sums: np.ndarray, output: np.ndarray, wide: np.ndarray, sign: np.ndarray
    ) -> None:
        self.sums, self.output = sums, output
        self.wide, self.sign = wide[: len(sums)], sign[: len(sums)]


def _wrap(x: np.ndarray) -> None:
    """Keep 32 bits of each number, with their sign."""
    np.left_shift(x, 32, out=x)
    np.right_shift(x, 32, out=x)
