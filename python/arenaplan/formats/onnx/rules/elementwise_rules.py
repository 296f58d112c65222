"""Shape rules for elementwise operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from arenaplan.base.errors import InvalidAttribute, InvalidOperand, ShapeMismatch
from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.op import OnnxOperand, Op
from arenaplan.formats.onnx.tensors import dtype_of
from arenaplan.graph.ops import Shape

# fmt: off
SAME = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu",
    "Clip", "Cos", "Cosh", "CumProd", "CumSum", "Elu", "Erf", "Exp", "Floor", "Gelu",
    "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Mish", "Neg", "Not", "PRelu",
    "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh",
    "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Trilu",
)
# fmt: on
"""Operators whose result has the first input's shape and type."""

# fmt: off
ARITHMETIC = (
    "Add", "Sub", "Mul", "Div", "Mod", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
    "And", "Or", "Xor",
)
# fmt: on
COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
VARIADIC = ("Sum", "Max", "Min")


def broadcast(op: Op, first: Shape, second: Shape) -> Shape:
    """Return the shape that two operands have together."""
    if first == second:
        return first
    shape = _broadcast(first, second)
    if shape is None:
        raise op.error(ShapeMismatch, f"shapes {first} and {second} do not broadcast")
    return shape


# Networks repeat few shape pairs many times.
@lru_cache(1024)
def _broadcast(first: Shape, second: Shape) -> Shape | None:
    """Return the joint shape, or ``None`` if there is none."""
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    lead = len(longer) - len(shorter)
    dims = list(longer)
    for axis, dim in enumerate(shorter, lead):
        if dims[axis] == 1:
            dims[axis] = dim
        elif dim not in (1, dims[axis]):
            return None
    return tuple(dims)


def same(op: Op) -> Sequence[Result]:
    """A result like the first input."""
    x = op.input(0)
    return ((x.shape, x.dtype),)


def scatter(op: Op) -> Sequence[Result]:
    """A result like the first input; each update has an index."""
    indices, updates = op.input(1).shape, op.input(2).shape
    if indices != updates:
        raise op.error(ShapeMismatch, f"indices have shape {indices}, and updates {updates}")
    return same(op)


def predicate(op: Op) -> Sequence[Result]:
    """A truth value for each element."""
    return ((op.input(0).shape, "bool"),)


def _joint(op: Op, a: OnnxOperand, b: OnnxOperand) -> Shape:
    """Return two operands' joint shape, which older versions align by attributes."""
    if op.version < 7 and op.attributes.get("broadcast"):
        return a.shape
    return broadcast(op, a.shape, b.shape)


def arithmetic(op: Op) -> Sequence[Result]:
    """Two operands with the same type."""
    a, b = op.pair(0, 1)
    return ((_joint(op, a, b), a.dtype),)


def comparison(op: Op) -> Sequence[Result]:
    """Two operands with the same type; a boolean result."""
    a, b = op.pair(0, 1)
    return ((_joint(op, a, b), "bool"),)


def power(op: Op) -> Sequence[Result]:
    """The base gives the type."""
    a, b = op.input(0), op.input(1)
    return ((_joint(op, a, b), a.dtype),)


def variadic(op: Op) -> Sequence[Result]:
    """Any number of operands with the same type."""
    first = op.input(0)
    shape = first.shape
    for position in range(1, len(op.inputs)):
        _, other = op.pair(0, position)
        shape = broadcast(op, shape, other.shape)
    return ((shape, first.dtype),)


def where(op: Op) -> Sequence[Result]:
    """A condition and two operands with the same type."""
    condition, a, b = op.input(0), op.input(1), op.input(2)
    if a.dtype != b.dtype or condition.dtype != "bool":
        raise op.error(
            InvalidOperand,
            f"its inputs are of the types {condition.dtype}, {a.dtype} and {b.dtype}",
        )
    return ((broadcast(op, broadcast(op, condition.shape, a.shape), b.shape), a.dtype),)


_OLD_CASTS = {
    "FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6,
    "INT64": 7, "STRING": 8, "BOOL": 9, "FLOAT16": 10, "DOUBLE": 11,
}  # fmt: skip


def cast(op: Op) -> Sequence[Result]:
    """A type by number; the first versions use the name."""
    to = op.attributes.get("to")
    code = _OLD_CASTS.get(to, 0) if isinstance(to, str) else op.integer("to")
    return ((op.input(0).shape, dtype_of(code, op.label)),)


def cast_like(op: Op) -> Sequence[Result]:
    """The second input gives the type."""
    return ((op.input(0).shape, op.input(1).dtype),)


def dropout(op: Op) -> Sequence[Result]:
    """The data and a mask."""
    x = op.input(0)
    return ((x.shape, x.dtype), (x.shape, "bool" if op.version >= 10 else x.dtype))


def quantize(op: Op) -> Sequence[Result]:
    """The zero point gives the type."""
    zero_point = op.optional(2)
    code = op.integer("output_dtype", 0)
    if zero_point is not None:
        dtype = zero_point.dtype
    else:
        dtype = dtype_of(code, op.label) if code else "uint8"
    return ((op.input(0).shape, dtype),)


def dequantize(op: Op) -> Sequence[Result]:
    """The scale gives the type."""
    code = op.integer("output_dtype", 0)
    dtype = dtype_of(code, op.label) if code else op.input(1).dtype
    return ((op.input(0).shape, dtype),)


def softmax(op: Op) -> Sequence[Result]:
    """The axis must exist."""
    x = op.input(0)
    if x.shape:
        op.axis(op.integer("axis", -1 if op.version >= 13 else 1), len(x.shape))
    return ((x.shape, x.dtype),)


def batch_norm(op: Op) -> Sequence[Result]:
    """The data, and when training two (once four) statistics."""
    x, scale = op.input(0), op.input(1)
    shape = x.shape
    if len(shape) < 2 or scale.shape != shape[1:2]:
        raise op.error(ShapeMismatch, f"a scale of shape {scale.shape} for data of shape {shape}")
    statistics = (scale.shape, (op.optional(3) or scale).dtype)
    return ((shape, x.dtype), statistics, statistics, statistics, statistics)


def trains(op: Op) -> bool:
    """Whether a BatchNormalization computes its own statistics."""
    if op.version < 7 and not op.attributes.get("is_test", 0):
        return True
    return bool(op.attributes.get("training_mode", 0)) or len(list(filter(None, op.outputs))) > 1


def lrn(op: Op) -> Sequence[Result]:
    """A window over channels."""
    if op.integer("size") < 1:
        raise op.error(InvalidAttribute, f"attribute 'size' is {op.integer('size')}")
    return same(op)


def layer_norm(op: Op) -> Sequence[Result]:
    """The data, and the mean and deviation over the last axes."""
    x = op.input(0)
    axis = op.axis(op.integer("axis", -1), len(x.shape))
    reduced = x.shape[:axis] + (1,) * (len(x.shape) - axis)
    stash = dtype_of(op.integer("stash_type", 1), op.label)
    return ((x.shape, x.dtype), (reduced, stash), (reduced, stash))


def channel_norm(op: Op) -> Sequence[Result]:
    """A group or all channels of ``(N, C, …)``."""
    x = op.input(0)
    if len(x.shape) < 2:
        raise op.error(ShapeMismatch, f"data of shape {x.shape} has no channels")
    groups = op.integer("num_groups", 1)
    if groups < 1 or x.shape[1] % groups:
        raise op.error(InvalidAttribute, f"{groups} groups of {x.shape[1]} channels")
    return ((x.shape, x.dtype),)
