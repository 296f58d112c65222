"""Operators that move elements and compute nothing: views, pieces, copies in another order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

import numpy as np

from arenaplan.base.errors import ShapeMismatch, UnsupportedOp
from arenaplan.run.numpy.cuts import CONCAT, RESHAPE, TRANSPOSE
from arenaplan.run.numpy.kernels.pieces import (
    box_of,
    check_shape,
    copy,
    in_sequence,
    invalid,
    normalized_axis,
    numbers,
    operand,
    present,
    result,
    when_known,
)
from arenaplan.run.numpy.kernels.window_cuts import PLANES
from arenaplan.run.numpy.registry import Run, Step, kernel

# -- the same elements ---------------------------------------------------------------


@kernel("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze", cut=RESHAPE)
def same_elements(step: Step) -> Run | None:
    """Write the same elements in the same order; nothing to do for a view."""
    work = _all_elements(step)
    if step.signature.input(1) is None or step.signature.constant[1] is not None:
        return work  # The planned shape follows from constants; a part has another shape.
    return in_sequence(lambda: check_shape(step, _shape_now(step)), work)


@kernel("Transfer", domain="arenaplan")
def transfer(step: Step) -> Run | None:
    """Copy a value to another memory."""
    return _all_elements(step)


def _all_elements(step: Step) -> Run | None:
    x, y = operand(step, 0), result(step)
    if x.size != y.size:
        raise ShapeMismatch(
            f"node {step.signature.name!r} ({step.signature.op}) turns "
            f"shape {x.shape} into {y.shape}"
        )
    return copy(x.reshape(-1), y.reshape(-1))


def _shape_now(step: Step) -> list[int]:
    """Return the shape that operand 1 asks for on this run: a shape, or axes of length 1."""
    x, values = operand(step, 0), [int(number) for number in operand(step, 1).reshape(-1)]
    if step.signature.op == "Reshape":
        return _reshaped(step, x.shape, values)
    rank = x.ndim + (len(values) if step.signature.op == "Unsqueeze" else 0)
    axes = {normalized_axis(step, axis, rank) for axis in values}
    if len(axes) != len(values):
        raise invalid(step, f"axes {values} repeat one")
    if step.signature.op == "Squeeze":
        if any(x.shape[axis] != 1 for axis in axes):
            raise invalid(step, f"axes {values} of shape {x.shape} are not all 1")
        return [dim for axis, dim in enumerate(x.shape) if axis not in axes]
    rest = iter(x.shape)
    return [1 if axis in axes else next(rest) for axis in range(rank)]


def _reshaped(step: Step, shape: tuple[int, ...], target: list[int]) -> list[int]:
    """Return the shape that a Reshape makes: 0 copies a dimension, -1 stands for the rest."""
    dims = list(target)
    if not step.attributes.get("allowzero", 0):
        if any(dim == 0 and axis >= len(shape) for axis, dim in enumerate(dims)):
            raise invalid(step, f"shape {target} copies a dimension that {shape} lacks")
        dims = [shape[axis] if dim == 0 else dim for axis, dim in enumerate(dims)]
    if dims.count(-1) == 1:
        known = prod(dim for dim in dims if dim != -1)
        dims[dims.index(-1)] = prod(shape) // known if known else 0
    return dims


@kernel("Dropout", cut=RESHAPE)
def dropout(step: Step) -> Run | None:
    """Do nothing, as everywhere outside training."""
    mask = step.output(1)
    mark = None if mask is None else partial(mask.fill, True)
    return in_sequence(_all_elements(step), mark)


# -- pieces -----------------------------------------------------------------------------


@kernel("Concat", cut=CONCAT)
def concat(step: Step) -> Run | None:
    """Join the inputs along an axis; inputs that lie in the output need no work."""
    y = result(step)
    axis = normalized_axis(step, step.attributes.get("axis", 1), y.ndim)
    copies, start = [], 0
    for x in present(step):
        stop = start + x.shape[axis]
        copies.append(copy(x, y[(slice(None),) * axis + (slice(start, stop),)]))
        start = stop
    return in_sequence(*copies)


@kernel("Split")
def split(step: Step) -> Run | None:
    """Cut the input along an axis; outputs that lie in the input need no work."""
    x = operand(step, 0)
    axis = normalized_axis(step, step.attributes.get("axis", 0), x.ndim)
    return when_known(step, (1,), lambda: _pieces(step, x, axis))


def _pieces(step: Step, x: np.ndarray, axis: int) -> Run | None:
    sizes = numbers(step, "split", 1)
    if sizes is None:  # The output sizes; an omitted output is as long as the first.
        size = -(-x.shape[axis] // len(step.outputs))
        starts = [min(at * size, x.shape[axis]) for at in range(len(step.outputs) + 1)]
        equal = [stop - start for start, stop in pairwise(starts)]
        pairs = zip(equal, step.outputs, strict=True)
        sizes = [size if y is None else y.shape[axis] for size, y in pairs]
    if len(sizes) != len(step.outputs) or sum(sizes) != x.shape[axis] or min(sizes) < 0:
        raise invalid(step, f"sizes {sizes} do not split axis {axis} of shape {x.shape}")
    copies, start = [], 0
    for position, (size, y) in enumerate(zip(sizes, step.outputs, strict=True)):
        stop = start + size
        if y is not None:
            check_shape(step, (*x.shape[:axis], size, *x.shape[axis + 1 :]), position)
            copies.append(copy(x[(slice(None),) * axis + (slice(start, stop),)], y))
        start = stop
    return in_sequence(*copies)


@kernel("Slice")
def slice_(step: Step) -> Run | None:
    """Select ranges along axes."""
    return when_known(step, (1, 2, 3, 4), lambda: copy(sliced(step), result(step)))


def sliced(step: Step) -> np.ndarray:
    """Return the slice as a view of the input."""
    x, y = operand(step, 0), result(step)
    starts, stops = numbers(step, "starts", 1), numbers(step, "ends", 2)
    if starts is None or stops is None or len(starts) != len(stops):
        raise invalid(step, f"starts are {starts} and ends are {stops}")
    axes = numbers(step, "axes", 3) or list(range(len(starts)))
    steps = numbers(step, "steps", 4) or [1] * len(starts)
    if not len(axes) == len(steps) == len(starts) or 0 in steps:
        raise invalid(step, f"axes are {axes}, steps {steps}, starts {starts}")
    index = [slice(None)] * x.ndim
    for axis, start, stop, stride in zip(axes, starts, stops, steps, strict=True):
        axis = normalized_axis(step, axis, x.ndim)
        index[axis] = _slice_of(x.shape[axis], start, stop, stride)
    view = box_of(x, index)
    if view.shape != y.shape:
        raise ShapeMismatch(
            f"node {step.signature.name!r} (Slice) selects shape {view.shape} for {y.shape}"
        )
    return view


def _slice_of(length: int, start: int, stop: int, stride: int) -> slice:
    """Return the slice; unlike Python's, ends that are too small reach before the first element."""
    start, stop = (at + length if at < 0 else at for at in (start, stop))
    if stride > 0:
        return slice(min(max(start, 0), length), min(max(stop, 0), length), stride)
    start, stop = min(max(start, 0), length - 1), min(max(stop, -1), length - 1)
    return slice(start, None if stop < 0 else stop, stride)


