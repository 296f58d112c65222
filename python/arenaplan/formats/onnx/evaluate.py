"""
Table of evaluators for operators with constant inputs.

Only operators that appear where models compute shapes, masks and weights; an operator
that is not here is left to the executor. Random ones must never be here. Constant, Shape and Size
read no data: the walk folds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any, Literal

import numpy as np

from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.op import Arrays, Evaluate, Op
from arenaplan.formats.onnx.rules.layout_rules import pads, slices
from arenaplan.formats.onnx.rules.reduce_rules import reduced_axes
from arenaplan.formats.onnx.tensors import StoredTensor, numpy_dtype

Array = np.ndarray


def _present(arrays: Arrays) -> list[Array]:
    """Return the operands that are not left out."""
    return [array for array in arrays if array is not None]


def _plain(function: Callable[..., Any]) -> Evaluate:
    """Return an evaluator that applies ``function`` to all operands."""

    def evaluate(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
        return (function(*_present(arrays)),)

    return evaluate


def _folding(function: Callable[[Any, Any], Any]) -> Evaluate:
    """Return an evaluator that combines operands one after the other."""

    def evaluate(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
        return (reduce(function, _present(arrays)),)

    return evaluate


def _view(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """The same elements in another shape."""
    return (_present(arrays)[0].reshape(results[0][0]),)


def _repeat(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Elements repeated to a larger shape."""
    return (np.broadcast_to(_present(arrays)[0], results[0][0]),)


