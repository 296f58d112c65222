"""Reductions over some dimensions, and positions of extremes."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.pieces import operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes
from arenaplan.run.numpy.tflite.blocks import FEW, by_blocks
from arenaplan.run.numpy.tflite.fixed import Multiplier, multiplier_of, scaled
from arenaplan.run.numpy.tflite.tflite_facts import (
    DOMAIN,
    FLOAT,
    check_types,
    clamped,
    constant_operand,
    encoding,
    limits,
    refused,
    result_dtype,
)
from arenaplan.run.numpy.tflite.tflite_products import in_turn

_EXTREMES: Final = {
    "REDUCE_ALL": np.logical_and,
    "REDUCE_MAX": np.maximum,
    "REDUCE_MIN": np.minimum,
}


def reduced_axes(signature: Signature) -> list[int]:
    """Return the dimensions that are reduced, ascending."""
    x = signature.operand(0)
    axes = {int(axis) for axis in constant_operand(signature, 1).reshape(-1)}
    rank = len(x.shape)
    if any(not -rank <= axis < rank for axis in axes):
        raise refused(signature, "it reduces a dimension that is not there")
    return sorted(axis % rank for axis in axes)


def _sums(signature: Signature) -> list[list[Choice]]:
    """Return the workspace: one sum per result element."""
    y = signature.outputs[0]
    if y is None or prod(y.shape) == 0:
        return []
    return [[Choice(scratch_bytes((prod(y.shape),), np.int64), 1.0)]]


@kernel("MEAN", "SUM", domain=DOMAIN, workspace=_sums)
def mean(step: Step) -> Run | None:
    """The division is part of the integer factor."""
    signature = step.signature
    check_types(signature, "float32 float32", "int8 int8", "int16 int16")
    x, y = operand(step, 0), result(step)
    if y.size == 0:
        return None
    axes = reduced_axes(signature)
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    turned = x.transpose([*kept, *axes])
    shape, reduced = turned.shape[: len(kept)], turned.shape[len(kept) :]
    if prod(shape) != y.size:
        raise refused(signature, f"a result of shape {y.shape} is not that of {shape}")
    y = y.reshape(shape)
    count = prod(reduced)
    if x.dtype == FLOAT:
        sums = step.scratch().array(shape, FLOAT)
        divisor = FLOAT.type(count if signature.op == "MEAN" and count else 1)
        parts = [turned[(..., *place)] for place in np.ndindex(*reduced)]

        def real() -> None:
            sums.fill(0)
            for part in parts:  # One after the other, as in the source.
                np.add(sums, part, out=sums)
            np.divide(sums, divisor, out=y)

        return real
    wide = step.scratch().array(shape, np.int64)
    places = tuple(range(len(kept), x.ndim))
    a, b = encoding(signature, 0), encoding(signature, 0, "output")
    factor = multiplier_of(a.scale / b.scale)
    if signature.op == "MEAN" and count:
        factor = divided(factor, count)
    low, high = limits(x.dtype)

    def rescaled(sums: np.ndarray) -> np.ndarray:
        return clamped(scaled(sums - a.zero * count, factor) + b.zero, low, high)

    finish = by_blocks(rescaled, [wide], y)
    assert finish is not None
    return in_turn([lambda: np.sum(turned, axis=places, dtype=np.int64, out=wide), finish])


def divided(factor: Multiplier, count: int) -> Multiplier:
    """Return a factor divided by a count, with as many bits as fit."""
    shift = min(count.bit_length() - 1, 32, 31 + factor.shift)
    return Multiplier((factor.value << shift) // count, factor.shift - shift)


@kernel(*_EXTREMES, domain=DOMAIN)
def extreme(step: Step) -> Run | None:
    """Numbers keep their scale; of truth values, all must be true."""
    signature = step.signature
    numbers = "float32 float32", "int8 int8", "int16 int16"
    check_types(signature, *(("bool bool",) if signature.op == "REDUCE_ALL" else numbers))
    x, y = operand(step, 0), result(step)
    if y.size == 0:
        return None
    axes = tuple(reduced_axes(signature))
    if x.dtype.kind == "i":
        a, b = encoding(signature, 0), encoding(signature, 0, "output")
        if a[:2] != b[:2]:
            raise refused(signature, "its operands have different scales")
    shape = tuple(1 if axis in axes else dim for axis, dim in enumerate(x.shape))
    target, function = y.reshape(shape), _EXTREMES[signature.op]
    return lambda: function.reduce(x, axis=axes, keepdims=True, out=target)


@kernel("ARG_MAX", "ARG_MIN", domain=DOMAIN)
def arg_extreme(step: Step) -> Run | None:
    """The first position counts."""
    signature = step.signature
    check_types(signature, "float32 int32", "int8 int32")
    x, y = operand(step, 0), result(step)
    if y.size == 0:
        return None
    (axis,) = constant_operand(signature, 1).reshape(-1).tolist()
    if not -x.ndim <= axis < x.ndim:
        raise refused(signature, "it reduces a dimension that is not there")
    axis %= x.ndim
    rows = np.moveaxis(x, axis, -1)
    function = np.argmax if signature.op == "ARG_MAX" else np.argmin
    shape = rows.shape[:-1]
    target = y.reshape(shape)
    places = list(np.ndindex(*shape[:-1])) if shape else [()]

    def run() -> None:
        for place in places:
            line, made = rows[place], target[place] if shape else target
            if line.ndim == 1:
                made[...] = function(line)
                continue
            step_ = max(1, FEW // line.shape[-1])
            for at in range(0, len(line), step_):
                made[at : at + step_] = function(line[at : at + step_], axis=-1)

    return run


@kernel("CUMSUM", domain=DOMAIN)
def cumsum(step: Step) -> Run | None:
    """Integer sums are rescaled as in an addition."""
    signature = step.signature
    check_types(signature, "float32 float32", "int8 int8")
    x, y = operand(step, 0), result(step)
    if y.size == 0:
        return None
    if x.shape != y.shape:
        raise refused(signature, f"a result of shape {y.shape} is not that of {x.shape}")
    (axis,) = constant_operand(signature, 1).reshape(-1).tolist()
    lines, made = np.moveaxis(x, axis, 0), np.moveaxis(y, axis, 0)
    if step.attributes.get("reverse", 0):
        lines, made = lines[::-1], made[::-1]
    is_exclusive = bool(step.attributes.get("exclusive", 0))
    function: Any = _real_sums
    if result_dtype(signature) != FLOAT:
        function = _integer_sums(signature)
    places = list(np.ndindex(*lines.shape[1:]))

    def run() -> None:
        for place in places:
            line, target = lines[(slice(None), *place)], made[(slice(None), *place)]
            function(line, target, is_exclusive)

    return run


def _real_sums(line: np.ndarray, target: np.ndarray, is_exclusive: bool) -> None:
    """Add up numbers along one line."""
    total = np.zeros(1, FLOAT)
    for at in range(0, len(line), FEW):
        part = np.concatenate([total, line[at : at + FEW]])
        sums = np.add.accumulate(part)
        target[at : at + FEW] = sums[:-1] if is_exclusive else sums[1:]
        total = sums[-1:]


def _integer_sums(signature: Signature) -> Any:
    """Return a function that adds up numbers along one line."""
    a, b = encoding(signature, 0), encoding(signature, 0, "output")
    twice = 2 * a.scale
    inner = multiplier_of(a.scale / twice)
    last = multiplier_of(twice / ((1 << 20) * b.scale))
    # The source begins with the number 0, and not with the number that stands for 0.
    first = int(scaled(np.int64(-a.zero) << 20, inner))

    def function(line: np.ndarray, target: np.ndarray, is_exclusive: bool) -> None:
        total = np.array([first])
        for at in range(0, len(line), FEW):
            numbers = scaled((line[at : at + FEW].astype(np.int64) - a.zero) << 20, inner)
            sums = np.add.accumulate(np.concatenate([total, numbers]))
            shown = sums[:-1] if is_exclusive else sums[1:]
            target[at : at + FEW] = clamped(scaled(shown, last) + b.zero, -128, 127)
            total = sums[-1:]

    return function
