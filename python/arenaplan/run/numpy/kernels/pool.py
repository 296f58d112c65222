"""
Pooling: the largest element, the mean or a norm under every window.

A compiled kernel pools lines and images in single precision. All other windows are combined one
element at a time, for all windows together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from arenaplan._core import CompiledKernel
from arenaplan.base.errors import InvalidAttribute
from arenaplan.graph import Choice
from arenaplan.graph.ops.window_ops import Axis, taps
from arenaplan.run.numpy.compiled import is_enabled, sides
from arenaplan.run.numpy.kernels.pieces import in_sequence, operand, result
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.kernels.window_cuts import PLANES, POOL
from arenaplan.run.numpy.kernels.windows import window_axes
from arenaplan.run.numpy.registry import (
    INTERNAL,
    Run,
    Signature,
    Step,
    compiled_kernel,
    kernel,
    scratch_bytes,
)


class Reduction(NamedTuple):
    """The combination of the elements under a window."""

    combine: Callable[..., Any]
    identity: Callable[[np.dtype[Any]], Any]
    """Padding content that changes no result."""


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


_MAXIMUM = Reduction(lambda a, b, out: np.maximum(a, b, out=out), _lowest)
_SUM = Reduction(np.add, lambda dtype: 0)


# -- sliding windows ------------------------------------------------------------------


def pool_axes(signature: Signature) -> list[Axis]:
    """Return how the window slides over each spatial dimension, as declared."""
    kernel_shape = signature.attributes.get("kernel_shape")
    if not kernel_shape:
        raise InvalidAttribute(f"node {signature.name!r} ({signature.op}): kernel_shape is missing")
    return window_axes(signature, list(kernel_shape))


def _trimmed(signature: Signature) -> list[Axis]:
    """Return the same windows without the elements that are never inside of the image."""
    return [axis.trimmed for axis in pool_axes(signature)]


def _by_taps(
    axes: Sequence[Axis], reduction: Reduction, source: np.ndarray, target: np.ndarray
) -> Iterator[Run]:
    """Yield functions that reduce all windows in ``source``, one window element after another."""
    source = source.reshape(-1, *source.shape[2:])
    target = target.reshape(-1, *target.shape[2:])
    yield partial(target.fill, reduction.identity(source.dtype))
    for _, read, write in taps(axes):
        piece = target[(slice(None), *write)]
        yield partial(reduction.combine, piece, source[(slice(None), *read)], piece)


# -- the largest ------------------------------------------------------------------------


def _wants_positions(signature: Signature) -> bool:
    return (
        signature.op == "MaxPool"
        and len(signature.outputs) > 1
        and (signature.outputs[1] is not None)
    )


def _declare_max(signature: Signature) -> Sequence[Sequence[Choice]]:
    output = signature.outputs[0]
    if not _wants_positions(signature) or output is None:
        return []
    plane = output.shape[2:]
    return [[Choice(2 * scratch_bytes(plane, np.bool_), 0.0)]]


@heavy_kernel("MaxPool", workspace=_declare_max, cut=POOL)
def max_pool(step: Step) -> Run | None:
    """Take the largest element under every window."""
    source, output = operand(step, 0), result(step)
    if output.size == 0:
        return None
    axes = _trimmed(step.signature)
    if _wants_positions(step.signature):
        return in_sequence(*_max_with_positions(step, axes, source, output, result(step, 1)))
    return in_sequence(*_by_taps(axes, _MAXIMUM, source, output))


def _max_with_positions(
    step: Step, axes: Sequence[Axis], source: np.ndarray, output: np.ndarray, where: np.ndarray
) -> Iterator[Run]:
    """Yield functions that also write the flat index of each window's first largest element."""
    sizes = [axis.size for axis in axes]
    if step.attributes.get("storage_order", 0):  # Column-major: the first dimension is innermost.
        strides = [prod(sizes[:dim]) for dim in range(len(sizes))]
    else:
        strides = [prod(sizes[dim + 1 :]) for dim in range(len(sizes))]
    scratch = step.scratch()
    larger, unset = (scratch.array([axis.out for axis in axes], np.bool_) for _ in range(2))
    grids = np.ix_(*(np.arange(axis.out) * axis.stride - axis.before for axis in axes))
    origin = sum(grid * stride for grid, stride in zip(grids, strides, strict=True))
    parts = list(taps(axes))
    images = source.reshape(-1, *source.shape[2:])
    best = output.reshape(-1, *output.shape[2:])
    index = where.reshape(-1, *where.shape[2:])
    for plane in range(len(images)):
        yield partial(best[plane].fill, _lowest(source.dtype))
        yield partial(index[plane].fill, -1)
        for tap, what, to in parts:
            steps = zip(tap, axes, strides, strict=True)
            offset = np.int64(sum(t * axis.dilation * stride for t, axis, stride in steps))
            piece, candidate = best[plane][to], images[plane][what]
            yield partial(np.greater, candidate, piece, larger[to])
            # The first element inside the image counts even if the element is the lowest number.
            yield partial(np.less, index[plane][to], 0, unset[to])
            yield partial(np.logical_or, larger[to], unset[to], larger[to])
            yield partial(np.copyto, piece, candidate, where=larger[to])
            yield partial(np.copyto, index[plane][to], offset, where=larger[to])
        yield partial(np.add, index[plane], origin + plane * prod(sizes), index[plane])


