"""Optimizer steps (domain ``ai.onnx.preview.training``): new parameters and statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt
from typing import Any, TypeAlias

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.pieces import invalid, operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes

_DOMAIN = "ai.onnx.preview.training"
_BLOCK = 1 << 12
"""Elements that a step is made for at a time."""

Update: TypeAlias = Callable[[float, int, list[np.ndarray], list[np.ndarray], Any, Any], None]
"""Called with rate, number of earlier steps, inputs, outputs, the regularized gradient, and an
array with the gradient's size.
"""


def _declare(signature: Signature) -> Sequence[Sequence[Choice]]:
    tensors = [tensor for tensor in signature.outputs if tensor is not None and tensor.shape]
    largest = max((min(prod(tensor.shape), _BLOCK) for tensor in tensors), default=1)
    dtype = tensors[0].dtype if tensors else np.dtype(np.float32)
    return [[Choice(2 * scratch_bytes((largest,), dtype), 0.0)]]


def _stepped(step: Step, statistics: int, update: Update) -> Run | None:
    """Return a function that updates all parameters of a node, some elements at a time."""
    count, rest = divmod(len(step.inputs) - 2, 2 + statistics)
    if rest or len(step.outputs) != count * (1 + statistics):
        raise invalid(step, f"{len(step.inputs)} inputs and {len(step.outputs)} outputs")
    rate, earlier = operand(step, 0), operand(step, 1)
    norm = step.attributes.get("norm_coefficient", 0.0)
    dtype = operand(step, 2).dtype
    scratch = step.scratch()
    room = min(max((operand(step, 2 + k).size for k in range(count)), default=1), _BLOCK)
    gradient, spare = (scratch.array((room,), dtype) for _ in range(2))

    def run() -> None:
        for index in range(count):
            inputs = [
                operand(step, 2 + index + k * count).reshape(-1) for k in range(2 + statistics)
            ]
            outputs = [result(step, index + k * count).reshape(-1) for k in range(1 + statistics)]
            for start in range(0, inputs[0].size, _BLOCK):
                cut = slice(start, start + _BLOCK)
                parts = [array[cut] for array in inputs]
                own = gradient[: parts[0].size]
                np.multiply(parts[0], dtype.type(norm), out=own)
                np.add(own, parts[1], out=own)
                made = [array[cut] for array in outputs]
                update(float(rate.item()), int(earlier.item()), parts, made, own, spare[: own.size])

    return run


@kernel("Adagrad", domain=_DOMAIN, workspace=_declare)
def adagrad(step: Step) -> Run | None:
    """Divide by the root of the sum over all squared gradients."""
    decay, epsilon = (step.attributes.get(name, 0.0) for name in ("decay_factor", "epsilon"))

    def update(rate: float, earlier: int, x: Any, made: Any, gradient: Any, room: Any) -> None:
        number = gradient.dtype.type
        np.multiply(gradient, gradient, out=room)
        np.add(x[2], room, out=made[1])
        np.sqrt(made[1], out=room)
        np.add(room, number(epsilon), out=room)
        np.divide(gradient, room, out=room)
        np.multiply(room, number(rate / (1 + earlier * decay)), out=room)
        np.subtract(x[0], room, out=made[0])

    return _stepped(step, 1, update)


@kernel("Momentum", domain=_DOMAIN, workspace=_declare)
def momentum(step: Step) -> Run | None:
    """Move on in the direction of earlier steps, too."""
    alpha, beta = step.attributes["alpha"], step.attributes["beta"]
    looks_ahead = step.attributes["mode"] == "nesterov"

    def update(rate: float, earlier: int, x: Any, made: Any, gradient: Any, room: Any) -> None:
        number = gradient.dtype.type
        np.multiply(gradient, number(beta if earlier > 0 else 1.0), out=room)
        np.multiply(x[2], number(alpha), out=made[1])
        np.add(made[1], room, out=made[1])
        if looks_ahead:
            np.multiply(made[1], number(alpha), out=room)
            np.add(room, gradient, out=room)
            np.multiply(room, number(rate), out=room)
        else:
            np.multiply(made[1], number(rate), out=room)
        np.subtract(x[0], room, out=made[0])

    return _stepped(step, 1, update)


@kernel("Adam", domain=_DOMAIN, workspace=_declare)
def adam(step: Step) -> Run | None:
    """Divide averaged gradients by the roots of averaged squares."""
    alpha, beta = step.attributes.get("alpha", 0.9), step.attributes.get("beta", 0.999)
    epsilon = step.attributes.get("epsilon", 0.0)
    after = 1.0 - step.attributes.get("norm_coefficient_post", 0.0)

    def update(rate: float, earlier: int, x: Any, made: Any, gradient: Any, room: Any) -> None:
        number = gradient.dtype.type
        if earlier > 0:
            rate *= sqrt(1 - beta**earlier) / (1 - alpha**earlier)
        for position, share in ((1, alpha), (2, beta)):
            np.multiply(gradient, number(1 - share), out=room)
            if position == 2:
                np.multiply(room, gradient, out=room)
            np.multiply(x[1 + position], number(share), out=made[position])
            np.add(made[position], room, out=made[position])
        np.sqrt(made[2], out=room)
        np.add(room, number(epsilon), out=room)
        np.divide(made[1], room, out=room)
        np.multiply(room, number(rate), out=room)
        np.subtract(x[0], room, out=made[0])
        np.multiply(made[0], number(after), out=made[0])

    return _stepped(step, 2, update)
