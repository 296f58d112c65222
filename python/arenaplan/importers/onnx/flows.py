"""
Which outputs can be made in pieces, so that a node can run as one with its neighbors.

An operator that is not in the table needs its operands whole, and its result is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import TypeAlias

from arenaplan.graph import Effects, Flow
from arenaplan.importers.onnx.op import Op, Result
from arenaplan.importers.onnx.rules.elementwise import (
    ARITHMETIC,
    COMPARISONS,
    SAME,
    VARIADIC,
    trains,
)
from arenaplan.importers.onnx.rules.layout import pads
from arenaplan.importers.onnx.rules.reduce import reduced_axes

Describe: TypeAlias = Callable[[Op, Sequence[Result]], "tuple[int, tuple[int, ...]] | None"]
"""Returns pieces and the inputs that follow them, or ``None`` if there are no pieces."""


def _elementwise(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]]:
    """As many pieces as elements; operands that are broadcast are needed whole."""
    shape = results[0][0]
    follows = [at for at, x in enumerate(op.inputs) if x is not None and x.shape == shape]
    return prod(shape), tuple(follows)


def _first_operand(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]]:
    """As many pieces as elements of operand 0; the others are parameters."""
    return prod(results[0][0]), (0,)


def _batch_norm(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]] | None:
    """Elementwise when inferring."""
    training = trains(op)
    return None if training else _first_operand(op, results)


def _anchor(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]]:
    """Any piece can be made, from all of the operands."""
    return prod(results[0][0]), ()


def _conv(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]]:
    """One piece per channel of the image if no channel needs another one, and else an anchor."""
    x, shape = op.input(0).shape, results[0][0]
    if len(x) < 3 or op.integer("group", 1) != x[1] or x[1] == 1 or shape[1] % x[1]:
        return _anchor(op, results)
    return prod(x[:2]), (0,)


def _lrn(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]]:
    """One piece per channel of each image, for which others are needed, too."""
    return prod(results[0][0][:2]), ()


def _transpose(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]]:
    """Any block of elements that stay together, from all of the operand."""
    shape, rank = results[0][0], len(results[0][0])
    perm = op.integers("perm") or tuple(range(rank))[::-1]
    moved = max((axis for axis in range(rank) if perm[axis] != axis), default=-1)
    return prod(shape[: min(moved + 1, rank - 1)]), ()


def _planes(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]] | None:
    """One piece per channel of each image: elements behind axis 1 belong together."""
    x, shape = op.input(0).shape, results[0][0]
    if any(op.outputs[1:]) or len(x) < 3 or shape[:2] != x[:2]:
        return None
    return prod(x[:2]), (0,)


def _resize(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]] | None:
    """Planes, if channels are neither mixed nor moved."""
    first = op.version < 11 or op.type == "Upsample"
    if not first and op.text("coordinate_transformation_mode", "half_pixel") in _CROPS:
        return None
    if op.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    axes = op.integers("axes")
    rank = len(op.input(0).shape)
    where = tuple(range(rank)) if axes is None else op.axes(axes, rank)
    sizes = None if first else op.optional(3)
    if sizes is None or sizes.shape == (0,):
        if op.type == "Upsample" and op.version < 9:
            scales = op.attributes.get("scales", ())
        else:
            scales = op.array(1 if first else 2).reshape(-1).tolist()
        if any(scale != 1 for axis, scale in zip(where, scales, strict=True) if axis < 2):
            return None
    return _planes(op, results)


def _pad(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]] | None:
    """Planes, if no channel is added or left out."""
    x = op.input(0)
    if any(pair != (0, 0) for pair in pads(op, len(x.shape))[:2]):
        return None
    return _planes(op, results)


def _product(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]]:
    """One piece per row of the left operand."""
    shape, x = results[0][0], op.input(0)
    rows = prod(shape[:-1])
    # Where the left operand is repeated, its rows are not in step with the result's.
    return rows, ((0,) if len(x.shape) > 1 and x.shape[:-1] == shape[:-1] else ())


def _gemm(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]]:
    """One piece per row of the left operand, unless that is transposed."""
    return results[0][0][0], (() if op.integer("transA", 0) else (0,))


def _along_axis(default: int) -> Describe:
    """One piece per index before the attribute ``axis``: elements behind belong together."""

    def describe(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]]:
        shape = op.input(0).shape
        axis = op.axis(op.integer("axis", default), len(shape)) if shape else 0
        return prod(shape[:axis]), (0,)

    return describe


def _softmax(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]] | None:
    """Until version 13, everything from the axis on belonged together by definition."""
    return _along_axis(1 if op.version < 13 else -1)(op, results)


def _layer_norm(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]] | None:
    """Rows, unless statistics are asked for, too."""
    return None if any(op.outputs[1:]) else _along_axis(-1)(op, results)


def _reduction(op: Op, results: Sequence[Result]) -> tuple[int, tuple[int, ...]] | None:
    """One piece per index before the first axis that is reduced."""
    shape = op.input(0).shape
    axes = reduced_axes(op, len(shape))
    return (prod(shape[: axes[0]]), (0,)) if axes else None


_LOADS = (0,)
_CROPS = ("tf_crop_and_resize",)
_POOLS = (
    *("AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "InstanceNormalization"),
    *("LpPool", "MaxPool"),
)
_UNARY = (
    *(op for op in SAME if op not in ("CumProd", "CumSum", "Identity", "Trilu")),
    *("Cast", "DequantizeLinear", "IsInf", "IsNaN", "QuantizeLinear"),
)
_REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)

FLOWS: Mapping[str, tuple[Describe, tuple[int, ...]]] = {
    **dict.fromkeys((*ARITHMETIC, *COMPARISONS, *VARIADIC, "Pow", "Where"), (_elementwise, ())),
    **dict.fromkeys(_UNARY, (_first_operand, ())),
    **dict.fromkeys(_REDUCTIONS, (_reduction, ())),
    **dict.fromkeys(_POOLS, (_planes, ())),
    "BatchNormalization": (_batch_norm, ()),
    "Conv": (_conv, _LOADS),
    "ConvTranspose": (_anchor, ()),
    "Gemm": (_gemm, _LOADS),
    "LRN": (_lrn, ()),
    "LayerNormalization": (_layer_norm, ()),
    "LogSoftmax": (_softmax, ()),
    "MatMul": (_product, _LOADS),
    "Pad": (_pad, ()),
    "RMSNormalization": (_layer_norm, ()),
    "Resize": (_resize, ()),
    "Softmax": (_softmax, ()),
    "Transpose": (_transpose, ()),
    "Upsample": (_resize, ()),
}
"""By operator of the default domain: its pieces, and the inputs that it loads tile by tile."""


@lru_cache(1024)
def _flows(pieces: int, follows: tuple[int, ...]) -> tuple[Flow, ...]:
    """Return the flow of output 0; networks repeat few of them many times."""
    return (Flow(0, pieces, follows),)


def with_flows(op: Op, results: Sequence[Result], effects: Effects) -> Effects:
    """Return the effects of an operator with the known facts about its pieces."""
    known = None if op.domain else FLOWS.get(op.type)
    if known is None:
        return effects
    describe, loads = known
    found = describe(op, results)
    if found is None or found[0] < 2:
        return effects
    in_place, views, ignores, mutates, workspaces, _, _, overlaps = effects
    flows = _flows(*found)
    return Effects(in_place, views, ignores, mutates, workspaces, flows, loads, overlaps)
