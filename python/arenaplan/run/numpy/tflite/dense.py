"""Matrix products: ``FULLY_CONNECTED`` and ``BATCH_MATMUL``."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.constants import shared
from arenaplan.run.numpy.kernels.pieces import operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes
from arenaplan.run.numpy.tflite.fixed import Multiplier, multiplier_of
from arenaplan.run.numpy.tflite.images import is_empty
from arenaplan.run.numpy.tflite.real import Finish, summed
from arenaplan.run.numpy.tflite.rescale import Rescale
from arenaplan.run.numpy.tflite.tflite_conv import channel_multipliers, check_operands, is_wide
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
    result_dtype,
)
from arenaplan.run.numpy.tflite.tflite_products import (
    exact_float,
    in_turn,
    made_by_rows,
    matrix_product,
)

_ROWS: Final = (4096, 256, 16, 1)
"""Rows that are made at a time."""


def tensor_multiplier(x: Quantity, weights: Quantity, y: Quantity) -> Multiplier:
    """Return the factor for a whole result: ``GetQuantizedConvolutionMultipler``."""
    return multiplier_of(x.scale * weights.scale / y.scale)


class Dense:
    """``FULLY_CONNECTED`` with constant weights."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        check_operands(signature)
        y = signature.result()
        self.weights = constant_operand(signature, 1)
        if self.weights.ndim < 2 or signature.attributes.get("weights_format", 0):
            raise refused(signature, "its weights are no plain matrix")
        self.depth = self.weights.shape[-1]
        self.channels = y.shape[-1] if y.shape else 1
        self.rows = prod(y.shape) // max(self.channels, 1)
        x = signature.operand(0)
        if (
            self.rows * self.depth != prod(x.shape)
            or self.weights.size < self.channels * self.depth
        ):
            raise refused(signature, f"weights {self.weights.shape} do not fit input {x.shape}")
        self.weights = self.weights.reshape(-1, self.depth)[: self.channels]
        self.is_real = x.dtype == FLOAT
        self.offset = 0 if self.is_real else -encoding(signature, 0).zero
        self.zero = zero = 0 if self.is_real else encoding(signature, 1).zero
        self.centered = self.weights if zero == 0 else self.weights.astype(np.int64) - zero
        self.dtype = FLOAT if self.is_real else exact_float(self.centered, self.offset, x.dtype)

    def counts(self) -> list[int]:
        """Return the numbers of rows that can be made at a time, the largest first."""
        return sorted({min(self.rows, n) for n in _ROWS}, reverse=True)

    def scratch(self, count: int) -> int:
        """Return the bytes for so many rows at a time."""
        size = scratch_bytes((count, self.channels), self.dtype)
        if self.is_real:
            return 2 * size
        size += scratch_bytes((count, self.depth), self.dtype)
        return size + Rescale.scratch(self.channels, count)

    def matrix(self) -> np.ndarray:
        """Return the weights with result channels last."""

        def make() -> tuple[np.ndarray, None]:
            return np.ascontiguousarray(self.centered.T.astype(self.dtype)), None

        key = ("tflite dense", self.channels, self.dtype.str, self.zero)
        return shared([self.weights], key, make)[0]

    def finish(self) -> Finish | Rescale:
        """Return the last part."""
        signature = self.signature
        if self.is_real:
            return Finish(signature, 2)
        x, w, y = encoding(signature, 0), encoding(signature, 1), encoding(signature, 0, "output")
        several = len(w.scales) > 1
        multipliers = (
            channel_multipliers(signature, x, w, y, self.channels)
            if several
            else [tensor_multiplier(x, w, y)]
        )
        bias = None if signature.input(2) is None else constant_operand(signature, 2)
        bounds = activation_range(signature, y)
        return Rescale(multipliers, bias, y.zero, bounds, wide=is_wide(signature, 2))

    def bind(self, step: Step, count: int) -> list[Run]:
        """Return functions that make the rows, ``count`` at a time."""
        x = operand(step, 0).reshape(self.rows, self.depth)
        y = result(step).reshape(self.rows, self.channels)
        scratch = step.scratch()
        sums = scratch.array((count, self.channels), self.dtype)
        width = self.channels if self.is_real else self.depth
        room = scratch.array((count, width), self.dtype)
        finish, matrix, offset = self.finish(), self.matrix(), self.dtype.type(self.offset)
        runs: list[Run] = []
        for at in range(0, self.rows, count):
            part = slice(at, at + count)
            source = x[part]
            made, spare = sums[: len(source)], room[: len(source)]
            if self.is_real:
                runs.append(summed(source, matrix, made, spare))
            else:
                runs += [_shifted(source, offset, spare), matrix_product(spare, matrix, made)]
            runs += finish.bind(made, y[part], scratch.rest())
        return runs


