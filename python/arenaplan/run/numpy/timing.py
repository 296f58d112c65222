"""
Kernel times: estimates from shapes, in nanoseconds.

A kernel's estimate is a sum over calls, product arithmetic, and read and written elements, which
cost more if they do not fit the cache. Operators that compiled kernels run have separate rates.
NumPy rates were fitted to the steps of 34 models on one core, rates of compiled kernels to calls on
256 to 2^20 elements (`benches/time.py` compares estimates with measurements). Only ratios between
plans of one model matter to planning.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from arenaplan.graph import Choice
from arenaplan.graph.ops.own_ops import EXTREMES, REQUANTIZE
from arenaplan.run.numpy.chains import operands_of
from arenaplan.run.numpy.compiled import is_enabled
from arenaplan.run.numpy.cuts import GEMM, PRODUCT
from arenaplan.run.numpy.registry import Kernel, Signature, Tensor

CHAIN, RATE = "Chain", "rate"
"""The operator for several members in one chain, and the attribute with its rate."""
MULTIPLY = 1 / 140
"""Nanoseconds per multiplication or addition in a matrix product."""
_FETCHED = 0.25
"""Nanoseconds for BLAS to fetch and repack a right operand's element."""
_STREAMED = 0.15
"""Nanoseconds per right operand element that one row is multiplied by."""
_STACKED = 300.0
"""Nanoseconds of the BLAS call for each matrix in a stack."""
_TAP = 0.4
"""Nanoseconds in which an element is combined with a window's result."""
_CACHED = 1 << 18
"""Elements in all operands that stay in cache."""


class Rate(NamedTuple):
    """The time of an operator that depends on the number of elements alone."""

    calls: float
    """Nanoseconds for all calls in one run."""
    element: float
    """Nanoseconds per element in the first input or output, whichever has more."""
    missed: float = 0.08
    """Nanoseconds per element beyond the operand elements that stay in cache."""


_DEFAULT = Rate(3000, 0.5)
_COPY = Rate(450, 0.15)
_BINARY = Rate(520, 0.2)
_RATES = {
    **dict.fromkeys(["Add", "Sub", "Mul", "Div", "Sum", "Max", "Min"], _BINARY),
    **dict.fromkeys(["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"], _COPY),
    **dict.fromkeys(["Concat", "Split", "Slice", "Pad", "Expand", "Cast"], _COPY),
    **dict.fromkeys(["Relu", "Clip", "LeakyRelu", "Abs", "Neg", "Dropout"], Rate(3300, 0.22, 0.05)),
    **dict.fromkeys(["HardSwish", "HardSigmoid"], Rate(4000, 0.94)),
    **dict.fromkeys(["Sigmoid", "Exp", "Log", "Tanh", "Softplus"], Rate(3700, 1.0)),
    **dict.fromkeys(["Sqrt", "Reciprocal", "Pow"], Rate(4000, 0.5)),
    **dict.fromkeys(["Erf", "Gelu", "Sin", "Cos"], Rate(4000, 2.6)),
    **dict.fromkeys(["Softmax", "LogSoftmax"], Rate(4500, 2.0, 0.29)),
    "BatchNormalization": Rate(9600, 0.38, 0.03),
    "LayerNormalization": Rate(8600, 1.04, 0.38),
    "RMSNormalization": Rate(6000, 0.8, 0.3),
    "InstanceNormalization": Rate(9000, 1.0, 0.3),
    "GroupNormalization": Rate(9000, 1.0, 0.3),
    "LRN": Rate(100000, 1.5, 0.95),
    "Transpose": Rate(930, 0.3, 0.2),
    "Resize": Rate(2800, 0.48, 0.16),
    "GlobalAveragePool": Rate(1600, 0.08, 0.09),
    **dict.fromkeys(["ReduceMean", "ReduceSum", "ReduceMax"], Rate(4500, 0.3)),
    "Gather": Rate(500, 0.16),
    "DequantizeLinear": Rate(1450, 0.33),
    "QuantizeLinear": Rate(5000, 0.68),
    REQUANTIZE: Rate(5000, 0.68),
    EXTREMES: Rate(4500, 0.3),
}
_COMPILED = {
    **dict.fromkeys(["Add", "Sub", "Mul", "Sum", "Max", "Min"], Rate(700, 0.3, 0.1)),
    "DequantizeLinear": Rate(700, 0.42, 0.1),
    "Div": Rate(700, 0.36, 0.1),
    "QuantizeLinear": Rate(700, 0.9, 0.1),
    REQUANTIZE: Rate(700, 0.8, 0.1),
    **dict.fromkeys(["Relu", "Clip", "LeakyRelu", "Abs", "Neg"], Rate(600, 0.22, 0.1)),
    **dict.fromkeys(["HardSwish", "HardSigmoid", "Swish", "Reciprocal"], Rate(700, 0.4, 0.1)),
    **dict.fromkeys(["Sigmoid", "Exp"], Rate(700, 0.52, 0.1)),
    "Tanh": Rate(700, 0.72, 0.1),
    **dict.fromkeys(["Erf", "Gelu"], Rate(700, 1.0, 0.1)),
    "BatchNormalization": Rate(900, 0.35, 0.1),
    "Softmax": Rate(600, 0.48, 0.1),
    **dict.fromkeys(["LayerNormalization", "RMSNormalization"], Rate(700, 0.45, 0.1)),
}
"""Rates of compiled kernels."""
_SINGLE = np.dtype(np.float32)
_WINDOWS = frozenset(["MaxPool", "AveragePool", "LpPool"])
_MEASURED = frozenset(["Conv", "ConvTranspose", "Attention", "GRU", "LSTM", "QLinearConv", "RNN"])
"""Operators whose scratch memory choices cost nanoseconds; others' costs are relative."""


