"""Gradients of operators that move elements."""

from __future__ import annotations

from math import prod

import numpy as np

from arenaplan.graph import Graph
from arenaplan.run.numpy import Executor
from arenaplan.train.gradients.gradient_rules import Gradients, Site, rule
from arenaplan.train.symbols import operators


def _found(at: Site, gradient: int) -> Gradients:
    return [gradient, *[None] * (len(at.node.inputs) - 1)]


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(at: Site) -> Gradients:
    """Give the gradient the operand's shape."""
    return _found(at, at.op.Reshape(at.dy, np.array(at.shape(0), np.int64), allowzero=1))


@rule("Transpose")
def transpose(at: Site) -> Gradients:
    """Put the dimensions back."""
    order = at.attribute("perm") or tuple(range(at.rank()))[::-1]
    return [at.op.Transpose(at.dy, perm=tuple(int(k) for k in np.argsort(order)))]


@rule("Concat")
def concat(at: Site) -> Gradients:
    """Give every operand a piece."""
    axis = at.axis("axis", 0, len(at.made().shape))
    found: list[int | None] = []
    start = 0
    for k in range(len(at.node.inputs)):
        stop = start + at.shape(k)[axis]
        bounds = (np.array([edge], np.int64) for edge in (start, stop, axis))
        found.append(at.op.Slice(at.dy, *bounds) if at.wants(k) else None)
        start = stop
    return found


@rule("Split")
def split(at: Site) -> Gradients:
    """Join the pieces."""
    pieces = [at.gradient(k) for k in range(len(at.node.outputs))]
    axis = at.axis("axis", 0)
    joined = at.op.Concat(*pieces, axis=axis) if len(pieces) > 1 else pieces[0]
    return _found(at, joined)


@rule("Slice")
def slice_(at: Site) -> Gradients:
    """Write zeros around the gradient."""
    shape, rank = at.shape(0), at.rank()
    given = [at.data(k).reshape(-1).tolist() if at.has(k) else None for k in range(1, 5)]
    first, _, axes, strides = given
    assert first is not None, "a slice has starts"
    axes = [axis % rank for axis in axes] if axes is not None else list(range(len(first)))
    starts, steps = [0] * rank, [1] * rank
    for k, axis in enumerate(axes):
        stride, dim = (1 if strides is None else strides[k]), shape[axis]
        start = first[k] + dim if first[k] < 0 else first[k]
        starts[axis] = min(max(start, 0), dim - 1 if stride < 0 else dim)
        steps[axis] = stride
    return _found(at, at.op.SliceGrad(at.dy, starts=starts, steps=steps, shape=shape))


@rule("Pad")
def pad(at: Site) -> Gradients:
    """Cut off a constant border; add other border elements to their sources."""
    if at.wants(2):
        raise at.refusal("the constant of the border has no gradient")
    rank, pads = at.rank(), at.data(1).reshape(-1).tolist()
    axes = list(range(rank))
    if at.has(3):
        axes = [axis % rank for axis in at.data(3).reshape(-1).tolist()]
    mode, gradient = at.attribute("mode", "constant"), at.dy
    if mode == "constant" and min(pads, default=0) >= 0:
        stops = [pads[k] + at.shape(0)[axis] for k, axis in enumerate(axes)]
        rows = (pads[: len(axes)], stops, axes)
        return _found(at, at.op.Slice(at.dy, *(np.array(row, np.int64) for row in rows)))
    for k, axis in enumerate(axes):
        taken = _padded(at.shape(0)[axis], pads[k], pads[k + len(axes)], mode)
        shape = list(at.graph.values[gradient].shape)
        kept = np.flatnonzero(taken >= 0)
        if kept.size < taken.size:
            gradient = at.op.Gather(gradient, kept, axis=axis)
        shape[axis] = at.shape(0)[axis]
        gradient = at.op.GatherGrad(gradient, taken[kept], axis=axis, shape=shape)
    return _found(at, gradient)


def _padded(count: int, before: int, after: int, mode: str) -> np.ndarray:
    """Return the source index of each element along a padded axis; -1 for the constant."""
    numbers = np.arange(count)
    wide = (max(before, 0), max(after, 0))
    given = {"constant_values": -1} if mode == "constant" else {}
    found = np.pad(numbers, wide, mode=mode, **given)  # type: ignore[call-overload]
    kept: np.ndarray = found[max(-before, 0) : found.size - max(-after, 0)]
    return kept


@rule("Expand")
def expand(at: Site) -> Gradients:
    """Sum over repetitions."""
    return _found(at, at.unbroadcast(at.dy, 0))


@rule("Tile")
def tile(at: Site) -> Gradients:
    """Sum over repetitions."""
    shape, repeats = at.shape(0), at.data(1).reshape(-1).tolist()
    pairs = [size for pair in zip(repeats, shape, strict=True) for size in pair]
    apart = at.op.Reshape(at.dy, np.array(pairs, np.int64))
    axes = np.arange(0, 2 * len(shape), 2)
    return _found(at, at.op.ReduceSum(apart, axes, keepdims=0) if shape else at.dy)


@rule("Gather", reads="x1")
def gather(at: Site) -> Gradients:
    """Add slices to their sources."""
    axis = at.axis("axis", 0)
    return [at.op.GatherGrad(at.dy, at.x(1), axis=axis, shape=at.shape(0)), None]


