"""
Kernel cuts: the part of each operand that one part of the result needs.

A kernel with a :class:`Cut` can be run on operand parts, so that its node can be a member of a
group that runs piece by piece. The parts follow from the canonical operator
(:mod:`arenaplan.graph.ops`), whose attributes are read here from node attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TypeAlias

from arenaplan.graph import ops
from arenaplan.graph.ops.boxes import Box, Footprint, Uncuttable, is_whole, whole
from arenaplan.run.numpy.registry import Cut, Signature

Meaning: TypeAlias = "Callable[[Signature], ops.Operator]"
"""Returns a node's canonical operator."""


def _output(signature: Signature) -> tuple[int, ...]:
    output = signature.outputs[0]
    if output is None:
        raise Uncuttable
    return output.shape


def cut_operands(cut: Cut, signature: Signature, box: Box) -> Footprint:
    """
    Return the part of each input that ``box`` in output 0 needs; ``None`` for the whole input.

    Raises
    ------
    Uncuttable
        If the parts are unknown.
    """
    if is_whole(box, _output(signature)):
        return [None] * len(signature.inputs)
    return list(cut.operands(signature, box))


def footprint_of(meaning: Meaning) -> Callable[[Signature, Box], Footprint]:
    """Return a canonical operator's footprint, as a function of a node."""

    def operands(signature: Signature, box: Box) -> Footprint:
        shapes = [None if tensor is None else tensor.shape for tensor in signature.inputs]
        return meaning(signature).footprint(shapes, _output(signature), box)

    return operands


# -- operators ------------------------------------------------------------------------


def _scaled(signature: Signature) -> ops.Operator:
    """Scales and zero points are single numbers, or there is one per index of an axis."""
    scale = signature.input(1)
    if scale is not None and prod(scale.shape) == 1:
        return ops.FIRST_OPERAND
    if scale is None or signature.attributes.get("block_size", 0):
        raise Uncuttable
    return ops.FirstOperand(signature.attributes.get("axis", 1) % len(_output(signature)))


def _rows(signature: Signature) -> ops.Operator:
    return ops.Normalize(signature.attributes.get("axis", -1))


def _softmax(signature: Signature) -> ops.Operator:
    """The default was the first axis but one until version 13."""
    return ops.Normalize(signature.attributes.get("axis", 1 if signature.version < 13 else -1))


def _reduced(signature: Signature) -> ops.Operator:
    """Axes are an attribute, or a constant operand."""
    axes = signature.attributes.get("axes")
    if signature.input(1) is not None:
        data = signature.constant_data(1)
        axes = None if data is None else data.reshape(-1).tolist()
    x = signature.input(0)
    if not axes or x is None:
        raise Uncuttable
    keeps = bool(signature.attributes.get("keepdims", 1))
    return ops.Reduce([axis % len(x.shape) for axis in axes], keeps)


def _gemm(signature: Signature) -> ops.Operator:
    return ops.Product(bool(signature.attributes.get("transA", 0)))


def _transpose(signature: Signature) -> ops.Operator:
    """Dimensions are reversed if no order is given."""
    rank = len(_output(signature))
    return ops.Transpose(signature.attributes.get("perm") or range(rank)[::-1])


def _concat(signature: Signature) -> ops.Operator:
    return ops.Concat(signature.attributes.get("axis", 1))


def _reshape(signature: Signature) -> ops.Operator:
    """A shape that a run decides is the whole output's shape."""
    for position, tensor in enumerate(signature.inputs):
        if position and tensor is not None and signature.constant[position] is None:
            raise Uncuttable
    return ops.RESHAPE


def conv_transpose_channels(signature: Signature, box: Box) -> Footprint:
    """Channels in a transposed convolution need their weights, and the whole image."""
    shape, image = _output(signature), signature.input(0)
    if image is None or not is_whole(box[2:], shape[2:]):
        raise Uncuttable
    channels = box[1]
    # The kernel needs the weights as a matrix: the weights for some channels would be copied early.
    if not is_whole(box[1:2], shape[1:2]) and not (
        signature.attributes.get("group", 1) == 1 and signature.constant[1]
    ):
        raise Uncuttable
    some: Box | None = None
    if signature.attributes.get("group", 1) == 1:
        weights = signature.operand(1)
        some = (slice(0, weights.shape[0]), channels, *whole(weights.shape[2:]))
    return [(box[0], *whole(image.shape[1:])), some, (channels,)][: len(signature.inputs)]


ELEMENTWISE = Cut(footprint_of(lambda _: ops.ELEMENTWISE), pointwise=True)
"""Operands broadcast to the result."""
UNARY = Cut(footprint_of(lambda _: ops.FIRST_OPERAND), pointwise=True)
"""Operand 0 is as large as the result, the others are parameters."""
PER_CHANNEL = Cut(footprint_of(lambda _: ops.FirstOperand(1)), pointwise=True)
"""As :data:`UNARY`, and parameters have one element per channel."""
SCALED = Cut(footprint_of(_scaled), pointwise=True)
"""As :data:`UNARY`, and parameters are scales and zero points."""
ROWS = Cut(footprint_of(_rows))
"""Elements behind ``axis``, by default the last axis, belong together."""
SOFTMAX = Cut(footprint_of(_softmax))
"""As :data:`ROWS`; the default was the first axis but one until version 13."""
REDUCED = Cut(footprint_of(_reduced))
"""Some axes of operand 0 are reduced."""
PRODUCT = Cut(footprint_of(lambda _: ops.PRODUCT))
"""A product of matrices, or of matrix stacks."""
GEMM = Cut(footprint_of(_gemm))
"""A matrix product with an addend."""
TRANSPOSE = Cut(footprint_of(_transpose))
"""The same elements with dimensions in another order."""
CONCAT = Cut(footprint_of(_concat))
"""Operands one behind the other along a dimension."""
RESHAPE = Cut(footprint_of(_reshape))
"""The same elements in the same order."""
