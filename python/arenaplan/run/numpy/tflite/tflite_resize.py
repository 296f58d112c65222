"""``RESIZE_BILINEAR``, one result row at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from arenaplan.run.numpy.kernels.pieces import operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel
from arenaplan.run.numpy.tflite.blocks import FEW
from arenaplan.run.numpy.tflite.tflite_facts import DOMAIN, FLOAT, check_types, refused

_ONE = 1 << 10


class Sides(NamedTuple):
    """The image rows, or columns, around each result row or column."""

    low: np.ndarray
    high: np.ndarray
    near: np.ndarray
    """The lower neighbor's weight."""
    far: np.ndarray


def real_sides(signature: Signature, size: int, made: int) -> Sides:
    """Return the sides as computed in ``float32``: ``ComputeInterpolationValues``."""
    one = np.float32
    attributes = signature.attributes
    scale = one(size) / one(made)
    if attributes.get("align_corners", 0) and made > 1:
        scale = one(size - 1) / one(made - 1)
    at = np.arange(made, dtype=FLOAT)
    is_half = attributes.get("half_pixel_centers", 0)
    place = (at + one(0.5)) * scale - one(0.5) if is_half else at * scale
    low = np.maximum(np.floor(place).astype(np.int64), 0)
    high = np.minimum(np.ceil(place).astype(np.int64), size - 1)
    far = (place - low.astype(FLOAT)).astype(FLOAT)
    return Sides(low, high, one(1) - far, far)


def integer_sides(signature: Signature, size: int, made: int) -> Sides:
    """Return the sides with ten bits behind the point: ``ComputeInterpolationValuesInteger``."""
    attributes = signature.attributes
    scale = (_ONE * size + made // 2) // made
    if attributes.get("align_corners", 0) and made > 1:
        scale = (_ONE * (size - 1) + (made - 1) // 2) // (made - 1)
    place = np.arange(made, dtype=np.int64) * scale
    if attributes.get("half_pixel_centers", 0):
        place += scale // 2 - (1 << 9)
    # Divisions truncate: a place before the first row is at least there.
    low = np.maximum(np.trunc(place / _ONE).astype(np.int64), 0)
    high = np.minimum(np.trunc((place + _ONE - 1) / _ONE).astype(np.int64), size - 1)
    far = place - _ONE * low
    return Sides(low, high, _ONE - far, far)


@kernel("RESIZE_BILINEAR", domain=DOMAIN)
def resize_bilinear(step: Step) -> Run | None:
    """Each pixel is a mean of four."""
    signature = step.signature
    check_types(signature, "float32 float32", "int8 int8")
    x, y = operand(step, 0), result(step)
    if x.ndim != 4 or y.ndim != 4 or y.size == 0:
        raise refused(signature, "its operands are no images of four dimensions")
    if (x.shape[0], x.shape[3]) != (y.shape[0], y.shape[3]):
        raise refused(signature, "its result has other images or channels")
    is_real = x.dtype == FLOAT
    sides = real_sides if is_real else integer_sides
    rows, columns = (sides(signature, x.shape[at], y.shape[at]) for at in (1, 2))
    width = max(1, FEW // max(y.shape[3], 1))
    parts = [slice(at, at + width) for at in range(0, y.shape[2], width)]
    mixed: Any = _real_mean if is_real else _integer_mean

    def run() -> None:
        for image, made in zip(x, y, strict=True):
            for at in range(len(made)):
                above, below = image[rows.low[at]], image[rows.high[at]]
                weights = rows.near[at], rows.far[at]
                for part in parts:
                    low, high = columns.low[part], columns.high[part]
                    sides = columns.near[part, None], columns.far[part, None]
                    made[at, part] = mixed(
                        (above[low], below[low], above[high], below[high]), weights, sides
                    )

    return run


def _real_mean(corners: Any, rows: Any, columns: Any) -> np.ndarray:
    """Add up in the source's order."""
    total: np.ndarray = corners[0] * rows[0] * columns[0] + corners[1] * rows[1] * columns[0]
    made: np.ndarray = (total + corners[2] * rows[0] * columns[1]) + corners[3] * rows[1] * columns[
        1
    ]
    return made


def _integer_mean(corners: Any, rows: Any, columns: Any) -> np.ndarray:
    """Add up with 20 bits behind the point, and round halves away from zero."""
    wide = [corner.astype(np.int64) for corner in corners]
    total = wide[0] * rows[0] * columns[0] + wide[1] * rows[1] * columns[0]
    total += wide[2] * rows[0] * columns[1] + wide[3] * rows[1] * columns[1]
    sizes = (np.abs(total) + (1 << 19)) >> 20
    made: np.ndarray = np.where(total < 0, -sizes, sizes)
    return made
