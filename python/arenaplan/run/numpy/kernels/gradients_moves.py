"""Gradients of operators that select elements: sums over all places that an element went to."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from arenaplan.graph import Choice
from arenaplan.graph.ops.own_ops import TRAINING
from arenaplan.run.numpy.kernels.indexing import check_indices
from arenaplan.run.numpy.kernels.pieces import box_of, normalized_axis, operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes


def _declare_slices(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for 64-bit whole numbers, if indices have another type."""
    indices = signature.input(1)
    if indices is None or not prod(indices.shape):
        return []
    return [[Choice(scratch_bytes(indices.shape, np.int64), 0.0)]]


@kernel("GatherGrad", domain=TRAINING, workspace=_declare_slices)
def gather_gradient(step: Step) -> Run | None:
    """Add each gradient slice to the slice that it was gathered from, in order."""
    dy, indices, dx = operand(step, 0), operand(step, 1), result(step)
    if dx.size == 0 or dy.size == 0:
        return lambda: dx.fill(0)
    axis = normalized_axis(step, step.attributes.get("axis", 0), dx.ndim)
    outer, length, inner = prod(dx.shape[:axis]), dx.shape[axis], prod(dx.shape[axis + 1 :])
    target = dx.reshape(outer, length, inner)
    source = dy.reshape(outer, indices.size, inner)
    places = step.scratch().array((indices.size,), np.int64)

    def run() -> None:
        check_indices(step, indices, length)
        np.remainder(indices.reshape(-1), length, out=places, casting="unsafe")
        dx.fill(0)
        for row, gradient in zip(target, source, strict=True):
            for place, addend in zip(places.tolist(), gradient, strict=True):
                np.add(row[place], addend, out=row[place])

    return run


@kernel("SliceGrad", domain=TRAINING)
def slice_gradient(step: Step) -> Run | None:
    """Write zeros, and the gradient at the elements that were selected."""
    dy, dx = operand(step, 0), result(step)
    box = []
    for start, stride, count in zip(
        step.attributes["starts"], step.attributes["steps"], dy.shape, strict=True
    ):
        stop = start + count * stride
        box.append(slice(start, stop if stop >= 0 else None, stride))
    target = box_of(dx, box) if dy.size else dx[:0]

    def run() -> None:
        dx.fill(0)
        if dy.size:
            np.copyto(target, dy)

    return run
