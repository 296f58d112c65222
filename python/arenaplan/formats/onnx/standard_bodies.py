"""Standard operators that are a few others, as functions of these."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Final

import numpy as np
from onnx import FunctionProto

from arenaplan.base.errors import InvalidAttribute, InvalidOperand, ShapeMismatch
from arenaplan.formats.onnx.einsum_body import einsum
from arenaplan.formats.onnx.operator_body import BodyBuilder, Write
from arenaplan.formats.onnx.rules.reduce_rules import reduced_axes
from arenaplan.formats.onnx.symbol_schema import TRAINING
from arenaplan.formats.onnx.tensors import DTYPE_CODES


def _like(body: BodyBuilder, number: float) -> str:
    """Return a number with the element type of input 0."""
    return body.constant(number, body.op.input(0).dtype)


def _divided_by_norm(body: BodyBuilder) -> FunctionProto:
    """The quotient by a norm, which counts as 1 where the norm is 0."""
    op, x = body.op, body.name(0)
    order = op.integer("p", 2)
    if order not in (1, 2):
        raise op.error(InvalidAttribute, f"p is {order}, not 1 or 2")
    axis = op.axis(op.integer("axis", -1), len(op.input(0).shape))
    norm = body(f"ReduceL{order}", x, body.constant([axis]), keepdims=1)
    is_zero = body("Equal", norm, _like(body, 0))
    return body.function(body("Div", x, body("Where", is_zero, _like(body, 1), norm)))


def _standardized(body: BodyBuilder) -> FunctionProto:
    """The distance from the mean over the standard deviation."""
    op, x, shape = body.op, body.name(0), body.op.input(0).shape
    given = op.integers("axes")
    axes = op.axes((0, 2, 3) if given is None else given, len(shape))
    where, count = body.constant(axes), prod(shape[axis] for axis in axes)
    centered = body("Sub", x, body("ReduceMean", x, where, keepdims=1))
    squares = body("ReduceSumSquare", centered, where, keepdims=1)
    variance = body("Mul", squares, _like(body, 1 / max(count, 1)))
    deviation = _root(body, variance, op.input(0).dtype)
    return body.function(body("Div", centered, body("Add", deviation, _like(body, 1e-9))))


def _sum_of_converted(body: BodyBuilder) -> FunctionProto:
    """A sum of converted elements, converted again, in a type that holds the sum."""
    op, x, known = body.op, body.name(0), body.op.input(0)
    kind, rank = op.type.removeprefix("Reduce"), len(known.shape)
    axes = reduced_axes(op, rank)
    is_root = kind not in ("L1", "SumSquare")
    dtype = known.dtype if known.dtype.startswith("float") else ("float64" if is_root else "")
    dtype = {"float16": "float32", "bfloat16": "float32"}.get(known.dtype, dtype or known.dtype)
    if dtype != known.dtype:
        x = body("Cast", x, to=DTYPE_CODES[dtype])

    def reduced(reduction: str, each: str, keepdims: int) -> str:
        return body(reduction, each, body.constant(axes), keepdims=keepdims) if axes else each

    keepdims, top = int(op.flag("keepdims", default=True)), ""
    if kind == "LogSumExp":
        limits = np.finfo(dtype)  # Infinity minus infinity would be no number.
        bounds = [body.constant(bound, dtype) for bound in (limits.min, limits.max)]
        top = body("Clip", reduced("ReduceMax", x, 1), *bounds)
        x = body("Exp", body("Sub", x, top))
    elif kind == "L1":
        x = body("Abs", x)
    elif kind != "LogSum":
        x = body("Mul", x, x)
    y = reduced("ReduceSum", x, keepdims)
    if is_root:
        y = _root(body, y, dtype) if kind == "L2" else body("Log", y)
    if top:
        kept = body.constant(axes)
        y = body("Add", y, top if keepdims or not axes else body("Squeeze", top, kept))
    if dtype != known.dtype:
        y = body("Cast", y, to=DTYPE_CODES[known.dtype])
    return body.function(y)


def _root(body: BodyBuilder, x: str, dtype: str) -> str:
    """Return the root of numbers that are not negative, with a slope of 0 at 0."""
    sign = body("Sign", x)
    above = body("Max", x, body("Sub", body.constant(1, dtype), sign))
    return body("Mul", body("Sqrt", above), sign)


def _first_maximum(body: BodyBuilder) -> FunctionProto:
    """1 at the first maximum along an axis; before version 13, later axes belong to the axis."""
    op, x, shape = body.op, body.name(0), body.op.input(0).shape
    is_old = op.version < 13
    axis = op.axis(op.integer("axis", 1 if is_old else -1), len(shape))
    lines = (prod(shape[:axis]), prod(shape[axis:])) if is_old else shape
    along = 1 if is_old else axis
    place = body("ArgMax", body.reshape(x, *lines), axis=along, keepdims=1)
    indices = body.reshape(body.steps(lines[along]), -1, *(1 for _ in lines[along + 1 :]))
    marks = body("Cast", body("Equal", indices, place), to=DTYPE_CODES[op.input(0).dtype])
    return body.function(body.reshape(marks, *shape))


def _blocks(body: BodyBuilder) -> FunctionProto:
    """Blocks of pixels instead of channels, or channels instead of blocks."""
    op = body.op
    (n, c, h, w), size = body.dims(0, 4), op.integer("blocksize")
    is_last = op.text("mode", "DCR") == "CRD"
    if size < 1:
        raise op.error(InvalidAttribute, f"blocksize is {size}, not at least 1")
    if op.type == "DepthToSpace":
        depth = c // size**2
        if c != depth * size**2:
            raise op.error(ShapeMismatch, f"{c} channels do not make blocks of {size}x{size}")
        apart = (n, depth, size, size, h, w) if is_last else (n, size, size, depth, h, w)
        perm = (0, 1, 4, 2, 5, 3) if is_last else (0, 3, 4, 1, 5, 2)
        made = n, depth, h * size, w * size
    else:
        if h % size or w % size:
            raise op.error(ShapeMismatch, f"{h}x{w} is not made of blocks of {size}x{size}")
        apart = (n, c, h // size, size, w // size, size)
        perm = (0, 1, 3, 5, 2, 4) if is_last else (0, 3, 5, 1, 2, 4)
        made = n, c * size**2, h // size, w // size
    moved = body("Transpose", body.reshape(body.name(0), *apart), perm=perm)
    return body.function(body.reshape(moved, *made))


def _cropped_or_padded(body: BodyBuilder) -> FunctionProto:
    """Cut as much off both ends of some axes, or add as much, as a shape asks for."""
    op, shape, axes = body.op, body.op.input(0).shape, body.op.integers("axes")
    wanted = list(shape)
    chosen = range(len(shape)) if axes is None else op.axes(axes, len(shape))
    sizes = op.numbers(1)
    if len(sizes) != len(chosen):
        raise op.error(ShapeMismatch, f"shape {sizes} is for {len(chosen)} axes")
    for axis, size in zip(chosen, sizes, strict=True):
        wanted[axis] = size
    pairs = list(zip(shape, wanted, strict=True))
    cut = [max(have - want, 0) // 2 for have, want in pairs]
    ends = [first + min(pair) for first, pair in zip(cut, pairs, strict=True)]
    before = [max(want - have, 0) // 2 for have, want in pairs]
    after = [max(want - have, 0) - b for (have, want), b in zip(pairs, before, strict=True)]
    kept = body("Slice", body.name(0), body.constant(cut), body.constant(ends))
    return body.function(body("Pad", kept, body.constant([*before, *after])))


def _grid(body: BodyBuilder) -> FunctionProto:
    """The positions in a regular grid after an affine transformation."""
    op, (count, *matrix) = body.op, body.dims(0, 3)
    batch, _, *space = op.numbers(1)
    rank = len(space)
    if (batch, *matrix) != (count, rank, rank + 1):
        raise op.error(ShapeMismatch, f"{matrix} transformations for a grid {space}")
    wide = body.reshape(body.name(0), count, *(1 for _ in space), rank, rank + 1)
    columns = body.split(wide, rank + 2, *(1 for _ in range(rank + 1)))
    *columns, total = (body.reshape(x, count, *(1 for _ in space), rank) for x in columns)
    for axis, column in zip(range(rank)[::-1], columns, strict=True):  # The last axis comes first.
        length = space[axis]
        line = (np.arange(length) * 2 + 1) / max(length, 1) - 1
        if op.flag("align_corners"):
            line = np.linspace(-1, 1, length) if length > 1 else np.full(length, -1.0)
        shape = [-1, *(1 for _ in range(rank - axis))]
        step = body.reshape(body.constant(line, op.input(0).dtype), *shape)
        total = body("Add", total, body("Mul", column, step))
    return body.function(total)


def _turned(body: BodyBuilder) -> FunctionProto:
    """Turn pairs of elements of each head by angles that depend on the position."""
    op, shape = body.op, body.op.input(0).shape
    interleaved, heads = op.flag("interleaved"), op.integer("num_heads", 0)
    if len(shape) not in (3, 4):
        raise op.error(ShapeMismatch, f"input 0 of shape {shape} has neither 3 nor 4 dimensions")
    if len(shape) == 3 and (heads < 1 or shape[2] % heads):
        raise op.error(InvalidAttribute, f"num_heads is {heads} for {shape[2]} elements")
    split = shape if len(shape) == 4 else (*shape[:2], heads, shape[2] // heads)
    width = split[3]
    pairs, odd = divmod(op.integer("rotary_embedding_dim", 0) or width, 2)
    if odd or not 0 < 2 * pairs <= width:
        raise op.error(InvalidOperand, f"{2 * pairs + odd} of {width} elements cannot be turned")
    x, across = body.reshape(body.name(0), *split), body.constant([1 if len(shape) == 4 else 2])
    angles = [
        body("Gather", body.name(at), body.name(3)) if body.name(3) else body.name(at)
        for at in (1, 2)
    ]
    cos, sin = (body("Unsqueeze", angle, across) for angle in angles)
    left = [width - 2 * pairs] if width > 2 * pairs else []
    if interleaved:
        whole, *rest = body.split(x, 3, 2 * pairs, *left)
        halves = body.split(body.reshape(whole, *split[:3], pairs, 2), 4, 1, 1)
        first, second = (body.reshape(half, *split[:3], pairs) for half in halves)
    else:
        first, second, *rest = body.split(x, 3, pairs, pairs, *left)
    made = [
        body("Sub", body("Mul", first, cos), body("Mul", second, sin)),
        body("Add", body("Mul", second, cos), body("Mul", first, sin)),
    ]
    if interleaved:
        last = body.constant([4])
        both = body("Concat", *(body("Unsqueeze", half, last) for half in made), axis=4)
        made = [body.reshape(both, *split[:3], 2 * pairs)]
    return body.function(body.reshape(body("Concat", *made, *rest, axis=3), *shape))


def _mean(body: BodyBuilder) -> FunctionProto:
    names = [body.name(at) for at in range(len(body.op.inputs))]
    return body.function(body("Div", body("Sum", *names), _like(body, len(names))))


def _swiglu(body: BodyBuilder) -> FunctionProto:
    gate = body("Swish", body.name(0), alpha=body.number("alpha", 1.0))
    return body.function(body("Mul", gate, body.name(1)))


def _drawn(body: BodyBuilder) -> FunctionProto:
    """1 with the probability in the input."""
    op, given = body.op, {}
    if "seed" in op.attributes:
        given["seed"] = body.number("seed", 0.0)
    number = body("RandomUniformLike", body.name(0), **given)
    dtype = op.integer("dtype", DTYPE_CODES[op.input(0).dtype])
    return body.function(body("Cast", body("Less", number, body.name(0)), to=dtype))


# -- steps of optimizers ------------------------------------------------------------------------


def _optimizer(statistics: int, step: Any) -> Write:
    """
    Return an operator that makes new parameters and statistics.

    Parameters
    ----------
    step : callable
        Takes the body, the rate, the number of earlier steps as a real number, the parameter, the
        regularized gradient and the statistics; returns the new parameter and statistics.
    """

    def write(body: BodyBuilder) -> FunctionProto:
        op = body.op
        count, rest = divmod(len(op.inputs) - 2, 2 + statistics)
        if rest or count < 1 or len(op.outputs) != count * (1 + statistics):
            text = f"{len(op.inputs)} inputs and {len(op.outputs)} outputs"
            raise op.error(ShapeMismatch, f"{text} do not belong to whole parameters")
        made = []
        for index in range(count):
            own = [2 + index + position * count for position in range(2 + statistics)]
            x, gradient, *states = map(body.name, own)
            dtype = DTYPE_CODES[op.input(own[0]).dtype]
            rate, earlier = (body("Cast", body.name(at), to=dtype) for at in (0, 1))
            lost = body.number("norm_coefficient", 0.0)
            if lost:
                gradient = body("Add", body("Mul", x, _number(body, lost)), gradient)
            made.append(step(body, rate, earlier, x, gradient, states))
        return body.function(*(one[at] for at in range(1 + statistics) for one in made))

    return write


def _number(body: BodyBuilder, number: float) -> str:
    return body.constant(number, body.op.input(2).dtype)


def _adagrad(
    body: BodyBuilder, rate: str, earlier: str, x: str, gradient: str, states: list[str]
) -> list[str]:
    """Divide by the root of the sum over all squared gradients."""
    decay = _number(body, body.number("decay_factor", 0.0))
    rate = body("Div", rate, body("Add", body("Mul", earlier, decay), _number(body, 1)))
    total = body("Add", states[0], body("Mul", gradient, gradient))
    root = body("Add", body("Sqrt", total), _number(body, body.number("epsilon", 0.0)))
    return [body("Sub", x, body("Mul", body("Div", gradient, root), rate)), total]


def _momentum(
    body: BodyBuilder, rate: str, earlier: str, x: str, gradient: str, states: list[str]
) -> list[str]:
    """Move on in the direction of earlier steps, too."""
    alpha = _number(body, body.number("alpha", 0.0))
    is_later = body("Greater", earlier, _number(body, 0))
    share = body("Where", is_later, _number(body, body.number("beta", 0.0)), _number(body, 1))
    total = body("Add", body("Mul", states[0], alpha), body("Mul", gradient, share))
    move = total
    if body.op.text("mode") == "nesterov":
        move = body("Add", body("Mul", total, alpha), gradient)
    return [body("Sub", x, body("Mul", move, rate)), total]


def _adam(
    body: BodyBuilder, rate: str, earlier: str, x: str, gradient: str, states: list[str]
) -> list[str]:
    """Divide averaged gradients by the roots of averaged squares."""
    one = _number(body, 1)
    shares = body.number("alpha", 0.9), body.number("beta", 0.999)
    left = [body("Sub", one, body("Pow", _number(body, share), earlier)) for share in shares]
    corrected = body("Div", body("Mul", rate, body("Sqrt", left[1])), left[0])
    is_later = body("Greater", earlier, _number(body, 0))
    rate = body("Where", is_later, corrected, rate)
    means = []
    for state, share, new in zip(
        states, shares, (gradient, body("Mul", gradient, gradient)), strict=True
    ):
        kept = body("Mul", state, _number(body, share))
        means.append(body("Add", kept, body("Mul", new, _number(body, 1 - share))))
    root = body("Add", body("Sqrt", means[1]), _number(body, body.number("epsilon", 0.0)))
    made = body("Sub", x, body("Mul", body("Div", means[0], root), rate))
    after = body.number("norm_coefficient_post", 0.0)
    if after:
        made = body("Mul", made, _number(body, 1 - after))
    return [made, *means]


STANDARD_BODIES: Final[Mapping[str, Mapping[str, Write]]] = {
    "": {
        "AffineGrid": _grid,
        "Bernoulli": _drawn,
        "CenterCropPad": _cropped_or_padded,
        "DepthToSpace": _blocks,
        "Einsum": einsum,
        "Hardmax": _first_maximum,
        "LpNormalization": _divided_by_norm,
        "Mean": _mean,
        "MeanVarianceNormalization": _standardized,
        **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum"), _sum_of_converted),
        **dict.fromkeys(("ReduceLogSumExp", "ReduceSumSquare"), _sum_of_converted),
        "RotaryEmbedding": _turned,
        "SpaceToDepth": _blocks,
        "SwiGLU": _swiglu,
    },
    TRAINING: {
        "Adagrad": _optimizer(1, _adagrad),
        "Adam": _optimizer(2, _adam),
        "Momentum": _optimizer(1, _momentum),
    },
}
"""How to write a standard operator's function, by domain and name."""
