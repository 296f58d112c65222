"""Effects of ATen operators on memory: one table, for files and live programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arenaplan.graph import NO_EFFECTS, Effects
from arenaplan.importers.common import Shape
from arenaplan.importers.flows import Pieces
from arenaplan.importers.rules import (
    Op,
    Rule,
    contiguous,
    elementwise,
    ends,
    first_operand,
    joined,
    parted,
    permuted,
    piece,
    row,
    same_type,
    view,
)


def conversion(op: Op) -> Effects:
    """A view if the type stays, and else elementwise."""
    return view(op) if same_type(op) else first_operand(op)


def dropout(op: Op) -> Effects:
    """A view when inferring; when training, elementwise with random numbers."""
    return first_operand(op) if op.arguments.get("train") else view(op)


def transpose(op: Op) -> Effects:
    """A view if two dimensions change places of which the larger part is 1."""
    x, first, second = op.inputs[0], op.integer("dim0", 0), op.integer("dim1", 1)
    if x is None or first is None or second is None:
        return NO_EFFECTS
    rank = len(x.shape)
    perm = list(range(rank))
    first, second = first % max(rank, 1), second % max(rank, 1)
    if perm:
        perm[first], perm[second] = perm[second], perm[first]
    return permuted(op, perm)


def permute(op: Op) -> Effects:
    """A view if only dimensions of 1 change places."""
    x, dims = op.inputs[0], op.arguments.get("dims")
    if x is None or not isinstance(dims, list) or not all(isinstance(d, int) for d in dims):
        return NO_EFFECTS
    return permuted(op, [dim + len(x.shape) if dim < 0 else dim for dim in dims])


def cat(op: Op) -> Effects:
    """Operands are pieces of the output."""
    return joined(op, op.integer("dim", 0))


def split(op: Op) -> Effects:
    """Outputs are pieces of the operand."""
    return parted(op, op.integer("dim", 0))


def slice_(op: Op) -> Effects:
    """The output is a piece of the operand if its elements are neighbors there."""
    start, step = op.arguments.get("start"), op.integer("step", 1)
    return _from(op, 0 if start is None else start) if step == 1 else NO_EFFECTS


def select(op: Op) -> Effects:
    """The output is a row of the operand if nothing varies before the dimension."""
    return _from(op, op.arguments.get("index"))


def _from(op: Op, start: object) -> Effects:
    """Return a view from index ``start`` of the dimension ``dim``."""
    x, y = ends(op)
    axis = op.integer("dim", 0)
    if x is None or axis is None or not isinstance(start, int) or not x.shape:
        return NO_EFFECTS
    axis += len(x.shape) if axis < 0 else 0
    if not contiguous(x, axis):
        return NO_EFFECTS
    start = min(max(0, start + x.shape[axis] if start < 0 else start), x.shape[axis])
    return piece(x, y, start * row(x, axis))


_ELEMENTWISE = """
    add addcdiv addcmul atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift
    bitwise_xor copysign div eq floor_divide fmax fmin fmod ge gt hypot le lerp logaddexp
    logical_and logical_or logical_xor lt masked_fill maximum minimum mul ne pow remainder rsub
    sub true_divide where xlogy
"""

_FIRST_OPERAND = """
    _log_softmax _softmax abs acos acosh asin asinh atan atanh batch_norm bitwise_not ceil celu
    clamp clamp_max clamp_min cos cosh digamma elu erf erfc erfinv exp exp2 expm1 floor frac gelu
    group_norm hardshrink hardsigmoid hardswish hardtanh instance_norm isfinite isinf isnan
    layer_norm leaky_relu lgamma log log10 log1p log2 log_sigmoid log_softmax logical_not logit
    mish nan_to_num native_layer_norm neg prelu reciprocal relu relu6 rms_norm round rsqrt selu
    sgn sigmoid sign signbit silu sin sinc sinh softmax softplus softshrink sqrt square tan tanh
    threshold trunc
"""

_UPDATES = """
    diagonal_scatter index_add index_copy index_fill index_put masked_scatter scatter scatter_add
    scatter_reduce select_scatter slice_scatter
