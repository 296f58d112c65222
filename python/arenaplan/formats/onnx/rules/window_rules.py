"""Shape rules for windows over space: convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from arenaplan.base.errors import InvalidAttribute, ShapeMismatch
from arenaplan.base.quoting import quoted
from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.op import Op
from arenaplan.graph.ops import Shape

_LIMIT = 1 << 31


class WindowAttributes(NamedTuple):
    """A window's attributes, complete and in range."""

    kernel: Shape
    strides: Shape
    dilations: Shape
    before: Shape
    """Padding before each axis."""
    after: Shape
    """Padding after each axis."""
    auto_pad: str


def window(op: Op, rank: int, kernel: Shape | None = None) -> WindowAttributes:
    """
    Return an operator's window over ``rank`` space axes.

    Raises
    ------
    InvalidAttribute
        If an attribute is out of range.
    """
    given = op.integers("kernel_shape")
    if given is None:
        if kernel is None:
            raise op.error(InvalidAttribute, "attribute 'kernel_shape' is missing")
        given = kernel
    elif kernel is not None and given != kernel:
        raise op.error(ShapeMismatch, f"kernel_shape {given} contradicts the weight's {kernel}")
    strides, dilations, pads = map(op.integers, ("strides", "dilations", "pads"))
    try:
        return _checked(rank, given, strides, dilations, pads, check_auto_pad(op))
    except InvalidAttribute as error:
        raise op.error(InvalidAttribute, str(error)) from None


# Networks repeat few windows many times.
@lru_cache(1024)
def _checked(
    rank: int,
    kernel: Shape,
    strides: Shape | None,
    dilations: Shape | None,
    pads: Shape | None,
    auto_pad: str,
) -> WindowAttributes:
    """Return a window whose attributes are in range."""
    strides = strides or (1,) * rank
    dilations = dilations or (1,) * rank
    pads = pads or (0,) * (2 * rank)
    for name, values, count, least in (
        ("kernel_shape", kernel, rank, 1),
        ("strides", strides, rank, 1),
        ("dilations", dilations, rank, 1),
        ("pads", pads, 2 * rank, 0),
    ):
        if len(values) != count:
            raise InvalidAttribute(f"{name} {values} for {rank} axes of space")
        if values and (min(values) < least or max(values) >= _LIMIT):
            raise InvalidAttribute(f"{name} {values} is out of range")
    return WindowAttributes(kernel, strides, dilations, pads[:rank], pads[rank:], auto_pad)


def check_auto_pad(op: Op) -> str:
    """Return how an operator wants to be padded."""
    auto_pad = op.text("auto_pad", "NOTSET")
    if auto_pad not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise op.error(InvalidAttribute, f"auto_pad is {quoted(auto_pad)}")
    return auto_pad


def _positions(op: Op, space: Shape, sliding: WindowAttributes, ceil: bool = False) -> Shape:
    """Return how many positions the window has on each axis."""
    dims = _slide(space, sliding, ceil)
    if dims and min(dims) < 0:
        raise op.error(ShapeMismatch, f"a window {sliding.kernel} does not fit into {space}")
    return dims