def _cast(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Another element type."""
    return (_present(arrays)[0].astype(numpy_dtype(results[0][1])),)


def _constant_of_shape(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Repeat an element, without memory until a copy is made."""
    value = op.attributes.get("value")
    element = value.load().reshape(()) if isinstance(value, StoredTensor) else np.float32(0)
    return (np.broadcast_to(element, results[0][0]),)


def _range(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Numbers at a distance."""
    start, _, delta = _present(arrays)
    (count,), dtype = results[0]
    numbers = start.reshape(()) + np.arange(count) * delta.reshape(())
    return (numbers.astype(numpy_dtype(dtype)),)


def _divide(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Integers are divided towards zero."""
    a, b = _present(arrays)
    if not np.issubdtype(a.dtype, np.integer):
        return (a / b,)
    quotient = a // b
    return (quotient + ((quotient < 0) & (quotient * b != a)),)


def _modulo(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """The sign follows the divisor or the dividend."""
    return ((np.fmod if op.integer("fmod", 0) else np.mod)(*_present(arrays)),)


def _power(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """The base gives the type."""
    base, exponent = _present(arrays)
    if np.issubdtype(base.dtype, np.integer):
        # NumPy refuses negative powers of integers, which are fractions.
        exponent = exponent.astype(np.float64)
    return (np.power(base, exponent).astype(base.dtype),)


def _clip(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Bounds are attributes in older versions."""
    x = _present(arrays)[0]
    low, high = (arrays[i] if i < len(arrays) else None for i in (1, 2))
    low = op.attributes.get("min") if low is None else low
    high = op.attributes.get("max") if high is None else high
    if low is not None:
        x = np.maximum(x, np.asarray(low, x.dtype))
    if high is not None:
        x = np.minimum(x, np.asarray(high, x.dtype))
    return (x,)


def _transpose(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Dimensions in another order."""
    return (_present(arrays)[0].transpose(op.integers("perm")),)


def _concat(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Pieces side by side."""
    return (np.concatenate(_present(arrays), op.integer("axis", 1)),)


def _split(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Split along an axis."""
    axis = op.integer("axis", 0)
    ends = np.cumsum([shape[axis] for shape, _ in results])
    return np.split(_present(arrays)[0], ends[:-1], axis)


def _slice(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """A box, possibly with gaps or backwards."""
    x = _present(arrays)[0]
    taken = []
    for piece in slices(op, x.shape):
        # Counting backwards, the end before the first element is not -1 in Python.
        stop = piece.stop if piece.stop >= 0 else None
        taken.append(slice(piece.start, stop, piece.step) if len(piece) else slice(0))
    return (x[tuple(taken)],)


def _gather(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Gather rows along an axis."""
    x, indices = _present(arrays)
    return (np.take(x, indices, op.integer("axis", 0)),)


def _gather_elements(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """An element for each index."""
    x, indices = _present(arrays)
    axis = op.integer("axis", 0)
    grid = list(np.ogrid[tuple(slice(dim) for dim in indices.shape)])
    grid[axis] = indices
    return (x[tuple(grid)],)


def _tile(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Repeat all data."""
    x, repeats = _present(arrays)
    return (np.tile(x, repeats),)


def _pad(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Add a border, or cut off a border where pads are negative."""
    x = _present(arrays)[0]
    mode: Any = op.text("mode", "constant")
    given = arrays[2] if len(arrays) > 2 else None
    value = op.attributes.get("value", 0) if given is None else given.reshape(())
    border = pads(op, x.ndim)
    cut = tuple(slice(max(0, -a), x.shape[i] - max(0, -b)) for i, (a, b) in enumerate(border))
    grown = [(max(0, a), max(0, b)) for a, b in border]
    if mode != "constant":
        return (np.pad(x[cut], grown, mode),)
    return (np.pad(x[cut], grown, constant_values=np.asarray(value, x.dtype)),)


def _reduce(function: Callable[..., Any], empty: Literal["min", "max"] | None = None) -> Evaluate:
    """
    Return an evaluator for a reduction.

    For empty data, ``empty`` chooses the least or greatest number, where NumPy raises.
    """

    def evaluate(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
        x = _present(arrays)[0]
        shape, dtype = results[0]
        if empty and not x.size:
            return (np.full(shape, _extreme(x.dtype, empty)),)
        # NumPy reads an empty tuple as no axes, and returns a copy.
        reduced = function(x, axis=reduced_axes(op, x.ndim))
        return (np.asarray(reduced).astype(numpy_dtype(dtype)).reshape(shape),)

    return evaluate


def _extreme(dtype: np.dtype[Any], which: Literal["min", "max"]) -> Any:
    """Return a type's least or greatest number."""
    if dtype == np.bool_:
        return which == "max"
    if np.issubdtype(dtype, np.integer):
        return getattr(np.iinfo(dtype), which)
    return dtype.type(np.inf if which == "max" else -np.inf)


def _nonzero(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Return positions of nonzero elements."""
    return (np.array(np.nonzero(np.atleast_1d(_present(arrays)[0])), np.int64),)


def _trilu(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Return a triangle of each matrix."""
    diagonal = arrays[1] if len(arrays) > 1 else None
    k = 0 if diagonal is None else int(diagonal.reshape(()))
    return ((np.triu if op.integer("upper", 1) else np.tril)(_present(arrays)[0], k),)


def _spread(op: Op, x: Array, parameter: Array) -> Array:
    """Return a scale or zero point in a shape that broadcasts to the data."""
    axis, block = op.integer("axis", 1), op.integer("block_size", 0)
    if block:
        return np.repeat(parameter, block, axis).take(range(x.shape[axis]), axis)
    shape = [1] * x.ndim
    if parameter.size > 1:
        shape[axis] = parameter.size
    return parameter.reshape(shape)


def _dequantize(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Multiply integers by a scale: per array, per slice along an axis, or per block of slices."""
    x, scale = _present(arrays)[:2]
    zero_point = arrays[2] if len(arrays) > 2 else None
    shifted = x.astype(np.float32)
    if zero_point is not None:
        shifted = shifted - _spread(op, x, zero_point.astype(np.float32))
    return (shifted * _spread(op, x, scale.astype(np.float32)),)


def _quantize(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Quotients by a scale, rounded to the nearest integer, ties to even, and bounded."""
    x, scale = _present(arrays)[:2]
    zero_point = arrays[2] if len(arrays) > 2 else None
    limits = np.iinfo(numpy_dtype(results[0][1]))
    rounded = np.rint(x.astype(np.float32) / _spread(op, x, scale.astype(np.float32)))
    if zero_point is not None:
        rounded = rounded + _spread(op, x, zero_point.astype(np.float32))
    return (np.clip(rounded, limits.min, limits.max).astype(limits.dtype),)


def _sigmoid(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """The logistic function."""
    x = _present(arrays)[0]
    return (1 / (1 + np.exp(-x)),)


def _softmax(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """
    Normalize exponentials by their sum; before version 13, over all dimensions from the axis on.
    """
    x = _present(arrays)[0]
    if op.version < 13:
        axis = op.axis(op.integer("axis", 1), x.ndim)
        rows = x.reshape(prod(x.shape[:axis]), -1)
        power = np.exp(rows - rows.max(1, keepdims=True))
        return ((power / power.sum(1, keepdims=True)).reshape(x.shape),)
    axis = op.integer("axis", -1)
    power = np.exp(x - x.max(axis, keepdims=True))
    return (power / power.sum(axis, keepdims=True),)


def _cumulative(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """Sum all elements up to each element along an axis, forwards or backwards."""
    x, where = _present(arrays)
    axis = op.axis(int(where.reshape(())), x.ndim)
    if op.integer("reverse", 0):
        x = np.flip(x, axis)
    sums = np.cumsum(x, axis, dtype=x.dtype)
    if op.integer("exclusive", 0):
        sums = np.roll(sums, 1, axis)
        sums[(slice(None),) * axis + (slice(0, 1),)] = 0
    return (np.flip(sums, axis) if op.integer("reverse", 0) else sums,)


def _scatter_nd(op: Op, arrays: Arrays, results: Sequence[Result]) -> Sequence[Array]:
    """The data with slices replaced, or combined with others."""
    data, indices, updates = _present(arrays)
    combine = {
        "none": None,
        "add": np.add,
        "mul": np.multiply,
        "max": np.maximum,
        "min": np.minimum,
    }
    function = combine[op.text("reduction", "none")]
    changed = data.copy()
    where = tuple(np.moveaxis(indices, -1, 0))
    if function is None:
        changed[where] = updates
    else:
        function.at(changed, where, updates)
    return (changed,)


EVALUATORS: Mapping[str, Evaluate] = {
    "Abs": _plain(np.abs),
    "Add": _plain(np.add),
    "And": _plain(np.logical_and),
    "Cast": _cast,
    "CastLike": _cast,
    "Ceil": _plain(np.ceil),
    "Clip": _clip,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Cos": _plain(np.cos),
    "CumSum": _cumulative,
    "DequantizeLinear": _dequantize,
    "Div": _divide,
    "Equal": _plain(np.equal),
    "Exp": _plain(np.exp),
    "Expand": _repeat,
    "Flatten": _view,
    "Floor": _plain(np.floor),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Greater": _plain(np.greater),
    "GreaterOrEqual": _plain(np.greater_equal),
    "Identity": _view,
    "Less": _plain(np.less),
    "LessOrEqual": _plain(np.less_equal),
    "Log": _plain(np.log),
    "MatMul": _plain(np.matmul),
    "Max": _folding(np.maximum),
    "Min": _folding(np.minimum),
    "Mod": _modulo,
    "Mul": _plain(np.multiply),
    "Neg": _plain(np.negative),
    "NonZero": _nonzero,
    "Not": _plain(np.logical_not),
    "Or": _plain(np.logical_or),
    "Pad": _pad,
    "Pow": _power,
    "QuantizeLinear": _quantize,
    "Range": _range,
    "Reciprocal": _plain(np.reciprocal),
    "ReduceMax": _reduce(np.max, "min"),
    "ReduceMean": _reduce(np.mean),
    "ReduceMin": _reduce(np.min, "max"),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "Relu": _plain(lambda x: np.maximum(x, x.dtype.type(0))),
    "Reshape": _view,
    "Round": _plain(np.round),
    "ScatterND": _scatter_nd,
    "Sigmoid": _sigmoid,
    "Sign": _plain(np.sign),
    "Sin": _plain(np.sin),
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Sqrt": _plain(np.sqrt),
    "Squeeze": _view,
    "Sub": _plain(np.subtract),
    "Sum": _folding(np.add),
    "Tanh": _plain(np.tanh),
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _view,
    "Where": _plain(np.where),
    "Xor": _plain(np.logical_xor),
}
"""Evaluators by operator in the default domain."""

_WHOLE_BYTES = frozenset(["int8", "uint8", "int16", "uint16"])
"""Types that constants are quantized to; others are left to the executor."""


def evaluator_of(op: Op, results: Sequence[Result]) -> Evaluate | None:
    """Return the evaluator for an operator in the default domain, if there is one."""
    is_plain = results[0][1] in _WHOLE_BYTES and not op.attributes.get("block_size", 0)
    return EVALUATORS.get(op.type) if is_plain or op.type != "QuantizeLinear" else None
