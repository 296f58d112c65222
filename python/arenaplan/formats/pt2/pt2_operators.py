"""Table from ATen operators to canonical operators, for files and live programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from arenaplan.formats.named import NamedOp
from arenaplan.graph import ops


def _dropout(op: NamedOp) -> ops.Operator:
    """Elementwise with random numbers when training."""
    return ops.FIRST_OPERAND if op.arguments.get("train") else ops.RESHAPE


def _batch_norm(op: NamedOp) -> ops.Operator:
    """In training, statistics come from the batch."""
    return ops.Normalize(0) if op.arguments.get("training") else ops.FIRST_OPERAND


def _layer_norm(op: NamedOp) -> ops.Operator:
    """The last dimensions, as many as in the scale's shape."""
    shape = op.integers("normalized_shape")
    return ops.Normalize(-len(shape) if shape else 0)


def _softmax(op: NamedOp) -> ops.Operator:
    axis = op.integer("dim", -1)
    return ops.Normalize(0 if axis is None else axis)


def _transpose(op: NamedOp) -> ops.Operator | None:
    """Two dimensions change places."""
    rank = len(op.shape())
    first, second = (op.integer(f"dim{at}", at) for at in (0, 1))
    if first is None or second is None or not rank:
        return ops.RESHAPE if not rank else None
    perm = list(range(rank))
    first, second = first % rank, second % rank
    perm[first], perm[second] = perm[second], perm[first]
    return ops.Transpose(perm)


def _permute(op: NamedOp) -> ops.Operator | None:
    dims, rank = op.integers("dims"), len(op.shape())
    return None if dims is None else ops.Transpose([dim + rank if dim < 0 else dim for dim in dims])


def _cat(op: NamedOp) -> ops.Operator | None:
    axis = op.integer("dim", 0)
    return None if axis is None else ops.Concat(axis)


def _split(op: NamedOp) -> ops.Operator | None:
    axis = op.integer("dim", 0)
    return None if axis is None else ops.Split(axis)


def _slice(op: NamedOp) -> ops.Operator | None:
    """The length is the result's: ends may be sizes without a number yet."""
    start = 0 if op.arguments.get("start") is None else op.integer("start", 0)
    axis, step, shape = op.integer("dim", 0), op.integer("step", 1), op.shape()
    axis = None if axis is None else ops.from_front(axis, len(shape))
    made = op.outputs[0] if op.outputs else None
    if start is None or axis is None or not step or made is None or len(made.shape) != len(shape):
        return None
    dim = shape[axis]
    start = min(max(0, start + dim if start < 0 else start), dim)
    taken = [range(size) for size in shape]
    taken[axis] = range(start, start + step * made.shape[axis], step)
    return ops.Slice(taken)


def _select(op: NamedOp) -> ops.Operator | None:
    """A single row."""
    axis, index = op.integer("dim", 0), op.arguments.get("index")
    if axis is None or not isinstance(index, int):
        return None
    return ops.one_index(op.shape(), axis, index)


def _pad(op: NamedOp) -> ops.Operator | None:
    """Amounts begin with the last dimension."""
    pads, rank = op.integers("pad"), len(op.shape())
    if pads is None or len(pads) % 2 or len(pads) > 2 * rank:
        return None
    pairs = list(zip(pads[::2], pads[1::2], strict=True))
    return ops.Pad([*[(0, 0)] * (rank - len(pairs)), *pairs[::-1]])


def _channels(dims: int) -> Callable[[NamedOp], ops.Operator | None]:
    """Image channels, which come first if there is only one image."""
    return lambda op: ops.PLANES if len(op.shape()) == dims + 2 else None


def _conv(dims: int) -> Callable[[NamedOp], ops.Operator | None]:
    """A convolution of images, or of a single image, with some space dimensions."""
    return lambda op: _convolution(op) if len(op.shape()) == dims + 2 else ops.CONVOLUTION


def _convolution(op: NamedOp) -> ops.Operator:
    """A convolution of images with any dimensions, transposed or not."""
    if op.arguments.get("transposed"):
        return ops.WHOLE
    return ops.Convolution(op.integer("groups", 1) or 1)


