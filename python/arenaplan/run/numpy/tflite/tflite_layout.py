"""Operators that move elements: the same bits at other places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from arenaplan.graph.ops.window_ops import Axis
from arenaplan.run.numpy.kernels.pieces import box_of, copy, in_sequence, operand, present, result
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel
from arenaplan.run.numpy.tflite.tflite_facts import (
    DOMAIN,
    FLOAT,
    NONE,
    clamped,
    constant_operand,
    encoding_or,
    refused,
)

# -- the same elements in the same order -------------------------------------------------------


@kernel("RESHAPE", "SQUEEZE", "EXPAND_DIMS", domain=DOMAIN)
def reshape(step: Step) -> Run | None:
    """Copy, unless the result is where the input is."""
    x, y = operand(step, 0), result(step)
    if x.size != y.size or x.dtype != y.dtype:
        raise refused(step.signature, f"a result of shape {y.shape} is not that of {x.shape}")
    return copy(x.reshape(-1), y.reshape(-1))


@kernel("CONCATENATION", "PACK", domain=DOMAIN)
def concatenation(step: Step) -> Run | None:
    """Operands one behind the other."""
    signature = step.signature
    if signature.attributes.get("fused_activation", NONE) != NONE:
        raise refused(signature, "it has an activation")
    y, inputs = result(step), present(step)
    axis = _axis(signature, int(step.attributes.get("axis", 0)), y.ndim)
    if signature.op == "PACK":
        inputs = [np.expand_dims(x, axis) for x in inputs]
    runs, at = [], 0
    for x in inputs:
        part = (*(slice(None),) * axis, slice(at, at + x.shape[axis]))
        if y[part].shape != x.shape or x.dtype != y.dtype:
            raise refused(signature, "its operands do not fit the result")
        runs.append(copy(x, y[part]))
        at += x.shape[axis]
    return in_sequence(*runs)


@kernel("SPLIT", "SPLIT_V", "UNPACK", domain=DOMAIN)
def split(step: Step) -> Run | None:
    """Parts of an operand, one per result."""
    signature = step.signature
    x = operand(step, 1 if signature.op == "SPLIT" else 0)
    if signature.op == "UNPACK":
        axis = int(step.attributes.get("axis", 0))
    else:
        position = 0 if signature.op == "SPLIT" else 2
        (axis,) = constant_operand(signature, position).reshape(-1).tolist()
    axis = _axis(signature, axis, x.ndim)
    runs, at = [], 0
    for y in step.outputs:
        size = 1 if signature.op == "UNPACK" or y is None else y.shape[axis]
        if y is not None:
            part = x[(*(slice(None),) * axis, slice(at, at + size))]
            if part.size != y.size:
                raise refused(signature, "its results do not fit the operand")
            runs.append(
                copy(part.reshape(y.shape) if part.shape == y.shape else part.squeeze(axis), y)
            )
        at += size
    return in_sequence(*runs)


def _axis(signature: Signature, axis: int, rank: int) -> int:
    """Return an axis counted from the front."""
    if not -rank <= axis < rank:
        raise refused(signature, f"axis {axis} of an operand with {rank} dimensions")
    return axis % rank


def strided_slice_of(signature: Signature) -> tuple[slice, ...]:
    """Return the index for first and last indices with steps, as far as masks permit."""
    masks = signature.attributes
    if masks.get("ellipsis_mask", 0) or masks.get("new_axis_mask", 0):
        raise refused(signature, "it adds dimensions or leaves some out")
    x = signature.operand(0)
    begin, end, strides = (constant_operand(signature, at).tolist() for at in (1, 2, 3))
    index: list[slice] = []
    for axis, (first, last, stride) in enumerate(zip(begin, end, strides, strict=True)):
        if stride == 0:
            raise refused(signature, "it has a stride of 0")
        if masks.get("offset", 0):
            last += first
        if masks.get("shrink_axis_mask", 0) >> axis & 1:
            first %= x.shape[axis]
            index.append(slice(first, first + 1))
            continue
        has_first = not masks.get("begin_mask", 0) >> axis & 1
        has_last = not masks.get("end_mask", 0) >> axis & 1
        index.append(slice(first if has_first else None, last if has_last else None, stride))
    return tuple(index)


@kernel("STRIDED_SLICE", domain=DOMAIN)
def strided_slice(step: Step) -> Run | None:
    """Some elements, with steps between them."""
    return _moved(step, operand(step, 0)[strided_slice_of(step.signature)], result(step))


def slice_of(signature: Signature) -> tuple[slice, ...]:
    """Return the index that first indices and sizes make."""
    begin, sizes = (constant_operand(signature, at).tolist() for at in (1, 2))
    return tuple(
        slice(first, None if size == -1 else first + size)
        for first, size in zip(begin, sizes, strict=True)
    )


@kernel("SLICE", domain=DOMAIN)
def slice_(step: Step) -> Run | None:
    """Neighboring elements."""
    return _moved(step, operand(step, 0)[slice_of(step.signature)], result(step))


@kernel("TRANSPOSE", domain=DOMAIN)
def transpose(step: Step) -> Run | None:
    """Dimensions in another order."""
    order = constant_operand(step.signature, 1).reshape(-1).tolist()
    x = operand(step, 0)
    return _moved(step, x.transpose([axis % x.ndim for axis in order]), result(step))


@kernel("REVERSE_V2", domain=DOMAIN)
def reverse(step: Step) -> Run | None:
    """Some dimensions backwards."""
    x = operand(step, 0)
    axes = {axis % x.ndim for axis in constant_operand(step.signature, 1).reshape(-1).tolist()}
    index = tuple(slice(None, None, -1 if at in axes else 1) for at in range(x.ndim))
    return _moved(step, x[index], result(step))


@kernel("BROADCAST_TO", domain=DOMAIN)
def broadcast_to(step: Step) -> Run | None:
    """Elements are repeated along dimensions."""
    y = result(step)
    return _moved(step, np.broadcast_to(operand(step, 0), y.shape), y)


def _moved(step: Step, source: np.ndarray, target: np.ndarray) -> Run | None:
    """Return a function that copies elements, whose dimensions of 1 may be left out."""
    if source.dtype != target.dtype or source.size != target.size:
        raise refused(step.signature, f"a result of {target.shape} is not that of {source.shape}")
    wide = [at for at, dim in enumerate(source.shape) if dim != 1]
    made = [at for at, dim in enumerate(target.shape) if dim != 1]
    if [source.shape[at] for at in wide] != [target.shape[at] for at in made]:
        raise refused(step.signature, f"a result of {target.shape} is not that of {source.shape}")
    if target.size == 0:
        return None
    ones = tuple(slice(None) if at in wide else 0 for at in range(source.ndim))
    others = tuple(slice(None) if at in made else 0 for at in range(target.ndim))
    return copy(source[(*ones, ...)], target[(*others, ...)])


# -- images ----------------------------------------------------------------------------------------


@kernel("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", domain=DOMAIN)
def space_to_depth(step: Step) -> Run | None:
    """Pixel squares become channels, or the reverse."""
    x, y = operand(step, 0), result(step)
    block = int(step.attributes.get("block_size", 1))
    if step.signature.op == "SPACE_TO_DEPTH":
        images, height, width, depth = y.shape
        shape = (images, height, block, width, block, depth // max(block * block, 1))
        return copy(x.reshape(shape).transpose(0, 1, 3, 2, 4, 5), _squares(y, block))
    images, height, width, _ = x.shape
    shape = (images, height, block, width, block, y.shape[3])
    return copy(_squares(x, block).transpose(0, 1, 3, 2, 4, 5), y.reshape(shape))


def _squares(array: np.ndarray, block: int) -> np.ndarray:
    """Return channels as squares."""
    return array.reshape(*array.shape[:3], block, block, array.shape[3] // max(block * block, 1))


@kernel("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", domain=DOMAIN)
def space_to_batch(step: Step) -> Run | None:
    """Pixel squares become images in a batch, or the reverse."""
    signature = step.signature
    x, y = operand(step, 0), result(step)
    is_forward = signature.op == "SPACE_TO_BATCH_ND"
    space, batch = (x, y) if is_forward else (y, x)
    runs: list[Run | None] = []
    if is_forward:
        runs.append(partial(y.fill, blank(signature)))
    for inner, outer in batch_parts(signature, space.shape, batch.shape):
        small, large = batch[inner], space[outer]
        runs.append(copy(large, small) if is_forward else copy(small, large))
    return in_sequence(*runs)


_Index: TypeAlias = "tuple[int | slice, ...]"


def batch_parts(
    signature: Signature, space: Sequence[int], batch: Sequence[int]
) -> Iterator[tuple[_Index, _Index]]:
    """Yield the parts of a batch and of an image with the same elements."""
    blocks = constant_operand(signature, 1).reshape(-1).tolist()
    edges = constant_operand(signature, 2).reshape(-1, 2).tolist()
    for number in range(batch[0]):
        offset, image = divmod(number, space[0])
        starts: list[int] = []
        for block in reversed(blocks):
            offset, start = divmod(offset, block)
            starts.insert(0, start)
        inner: list[slice] = []
        outer: list[slice] = []
        for axis, (start, block, (before, _)) in enumerate(
            zip(starts, blocks, edges, strict=True), start=1
        ):
            # Element i in the batch is element i * block + start - before in the space.
            side = Axis(space[axis], batch[axis], block, block, 1, before)
            first, stop = side.positions(start)
            inner.append(slice(first, stop))
            outer.append(side.reads(start, first, stop) if first < stop else slice(0, 0))
        yield (number, *inner), (image, *outer)


def blank(signature: Signature) -> int:
    """Return the number that stands for 0."""
    return encoding_or(signature, 0, "output").zero


@kernel("PAD", "PADV2", domain=DOMAIN)
def pad(step: Step) -> Run | None:
    """Borders have a constant, or the number that stands for 0."""
    signature = step.signature
    x, y = operand(step, 0), result(step)
    if signature.input(2) is not None:
        fill = constant_operand(signature, 2).reshape(-1)[0]
    else:
        fill = 0 if x.dtype == FLOAT else blank(signature)
    return in_sequence(partial(y.fill, fill), copy(x, inside_of(signature, x.shape, y)))


def inside_of(signature: Signature, shape: Sequence[int], y: np.ndarray) -> np.ndarray:
    """Return the part of a result that is not a border: a view, of a scalar too."""
    amounts = constant_operand(signature, 1).reshape(-1, 2).tolist()
    if len(amounts) != len(shape) or any(min(pair) < 0 for pair in amounts):
        raise refused(signature, "its amounts do not fit its operand")
    ends = zip(amounts, shape, strict=True)
    inner = box_of(y, (slice(before, before + dim) for (before, _), dim in ends))
    if inner.shape != tuple(shape):
        raise refused(signature, "its result is too small")
    return inner


@kernel("MIRROR_PAD", domain=DOMAIN)
def mirror_pad(step: Step) -> Run | None:
    """Borders repeat the inside, backwards."""
    signature, x, y = step.signature, operand(step, 0), result(step)
    amounts = constant_operand(signature, 1).reshape(-1, 2).tolist()
    skip = 1 - int(signature.attributes.get("mode", 0))
    parts = [(x, inside_of(signature, x.shape, y))]
    # Dimension by dimension, each with the borders of earlier dimensions.
    inner = [slice(before, before + dim) for (before, _), dim in zip(amounts, x.shape, strict=True)]
    for axis, (before, after) in enumerate(amounts):
        dim = x.shape[axis]
        rows = np.moveaxis(y[(*(slice(None),) * axis, slice(None), *inner[axis + 1 :])], axis, 0)
        if before:
            start = before + skip
            parts.append((rows[start : start + before][::-1], rows[:before]))
        if after:
            stop = before + dim - skip
            parts.append((rows[stop - after : stop][::-1], rows[before + dim :]))
    return in_sequence(*(copy(source, target) for source, target in parts))


@kernel("RESIZE_NEAREST_NEIGHBOR", domain=DOMAIN)
def resize_nearest(step: Step) -> Run | None:
    """Each pixel is the image pixel at its place."""
    x, y = operand(step, 0), result(step)
    if x.ndim != 4 or y.ndim != 4 or (x.shape[0], x.shape[3]) != (y.shape[0], y.shape[3]):
        raise refused(step.signature, "its result has other images or channels")
    rows, columns = (nearest_rows(x.shape[axis], y.shape[axis], step.attributes) for axis in (1, 2))
    pairs = [(int(row), at) for at, row in enumerate(rows)]

    def run() -> None:
        for image, made in zip(x, y, strict=True):
            for row, at in pairs:
                np.take(image[row], columns, axis=0, out=made[at], mode="clip")

    return run


def nearest_rows(size: int, made: int, attributes: Mapping[str, Any]) -> np.ndarray:
    """Return the image row for each result row, as computed in ``float32``."""
    one = np.float32
    aligned, half = attributes.get("align_corners", 0), attributes.get("half_pixel_centers", 0)
    ratio = one(size - 1) / one(made - 1) if aligned and made > 1 else one(size) / one(made)
    at = (np.arange(made, dtype=FLOAT) + one(0.5 if half else 0.0)) * ratio
    at = np.floor(at + one(0.5)) if aligned else np.floor(at)
    return clamped(at.astype(np.int64), 0, size - 1)


# -- rows by number --------------------------------------------------------------------------


@kernel("GATHER", "EMBEDDING_LOOKUP", domain=DOMAIN)
def gather(step: Step) -> Run | None:
    """Rows of an operand, by the row numbers in another operand."""
    signature = step.signature
    swapped = signature.op == "EMBEDDING_LOOKUP"
    x, index, y = operand(step, int(swapped)), operand(step, 1 - int(swapped)), result(step)
    if x.dtype != y.dtype:
        raise refused(signature, f"no kernel makes {y.dtype} of {x.dtype}")
    batch = int(step.attributes.get("batch_dims", 0))
    axis = _axis(signature, int(step.attributes.get("axis", 0)), x.ndim)
    if batch < 0 or batch > min(axis, index.ndim):
        raise refused(signature, f"it has {batch} dimensions of batches")
    made = (*x.shape[:axis], *index.shape[batch:], *x.shape[axis + 1 :])
    if y.shape != made or x.shape[:batch] != index.shape[:batch]:
        raise refused(signature, f"a result of shape {y.shape} is not that of {made}")
    outer = list(np.ndindex(*x.shape[:axis]))

    def run() -> None:
        for place in outer:
            numbers = index[place[:batch]]
            target = y[(*place, *(slice(None),) * numbers.ndim)]
            source = x[place]
            for at in np.ndindex(*numbers.shape):
                target[at] = source[_checked(int(numbers[at]), len(source))]

    return run


def _checked(number: int, count: int) -> int:
    """Return an index into some rows."""
    if not 0 <= number < count:
        raise IndexError(f"row {number} of {count}")
    return number


@kernel("GATHER_ND", domain=DOMAIN)
def gather_nd(step: Step) -> Run | None:
    """Parts of an operand, by the first indices in another operand."""
    x, index, y = operand(step, 0), operand(step, 1), result(step)
    depth = index.shape[-1]
    rows = index.reshape(-1, depth)
    target = y.reshape(len(rows), *x.shape[depth:])

    def run() -> None:
        for at, row in enumerate(rows):
            place = tuple(_checked(int(n), dim) for n, dim in zip(row, x.shape, strict=False))
            target[at] = x[place]

    return run


@kernel("DYNAMIC_UPDATE_SLICE", domain=DOMAIN)
def dynamic_update_slice(step: Step) -> Run | None:
    """A part of an operand is replaced, from indices that a run decides."""
    x, update, start, y = (*(operand(step, at) for at in range(3)), result(step))
    fits = all(size <= dim for size, dim in zip(update.shape, y.shape, strict=False))
    if x.shape != y.shape or not update.ndim == start.size == y.ndim or not fits:
        raise refused(step.signature, "its operands do not fit each other")
    whole = copy(x, y)

    def run() -> None:
        if whole is not None:
            whole()
        first = [
            min(max(int(at), 0), dim - size)
            for at, dim, size in zip(start.reshape(-1), y.shape, update.shape, strict=True)
        ]
        part = tuple(slice(at, at + size) for at, size in zip(first, update.shape, strict=True))
        np.copyto(y[part], update)

    return run


# -- selections and constants ----------------------------------------------------------------


@kernel("SELECT_V2", domain=DOMAIN)
def select(step: Step) -> Run | None:
    """Elements from one operand or the other; all are broadcast."""
    condition, x, y, made = (*(operand(step, at) for at in range(3)), result(step))
    if not x.dtype == y.dtype == made.dtype:
        raise refused(step.signature, "its operands have different types")
    first, second, chosen = (np.broadcast_to(each, made.shape) for each in (x, y, condition))

    def run() -> None:
        np.copyto(made, second)
        np.copyto(made, first, where=chosen)

    return run


@kernel("FILL", domain=DOMAIN)
def fill(step: Step) -> Run | None:
    """One number everywhere."""
    value, y = operand(step, 1), result(step)
    if value.dtype != y.dtype:
        raise refused(step.signature, f"no kernel makes {y.dtype} of {value.dtype}")
    return partial(np.copyto, y, value.reshape(()))


@kernel("ZEROS_LIKE", domain=DOMAIN)
def zeros_like(step: Step) -> Run | None:
    """Zeros."""
    return partial(result(step).fill, 0)


@kernel("SHAPE", domain=DOMAIN)
def shape(step: Step) -> Run | None:
    """The shape of an operand, which is known before a run."""
    dims: Sequence[int] = operand(step, 0).shape
    return partial(np.copyto, result(step), np.array(dims, result(step).dtype))


@kernel("BROADCAST_ARGS", domain=DOMAIN)
def broadcast_args(step: Step) -> Run | None:
    """The common shape of two shapes."""
    a, b, y = operand(step, 0), operand(step, 1), result(step)

    def run() -> None:
        y[...] = np.broadcast_shapes(tuple(a.tolist()), tuple(b.tolist()))

    return run
