"""
What ATen operators do to memory: one table.

Everything here is a permission, as in the other importers. Strides are not followed: a
transpose writes its result in order, and so a view of it is one of contiguous bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

from arenaplan.graph import NO_EFFECTS, Effects, InPlace, View
from arenaplan.importers.common import BITS, Shape, array_bytes
from arenaplan.importers.flows import Pieces


class Operand(NamedTuple):
    """What a rule may know about a tensor."""

    shape: Shape
    dtype: str
    is_constant: bool


class Op(NamedTuple):
    """An operator as its rule sees it."""

    inputs: Sequence[Operand | None]
    outputs: Sequence[Operand | None]
    arguments: Mapping[str, Any]
    """Arguments that are no tensors, by name."""

    def integer(self, name: str, default: int) -> int | None:
        """Return a whole number among the arguments; ``None`` if it is none."""
        value = self.arguments.get(name, default)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


Rule: TypeAlias = Callable[[Op], Effects]


def elementwise(op: Op) -> Effects:
    """Output 0 may take over each operand of its shape and at least its width."""
    return _in_place(op, range(len(op.inputs)))


def first_operand(op: Op) -> Effects:
    """Output 0 may take over operand 0; the others are parameters."""
    return _in_place(op, (0,))


def _in_place(op: Op, positions: Sequence[int]) -> Effects:
    """Return leave to take over those of some operands that are read element by element."""
    y = op.outputs[0] if op.outputs else None
    pairs = []
    for position in positions:
        x = op.inputs[position] if position < len(op.inputs) else None
        if x is None or y is None or x.is_constant or x.shape != y.shape:
            continue
        if BITS[x.dtype] >= BITS[y.dtype]:
            pairs.append(InPlace(position, 0))
    return Effects(in_place=tuple(pairs))


def view(op: Op) -> Effects:
    """Output 0 shows the bytes of operand 0."""
    x, y = (side[0] if side else None for side in (op.inputs, op.outputs))
    if x is None or y is None or x.is_constant or x.dtype != y.dtype or _size(x) != _size(y):
        return NO_EFFECTS
    return Effects(views=(View(0, 0),))


def conversion(op: Op) -> Effects:
    """A view if the type stays, and else elementwise."""
    return view(op) if _same_type(op) else first_operand(op)


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
    perm[first], perm[second] = perm[second], perm[first]
    return _permuted(op, x, perm)


def permute(op: Op) -> Effects:
    """A view if only dimensions of 1 change places."""
    x, dims = op.inputs[0], op.arguments.get("dims")
    if x is None or not isinstance(dims, list) or not all(isinstance(d, int) for d in dims):
        return NO_EFFECTS
    rank = len(x.shape)
    perm = [dim + rank if dim < 0 else dim for dim in dims]
    return _permuted(op, x, perm) if sorted(perm) == list(range(rank)) else NO_EFFECTS


def _permuted(op: Op, x: Operand, perm: Sequence[int]) -> Effects:
    """Return a view if a permutation leaves the elements where they are."""
    moved = [axis for axis in perm if x.shape[axis] != 1]
    return view(op) if moved == sorted(moved) else NO_EFFECTS


def cat(op: Op) -> Effects:
    """Operands are pieces of the output if nothing varies before the dimension."""
    y, axis = op.outputs[0] if op.outputs else None, op.integer("dim", 0)
    if y is None or axis is None or not _contiguous(y, axis):
        return NO_EFFECTS
    views, offset = [], 0
    for position, x in enumerate(op.inputs):
        if x is None:
            return NO_EFFECTS
        if not x.is_constant and x.dtype == y.dtype:
            views.append(View(position, 0, offset, "output"))
        offset += _size(x)
    return Effects(views=tuple(views)) if offset == _size(y) else NO_EFFECTS


def split(op: Op) -> Effects:
    """Outputs are pieces of the operand if nothing varies before the dimension."""
    x, axis = op.inputs[0] if op.inputs else None, op.integer("dim", 0)
    if x is None or axis is None or x.is_constant or not _contiguous(x, axis):
        return NO_EFFECTS
    views, offset = [], 0
    for position, y in enumerate(op.outputs):
        if y is None:
            return NO_EFFECTS
        views.append(View(0, position, offset))
        offset += _size(y)
    return Effects(views=tuple(views)) if offset == _size(x) else NO_EFFECTS


def slice_(op: Op) -> Effects:
    """The output is a piece of the operand if its elements are neighbors there."""
    start, step = op.arguments.get("start"), op.integer("step", 1)
    return _piece(op, 0 if start is None else start) if step == 1 else NO_EFFECTS


def select(op: Op) -> Effects:
    """The output is a row of the operand if nothing varies before the dimension."""
    return _piece(op, op.arguments.get("index"))


def _piece(op: Op, start: object) -> Effects:
    """Return a view from index ``start`` of the dimension ``dim``."""
    x, y = (side[0] if side else None for side in (op.inputs, op.outputs))
    axis = op.integer("dim", 0)
    if x is None or y is None or axis is None or not isinstance(start, int) or not x.shape:
        return NO_EFFECTS
    axis += len(x.shape) if axis < 0 else 0
    if x.is_constant or x.dtype != y.dtype or not _contiguous(x, axis):
        return NO_EFFECTS
    start = min(max(0, start + x.shape[axis] if start < 0 else start), x.shape[axis])
    offset = start * prod(x.shape[axis + 1 :]) * BITS[x.dtype] // 8
    return Effects(views=(View(0, 0, offset),)) if offset + _size(y) <= _size(x) else NO_EFFECTS


def _same_type(op: Op) -> bool:
    """Whether input and output have one element type."""
    x, y = (side[0] if side else None for side in (op.inputs, op.outputs))
    return x is not None and y is not None and x.dtype == y.dtype


def _contiguous(operand: Operand, axis: int) -> bool:
    """Whether a range along ``axis`` is one range of whole bytes."""
    rank = len(operand.shape)
    axis += rank if axis < 0 else 0
    return 0 <= axis < rank and prod(operand.shape[:axis]) == 1 and BITS[operand.dtype] >= 8


def _size(operand: Operand) -> int:
    """Return the bytes of an operand."""
    return array_bytes(operand.shape, operand.dtype)


_ELEMENTWISE = """
    add atan2 bitwise_and bitwise_or bitwise_xor div eq floor_divide fmod ge gt le logical_and
    logical_or logical_xor lt masked_fill maximum minimum mul ne pow remainder rsub sub where