# -- another order --------------------------------------------------------------------


@kernel("Transpose", cut=TRANSPOSE)
def transpose(step: Step) -> Run | None:
    """Permute axes."""
    return _copy_transposed(transposed(step), result(step))


def transposed(step: Step) -> np.ndarray:
    """Return the input with permuted axes."""
    x, order = operand(step, 0), step.attributes.get("perm")
    if order is not None and sorted(order) != list(range(x.ndim)):
        raise invalid(step, f"perm is {list(order)} for {x.ndim} dimensions")
    return x.transpose(order)


_STRIPE = 32
"""Columns that are transposed together: a cache line or two of each output row."""
_LARGE = 1 << 14
"""Elements from which an array is transposed in stripes."""


def _copy_transposed(view: np.ndarray, y: np.ndarray) -> Run | None:
    """Copy in the order of the view, unless that is the order in memory."""
    shape = _merged_shape(view)
    view, y = view.reshape(shape), y.reshape(shape)
    if view.ndim < 2 or view.size < _LARGE or view.strides[-1] == view.itemsize:
        return copy(view, y)
    # NumPy walks along output rows, each element from another cache line in the input.
    stripes = (slice(at, at + _STRIPE) for at in range(0, shape[-1], _STRIPE))
    return in_sequence(*(copy(view[..., stripe], y[..., stripe]) for stripe in stripes))


