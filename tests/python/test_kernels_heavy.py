"""Convolution, pooling, products, normalization, softmax: against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arenaplan as ap
from arenaplan.base.errors import InvalidAttribute, ShapeMismatch
from arenaplan.formats.onnx import load_onnx
from raising import raises
from single_node import check_node, node_graph
from step_costs import workspace_choices

RNG = np.random.default_rng(7)


def random(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


# -- Conv ---------------------------------------------------------------------------

CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1-D": ((2, 3, 20), (4, 3, 5), {}),
    "1-D strided, padded, dilated": (
        (1, 3, 20),
        (4, 3, 3),
        {"strides": [2], "pads": [3, 1], "dilations": [2]},
    ),
    "2-D": ((1, 3, 9, 10), (4, 3, 3, 2), {}),
    "2-D batch, asymmetric pads": ((3, 3, 9, 10), (4, 3, 3, 3), {"pads": [0, 2, 1, 1]}),
    "2-D pads larger than the kernel": ((1, 2, 4, 4), (2, 2, 2, 2), {"pads": [3, 4, 5, 3]}),
    "2-D strides and dilations": (
        (1, 3, 17, 16),
        (4, 3, 3, 3),
        {"strides": [3, 2], "dilations": [2, 3], "pads": [2, 3, 2, 3]},
    ),
    "3-D": ((1, 2, 6, 7, 8), (3, 2, 3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
    "3-D strided groups": ((2, 4, 6, 7, 8), (6, 2, 2, 3, 1), {"group": 2, "strides": [2, 1, 3]}),
    "groups": ((2, 6, 8, 8), (9, 2, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    "depthwise": ((1, 8, 9, 9), (8, 1, 3, 3), {"group": 8, "pads": [1, 1, 1, 1]}),
    "depthwise with multiplier": (
        (2, 6, 9, 9),
        (12, 1, 3, 3),
        {"group": 6, "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    "depthwise, large": ((1, 96, 40, 40), (96, 1, 5, 5), {"group": 96, "pads": [2, 2, 2, 2]}),
    "pointwise": ((2, 5, 7, 7), (4, 5, 1, 1), {}),
    "pointwise groups": ((2, 6, 7, 7), (4, 3, 1, 1), {"group": 2}),
    "pointwise strided": ((1, 5, 7, 8), (4, 5, 1, 1), {"strides": [2, 3]}),
    "pointwise padded": ((1, 5, 4, 4), (4, 5, 1, 1), {"pads": [1, 0, 0, 2]}),
    "whole image": ((2, 5, 4, 3), (4, 5, 4, 3), {}),
    "SAME_UPPER": ((1, 2, 7, 8), (3, 2, 4, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "SAME_LOWER": ((1, 2, 7, 8), (3, 2, 4, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    "VALID": ((1, 2, 7, 8), (3, 2, 4, 3), {"auto_pad": "VALID"}),
    "many tiles": ((1, 64, 60, 50), (32, 64, 3, 3), {"pads": [1, 1, 1, 1]}),
}


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_conv_agrees_for_every_attribute_and_workspace(case: str, bias: bool) -> None:
    image, weights, attributes = CONVOLUTIONS[case]
    inputs = [random(*image), random(*weights)]
    if bias:
        inputs.append(random(weights[0]))
    attributes = {"kernel_shape": list(weights[2:]), **attributes}
    constants = range(1, len(inputs))
    check_node("Conv", inputs, attributes, constants=constants)


@settings(max_examples=60)
@given(st.data())
def test_conv_and_pools_agree_for_any_geometry(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3), label="rank")

    def numbers(low: int, high: int, count: int = rank) -> list[int]:
        return data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    kernel, strides, dilations = numbers(1, 3), numbers(1, 3), numbers(1, 2)
    # ONNX Runtime refuses padding as large as the kernel in pools.
    pads = [data.draw(st.integers(0, k - 1)) for k in kernel * 2]
    extra = numbers(0, 5)
    # Nor is it said what the largest of nothing but padding is: no window steps over the image.
    shape = [
        max(d, (k - 1) * d + 1 - pads[axis] - pads[rank + axis]) + extra[axis]
        for axis, (k, d) in enumerate(zip(kernel, dilations, strict=True))
    ]
    groups, fan_in, fan_out, batch = numbers(1, 3, 4)
    attributes = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    image = random(batch, groups * fan_in, *shape)
    weights = random(groups * fan_out, fan_in, *kernel)
    check_node("Conv", [image, weights], {**attributes, "group": groups}, constants=[1])
    check_node("MaxPool", [image], attributes, tolerance=0)
    check_node("AveragePool", [image], attributes, opset=19)


def test_conv_takes_weights_and_bias_that_are_computed() -> None:
    inputs = [random(2, 4, 8, 8), random(6, 2, 3, 3), random(6)]
    check_node("Conv", inputs, {"group": 2, "pads": [1, 1, 1, 1]})
    check_node("Conv", inputs, {"group": 2}, constants=[1])
    check_node("Conv", [inputs[0], random(6, 4, 1, 1), inputs[2]])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("float64", 1e-12)])
def test_conv_computes_other_precisions(dtype: str, tolerance: float) -> None:
    inputs = [random(1, 8, 9, 9, dtype=dtype), random(4, 8, 3, 3, dtype=dtype)]
    inputs.append(random(4, dtype=dtype))
    check_node(
        "Conv", inputs, {"pads": [1] * 4}, constants=[1], tolerance=tolerance, oracle="reference"
    )


def test_conv_offers_no_workspace_that_a_smaller_one_equals() -> None:
    inputs = [random(1, 64, 56, 56), random(64, 64, 3, 3)]
    graph = node_graph(
        "Conv",
        inputs,
        [np.empty((1, 64, 56, 56), np.float32)],
        {"pads": [1, 1, 1, 1]},
        opset=17,
        constants=[1],
    )
    ((choices,),) = workspace_choices(graph).values()
    sizes, costs = zip(*choices, strict=True)
    assert list(sizes) == sorted(set(sizes))
    assert list(costs) == sorted(set(costs), reverse=True)
    assert sizes[0] < 200_000
    assert sizes[-1] <= 4 << 20


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ({"strides": [0, 1]}, InvalidAttribute),
        ({"dilations": [1, -1]}, InvalidAttribute),
        ({"pads": [-1, 0, 0, 0]}, InvalidAttribute),
        ({"pads": [1, 1]}, InvalidAttribute),
        ({"auto_pad": "SOMEHOW"}, InvalidAttribute),
        ({"group": 0}, ShapeMismatch),
        ({"group": 2}, ShapeMismatch),
        ({"pads": [9, 9, 9, 9]}, InvalidAttribute),
    ],
)
def test_conv_refuses_attributes_that_make_no_sense(
    attributes: dict[str, Any], error: type[Exception]
) -> None:
    inputs = [random(1, 3, 8, 8), random(4, 3, 3, 3)]
    results = [np.empty((1, 4, 6, 6), np.float32)]
    graph = node_graph("Conv", inputs, results, attributes, opset=17, constants=[1])
    with raises(error, match="Conv"):
        ap.Executor(graph)


# -- ConvTranspose ----------------------------------------------------------------------

TRANSPOSED: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1-D": ((1, 3, 9), (3, 4, 3), {"strides": [2]}),
    "2-D": ((2, 3, 5, 6), (3, 4, 3, 3), {}),
    "upsampling": ((1, 4, 5, 6), (4, 2, 2, 2), {"strides": [2, 2]}),
    "gaps between taps": ((1, 4, 5, 6), (4, 2, 2, 2), {"strides": [3, 3]}),
    "pads": ((1, 3, 5, 6), (3, 4, 3, 3), {"strides": [2, 2], "pads": [1, 0, 1, 2]}),
    "output_padding": (
        (1, 3, 5, 6),
        (3, 4, 3, 3),
        {"strides": [2, 3], "pads": [1, 1, 1, 1], "output_padding": [1, 2]},
    ),
    "output_shape": (
        (1, 3, 5, 6),
        (3, 4, 3, 3),
        {"strides": [3, 2], "output_shape": [16, 14]},
    ),
    "output_shape, odd padding": (
        (1, 3, 5, 6),
        (3, 4, 4, 4),
        {"strides": [2, 2], "output_shape": [9, 13]},
    ),
    "output_shape, SAME_UPPER": (
        (1, 3, 5, 6),
        (3, 4, 4, 4),
        {"strides": [2, 2], "output_shape": [9, 13], "auto_pad": "SAME_UPPER"},
    ),
    "dilations": ((1, 3, 5, 6), (3, 4, 2, 3), {"dilations": [2, 3]}),
    "groups": ((2, 4, 5, 6), (4, 3, 3, 3), {"group": 2, "strides": [2, 2]}),
    "SAME_UPPER": ((1, 3, 5, 6), (3, 4, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "SAME_LOWER": ((1, 3, 5, 6), (3, 4, 4, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "VALID": ((1, 3, 5, 6), (3, 4, 3, 3), {"auto_pad": "VALID", "strides": [2, 2]}),
    "3-D": ((1, 2, 4, 5, 3), (2, 3, 2, 3, 2), {"strides": [2, 1, 2]}),
    "many tiles": ((1, 64, 40, 40), (64, 32, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
}


@pytest.mark.parametrize("case", TRANSPOSED)
def test_conv_transpose_agrees_for_every_attribute_and_workspace(case: str) -> None:
    image, weights, attributes = TRANSPOSED[case]
    attributes = {"kernel_shape": list(weights[2:]), **attributes}
    channels = weights[1] * attributes.get("group", 1)
    inputs = [random(*image), random(*weights), random(channels)]
    check_node("ConvTranspose", inputs, attributes, constants=[1, 2])
    check_node("ConvTranspose", inputs[:2], attributes)


# -- pooling ----------------------------------------------------------------------------

WINDOWS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "1-D": ((1, 3, 12), {"kernel_shape": [3], "strides": [2]}),
    "2-D": ((2, 3, 9, 8), {"kernel_shape": [3, 2]}),
    "2-D strided": ((1, 3, 9, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "pads": ((1, 3, 9, 8), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "asymmetric pads": (
        (2, 3, 9, 8),
        {"kernel_shape": [3, 4], "strides": [2, 3], "pads": [0, 2, 1, 1]},
    ),
    "ceil_mode": ((1, 3, 9, 8), {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}),
    "ceil_mode and pads": (
        (1, 2, 7, 10),
        {"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    ),
    "ceil_mode, last window in the padding": (
        (1, 1, 2, 2),
        {"kernel_shape": [1, 1], "strides": [2, 2], "ceil_mode": 1},
    ),
    "dilations": ((1, 3, 12, 11), {"kernel_shape": [3, 2], "dilations": [2, 3]}),
    "SAME_UPPER": (
        (1, 3, 9, 8),
        {"kernel_shape": [4, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    ),
    "SAME_LOWER": (
        (1, 3, 9, 8),
        {"kernel_shape": [4, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    ),
    "VALID": ((1, 3, 9, 8), {"kernel_shape": [4, 3], "auto_pad": "VALID"}),
    "3-D": ((1, 2, 6, 7, 8), {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2]}),
    "3-D pads": ((1, 2, 6, 7, 8), {"kernel_shape": [3, 3, 3], "pads": [1] * 6}),
    "one row of taps": ((1, 3, 9, 8), {"kernel_shape": [1, 3]}),
    "whole image": ((2, 3, 9, 8), {"kernel_shape": [9, 8]}),
    "many blocks": (
        (1, 48, 40, 40),
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
}


@pytest.mark.parametrize("case", WINDOWS)
def test_max_pool_agrees_for_every_attribute_and_workspace(case: str) -> None:
    shape, attributes = WINDOWS[case]
    check_node("MaxPool", [random(*shape)], attributes, tolerance=0)


@pytest.mark.parametrize(
    ("case", "storage_order"),
    [
        (case, order)
        for case, (shape, _) in WINDOWS.items()
        for order in (0, 1)
        if order == 0 or len(shape) == 4  # ONNX Runtime's columns are those of images.
    ],
)
def test_max_pool_tells_where_the_largest_element_is(case: str, storage_order: int) -> None:
    shape, attributes = WINDOWS[case]
    attributes = {**attributes, "storage_order": storage_order}
    check_node("MaxPool", [random(*shape)], attributes, outputs=2, tolerance=0)


@pytest.mark.parametrize("include", [0, 1], ids=["", "count_include_pad"])
@pytest.mark.parametrize("case", WINDOWS)
def test_average_pool_agrees_for_every_attribute_and_workspace(case: str, include: int) -> None:
    shape, attributes = WINDOWS[case]
    check_node(
        "AveragePool", [random(*shape)], {**attributes, "count_include_pad": include}, opset=19
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16", "float64"])
def test_max_pool_computes_other_types(dtype: str) -> None:
    image = (RNG.integers(0, 100, (1, 3, 9, 9))).astype(dtype)
    attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
    check_node("MaxPool", [image], attributes, oracle="reference")


def test_max_pool_of_nothing_but_lowest_numbers_points_inside_the_image() -> None:
    image = np.full((1, 1, 3, 3), -np.inf, np.float32)
    attributes = {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}
    graph = node_graph(
        "MaxPool",
        [image],
        [np.empty((1, 1, 3, 3), np.float32), np.empty((1, 1, 3, 3), np.int64)],
        attributes,
        opset=17,
        constants=[],
    )
    result = ap.Executor(graph).run({"in0": image})
    assert (result["out0"] == -np.inf).all()
    np.testing.assert_array_equal(result["out1"][0, 0], [[0, 0, 1], [0, 0, 1], [3, 3, 4]])


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("case", ["1-D", "2-D", "pads", "3-D", "SAME_UPPER"])
def test_lp_pool_agrees(case: str, p: int) -> None:
    shape, attributes = WINDOWS[case]
    check_node("LpPool", [random(*shape)], {**attributes, "p": p}, opset=18)


@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 3, 7, 5), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_global_pools_agree(op: str, shape: tuple[int, ...]) -> None:
    check_node(op, [random(*shape)])


# -- products ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4,)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (6, 4, 5)),
        ((6, 3, 4), (2, 1, 4, 5)),
        ((5, 3, 4), (4,)),
        ((4,), (5, 4, 3)),
    ],
)
def test_matmul_agrees_for_every_broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    check_node("MatMul", [random(*a), random(*b)])
    for dtype, tolerance in (("float16", 2e-3), ("float64", 1e-12)):
        check_node(
            "MatMul",
            [random(*a, dtype=dtype), random(*b, dtype=dtype)],
            tolerance=tolerance,
            oracle="reference",
        )


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_matmul_of_whole_numbers_wraps_around(dtype: str) -> None:
    info = np.iinfo(dtype)
    a, b = (RNG.integers(info.min, info.max, (4, 4), dtype=dtype) for _ in range(2))
    check_node("MatMul", [a, b])


def test_matmul_over_nothing_is_zero() -> None:
    check_node("MatMul", [random(3, 0), random(0, 4)], oracle="reference")


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("addend", [None, (), (1,), (6,), (1, 6), (4, 1), (4, 6)])
def test_gemm_agrees_for_every_attribute(
    trans_a: int, trans_b: int, addend: tuple[int, ...] | None
) -> None:
    a = random(*((5, 4) if trans_a else (4, 5)))
    b = random(*((6, 5) if trans_b else (5, 6)))
    inputs = [a, b] if addend is None else [a, b, random(*addend)]
    for alpha, beta in ((1.0, 1.0), (0.5, 2.0), (2.0, 0.0)):
        attributes = {"transA": trans_a, "transB": trans_b, "alpha": alpha, "beta": beta}
        check_node("Gemm", inputs, attributes)
        check_node("Gemm", inputs, attributes, constants=range(1, len(inputs)))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("float64", 1e-12)])
def test_gemm_computes_other_precisions(dtype: str, tolerance: float) -> None:
    inputs = [random(4, 5, dtype=dtype), random(5, 6, dtype=dtype), random(6, dtype=dtype)]
    check_node(
        "Gemm", inputs, {"alpha": 0.5, "beta": 0.25}, tolerance=tolerance, oracle="reference"
    )


# -- normalization -------------------------------------------------------------------------


def channel_parameters(count: int) -> list[np.ndarray]:
    return [random(count), random(count), random(count), RNG.uniform(0.5, 2, count).astype("f")]


@pytest.mark.parametrize("constants", [range(1, 5), ()], ids=["constant", "computed"])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 5, 4), (1, 70, 40, 40)])
def test_batch_normalization_agrees(shape: tuple[int, ...], constants: Any) -> None:
    inputs = [random(*shape), *channel_parameters(shape[1])]
    check_node("BatchNormalization", inputs, {"epsilon": 1e-3}, constants=constants)
    check_node("BatchNormalization", inputs, opset=9, constants=constants)


@pytest.mark.parametrize("axis", [-1, 1, 2, 0])
def test_layer_normalization_agrees_for_every_axis(axis: int) -> None:
    image = random(3, 4, 5)
    scale, shift = random(*image.shape[axis:]), random(*image.shape[axis:])
    check_node("LayerNormalization", [image, scale], {"axis": axis})
    check_node("LayerNormalization", [image, scale, shift], {"axis": axis, "epsilon": 0.1})
    check_node(
        "LayerNormalization", [image, scale, shift], {"axis": axis}, outputs=3, oracle="reference"
    )


def test_layer_normalization_does_many_rows_in_blocks() -> None:
    check_node("LayerNormalization", [random(300, 768), random(768), random(768)], outputs=1)


def test_layer_normalization_broadcasts_its_scale() -> None:
    check_node(
        "LayerNormalization", [random(3, 4, 5), random(1, 5)], {"axis": 1}, oracle="reference"
    )


@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_rms_normalization_agrees_for_every_axis(axis: int) -> None:
    image = random(3, 4, 5)
    attributes = {"axis": axis, "epsilon": 1e-3}
    check_node(
        "RMSNormalization",
        [image, random(*image.shape[axis:])],
        attributes,
        opset=23,
        oracle="reference",
    )


@pytest.mark.parametrize("shape", [(2, 4, 9), (2, 4, 5, 6), (1, 4, 3, 4, 5), (1, 40, 50, 50)])
def test_instance_and_group_normalization_agree(shape: tuple[int, ...]) -> None:
    image, scale, shift = random(*shape), random(shape[1]), random(shape[1])
    check_node("InstanceNormalization", [image, scale, shift], {"epsilon": 1e-2})
    groups = {"num_groups": 2, "epsilon": 1e-2}
    check_node("GroupNormalization", [image, scale, shift], groups, opset=21, oracle="reference")
    check_node(
        "GroupNormalization", [image, scale[:2], shift[:2]], groups, opset=18, oracle="reference"
    )


def test_group_normalization_refuses_groups_of_unequal_size() -> None:
    inputs = [random(1, 4, 3, 3), random(4), random(4)]
    graph = node_graph(
        "GroupNormalization", inputs, inputs[:1], {"num_groups": 3}, opset=21, constants=[]
    )
    with pytest.raises(InvalidAttribute, match="num_groups"):
        ap.Executor(graph)


@pytest.mark.parametrize("size", [1, 3, 5, 7])
@pytest.mark.parametrize("beta", [0.75, 0.5])
@pytest.mark.parametrize("shape", [(2, 5, 4, 3), (1, 70, 40, 40)])
def test_lrn_agrees(shape: tuple[int, ...], beta: float, size: int) -> None:
    attributes = {"size": size, "beta": beta, "alpha": 0.3, "bias": 2.0}
    check_node("LRN", [random(*shape)], attributes)


def test_lrn_of_an_even_size_takes_one_more_channel_behind() -> None:
    # ONNX Runtime refuses even sizes, and onnx's reference mistakes the batch for channels.
    image = random(1, 6, 3, 3)
    sums = [(image[:, max(c - 1, 0) : c + 3] ** 2).sum(axis=1) for c in range(6)]
    expected = image / (1 + 0.5 / 4 * np.stack(sums, axis=1)) ** 0.75
    attributes = {"size": 4, "alpha": 0.5}
    graph = node_graph("LRN", [image], [image], attributes, opset=17, constants=[])
    (result,) = ap.Executor(graph).run({"in0": image}).values()
    np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
@pytest.mark.parametrize(
    "options", [{"target": "ideal"}, {"target": "numpy", "max_slowdown": None}], ids=str
)
def test_lrn_overlaps_its_image_and_is_made_by_channels(size: int, options: dict[str, Any]) -> None:
    from models import model, node

    attributes = {"size": size, "alpha": 0.5}
    nodes = [
        node("Tile", "x t", "wide"),
        node("LRN", "wide", "z", **attributes),
        node("ReduceMax", "z a", "y"),
    ]
    repeats = {"t": np.array([1, 6, 8, 8], np.int64), "a": np.array([1, 2, 3], np.int64)}
    graph = load_onnx(model(nodes, {"x": [2, 3, 5, 5]}, weights=repeats))
    image = random(2, 3, 5, 5)
    wide = np.tile(image, (1, 6, 8, 8))
    before, behind = (size - 1) // 2, size // 2
    squares = wide.astype(np.float64) ** 2
    sums = [squares[:, max(c - before, 0) : c + behind + 1].sum(axis=1) for c in range(18)]
    expected = (wide / (1 + 0.5 / size * np.stack(sums, axis=1)) ** 0.75).max((1, 2, 3))
    overlapped = ap.plan(graph, optimize="overlap", **options)
    # With its scratch memory, the overlap saves nothing here.
    assert overlapped.overlapped == ([1] if options["target"] == "ideal" else [])
    for plan in (
        overlapped,
        ap.plan(graph, **options),
        ap.plan(graph, optimize="none", target="ideal"),
    ):
        with ap.Executor(graph, plan) as executor:
            found = executor.run({"x": image}, verify=True)["y"].reshape(2)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


# -- softmax ------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
def test_softmax_agrees_for_every_axis_and_version(op: str, opset: int, axis: int | None) -> None:
    attributes = {} if axis is None else {"axis": axis}
    check_node(op, [random(3, 4, 5) * 20], attributes, opset=opset)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("shape", [(300, 513), (2, 70, 1000), (2, 5, 20_000)])
def test_softmax_does_large_values_in_blocks(op: str, shape: tuple[int, ...]) -> None:
    check_node(op, [random(*shape)], {"axis": 1})


def test_softmax_of_large_numbers_does_not_overflow() -> None:
    check_node("Softmax", [np.array([[1e30, -1e30, 1e30], [-1e38, -1e38, -1e38]], "f")])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("float64", 1e-12)])
def test_softmax_computes_other_precisions(dtype: str, tolerance: float) -> None:
    check_node("Softmax", [random(4, 9, dtype=dtype)], tolerance=tolerance, oracle="reference")


# -- all of them -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "shapes", "output", "attributes"),
    [
        ("Conv", [(0, 3, 8, 8), (4, 3, 3, 3)], (0, 4, 6, 6), {}),
        ("MaxPool", [(1, 0, 8, 8)], (1, 0, 7, 7), {"kernel_shape": [2, 2]}),
        ("AveragePool", [(1, 0, 8, 8)], (1, 0, 7, 7), {"kernel_shape": [2, 2]}),
        ("GlobalAveragePool", [(0, 3, 8, 8)], (0, 3, 1, 1), {}),
        ("MatMul", [(0, 3), (3, 4)], (0, 4), {}),
        ("Gemm", [(0, 3), (3, 4)], (0, 4), {}),
        ("Softmax", [(0, 3)], (0, 3), {}),
        ("LayerNormalization", [(0, 3), (3,)], (0, 3), {}),
        ("BatchNormalization", [(0, 3, 4), (3,), (3,), (3,), (3,)], (0, 3, 4), {}),
        ("LRN", [(0, 3, 4, 4)], (0, 3, 4, 4), {"size": 3}),
    ],
)
def test_an_empty_batch_gives_an_empty_result(
    op: str, shapes: list[tuple[int, ...]], output: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    inputs = [random(*shape) for shape in shapes]
    graph = node_graph(
        op,
        inputs,
        [np.empty(output, np.float32)],
        attributes,
        opset=17,
        constants=range(1, len(inputs)),
    )
    (result,) = ap.Executor(graph).run({"in0": inputs[0]}, verify=True).values()
    assert result.shape == output


def test_a_kernel_that_takes_more_than_its_workspace_is_stopped() -> None:
    from arenaplan.run.numpy.registry import Scratch

    scratch = Scratch(np.empty(128, np.uint8), "greedy")
    scratch.array((16,))
    with raises("WorkspaceOverrun", match="greedy"):
        scratch.array((17,))


@pytest.mark.parametrize("constants", [(), (1, 2, 3, 4)])
def test_batch_normalization_trains(constants: tuple[int, ...]) -> None:
    inputs = [random(2, 3, 4, 4), *channel_parameters(3)]
    for outputs in (1, 3):
        check_node(
            "BatchNormalization",
            inputs,
            {"training_mode": 1, "momentum": 0.7},
            opset=15,
            outputs=outputs,
            constants=constants,
            oracle="reference",
        )
