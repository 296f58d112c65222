"""Kernels against ONNX Runtime, over the versions and attributes of their operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from light_node import Array, ints
from single_node import check_node

RNG = np.random.default_rng(3)


def reals(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def numbers(*given: float) -> Array:
    return np.array(given, np.float32)


class Case(NamedTuple):
    """A node, and which of its inputs are constants."""

    version: int
    op: str
    inputs: Sequence[Array | None]
    constants: Sequence[int] = ()
    attributes: Mapping[str, Any] = {}
    outputs: int = 1


X = reals(2, 3, 8, 10)
WHOLE = (X * 9).astype(np.int64)
BYTES = RNG.integers(0, 200, X.shape).astype(np.uint8)
INDICES = RNG.integers(-8, 8, (2, 3, 4, 10))
UPDATES = reals(2, 3, 4, 10)
ADDING = {"reduction": "add"}
UP, DOWN = numbers(1, 1, 1.7, 2.3), numbers(1, 1, 0.6, 0.6)
REGION = numbers(0, 0, 0.1, 0.2, 1, 1, 0.8, 1.3)

CASES = [
    Case(9, "Upsample", [X, numbers(1, 1, 2, 3)], [1], {"mode": "nearest"}),
    Case(9, "Upsample", [X, numbers(1, 1, 2, 2)], [1], {"mode": "linear"}),
    Case(7, "Upsample", [X], [], {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 2.0]}),
    Case(10, "Resize", [X, numbers(1, 1, 2, 2)], [1], {"mode": "nearest"}),
    Case(10, "Resize", [X, DOWN], [1], {"mode": "nearest"}),
    Case(10, "Resize", [X, UP], [1], {"mode": "linear"}),
    Case(13, "Resize", [X, None, UP], [2], {"mode": "cubic", "exclude_outside": 1}),
    Case(13, "Resize", [X, None, UP], [2], {"mode": "cubic", "cubic_coeff_a": -0.5}),
    Case(
        13, "Resize", [X, REGION, numbers(1, 1, 1.5, 2)], [1, 2],
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize",
         "extrapolation_value": 7.0},
    ),
    *(
        Case(
            18, "Resize", [X, None, None, ints(5, 6)], [3],
            {"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": policy},
        )
        for policy in ("stretch", "not_larger", "not_smaller")
    ),
    Case(18, "Resize", [X, None, None, ints(2, 3, 5, 6)], [3], {"mode": "cubic", "antialias": 1}),
    Case(18, "Resize", [X, None, DOWN], [2], {"mode": "linear", "antialias": 1}),
    *(
        Case(
            19, "Resize", [X, None, numbers(1, 1, 0.5, 0.5)], [2],
            {"mode": "nearest", "nearest_mode": rounding,
             "coordinate_transformation_mode": "half_pixel_symmetric"},
        )
        for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    ),
    Case(18, "Resize", [BYTES, None, None, ints(2, 3, 5, 20)], [3], {"mode": "nearest"}),
    Case(9, "Slice", [X], [], {"starts": [1, -5], "ends": [3, 100], "axes": [1, 3]}),
    Case(13, "Slice", [X, ints(-1, 9), ints(-9999, 1), ints(2, 3), ints(-1, -3)], [1, 2, 3, 4]),
    Case(6, "Clip", [X], [], {"min": -0.5, "max": 0.5}),
    Case(6, "Clip", [X], [], {"max": 0.5}),
    Case(13, "Clip", [WHOLE, None, np.array(3)], [2]),
    Case(2, "Pad", [X], [], {"pads": [0, 0, 1, 1, 0, 0, 2, -1], "value": 2.0}),
    Case(2, "Pad", [X], [], {"pads": [0, 0, 1, 1, 0, 0, 2, 3], "mode": "reflect"}),
    Case(18, "Pad", [X, ints(1, 2, 3, -1), np.array(1.5, np.float32), ints(-1, 1)], [1, 3]),
    Case(19, "Pad", [X, ints(0, 0, 3, 2, 0, 0, 4, 12)], [1], {"mode": "wrap"}),
    Case(10, "TopK", [X, ints(3)], [1], {"axis": 2}, 2),
    Case(11, "TopK", [X, ints(3)], [1], {"axis": 1, "largest": 0}, 2),
    Case(11, "Squeeze", [X[:1]], [], {"axes": [0]}),
    Case(11, "Unsqueeze", [X], [], {"axes": [0, 3]}),
    Case(11, "Split", [X], [], {"axis": 3, "split": [3, 7]}, 2),
    Case(13, "Split", [X, ints(3, 0, 7)], [1], {"axis": 3}, 3),
    Case(11, "ReduceSum", [X], [], {"axes": [1, -1]}),
    Case(11, "ReduceLogSumExp", [X * 100], [], {"axes": [1]}),
    Case(11, "ReduceL2", [X], [], {"axes": [0, 2], "keepdims": 0}),
    Case(11, "ReduceMean", [WHOLE.astype(np.int32)], [], {"axes": [1]}),
    Case(13, "ReduceSum", [X, ints()], [1], {"noop_with_empty_axes": 1}),
    Case(13, "ArgMax", [X], [], {"axis": 1, "select_last_index": 1, "keepdims": 0}),
    Case(14, "CumSum", [X, np.array(-2, np.int32)], [1], {"reverse": 1}),
    Case(10, "Dropout", [X], [], {"ratio": 0.3}),
    Case(11, "OneHot", [WHOLE[0, 0], np.array(5), numbers(1, 9)], [1, 2], {"axis": 1}),
    Case(9, "Scatter", [X, np.absolute(INDICES) % 8, UPDATES], [], {"axis": 2}),
    Case(18, "ScatterElements", [X, INDICES, UPDATES], [], {"axis": 2, "reduction": "mul"}),
    Case(18, "ScatterND", [X, INDICES[0, 0, :, :1] % 2, reals(4, 3, 8, 10)], [], ADDING),
    Case(13, "GatherND", [X, INDICES[:, 0, :, :1] % 3], [], {"batch_dims": 1}),
    Case(14, "Trilu", [X, np.array(-2)], [1], {"upper": 0}),
    Case(14, "Trilu", [X, np.array(3)]),
    Case(13, "DepthToSpace", [reals(1, 12, 4, 5)], [], {"blocksize": 2, "mode": "CRD"}),
    Case(13, "DepthToSpace", [reals(1, 12, 4, 5)], [], {"blocksize": 2}),
    Case(13, "SpaceToDepth", [reals(1, 3, 4, 6)], [], {"blocksize": 2}),
    Case(13, "Mod", [X, reals(10)], [], {"fmod": 1}),
    Case(13, "Mod", [WHOLE, ints(*range(1, 11))]),
    Case(9, "EyeLike", [X[0, 0]], [], {"k": -1}),
    Case(9, "EyeLike", [X[0, 0]], [], {"k": 2}),
    Case(10, "IsInf", [numbers(1, np.inf, -np.inf)], [], {"detect_negative": 0}),
    Case(13, "Tile", [X, ints(1, 2, 1, 3)], [1]),
    Case(13, "Expand", [X[:, :1], ints(3, 1, 1)], [1]),
    Case(11, "Range", [np.array(bound, np.float32) for bound in (3, -5, -0.75)], [0, 1, 2]),
    Case(13, "QuantizeLinear", [X, numbers(0.1, 0.2, 0.3), BYTES[0, 0, 0, :3]], [], {"axis": 1}),
    Case(11, "DynamicQuantizeLinear", [X], [], {}, 3),
    Case(9, "Where", [X > 0, X, reals(10)]),
    Case(9, "PRelu", [X, reals(3, 1, 1)]),
    Case(13, "Pow", [X, np.array(2)], [1]),
    Case(13, "Pow", [np.absolute(X), reals(10)]),
    Case(11, "Round", [numbers(0.5, 1.5, 2.5, -0.5)]),
    Case(13, "Max", [X, reals(10), reals(3, 1, 1)]),
    Case(13, "Mean", [X, reals(10), reals(3, 1, 1)]),
    Case(9, "Shrink", [X], [], {"lambd": 0.3, "bias": 0.2}),
    Case(10, "ThresholdedRelu", [X], [], {"alpha": 0.3}),
    Case(12, "Celu", [X], [], {"alpha": 2.0}),
    Case(6, "Elu", [X], [], {"alpha": 2.0}),
    Case(6, "LeakyRelu", [X], [], {"alpha": -0.5}),
    Case(6, "LeakyRelu", [X], [], {"alpha": 1.5}),
    Case(6, "HardSigmoid", [X], [], {"alpha": 0.3, "beta": 0.4}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op}-{case.version}")
def test_a_node_of_any_version_agrees_with_onnx_runtime(case: Case) -> None:
    check_node(
        case.op,
        case.inputs,
        dict(case.attributes),
        opset=case.version,
        outputs=case.outputs,
        constants=case.constants,
        tolerance=3e-5,
    )
