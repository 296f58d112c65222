"""An evaluator of sketches, in an arena if they have a plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sketches import SAME, Operator, Sketch, Tensor, made, number_of, taps_of


class Impossible(Exception):
    """The sketch is no model that a runtime could run."""


def evaluated(sketch: Sketch, inputs: Sequence[np.ndarray]) -> list[bytes]:
    """Return the bits of all outputs, computed in an arena if the sketch has a plan."""
    tensors, plan = sketch.tensors, sketch.plan
    top = max(plan or (0,), default=0) + (1 << 17)
    if top > 1 << 24:
        raise MemoryError("the plan is larger than any that a test needs")
    arena = np.full(top, 85, np.int8)
    loose: dict[int, np.ndarray] = {}

    def get(index: int) -> np.ndarray:
        tensor = tensors[index]
        if tensor.data is not None:
            return tensor.array()
        if plan is None or plan[index] < 0:
            if index not in loose:
                raise Impossible(f"tensor {index} is not written")
            return loose[index]
        size = int(np.prod(tensor.shape))
        return arena[plan[index] : plan[index] + size].reshape(tensor.shape)

    def put(index: int, value: np.ndarray) -> None:
        tensor = tensors[index]
        if value.shape != tensor.shape or tensor.data is not None:
            raise Impossible(f"tensor {index} has shape {tensor.shape}, not {value.shape}")
        if plan is None or plan[index] < 0:
            loose[index] = value.astype(np.int8)
        else:
            arena[plan[index] : plan[index] + value.size] = value.astype(np.int8).ravel()

    for index, value in zip(sketch.inputs, inputs, strict=True):
        put(index, value)
    for operator in sketch.operators:
        put(operator.outputs[0], _computed(sketch, operator, [get(i) for i in operator.inputs]))
    return [get(index).tobytes() for index in sketch.outputs]


def _computed(sketch: Sketch, operator: Operator, arrays: list[np.ndarray]) -> np.ndarray:
    name, x = operator.name, arrays[0]
    tensors = sketch.tensors
    y = tensors[operator.outputs[0]]
    if name in ("SLICE", "STRIDED_SLICE"):
        begin = [int(b) for b in arrays[1]]
        if name == "SLICE":
            sizes = zip(begin, arrays[2], x.shape, strict=True)
            ends = [d if s == -1 else b + int(s) for b, s, d in sizes]
        else:
            ends = [int(e) for e in arrays[2]]
            for axis, dim in enumerate(x.shape):
                begin[axis] = 0 if operator.option(0) >> axis & 1 else begin[axis]
                ends[axis] = dim if operator.option(1) >> axis & 1 else ends[axis]
        pairs = zip(begin, ends, x.shape, strict=True)
        if any(not 0 <= b <= e <= d for b, e, d in pairs):
            raise Impossible("a slice outside of its source")
        return x[tuple(slice(b, e) for b, e in zip(begin, ends, strict=True))].copy()
    if name == "PAD":
        if arrays[1].min() < 0:
            raise Impossible("negative padding")
        return np.pad(x, arrays[1], constant_values=y.zeros[0])
    if name == "CONCATENATION":
        try:
            return np.concatenate(arrays, axis=operator.option(0))
        except ValueError as error:
            raise Impossible(str(error)) from None
    scale = [number_of(tensors[i].scales[0]) for i in operator.inputs]
    zero = [tensors[i].zeros[0] for i in operator.inputs]
    out, shift = number_of(y.scales[0]), y.zeros[0]
    if name == "ADD":
        if arrays[0].shape != arrays[1].shape:
            raise Impossible("operands of different shapes")
        total = sum(s * (a.astype(float) - z) for s, a, z in zip(scale, arrays, zero, strict=True))
        return _clipped(total / out + shift)
    if name in ("RELU", "RELU6"):
        top = 127 if name == "RELU" else min(127, round(6 / out) + shift)
        return np.clip(x, shift, top)
    return _slid(sketch, operator, arrays, y, scale, zero)


def _slid(
    sketch: Sketch,
    operator: Operator,
    arrays: list[np.ndarray],
    y: Tensor,
    scale: list[float],
    zero: list[int],
) -> np.ndarray:
    x, name = arrays[0].astype(np.int64), operator.name
    taps = taps_of(sketch, operator)
    assert taps is not None
    steps, padding = (operator.option(2), operator.option(1)), operator.option(0)
    slots = (6, 5) if "DEPTH" in name else (5, 4) if "CONV" in name else (0, 0)
    spread = [operator.option(s, 1) if s else 1 for s in slots]
    extent = [(t - 1) * d + 1 for t, d in zip(taps, spread, strict=True)]
    sizes = [made(x.shape[a + 1], extent[a], steps[a], padding) for a in (0, 1)]
    if min(*sizes, *steps) < 1 or (x.shape[3] != y.shape[3] and name != "CONV_2D"):
        raise Impossible("an image smaller than a window")
    befores = [
        max((sizes[a] - 1) * steps[a] + extent[a] - x.shape[a + 1], 0) // 2
        if padding == SAME
        else 0
        for a in (0, 1)
    ]
    is_linear = "CONV" in name
    total = np.zeros((1, *sizes, y.shape[3]), np.int64)
    count = np.zeros((1, *sizes, 1), np.int64)
    if name == "MAX_POOL_2D":
        total -= 1000
    weights = arrays[1].astype(np.int64) if is_linear else None
    points = np.array(sketch.tensors[operator.inputs[1]].zeros) if is_linear else None
    for a in range(taps[0]):
        rows = np.arange(sizes[0]) * steps[0] - befores[0] + a * spread[0]
        for b in range(taps[1]):
            columns = np.arange(sizes[1]) * steps[1] - befores[1] + b * spread[1]
            inside = ((rows >= 0) & (rows < x.shape[1]))[:, None] & (
                (columns >= 0) & (columns < x.shape[2])
            )
            seen = x[
                np.ix_([0], np.clip(rows, 0, x.shape[1] - 1), np.clip(columns, 0, x.shape[2] - 1))
            ]
            mask = inside[None, :, :, None]
            count += mask
            if weights is None:
                value = np.where(mask, seen, 0 if name == "AVERAGE_POOL_2D" else -1000)
                total = total + value if name == "AVERAGE_POOL_2D" else np.maximum(total, value)
                continue
            seen = np.where(mask, seen - zero[0], 0)
            if name == "CONV_2D":
                if weights.shape[3] != x.shape[3] or weights.shape[0] != y.shape[3]:
                    raise Impossible("weights of another shape")
                total += seen @ (weights[:, a, b, :] - points[:, None]).T
            else:
                total += seen * (weights[0, a, b, :] - points)
    if weights is None:
        return total if name == "MAX_POOL_2D" else np.round(total / count).astype(np.int64)
    scales = np.array([number_of(s) for s in sketch.tensors[operator.inputs[1]].scales])
    factor = scale[0] * scales / number_of(y.scales[0])
    result = (total + arrays[2]) * factor + y.zeros[0]
    activation = operator.option(4 if "DEPTH" in name else 3)
    low = y.zeros[0] if activation else -128
    return np.maximum(_clipped(result), low)


def _clipped(values: np.ndarray) -> np.ndarray:
    return np.clip(np.round(values), -128, 127).astype(np.int64)


def inputs_of(sketch: Sketch, seed: int) -> list[np.ndarray]:
    numbers = np.random.default_rng(seed)
    return [numbers.integers(-128, 128, sketch.tensors[i].shape, np.int8) for i in sketch.inputs]