@heavy_kernel("GlobalMaxPool", cut=PLANES)
def global_max_pool(step: Step) -> Run | None:
    """Take the largest element in every channel."""
    source, output = operand(step, 0), result(step)
    if output.size == 0:
        return None
    flat = source.reshape(*source.shape[:2], -1)
    return partial(np.maximum.reduce, flat, -1, None, output.reshape(source.shape[:2]))


# -- compiled -----------------------------------------------------------------------------

_LONGEST_COMPILED = 1 << 20
"""Most rows or columns in a window, a stride, and a padding: the kernel counts in 32 bits."""


def _is_compiled(signature: Signature) -> bool:
    """Return whether windows slide over lines or images in single precision."""
    source, output = signature.input(0), signature.outputs[0]
    if source is None or output is None or source.dtype != np.float32 or not is_enabled():
        return False
    if 0 in (*output.shape, *source.shape) or len(source.shape) not in (3, 4):
        return False
    if _wants_positions(signature) or not signature.attributes.get("kernel_shape"):
        return False
    names = ("kernel_shape", "pads", "strides", "dilations")
    sizes = (size for name in names for size in signature.attributes.get(name) or ())
    if max(sizes) > _LONGEST_COMPILED:
        return False
    return signature.op == "MaxPool" or not _is_single(pool_axes(signature))


