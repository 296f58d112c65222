"""From product sums to result numbers: multiply, round, shift, clamp."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from arenaplan.run.numpy.registry import Run, Scratch, scratch_bytes
from arenaplan.run.numpy.tflite.fixed import Multiplier, reduced
from arenaplan.run.numpy.tflite.tflite_facts import ResultBounds

_LEAST, _MOST = 512, 4096
"""Elements that are worked on at a time: more take fewer calls, and leave the cache."""
_SHARE: Final = 8
"""Sums are so many times as large as the work block, if these bounds permit."""


class _Block(NamedTuple):
    """Pixels and channels that are worked on at a time."""

    pixels: int
    channels: int

    @staticmethod
    def of(pixels: int, channels: int) -> _Block:
        """Return the block for the sums at some pixels."""
        count = min(max(pixels * channels // _SHARE, _LEAST), _MOST)
        return _Block(min(pixels, max(count // max(channels, 1), 1)), min(channels, max(count, 1)))


class Rescale:
    """
    The last part of integer convolutions and products.

    Parameters
    ----------
    multipliers : sequence of Multiplier
        One factor per channel, or one factor for all.
    bias : array or None
        Addends per channel.
    zero : int
        Zero point of the result.
    bounds : ResultBounds
        Range of the result.
    wide : bool
        Whether sums have 64 bits, which are multiplied by 16-bit multipliers.
    """

    def __init__(
        self,
        multipliers: Sequence[Multiplier],
        bias: np.ndarray | None,
        zero: int,
        bounds: ResultBounds,
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
        """Return the scratch bytes for the sums at some pixels."""
        return 2 * scratch_bytes(_Block.of(pixels, channels), np.int64)

    def bind(self, sums: np.ndarray, output: np.ndarray, scratch: Scratch) -> list[Run]:
        """
        Return functions that turn ``sums`` into results.

        Parameters
        ----------
        sums : array
            One row per pixel, one column per channel.
        output : array
            Results with the same shape.
        scratch : Scratch
            At least :meth:`scratch` bytes for these pixels, or for more.
        """
        pixels, channels = sums.shape
        block = _Block.of(pixels, channels)
        memory = [scratch.array(block, np.int64) for _ in range(2)]
        runs: list[Run] = []
        for at in range(0, pixels, block.pixels):
            for first in range(0, channels, block.channels):
                part = slice(at, at + block.pixels), slice(first, first + block.channels)
                size = sums[part].shape
                wide, sign = (array[: size[0], : size[1]] for array in memory)
                runs.append(partial(self._run, sums[part], output[part], wide, sign, part[1]))
        return runs

    def _run(
        self, sums: np.ndarray, output: np.ndarray, x: np.ndarray, sign: np.ndarray, part: slice
    ) -> None:
        """Write the results for some pixels and channels."""
        np.copyto(x, sums, casting="unsafe")
        if self._bias is not None:
            np.add(x, self._bias[part], out=x)
        if self._left is not None:
            np.left_shift(x, _own(self._left, part), out=x)
            _wrap(x)
        np.multiply(x, _own(self._values, part), out=x)
        if not self._wide:
            # The steps in `fixed.high_product` and `fixed.halved`, in place.
            np.add(x, 1 << 30, out=x)
            np.right_shift(x, 31, out=x)
            np.right_shift(x, 63, out=sign)
            np.bitwise_and(sign, _own(self._negative, part), out=sign)
            np.add(x, sign, out=x)
        np.add(x, _own(self._half, part), out=x)
        np.right_shift(x, _own(self._right, part), out=x)
        if self._wide:
            _wrap(x)
        np.add(x, self._zero, out=x)
        np.maximum(x, self._bounds.low, out=x)
        np.minimum(x, self._bounds.high, out=x)
        np.copyto(output, x, casting="unsafe")


def _own(numbers: np.ndarray, part: slice) -> np.ndarray:
    """Return the numbers for some channels, or the only number for all."""
    return numbers if numbers.size == 1 else numbers[part]


def _wrap(x: np.ndarray) -> None:
    """Keep 32 bits in each number, with the sign."""
    np.left_shift(x, 32, out=x)
    np.right_shift(x, 32, out=x)
