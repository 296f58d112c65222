"""Pools over images ``(N, H, W, C)``."""

from __future__ import annotations

from typing import Any

import numpy as np

from arenaplan.graph.ops.window_ops import Axis
from arenaplan.run.numpy.kernels.pieces import operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, scratch_bytes
from arenaplan.run.numpy.tflite.blocks import by_blocks
from arenaplan.run.numpy.tflite.images import (
    Border,
    blocks,
    row_counts,
    sides_of,
)
from arenaplan.run.numpy.tflite.tflite_facts import (
    FLOAT,
    activation_range,
    check_types,
    clamped,
    encoding_or,
    float_range,
    limits,
)
from arenaplan.run.numpy.tflite.tflite_products import made_by_rows


class _Pool:
    """A window over each channel by itself."""

    def __init__(self, signature: Signature) -> None:
        check_types(signature, "int8 int8", "int16 int16", "float32 float32")
        self.signature = signature
        x = signature.operand(0)
        taps = (signature.attributes["filter_height"], signature.attributes["filter_width"])
        self.rows, self.columns = sides_of(signature, taps)
        self.image = x
        self.is_real = x.dtype == FLOAT
        self.is_max = signature.op == "MAX_POOL_2D"
        self.dtype: np.dtype[Any] = FLOAT if self.is_real else np.dtype(np.int32)
        fill = 0.0
        if self.is_max:
            fill = float(np.finfo(FLOAT).min) if self.is_real else limits(x.dtype).low
        self.border = Border(x, self.rows, self.columns, self.dtype, fill, 0)

    def counts(self) -> list[int]:
        """Return the numbers of rows that can be made at a time, the largest first."""
        return row_counts(self.rows.out, self.columns.out)

    def scratch(self, count: int) -> int:
        """Return the bytes for making ``count`` rows at a time."""
        shape = (count, self.columns.out, self.image.shape[3])
        border = self.border.scratch(count) if self.is_padded else 0
        return border + scratch_bytes(shape, self.dtype)

    @property
    def is_padded(self) -> bool:
        """Whether a window reaches over an edge, so that rows are copied with a border."""
        return self.rows.is_padded or self.columns.is_padded

    def bind(self, step: Step, count: int) -> list[Run]:
        """Return functions that make the rows, ``count`` at a time."""
        x, y, scratch = operand(step, 0), result(step), step.scratch()
        copy = self.border.array(count, scratch) if self.is_padded else None
        made = scratch.array((count, self.columns.out, x.shape[3]), self.dtype)
        sizes = _taps(self.rows)[:, None] * _taps(self.columns)[None, :]
        runs: list[Run] = []
        for block in blocks(x.shape[0], self.rows.out, count):
            height = block.stop - block.start
            if copy is None:
                windows = self.border.windows(
                    x[block.image, block.start * self.rows.stride :], height
                )
            else:
                windows = self.border.windows(copy, height)
                runs.append(self.border.load(x, copy, block))
            runs.append(self._combined(windows, made[:height]))
            output = y[block.image, block.start : block.stop]
            counts = sizes[block.start : block.stop, :, None].astype(self.dtype)
            finish = by_blocks(self._finished, [made[:height], counts], output)
            if finish is not None:
                runs.append(finish)
        return runs

    def _combined(self, windows: np.ndarray, made: np.ndarray) -> Run:
        """Return a function that takes each window's largest element, or adds up elements."""
        parts = [windows[:, :, row, column] for row, column in np.ndindex(*windows.shape[2:4])]
        combine = np.maximum if self.is_max else np.add
        if self.signature.op == "L2_POOL_2D":
            return lambda: _squares(parts, made)

        def run() -> None:
            np.copyto(made, parts[0])
            for part in parts[1:]:
                combine(made, part, out=made)

        return run

    def _finished(self, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the results."""
        signature = self.signature
        if self.is_real:
            low, high = (FLOAT.type(bound) for bound in float_range(signature))
            if signature.op == "L2_POOL_2D":
                sums = np.sqrt(sums / counts)
            elif not self.is_max:
                sums = sums / counts
            made: np.ndarray = np.minimum(np.maximum(sums, low), high)
            return made
        if not self.is_max:
            # Divisions round halves away from zero.
            sums = np.sign(sums) * ((np.abs(sums) + counts // 2) // counts)
        return clamped(sums, *activation_range(signature, encoding_or(signature, 0, "output")))


def _squares(parts: list[np.ndarray], made: np.ndarray) -> None:
    """Add up squares under windows, one result row at a time."""
    made.fill(0)
    for part in parts:
        for row, target in zip(part, made, strict=True):
            for pixel, sums in zip(row, target, strict=True):
                np.add(sums, pixel * pixel, out=sums)


def _taps(side: Axis) -> np.ndarray:
    """Return the number of image rows under each window."""
    first = np.arange(side.out) * side.stride - side.before
    return np.minimum(first + side.kernel, side.size) - np.maximum(first, 0)


made_by_rows("AVERAGE_POOL_2D", "L2_POOL_2D", "MAX_POOL_2D", work=_Pool)
