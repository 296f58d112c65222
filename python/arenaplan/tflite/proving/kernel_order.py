"""
The order in which reference kernels read operands and write results.

For the operators in :data:`IN_ORDER`, TensorFlow Lite Micro's reference kernels loop over result
elements in memory order, and read everything an element needs before writing the element. A result
may therefore lie over bytes that no later element needs. Other kernel sets compute several elements
at a time, or read ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from arenaplan.tflite.proving.facts import Fact, Operation
from arenaplan.tflite.proving.guess import Indices
from arenaplan.tflite.proving.proof_windows import ProofSide, window_of

IN_ORDER: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("ADD", "MUL", "RELU", "RELU6", "SUB"),
        "one loop over elements, or nested loops over broadcast dimensions: all that element i "
        "needs is read, then element i is written",
    ),
    **dict.fromkeys(
        ("AVERAGE_POOL_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D"),
        "loops over rows, columns, channels: the window in one channel is read, then the element "
        "is written",
    ),
    "CONV_2D": "loops over rows, columns, channels: the window in all channels is read for every "
    "channel of the result, then the element is written",
}
"""Operators whose reference kernel is known to work in order, and how."""

_ONE_PLACE: Final = """
    ABS ADD ADD_N CAST CEIL COS DIV ELU EQUAL EXP FLOOR FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL
    HARD_SWISH LEAKY_RELU LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC MAXIMUM
    MINIMUM MUL NEG NOT_EQUAL PRELU QUANTIZE RELU RELU6 ROUND RSQRT SELECT_V2 SIN SQRT SQUARE
    SQUARED_DIFFERENCE SUB TANH
"""

IN_PLACE: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        _ONE_PLACE.split(),
        "element i of an operand with all elements is read for the last time before element i of "
        "the result is written, also where other operands are broadcast",
    ),
    **dict.fromkeys(
        ("L2_NORMALIZATION", "LOG_SOFTMAX", "SOFTMAX"),
        "statistics of a row are complete before its first element is written; then element i is "
        "read before it is written",
    ),
}
"""Operators whose reference kernel may write the result at an operand's address, and why."""


def fits_in_place(operation: Operation, x: Fact, y: Fact) -> bool:
    """
    Return whether a result may be at an operand's address.

    Narrower elements must be single bytes: a C compiler may store other types before loading the
    wider elements at the same place.
    """
    is_narrower = y.item < x.item
    return (
        operation.name in IN_PLACE
        and not operation.is_custom
        and len(operation.outputs) == 1
        and x.count == y.count
        and y.item <= x.item
        and (not is_narrower or y.item == 1)
    )


def last_reads(operation: Operation, place: int, tensors: Sequence[Fact]) -> Indices | None:
    """
    Return, per operand element, the last result element made from the operand element.

    Parameters
    ----------
    operation : Operation
        An operator.
    place : int
        The operand's position.
    tensors : sequence of Fact
        The graph's tensors.

    Returns
    -------
    Indices or None
        In memory order; -1 for elements that are not read. ``None`` if the kernel's order is not
        known.
    """
    number = operation.inputs[place]
    if number is None or operation.is_custom or operation.name not in IN_ORDER:
        return None
    window = window_of(operation, tensors)
    x, y = tensors[number], tensors[operation.outputs[0]]
    if window is None:
        return None if operation.name.endswith("_2D") else _last_broadcast(x, y)
    if place != 0:
        return None
    rows, columns = _last(window.rows), _last(window.columns)
    images = np.arange(x.shape[0], dtype=np.int64)
    pixels = (images[:, None] * window.rows.made + rows)[:, :, None] * window.columns.made + columns
    pixels = np.where((rows[:, None] >= 0) & (columns >= 0), pixels, -1)
    depth = y.shape[3]
    own = np.full(x.shape[3], depth - 1, np.int64)
    if not window.is_columnar:
        own = np.arange(x.shape[3], dtype=np.int64) * window.width + window.width - 1
    found = pixels[:, :, :, None] * depth + own
    return np.where(pixels[:, :, :, None] >= 0, found, -1).ravel()


def _last_broadcast(x: Fact, y: Fact) -> Indices | None:
    """Return the last reads for a loop over result elements or over dimensions."""
    places = np.arange(x.count, dtype=np.int64).reshape(x.shape)
    if np.broadcast_shapes(x.shape, y.shape) != y.shape:
        return None
    found = np.full(x.count, -1, np.int64)
    np.maximum.at(found, np.broadcast_to(places, y.shape).ravel(), np.arange(y.count))
    return found


def _last(side: ProofSide) -> Indices:
    """Return, per image row, the last result row whose window sees the image row."""
    found = np.full(side.size, -1, np.int64)
    made = np.arange(side.made, dtype=np.int64)
    for tap in range(side.taps):
        at = side.sees(made, tap)
        inside = (at >= 0) & (at < side.size)
        np.maximum.at(found, at[inside], made[inside])
    return found
