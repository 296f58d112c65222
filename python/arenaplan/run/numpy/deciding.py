"""
Operators whose result sizes depend on the content of inputs.

Such operators run before there is memory for the results: a function returns new arrays, and the
executor copies the arrays to their places once planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from arenaplan.base.errors import InvalidOperand, UnsupportedOp

Arrays: TypeAlias = Sequence["np.ndarray | None"]
Decide: TypeAlias = "Callable[[Mapping[str, Any], Arrays], Sequence[np.ndarray]]"


def decided(
    op: str, node: str, attributes: Mapping[str, Any], inputs: Arrays
) -> Sequence[np.ndarray]:
    """
    Return a deciding operator's results.

    Parameters
    ----------
    op : str
        Operator in the default domain.
    node : str
        The node, for messages.
    inputs : sequence of array or None
        Operands; ``None`` where an operand is left out.

    Raises
    ------
    UnsupportedOp
        If the operator is unknown.
    InvalidOperand
        If the operator cannot have these operands.
    """
    known = _DECIDERS.get(op)
    if known is None:
        raise UnsupportedOp(f"{node}: no kernel decides the size of its results")
    try:
        return known(attributes, inputs)
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidOperand(f"{node}: {error}") from error


def _given(inputs: Arrays, position: int) -> np.ndarray:
    array = inputs[position] if position < len(inputs) else None
    if array is None:
        raise ValueError(f"input {position} is missing")
    return array


def _nonzero(attributes: Mapping[str, Any], inputs: Arrays) -> Sequence[np.ndarray]:
    """Indices of nonzero elements, one column each."""
    return [np.stack(np.nonzero(np.atleast_1d(_given(inputs, 0)))).astype(np.int64)]


def _compress(attributes: Mapping[str, Any], inputs: Arrays) -> Sequence[np.ndarray]:
    """Slices along an axis for which a condition holds."""
    data, condition = _given(inputs, 0), _given(inputs, 1)
    return [np.compress(condition, data, axis=attributes.get("axis"))]


def _unique(attributes: Mapping[str, Any], inputs: Arrays) -> Sequence[np.ndarray]:
    """Different elements or slices, the first position of each, and the counts."""
    data, axis = _given(inputs, 0), attributes.get("axis")
    values, first, inverse, counts = np.unique(data, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not attributes.get("sorted", 1):
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return [values, *(array.astype(np.int64) for array in (first, inverse, counts))]


# -- boxes ----------------------------------------------------------------------------------


def _suppress(attributes: Mapping[str, Any], inputs: Arrays) -> Sequence[np.ndarray]:
    """Boxes with the best scores, without boxes that overlap a better box too much."""
    boxes, scores = _given(inputs, 0), _given(inputs, 1)
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[2] != 4:
        raise ValueError(f"boxes have shape {boxes.shape} and scores {scores.shape}")
    if (boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2]):
        raise ValueError(f"boxes have shape {boxes.shape} and scores {scores.shape}")
    most, overlap, least = (_number(inputs, position) for position in (2, 3, 4))
    corners = _corners(boxes, bool(attributes.get("center_point_box", 0)))
    rows = [
        (batch, label, box)
        for batch in range(scores.shape[0])
        for label in range(scores.shape[1])
        for box in _best(
            corners[:, batch], scores[batch, label], int(most or 0), overlap or 0.0, least
        )
    ]
    return [np.array(rows, np.int64).reshape(-1, 3)]


def _number(inputs: Arrays, position: int) -> float | None:
    array = inputs[position] if position < len(inputs) else None
    return None if array is None else float(array.reshape(-1)[0])


def _corners(boxes: np.ndarray, is_centered: bool) -> np.ndarray:
    """Return low and high coordinates of boxes, by coordinate."""
    first, second, third, fourth = np.moveaxis(boxes, 2, 0)
    if is_centered:
        width, height = third / 2, fourth / 2
        return np.stack([second - height, first - width, second + height, first + width])
    return np.stack(
        [
            np.minimum(first, third),
            np.minimum(second, fourth),
            np.maximum(first, third),
            np.maximum(second, fourth),
        ]
    )


def _best(
    corners: np.ndarray, scores: np.ndarray, most: int, overlap: float, least: float | None
) -> list[int]:
    """Return one class's remaining boxes, the best first."""
    order = np.argsort(-scores, kind="stable")
    if least is not None:
        order = order[scores[order] > np.float32(least)]
    left, chosen = order.tolist(), list[int]()
    areas = (corners[2] - corners[0]) * (corners[3] - corners[1])
    while left and len(chosen) < most:
        box, others = left[0], np.array(left[1:], np.intp)
        chosen.append(box)
        low = np.maximum(corners[:2, box, None], corners[:2, others])
        high = np.minimum(corners[2:, box, None], corners[2:, others])
        common = np.prod(np.maximum(high - low, 0), axis=0)
        union = areas[box] + areas[others] - common
        # Boxes without an area suppress none and are suppressed by none.
        is_real = (common > 0) & (areas[box] > 0) & (areas[others] > 0) & (union > 0)
        share = np.divide(common, union, out=np.zeros_like(common), where=is_real)
        left = others[share <= np.float32(overlap)].tolist()
    return chosen


_DECIDERS: Final[Mapping[str, Decide]] = {
    "Compress": _compress,
    "NonMaxSuppression": _suppress,
    "NonZero": _nonzero,
    "Unique": _unique,
}