def nanoseconds(
    signature: Signature, kernel: Kernel, slots: Sequence[tuple[Sequence[Choice], Choice]] = ()
) -> float:
    """
    Return the estimated time for one kernel run.

    Parameters
    ----------
    slots : sequence of (choices, choice)
        For each workspace of the kernel the possible sizes, and the actual size.
    """
    if signature.op in _MEASURED:
        if slots:
            return sum(choice.cost for _, choice in slots)
        if kernel.cut is not None and kernel.cut.time is not None:
            return kernel.cut.time(signature)
    slower = 1.0
    for choices, choice in slots:
        least = min(each.cost for each in choices)
        slower *= choice.cost / least if least > 0 else 1.0
    return slower * _base(signature, kernel)


def _base(signature: Signature, kernel: Kernel) -> float:
    """Return a kernel's time with the fastest scratch memory."""
    if kernel.cut in (GEMM, PRODUCT) or signature.op == "MatMul":
        return _product(signature)
    tensors = [tensor for tensor in (*signature.inputs, *signature.outputs) if tensor is not None]
    if not tensors:
        return _DEFAULT.calls
    if signature.op in _WINDOWS:
        taps: int = prod(signature.attributes.get("kernel_shape", ()))
        return 3000.0 + _TAP * taps * sum(_elements(out) for out in signature.outputs[:1])
    rate = rate_of(signature)
    widest = max(_elements(tensor) for tensor in (*signature.inputs[:1], *signature.outputs))
    missed = max(sum(map(_elements, tensors)) - _CACHED, 0)
    return rate.calls + rate.element * widest + rate.missed * missed


def rate_of(signature: Signature) -> Rate:
    """Return the rate of an operator whose time depends on the number of elements alone."""
    if signature.op == CHAIN:
        own: Rate = signature.attributes[RATE]
        return own
    rate = _RATES.get(signature.op, _DEFAULT)
    tensors = [tensor for tensor in (*signature.inputs, *signature.outputs) if tensor is not None]
    is_single = all(tensor.dtype == _SINGLE for tensor in tensors)
    if is_enabled() and (is_single or operands_of(signature) is not None):
        rate = _COMPILED.get(signature.op, rate)
    return rate


def _product(signature: Signature) -> float:
    """Return the time of a product of matrices, or of matrix stacks."""
    a, b, output = signature.input(0), signature.input(1), signature.outputs[0]
    if a is None or b is None or output is None or not a.shape or not b.shape:
        return _DEFAULT.calls
    stacks = prod(b.shape[:-2])
    columns = output.shape[-1] if len(b.shape) > 1 else 1
    inner = a.shape[-2] if signature.attributes.get("transA", 0) else a.shape[-1]
    rows = _elements(output) // max(stacks * columns, 1)
    right = stacks * inner * columns
    is_packed = is_enabled() and signature.constant[1] is not None and b.dtype == _SINGLE
    fetched = right * (_STREAMED if is_packed or rows == 1 else _FETCHED)
    multiplied = 2 * MULTIPLY * rows * right if rows > 1 else 0.0
    return 500.0 + _STACKED * stacks + multiplied + fetched


def _elements(tensor: Tensor | None) -> int:
    return 0 if tensor is None else prod(tensor.shape)
