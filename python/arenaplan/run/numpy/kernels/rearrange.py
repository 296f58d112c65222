"""Elements that are moved in windows, reversed, cropped, selected, or spread over zeros."""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.graph.ops.window_ops import Axis, taps
from arenaplan.run.numpy.kernels.pieces import (
    check_shape,
    copy,
    in_sequence,
    invalid,
    normalized_axis,
    operand,
    result,
    when_known,
)
from arenaplan.run.numpy.registry import Run, Step, kernel


@kernel("ReverseSequence", since=10)
def reverse_sequence(step: Step) -> Run | None:
    """Reverse the first elements in each sequence of a batch."""
    x, lengths, y = operand(step, 0), operand(step, 1), result(step)
    batch, time = step.attributes.get("batch_axis", 1), step.attributes.get("time_axis", 0)
    if {batch, time} != {0, 1} or x.ndim < 2:
        raise invalid(step, f"axes {batch} and {time} of data of shape {x.shape}")
    source, target = (array if batch == 0 else array.swapaxes(0, 1) for array in (x, y))

    def prepare() -> Run | None:
        work: list[Run | None] = []
        for sample, length in enumerate(lengths.tolist()):
            if not 0 <= length <= source.shape[1]:
                raise fault(
                    "IndexOutOfRange",
                    f"node {step.signature.name!r} (ReverseSequence) has a sequence of {length} "
                    f"elements of {source.shape[1]}",
                )
            work.append(copy(source[sample, :length][::-1], target[sample, :length]))
            work.append(copy(source[sample, length:], target[sample, length:]))
        return in_sequence(*work)

    return when_known(step, (1,), prepare)


@kernel("Compress", since=9)
def compress(step: Step) -> Run | None:
    """Keep the slices along an axis, or the elements, for which a condition holds."""
    x, condition, y = operand(step, 0), operand(step, 1), result(step)
    axis = step.attributes.get("axis")
    source = x.reshape(-1) if axis is None else x
    along = 0 if axis is None else normalized_axis(step, axis, x.ndim)
    if len(condition) > source.shape[along]:
        raise invalid(step, f"a condition of {len(condition)} for {source.shape[along]} slices")

    def prepare() -> Run | None:
        kept = np.flatnonzero(condition)
        check_shape(step, (*source.shape[:along], kept.size, *source.shape[along + 1 :]))
        return partial(np.take, source, kept, along, y, "clip") if y.size else None

    return when_known(step, (1,), prepare)


@kernel("Col2Im", since=18)
def col2im(step: Step) -> Run | None:
    """Add columns up; each column has the elements under one image window."""
    x, y = operand(step, 0), result(step)
    rank = y.ndim - 2

    def prepare() -> Run | None:
        image, block = (list(map(int, operand(step, at).reshape(-1))) for at in (1, 2))
        strides = list(step.attributes.get("strides") or [1] * rank)
        dilations = list(step.attributes.get("dilations") or [1] * rank)
        pads = list(step.attributes.get("pads") or [0] * (2 * rank))
        check_shape(step, (len(x), x.shape[1] // prod(block), *image))
        axes = []
        for k, (size, extent) in enumerate(zip(image, block, strict=True)):
            room = size + pads[k] + pads[rank + k] - dilations[k] * (extent - 1) - 1
            out = room // strides[k] + 1
            axes.append(Axis(size, out, extent, strides[k], dilations[k], pads[k]))
        counts = [axis.out for axis in axes]
        if prod(counts) != x.shape[2] or min(counts, default=1) < 1:
            raise invalid(step, f"{x.shape[2]} columns for windows {counts}")
        columns = x.reshape(len(x), -1, *block, *counts)
        work: list[Run | None] = [partial(y.fill, 0)]
        for tap, read, write in taps(axes):
            target = y[(..., *read)]
            work.append(partial(np.add, target, columns[(..., *tap, *write)], target))
        return in_sequence(*work)

    return when_known(step, (1, 2), prepare)


@kernel("MaxUnpool", since=9)
def max_unpool(step: Step) -> Run | None:
    """Write elements to the places where a MaxPool found them, and zeros elsewhere."""
    x, indices, y = operand(step, 0), operand(step, 1), result(step)
    kernel_shape = step.attributes["kernel_shape"]
    rank = len(kernel_shape)
    strides = step.attributes.get("strides") or [1] * rank
    pads = step.attributes.get("pads") or [0] * (2 * rank)
    inferred = [
        (x.shape[2 + k] - 1) * strides[k] - pads[k] - pads[rank + k] + kernel_shape[k]
        for k in range(rank)
    ]
    shape = (*x.shape[:2], *inferred)
    limit = prod(shape)

    def check() -> None:
        if step.input(2) is not None:
            check_shape(step, operand(step, 2).reshape(-1).tolist())

    def check_range(part: np.ndarray) -> None:
        if part.size and not (int(part.min()) >= 0 and int(part.max()) < limit):
            raise fault(
                "IndexOutOfRange",
                f"node {step.signature.name!r} (MaxUnpool) has an index outside of {shape}",
            )

    # Indices count in an array with the inferred shape, in the corner of a larger result.
    is_same = shape == y.shape
    if any(n > m for n, m in zip(shape, y.shape, strict=True)):
        raise invalid(step, f"output_shape {y.shape} is smaller than {shape}")

    def run() -> None:
        y.fill(0)
        flat, values, places = y.reshape(-1), x.reshape(-1), indices.reshape(-1)
        for start in range(0, x.size, _UNPOOLED):
            cut = slice(start, min(start + _UNPOOLED, x.size))
            check_range(places[cut])
            if is_same:
                flat[places[cut]] = values[cut]
            else:
                y[np.unravel_index(places[cut], shape)] = values[cut]

    return in_sequence(when_known(step, (2,), check), run if x.size else partial(y.fill, 0))


_UNPOOLED = 1 << 10
"""Elements that are written at a time: places in an image take memory."""