"""

_VIEWS = """
    _unsafe_view alias clone contiguous detach detach_ expand flatten lift_fresh_copy reshape
    squeeze unflatten unsqueeze view
"""

EFFECTS: Mapping[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE.split(), elementwise),
    **dict.fromkeys(_FIRST_OPERAND.split(), first_operand),
    **dict.fromkeys(_UPDATES.split(), first_operand),
    **dict.fromkeys(_VIEWS.split(), view),
    "_to_copy": conversion,
    "cat": cat,
    "chunk": split,
    "dropout": dropout,
    "permute": permute,
    "select": select,
    "slice": slice_,
    "split": split,
    "split_with_sizes": split,
    "to": conversion,
    "transpose": transpose,
    "unbind": split,
}
"""Effects by operator of the namespace ``aten``, without its overload."""

_ROWS = "_log_softmax _softmax layer_norm linear log_softmax matmul mm rms_norm softmax"
_ANCHORS = "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution"
_PLANES = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d
    reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d upsample_bicubic2d
    upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d upsample_trilinear3d
"""
_WHOLE = frozenset({"group_norm", "instance_norm", "native_layer_norm"})

PIECES: Mapping[str, Pieces] = {
    **dict.fromkeys(_ELEMENTWISE.split(), "elements"),
    **dict.fromkeys([op for op in _FIRST_OPERAND.split() if op not in _WHOLE], "first"),
    **dict.fromkeys(_ROWS.split(), "rows"),
    **dict.fromkeys(_ANCHORS.split(), "any"),
    **dict.fromkeys(_PLANES.split(), "planes"),
}
"""In which pieces ATen operators can work, where rows are along the last dimension."""

LOADS = frozenset({"conv1d", "conv2d", "conv3d", "convolution", "linear", "matmul", "mm"})
"""Operators that can copy operand 0 tile by tile before they compute with it."""


def pieces(op: str, arguments: Mapping[str, Any], operand: Shape | None) -> Pieces | None:
    """Return in which pieces an operator can work, given operand 0's shape."""
    known = PIECES.get(op)
    if op == "batch_norm" and arguments.get("training"):
        return None  # Statistics are those of the batch.
    rank = 0 if operand is None else len(operand)
    if op in ("constant_pad_nd", "pad"):
        pads = arguments.get("pad")
        return "planes" if isinstance(pads, list) and len(pads) <= 2 * (rank - 2) else None
    if known in ("planes", "any"):
        # Of a single image without its dimension, channels come first.
        is_batch = rank == int(op[-2]) + 2 if op[-2].isdigit() else rank > 2
        if known == "planes":
            return known if is_batch else None
        is_apart = "transpose" not in op and not arguments.get("transposed")
        if operand is not None and is_batch and is_apart:
            return "planes" if 1 < operand[1] == arguments.get("groups", 1) else known
    if known == "rows" and "softmax" in op:
        dim = arguments.get("dim", -1)
        return known if dim in (-1, rank - 1) else None
    if known == "rows" and op in ("layer_norm", "rms_norm"):
        shape = arguments.get("normalized_shape")
        return known if isinstance(shape, list) and len(shape) == 1 else None
    return known


_OTHER_ALIASES = """
    as_strided chunk diagonal expand_as imag mT movedim moveaxis narrow numpy_T permute real
    reshape_as select slice split split_with_sizes squeeze_ swapaxes swapdims t to transpose
    type_as unbind unfold unsqueeze_ unsafe_chunk unsafe_split view_as view_as_complex
    view_as_real
"""

ALIASES = frozenset([*_VIEWS.split(), *_OTHER_ALIASES.split()])
"""Operators whose results may be views in PyTorch: writing to one shows in the other."""

RANDOM = frozenset(
    {"bernoulli", "multinomial", "normal", "rand", "rand_like", "randint", "randn", "randn_like"}
)
"""Operators whose results differ from run to run, for any inputs."""


def is_in_place(base: str) -> bool:
    """Whether an operator of the namespace ``aten`` writes to its operand."""
    return base.endswith("_") and not base.endswith("__") and base != "detach_"