@lru_cache(1024)
def _slide(space: Shape, sliding: WindowAttributes, ceil: bool) -> Shape:
    """Return the number of window positions along each axis; -1 if the window does not fit."""
    if sliding.auto_pad.startswith("SAME"):
        return tuple(-(-dim // step) for dim, step in zip(space, sliding.strides, strict=True))
    dims = []
    for axis, dim in enumerate(space):
        before, after, step = sliding.before[axis], sliding.after[axis], sliding.strides[axis]
        if sliding.auto_pad == "VALID":
            before = after = 0
        free = dim + before + after - (sliding.dilations[axis] * (sliding.kernel[axis] - 1) + 1)
        count = free // step + 1
        # A last, partial window counts only if it starts before the padding that follows.
        if ceil and free % step and count * step < dim + before:
            count += 1
        dims.append(count if free >= 0 or count > 0 else -1)
    return tuple(dims)


def _space(op: Op, shape: Shape) -> Shape:
    """Return the axes of ``(N, C, …)`` that a window moves along."""
    if len(shape) < 3:
        raise op.error(ShapeMismatch, f"data of shape {shape} has no axes of space")
    return shape[2:]


def conv(op: Op) -> Sequence[Result]:
    """Data ``(N, C, …)`` with weights ``(M, C / group, …)``."""
    return ((_convolved(op, 1, 2), op.input(0).dtype),)


def conv_integer(op: Op) -> Sequence[Result]:
    """Small integers give large integers; inputs after the weights are zero points."""
    return ((_convolved(op, 1, None), "int32"),)


def qlinear_conv(op: Op) -> Sequence[Result]:
    """
    Data, weights and result have a scale and a zero point; the result has its zero point's type.
    """
    return ((_convolved(op, 3, 8), op.input(7).dtype),)


def _convolved(op: Op, weights: int, addend: int | None) -> Shape:
    """Return the shape of a convolution with weights and bias at given positions."""
    x, w = op.input(0), op.input(weights)
    space = _space(op, x.shape)
    _grouped(op, x.shape, w.shape, is_transposed=False)
    bias = None if addend is None else op.optional(addend)
    if bias is not None and bias.shape != w.shape[:1]:
        raise op.error(
            ShapeMismatch, f"a bias of shape {bias.shape} for weights of shape {w.shape}"
        )
    sliding = window(op, len(space), w.shape[2:])
    return (x.shape[0], w.shape[0], *_positions(op, space, sliding))


def _grouped(op: Op, x: Shape, w: Shape, *, is_transposed: bool) -> int:
    """Return the number of groups, which data and weights must fit."""
    group = op.integer("group", 1)
    if group < 1:
        raise op.error(InvalidAttribute, f"group is {group}")
    if len(w) != len(x) or (
        w[0] != x[1] or x[1] % group if is_transposed else w[1] * group != x[1] or w[0] % group
    ):
        raise op.error(
            ShapeMismatch, f"weights of shape {w} in {group} groups for data of shape {x}"
        )
    return group


def conv_transpose(op: Op) -> Sequence[Result]:
    """Data ``(N, C, …)`` with weights ``(C, M / group, …)``."""
    x, w = op.input(0), op.input(1)
    space = _space(op, x.shape)
    rank = len(space)
    group = _grouped(op, x.shape, w.shape, is_transposed=True)
    sliding = window(op, rank, w.shape[2:])
    extra = op.integers("output_padding") or (0,) * rank
    if len(extra) != rank or not all(0 <= dim < _LIMIT for dim in extra):
        raise op.error(InvalidAttribute, f"output_padding {extra} is out of range")
    dims = op.integers("output_shape")
    if dims is not None:
        # Old versions repeat batch and channels here.
        dims = dims[-rank:]
        if len(dims) != rank or min(dims) < 1:
            raise op.error(InvalidAttribute, f"output_shape {dims} is out of range")
    elif sliding.auto_pad.startswith("SAME"):
        dims = tuple(dim * step for dim, step in zip(space, sliding.strides, strict=True))
    else:
        pads = [a + b for a, b in zip(sliding.before, sliding.after, strict=True)]
        if sliding.auto_pad == "VALID":
            pads = [0] * rank
        dims = tuple(
            sliding.strides[axis] * (dim - 1)
            + extra[axis]
            + (sliding.kernel[axis] - 1) * sliding.dilations[axis]
            + 1
            - pads[axis]
            for axis, dim in enumerate(space)
        )
        if min(dims) < 0:
            raise op.error(
                ShapeMismatch, f"pads {sliding.before} and {sliding.after} leave nothing"
            )
    return (((x.shape[0], w.shape[1] * group, *dims), x.dtype),)


def pool(op: Op) -> Sequence[Result]:
    """Pooled data; for MaxPool also the maxima's positions."""
    x = op.input(0)
    space = _space(op, x.shape)
    sliding = window(op, len(space))
    shape = (*x.shape[:2], *_positions(op, space, sliding, op.flag("ceil_mode")))
    return ((shape, x.dtype), (shape, "int64"))


def global_pool(op: Op) -> Sequence[Result]:
    """An element per channel."""
    x = op.input(0)
    space = _space(op, x.shape)
    return (((*x.shape[:2], *(1 for _ in space)), x.dtype),)


def max_unpool(op: Op) -> Sequence[Result]:
    """MaxPool's image: the shape in an operand, or the smallest shape pooled to the input."""
    x = op.input(0)
    space = _space(op, x.shape)
    sliding = window(op, len(space))
    if op.optional(2) is not None:
        shape = op.numbers(2)
        if len(shape) != len(x.shape) or min(shape) < 0:
            raise op.error(ShapeMismatch, f"output_shape {shape} for data of shape {x.shape}")
        return ((shape, x.dtype),)
    dims = tuple(
        (dim - 1) * sliding.strides[axis]
        - sliding.before[axis]
        - sliding.after[axis]
        + sliding.kernel[axis]
        for axis, dim in enumerate(space)
    )
    if min(dims) < 0:
        raise op.error(ShapeMismatch, f"pads {sliding.before} and {sliding.after} leave nothing")
    return (((*x.shape[:2], *dims), x.dtype),)
