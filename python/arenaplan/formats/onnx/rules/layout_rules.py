"""Shape rules for operators that move, cut, join or repeat data."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, prod

import numpy as np

from arenaplan.base.errors import (
    InvalidAttribute,
    InvalidOperand,
    ShapeMismatch,
    SizeError,
    UnsupportedDtype,
)
from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.op import DataDependent, Op
from arenaplan.formats.onnx.rules.elementwise_rules import broadcast
from arenaplan.formats.onnx.tensors import StoredTensor, dtype_of
from arenaplan.graph.ops import Shape
from arenaplan.graph.sizes import MAX_BYTES


def reshape(op: Op) -> Sequence[Result]:
    """Any shape with the same element count; 0 copies a dimension and -1 takes the rest."""
    x = op.input(0)
    target = op.integers("shape") if op.version < 5 else op.numbers(1)
    if target is None:
        raise op.error(InvalidAttribute, "attribute 'shape' is missing")
    dims = list(target)
    if not op.flag("allowzero"):
        for axis, dim in enumerate(dims):
            if dim == 0:
                if axis >= len(x.shape):
                    raise op.error(ShapeMismatch, f"shape {target} copies axis {axis} of {x.shape}")
                dims[axis] = x.shape[axis]
    count = prod(x.shape)
    if -1 in dims:
        rest = dims.index(-1)
        dims[rest] = 1
        known = prod(dims)
        if known:
            dims[rest] = count // known
        elif not count:
            dims[rest] = 0
    if any(dim < 0 for dim in dims) or prod(dims) != count:
        raise op.error(ShapeMismatch, f"data of shape {x.shape} cannot take shape {target}")
    return ((tuple(dims), x.dtype),)


def flatten(op: Op) -> Sequence[Result]:
    """Two dimensions."""
    x = op.input(0)
    axis, rank = op.integer("axis", 1), len(x.shape)
    if axis != rank:
        axis = op.axis(axis, rank)
    return (((prod(x.shape[:axis]), prod(x.shape[axis:])), x.dtype),)


def squeeze(op: Op) -> Sequence[Result]:
    """Some dimensions of size 1 removed."""
    x = op.input(0)
    axes = op.either("axes", 1)
    if axes is None:
        return ((tuple(dim for dim in x.shape if dim != 1), x.dtype),)
    gone = op.axes(axes, len(x.shape))
    if any(x.shape[axis] != 1 for axis in gone):
        raise op.error(ShapeMismatch, f"axes {axes} of {x.shape} are not all 1")
    return ((tuple(dim for axis, dim in enumerate(x.shape) if axis not in gone), x.dtype),)


def unsqueeze(op: Op) -> Sequence[Result]:
    """Dimensions of size 1 added."""
    x = op.input(0)
    axes = op.either("axes", 1)
    if axes is None:
        raise op.error(InvalidAttribute, "attribute 'axes' is missing")
    dims = list(x.shape)
    for axis in sorted(op.axes(axes, len(x.shape) + len(axes))):
        dims.insert(axis, 1)
    return ((tuple(dims), x.dtype),)


def transpose(op: Op) -> Sequence[Result]:
    """Dimensions in another order; reversed unless told."""
    x = op.input(0)
    rank = len(x.shape)
    perm = op.integers("perm")
    if perm is None:
        return ((x.shape[::-1], x.dtype),)
    if sorted(perm) != list(range(rank)):
        raise op.error(InvalidAttribute, f"perm {perm} is not a permutation of {rank} dimensions")
    return ((tuple(x.shape[axis] for axis in perm), x.dtype),)


def compress(op: Op) -> Sequence[Result]:
    """As many slices as a constant condition keeps."""
    x = op.input(0)
    count = int(np.count_nonzero(op.array(1)))
    if op.attributes.get("axis") is None:
        return (((count,), x.dtype),)
    axis = op.axis(op.integer("axis"), len(x.shape))
    return (((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype),)


def concat(op: Op) -> Sequence[Result]:
    """Operands with the same type that differ along one axis."""
    first = op.input(0)
    rank = len(first.shape)
    axis = op.axis(op.integer("axis", 1 if op.version < 4 else None), rank)
    before, after = first.shape[:axis], first.shape[axis + 1 :]
    total = 0
    for position in range(len(op.inputs)):
        _, x = op.pair(0, position)
        shape = x.shape
        if len(shape) != rank or shape[:axis] != before or shape[axis + 1 :] != after:
            raise op.error(
                ShapeMismatch, f"shapes {first.shape} and {shape} do not join on axis {axis}"
            )
        total += shape[axis]
    return (((*before, total, *after), first.dtype),)


def split_sizes(op: Op) -> tuple[int, ...]:
    """Return the piece lengths for a Split node."""
    x = op.input(0)
    dim, count = x.shape[op.axis(op.integer("axis", 0), len(x.shape))], len(op.outputs)
    sizes = op.either("split", 1)
    if sizes is None:
        parts = op.integer("num_outputs", count)
        if parts != count:
            raise op.error(InvalidAttribute, f"num_outputs is {parts} for {count} outputs")
        size = -(-dim // count)
        if op.version < 18 and dim % count:
            raise op.error(
                InvalidAttribute, f"{dim} elements do not split into {count} equal parts"
            )
        sizes = tuple(max(0, min(size, dim - size * part)) for part in range(count))
    if len(sizes) != count or min(sizes, default=0) < 0 or sum(sizes) != dim:
        raise op.error(InvalidAttribute, f"sizes {sizes} do not split {dim} into {count} outputs")
    return sizes


def split(op: Op) -> Sequence[Result]:
    """Pieces along an axis."""
    x, sizes = op.input(0), split_sizes(op)
    axis = op.axis(op.integer("axis", 0), len(x.shape))
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    return tuple(((*before, size, *after), x.dtype) for size in sizes)


def slices(op: Op, shape: Shape) -> list[range]:
    """Return the indices that a Slice node takes along each axis."""
    if op.version < 10:
        starts, ends, axes, steps = (
            op.integers("starts"),
            op.integers("ends"),
            op.integers("axes"),
            None,
        )
    else:
        starts, ends = op.numbers(1), op.numbers(2)
        axes = op.numbers(3) if op.optional(3) is not None else None
        steps = op.numbers(4) if op.optional(4) is not None else None
    if starts is None or ends is None:
        raise op.error(InvalidAttribute, "attribute 'starts' or 'ends' is missing")
    where = op.axes(axes if axes is not None else range(len(starts)), len(shape))
    steps = steps if steps is not None else (1,) * len(starts)
    if not len(starts) == len(ends) == len(where) == len(steps):
        raise op.error(
            InvalidAttribute, f"starts {starts}, ends {ends}, axes {where}, steps {steps}"
        )
    if 0 in steps:
        raise op.error(InvalidAttribute, f"steps {steps} contain 0")
    result = [range(dim) for dim in shape]
    for start, end, axis, step in zip(starts, ends, where, steps, strict=True):
        result[axis] = _taken(shape[axis], start, end, step)
    return result


def _taken(length: int, start: int, end: int, step: int) -> range:
    """Return a slice's indices; unlike in Python, a start before the first index is clamped."""
    start, end = (at + length if at < 0 else at for at in (start, end))
    if step > 0:
        return range(min(max(start, 0), length), min(max(end, 0), length), step)
    return range(min(max(start, 0), length - 1), min(max(end, -1), length - 1), step)