def _zeros(at: Site) -> int:
    return at.op.constant(np.zeros(at.shape(0), at.read(0).dtype), name="zeros")


@rule("GatherElements", reads="x1")
def gather_elements(at: Site) -> Gradients:
    """Add elements to their sources."""
    axis = at.axis("axis", 0)
    made = at.op.ScatterElements(_zeros(at), at.x(1), at.dy, axis=axis, reduction="add")
    return [made, None]


@rule("GatherND", reads="x1")
def gather_nd(at: Site) -> Gradients:
    """Add slices to their sources."""
    if at.attribute("batch_dims", 0):
        raise at.refusal("batch dimensions have no gradient")
    return [at.op.ScatterND(_zeros(at), at.x(1), at.dy, reduction="add"), None]


@rule("Trilu")
def trilu(at: Site) -> Gradients:
    """Keep the same triangle."""
    diagonal = at.node.inputs[1] if at.has(1) else None
    return _found(at, at.op.Trilu(at.dy, diagonal, upper=at.attribute("upper", 1)))


@rule("ScatterElements", "ScatterND", reads="x1")
def scatter(at: Site) -> Gradients:
    """Gather the gradient for written elements; none flows to overwritten elements."""
    op, name = at.op, at.node.op
    reduction = at.attribute("reduction", "none")
    if reduction not in ("none", "add"):
        raise at.refusal(f"reduction {reduction!r} has no gradient")
    given = {"axis": at.axis("axis", 0)} if name == "ScatterElements" else {}
    base = updates = None
    if at.wants(0):
        base = at.dy
        if reduction == "none":
            zeros = op.constant(np.zeros(at.shape(2), at.read(2).dtype), name="zeros")
            base = getattr(op, name)(at.dy, at.x(1), zeros, **given)
    if at.wants(2):
        gather = op.GatherElements if name == "ScatterElements" else op.GatherND
        updates = gather(at.dy, at.x(1), **given)
    return [base, None, updates]


@rule("TopK", reads="y1")
def top_k(at: Site) -> Gradients:
    """Write the gradient where the elements were."""
    axis = at.axis("axis", -1)
    return [at.op.ScatterElements(_zeros(at), at.y(1), at.dy, axis=axis), None]


@rule("ReverseSequence", reads="x1")
def reverse_sequence(at: Site) -> Gradients:
    """Reverse again."""
    axes = {"batch_axis": at.attribute("batch_axis", 1), "time_axis": at.attribute("time_axis", 0)}
    return [at.op.ReverseSequence(at.dy, at.x(1), **axes), None]


@rule("Compress", reads="x1")
def compress(at: Site) -> Gradients:
    """Write the gradient where the elements were; the condition is constant."""
    kept, axis, shape = np.flatnonzero(at.data(1)), at.attribute("axis"), at.shape(0)
    if axis is not None:
        return [at.op.GatherGrad(at.dy, kept, axis=axis % len(shape), shape=shape), None]
    flat = at.op.GatherGrad(at.dy, kept, axis=0, shape=(prod(shape),))
    return [at.op.Reshape(flat, np.array(shape, np.int64)), None]


@rule("Resize")
def resize(at: Site) -> Gradients:
    """Add elements to their sources, one axis after the other."""
    if at.attribute("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        raise at.refusal("regions have no gradient")
    gradient, op = at.dy, at.op
    for axis, (count, made) in enumerate(zip(at.shape(0), at.made().shape, strict=True)):
        weights = _weights(at, axis)
        if np.array_equal(weights, np.eye(count)):
            continue
        shape = list(at.graph.values[gradient].shape)
        planes = np.array([prod(shape[:axis]), made, prod(shape[axis + 1 :])], np.int64)
        shape[axis] = count
        if at.attribute("mode", "nearest") == "nearest":
            taken = weights.argmax(axis=0)
            gradient = op.GatherGrad(gradient, taken, axis=axis, shape=shape)
        else:
            data = op.constant(weights.astype(at.made().dtype), name="weights")
            gradient = op.MatMul(data, op.Reshape(gradient, planes))
            gradient = op.Reshape(gradient, np.array(shape, np.int64))
    return _found(at, gradient)


def _weights(at: Site, axis: int) -> np.ndarray:
    """Return each input element's weight in each output element along an axis."""
    count, made, rank = at.shape(0)[axis], at.made().shape[axis], at.rank()
    given = dict(at.node.attributes)
    axes = [int(k) % rank for k in given.pop("axes", None) or range(rank)]
    if given.pop("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise at.refusal("sizes that keep the ratio have no gradient")
    if axis not in axes:
        return np.eye(count)
    scales = at.data(2).reshape(-1) if at.has(2) and at.read(2).shape != (0,) else None
    probe = Graph("weights")
    x, op = probe.input("x", (count, count), "float64"), operators(probe)
    if scales is None:
        y = op.Resize(x, None, None, np.array([count, made], np.int64), **given)
    else:
        both = np.array([1, scales[axes.index(axis)]], np.float32)
        y = op.Resize(x, None, both, **given)
    probe.output(y)
    with Executor(probe) as executor:
        (found,) = executor.run({"x": np.eye(count)}).values()
    return found
