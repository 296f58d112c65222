"""
Effects that importers declare hold for naive kernels, not only for those of this package.

Each permission that an importer gives is used in the worst way that its contract allows:
outputs are written element by element, or piece by piece, into the memory that they may
share, and each element is computed anew from what that memory holds then. The operator's
results in memory of their own tell what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arenaplan as ap
import flat
import pointwise
from arenaplan.formats.jaxpr.jaxpr_operators import node_effects as jax_effects
from arenaplan.formats.named import NamedOp
from arenaplan.formats.onnx import load_onnx
from arenaplan.formats.onnx.operators import OPERATORS
from arenaplan.formats.pt2.pt2_operators import OPERATORS as ATEN
from arenaplan.graph import Flow, InPlace, Overlap, View
from arenaplan.graph.ops import Array, Operands, effects_of, lookup
from arenaplan.tflite.files import load_tflite
from light_models import onnx_runtime
from single_node import node_graph, node_model, run_with_choice

RNG = np.random.default_rng(7)


def f32(*shape: int) -> np.ndarray:
    """Return positive numbers, for which every operator is defined."""
    return RNG.uniform(0.1, 0.9, shape).astype(np.float32)


def number(value: float, dtype: str = "float32") -> np.ndarray:
    return np.array(value, dtype)


def i64(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


class Case(NamedTuple):
    """One operator with operands; those that say shapes and axes are constant."""

    op: str
    inputs: Sequence[np.ndarray | None]
    attributes: dict[str, Any] = {}  # noqa: RUF012
    constants: Sequence[int] = ()
    outputs: int = 1
    opset: int = 21


def cases() -> Iterator[Case]:
    """Yield cases for every operator of which the importer knows more than shapes."""
    x, y, z, image = f32(3, 4), f32(3, 4), f32(4), f32(2, 6, 4, 3)
    mask, small = RNG.random((3, 4)) < 0.5, RNG.integers(1, 5, (3, 4)).astype(np.int32)
    for op in ("Add", "Sub", "Mul", "Div", "Pow", "Equal", "Less", "LessOrEqual", "Greater"):
        yield Case(op, [x, y])
        yield Case(op, [x, z])
        yield Case(op, [z, x])
    yield Case("GreaterOrEqual", [x, y])
    yield Case("Mod", [x, y], {"fmod": 1})
    yield Case("BitShift", [small.astype(np.uint8)] * 2, {"direction": "LEFT"})
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield Case(op, [small, small[::-1].copy()])
    for op in ("And", "Or", "Xor"):
        yield Case(op, [mask, mask[::-1].copy()])
    for op in ("Sum", "Max", "Min"):
        yield Case(op, [x, y, z])
    yield Case("Where", [mask, x, y])
    for op in (*pointwise.UNARY, "IsInf", "IsNaN"):
        given = x + 1 if op in pointwise.ABOVE_ONE else x
        yield Case(op, [given], opset=pointwise.opset(op))
    yield Case("BitwiseNot", [small])
    yield Case("Not", [mask])
    yield Case("Clip", [x, number(0.3), number(0.6)])
    yield Case("PRelu", [x - 0.5, z])
    yield Case("Cast", [x * 9], {"to": onnx.TensorProto.INT8})
    yield Case("Cast", [x], {"to": onnx.TensorProto.DOUBLE})
    yield Case("Cast", [x], {"to": onnx.TensorProto.FLOAT})
    yield Case("CastLike", [x * 9, small])
    yield Case("QuantizeLinear", [x, number(0.1), number(3, "uint8")])
    yield Case("QuantizeLinear", [x, z, np.zeros(4, np.int8)], {"axis": 1})
    yield Case("DynamicQuantizeLinear", [f32(3, 400)], {}, (), 3, 11)  # Later ones are split.
    yield Case("DequantizeLinear", [small.astype(np.uint8), number(0.1), number(3, "uint8")])
    yield Case("DequantizeLinear", [small, z], {"axis": 1})
    for axis in (0, 1, -1):
        yield Case("Softmax", [f32(2, 3, 4)], {"axis": axis})
        yield Case("LogSoftmax", [f32(2, 3, 4)], {"axis": axis})
        yield Case("Softmax", [f32(2, 3, 4)], {"axis": axis}, opset=11)
    channel = f32(6)
    yield Case("BatchNormalization", [image, channel, channel, channel, channel])
    yield Case("InstanceNormalization", [image, channel, channel])
    yield Case("GroupNormalization", [image, channel, channel], {"num_groups": 3})
    for axis in (1, -1):
        scale = f32(*image.shape[axis:])
        yield Case("LayerNormalization", [image, scale, scale], {"axis": axis})
        yield Case("RMSNormalization", [image, scale], {"axis": axis}, opset=23)
    for op, gates, states in (("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2)):
        weights = [f32(2, gates * 5, 3), f32(2, gates * 5, 5), None, None]
        state = [f32(2, 4, 5) for _ in range(states)]
        attributes = {"hidden_size": 5, "direction": "bidirectional"}
        yield Case(op, [f32(6, 4, 3), *weights, *state], attributes, (), 1 + states)
    heads = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "linear"}
    operands = [f32(2, 5, 12), f32(2, 5, 6), f32(2, 5, 8), f32(2, 2, 3, 4)]
    yield Case("LinearAttention", operands, heads, (), 2, opset=27)
    places = np.array([[1, 0, 1, 1]])
    for op in ("Scatter", "ScatterElements"):
        yield Case(op, [x, places, f32(1, 4)], opset=9 if op == "Scatter" else 18)
    yield Case("ScatterElements", [x, places, f32(1, 4)], {"axis": 1, "reduction": "add"}, opset=18)
    yield Case("ScatterND", [x, np.array([[2], [0]]), f32(2, 4)])
    yield Case("ScatterND", [x, np.array([[2, 1], [2, 1]]), f32(2)], {"reduction": "mul"})
    yield Case("TensorScatter", [f32(2, 6, 3), f32(2, 2, 3), i64(1, 4)], opset=24)
    for size in (1, 3, 5, 7, 9):
        yield Case("LRN", [image], {"size": size, "alpha": 0.5})
    yield Case("Dropout", [x])
    for op, shape in (("Flatten", None), ("Identity", None), ("Reshape", i64(2, 6))):
        yield Case(op, [x] if shape is None else [x, shape], {}, () if shape is None else (1,))
    yield Case("Squeeze", [f32(1, 3, 1), i64(0)], {}, (1,))
    yield Case("Unsqueeze", [x, i64(0, 3)], {}, (1,))
    yield Case("Transpose", [x], {"perm": [1, 0]})
    yield Case("Transpose", [f32(1, 3, 1, 4)], {"perm": [1, 2, 0, 3]})
    yield Case("Transpose", [f32(2, 3, 4)], {"perm": [1, 0, 2]})
    yield Case("Expand", [x, i64(3, 4)], {}, (1,))
    yield Case("Expand", [x, i64(1, 3, 4)], {}, (1,))
    yield Case("Expand", [f32(1, 4), i64(3, 1)], {}, (1,))
    yield Case("Tile", [x, i64(1, 1)], {}, (1,))
    yield Case("Tile", [x, i64(1, 2)], {}, (1,))
    for amounts in ((0, 0, 0, 0), (1, 0, -1, 0), (-1, 0, 1, 0), (0, 1, 0, -1), (0, 1, 0, 1)):
        yield Case("Pad", [x, i64(*amounts)], {}, (1,))
    yield Case("Pad", [image, i64(0, 0, 1, -1, 0, 0, -1, 1)], {"mode": "reflect"}, (1,))
    yield Case("Pad", [image, i64(0, 1, 0, 0, 0, -1, 0, 0)], {}, (1,))
    yield Case("Concat", [x, y, x], {"axis": 0})
    yield Case("Concat", [x, y], {"axis": 1})
    yield Case("Concat", [f32(1, 4), f32(1, 3)], {"axis": 1})
    for index in (0, 2, -1):
        yield Case("Gather", [x, i64(index)], {}, (1,))
        yield Case("Gather", [z, np.array(index, np.int64)], {}, (1,))
    yield Case("Gather", [x, i64(0)], {"axis": 1}, (1,))
    yield Case("Split", [x, i64(1, 2)], {"axis": 0}, (1,), 2)
    yield Case("Split", [x, i64(1, 3)], {"axis": 1}, (1,), 2)
    for start, stop, axis, step in ((1, 3, 0, 1), (1, 3, 1, 1), (-1, -9, 0, -2), (2, 0, 0, -2)):
        bounds = [i64(bound) for bound in (start, stop, axis, step)]
        yield Case("Slice", [x, *bounds], {}, (1, 2, 3, 4))
    yield Case("EyeLike", [x])
    for op in ("AveragePool", "MaxPool", "LpPool"):
        yield Case(op, [image], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]})
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        yield Case(op, [image])
    yield Case("Conv", [image, f32(4, 3, 2, 2)], {"group": 2})
    yield Case("Conv", [image, f32(12, 1, 3, 3)], {"group": 6, "pads": [1, 1, 1, 1]})
    yield Case("ConvTranspose", [image, f32(6, 2, 2, 2)])
    yield Case("Gemm", [x, f32(4, 2)])
    yield Case("Gemm", [f32(4, 4), f32(4, 4)], {"transA": 1})
    yield Case("MatMul", [f32(2, 3, 4), f32(2, 4, 5)])
    yield Case("MatMul", [f32(3, 4), f32(2, 4, 3)])
    yield Case("MatMul", [f32(2, 2, 4), f32(4)])
    yield Case("Resize", [image, None, np.array([1, 1, 2, 3], np.float32)], {}, (2,))
    yield Case("Resize", [image, None, None, i64(2, 6, 3, 5)], {"mode": "linear"}, (3,))
    yield Case("Resize", [image, None, np.array([1, 1.4, 1, 1], np.float32)], {}, (2,))
    yield Case("Upsample", [image, np.array([1, 1, 2, 2], np.float32)], {}, (1,), opset=9)
    for op in ("Max", "Mean", "Min", "Prod", "Sum"):
        yield Case(f"Reduce{op}", [f32(2, 3, 4), i64(1)], {}, (1,))
        yield Case(f"Reduce{op}", [f32(2, 3, 4), i64(0, 2)], {"keepdims": 0}, (1,))


CASES = list(cases())
_WITHOUT_KERNEL = {"RandomNormalLike", "RandomUniformLike"}
"""Operators that promise nothing but to ignore data, and have no result that could be compared."""


def test_every_operator_with_effects_or_flows_has_a_case() -> None:
    assert {case.op for case in CASES} >= OPERATORS.keys() - _WITHOUT_KERNEL


Compute = Callable[[Sequence["np.ndarray | None"]], "list[np.ndarray]"]


def computed(case: Case) -> Compute:
    """Return what computes a case from operands, in memory of their own."""
    if case.op in (
        "LRN",
        "LinearAttention",
        "RMSNormalization",
        "Swish",
        "TensorScatter",
        "Upsample",
    ):  # Not all in ONNX Runtime.
        return lambda inputs: _by_own_kernel(case, inputs)
    model = node_model(
        case.op,
        case.inputs,
        case.attributes,
        opset=case.opset,
        outputs=case.outputs,
        constants=case.constants,
    )
    session = onnx_runtime(model, plain=True)
    names = [value.name for value in model.graph.input]

    def compute(inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        return list(session.run(None, {name: inputs[int(name[2:])] for name in names}))

    return compute


def _by_own_kernel(case: Case, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    shapes = [np.empty(v.shape, v.dtype) for v in _outputs(_imported(case))]
    graph = node_graph(
        case.op, inputs, shapes, case.attributes, opset=case.opset, constants=case.constants
    )
    return run_with_choice(graph, inputs, 0)


def _imported(case: Case) -> ap.Graph:
    model = node_model(
        case.op,
        case.inputs,
        case.attributes,
        opset=case.opset,
        outputs=case.outputs,
        constants=case.constants,
    )
    return load_onnx(model)


def _outputs(graph: ap.Graph) -> list[Any]:
    return [graph.values[index] for index in graph.outputs]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_effects_hold_for_naive_kernels(case: Case) -> None:
    graph = _imported(case)
    (node,) = [node for node in graph.nodes if node.op == case.op]
    compute = computed(case)
    wanted = compute(case.inputs)
    flows = {flow.output: flow for flow in node.effects.flows}
    for pair in node.effects.in_place:
        _check_in_place(pair, flows.get(pair.output), case, compute, wanted)
    for view in node.effects.views:
        _check_view(view, case, wanted)
    for flow in flows.values():
        _check_flow(flow, case, compute, wanted)
    for overlap in node.effects.overlaps:
        _check_overlap(overlap, case, compute, wanted)


_STATISTICS = (
    *(
        "DynamicQuantizeLinear",
        "GroupNormalization",
        "LogSoftmax",
        "Softmax",
    ),
    *("GRU", "LSTM", "LinearAttention", "RNN"),
)
"""Operators that may need all of the input for statistics, or as the first of several states,
before they write any result."""


def _check_in_place(
    pair: InPlace, flow: Flow | None, case: Case, compute: Compute, wanted: Sequence[np.ndarray]
) -> None:
    """Write the output over the input: elements in order, or pieces if those need each other."""
    y, x = wanted[pair.output], case.inputs[pair.input]
    assert x is not None
    if pair.identity:
        np.testing.assert_array_equal(_bytes(y), _bytes(x))
    pieces = y.size if flow is None else flow.pieces
    if flow is None and case.op in _STATISTICS:
        pieces = 1
    _check_in_order(case, compute, y, pair.output, pair.input, pieces, 0)


def _check_overlap(
    overlap: Overlap, case: Case, compute: Compute, wanted: Sequence[np.ndarray]
) -> None:
    """Write the output's elements in order, from so many bytes before the input."""
    y = wanted[overlap.output]
    _check_in_order(case, compute, y, overlap.output, overlap.input, y.size, overlap.distance)


