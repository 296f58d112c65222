"""Canonical operators: their effects against NumPy, their pieces against their footprints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arenaplan.formats.jaxpr.jaxpr_operators import node_effects as jax_effects
from arenaplan.formats.named import NamedOp
from arenaplan.formats.pt2.pt2_operators import OPERATORS as ATEN
from arenaplan.graph import NO_EFFECTS, Effects, Flow, InPlace, View, ops
from arenaplan.graph.ops.boxes import Box, Uncuttable, box_shape, reshaped
from arenaplan.run.numpy.cuts import cut_operands
from arenaplan.run.numpy.registry import find_kernel
from arenaplan.run.numpy.signatures import signature_of
from arenaplan.tflite.reader import tflite_operators as tflite
from single_node import check_node
from test_contracts import CASES, Case, _imported

Shape = tuple[int, ...]


def operands(inputs: Sequence[Shape], *outputs: Shape) -> ops.Operands:
    """Return operands of one type."""
    ins, outs = ([ops.Array(shape, "int16") for shape in side] for side in (inputs, outputs))
    return ops.Operands(ins, outs)


def numbered(shape: Shape) -> np.ndarray:
    return np.arange(prod(shape), dtype=np.int16).reshape(shape)


def is_run(x: np.ndarray, y: np.ndarray) -> int | None:
    """Return where the elements of ``y`` are neighbors in ``x``, which has each number once."""
    first = int(y.reshape(-1)[0])
    return first if np.array_equal(y.reshape(-1), np.arange(first, first + y.size)) else None


# -- views, against NumPy ----------------------------------------------------------------------


def shapes(least: int = 1) -> st.SearchStrategy[Shape]:
    return st.lists(st.integers(1, 3), min_size=least, max_size=4).map(tuple)


@given(st.data())
def test_a_slice_is_a_view_if_and_only_if_its_elements_are_neighbors(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    taken = []
    for dim in shape:
        start = data.draw(st.integers(0, dim - 1))
        step = data.draw(st.sampled_from([1, 1, 1, 2, -1]))
        stop = data.draw(st.integers(-1, start - 1) if step < 0 else st.integers(start + 1, dim))
        taken.append(range(start, stop, step))
    x = numbered(shape)
    y = x[np.ix_(*taken)]
    effects = ops.Slice(taken).permissions(operands([shape], y.shape))
    start = is_run(x, y)
    assert [view.offset for view in effects.views] == ([] if start is None else [2 * start])


@given(shapes(), st.data())
def test_one_index_is_a_view_if_and_only_if_it_is_a_run(shape: Shape, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    index = data.draw(st.integers(-shape[axis], shape[axis] - 1))
    x = numbered(shape)
    y = x.take(index, axis)
    known = ops.one_index(shape, axis, index)
    assert known is not None
    start = is_run(x, y)
    views = known.permissions(operands([shape], y.shape)).views
    assert [view.offset for view in views] == ([] if start is None else [2 * start])


@given(shapes(), st.data())
def test_a_transpose_is_a_view_if_and_only_if_elements_stay(
    shape: Shape, data: st.DataObject
) -> None:
    perm = data.draw(st.permutations(range(len(shape))))
    x = numbered(shape)
    y = x.transpose(perm)
    effects = ops.Transpose(perm).permissions(operands([shape], y.shape))
    assert bool(effects.views) == (is_run(x, y) is not None)


@given(shapes(), st.data())
def test_parts_and_joints_are_views_if_and_only_if_they_are_runs(
    shape: Shape, data: st.DataObject
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    full = list(shape)
    full[axis] = sum(sizes)
    x = numbered(tuple(full))
    parts = np.split(x, np.cumsum(sizes)[:-1], axis)
    made = [part.shape for part in parts]
    runs = [is_run(x, part) for part in parts]
    expected = [] if prod(x.shape[:axis] if axis >= 0 else x.shape[: x.ndim + axis]) > 1 else runs
    split = ops.Split(axis, sizes).permissions(operands([x.shape], *made))
    concat = ops.Concat(axis).permissions(operands(made, x.shape))
    for effects in (split, concat):
        assert [view.offset // 2 for view in effects.views] == expected


def test_an_output_that_is_left_out_of_a_split_takes_its_place() -> None:
    node = operands([(6,)], (1,), (2,), (3,))
    outputs = [node.outputs[0], None, node.outputs[2]]
    partial = ops.Operands(node.inputs, outputs)
    views = ops.Split(0, (1, 2, 3)).permissions(partial).views
    assert [(view.output, view.offset) for view in views] == [(0, 0), (2, 6)]
    assert ops.Split(0).permissions(partial) == NO_EFFECTS  # Nobody knows how long it is.


def test_converted_inputs_of_a_concatenation_are_copies() -> None:
    effects = ops.Concat(0, converted=[1]).permissions(operands([(1,), (2,), (3,)], (6,)))
    assert [(view.input, view.offset) for view in effects.views] == [(0, 0), (2, 6)]


@pytest.mark.parametrize("axis", [-3, 2])
def test_an_axis_that_does_not_exist_gives_no_effects(axis: int) -> None:
    node = operands([(2, 3)], (2, 3))
    for operator in (ops.Concat(axis), ops.Split(axis), ops.Normalize(axis)):
        effects = ops.effects_of(operator, node)
        assert not effects.views
        assert not effects.flows
    assert ops.one_index((2, 3), axis, 0) is None


def test_a_part_of_packed_elements_is_no_view_and_all_of_them_is_one() -> None:
    x, half = ops.Array((4,), "int4"), ops.Array((2,), "int4")
    known = ops.Slice([range(2)])
    assert known.permissions(ops.Operands([x], [half])) == NO_EFFECTS
    assert ops.Slice([range(4)]).permissions(ops.Operands([x], [x])).views


def test_bytes_of_constants_are_shared_by_nothing() -> None:
    fixed, y = ops.Array((2, 3), "float32", is_fixed=True), ops.Array((2, 3), "float32")
    node = ops.Operands([fixed], [y])
    known = (
        *(ops.ELEMENTWISE, ops.FIRST_OPERAND, ops.CONVERT, ops.UPDATE, ops.RESHAPE, ops.BITCAST),
        *(ops.IDENTITY, ops.Transpose([0, 1]), ops.Concat(0), ops.Split(0)),
        *(ops.Slice([range(2), range(3)]), ops.Pad([(0, 0)] * 2), ops.Normalize(1), ops.Loop(0, 1)),
        ops.Neighbors(1, 1),
    )
    for operator in known:
        assert operator.permissions(node) == NO_EFFECTS, operator
        free = operator.permissions(ops.Operands([y], [y]))
        assert free.in_place or free.views or free.overlaps, operator


# -- pieces and footprints ---------------------------------------------------------------------


def piece_box(made: Shape, pieces: int, piece: int) -> Box | None:
    """Return the box that one of equal runs of an array is, if it is a box."""
    count = prod(made)
    length = count // pieces
    try:
        return reshaped((slice(piece * length, (piece + 1) * length),), (count,), made)
    except Uncuttable:
        return None


def check_footprint(
    flow: Flow, made: Shape, inputs: Sequence[Shape | None], box: Box, piece: int, needed: Any
) -> None:
    """Compare: of followed inputs, all that is needed is in the piece of the same number."""
    for position in flow.follows:
        shape, part = inputs[position], needed[position]
        assert shape is not None
        numbers = np.arange(prod(shape)).reshape(shape)
        inside = numbers if part is None else numbers[part]
        length = prod(shape) // flow.pieces
        assert set((inside // length).reshape(-1).tolist()) == {piece}, (position, box, part)


def meanings() -> Iterator[tuple[ops.Operator, Sequence[Shape], Shape]]:
    """Yield operators with the shapes of their inputs and output."""
    yield ops.ELEMENTWISE, [(2, 3, 4), (3, 1), (2, 3, 4)], (2, 3, 4)
    yield ops.ELEMENTWISE, [(3, 1), (1, 4)], (3, 4)
    yield ops.FIRST_OPERAND, [(2, 3, 4), ()], (2, 3, 4)
    yield ops.FirstOperand(1), [(2, 3, 4), (3,)], (2, 3, 4)
    for axis in (0, 1, 2, -1):
        yield ops.Normalize(axis), [(2, 3, 4), (4,)], (2, 3, 4)
    yield ops.Normalize(2, channel=1), [(2, 3, 4, 5), (3,), (3,)], (2, 3, 4, 5)
    yield ops.Reduce([1]), [(2, 3, 4)], (2, 1, 4)
    yield ops.Reduce([1, 2], keeps=False), [(2, 3, 4)], (2,)
    yield ops.PRODUCT, [(2, 3, 4), (2, 4, 5)], (2, 3, 5)
    yield ops.PRODUCT, [(3, 4), (1, 4, 5)], (1, 3, 5)
    yield ops.PRODUCT, [(1, 3, 4), (2, 4, 5)], (2, 3, 5)
    yield ops.PRODUCT, [(3, 4), (4, 5), (5,)], (3, 5)
    yield ops.Product(is_transposed=True), [(4, 3), (4, 5)], (3, 5)
    for perm in ((1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0)):
        yield ops.Transpose(perm), [(2, 3, 4)], tuple((2, 3, 4)[axis] for axis in perm)
    yield ops.PLANES, [(2, 3, 4, 4)], (2, 3, 2, 2)
    yield ops.Neighbors(1, 2), [(2, 6, 4, 4)], (2, 6, 4, 4)


@pytest.mark.parametrize(("operator", "inputs", "made"), list(meanings()), ids=str)
def test_a_piece_needs_no_more_than_the_same_piece_of_what_it_follows(
    operator: ops.Operator, inputs: Sequence[Shape], made: Shape
) -> None:
    flow = operator.pieces(operands(inputs, made))
    assert flow is not None
    assert prod(made) % flow.pieces == 0
    checked = 0
    for piece in range(flow.pieces if flow.pieces > 1 else 0):
        box = piece_box(made, flow.pieces, piece)
        if box is None:
            continue
        try:
            needed = operator.footprint(inputs, made, box)
        except Uncuttable:
            assert not flow.follows  # Pieces of such operators are made by other means.
            continue
        assert len(needed) == len(inputs)
        check_footprint(flow, made, inputs, box, piece, needed)
        checked += 1
    assert checked or flow.pieces == 1 or not flow.follows


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    axes = tuple(range(axis, x.ndim))
    return np.exp(x) / np.exp(x).sum(axes, keepdims=True)


def sums(x: np.ndarray, size: int) -> np.ndarray:
    """Return sums of channels, from those before an own one to those behind."""
    below, above = (size - 1) // 2, size // 2
    padded = np.pad(x, [(0, 0), (below, above), (0, 0), (0, 0)])
    return sum(padded[:, at : at + x.shape[1]] for at in range(size))


COMPUTED = [
    (ops.ELEMENTWISE, [(2, 3, 4), (3, 1), (4,)], lambda x, y, z: x + y * z),
    (ops.FIRST_OPERAND, [(2, 3, 4), ()], lambda x, y: x * y),
    (ops.FirstOperand(1), [(2, 3, 4), (3,)], lambda x, y: x * y[:, None]),
    (ops.RESHAPE, [(2, 6)], lambda x: x.reshape(2, 2, 3)),
    (ops.Transpose([1, 2, 0]), [(2, 3, 4)], lambda x: x.transpose(1, 2, 0)),
    (ops.Normalize(1), [(2, 3, 4), (4,)], lambda x, y: softmax(x, 1) * y),
    (ops.Normalize(2, channel=1), [(2, 3, 4), (3,)], lambda x, y: softmax(x, 2) * y[:, None]),
    (ops.Reduce([1]), [(2, 3, 4)], lambda x: x.sum(1, keepdims=True)),
    (ops.Extremes(2), [(2, 3, 4)], lambda x: np.stack([x.min(2), x.max(2)], -1)),
    (ops.Extremes(2), [(2, 3, 4, 5)], lambda x: np.stack([x.min((2, 3)), x.max((2, 3))], -1)),
    (ops.Reduce([0, 2], keeps=False), [(2, 3, 4)], lambda x: x.sum((0, 2))),
    (ops.PRODUCT, [(2, 3, 4), (1, 4, 5)], np.matmul),
    (ops.PRODUCT, [(1, 3, 4), (2, 4, 5)], np.matmul),
    (ops.PRODUCT, [(3, 4), (4, 5), (3, 1)], lambda x, y, z: x @ y + z),
    (ops.PLANES, [(2, 3, 4, 4)], lambda x: x.cumsum(3)),
    (ops.Neighbors(1, 2), [(2, 6, 2, 2)], lambda x: sums(x, 4)),
]


@pytest.mark.parametrize(
    ("operator", "inputs", "compute"),
    COMPUTED,
    ids=lambda part: "" if callable(part) else str(part)[:30],
)
@given(data=st.data())
def test_a_box_is_made_from_its_footprint(
    operator: ops.Operator, inputs: Sequence[Shape], compute: Any, data: st.DataObject
) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.random(shape) for shape in inputs]
    wanted = compute(*arrays)
    bounds = (
        st.lists(st.integers(0, dim), min_size=2, max_size=2, unique=True) for dim in wanted.shape
    )
    box = tuple(slice(*sorted(data.draw(each))) for each in bounds)
    try:
        parts = operator.footprint(inputs, wanted.shape, box)
    except Uncuttable:
        assert not isinstance(operator, (ops.Elementwise, ops.Reduce, ops.Transpose))
        return
    taken = [x if part is None else x[part] for x, part in zip(arrays, parts, strict=True)]
    if isinstance(operator, ops.Reshape):
        found = taken[0].reshape(box_shape(box))
    else:
        found = compute(*taken)
    if isinstance(operator, ops.Neighbors):
        first = min(operator.below, box[1].start)
        found = found[:, first : first + box[1].stop - box[1].start]
    np.testing.assert_allclose(found, wanted[box])


def test_channels_that_a_resize_makes_have_no_pieces() -> None:
    assert ops.PLANES.pieces(operands([(1, 2, 4, 4)], (1, 4, 4, 4))) is None


def test_a_convolution_of_one_channel_makes_any_piece() -> None:
    node = operands([(1, 1, 4, 4), (6, 1, 3, 3)], (1, 6, 2, 2))
    assert ops.CONVOLUTION.pieces(node) == Flow(0, 24)


def test_nodes_with_two_outputs_have_no_pieces() -> None:
    one, two = operands([(1, 2, 4, 4)], (1, 2, 2, 2)), operands([(1, 2, 4, 4)], *[(1, 2, 2, 2)] * 2)
    assert ops.effects_of(ops.PLANES, one).flows
    assert not ops.effects_of(ops.PLANES, two).flows


def test_copies_that_a_kernel_runs_have_pieces_and_are_no_views() -> None:
    node = operands([(2, 3)], (2, 3))
    view, copy = (ops.effects_of(ops.CONVERT, node, copies=copies) for copies in (False, True))
    assert view == Effects(views=(View(0, 0),))
    assert copy == Effects(in_place=(InPlace(0, 0, True),), flows=(Flow(0, 6, (0,)),))


_PLAIN = [case for case in CASES if case.op not in ("RandomNormalLike", "RandomUniformLike")]


@pytest.mark.parametrize("case", _PLAIN, ids=lambda case: case.op)
def test_cuts_of_kernels_agree_with_the_pieces_that_the_importer_declares(case: Case) -> None:
    graph = _imported(case)
    (node,) = [node for node in graph.nodes if node.op == case.op]
    signature = signature_of(graph, node)
    cut = find_kernel(signature).cut
    inputs = [None if tensor is None else tensor.shape for tensor in signature.inputs]
    for flow in node.effects.flows:
        output = signature.outputs[flow.output]
        assert output is not None
        if not flow.follows:
            continue
        assert cut is not None
        checked = 0
        for piece in sorted({0, flow.pieces // 2, flow.pieces - 1}):
            box = piece_box(output.shape, flow.pieces, piece)
            assert box is not None
            try:
                needed = cut_operands(cut, signature, box)
            except Uncuttable:
                continue
            assert prod(box_shape(box)) == prod(output.shape) // flow.pieces
            check_footprint(flow, output.shape, inputs, box, piece, needed)
            checked += 1
        assert checked


# -- one meaning in all formats ------------------------------------------------------------------


class Options:
    """Options of a TFLite operator, by slot."""

    def __init__(self, **slots: int) -> None:
        self.slots = {int(slot[1:]): number for slot, number in slots.items()}

    def number(self, slot: int) -> int:
        return self.slots.get(slot, 0)


def of_onnx(op: str, inputs: Sequence[Shape], *constants: Sequence[int], **rest: Any) -> Effects:
    outputs = rest.pop("outputs", 1)
    arrays = [np.zeros(shape, np.float32) for shape in inputs]
    given = [*arrays, *(np.array(numbers, np.int64) for numbers in constants)]
    case = Case(op, given, rest, tuple(range(len(arrays), len(given))), outputs)
    (node,) = [node for node in _imported(case).nodes if node.op == op]
    return node.effects


def of_aten(op: str, inputs: Sequence[Shape], *made: Shape, **arguments: Any) -> Effects:
    known, results = floats(inputs), floats(made)
    operator = ops.lookup(ATEN, op, NamedOp(known, results, arguments))
    return ops.effects_of(operator, ops.Operands(known, results))


class WithoutPieces(NamedTuple):
    """Effects in a format that runs operators one at a time."""

    effects: Effects


def of_jax(op: str, inputs: Sequence[Shape], *made: Shape, **arguments: Any) -> WithoutPieces:
    return WithoutPieces(jax_effects(op, NamedOp(floats(inputs), floats(made), arguments)))


def of_tflite(op: str, inputs: Sequence[Any], *made: Shape, **options: int) -> Effects:
    """Return the effects of an operator; a list among its inputs has constant numbers."""
    known = [
        tflite.TfliteOperand((len(x),), "int32", None, True, tuple(x))
        if isinstance(x, list)
        else tflite.TfliteOperand(x, "float32", None, False, None)
        for x in inputs
    ]
    results = [tflite.TfliteOperand(shape, "float32", None, False, None) for shape in made]
    node = tflite.TfliteOp(known, results, Options(**options))
    operator = ops.lookup(tflite.OPERATORS, op, node)
    return ops.effects_of(operator, ops.Operands(known, results))


def floats(shapes: Sequence[Shape]) -> list[ops.Array]:
    return [ops.Array(shape, "float32") for shape in shapes]


X, Y = (2, 3, 4), (3, 4)
SAME_MEANING = {
    "add": (
        of_onnx("Add", [X, Y]),
        of_aten("add", [X, Y], X),
        of_jax("add", [X, Y], X),
        of_tflite("ADD", [X, Y], X),
    ),
    "add that repeats both": (
        of_onnx("Add", [(3, 1), (1, 4)]),
        of_aten("add", [(3, 1), (1, 4)], Y),
        of_jax("add", [(3, 1), (1, 4)], Y),
        of_tflite("ADD", [(3, 1), (1, 4)], Y),
    ),
    "activation": (
        of_onnx("Tanh", [X]),
        of_aten("tanh", [X], X),
        of_jax("tanh", [X], X),
        of_tflite("TANH", [X], X),
    ),
    "softmax": (
        of_onnx("Softmax", [X], axis=-1),
        of_aten("softmax", [X], X, dim=-1),
        of_tflite("SOFTMAX", [X], X),
    ),
    "softmax of columns": (
        of_onnx("Softmax", [X], axis=1),
        of_aten("_softmax", [X], X, dim=1),
    ),
    "layer normalization": (
        of_onnx("LayerNormalization", [X, Y], axis=1),
        of_aten("layer_norm", [X, Y], X, normalized_shape=[3, 4]),
    ),
    "instance normalization": (
        of_onnx("InstanceNormalization", [X, (3,), (3,)]),
        of_aten("instance_norm", [X, (3,), (3,)], X),
    ),
    "reshape": (
        of_onnx("Reshape", [X], [6, 4]),
        of_aten("view", [X], (6, 4)),
        of_jax("reshape", [X], (6, 4), dimensions=None),
        of_tflite("RESHAPE", [X, [6, 4]], (6, 4)),
    ),
    "repetition of nothing": (
        of_onnx("Expand", [Y], [1, 3, 4]),
        of_aten("expand", [Y], (1, 3, 4)),
        of_jax("broadcast_in_dim", [Y], (1, 3, 4)),
    ),
    "transpose": (
        of_onnx("Transpose", [X], perm=[1, 0, 2]),
        of_aten("permute", [X], (3, 2, 4), dims=[1, 0, 2]),
        of_aten("transpose", [X], (3, 2, 4), dim0=0, dim1=-2),
        of_jax("transpose", [X], (3, 2, 4), permutation=(1, 0, 2)),
        of_tflite("TRANSPOSE", [X, [1, 0, 2]], (3, 2, 4)),
    ),
    "concatenation": (
        of_onnx("Concat", [X, (1, 3, 4)], axis=0),
        of_aten("cat", [X, (1, 3, 4)], (3, 3, 4), dim=-3),
        of_jax("concatenate", [X, (1, 3, 4)], (3, 3, 4), dimension=0),
        of_tflite("CONCATENATION", [X, (1, 3, 4)], (3, 3, 4), s0=0),
    ),
    "split": (
        of_onnx("Split", [X], [1, 1], axis=0, outputs=2),
        of_aten("split", [X], (1, 3, 4), (1, 3, 4), dim=0),
        of_jax("split", [X], (1, 3, 4), (1, 3, 4), axis=0),
        of_tflite("SPLIT_V", [X, [1, 1], [0]], (1, 3, 4), (1, 3, 4)),
    ),
    "slice of rows": (
        of_onnx("Slice", [X], [1, 1], [2, 3], [0, 1]),
        of_jax("slice", [X], (1, 2, 4), start_indices=(1, 1, 0), limit_indices=(2, 3, 4)),
        of_tflite("SLICE", [X, [1, 1, 0], [-1, 2, 4]], (1, 2, 4)),
        of_tflite("STRIDED_SLICE", [X, [1, 1, 0], [2, 3, 4], [1, 1, 1]], (1, 2, 4)),
    ),
    "slice of all": (
        of_onnx("Slice", [X], [0], [9], [1]),
        of_aten("slice", [X], X, dim=1, start=0, end=9),
        of_jax("slice", [X], X, start_indices=(0, 0, 0), limit_indices=X),
        of_tflite("SLICE", [X, [0, 0, 0], [-1, -1, -1]], X),
    ),
    "one row": (
        of_onnx("Gather", [X], [-1], axis=0),
        of_aten("select", [X], Y, dim=0, index=1),
        of_aten("slice", [X], (1, 3, 4), dim=-3, start=-1),
        of_tflite("STRIDED_SLICE", [X, [1], [2], [1]], Y, s4=1),
    ),
    "no border": (
        of_onnx("Pad", [(1, 2, 3, 4)], [0] * 8),
        of_aten("constant_pad_nd", [(1, 2, 3, 4)], (1, 2, 3, 4), pad=[0, 0, 0, 0]),
    ),
    "border of images": (
        of_onnx("Pad", [(1, 2, 3, 4)], [0, 0, 1, 0, 0, 0, 0, 0]),
        of_aten("constant_pad_nd", [(1, 2, 3, 4)], (1, 2, 4, 4), pad=[0, 0, 1, 0]),
    ),
    "product": (
        of_onnx("MatMul", [X, (2, 4, 5)]),
        of_aten("matmul", [X, (2, 4, 5)], (2, 3, 5)),
        of_tflite("BATCH_MATMUL", [X, (2, 4, 5)], (2, 3, 5)),
    ),
    "convolution": (
        of_onnx("Conv", [(1, 2, 4, 4), (6, 2, 3, 3)]),
        of_aten("conv2d", [(1, 2, 4, 4), (6, 2, 3, 3)], (1, 6, 2, 2)),
    ),
    "depthwise convolution": (
        of_onnx("Conv", [(1, 2, 4, 4), (6, 1, 3, 3)], group=2),
        of_aten("convolution", [(1, 2, 4, 4), (6, 1, 3, 3)], (1, 6, 2, 2), groups=2),
    ),
    "transposed convolution": (
        of_onnx("ConvTranspose", [(1, 2, 2, 2), (2, 6, 3, 3)]),
        of_aten("convolution", [(1, 2, 2, 2), (2, 6, 3, 3)], (1, 6, 4, 4), transposed=True),
    ),
    "pool": (
        of_onnx("MaxPool", [(1, 2, 4, 4)], kernel_shape=[2, 2]),
        of_aten("max_pool2d", [(1, 2, 4, 4)], (1, 2, 3, 3)),
    ),
}


def told(effects: Effects) -> tuple[Any, ...]:
    """Return the facts that effects tell; a copy in place is a view without pieces."""
    shared = {(view.input, view.output, view.offset, view.of) for view in effects.views}
    shared |= {(pair.input, pair.output, 0, "input") for pair in effects.in_place if pair.identity}
    in_place = {pair for pair in effects.in_place if not pair.identity}
    return shared, in_place, () if shared else effects.flows, () if shared else effects.loads


@pytest.mark.parametrize("name", SAME_MEANING)
def test_an_operator_means_the_same_in_all_formats(name: str) -> None:
    first, *others = SAME_MEANING[name]
    assert isinstance(first, Effects)
    shared, in_place, *pieces = told(first)
    assert shared or in_place or any(pieces)
    for other in others:
        if isinstance(other, WithoutPieces):
            assert told(other.effects) == (shared, in_place, (), ())
        else:
            assert told(other) == told(first)


def test_an_axis_may_be_an_input_of_a_split() -> None:
    views = of_tflite("SPLIT", [[0], X], (1, 3, 4), (1, 3, 4)).views
    assert [(view.input, view.output, view.offset) for view in views] == [(1, 0, 0), (1, 1, 48)]


@pytest.mark.parametrize("shape", [(1, 3, 4), (3, 4)])
def test_a_repetition_of_nothing_runs_in_place(shape: Shape) -> None:
    x, shape_of = np.arange(12, dtype=np.float32).reshape(3, 4), np.array(shape, np.int64)
    graph = _imported(Case("Expand", [x, shape_of], {}, (1,)))
    assert told(graph.nodes[0].effects)[0] == {(0, 0, 0, "input")}
    check_node("Expand", [x, shape_of], constants=[1])


@pytest.mark.parametrize("left", [(3, 4), (1, 3, 4)])
def test_rows_of_a_product_are_in_step_though_the_right_operand_has_more_dimensions(
    left: Shape,
) -> None:
    inputs = [left, (1, 4, 5)]
    (flow,) = of_onnx("MatMul", inputs).flows
    assert flow == Flow(0, 3, (0,))
    rng = np.random.default_rng(0)
    check_node("MatMul", [rng.random(shape, np.float32) for shape in inputs])


def test_only_values_of_one_shape_and_type_are_carried_by_a_loop() -> None:
    x, wide = ops.Array((2,), "float32"), ops.Array((2,), "float64")
    node = ops.Operands([x, x, x, x], [x, wide, ops.Array((3,), "float32"), x])
    pairs = ops.Loop(0, 3).permissions(node).in_place
    assert pairs == (InPlace(0, 0),)


def test_inputs_of_another_scale_or_before_an_activation_are_no_pieces_of_tflite() -> None:
    x, other = (
        tflite.TfliteOperand((1, 4), "int8", scale, False, None) for scale in (("a",), ("b",))
    )
    y = tflite.TfliteOperand((2, 4), "int8", ("a",), False, None)
    for fused in (0, 1):
        node = tflite.TfliteOp([x, other], [y], Options(s0=0, s1=fused))
        operator = ops.lookup(tflite.OPERATORS, "CONCATENATION", node)
        views = ops.effects_of(operator, ops.Operands(node.inputs, node.outputs)).views
        assert [view.input for view in views] == ([] if fused else [0])


def test_amounts_of_padding_begin_with_the_last_dimension_in_pytorch() -> None:
    shape = (1, 3, 4)
    assert of_aten("pad", [shape], (1, 3, 5), pad=[1, 0, 0, 0]).flows
    assert not of_aten("pad", [shape], (1, 4, 4), pad=[0, 0, 1, 0]).flows


def test_the_axis_of_an_old_softmax_is_the_first_but_one() -> None:
    for opset, pieces in ((11, 2), (13, 6)):
        graph = _imported(Case("Softmax", [np.zeros(X, np.float32)], opset=opset))
        assert graph.nodes[0].effects.flows == (Flow(0, pieces, (0,)),)
