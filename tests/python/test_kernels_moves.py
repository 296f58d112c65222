"""Kernels that move, look up, reduce, resize and quantize."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arenaplan as ap
from arenaplan.base.errors import (
    InvalidAttribute,
    ShapeMismatch,
    UnsupportedDtype,
    UnsupportedOp,
)
from light_node import RNG, Node, blank, compute, ints, values
from raising import raises
from single_node import check_node, node_model
from single_node import expected as expected_of

# -- moves -----------------------------------------------------------------------------


def test_views_and_pieces_that_are_in_place_need_no_work() -> None:
    x = values((4, 6), "float32")
    assert Node("Reshape", [x, ints(3, 8)], [x.reshape(3, 8)], constants=[1]).work is None
    assert Node("Squeeze", [x.reshape(1, 4, 6)], [x]).work is None
    assert Node("Dropout", [x], [x]).work is None
    assert Node("Split", [x], [x[:1], x[1:]], axis=0).work is None
    assert Node("Concat", [x[:1], x[1:]], [x], axis=0).work is None
    assert Node("Slice", [x, ints(1), ints(3)], [x[1:3]], constants=[1, 2]).work is None
    assert (
        Node("Transpose", [x.reshape(4, 1, 6)], [x.reshape(1, 4, 6)], perm=[1, 0, 2]).work is None
    )
    assert Node("Expand", [x, ints(4, 6)], [x], constants=[1]).work is None
    assert Node("Pad", [x, ints(0, 0, 0, 0)], [x], constants=[1]).work is None


def test_a_concatenation_copies_only_what_is_elsewhere() -> None:
    y = blank((5, 3))
    y[:2], other = 1, values((3, 3), "float32")
    got = Node("Concat", [y[:2], other], [y], axis=0).run()
    np.testing.assert_array_equal(got, np.concatenate([np.ones((2, 3)), other.astype(np.float32)]))


@given(
    st.integers(1, 6),
    st.integers(-8, 8),
    st.integers(-8, 8),
    st.sampled_from([1, 2, 3, -1, -2]),
)
def test_slices_are_those_of_the_standard(length: int, start: int, stop: int, stride: int) -> None:
    x = np.arange(length, dtype=np.float32)
    first, last = (at + length if at < 0 else at for at in (start, stop))
    if stride > 0:
        wanted = list(range(min(max(first, 0), length), min(max(last, 0), length), stride))
    else:
        wanted = list(range(min(max(first, 0), length - 1), min(max(last, -1), length - 1), stride))
    inputs = [x, ints(start), ints(stop), ints(-1), ints(stride)]
    got = compute("Slice", inputs, (len(wanted),))
    assert got.tolist() == wanted


def test_a_slice_follows_starts_that_change_between_runs() -> None:
    x, starts, stops = values((10, 3), "float32"), ints(0), ints(4)
    node = Node("Slice", [x, starts, stops], [blank((4, 3))])
    np.testing.assert_array_equal(node.run(), x[:4])
    starts[0], stops[0] = 5, 9
    np.testing.assert_array_equal(node.run(), x[5:9])
    stops[0] = 8
    with pytest.raises(ShapeMismatch, match="the node"):
        node.run()


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.sampled_from(["constant", "edge", "reflect", "wrap"]),
    st.data(),
)
def test_padding_agrees_with_numpy(shape: list[int], mode: str, data: Any) -> None:
    x = values(shape, "float32", special=False)
    pads = [(data.draw(st.integers(-n + 1, 9)), data.draw(st.integers(0, 9))) for n in shape]
    cut = x[tuple(slice(max(0, -before), None) for before, _ in pads)]
    if mode == "reflect" and 1 in cut.shape:
        return
    grown = [(max(0, before), after) for before, after in pads]
    if mode in ("constant", "edge"):
        expected = np.pad(cut, grown, mode=mode)  # type: ignore[call-overload]
    else:  # What is cut off still counts for what is mirrored or repeated.
        whole = np.pad(x, grown, mode=mode)  # type: ignore[call-overload]
        expected = whole[tuple(slice(max(0, -before), None) for before, _ in pads)]
    wanted = ints(*(before for before, _ in pads), *(after for _, after in pads))
    np.testing.assert_array_equal(compute("Pad", [x, wanted], expected.shape, mode=mode), expected)


@given(st.permutations(range(4)), st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_transposing_moves_axes(order: list[int], shape: list[int]) -> None:
    x = values(shape, "int32")
    expected = x.transpose(order)
    np.testing.assert_array_equal(
        compute("Transpose", [x], expected.shape, "int32", perm=order), expected
    )


@pytest.mark.parametrize(
    ("shape", "order"),
    [((300, 217), (1, 0)), ((2, 70, 40, 33), (0, 2, 3, 1)), ((40, 33, 2, 70), (2, 3, 0, 1))],
)
def test_large_arrays_are_transposed_in_stripes(
    shape: tuple[int, ...], order: tuple[int, ...]
) -> None:
    x = values(shape, "float32")
    expected = x.transpose(order)
    np.testing.assert_array_equal(compute("Transpose", [x], expected.shape, perm=order), expected)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 7, 4), (4, 4)])
@pytest.mark.parametrize("k", [-9, -2, 0, 1, 3, 9])
@pytest.mark.parametrize("upper", [0, 1])
def test_one_triangle_is_kept(shape: tuple[int, ...], k: int, upper: int) -> None:
    x = values(shape, "float32")
    expected = np.triu(x, k) if upper else np.tril(x, k)
    np.testing.assert_array_equal(compute("Trilu", [x, np.array(k)], shape, upper=upper), expected)


def test_padding_in_absurdly_many_pieces_is_refused() -> None:
    x, pads = blank((2, 2)), ints(200, 200, 200, 200)
    with pytest.raises(UnsupportedOp, match="Pad"):
        compute("Pad", [x, pads], (402, 402), mode="wrap")


def test_dropout_in_training_drops_and_scales_unless_it_is_told_not_to() -> None:
    x, yes = values((2000,), "float32", special=False), np.array(True)
    ratio = np.array(0.25, np.float32)
    mask = blank((2000,), bool)
    node = Node("Dropout", [x, ratio, yes], [blank((2000,)), mask])
    y = node.run()
    assert 0.7 < mask.mean() < 0.8
    np.testing.assert_allclose(y, np.where(mask, x / 0.75, 0), rtol=1e-6)
    ratio.fill(0)
    assert node.run().tobytes() == x.tobytes()
    assert mask.all()
    ratio.fill(0.25)
    yes.fill(False)
    assert node.run().tobytes() == x.tobytes()


# -- reductions --------------------------------------------------------------------------

REDUCE: Mapping[str, Any] = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
}


@pytest.mark.parametrize("op", REDUCE)
@pytest.mark.parametrize("axes", [(0,), (1,), (3,), (2, 3), (0, 2), (1, -1), (0, 1, 2, 3)])
@pytest.mark.parametrize("constant", [True, False])
def test_reductions_agree_with_numpy(op: str, axes: tuple[int, ...], constant: bool) -> None:
    x = np.absolute(values((3, 5, 40, 70), "float64", special=False)) * 0.5 + 0.1
    if op == "ReduceProd":
        x = x**0.01
    options = {"constants": [1] if constant else [], "keepdims": 1}
    for keep in (True, False):
        expected = REDUCE[op](x, axis=axes, keepdims=keep)
        options["keepdims"] = int(keep)
        got = compute(op, [x, ints(*axes)], expected.shape, "float64", **options)
        np.testing.assert_allclose(got, expected, rtol=1e-12)


NORMS = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")


@pytest.mark.parametrize("op", NORMS)
@pytest.mark.parametrize("axes", [(0,), (3,), (2, 3), (1, -1), (0, 1, 2, 3)])
def test_norms_agree_with_onnx_runtime(op: str, axes: tuple[int, ...]) -> None:
    x = np.absolute(values((3, 5, 4, 7), "float32", special=False)) * 0.5 + 0.1
    for keep in (0, 1):
        check_node(op, [x, ints(*axes)], {"keepdims": keep}, opset=18, constants=[1])


@pytest.mark.parametrize("op", NORMS)
def test_axes_of_norms_that_change_between_runs_are_followed(op: str) -> None:
    x = np.absolute(values((6, 7), "float32", special=False)) + 0.1
    axes = [ints(0), ints(1)]
    attributes = {"opset": 18, "outputs": 1, "constants": []}
    model = node_model(op, [x, axes[0]], {"keepdims": 0}, **attributes)
    with ap.Executor(model.SerializeToString()) as executor:
        for each in (*axes, axes[0]):
            (found,) = executor.run({"in0": x, "in1": each}).values()
            (wanted,) = expected_of(model, [x, each], "onnxruntime")
            np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("op", REDUCE)
def test_axes_that_change_between_runs_are_followed(op: str) -> None:
    x, axes = np.absolute(values((6, 6), "float32", special=False)) + 0.1, ints(0)
    node = Node(op, [x, axes], [blank((6,))], keepdims=0)
    np.testing.assert_allclose(node.run(), REDUCE[op](x, axis=0, keepdims=False), rtol=1e-5)
    axes[0] = 1
    np.testing.assert_allclose(node.run(), REDUCE[op](x, axis=1, keepdims=False), rtol=1e-5)


def test_axes_were_an_attribute_once() -> None:
    x = values((3, 4), "float32", special=False)
    got = compute("ReduceMax", [x], (3, 1), version=13, axes=(1,))
    np.testing.assert_array_equal(got, x.max(1, keepdims=True))


def test_a_norm_of_many_half_precision_numbers_does_not_overflow() -> None:
    x = np.full((2, 5000), 10, np.float16)
    graph = check_node("ReduceL2", [x, ints(1)], opset=18, constants=[1], tolerance=1e-3)
    assert graph.values[graph.outputs[0]].dtype == "float16"


def test_reducing_nothing_gives_the_neutral_element() -> None:
    x = np.empty((2, 0), np.float32)
    neutral = {
        "ReduceSum": 0, "ReduceProd": 1, "ReduceMax": -np.inf, "ReduceMin": np.inf,
    }  # fmt: skip
    for op, expected in neutral.items():
        assert compute(op, [x, ints(1)], (2, 1)).tolist() == [[expected]] * 2, op
    for op in NORMS:
        check_node(op, [x, ints(1)], opset=18, constants=[1], oracle="reference")


def test_a_mean_of_whole_numbers_is_cut_towards_zero() -> None:
    assert compute("ReduceMean", [ints(-3, -4), ints(0)], (1,), np.int64).tolist() == [-3]


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_the_first_or_last_extreme_is_found(op: str, axis: int, last: int) -> None:
    x = RNG.integers(0, 4, (7, 90, 300)).astype(np.int32)
    flipped = np.flip(x, axis) if last else x
    expected = (np.argmax if op == "ArgMax" else np.argmin)(flipped, axis=axis, keepdims=True)
    if last:
        expected = x.shape[axis] - 1 - expected
    options = {"axis": axis, "select_last_index": last}
    np.testing.assert_array_equal(compute(op, [x], expected.shape, np.int64, **options), expected)


@pytest.mark.parametrize(("exclusive", "reverse"), list(product((0, 1), (0, 1))))
def test_running_sums_go_both_ways(exclusive: int, reverse: int) -> None:
    x = RNG.integers(0, 9, (4, 7)).astype(np.int32)
    wanted = np.flip(x, 1) if reverse else x
    wanted = np.cumsum(wanted, 1) - (wanted if exclusive else 0)
    wanted = np.flip(wanted, 1) if reverse else wanted
    options = {"exclusive": exclusive, "reverse": reverse}
    got = compute("CumSum", [x, np.array(1)], x.shape, "int32", **options)
    np.testing.assert_array_equal(got, wanted)


# -- lookups ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gathering_takes_slices(dtype: str, constant: bool, axis: int) -> None:
    x, indices = values((5, 6, 5), "float32"), np.array([[0, -1], [4, -5]], dtype)
    expected = np.take(x, indices, axis)
    options = {"constants": [1] if constant else [], "axis": axis}
    np.testing.assert_array_equal(
        compute("Gather", [x, indices], expected.shape, **options), expected
    )


@pytest.mark.parametrize(
    "op", ["Gather", "GatherElements", "ScatterElements", "GatherND", "ScatterND"]
)
@pytest.mark.parametrize("index", [5, -6])
def test_indices_outside_their_axis_are_refused(op: str, index: int) -> None:
    x, indices = values((5,), "float32"), np.array([[index]]) if op.endswith("ND") else ints(index)
    inputs = [x, indices, values((1,), "float32")][: 3 if op.startswith("Scatter") else 2]
    shape = (5,) if op.startswith("Scatter") else (1,)
    with raises("IndexOutOfRange", match=r"the node.*axis of length 5"):
        compute(op, inputs, shape)
    with raises("IndexOutOfRange"):
        compute(op, inputs, shape, constants=[1])


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_single_elements_are_gathered_and_scattered(axis: int, constant: bool) -> None:
    x = values((4, 5, 6), "float32", special=False)
    indices = RNG.integers(-x.shape[axis], x.shape[axis], (3, 4, 5))
    options = {"axis": axis, "constants": [1] if constant else []}
    part = tuple(slice(None) if k == axis else slice(n) for k, n in enumerate(indices.shape))
    wrapped = indices % x.shape[axis]
    expected = np.take_along_axis(x[part], wrapped, axis)
    np.testing.assert_array_equal(
        compute("GatherElements", [x, indices], indices.shape, **options), expected
    )
    updates = values(indices.shape, "float32", special=False)
    for reduction, combine in (("none", None), ("add", np.add), ("max", np.maximum)):
        wanted = x.copy()
        for at in np.ndindex(indices.shape):
            place = (*at[:axis], wrapped[at], *at[axis + 1 :])
            wanted[place] = updates[at] if combine is None else combine(wanted[place], updates[at])
        got = compute(
            "ScatterElements", [x, indices, updates], x.shape, reduction=reduction, **options
        )
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("constant", [True, False])
def test_tuples_of_indices_select_slices(constant: bool) -> None:
    x, options = values((4, 5, 6), "float32"), {"constants": [1] if constant else []}
    indices = np.array([[[0, 1], [-1, 4]], [[3, -5], [2, 2]]])
    expected = x[indices[..., 0], indices[..., 1]]
    np.testing.assert_array_equal(compute("GatherND", [x, indices], (2, 2, 6), **options), expected)
    updates, wanted = values((2, 2, 6), "float32"), x.copy()
    wanted[indices[..., 0], indices[..., 1]] = updates
    got = compute("ScatterND", [x, indices, updates], x.shape, **options)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "uint32", "int64", "uint64"]
)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("k", [1, 7, 70])
def test_top_k_orders_by_value_and_then_by_index(
    dtype: str, axis: int, largest: int, k: int
) -> None:
    x = values((70, 70, 70), dtype, special=False)
    if x.dtype.kind == "u":
        x[0, 0, 0], x[1, 1, 1] = np.iinfo(dtype).max, np.iinfo(dtype).max - 1
    else:
        x.reshape(-1)[:40:2] = -0.0
        x.reshape(-1)[1:40:2] = 0.0
    shape = tuple(k if at == axis % 3 else n for at, n in enumerate(x.shape))
    found = blank(shape, np.int64)
    got = Node("TopK", [x, ints(k)], [blank(shape, dtype), found], axis=axis, largest=largest).run()
    # Complements of whole numbers count down without overflow.
    keys = x if not largest else (~x if x.dtype.kind in "iu" else -x)
    order = np.take(np.argsort(keys, axis, kind="stable"), range(k), axis)
    np.testing.assert_array_equal(found, order)
    np.testing.assert_array_equal(got, np.take_along_axis(x, order, axis))


def test_top_k_of_long_rows_of_wide_numbers_is_refused() -> None:
    x = np.zeros((1, 20_000))
    with pytest.raises(UnsupportedDtype, match="float64"):
        Node("TopK", [x, ints(3)], [blank((1, 3), "float64"), blank((1, 3), np.int64)])


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["int64", "float32", "uint8"])
def test_one_hot_ignores_what_is_out_of_range(axis: int, dtype: str) -> None:
    indices = np.array(
        [[0, 3, 2], [5, 1, 0]] if dtype == "uint8" else [[0, -1, 2], [5, -9, -4]], dtype
    )
    depth, values_ = np.array(4), np.array([2.0, 7.0], np.float32)
    expected = np.full((2, 3, 4), 2.0)
    for at in np.ndindex(2, 3):
        if -4 <= indices[at] < 4:
            expected[(*at, int(indices[at]))] = 7
    expected = np.moveaxis(expected, -1, axis)
    got = compute("OneHot", [indices, depth, values_], expected.shape, axis=axis)
    np.testing.assert_array_equal(got, expected)


# -- resizing ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
)
@pytest.mark.parametrize("size", [(1, 2, 9, 5), (3, 2, 13, 31), (1, 1, 40, 40), (1, 1, 20, 1)])
def test_resizing_agrees_with_onnx_runtime(
    mode: str, coordinates: str, size: tuple[int, ...]
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    x = values((size[0], size[1], 20, 10), "float32", special=False)
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = (
            "floor" if coordinates == "asymmetric" else "round_prefer_floor"
        )
    h = onnx.helper
    graph = h.make_graph(
        [h.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)],
        "resize",
        [h.make_tensor_value_info("x", 1, x.shape)],
        [h.make_tensor_value_info("y", 1, size)],
        [onnx.numpy_helper.from_array(ints(*size), "sizes")],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, {"x": x})
    got = compute("Resize", [x, None, None, ints(*size)], size, constants=[3], **attributes)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_resizing_by_blocks_gives_the_same_bits_as_all_at_once() -> None:
    x = values((210, 1, 20, 10), "float32", special=False)
    options = {"constants": [3], "mode": "cubic"}
    got = compute("Resize", [x, None, None, ints(210, 1, 41, 33)], (210, 1, 41, 33), **options)
    for one, expected in zip(x[:, None], got[:, None], strict=True):
        alone = compute(
            "Resize", [one, None, None, ints(*expected.shape)], expected.shape, **options
        )
        assert alone.tobytes() == expected.tobytes()


def test_whole_numbers_are_rounded_and_bounded_when_resized() -> None:
    x = np.array([[[[0, 255], [255, 0]]]], np.uint8)
    got = compute("Resize", [x, None, None, ints(1, 1, 4, 4)], (1, 1, 4, 4), np.uint8, mode="cubic")
    assert got.min() == 0
    assert got.max() == 255


def test_a_scale_that_contradicts_the_output_is_refused() -> None:
    x, scales = blank((1, 1, 4, 4)), np.array([1, 1, 3, 2], np.float32)
    with pytest.raises(ShapeMismatch, match="axis 2"):
        compute("Resize", [x, None, scales], (1, 1, 8, 8))


def test_a_resize_needs_to_know_what_to_do() -> None:
    x = blank((1, 1, 4, 4))
    with pytest.raises(InvalidAttribute, match="neither scales nor sizes"):
        compute("Resize", [x], (1, 1, 8, 8))
    with pytest.raises(InvalidAttribute, match="mode is 'fancy'"):
        compute("Resize", [x, None, np.array([1, 1, 2, 2.0])], (1, 1, 8, 8), mode="fancy")


# -- quantization ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("block", [0, 2, 4])
def test_quantized_blocks_have_their_own_scales(dtype: str, block: int) -> None:
    x = values((3, 7, 2), "float32", special=False) * 40
    shape = (3, -(-7 // block), 2) if block else (7,)
    scale = (RNG.random(shape) + 0.5).astype(np.float32)
    zero = RNG.integers(0, 20, shape).astype(dtype)
    if block:
        wide = [np.repeat(array, block, 1)[:, :7] for array in (scale, zero.astype(int))]
    else:
        wide = [array[None, :, None] for array in (scale, zero.astype(int))]
    limits = np.iinfo(dtype)
    quantized = np.clip(np.rint(x / wide[0]) + wide[1], limits.min, limits.max).astype(dtype)
    options = {"axis": 1, "block_size": block}
    got = compute("QuantizeLinear", [x, scale, zero], x.shape, dtype, **options)
    np.testing.assert_array_equal(got, quantized)
    back = compute("DequantizeLinear", [got, scale, zero], x.shape, **options)
    np.testing.assert_allclose(back, (quantized - wide[1]) * wide[0], rtol=1e-6)
