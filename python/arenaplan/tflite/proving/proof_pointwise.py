"""
Elementwise operators, with broadcasting.

A result element depends on one element of every operand. Two calls with the same parameters make
the same bits from equal elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from arenaplan.tflite.proving.elements import DOUBT, Elements, Names, Shape, first_twins
from arenaplan.tflite.proving.facts import Fact, Key, Operation
from arenaplan.tflite.proving.guess import Index, Indices

_KNOWN: Final = """
    ABS ADD CAST CEIL COS DEQUANTIZE DIV ELU EQUAL EXP FLOOR FLOOR_DIV FLOOR_MOD GELU GREATER
    GREATER_EQUAL HARD_SWISH LEAKY_RELU LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR
    LOGISTIC MAXIMUM MINIMUM MUL NEG NOT_EQUAL POW PRELU QUANTIZE RELU RELU6 RELU_0_TO_1
    RELU_N1_TO_1 ROUND RSQRT SIGN SIN SQRT SQUARE SQUARED_DIFFERENCE SUB TANH
"""
_NAMES: Final = frozenset(_KNOWN.split())


class Pointwise(NamedTuple):
    """An operator that computes element by element."""

    key: Key
    """All that a kernel can see but shapes and elements."""
    shape: Shape
    """The result's shape."""


def pointwise_of(operation: Operation, tensors: Sequence[Fact]) -> Pointwise | None:
    """Return an operator as an elementwise operator; ``None`` if not elementwise."""
    if operation.is_custom or operation.intermediates or operation.name not in _NAMES:
        return None
    if len(operation.outputs) != 1 or operation.plain.kind < 0:
        return None
    facts = [None if i is None else tensors[i] for i in (*operation.inputs, operation.outputs[0])]
    known = [fact for fact in facts if fact is not None]
    if len(known) < len(facts) or any(f.is_variable or f.zero_point is None for f in known):
        return None
    *operands, y = known
    try:
        shape = np.broadcast_shapes(*(fact.shape for fact in operands))
    except ValueError:
        return None
    if shape != y.shape or y.is_constant:
        return None
    key = (operation.name, operation.version, operation.rest, operation.options)
    return Pointwise((*key, tuple(fact.encoding for fact in known)), shape)


def matched(
    new: Pointwise,
    old: Pointwise,
    operands: Sequence[Elements],
    sources: Sequence[tuple[Elements, Index]],
    result: Elements,
    operator: int,
    names: Names,
) -> Elements | None:
    """
    Return a call's result elements as elements of the original call's result.

    Parameters
    ----------
    new, old : Pointwise
        The call, and the original call.
    operands : sequence of Elements
        The call's operands.
    sources : sequence of (Elements, Index)
        The original's operands, and their places.
    result : Elements
        The original's result.
    operator : int
        The operator, for messages.
    names : Names
        Numbers given so far.

    Returns
    -------
    Elements or None
        ``None`` if the parameters differ, or no operand tells which part the call makes.
    """
    if new.key != old.key or len(new.shape) != len(old.shape):
        return None
    places = _guess(new, old, operands, sources)
    blank = blank_elements(operands, new, names)
    if places is None:
        return blank if (blank < 0).all() else None
    grid = np.ix_(*(np.maximum(place, 0) for place in places))
    bad = np.zeros(new.shape, np.int64)
    fresh = 0
    for operand, (source, _) in zip(operands, sources, strict=True):
        seen = np.broadcast_to(operand, new.shape)
        wanted = np.broadcast_to(source, old.shape)[grid]
        differs = (seen != wanted) | (seen <= DOUBT)
        if not differs.any():
            continue
        plain = differs & (seen > DOUBT)
        if plain.any() and not fresh:
            where = tuple(int(i) for i in np.argwhere(plain)[0])
            fresh = names.doubt(
                operator,
                f"element {list(where)} of its result is made from "
                f"{names.told(int(seen[where]))}, and that of the original from "
                f"{names.told(int(wanted[where]))}",
            )
        bad = np.minimum(bad, np.where(differs, np.where(seen <= DOUBT, seen, fresh), 0))
    for axis, place in enumerate(places):
        if (place < 0).any():
            fresh = fresh or names.doubt(operator, "its operands are no part of the original's")
            view, where_not = np.moveaxis(bad, axis, 0), np.flatnonzero(place < 0)
            view[where_not] = np.where(view[where_not] == 0, fresh, view[where_not])
    made = np.where(bad < 0, bad, result[grid])
    if fresh and any(index.has_twins for _, index in sources):
        # An element's first place may differ from the place that the call computes.
        theirs, mine = (
            _tuples(parts, call.shape)
            for parts, call in (([source for source, _ in sources], old), (operands, new))
        )
        _, found = first_twins(theirs, mine)
        is_found = (found < len(theirs)) & (mine > DOUBT).all(axis=1)
        known = result.ravel()[np.where(is_found, found, 0)]
        made = np.where(is_found, known, made.ravel()).reshape(new.shape)
    return np.where(blank < 0, blank, made)


def without_twins(operands: Sequence[Elements], call: Pointwise, fresh: Elements) -> Elements:
    """Return new elements, with the same number for elements made from equal operands."""
    (found,) = first_twins(_tuples(operands, call.shape))
    return fresh.ravel()[found].reshape(call.shape)


def _tuples(operands: Sequence[Elements], shape: Shape) -> Elements:
    """Return a row for each result element: the operand elements."""
    return np.stack([np.broadcast_to(o, shape).ravel() for o in operands], axis=1)


def blank_elements(operands: Sequence[Elements], call: Pointwise, names: Names) -> Elements:
    """Return what a call makes from known values only; 0 for all other elements."""
    found = np.zeros(call.shape, np.int64)
    seen = np.stack([np.broadcast_to(operand, call.shape) for operand in operands], axis=-1)
    is_blank = ((seen < 0) & (seen > DOUBT)).all(axis=-1)
    if not is_blank.any():
        return found
    sights, group = np.unique(seen[is_blank], axis=0, return_inverse=True)
    made = [int(names.derived((call.key, s.tobytes()), 1)[0]) for s in sights]
    found[is_blank] = np.array(made, np.int64)[group.ravel()]
    return found


def _guess(
    new: Pointwise,
    old: Pointwise,
    operands: Sequence[Elements],
    sources: Sequence[tuple[Elements, Index]],
) -> list[Indices] | None:
    """Return, per dimension, the part of the original's result that the call may make."""
    found: list[Indices] | None = None
    pairs = zip(operands, sources, strict=True)
    for operand, (source, index) in sorted(pairs, key=lambda pair: pair[1][1].has_twins):
        if operand.shape != new.shape or source.shape != old.shape or (source < 0).all():
            continue
        axes = index.axes(operand)
        if found is None:
            found = axes
        else:
            found = [np.where(f < 0, a, f) for f, a in zip(found, axes, strict=True)]
    return found
