"""Kernels that sample, rearrange, contract and normalize."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arenaplan as ap
from arenaplan.base.errors import InvalidAttribute, ShapeMismatch
from arenaplan.formats.onnx import load_onnx
from arenaplan.run.numpy.kernels import sampling
from light_node import Node, blank, ints
from raising import raises
from single_node import check_node, expected, node_model

RNG = np.random.default_rng(20261122)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# -- sampling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
def test_grids_are_sampled(mode: str, padding: str, corners: int) -> None:
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    grid = RNG.uniform(-1.7, 1.7, (2, 4, 5, 2)).astype(np.float32)
    check_node("GridSample", [random(2, 3, 5, 7), grid], attributes, opset=20)
    if mode != "cubic":
        grid = RNG.uniform(-1.7, 1.7, (1, 2, 4, 5, 3)).astype(np.float32)
        check_node("GridSample", [random(1, 2, 3, 5, 4), grid], attributes, opset=20)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("images", [1, 2, 5])
def test_images_of_one_channel_are_sampled_together(
    mode: str, images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two images of 12 samples fit a block, so that the last of five images is alone."""
    monkeypatch.setattr(sampling, "BLOCK", 30)
    own = np.random.default_rng(images)
    attributes = {"mode": mode, "align_corners": 1}
    for columns in (3, 9):  # More than a block has are sampled image by image.
        x = own.standard_normal((images, 1, 5, 7)).astype(np.float32)
        grid = own.uniform(-1.7, 1.7, (images, 4, columns, 2)).astype(np.float32)
        check_node("GridSample", [x, grid], attributes, opset=20)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
def test_regions_are_pooled(mode: str, ratio: int, transformation: str) -> None:
    corner = RNG.uniform(-2, 8, (6, 2))
    rois = np.concatenate([corner, corner + RNG.uniform(0.2, 8, (6, 2))], 1).astype(np.float32)
    attributes = {"mode": mode, "sampling_ratio": ratio, "spatial_scale": 0.7}
    attributes |= {"coordinate_transformation_mode": transformation}
    inputs = [random(2, 3, 9, 10), rois, RNG.integers(0, 2, 6)]
    # Only with one sample to a bin does ONNX Runtime take the maximum as the standard does.
    oracle = "reference" if mode == "max" and ratio != 1 else "onnxruntime"
    shape = {"output_height": 3, "output_width": 4}
    check_node("RoiAlign", inputs, {**attributes, **shape}, opset=16, oracle=oracle)


def test_a_region_of_an_image_that_is_not_there_is_refused() -> None:
    rois, batches = np.array([[0, 0, 2, 2]], np.float32), ints(1)
    inputs = [random(1, 1, 4, 4), rois, batches]
    model = node_model("RoiAlign", inputs, {}, opset=16, outputs=1, constants=[])
    executor = ap.Executor(load_onnx(model))
    with raises("KernelError", match="a region of image 1 of 1"):
        executor.run({f"in{k}": array for k, array in enumerate(inputs)})


def test_regions_of_whole_pixels_are_pooled() -> None:
    corner = RNG.integers(0, 8, (6, 2))
    rois = np.concatenate([RNG.integers(0, 2, (6, 1)), corner, corner + 4], 1).astype(np.float32)
    attributes = {"pooled_shape": [2, 3], "spatial_scale": 0.5}
    check_node("MaxRoiPool", [random(2, 3, 6, 6), rois], attributes)


@pytest.mark.parametrize("corners", [0, 1])
def test_grids_are_transformed(corners: int) -> None:
    attributes = {"align_corners": corners}
    for space in ((4, 5), (3, 4, 2)):
        theta = random(2, len(space), len(space) + 1)
        check_node("AffineGrid", [theta, ints(2, 1, *space)], attributes, opset=20, constants=[1])