def _declare_compiled(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for an image row."""
    source = signature.input(0)
    return [] if source is None else [[Choice(scratch_bytes(source.shape[-1:]), 1.0)]]


@compiled_kernel("MaxPool", "AveragePool", when=_is_compiled, workspace=_declare_compiled)
def compiled_pool(step: Step) -> Run | None:
    """Take the largest element, or the mean, under every window."""
    source, output = operand(step, 0), result(step)
    axes = pool_axes(step.signature)
    counts = None
    if step.signature.op == "AveragePool":
        include = bool(step.attributes.get("count_include_pad", 0))
        found = [np.array(_counts(axis, include), np.float32) for axis in axes]
        counts = (found[0], found[1]) if len(found) == 2 else (np.ones(1, np.float32), found[0])
    line = step.scratch().array(source.shape[-1:])
    return CompiledKernel.pool(source, output, line, *sides(axes), counts)


# -- means -------------------------------------------------------------------------------


def _is_single(axes: Sequence[Axis]) -> bool:
    """Whether the only window is the whole image."""
    return all(
        axis.out == 1 and axis.kernel == axis.extent == axis.size and not axis.is_padded
        for axis in axes
    )


@heavy_kernel("AveragePool", cut=POOL)
def average_pool(step: Step) -> Run | None:
    """Take the mean under every window."""
    source, output = operand(step, 0), result(step)
    if output.size == 0:
        return None
    axes = pool_axes(step.signature)
    if _is_single(axes):
        return _plane_means(source, output)
    include = bool(step.attributes.get("count_include_pad", 0))
    factors = np.ones([1] * len(axes))
    for dim, axis in enumerate(axes):
        shape = [1] * len(axes)
        shape[dim] = axis.out
        factors = factors / np.asarray(_counts(axis, include)).reshape(shape)
    same = bool((factors == factors.flat[0]).all())
    factor = output.dtype.type(factors.flat[0]) if same else factors.astype(output.dtype)
    return in_sequence(
        *_by_taps(_trimmed(step.signature), _SUM, source, output),
        partial(np.multiply, output, factor, output),
    )


@kernel("AveragePool", domain=INTERNAL, cut=POOL)
def average_in_order(step: Step) -> Run | None:
    """
    Take the mean under every window: elements are added in memory order, then divided.

    Counted padding counts everywhere, also beyond the declared ``pads``.
    """
    source, output = operand(step, 0), result(step)
    if output.size == 0:
        return None
    axes = pool_axes(step.signature)
    count = np.ones([1] * len(axes), output.dtype)
    for dim, axis in enumerate(axes):
        include = bool(step.attributes.get("count_include_pad", 0))
        inside = [axis.kernel] * axis.out if include else _counts(axis, include_padding=False)
        count = count * np.asarray(inside, output.dtype).reshape([-1] + [1] * (len(axes) - dim - 1))
    return in_sequence(
        *_by_taps(axes, _SUM, source, output), partial(np.divide, output, count, output)
    )


def _counts(axis: Axis, include_padding: bool) -> list[int]:
    """Return how many elements each window's mean is over."""
    low = -axis.before if include_padding else 0
    high = axis.size + (axis.after if include_padding else 0)
    return [max(axis.within(position, low, high), 1) for position in range(axis.out)]


@heavy_kernel("GlobalAveragePool", cut=PLANES)
def global_average_pool(step: Step) -> Run | None:
    """Take the mean over every channel."""
    source, output = operand(step, 0), result(step)
    return _plane_means(source, output) if output.size else None


def _plane_means(source: np.ndarray, output: np.ndarray) -> Run:
    """Return a function that writes plane means, as a product with a constant vector."""
    planes = source.reshape(prod(source.shape[:2]), -1)
    weights = np.full(planes.shape[1], 1 / planes.shape[1], source.dtype)
    return partial(np.matmul, planes, weights, output.reshape(-1))


# -- norms --------------------------------------------------------------------------------


def _declare_powers(signature: Signature) -> Sequence[Sequence[Choice]]:
    source = signature.input(0)
    return [] if source is None else [[Choice(scratch_bytes(source.shape, source.dtype), 0.0)]]


@heavy_kernel("LpPool", workspace=_declare_powers, cut=POOL)
def lp_pool(step: Step) -> Run | None:
    """Take the p-norm under every window."""
    return _norm(step, partial(_by_taps, _trimmed(step.signature), _SUM))


@heavy_kernel("GlobalLpPool", workspace=_declare_powers, cut=PLANES)
def global_lp_pool(step: Step) -> Run | None:
    """Take the p-norm over every channel."""

    def sums(powers: np.ndarray, output: np.ndarray) -> Iterator[Run]:
        planes = powers.reshape(prod(powers.shape[:2]), -1)
        yield partial(np.add.reduce, planes, -1, None, output.reshape(-1))

    return _norm(step, sums)


def _norm(step: Step, sums: Callable[[np.ndarray, np.ndarray], Iterator[Run]]) -> Run | None:
    """Return a function that takes roots of power sums."""
    source, output = operand(step, 0), result(step)
    if output.size == 0:
        return None
    powers = step.scratch().array(source.shape, source.dtype)
    order = source.dtype.type(step.attributes.get("p", 2))
    return in_sequence(
        partial(np.absolute, source, powers),
        partial(np.power, powers, order, powers),
        *sums(powers, output),
        partial(np.power, output, 1 / order, output),
    )
