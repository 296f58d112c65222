"""
How operators are cut: which part of each operand one part of the result needs.

A kernel that is registered with a :class:`Cut` can be run on parts of its operands,
so that its node can be a member of a group that runs piece by piece. A part is a box,
given by one slice per dimension; dimensions are kept, so that operands which are
broadcast still are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from arenaplan.executor.registry import Box, Cut, Signature, Tensor

Operands: TypeAlias = "list[Box | None]"


class Uncuttable(Exception):
    """An operator cannot make the part of its result that was asked for by itself."""


# -- boxes -----------------------------------------------------------------------


def whole(shape: Sequence[int]) -> Box:
    """Return the box that is all of an array."""
    return tuple(slice(0, size) for size in shape)


def is_whole(box: Box, shape: Sequence[int]) -> bool:
    """Whether a box is all of an array."""
    return all(_is_full(part, size) for part, size in zip(box, shape, strict=True))


def box_shape(box: Box) -> tuple[int, ...]:
    """Return the shape of a box."""
    return tuple(part.stop - part.start for part in box)


def _is_full(part: slice, size: int) -> bool:
    return bool(part.start == 0 and part.stop == size)


def reshaped(box: Box, old: Sequence[int], new: Sequence[int]) -> Box:
    """
    Return the box of an array of shape ``new`` that has the same elements in memory.

    Raises
    ------
    Uncuttable
        If there is none.
    """
    if tuple(old) == tuple(new):
        return box
    if is_whole(box, old):
        return whole(new)
    start, count = _run(box, old)
    found: list[slice] = []
    inner = prod(new)
    for size in new:
        inner //= max(size, 1)
        at, rest = divmod(start, inner)
        if count <= inner - rest:  # All in one index of this dimension.
            found.append(slice(at, at + 1))
            start = rest
            continue
        if rest or count % inner or at + count // inner > size:
            raise Uncuttable
        found.append(slice(at, at + count // inner))
        found += whole(new[len(found) :])
        return tuple(found)
    return tuple(found)


def _run(box: Box, shape: Sequence[int]) -> tuple[int, int]:
    """Return first element and length of a box, which must be without gaps."""
    start, count, inner, is_open = 0, 1, 1, True
    for part, size in zip(reversed(box), reversed(shape), strict=True):
        length = part.stop - part.start
        if not is_open and length != 1:
            raise Uncuttable
        is_open = is_open and length == size
        start += part.start * inner
        count *= length
        inner *= size
    return start, count


# -- what operators have in common -----------------------------------------------------


def _operand(signature: Signature, position: int) -> Tensor:
    tensor = signature.input(position)
    if tensor is None:
        raise Uncuttable
    return tensor


def _spread(tensor: Tensor | None, box: Box, shape: Sequence[int]) -> Box | None:
    """Return the part of an operand that is broadcast to ``box`` of a result."""
    if tensor is None:
        return None
    before = len(shape) - len(tensor.shape)
    if before < 0:
        raise Uncuttable
    parts = []
    for size, full, part in zip(tensor.shape, shape[before:], box[before:], strict=True):
        if size not in (1, full):
            raise Uncuttable
        parts.append(part if size == full else slice(0, 1))
    return tuple(parts)


def _shape(signature: Signature) -> tuple[int, ...]:
    output = signature.outputs[0]
    if output is None:
        raise Uncuttable
    return output.shape


def cut_operands(cut: Cut, signature: Signature, box: Box) -> Operands:
    """
    Return the part of each input that ``box`` of output 0 needs; ``None`` for all of it.

    Raises
    ------
    Uncuttable
        If there is no telling.
    """
    if is_whole(box, _shape(signature)):
        return [None] * len(signature.inputs)
    return list(cut.operands(signature, box))


# -- operators ------------------------------------------------------------------------


def _broadcast(signature: Signature, box: Box) -> Operands:
    """Every element of the result needs its own of each operand."""
    shape = _shape(signature)
    return [_spread(tensor, box, shape) for tensor in signature.inputs]


def _first_operand(signature: Signature, box: Box) -> Operands:
    """Every element needs its own of operand 0, and all of the others."""
    if _operand(signature, 0).shape != _shape(signature):
        raise Uncuttable
    return [box, *(None for _ in signature.inputs[1:])]


def _per_channel(signature: Signature, box: Box) -> Operands:
    """Operands after the first have one element per channel, that is per index of axis 1."""
    first, *others = _first_operand(signature, box)
    channel = box[1:2] if len(box) > 1 else None
    return [first, *(channel for _ in others)]


def _scaled(signature: Signature, box: Box) -> Operands:
    """Scales and zero points are single numbers, or there is one per index of an axis."""
    first, *others = _first_operand(signature, box)
    if prod(_operand(signature, 1).shape) == 1:
        return [first, *others]
    if signature.attributes.get("block_size", 0):
        raise Uncuttable
    axis = signature.attributes.get("axis", 1) % len(box)
    return [first, *((box[axis],) for _ in others)]


def _rows(default_axis: Callable[[Signature], int]) -> Callable[[Signature, Box], Operands]:
    """Elements behind the attribute ``axis`` belong together."""

    def operands(signature: Signature, box: Box) -> Operands:
        shape = _shape(signature)
        if _operand(signature, 0).shape != shape:
            raise Uncuttable
        axis = signature.attributes.get("axis", default_axis(signature)) % len(shape)
        if not is_whole(box[axis:], shape[axis:]):
            raise Uncuttable
        return [box, *(_spread(tensor, box, shape) for tensor in signature.inputs[1:])]

    return operands


def _reduced(signature: Signature, box: Box) -> Operands:
    """Axes that are reduced are needed whole."""
    shape = _operand(signature, 0).shape
    axes = signature.attributes.get("axes")
    if signature.input(1) is not None:
        data = signature.constant_data(1)
        if data is None:
            raise Uncuttable
        axes = data.reshape(-1).tolist()
    if not axes:
        raise Uncuttable
    gone = {axis % len(shape) for axis in axes}
    kept = iter(box)
    keeps = signature.attributes.get("keepdims", 1)
    parts = []
    for axis, size in enumerate(shape):
        if axis in gone:
            parts.append(slice(0, size))
            if keeps:
                next(kept)
        else:
            parts.append(next(kept))
    return [tuple(parts), *(None for _ in signature.inputs[1:])]


def _product(signature: Signature, box: Box) -> Operands:
    """Rows of the result need those of the left operand, and matrices their own on the right."""
    a, b, shape = _operand(signature, 0), _operand(signature, 1), _shape(signature)
    if min(len(a.shape), len(b.shape)) < 2 or not is_whole(box[-1:], shape[-1:]):
        raise Uncuttable
    left = _spread(Tensor((*a.shape[:-1], 1), a.dtype), box, shape)
    right = _spread(Tensor((*b.shape[:-2], 1, 1), b.dtype), box, shape)
    assert left is not None
    assert right is not None
    return [(*left[:-1], *whole(a.shape[-1:])), (*right[:-2], *whole(b.shape[-2:]))]


def _gemm(signature: Signature, box: Box) -> Operands:
    """Rows of the result need those of the left operand."""
    a, shape = _operand(signature, 0), _shape(signature)
    if signature.attributes.get("transA", 0) or not is_whole(box[1:], shape[1:]):
        raise Uncuttable
    addend = _spread(signature.input(2), box, shape)
    return [(box[0], *whole(a.shape[1:])), None, addend][: len(signature.inputs)]


def _conv_transpose(signature: Signature, box: Box) -> Operands:
    """Channels of the result need those of the weights, and all of the image."""
    shape, image = _shape(signature), _operand(signature, 0)
    if not is_whole(box[2:], shape[2:]):
        raise Uncuttable
    channels = box[1]
    # The kernel needs the weights as a matrix: those of some channels would be copied early.
    if not _is_full(channels, shape[1]) and not (
        signature.attributes.get("group", 1) == 1 and signature.constant[1]
    ):
        raise Uncuttable
    some: Box | None = None
    if signature.attributes.get("group", 1) == 1:
        weights = _operand(signature, 1).shape
        some = (slice(0, weights[0]), channels, *whole(weights[2:]))
    return [(box[0], *whole(image.shape[1:])), some, (channels,)][: len(signature.inputs)]


def _transpose(signature: Signature, box: Box) -> Operands:
    """The part that is the same but for the order of dimensions."""
    order = signature.attributes.get("perm") or range(len(box))[::-1]
    if sorted(order) != list(range(len(box))):
        raise Uncuttable
    parts = dict(zip(order, box, strict=True))
    return [tuple(parts[axis] for axis in range(len(box)))]


def _reshape(signature: Signature, box: Box) -> Operands:
    """The same elements in the same order; a shape that a run decides is that of the whole."""
    for position, tensor in enumerate(signature.inputs):
        if position and tensor is not None and signature.constant[position] is None:
            raise Uncuttable
    source = reshaped(box, _shape(signature), _operand(signature, 0).shape)
    return [source, *(None for _ in signature.inputs[1:])]


ELEMENTWISE = Cut(_broadcast, pointwise=True)
"""Operands broadcast to the result."""
UNARY = Cut(_first_operand, pointwise=True)
"""Operand 0 is as large as the result, the others are parameters."""
PER_CHANNEL = Cut(_per_channel, pointwise=True)
"""As :data:`UNARY`, and parameters have one element per channel."""
SCALED = Cut(_scaled, pointwise=True)
"""As :data:`UNARY`, and parameters are scales and zero points."""
ROWS = Cut(_rows(lambda _: -1))
"""Elements behind ``axis``, the last one by default, belong together."""
SOFTMAX = Cut(_rows(lambda signature: 1 if signature.version < 13 else -1))
"""As :data:`ROWS`; the default was the first axis but one until version 13."""
REDUCED = Cut(_reduced)
"""Some axes of operand 0 are reduced."""
PRODUCT = Cut(_product)
"""A product of matrices, or of stacks of them."""
GEMM = Cut(_gemm)
"""A product of matrices with an addend."""
CONV_TRANSPOSE = Cut(_conv_transpose)
"""A transposed convolution."""
TRANSPOSE = Cut(_transpose)
"""The same elements with dimensions in another order."""
RESHAPE = Cut(_reshape)
"""The same elements in the same order."""