def _merged_shape(view: np.ndarray) -> list[int]:
    """Return the shape with axes merged that are adjacent in memory as well."""
    shape: list[int] = []
    step = 0
    for dim, stride in zip(view.shape, view.strides, strict=True):
        if dim == 1:
            continue
        if shape and step == stride * dim:
            shape[-1] *= dim
        else:
            shape.append(dim)
        step = stride
    return shape


# -- repetition -----------------------------------------------------------------------


@kernel("Expand")
def expand(step: Step) -> Run | None:
    """Repeat along axes of length 1."""
    return when_known(step, (1,), lambda: _expansion(step))


def _expansion(step: Step) -> Run | None:
    x, y = operand(step, 0), result(step)
    target = numbers(step, "shape", 1)
    if target is not None:
        try:
            shape = np.broadcast_shapes(x.shape, tuple(target))
        except ValueError:
            raise invalid(step, f"shape {x.shape} does not expand to {target}") from None
        check_shape(step, shape)
    return copy(x.reshape(y.shape) if x.size == y.size else x, y)


@kernel("Tile")
def tile(step: Step) -> Run | None:
    """Repeat along all axes."""
    return when_known(step, (1,), lambda: _repetition(step))


def _repetition(step: Step) -> Run | None:
    x, y = operand(step, 0), result(step)
    given = numbers(step, "repeats", 1)
    if given is not None and step.signature.version >= 6:
        if len(given) != x.ndim:
            raise invalid(step, f"repeats are {given} for {x.ndim} dimensions")
        check_shape(step, [n * m for n, m in zip(x.shape, given, strict=True)])
    source = x if x.shape == y.shape else tiled(step)
    return copy(source, y.reshape(source.shape)) if y.size else None


