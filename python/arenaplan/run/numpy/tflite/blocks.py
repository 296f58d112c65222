"""
Work on blocks with a few elements, whose temporary arrays are small.

A kernel without scratch memory may allocate as much as a run allocates anyhow: arrays of
:data:`FEW` elements at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from arenaplan.run.numpy.kernels.pieces import blockwise, operand, result
from arenaplan.run.numpy.registry import Run, Step

FEW: Final = 1024
"""Elements per block: temporary ``int64`` arrays have 8 KiB."""
_LENGTH: Final = np.empty(FEW, np.int8)
"""Scratch memory that is never used; the length bounds the blocks."""


def by_blocks(
    function: Callable[..., Any],
    inputs: Sequence[np.ndarray],
    output: np.ndarray,
    *,
    few: int = FEW,
) -> Run | None:
    """
    Return a function that computes an output block by block, in order.

    Parameters
    ----------
    function : callable
        Returns a new array for input blocks, which broadcast to the output.
    few : int
        Elements per block: fewer for functions with many temporary arrays.
    """

    def body(*arrays: np.ndarray) -> None:
        *operands, made, _ = arrays
        np.copyto(made, function(*operands), casting="unsafe")

    return blockwise(body, inputs, output, [_LENGTH[:few]])


def by_table(step: Step, function: Callable[[np.ndarray], np.ndarray]) -> Run | None:
    """
    Return a function that looks up each number in input 0.

    Parameters
    ----------
    function : callable
        Returns the results, as ``int64``, for all numbers of the input's type.
    """
    x, y = operand(step, 0), result(step)
    table = table_of(function, x.dtype, y.dtype)
    unsigned = np.dtype(f"u{x.itemsize}")
    return by_blocks(lambda block: table[block.view(unsigned)], [x], y)


def table_of(
    function: Callable[[np.ndarray], np.ndarray], dtype: np.dtype[Any], made: np.dtype[Any]
) -> np.ndarray:
    """Return the results for all numbers of a one- or two-byte type, by their bits."""
    numbers = np.arange(1 << (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}").view(dtype)
    return function(numbers.astype(np.int64)).astype(made)