_ELEMENTWISE = """
    elu_backward gelu_backward hardsigmoid_backward hardswish_backward hardtanh_backward
    leaky_relu_backward native_dropout_backward sigmoid_backward silu_backward softplus_backward
    tanh_backward threshold_backward
    add addcdiv addcmul atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift
    bitwise_xor copysign div eq floor_divide fmax fmin fmod ge gt hypot le lerp logaddexp
    logical_and logical_or logical_xor lt masked_fill maximum minimum mul ne pow remainder rsub
    sub true_divide where xlogy
"""

_FIRST_OPERAND = """
    abs acos acosh asin asinh atan atanh bitwise_not ceil celu clamp clamp_max clamp_min cos cosh
    digamma elu erf erfc erfinv exp exp2 expm1 floor frac gelu hardshrink hardsigmoid hardswish
    hardtanh isfinite isinf isnan leaky_relu lgamma log log10 log1p log2 log_sigmoid logical_not
    logit mish nan_to_num neg prelu reciprocal relu relu6 round rsqrt selu sgn sigmoid sign signbit
    silu sin sinc sinh softplus softshrink sqrt square tan tanh threshold trunc
"""

_UPDATES = """
    diagonal_scatter index_add index_copy index_fill index_put masked_scatter scatter scatter_add
    scatter_reduce select_scatter slice_scatter
"""

_VIEWS = """
    _unsafe_view alias clone contiguous detach detach_ expand flatten lift_fresh_copy reshape
    squeeze unflatten unsqueeze view
"""

_PLANES = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d
    reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d upsample_bicubic2d
    upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d upsample_trilinear3d
"""

OPERATORS: Final[ops.Table[NamedOp]] = {
    **dict.fromkeys(_ELEMENTWISE.split(), ops.ELEMENTWISE),
    **dict.fromkeys(_FIRST_OPERAND.split(), ops.FIRST_OPERAND),
    **dict.fromkeys(_UPDATES.split(), ops.UPDATE),
    **dict.fromkeys(_VIEWS.split(), ops.RESHAPE),
    **dict.fromkeys(("_log_softmax", "_softmax", "log_softmax", "softmax"), _softmax),
    **dict.fromkeys(("_to_copy", "to"), ops.CONVERT),
    **dict.fromkeys(("chunk", "split", "split_with_sizes", "unbind"), _split),
    **dict.fromkeys(("constant_pad_nd", "pad"), _pad),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "rms_norm"), _layer_norm),
    **dict.fromkeys(("linear", "matmul", "mm"), ops.PRODUCT),
    **{name: _channels(int(name[-2])) for name in _PLANES.split()},
    **{f"conv{dims}d": _conv(dims) for dims in (1, 2, 3)},
    **{f"conv_transpose{dims}d": ops.WHOLE for dims in (1, 2, 3)},
    "batch_norm": _batch_norm,
    "cat": _cat,
    "convolution": _convolution,
    "dropout": _dropout,
    "group_norm": ops.Normalize(0),
    "instance_norm": ops.Normalize(2),
    "permute": _permute,
    "select": _select,
    "slice": _slice,
    "transpose": _transpose,
}
"""Canonical operators by operator in the namespace ``aten``, without overload."""

_OTHER_ALIASES = """
    as_strided chunk diagonal expand_as imag mT movedim moveaxis narrow numpy_T permute real
    reshape_as select slice split split_with_sizes squeeze_ swapaxes swapdims t to transpose
    type_as unbind unfold unsqueeze_ unsafe_chunk unsafe_split view_as view_as_complex
    view_as_real
"""

ALIASES = frozenset([*_VIEWS.split(), *_OTHER_ALIASES.split()])
"""Operators whose results may be views in PyTorch: a write to one shows in the other."""

RANDOM = frozenset(
    [
        *("bernoulli", "multinomial", "native_dropout", "normal", "rand", "rand_like"),
        *("randint", "randint_like", "randn", "randn_like", "randperm", "rrelu_with_noise"),
    ]
)
"""Operators whose results differ from run to run, for any inputs."""


def is_in_place(base: str) -> bool:
    """Whether an operator in the namespace ``aten`` writes to its operand."""
    return base.endswith("_") and not base.endswith("__") and base != "detach_"