def _shifted(x: np.ndarray, offset: Any, out: np.ndarray) -> Run:
    return lambda: np.add(x, offset, out=out, casting="unsafe")


made_by_rows("FULLY_CONNECTED", work=Dense, costs=[1.0 + 0.1 * at for at in range(len(_ROWS))])


# -- matrix stacks ---------------------------------------------------------------------------


class _Stack:
    """``BATCH_MATMUL``."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        a, b, y = signature.input(0), signature.input(1), signature.outputs[0]
        if a is None or b is None or y is None or min(len(a.shape), len(b.shape)) < 2:
            raise refused(signature, "its operands are no matrices")
        if str(a.dtype) not in ("float32", "int8", "int16") or not a.dtype == b.dtype == y.dtype:
            raise refused(signature, f"no kernel makes {y.dtype} of {a.dtype} and {b.dtype}")
        self.is_real = a.dtype == FLOAT
        self.turned = (
            bool(signature.attributes.get("adj_x", 0)),
            bool(signature.attributes.get("adj_y", 0)),
        )
        self.depth = a.shape[-2] if self.turned[0] else a.shape[-1]
        self.rows, self.columns = y.shape[-2:]
        self.dtype: np.dtype[Any] = FLOAT
        if not self.is_real:
            low, high = limits(a.dtype)
            # The bound in `exact_float`, for unknown weights.
            sides = (encoding(signature, at).zero for at in (0, 1))
            bound = prod(max(abs(low - zero), abs(high - zero)) for zero in sides) * self.depth
            self.dtype = np.dtype(np.float32 if bound <= 1 << 24 else np.float64)

    def scratch(self) -> int:
        """Return the bytes for a matrix pair."""
        made = scratch_bytes((self.rows, self.columns), self.dtype)
        if self.is_real:
            return 2 * made
        size = made + Rescale.scratch(self.columns, self.rows)
        size += scratch_bytes((self.rows, self.depth), self.dtype)
        return size + scratch_bytes((self.depth, self.columns), self.dtype)

    def bind(self, step: Step) -> list[Run]:
        """Return functions that make one matrix after the other."""
        y, scratch = result(step), step.scratch()
        a, b = (
            operand(step, at).swapaxes(-1, -2) if self.turned[at] else operand(step, at)
            for at in (0, 1)
        )
        outer = y.shape[:-2]
        a, b = (np.broadcast_to(array, (*outer, *array.shape[-2:])) for array in (a, b))
        sums = scratch.array((self.rows, self.columns), self.dtype)
        runs: list[Run] = []
        if self.is_real:
            products = scratch.array((self.rows, self.columns), self.dtype)
            finish = Finish(self.signature, 2)
            for place in np.ndindex(*outer):
                runs.append(summed(a[place], b[place], sums, products))
                runs += finish.bind(sums, y[place], scratch)
            return runs
        copies = [
            scratch.array((self.rows, self.depth), self.dtype),
            scratch.array((self.depth, self.columns), self.dtype),
        ]
        left, right = encoding(self.signature, 0), encoding(self.signature, 1)
        encoded = encoding(self.signature, 0, "output")
        factor = multiplier_of(left.scale * right.scale / encoded.scale)
        bounds = limits(result_dtype(self.signature))
        wide = dtype_at(self.signature, 0) == np.int16
        rescale = Rescale([factor], None, encoded.zero, bounds, wide=wide)
        offsets = [self.dtype.type(-left.zero), self.dtype.type(-right.zero)]
        for place in np.ndindex(*outer):
            pairs = zip((a[place], b[place]), offsets, copies, strict=True)
            runs += [_shifted(matrix, offset, copy) for matrix, offset, copy in pairs]
            runs.append(matrix_product(copies[0], copies[1], sums))
            runs += rescale.bind(sums, y[place], scratch.rest())
        return runs


def _stack_choices(signature: Signature) -> list[list[Choice]]:
    """Return the workspace for a matrix pair."""
    return [] if is_empty(signature) else [[Choice(_Stack(signature).scratch(), 1.0)]]


@kernel("BATCH_MATMUL", domain=DOMAIN, workspace=_stack_choices)
def batch_matmul(step: Step) -> Run | None:
    """Make one matrix after the other."""
    return None if is_empty(step.signature) else in_turn(_Stack(step.signature).bind(step))