def tiled(step: Step) -> np.ndarray:
    """Return a view with all repetitions of the input, each axis behind its number of them."""
    x, y = operand(step, 0), result(step)
    repeats = [m // max(n, 1) for m, n in zip(y.shape, x.shape, strict=True)]
    lone = x.reshape([dim for n in x.shape for dim in (1, n)])
    return np.broadcast_to(
        lone, [dim for pair in zip(repeats, x.shape, strict=True) for dim in pair]
    )


# -- padding --------------------------------------------------------------------------


_MOST_PIECES = 1 << 14
"""Most copies in one padding; nearly all paddings take a few dozen copies."""
_MODES = ("constant", "edge", "reflect", "wrap")


class _Segment(NamedTuple):
    """A stretch along one axis of a padded array."""

    target: slice
    """Position in the output."""
    source: slice | None
    """The copied part of the input (one element may stand for many); ``None`` for fill."""


@kernel("Pad", cut=PLANES)
def pad(step: Step) -> Run | None:
    """Add to axis ends, or cut axis ends off."""
    if step.attributes.get("mode", "constant") not in _MODES:
        raise invalid(step, f"mode is {step.attributes['mode']!r}")
    return when_known(step, (1, 3), lambda: _padding(step))


def _padding(step: Step) -> Run | None:
    x, y = operand(step, 0), result(step)
    mode = step.attributes.get("mode", "constant")
    before, after = pad_sizes(step, x.ndim)
    shape = tuple(b + n + a for b, n, a in zip(before, x.shape, after, strict=True))
    if shape != y.shape:
        raise ShapeMismatch(f"node {step.signature.name!r} (Pad) makes shape {shape} for {y.shape}")
    axes = [list(_segments(n, b, a, mode)) for n, b, a in zip(x.shape, before, after, strict=True)]
    if prod(map(len, axes)) > _MOST_PIECES:
        raise UnsupportedOp(
            f"node {step.signature.name!r} (Pad) repeats shape {x.shape} so often that it takes "
            f"more than {_MOST_PIECES} copies"
        )
    value = _fill_value(step)
    work: list[Run | None] = []
    for box in product(*axes):
        target = box_of(y, [segment.target for segment in box])
        index = [segment.source for segment in box if segment.source is not None]
        if len(index) < len(box):
            work.append(partial(np.copyto, target, value))
        else:
            work.append(copy(box_of(x, index), target))
    return in_sequence(*work)


def pad_sizes(step: Step, rank: int) -> tuple[list[int], list[int]]:
    """Return how much is added before and after each axis; negative numbers remove."""
    name = "pads" if "pads" in step.attributes else "paddings"
    pads = numbers(step, name, 1)
    axes = numbers(step, "axes", 3)
    axes = list(range(rank)) if axes is None else [normalized_axis(step, a, rank) for a in axes]
    if pads is None or len(pads) != 2 * len(axes):
        raise invalid(step, f"pads are {pads} for {len(axes)} axes")
    before, after = [0] * rank, [0] * rank
    for at, axis in enumerate(axes):
        before[axis], after[axis] = pads[at], pads[at + len(axes)]
    return before, after


def _fill_value(step: Step) -> np.ndarray:
    """Return the value for constant padding, which a run may still change."""
    array = step.input(2)
    if array is not None and array.size:
        return array.reshape(-1)[0:1].reshape(())
    return np.array(step.attributes.get("value", 0), dtype=result(step).dtype)


def _segments(length: int, before: int, after: int, mode: str) -> Iterator[_Segment]:
    """Yield the stretches along an axis that each come from one input slice, or from none."""
    if mode == "constant" or length == 0:
        yield from _constant_segments(length, before, after)
        return
    source = _source_indices(length, before, after, mode)
    start = 0
    while start < len(source):
        stride = source[start + 1] - source[start] if start + 1 < len(source) else 1
        stop = start + 1
        if stride in (-1, 0, 1):
            while stop < len(source) and source[stop] - source[stop - 1] == stride:
                stop += 1
        yield _Segment(slice(start, stop), _run_of(source[start], source[stop - 1]))
        start = stop


def _constant_segments(length: int, before: int, after: int) -> Iterator[_Segment]:
    """Yield the parts before, inside and after the input, as far as present."""
    inside = slice(max(0, -before), length + min(after, 0))
    bounds = [0, max(before, 0)]
    bounds += [bounds[1] + max(0, inside.stop - inside.start), length + before + after]
    for start, stop, source in zip(bounds, bounds[1:], (None, inside, None), strict=False):
        if start < stop:
            yield _Segment(slice(start, stop), source)


def _source_indices(length: int, before: int, after: int, mode: str) -> list[int]:
    """Return for each output position the shown input position."""
    positions = np.arange(-before, length + after)
    if mode == "edge":
        return list(np.clip(positions, 0, length - 1).tolist())
    if mode == "wrap":
        return list((positions % length).tolist())
    period = max(2 * (length - 1), 1)
    folded = positions % period
    return list(np.minimum(folded, period - folded).tolist() if length > 1 else folded.tolist())


def _run_of(first: int, last: int) -> slice:
    """Return the slice from ``first`` to ``last``, both inclusive, in either direction."""
    if first <= last:
        return slice(first, last + 1)
    return slice(first, last - 1 if last else None, -1)


# -- triangles ------------------------------------------------------------------------


@kernel("Trilu")
def trilu(step: Step) -> Run | None:
    """Keep the elements on one side of a diagonal."""
    x, y = operand(step, 0), result(step)
    return in_sequence(copy(x, y), when_known(step, (1,), lambda: _clear_triangle(step, y)))


def _clear_triangle(step: Step, y: np.ndarray) -> Run | None:
    """Clear one triangle line by line: a mask would need as much memory as a matrix."""
    k = step.input(1)
    diagonal = 0 if k is None else int(k.reshape(-1)[0])
    upper = bool(step.attributes.get("upper", 1))
    if y.shape[-2] > y.shape[-1]:  # Along columns, which are fewer.
        y, upper, diagonal = y.swapaxes(-1, -2), not upper, -diagonal
    lines, length = y.shape[-2:]
    work: list[Run | None] = []
    for line in range(lines):
        first = min(max(line + diagonal + (not upper), 0), length)
        rest = y[..., line, :first] if upper else y[..., line, first:]
        if rest.size:
            work.append(partial(rest.fill, 0))
    return in_sequence(*work)