@pytest.mark.parametrize(("group", "offsets"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_deformed_windows_are_convolved(group: int, offsets: int) -> None:
    inputs = [random(2, 4, 7, 6), random(4, 4 // group, 3, 2), random(2, offsets * 12, 4, 6)]
    inputs += [random(4), np.abs(random(2, offsets * 6, 4, 6))]
    attributes = {"group": group, "offset_group": offsets, "strides": [2, 1]}
    attributes |= {"pads": [1, 0, 1, 1], "kernel_shape": [3, 2]}
    check_node("DeformConv", inputs, attributes, opset=19)
    check_node("DeformConv", inputs[:3], attributes, opset=19, constants=[1])


# -- moves -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [1, 2, 3])
def test_columns_are_added_up(space: int) -> None:
    image, block = [7, 6, 5][:space], [3, 2, 2][:space]
    for strides, pads in product((1, 2), (0, 1)):
        counts = [(n + 2 * pads - k) // strides + 1 for n, k in zip(image, block, strict=True)]
        columns = random(2, 3 * int(np.prod(block)), int(np.prod(counts)))
        attributes = {"strides": [strides] * space, "pads": [pads] * (2 * space)}
        inputs = [columns, ints(*image), ints(*block)]
        check_node("Col2Im", inputs, attributes, opset=18, constants=[1, 2])


def test_maxima_return_to_where_they_were() -> None:
    indices = RNG.permutation(2 * 3 * 6 * 8)[:72].reshape(2, 3, 3, 4)
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    check_node("MaxUnpool", [random(2, 3, 3, 4), indices], attributes)
    larger = [random(2, 3, 3, 4), indices, ints(2, 3, 7, 9)]
    check_node("MaxUnpool", larger, attributes, constants=[2], oracle="reference")
    far = [random(1, 1, 1), ints(9).reshape(1, 1, 1)]
    node = Node("MaxUnpool", far, [blank((1, 1, 2))], kernel_shape=[2])
    with raises("IndexOutOfRange"):
        node.run()


def test_a_constant_shape_is_that_of_the_unpooled_image() -> None:
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    inputs = [random(1, 1, 2, 2), ints(5, 7, 13, 15).reshape(1, 1, 2, 2), ints(1, 1, 5, 5)]
    model = node_model("MaxUnpool", inputs, attributes, opset=11, outputs=1, constants=[2])
    graph = load_onnx(model)
    assert graph.values[graph.outputs[0]].shape == (1, 1, 5, 5)
    feed = {"in0": inputs[0], "in1": inputs[1]}
    (result,) = ap.Executor(graph).run(feed).values()
    (wanted,) = expected(model, inputs, "reference")
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("time", [0, 1])
def test_sequences_are_reversed(time: int) -> None:
    attributes = {"time_axis": time, "batch_axis": 1 - time}
    shape = (6, 4, 3) if time == 0 else (4, 6, 3)
    check_node("ReverseSequence", [random(*shape), ints(6, 1, 3, 2)], attributes)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_what_a_condition_selects_is_kept(axis: int | None) -> None:
    condition = np.array([True, False, True, True])
    attributes = {} if axis is None else {"axis": axis}
    check_node("Compress", [random(5, 4, 6), condition], attributes, constants=[1])


def test_a_condition_that_changes_must_keep_as_much() -> None:
    x, condition = random(4, 2), np.array([True, False, False, True])
    node = Node("Compress", [x, condition], [blank((2, 2))], axis=0)
    np.testing.assert_array_equal(node.run(), x[[0, 3]])
    condition[:] = [False, True, True, False]
    np.testing.assert_array_equal(node.run(), x[[1, 2]])
    condition[0] = True
    with pytest.raises(Exception, match="makes shape"):
        node.run()


@pytest.mark.parametrize("shape", [(3, 9), (8, 2), (5, 6)])
def test_ends_are_cropped_or_padded(shape: tuple[int, int]) -> None:
    for axes in ([0, 1], [-1, 0]):
        attributes = {"axes": axes}
        inputs = [random(5, 6), ints(*shape)]
        check_node("CenterCropPad", inputs, attributes, opset=18, constants=[1])


# -- contractions ----------------------------------------------------------------------------------

EQUATIONS = {
    "ij,jk->ik": [(3, 4), (4, 5)],
    "ij,kj->ki": [(3, 4), (5, 4)],
    "bij,bjk->bik": [(2, 3, 4), (2, 4, 5)],
    "bij,jbk->kbi": [(2, 3, 4), (4, 2, 5)],
    "bhqd,bhkd->bhqk": [(2, 3, 4, 5), (2, 3, 6, 5)],
    "i,j->ji": [(3,), (4,)],
    "ij,ij": [(3, 4), (3, 4)],
    "ij,ij->": [(3, 4), (3, 4)],
    "iij->j": [(3, 3, 4)],
    "ii->i": [(4, 4)],
    "ij->ji": [(3, 4)],
    "ijk->": [(3, 4, 2)],
    "...ij,...jk": [(2, 1, 3, 4), (1, 5, 4, 2)],
    "...i->...": [(2, 3, 4)],
    "ab,bc,cd->ad": [(2, 3), (3, 4), (4, 5)],
    "ab,cd,bd->ca": [(2, 3), (4, 5), (3, 5)],
    "abc,cd->da": [(2, 3, 4), (4, 5)],
    "ab,b->": [(2, 3), (3,)],
    "iiji->ij": [(3, 3, 2, 3)],
    "ij,jk->ki": [(3, 1), (4, 5)],
    "ij,jk": [(3, 0), (0, 5)],
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_equations_agree(equation: str) -> None:
    inputs = [random(*shape) for shape in EQUATIONS[equation]]
    check_node("Einsum", inputs, {"equation": equation})


def equation_model(equation: str, arrays: list[np.ndarray]) -> bytes:
    attributes = {"equation": equation}
    model = node_model("Einsum", arrays, attributes, opset=17, outputs=1, constants=[])
    return model.SerializeToString()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_equations_agree_with_numpy(data: st.DataObject) -> None:
    letters = "abcd"
    sizes = {letter: data.draw(st.integers(1, 4)) for letter in letters}
    some = st.lists(st.sampled_from(letters), min_size=1, max_size=4, unique=True)
    terms = data.draw(st.lists(some, min_size=1, max_size=3))
    made = data.draw(st.permutations(sorted({x for term in terms for x in term})))
    made = made[: data.draw(st.integers(0, len(made)))]
    equation = ",".join(map("".join, terms)) + "->" + "".join(made)
    arrays = [random(*(sizes[x] for x in term)) for term in terms]
    wanted = np.einsum(equation, *[array.astype(np.float64) for array in arrays])
    with ap.Executor(equation_model(equation, arrays)) as executor:
        (found,) = executor.run({f"in{k}": array for k, array in enumerate(arrays)}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("equation", ["ij,jk->il", "ij->ji", "i?,jk", "ij,jk->iik"])
def test_an_equation_that_makes_no_sense_is_refused(equation: str) -> None:
    with pytest.raises(InvalidAttribute):
        ap.load(equation_model(equation, [random(2, 2), random(2, 2)]))


def test_a_letter_with_two_sizes_is_refused() -> None:
    with pytest.raises(ShapeMismatch, match="'j' stands for 3 and 4"):
        ap.load(equation_model("ij,jk->ik", [random(2, 3), random(4, 5)]))


# -- norms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_norms_become_one(order: int, axis: int) -> None:
    x = random(3, 40, 5)
    x[0] = 0
    check_node("LpNormalization", [x], {"axis": axis, "p": order})


@pytest.mark.parametrize("axes", [None, [0], [1, 3], [0, 1, 2, 3]])
def test_means_become_zero_and_deviations_one(axes: list[int] | None) -> None:
    attributes = {} if axes is None else {"axes": axes}
    # Few numbers may lie close together; their deviation then magnifies how sums are rounded.
    x = np.random.default_rng(8).standard_normal((24, 10, 25, 5)).astype(np.float32) + 3
    check_node("MeanVarianceNormalization", [x], attributes, opset=13)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_first_maximum_becomes_one(opset: int, axis: int) -> None:
    for x in (random(3, 4, 5), RNG.integers(0, 2, (6, 4, 5)).astype(np.float32)):
        check_node("Hardmax", [x], {"axis": axis}, opset=opset)


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 3, 6, 6), (3, 0, 0)])
def test_determinants_agree(shape: tuple[int, ...]) -> None:
    x = random(*shape)
    got = Node("Det", [x], [blank(shape[:-2])]).run()
    np.testing.assert_allclose(got, np.linalg.det(x.astype(np.float64)), rtol=1e-5, atol=1e-6)
    if x.size > 9:
        x[..., 0] = x[..., 1]
        assert np.abs(Node("Det", [x], [blank(shape[:-2])]).run()).max() < 1e-5