def slice_(op: Op) -> Sequence[Result]:
    """A box, possibly with gaps or backwards."""
    x = op.input(0)
    return ((tuple(len(taken) for taken in slices(op, x.shape)), x.dtype),)


def gather(op: Op) -> Sequence[Result]:
    """Rows along an axis; known indices must be in range."""
    x, indices = op.input(0), op.input(1)
    axis = op.axis(op.integer("axis", 0), len(x.shape))
    _check_indices(op, x.shape[axis])
    return ((x.shape[:axis] + indices.shape + x.shape[axis + 1 :], x.dtype),)


def gather_elements(op: Op) -> Sequence[Result]:
    """An element for each index."""
    x, indices = op.input(0), op.input(1)
    axis = op.axis(op.integer("axis", 0), len(x.shape))
    if len(indices.shape) != len(x.shape):
        raise op.error(
            ShapeMismatch, f"indices of shape {indices.shape} into data of shape {x.shape}"
        )
    _check_indices(op, x.shape[axis])
    return ((indices.shape, x.dtype),)


def _check_indices(op: Op, dim: int) -> None:
    """Refuse known indices that are out of range."""
    indices = op.input(1)
    if indices.dtype not in ("int64", "int32"):
        raise op.error(InvalidOperand, f"indices are of type {indices.dtype}")
    if not indices.inline or prod(indices.shape) > 1 << 16:
        return
    data = op.array(1)
    if data.size and (data.min() < -dim or data.max() >= dim):
        raise op.error(InvalidAttribute, f"an index is out of range for {dim} elements")


def gather_nd(op: Op) -> Sequence[Result]:
    """A slice for each index vector."""
    x, indices = op.input(0), op.input(1)
    batch = op.integer("batch_dims", 0)
    depth = indices.shape[-1] if indices.shape else 0
    if not 0 <= batch <= len(x.shape) - depth or batch >= len(indices.shape):
        raise op.error(
            ShapeMismatch, f"indices of shape {indices.shape} into data of shape {x.shape}"
        )
    return ((indices.shape[:-1] + x.shape[batch + depth :], x.dtype),)


