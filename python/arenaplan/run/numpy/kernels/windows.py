"""Windows that slide over an image: common parts of convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arenaplan.base.errors import InvalidAttribute
from arenaplan.graph.ops.window_ops import Axis, same_padding
from arenaplan.run.numpy.registry import Signature
from arenaplan.run.numpy.strided import as_strided


def window_axes(signature: Signature, kernel_shape: Sequence[int]) -> list[Axis]:
    """
    Return how a node's window slides over each spatial dimension of the first input.

    Raises
    ------
    InvalidAttribute
        If strides, dilations, pads or the output's shape make no sense.
    """
    source, result = signature.input(0), signature.outputs[0]
    if source is None or result is None or len(source.shape) != len(kernel_shape) + 2:
        raise _invalid(signature, f"a kernel of shape {tuple(kernel_shape)} does not fit the input")
    rank = len(kernel_shape)
    strides = ints(signature, "strides", [1] * rank)
    dilations = ints(signature, "dilations", [1] * rank)
    if min([*strides, *dilations, *kernel_shape], default=1) < 1:
        raise _invalid(signature, "strides, dilations and kernel must be positive")
    axes = []
    pads = ints(signature, "pads", [0] * (2 * rank))
    auto_pad = auto_pad_of(signature)
    for k in range(rank):
        size, out = source.shape[2 + k], result.shape[2 + k]
        extent = (kernel_shape[k] - 1) * dilations[k] + 1
        before, after = pads[k], pads[rank + k]
        if auto_pad == "VALID":
            before = after = 0
        elif auto_pad.startswith("SAME"):
            total = same_padding(size, strides[k], extent)
            before, after = total // 2, total - total // 2
            if auto_pad == "SAME_LOWER":
                before, after = after, before
        if before < 0 or after < 0:
            raise _invalid(signature, "negative pads")
        axis = Axis(size, out, kernel_shape[k], strides[k], dilations[k], before, after)
        room = size + before + after - extent
        fitting = max(room // strides[k] + 1, 0)
        if not (out == fitting or (out == fitting + 1 and _rounds_up(signature))):
            raise _invalid(
                signature, f"spatial dimension {k} has {out} windows where {fitting} fit"
            )
        axes.append(axis)
    return axes


def ints(signature: Signature, name: str, default: Sequence[int]) -> list[int]:
    """Return an attribute with one integer per entry in ``default``."""
    values = list(signature.attributes.get(name) or default)
    if len(values) != len(default):
        raise _invalid(signature, f"{name} has {len(values)} entries, not {len(default)}")
    return values


def auto_pad_of(signature: Signature) -> str:
    """Return the automatic padding rule: NOTSET, VALID, SAME_UPPER or SAME_LOWER."""
    rule = signature.attributes.get("auto_pad", "NOTSET") or "NOTSET"
    rule = rule.decode() if isinstance(rule, bytes) else rule
    if rule not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise _invalid(signature, f"auto_pad is {rule!r}")
    return str(rule)


def _rounds_up(signature: Signature) -> bool:
    return bool(signature.attributes.get("ceil_mode", 0))


def _invalid(signature: Signature, problem: str) -> InvalidAttribute:
    return InvalidAttribute(f"node {signature.name!r} ({signature.op}): {problem}")


def windows(image: np.ndarray, axes: Sequence[Axis], positions: Sequence[int]) -> np.ndarray:
    """
    Return all windows over a padded image as a view.

    Parameters
    ----------
    image : array, shape (..., *padded)
    positions : sequence of int
        Number of window positions to take, per axis.

    Returns
    -------
    array, shape (..., *kernel, *positions)
    """
    lead = image.ndim - len(axes)
    steps = image.strides[lead:]
    return as_strided(
        image,
        (*image.shape[:lead], *(axis.kernel for axis in axes), *positions),
        (
            *image.strides[:lead],
            *(step * axis.dilation for step, axis in zip(steps, axes, strict=True)),
            *(step * axis.stride for step, axis in zip(steps, axes, strict=True)),
        ),
    )
