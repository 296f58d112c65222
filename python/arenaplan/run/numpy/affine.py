"""Maps ``x · scale + shift`` with constant numbers per channel, which weights can absorb."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arenaplan.run.numpy.registry import Signature

Vectors = tuple[np.ndarray | None, np.ndarray | None]
"""A scale and a shift, one element per channel each; either may be absent."""


def normalization(
    parameters: Sequence[np.ndarray], epsilon: float
) -> tuple[np.ndarray, np.ndarray]:
    """
    Return a BatchNormalization's scale and shift per channel, in double precision.

    Parameters
    ----------
    parameters : sequence of array
        Scale, shift, mean and variance.
    epsilon : float
        Added to the variance.
    """
    gain, offset, mean, variance = (np.asarray(p, np.float64).reshape(-1) for p in parameters)
    scale = gain / np.sqrt(variance + epsilon)
    return scale, offset - mean * scale


def is_channel_affine(signature: Signature, position: int) -> bool:
    """
    Return whether a node scales and shifts operand ``position`` by constants per channel.

    Channels are the indices of axis 1.
    """
    operand, output = signature.input(position), signature.outputs[0]
    if operand is None or operand != output or len(operand.shape) < 2:
        return False
    others = [at for at in range(len(signature.inputs)) if at != position]
    if not all(signature.constant[at] for at in others):
        return False
    if signature.op == "BatchNormalization":
        training = signature.attributes.get("training_mode", 0)
        return position == 0 and not training and len(others) == 4
    if signature.op in ("Add", "Mul") and signature.version >= 7 and len(others) == 1:
        other = signature.input(others[0])
        return other is not None and _has_channels(other.shape, operand.shape)
    return False


def _has_channels(shape: Sequence[int], full: Sequence[int]) -> bool:
    """Whether an operand that is broadcast to ``full`` differs between channels only."""
    before = len(full) - len(shape)
    if before < 0:
        return False
    sizes = [1] * before + list(shape)
    return all(size == 1 for axis, size in enumerate(sizes) if axis != 1) and sizes[1] in (
        1,
        full[1],
    )


def channel_affine(signature: Signature, position: int) -> Vectors:
    """Return scale and shift for a node that passes :func:`is_channel_affine`."""
    operand = signature.operand(position)
    others = [
        np.asarray(load())
        for at, load in enumerate(signature.constant)
        if at != position and load is not None
    ]
    if signature.op == "BatchNormalization":
        scale, shift = normalization(others, signature.attributes.get("epsilon", 1e-5))
        return scale.astype(operand.dtype), shift.astype(operand.dtype)
    vector = np.ascontiguousarray(np.broadcast_to(others[0].reshape(-1), operand.shape[1:2]))
    return (vector, None) if signature.op == "Mul" else (None, vector)


def then(first: Vectors, later: Vectors) -> Vectors:
    """Return the one map that does ``first`` and then ``later``."""
    scale = _times(first[0], later[0])
    shift = None if first[1] is None else _times(first[1], later[0])
    if later[1] is not None:
        shift = later[1] if shift is None else shift + later[1]
    return scale, shift


def _times(a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
    if a is None or b is None:
        return b if a is None else a
    product: np.ndarray = a * b
    return product
