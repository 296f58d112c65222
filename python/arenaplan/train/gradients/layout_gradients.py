"""Gradients of operators that move elements."""

from __future__ import annotations

import numpy as np

from arenaplan.train.gradients.gradient_rules import Gradients, Site, rule


def _found(at: Site, gradient: int) -> Gradients:
    return [gradient, *[None] * (len(at.node.inputs) - 1)]


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(at: Site) -> Gradients:
    """Give the gradient the shape of the operand."""
    return _found(at, at.op.Reshape(at.dy, np.array(at.shape(0), np.int64), allowzero=1))


@rule("Transpose")
def transpose(at: Site) -> Gradients:
    """Put the dimensions back."""
    order = at.attribute("perm") or tuple(range(at.rank()))[::-1]
    return [at.op.Transpose(at.dy, perm=tuple(int(k) for k in np.argsort(order)))]


@rule("Concat")
def concat(at: Site) -> Gradients:
    """Give every operand its piece."""
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
    """Cut the border off."""
    if at.attribute("mode", "constant") != "constant":
        raise at.refusal(f"mode {at.attribute('mode')!r} has no gradient")
    if at.wants(2):
        raise at.refusal("the constant of the border has no gradient")
    rank, pads = at.rank(), at.data(1).reshape(-1).tolist()
    axes = list(range(rank))
    if at.has(3):
        axes = [axis % rank for axis in at.data(3).reshape(-1).tolist()]
    if min(pads, default=0) < 0:
        raise at.refusal(f"negative pads {pads} have no gradient")
    stops = [pads[k] + at.shape(0)[axis] for k, axis in enumerate(axes)]
    rows = (pads[: len(axes)], stops, axes)
    return _found(at, at.op.Slice(at.dy, *(np.array(row, np.int64) for row in rows)))


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
    """Add slices up where they were gathered from."""
    axis = at.axis("axis", 0)
    return [at.op.GatherGrad(at.dy, at.x(1), axis=axis, shape=at.shape(0)), None]


def _zeros(at: Site) -> int:
    return at.op.constant(np.zeros(at.shape(0), at.read(0).dtype), name="zeros")


@rule("GatherElements", reads="x1")
def gather_elements(at: Site) -> Gradients:
    """Add elements up where they were gathered from."""
    axis = at.axis("axis", 0)
    made = at.op.ScatterElements(_zeros(at), at.x(1), at.dy, axis=axis, reduction="add")
    return [made, None]


@rule("GatherND", reads="x1")
def gather_nd(at: Site) -> Gradients:
    """Add slices up where they were gathered from."""
    if at.attribute("batch_dims", 0):
        raise at.refusal("batch dimensions have no gradient")
    return [at.op.ScatterND(_zeros(at), at.x(1), at.dy, reduction="add"), None]


@rule("DepthToSpace")
def depth_to_space(at: Site) -> Gradients:
    """Move blocks back into channels."""
    if at.attribute("mode", "DCR") != "DCR":
        raise at.refusal("mode CRD has no gradient")
    return [at.op.SpaceToDepth(at.dy, blocksize=at.attribute("blocksize"))]


@rule("SpaceToDepth")
def space_to_depth(at: Site) -> Gradients:
    """Move channels back into blocks."""
    return [at.op.DepthToSpace(at.dy, blocksize=at.attribute("blocksize"))]


@rule("Trilu")
def trilu(at: Site) -> Gradients:
    """Keep the same triangle."""
    diagonal = at.node.inputs[1] if at.has(1) else None
    return _found(at, at.op.Trilu(at.dy, diagonal, upper=at.attribute("upper", 1)))
