"""
Nodes that make the new content of states: parameters and optimizer statistics.

In a plan the new content is at the state's address. A run for comparison with a plan has separate
memory for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod, sqrt

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.graph import Choice
from arenaplan.graph.ops.own_ops import TRAINING
from arenaplan.run.numpy.kernels.pieces import copy, in_sequence, normalized_axis, operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes

_BLOCK = 1 << 12
"""Elements that a step is made for at a time."""


@kernel("Assign", domain=TRAINING)
def assign(step: Step) -> Run | None:
    """Write the value; nothing to do if the value was made in place."""
    return copy(operand(step, 1), result(step))


@kernel("Count", domain=TRAINING)
def count(step: Step) -> Run | None:
    """Write one more."""
    return partial(np.add, operand(step, 0), 1, result(step))


@kernel("SlideCache", domain=TRAINING)
def slide_cache(step: Step) -> Run | None:
    """Move entries to the front, within the result, and write new entries behind them."""
    x, y, new = operand(step, 0), result(step), step.input(3)
    if y.size == 0:
        return None
    axis = normalized_axis(step, step.attributes.get("axis", 2), x.ndim)
    length, lead = x.shape[axis], (slice(None),) * (axis - 1)
    lines, width = prod(x.shape[1:axis]), prod(x.shape[axis + 1 :]) * x.itemsize
    # Assignment between parts of one view moves bytes, which may overlap, without a copy.
    content = y.view(np.uint8).data.cast("B")

    def run() -> None:
        for sample, (first, count) in enumerate(
            zip(operand(step, 1).tolist(), operand(step, 2).tolist(), strict=True)
        ):
            if first < 0 or count < 0 or first + count > length:
                raise fault(
                    "IndexOutOfRange",
                    f"node {step.signature.name!r} (SlideCache) keeps entries {first} to "
                    f"{first + count} of a cache of {length}",
                )
            for line in range(sample * lines, (sample + 1) * lines if first else 0):
                start = line * length * width
                source = content[start + first * width : start + (first + count) * width]
                content[start : start + count * width] = source
            if new is not None:
                fitting = min(new.shape[axis], length - count)
                target = y[sample][(*lead, slice(count, count + fitting))]
                np.copyto(target, new[sample][(*lead, slice(fitting))])

    return in_sequence(copy(x, y), run)


def _declare(parameter: int, arrays: int) -> object:
    """Return a declaration for so many scratch blocks."""

    def declare(signature: Signature) -> Sequence[Sequence[Choice]]:
        tensor = signature.input(parameter)
        if tensor is None:
            return []
        room = scratch_bytes((min(prod(tensor.shape), _BLOCK),), tensor.dtype)
        return [[Choice(arrays * room, 0.0)]] if room else []

    return declare


def _parts(*arrays: np.ndarray) -> list[list[np.ndarray]]:
    """Return arrays with one size, cut into blocks."""
    flat = [array.reshape(-1) for array in arrays]
    return [
        [array[start : start + _BLOCK] for array in flat]
        for start in range(0, flat[0].size, _BLOCK)
    ]


@kernel("SgdUpdate", domain=TRAINING, workspace=_declare(1, 2))  # type: ignore[arg-type]
def sgd_update(step: Step) -> Run | None:
    """Move a parameter against the gradient."""
    rate, gradient, parameter = operand(step, 0), operand(step, 2), result(step)
    velocity = None if step.input(3) is None else result(step, 1)
    if parameter.size == 0:
        return None
    old = [copy(operand(step, 1), parameter)]
    if velocity is not None:
        old.append(copy(operand(step, 3), velocity))
    scratch = step.scratch()
    length = min(parameter.size, _BLOCK)
    move, spare = (scratch.array((length,), parameter.dtype) for _ in range(2))
    number = parameter.dtype.type
    momentum, decay = (number(step.attributes.get(n, 0.0)) for n in ("momentum", "weight_decay"))
    looks_ahead = bool(step.attributes.get("nesterov", 0))
    given = (parameter, gradient) if velocity is None else (parameter, gradient, velocity)
    parts = _parts(*given)

    def run() -> None:
        scale = number(rate.item())
        for w, g, *kept in parts:
            own, room = move[: w.size], spare[: w.size]
            np.multiply(w, decay, out=own)
            np.add(own, g, out=own)
            for v in kept:
                np.multiply(v, momentum, out=v)
                np.add(v, own, out=v)
                if looks_ahead:
                    np.multiply(v, momentum, out=room)
                    np.add(own, room, out=own)
                else:
                    np.copyto(own, v)
            np.multiply(own, scale, out=own)
            np.subtract(w, own, out=w)

    return in_sequence(*old, run)


@kernel("AdamUpdate", domain=TRAINING, workspace=_declare(2, 2))  # type: ignore[arg-type]
def adam_update(step: Step) -> Run | None:
    """Divide averaged gradients by the roots of averaged squares."""
    rate, count, gradient = operand(step, 0), operand(step, 1), operand(step, 3)
    parameter, mean, square = (result(step, k) for k in range(3))
    if parameter.size == 0:
        return None
    old = [copy(operand(step, at), result(step, k)) for k, at in enumerate((2, 4, 5))]
    scratch = step.scratch()
    length = min(parameter.size, _BLOCK)
    move, spare = (scratch.array((length,), parameter.dtype) for _ in range(2))
    number = parameter.dtype.type
    beta1, beta2 = step.attributes.get("beta1", 0.9), step.attributes.get("beta2", 0.999)
    epsilon, decay = (
        number(step.attributes.get(name, default))
        for name, default in (("epsilon", 1e-8), ("weight_decay", 0.0))
    )
    is_decoupled = bool(step.attributes.get("decoupled", 0))
    parts = _parts(parameter, gradient, mean, square)

    def run() -> None:
        done, scale = int(count.item()) + 1, float(rate.item())
        first = number(scale / (1 - beta1**done))
        root = number(1 / sqrt(1 - beta2**done))
        for w, g, m, v in parts:
            own, room = move[: w.size], spare[: w.size]
            np.multiply(w, decay, out=own)
            if is_decoupled:
                np.multiply(own, number(scale), out=own)
                np.subtract(w, own, out=w)
                np.copyto(own, g)
            else:
                np.add(own, g, out=own)
            for average, share in ((m, beta1), (v, beta2)):
                np.multiply(own, number(1 - share), out=room)
                if average is v:
                    np.multiply(room, own, out=room)
                np.multiply(average, number(share), out=average)
                np.add(average, room, out=average)
            np.sqrt(v, out=room)
            np.multiply(room, root, out=room)
            np.add(room, epsilon, out=room)
            np.divide(m, room, out=room)
            np.multiply(room, first, out=room)
            np.subtract(w, room, out=w)

    return in_sequence(*old, run)