"""

_FIRST_OPERAND = """
    _log_softmax _softmax abs batch_norm bitwise_not ceil clamp clamp_max clamp_min cos elu erf
    exp floor gelu group_norm hardsigmoid hardswish hardtanh instance_norm isinf isnan layer_norm
    leaky_relu log log1p log_softmax logical_not mish native_layer_norm neg prelu reciprocal relu
    relu6 rms_norm round rsqrt sigmoid sign silu sin softmax softplus sqrt square tanh
"""

_VIEWS = """
    _unsafe_view alias clone contiguous detach detach_ expand flatten lift_fresh_copy reshape
    squeeze unflatten unsqueeze view
"""

EFFECTS: Mapping[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE.split(), elementwise),
    **dict.fromkeys(_FIRST_OPERAND.split(), first_operand),
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
_WHOLE = frozenset({"group_norm", "instance_norm", "native_layer_norm"})

PIECES: Mapping[str, Pieces] = {
    **dict.fromkeys(_ELEMENTWISE.split(), "elements"),
    **dict.fromkeys([op for op in _FIRST_OPERAND.split() if op not in _WHOLE], "first"),
    **dict.fromkeys(_ROWS.split(), "rows"),
    **dict.fromkeys(_ANCHORS.split(), "any"),
}
"""In which pieces ATen operators can work, where rows are along the last dimension."""

LOADS = frozenset({"conv1d", "conv2d", "conv3d", "convolution", "linear", "matmul", "mm"})
"""Operators that can copy operand 0 tile by tile before they compute with it."""


def pieces(op: str, arguments: Mapping[str, Any], operand: Shape | None) -> Pieces | None:
    """Return in which pieces an operator can work, given operand 0's shape."""
    known = PIECES.get(op)
    if known == "rows" and "softmax" in op:
        dim = arguments.get("dim", -1)
        rank = 0 if operand is None else len(operand)
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
"""Operators whose results differ from run to run, whatever they read."""
