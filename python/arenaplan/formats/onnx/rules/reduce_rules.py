"""Shape rules for operators that sum products, reduce or select."""

from __future__ import annotations

from collections.abc import Sequence

from arenaplan.base.errors import InvalidAttribute, InvalidOperand, ShapeMismatch
from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.op import OnnxOperand, Op
from arenaplan.formats.onnx.rules.elementwise_rules import broadcast
from arenaplan.graph.ops import Shape

REDUCTIONS = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")


def product_shape(op: Op, a: Shape, b: Shape) -> Shape:
    """Return a matrix product's shape."""
    if not a or not b:
        raise op.error(ShapeMismatch, f"shapes {a} and {b} have no product")
    inner = b[-2] if len(b) > 1 else b[0]
    if a[-1] != inner:
        raise op.error(ShapeMismatch, f"shapes {a} and {b} have no product")
    return broadcast(op, a[:-2], b[:-2]) + a[-2:-1] + (b[-1:] if len(b) > 1 else ())


def matmul(op: Op) -> Sequence[Result]:
    """Stacks of matrices."""
    a, b = op.pair(0, 1)
    return ((product_shape(op, a.shape, b.shape), a.dtype),)


def matmul_integer(op: Op) -> Sequence[Result]:
    """Small integers give large integers."""
    return ((product_shape(op, op.input(0).shape, op.input(1).shape), "int32"),)


def qlinear_matmul(op: Op) -> Sequence[Result]:
    """
    Operands and result have a scale and a zero point each; the result has its zero point's type.
    """
    return ((product_shape(op, op.input(0).shape, op.input(3).shape), op.input(7).dtype),)


def gemm(op: Op) -> Sequence[Result]:
    """Two matrices, each possibly transposed, and an addend."""
    a, b = op.pair(0, 1)
    shape = matrix_product(op, a, b)
    c = op.optional(2)
    if c is not None and broadcast(op, c.shape, shape) != shape:
        raise op.error(
            ShapeMismatch, f"an addend of shape {c.shape} for a product of shape {shape}"
        )
    return ((shape, a.dtype),)


def matrix_product(op: Op, a: OnnxOperand, b: OnnxOperand) -> Shape:
    """Return the shape of a product of two matrices, each possibly transposed."""
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise op.error(ShapeMismatch, f"shapes {a.shape} and {b.shape} are not matrices")
    rows, inner = a.shape[::-1] if op.flag("transA") else a.shape
    other, columns = b.shape[::-1] if op.flag("transB") else b.shape
    if inner != other:
        raise op.error(ShapeMismatch, f"shapes {a.shape} and {b.shape} have no product")
    return rows, columns


def reduced_axes(op: Op, rank: int) -> Shape:
    """Return the axes that a reduction removes, in order."""
    axes = op.either("axes", 1)
    if not axes:
        return () if op.flag("noop_with_empty_axes") else tuple(range(rank))
    return tuple(sorted(op.axes(axes, rank)))


def _without(op: Op, x: OnnxOperand, axes: Shape) -> Shape:
    """Return a shape after reducing ``axes``."""
    if op.flag("keepdims", default=True):
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(x.shape))
    return tuple(dim for axis, dim in enumerate(x.shape) if axis not in axes)


def reduction(op: Op) -> Sequence[Result]:
    """A reduction along some axes."""
    x = op.input(0)
    return ((_without(op, x, reduced_axes(op, len(x.shape))), x.dtype),)


def extremes(op: Op) -> Sequence[Result]:
    """Two elements for each part of a tensor."""
    x = op.input(0)
    return (((*x.shape[: extremes_axis(len(x.shape))], 2), x.dtype),)


def scale(op: Op) -> Sequence[Result]:
    """A scale and a zero point."""
    return (((), op.input(0).dtype), ((), "uint8"))


def extremes_axis(rank: int) -> int:
    """Return a part's first dimension: image channels or rows."""
    return 2 if rank > 3 else max(rank - 1, 0)


def arg_reduction(op: Op) -> Sequence[Result]:
    """A position along an axis."""
    x = op.input(0)
    axis = op.axis(op.integer("axis", 0), len(x.shape))
    return ((_without(op, x, (axis,)), "int64"),)


def top_k(op: Op) -> Sequence[Result]:
    """The largest elements along an axis, and their positions."""
    x = op.input(0)
    op.flags("largest", "sorted")
    axis = op.axis(op.integer("axis", -1), len(x.shape))
    if op.version < 10:
        count = op.integer("k")
    else:
        numbers = op.numbers(1)
        if len(numbers) != 1:
            raise op.error(InvalidOperand, f"k is {numbers}")
        count = numbers[0]
    if not 0 <= count <= x.shape[axis]:
        raise op.error(InvalidAttribute, f"k is {count} of {x.shape[axis]} elements")
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return ((shape, x.dtype), (shape, "int64"))
