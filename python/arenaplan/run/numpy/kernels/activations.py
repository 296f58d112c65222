"""
Activation functions.

Each function is written once, as a chain of NumPy calls on one input block at a time with a few
scratch arrays of the block's size, and registered by :func:`_activation`. The output may be the
input's memory, so nothing is written to the output before the input's last use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from arenaplan.run.numpy.cuts import ELEMENTWISE
from arenaplan.run.numpy.kernels.pieces import Blocks, blockwise, operand, result, select
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel

Body: TypeAlias = Callable[..., None]
"""Called as ``body(input, output, *scratch)``, all of one shape and type, and with attributes."""


def _activation(
    *ops: str, scratch: int = 0, since: int = 1, **usual: Any
) -> Callable[[Body], Body]:
    """Register an activation with node attributes by name, or their usual values."""
    blocks = Blocks(*[None] * scratch)
    # Half precision is computed in single: a chain of roundings would lose most digits.
    wide = Blocks(*["float32"] * (scratch + 2))

    def declare(signature: Signature) -> Any:
        return (wide if _is_half(signature) else blocks).declare(signature)

    def register(body: Body) -> Body:
        def prepare(step: Step) -> Run | None:
            x, y = operand(step, 0), result(step)
            given = {name: step.attributes.get(name, value) for name, value in usual.items()}
            own = partial(body, **given)
            if _is_half(step.signature):
                return blockwise(_widened(own), [x], y, wide.arrays(step))
            return blockwise(own, [x], y, blocks.arrays(step) if scratch else ())

        kernel(*ops, since=since, workspace=declare, cut=ELEMENTWISE)(prepare)
        return body

    return register


def _is_half(signature: Signature) -> bool:
    output = signature.outputs[0]
    return output is not None and output.dtype == np.float16


def _widened(body: Body) -> Body:
    """Return ``body`` working on single-precision copies of the arguments."""

    def widened(
        x: np.ndarray, y: np.ndarray, wide_x: np.ndarray, wide_y: np.ndarray, *scratch: np.ndarray
    ) -> None:
        np.copyto(wide_x, x)
        body(wide_x, wide_y, *scratch)
        np.copyto(y, wide_y, casting="same_kind")

    return widened


_ONE = Blocks(None)

# -- the error function ------------------------------------------------------------

# erf(x) = tanh(x·P(x²)): both sides have the same symmetry and almost the same shape, so P is a
# short polynomial, fitted to atanh(erf(x))/x on (0, 3.6] with the weight that equalizes the result
# error, 1.4e-7; NumPy's tanh takes as long as two multiplications. P grows beyond the fitted range,
# so nothing needs to be cut off.
_ERF = (
    1.128379464,
    0.1027676127,
    -0.000188932378,
    -0.0006220491299,
    8.841890825e-05,
    -5.786748458e-06,
    1.481741233e-07,
)
# The same with erf(x/√2), which Gelu wants.
_ERF_OF_ROOT = tuple(c * 0.5 ** (k + 0.5) for k, c in enumerate(_ERF))
_EXACT_BLOCK = 512
"""Numbers that are Python objects at one time."""


def _erf(
    coefficients: tuple[float, ...], x: np.ndarray, erf: np.ndarray, square: np.ndarray
) -> None:
    """Write the error function of ``x`` to ``erf``, which must not be ``x``."""
    np.multiply(x, x, out=square)
    np.multiply(square, coefficients[-1], out=erf)
    for coefficient in coefficients[-2:0:-1]:
        np.add(erf, coefficient, out=erf)
        np.multiply(erf, square, out=erf)
    np.add(erf, coefficients[0], out=erf)
    np.multiply(erf, x, out=erf)
    np.tanh(erf, out=erf)


def _exact_erf(x: np.ndarray, erf: np.ndarray) -> None:
    """Write the error function in double precision, for which the polynomial is too coarse."""
    for start in range(0, x.size, _EXACT_BLOCK):
        block = slice(start, start + _EXACT_BLOCK)
        erf[block] = [math.erf(number) for number in x[block].tolist()]


@_activation("Erf", scratch=2)
def erf(x: np.ndarray, y: np.ndarray, value: np.ndarray, square: np.ndarray) -> None:
    """Write the error function."""
    if x.dtype == np.float64:
        _exact_erf(x, y)
    else:
        _erf(_ERF, x, value, square)
        np.copyto(y, value)


@_activation("Gelu", scratch=2, approximate="none")
def gelu(
    x: np.ndarray, y: np.ndarray, half: np.ndarray, t: np.ndarray, *, approximate: str
) -> None:
    """Write ``x`` times the normal distribution function, or an approximation."""
    if approximate == "tanh":
        _tanh_of_cubic(x, half, t)
    elif x.dtype == np.float64:
        np.multiply(x, math.sqrt(0.5), out=t)
        _exact_erf(t, half)
    else:
        _erf(_ERF_OF_ROOT, x, half, t)
    np.multiply(half, 0.5, out=half)
    np.add(half, 0.5, out=half)
    np.multiply(x, half, out=y)


def _tanh_of_cubic(x: np.ndarray, y: np.ndarray, t: np.ndarray) -> None:
    """Write ``tanh(√(2/π)·(x + 0.044715·x³))`` to ``y``, which must not be ``x``."""
    root = math.sqrt(2 / math.pi)
    np.multiply(x, x, out=t)
    np.multiply(t, 0.044715 * root, out=t)
    np.add(t, root, out=t)
    np.multiply(t, x, out=t)
    np.tanh(t, out=y)


# -- exponentials ------------------------------------------------------------------


@_activation("Sigmoid")
def logistic(x: np.ndarray, y: np.ndarray, scale: float = 1.0) -> None:
    """
    Write ``1/(1 + exp(-scale·x))`` to ``y``, which may be ``x``.

    An overflow to infinity gives the right zero.
    """
    np.multiply(x, -scale, out=y)
    np.exp(y, out=y)
    np.add(y, 1, out=y)
    np.divide(1, y, out=y)


@_activation("Swish", scratch=1, alpha=1.0)
def swish(x: np.ndarray, y: np.ndarray, t: np.ndarray, *, alpha: float) -> None:
    """Write ``x·sigmoid(alpha·x)``."""
    logistic(x, t, alpha)
    np.multiply(x, t, out=y)


@_activation("Softplus", scratch=1)
def softplus(x: np.ndarray, y: np.ndarray, t: np.ndarray) -> None:
    """Write ``log(1 + exp(x))`` as ``max(x, 0) + log1p(exp(-|x|))``, which cannot overflow."""
    np.absolute(x, out=t)
    np.negative(t, out=t)
    np.exp(t, out=t)
    np.log1p(t, out=t)
    np.clip(x, 0, np.inf, out=y)
    np.add(y, t, out=y)


@_activation("Mish", scratch=2)
def mish(x: np.ndarray, y: np.ndarray, t: np.ndarray, u: np.ndarray) -> None:
    """Write ``x·tanh(softplus(x))``."""
    softplus(x, t, u)
    np.tanh(t, out=t)
    np.multiply(x, t, out=y)


def _exponential(
    x: np.ndarray, y: np.ndarray, t: np.ndarray, alpha: float, inner: float = 1.0
) -> None:
    """Write ``x`` for positive numbers and ``alpha·(exp(x/inner) - 1)`` for negative numbers."""
    np.clip(x, -np.inf, 0, out=t)
    if inner != 1:
        np.divide(t, inner, out=t)
    np.expm1(t, out=t)
    np.multiply(t, alpha, out=t)
    np.clip(x, 0, np.inf, out=y)
    np.add(y, t, out=y)


def _sloped(x: np.ndarray, y: np.ndarray, t: np.ndarray, alpha: float) -> None:
    """
    Write ``x``, and ``alpha·x`` for negative numbers, whatever ``alpha`` is.

    A sum over both sides would contain zero times ``alpha``, and lose the sign of zeros.
    """
    mask = t.reshape(-1).view(np.bool_)[: x.size].reshape(x.shape)
    np.less(x, 0, out=mask)
    np.copyto(y, x)
    np.multiply(y, alpha, out=y, where=mask)


@_activation("Elu", scratch=1, alpha=1.0)
def elu(x: np.ndarray, y: np.ndarray, t: np.ndarray, *, alpha: float) -> None:
    """Write ``alpha·(exp(x) - 1)`` for negative numbers."""
    (_exponential if math.isfinite(alpha) else _sloped)(x, y, t, alpha)


@_activation("Celu", scratch=1, alpha=1.0)
def celu(x: np.ndarray, y: np.ndarray, t: np.ndarray, *, alpha: float) -> None:
    """Write ``alpha·(exp(x/alpha) - 1)`` for negative numbers."""
    _exponential(x, y, t, alpha, alpha)


@_activation("Selu", scratch=1, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875)
def selu(x: np.ndarray, y: np.ndarray, t: np.ndarray, *, alpha: float, gamma: float) -> None:
    """Write ``gamma·elu(x)``."""
    _exponential(x, y, t, alpha)
    if gamma != 1:
        np.multiply(y, gamma, out=y)


# -- lines ----------------------------------------------------------------------------


@_activation("LeakyRelu", scratch=1, alpha=0.01)
def leaky_relu(x: np.ndarray, y: np.ndarray, t: np.ndarray, *, alpha: float) -> None:
    """Write ``x`` for positive numbers, ``alpha·x`` for negative numbers."""
    if not 0 < alpha < math.inf:
        _sloped(x, y, t, alpha)
        return
    np.multiply(x, alpha, out=t)
    (np.maximum if alpha <= 1 else np.minimum)(x, t, out=y)


_LIKE_AND_MASK = Blocks(None, "bool")


@kernel("PRelu", since=7, workspace=_LIKE_AND_MASK.declare, cut=ELEMENTWISE)
def prelu(step: Step) -> Run | None:
    """Write ``slope·x`` for negative numbers. Slopes for other numbers are not multiplied."""
    bits = np.dtype(f"i{result(step).itemsize}")

    def body(
        x: np.ndarray, slope: np.ndarray, y: np.ndarray, t: np.ndarray, mask: np.ndarray
    ) -> None:
        np.multiply(x, slope, out=t)
        np.less(x, 0, out=mask)
        select(mask, t.view(bits), x.view(bits), y.view(bits), t.view(bits))

    inputs = [operand(step, 0), operand(step, 1)]
    return blockwise(body, inputs, result(step), _LIKE_AND_MASK.arrays(step))


@_activation("HardSigmoid", alpha=0.2, beta=0.5)
def hard_sigmoid(x: np.ndarray, y: np.ndarray, *, alpha: float, beta: float) -> None:
    """Write ``alpha·x + beta``, bounded to 0 … 1."""
    np.multiply(x, alpha, out=y)
    np.add(y, beta, out=y)
    np.clip(y, 0, 1, out=y)


@_activation("HardSwish", scratch=1)
def hard_swish(x: np.ndarray, y: np.ndarray, t: np.ndarray) -> None:
    """Write ``x·(x/6 + 0.5)``, the factor bounded to 0 … 1."""
    hard_sigmoid(x, t, alpha=1 / 6, beta=0.5)
    np.multiply(x, t, out=y)


@_activation("Softsign", scratch=1)
def softsign(x: np.ndarray, y: np.ndarray, t: np.ndarray) -> None:
    """Write ``x/(1 + |x|)``."""
    np.absolute(x, out=t)
    np.add(t, 1, out=t)
    np.divide(x, t, out=y)


_MASK = Blocks("bool")


@kernel("ThresholdedRelu", workspace=_MASK.declare, cut=ELEMENTWISE)
def thresholded_relu(step: Step) -> Run | None:
    """Write ``x`` above a threshold and zero elsewhere."""
    alpha = step.attributes.get("alpha", 1.0)

    def body(x: np.ndarray, y: np.ndarray, mask: np.ndarray) -> None:
        np.greater(x, alpha, out=mask)
        bits = f"i{x.itemsize}"  # Bits times one or zero: infinity times zero would be NaN.
        np.multiply(x.view(bits), mask, out=y.view(bits))

    return blockwise(body, [operand(step, 0)], result(step), _MASK.arrays(step))


@kernel("Shrink", workspace=_LIKE_AND_MASK.declare, cut=ELEMENTWISE)
def shrink(step: Step) -> Run | None:
    """Bring numbers nearer to zero by ``bias``, and numbers near zero to zero."""
    bias, threshold = step.attributes.get("bias", 0.0), step.attributes.get("lambd", 0.5)
    y = result(step)

    def body(x: np.ndarray, y: np.ndarray, t: np.ndarray, mask: np.ndarray) -> None:
        np.copyto(t, 0)
        for compare, edge, shift in (
            (np.greater, threshold, -bias),
            (np.less, -threshold, bias),
        ):
            compare(x, edge, out=mask)
            np.add(x, shift, out=t, where=mask, casting="unsafe")
        np.copyto(y, t)

    return blockwise(body, [operand(step, 0)], y, _LIKE_AND_MASK.arrays(step))
