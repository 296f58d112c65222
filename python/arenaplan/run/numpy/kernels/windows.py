"""Windows that slide over an image: common parts of convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arenaplan.base.errors import InvalidAttribute
from arenaplan.run.numpy.registry import Signature
from arenaplan.run.numpy.strided import as_strided


class Axis(NamedTuple):
    """One spatial dimension of a sliding window."""

    size: int
    """Input length."""
    out: int
    """Number of window positions."""
    kernel: int
    """Elements under the window."""
    stride: int
    dilation: int
    before: int
    """Padding in front."""
    after: int
    """Padding behind, as declared."""
    skipped: int = 0
    """Declared window elements ahead of the first element under this window."""

    @property
    def extent(self) -> int:
        """Length from a window's first element to its last, inclusive."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def padded(self) -> int:
        """Length that windows reach over, at least the input behind its padding."""
        return max(self.before + self.size, (self.out - 1) * self.stride + self.extent)

    @property
    def is_padded(self) -> bool:
        """Whether windows reach beyond the input."""
        return self.before > 0 or self.padded > self.before + self.size

    def within(self, position: int, low: int, high: int) -> int:
        """Return how many elements under the window have indices in ``[low, high)``."""
        start = position * self.stride - self.before
        first = max(0, -((start - low) // self.dilation))
        stop = min(self.kernel, -((start - high) // self.dilation))
        return max(0, stop - first)

    @property
    def trimmed(self) -> Axis:
        """The same windows without leading and trailing elements that are never in the input."""
        outside = -(((self.out - 1) * self.stride - self.before) // self.dilation)
        # No window may begin behind the input's first element.
        skipped = max(0, min(outside, self.before // self.dilation, self.kernel - 1))
        before = self.before - skipped * self.dilation
        reached = -(-(self.size + before) // self.dilation)
        kernel = max(1, min(self.kernel - skipped, reached))
        return self._replace(kernel=kernel, before=before, skipped=self.skipped + skipped)

    def positions(self, tap: int) -> tuple[int, int]:
        """Return the range of window positions whose element ``tap`` is inside the input."""
        offset = tap * self.dilation - self.before
        first = max(0, -(offset // self.stride))
        last = (self.size - 1 - offset) // self.stride
        return first, max(first, min(self.out, last + 1))

    def reads(self, tap: int, first: int, stop: int) -> slice:
        """Return the input elements that window positions ``[first, stop)`` have at ``tap``."""
        start = first * self.stride + tap * self.dilation - self.before
        return slice(start, start + (stop - first - 1) * self.stride + 1, self.stride)


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
            total = max((-(-size // strides[k]) - 1) * strides[k] + extent - size, 0)
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