def expand(op: Op) -> Sequence[Result]:
    """Dimensions of size 1 repeated."""
    x, target = op.input(0), op.numbers(1)
    if any(dim < 0 for dim in target):
        raise op.error(InvalidAttribute, f"shape {target} has a negative dimension")
    return ((broadcast(op, x.shape, target), x.dtype),)


def tile(op: Op) -> Sequence[Result]:
    """All data repeated."""
    x, repeats = op.input(0), op.numbers(1)
    if op.version < 6:
        raise DataDependent
    if len(repeats) != len(x.shape) or any(count < 0 for count in repeats):
        raise op.error(InvalidAttribute, f"repeats {repeats} for data of shape {x.shape}")
    return ((tuple(d * n for d, n in zip(x.shape, repeats, strict=True)), x.dtype),)


def pads(op: Op, rank: int) -> list[tuple[int, int]]:
    """Return the elements that a Pad node adds before and after each axis."""
    values = op.integers("paddings") if op.version < 2 else op.either("pads", 1)
    if values is None:
        raise op.error(InvalidAttribute, "attribute 'pads' is missing")
    axes = op.axes(op.numbers(3), rank) if op.optional(3) is not None else tuple(range(rank))
    count = len(axes)
    if len(values) != 2 * count:
        raise op.error(InvalidAttribute, f"pads {values} for {count} axes")
    result = [(0, 0)] * rank
    for position, axis in enumerate(axes):
        result[axis] = (values[position], values[count + position])
    return result


def pad(op: Op) -> Sequence[Result]:
    """Data with a border, or cut where pads are negative."""
    x = op.input(0)
    dims = tuple(d + a + b for d, (a, b) in zip(x.shape, pads(op, len(x.shape)), strict=True))
    if any(dim < 0 for dim in dims):
        raise op.error(InvalidAttribute, f"pads cut more than all off data of shape {x.shape}")
    return ((dims, x.dtype),)


def resize(op: Op) -> Sequence[Result]:
    """Axes scaled by factors, or to sizes."""
    x = op.input(0)
    rank = len(x.shape)
    op.flags("antialias", "exclude_outside")
    # Upsample, and the first Resize, had no region of interest and no sizes.
    first = op.version < 11 or op.type == "Upsample"
    factors_at = 1 if first else 2
    axes = op.integers("axes")
    where = op.axes(axes, rank) if axes is not None else tuple(range(rank))
    dims = list(x.shape)
    sizes = None if first else op.optional(3)
    factors = op.optional(factors_at)
    policy = op.text("keep_aspect_ratio_policy", "stretch")
    if sizes is not None and sizes.shape != (0,):
        wanted = op.numbers(3)
        if len(wanted) != len(where) or any(size < 0 for size in wanted):
            raise op.error(InvalidAttribute, f"sizes {wanted} for data of shape {x.shape}")
        if policy != "stretch":
            wanted = _in_proportion(op, policy, [dims[axis] for axis in where], wanted)
        for axis, size in zip(where, wanted, strict=True):
            dims[axis] = size
    elif factors is not None or op.version < 9:
        for axis, size in zip(where, _scaled(op, factors_at, x.shape, where), strict=True):
            dims[axis] = size
    else:
        raise op.error(InvalidOperand, "neither scales nor sizes are given")
    return ((tuple(dims), x.dtype),)


def _scaled(op: Op, position: int, shape: Shape, axes: Shape) -> list[int]:
    """Return axes times factors, which old versions have as an attribute."""
    if op.version < 9:
        given = op.attributes.get("scales")
        factors = np.array(given if isinstance(given, tuple) else (), np.float32)
    else:
        factors = op.array(position)
    if factors.shape != (len(axes),) or not np.issubdtype(factors.dtype, np.floating):
        raise op.error(InvalidAttribute, f"scales of shape {factors.shape} for {len(axes)} axes")
    if not (np.isfinite(factors).all() and (factors > 0).all()):
        raise op.error(InvalidAttribute, "a scale is not positive and finite")
    # The specification scales in single precision.
    with np.errstate(over="ignore"):
        sizes = (np.array([shape[axis] for axis in axes], np.float32) * factors).tolist()
    if any(size > MAX_BYTES for size in sizes):
        raise op.error(
            SizeError, f"scales make an axis of {max(sizes):.0f} elements", kind="SizeOverflow"
        )
    return [floor(size) for size in sizes]