def _check_in_order(
    case: Case,
    compute: Compute,
    y: np.ndarray,
    output: int,
    position: int,
    pieces: int,
    distance: int,
) -> None:
    inputs = list(case.inputs)
    own = inputs[position]
    assert own is not None
    memory = np.zeros(distance + max(own.nbytes, y.nbytes), np.uint8)
    x = memory[distance : distance + own.nbytes].view(own.dtype).reshape(own.shape)
    x[...] = own
    inputs[position] = x
    target = memory[: y.nbytes].view(y.dtype)
    size = y.size // max(pieces, 1)
    for start in range(0, y.size, size):
        made = compute(inputs)[output].reshape(-1)[start : start + size]
        target[start : start + size] = made
    _assert_equal(target, y.reshape(-1))


def _check_view(view: View, case: Case, wanted: Sequence[np.ndarray]) -> None:
    """Look for the bytes of the smaller array in the larger one."""
    x = case.inputs[view.input]
    assert x is not None
    small, large = wanted[view.output], x
    if view.of == "output":
        small, large = large, small
    start = view.offset
    np.testing.assert_array_equal(_bytes(large)[start : start + small.nbytes], _bytes(small))


def _check_flow(flow: Flow, case: Case, compute: Compute, wanted: Sequence[np.ndarray]) -> None:
    """Spoil all but one piece of the inputs that are followed: that piece does not change."""
    y = wanted[flow.output].reshape(flow.pieces, -1)
    for piece in sorted({0, flow.pieces // 2, flow.pieces - 1}):
        inputs = list(case.inputs)
        for position in flow.follows:
            own = inputs[position]
            assert own is not None
            spoiled = RNG.permutation(own.reshape(-1)).reshape(flow.pieces, -1)
            spoiled[piece] = own.reshape(flow.pieces, -1)[piece]
            inputs[position] = spoiled.reshape(own.shape)
        _assert_equal(compute(inputs)[flow.output].reshape(flow.pieces, -1)[piece], y[piece])


def _assert_equal(found: np.ndarray, wanted: np.ndarray) -> None:
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(found, wanted)


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


# -- other importers ---------------------------------------------------------------------------


class Window(NamedTuple):
    """A convolution or pool over an image, stored by rows."""

    image: tuple[int, int, int, int]
    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    same: bool
    made: int
    """Channels of the output."""

    def sides(self) -> list[tuple[int, int]]:
        """Return, of rows and columns, how many are made and how much padding is before."""
        found = []
        for axis in (0, 1):
            length, step = self.image[1 + axis], self.stride[axis]
            extent = (self.size[axis] - 1) * self.dilation[axis] + 1
            count = -(-length // step) if self.same else -(-(length - extent + 1) // step)
            pad = max((count - 1) * step + extent - length, 0) // 2 if self.same else 0
            found.append((count, pad))
        return found


def _one_operator(
    name: str, tensors: Sequence[dict[int, Any]], options: tuple[int, Any], *, inputs: int
) -> ap.Graph:
    """Load a TFLite model of one operator; its last tensor is what it makes."""
    last = len(tensors) - 1
    operator = flat.operator(0, list(range(last)), [last], options)
    given = list(range(inputs))
    graph = flat.subgraph(list(tensors), [operator], given, [last])
    weights = bytes(4 * prod(tensors[1][0].values)) if inputs < last else b""
    return load_tflite(flat.write(flat.model([flat.code(name, None)], [graph], [b"", weights])))


def _windowed(window: Window) -> tuple[ap.Graph, tuple[int, ...]]:
    """Return a graph of one convolution, and the shape of its output."""
    channels = window.image[3]
    shape = (window.image[0], *(count for count, _ in window.sides()), window.made)
    filters = flat.tensor("w", (window.made, *window.size, channels), buffer=1)
    numbers = {
        0: flat.Number("b", 0 if window.same else 1),
        1: flat.Number("i", window.stride[1]),
        2: flat.Number("i", window.stride[0]),
        4: flat.Number("i", window.dilation[1]),
        5: flat.Number("i", window.dilation[0]),
    }
    tensors = [flat.tensor("x", window.image), filters, flat.tensor("y", shape)]
    return _one_operator("CONV_2D", tensors, (1, numbers), inputs=1), shape


@settings(max_examples=60)
@given(st.data())
def test_convolutions_of_tflite_overlap_their_image_element_by_element(data: st.DataObject) -> None:
    def pair(high: int) -> tuple[int, int]:
        return data.draw(st.tuples(st.integers(1, high), st.integers(1, high)))

    size, dilation = pair(3), pair(2)
    least = [(n - 1) * d + 1 for n, d in zip(size, dilation, strict=True)]
    height, width = (n + data.draw(st.integers(0, 4)) for n in least)
    image = (data.draw(st.integers(1, 2)), height, width, data.draw(st.integers(1, 3)))
    window = Window(
        image, size, pair(3), dilation, data.draw(st.booleans()), data.draw(st.integers(1, 4))
    )
    graph, shape = _windowed(window)
    (overlap,) = graph.nodes[0].effects.overlaps
    rng = np.random.default_rng(0)
    x, weights = rng.random(image), rng.random((window.made, *size, image[3]))
    wanted = np.empty(shape)
    _convolve(window, x, weights, wanted)
    assert overlap.distance % 4 == 0  # The model is of float32, the simulation of float64.
    memory = np.zeros(2 * overlap.distance + 8 * max(wanted.size, x.size), np.uint8).view(
        np.float64
    )
    behind = memory[overlap.distance // 4 :][: x.size].reshape(image)
    behind[...] = x
    found = memory[: wanted.size].reshape(shape)
    _convolve(window, behind, weights, found)
    np.testing.assert_array_equal(found, wanted)


def _convolve(window: Window, x: np.ndarray, weights: np.ndarray, y: np.ndarray) -> None:
    """Write each element as soon as it is made, from what the image holds then."""
    (_, above), (_, before) = window.sides()
    for image, row, column, channel in np.ndindex(y.shape):
        total = 0.0
        for down, right in np.ndindex(window.size):
            at = row * window.stride[0] - above + down * window.dilation[0]
            beside = column * window.stride[1] - before + right * window.dilation[1]
            if 0 <= at < x.shape[1] and 0 <= beside < x.shape[2]:
                total += float(x[image, at, beside] @ weights[channel, down, right])
        y[image, row, column, channel] = total


@pytest.mark.parametrize("transposed", [False, True])
def test_rows_of_a_transposed_operand_of_tflite_are_not_followed(transposed: bool) -> None:
    tensors = [flat.tensor(name, (2, 4, 4)) for name in ("x", "w", "y")]
    options = (101, {0: flat.Number("B", transposed)})
    graph = _one_operator("BATCH_MATMUL", tensors, options, inputs=2)
    (flow,) = graph.nodes[0].effects.flows
    assert flow.follows == (() if transposed else (0,))


def _aten(
    name: str, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...], **arguments: Any
) -> Flow | None:
    """Return the pieces in which an operator of ATen can work."""
    operands = [Array(shape, "float32") for shape in inputs]
    result = [Array(output, "float32")]
    operator = lookup(ATEN, name, NamedOp(operands, result, arguments))
    flows = effects_of(operator, Operands(operands, result)).flows
    return flows[0] if flows else None


def test_batch_normalization_that_trains_has_no_pieces() -> None:
    shape = (2, 3, 4, 4)
    for training, pieces in ((False, prod(shape)), (True, None)):
        flow = _aten("batch_norm", [shape], shape, training=training)
        assert (None if flow is None else flow.pieces) == pieces
    vector = np.ones(6, np.float32)
    image = f32(2, 6, 4, 3)
    for opset, attributes in ((6, {}), (9, {}), (15, {"training_mode": 1})):
        case = Case("BatchNormalization", [image, *[vector] * 4], attributes, opset=opset)
        assert bool(_imported(case).nodes[0].effects.flows) == (opset == 9)


@pytest.mark.parametrize("dimensions", [None, (1, 0)])
def test_reshapes_of_jax_that_transpose_are_no_views(dimensions: tuple[int, ...] | None) -> None:
    x, y = Array((2, 3), "float32"), Array((6,), "float32")
    effects = jax_effects(
        "reshape", NamedOp([x], [y], {"dimensions": dimensions, "new_sizes": (6,)})
    )
    assert bool(effects.views) == (dimensions is None)