def _in_proportion(op: Op, policy: str, dims: Sequence[int], sizes: Shape) -> Shape:
    """Return sizes with the proportions of ``dims``."""
    ratios = [size / dim for size, dim in zip(sizes, dims, strict=True) if dim]
    if policy not in ("not_larger", "not_smaller") or not ratios:
        raise op.error(
            InvalidAttribute, f"keep_aspect_ratio_policy {policy[:20]!r} for {tuple(dims)}"
        )
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return tuple(floor(dim * ratio + 0.5) for dim in dims)


# -- sources -------------------------------------------------------------------


def shape_(op: Op) -> Sequence[Result]:
    """The input's shape, or part of it."""
    return (((len(shape_range(op)),), "int64"),)


def shape_range(op: Op) -> range:
    """Return which dimensions a Shape node reports."""
    rank = len(op.input(0).shape)
    start, end, _ = slice(op.integer("start", 0), op.integer("end", rank)).indices(rank)
    return range(start, end)


def size(op: Op) -> Sequence[Result]:
    """The number of elements."""
    op.input(0)
    return (((), "int64"),)


def constant_value(op: Op) -> StoredTensor | np.ndarray:
    """Return a Constant node's data."""
    for name, value in op.attributes.items():
        match name, value:
            case "value", StoredTensor():
                return value
            case "value_float", float():
                return np.array(value, np.float32)
            case "value_int", int():
                return np.array(value, np.int64)
            case "value_floats", tuple() if all(type(item) is float for item in value):
                return np.array(value, np.float32)
            case "value_ints", tuple() if all(type(item) is int for item in value):
                return np.array(value, np.int64)
            case (("value_string" | "value_strings" | "sparse_value"), _):
                raise op.error(UnsupportedDtype, f"{name} holds strings or is sparse")
    raise op.error(InvalidAttribute, f"no attribute of {sorted(op.attributes)} holds numbers")


def constant(op: Op) -> Sequence[Result]:
    """The data of one among several attributes."""
    value = constant_value(op)
    return ((value.shape, str(value.dtype)),)


def constant_of_shape(op: Op) -> Sequence[Result]:
    """An element, repeated."""
    dims = op.numbers(0)
    if dims and min(dims) < 0:
        raise op.error(InvalidAttribute, f"shape {dims} has a negative dimension")
    value = op.attributes.get("value")
    if value is None:
        return ((dims, "float32"),)
    if not isinstance(value, StoredTensor) or prod(value.shape) != 1:
        raise op.error(InvalidAttribute, "attribute 'value' is not one number")
    return ((dims, value.dtype),)


def range_(op: Op) -> Sequence[Result]:
    """Numbers at a distance."""
    start, limit, delta = (op.scalar(position) for position in range(3))
    if not delta:
        raise op.error(InvalidAttribute, "the distance is 0")
    if isinstance(start, int) and isinstance(limit, int) and isinstance(delta, int):
        count = -((start - limit) // delta)
    else:
        steps = (limit - start) / delta
        if not abs(steps) < MAX_BYTES:
            raise op.error(SizeError, f"a range of {steps} numbers", kind="SizeOverflow")
        count = ceil(steps)
    return (((max(count, 0),), op.input(0).dtype),)


def eye_like(op: Op) -> Sequence[Result]:
    """A diagonal."""
    x = op.input(0)
    if len(x.shape) != 2:
        raise op.error(ShapeMismatch, f"shape {x.shape} is not a matrix")
    code = op.integer("dtype", 0)
    return ((x.shape, dtype_of(code, op.label) if code else x.dtype),)


def random_like(op: Op) -> Sequence[Result]:
    """Random numbers in the input's shape."""
    x = op.input(0)
    code = op.integer("dtype", 0)
    return ((x.shape, dtype_of(code, op.label) if code else x.dtype),)


def random(op: Op) -> Sequence[Result]:
    """Random numbers in a given shape."""
    dims = op.integers("shape")
    if dims is None or any(dim < 0 for dim in dims):
        raise op.error(InvalidAttribute, f"shape is {dims}")
    return ((dims, dtype_of(op.integer("dtype", 1), op.label)),)


def one_hot(op: Op) -> Sequence[Result]:
    """A new axis as long as there are classes."""
    indices, values = op.input(0), op.input(2)
    depth = op.scalar(1)
    if not 0 <= depth <= MAX_BYTES:
        raise op.error(InvalidAttribute, f"depth is {depth}")
    dims = list(indices.shape)
    dims.insert(op.axis(op.integer("axis", -1), len(dims) + 1), int(depth))
    return ((tuple(dims), values.dtype),)


def nonzero(op: Op) -> Sequence[Result]:
    """Positions of nonzero elements; the count is known only with the data."""
    rank, data = max(len(op.input(0).shape), 1), op.array(0)
    return (((rank, int(np.count_nonzero(data))), "int64"),)
