"""
Plans for C code, run in one arena by kernels as C code has them.

A kernel here writes each element as soon as it is made, into memory that it may share with its
operands, and reads the operands again for the next one. What whole models compute in the arena
of a plan is compared with what the same kernels compute with every value in memory of its own.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import arenaplan as ap
import flat
from arenaplan.deploy.export.c import header_of
from arenaplan.formats.onnx import load_onnx
from arenaplan.graph import InPlace, Node
from arenaplan.tflite.reader.tflite_model import TfliteOperator, parse
from light_models import onnx_runtime

Array = np.ndarray[Any, Any]
Kernel = Callable[[Node, Sequence["Array | None"], Sequence[Array]], None]
"""What a node does to its operands and results, all of which are live memory."""


def run(
    graph: ap.Graph, plan: ap.Plan, kernel: Kernel, *, in_arena: bool, seed: int = 0
) -> list[bytes]:
    """Run a graph in the order of a plan, in its arena or in separate memory; return outputs."""
    rng = np.random.default_rng(seed)
    arenas = [rng.integers(0, 256, space.arena_bytes + 1, np.uint8) for space in plan.spaces]
    values: list[Array] = []
    for value, place in zip(graph.values, plan.placements, strict=True):
        if place is None:
            values.append(_constant(graph, value.index))
            continue
        size, start = place.bytes, place.offset
        memory = arenas[place.space][start : start + size] if in_arena else np.zeros(size, np.uint8)
        assert memory.nbytes == size, "the plan has room for it"
        values.append(memory.view(value.dtype).reshape(value.shape))
    for index in graph.inputs:
        values[index][...] = _noise(values[index], 1000 * seed + index)
    for step in plan.steps:
        for index in step:
            node = graph.nodes[index]
            reads = [None if i is None else values[i] for i in node.inputs]
            kernel(node, reads, [values[i] for i in node.outputs if i is not None])
    return [values[index].tobytes() for index in graph.outputs]


def _constant(graph: ap.Graph, index: int) -> Array:
    value = graph.values[index]
    if value.kind == "constant" and graph.has_data(index):
        return np.asarray(graph.data(index))
    return np.zeros(value.shape, value.dtype)


def _noise(array: Array, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if array.dtype.kind == "f":
        return rng.uniform(0.1, 0.9, array.shape).astype(array.dtype)
    return rng.integers(-100, 100, array.shape).astype(array.dtype)


def assert_right(graph: ap.Graph, plan: ap.Plan, kernel: Kernel) -> None:
    """Compare a run in the arena with one in separate memory."""
    assert run(graph, plan, kernel, in_arena=True) == run(graph, plan, kernel, in_arena=False)


# -- TFLite ------------------------------------------------------------------------------


class Images:
    """Kernels for a TFLite model's main subgraph: they move data as the reference ones do."""

    def __init__(self, data: bytes) -> None:
        self._operators = parse(data).subgraphs[0].operators

    def __call__(self, node: Node, reads: Sequence[Array | None], writes: Sequence[Array]) -> None:
        operator = self._operators[node.index]
        assert operator.name == node.op
        inputs = [np.zeros(0) if array is None else array for array in reads]
        getattr(self, node.op.lower())(operator, inputs, writes[0])

    def conv_2d(self, operator: TfliteOperator, x: Sequence[Array], y: Array) -> None:
        weights = x[1].astype(np.int32)
        for pixel, window in _windows(operator, x[0], y, x[1].shape[1:3], (4, 5)):
            for channel in range(y.shape[3]):
                # The window is live memory: what this pixel has overwritten is seen.
                filters = weights[channel][window.mask]
                y[(*pixel, channel)] = _byte((window.of(x[0]) * filters).sum() + channel)

    def depthwise_conv_2d(self, operator: TfliteOperator, x: Sequence[Array], y: Array) -> None:
        times, weights = y.shape[3] // x[0].shape[3], x[1].astype(np.int32)
        for pixel, window in _windows(operator, x[0], y, x[1].shape[1:3], (5, 6)):
            for channel in range(y.shape[3]):
                one = window.of(x[0])[..., channel // times]
                filters = weights[0][window.mask][..., channel]
                y[(*pixel, channel)] = _byte((one * filters).sum() + channel)

    def average_pool_2d(self, operator: TfliteOperator, x: Sequence[Array], y: Array) -> None:
        assert operator.options is not None
        size = operator.options.number(4), operator.options.number(3)
        for pixel, window in _windows(operator, x[0], y, size, None):
            for channel in range(y.shape[3]):
                y[(*pixel, channel)] = _byte(window.of(x[0])[..., channel].sum() + channel)

    def fully_connected(self, _: TfliteOperator, x: Sequence[Array], y: Array) -> None:
        rows, results = x[0].reshape(-1, x[1].shape[-1]), y.reshape(-1, x[1].shape[0])
        weights = x[1].astype(np.int32)
        for row, column in np.ndindex(*results.shape):
            results[row, column] = _byte((rows[row].astype(np.int32) * weights[column]).sum())

    def softmax(self, _: TfliteOperator, x: Sequence[Array], y: Array) -> None:
        # Statistics of the row, and then its elements, one after the other.
        for row, result in zip(
            x[0].reshape(-1, x[0].shape[-1]), y.reshape(-1, y.shape[-1]), strict=True
        ):
            total = int(row.astype(np.int32).sum())
            for index in range(len(row)):
                result[index] = _byte(3 * int(row[index]) + total)

    def add(self, _: TfliteOperator, x: Sequence[Array], y: Array) -> None:
        first, second = (np.broadcast_to(array, y.shape) for array in x[:2])
        for index in np.ndindex(*y.shape):
            y[index] = _byte(int(first[index]) + 3 * int(second[index]))

    def neg(self, _: TfliteOperator, x: Sequence[Array], y: Array) -> None:
        for index in np.ndindex(*y.shape):
            y[index] = _byte(5 - int(x[0][index]))

    def reshape(self, _: TfliteOperator, x: Sequence[Array], y: Array) -> None:
        source, result = x[0].reshape(-1), y.reshape(-1)
        for index in range(len(source)):
            result[index] = source[index]

    def concatenation(self, operator: TfliteOperator, x: Sequence[Array], y: Array) -> None:
        assert operator.options is not None
        axis, first = operator.options.number(0), 0
        for part in x:
            for index in np.ndindex(*part.shape):
                moved = list(index)
                moved[axis] += first
                y[tuple(moved)] = part[index]
            first += part.shape[axis]

    def slice(self, _: TfliteOperator, x: Sequence[Array], y: Array) -> None:
        for index in np.ndindex(*y.shape):
            y[index] = x[0][tuple(np.add(index, x[1]))]


def _byte(number: int) -> int:
    return (int(number) + 128) % 256 - 128


class _Window:
    """What a pixel of the output is made of."""

    def __init__(self, rows: Array, columns: Array, shape: Sequence[int]) -> None:
        inside = [(rows >= 0) & (rows < shape[1]), (columns >= 0) & (columns < shape[2])]
        self._at = np.ix_(rows[inside[0]], columns[inside[1]])
        self.mask = np.ix_(np.flatnonzero(inside[0]), np.flatnonzero(inside[1]))
        """Which part of a filter is over the image."""

    def of(self, image: Array) -> Array:
        """Return the pixels under the window, as they are now."""
        return image[0][self._at].astype(np.int32)


def _windows(
    operator: TfliteOperator,
    x: Array,
    y: Array,
    size: Sequence[int],
    dilation: tuple[int, int] | None,
) -> Iterator[tuple[tuple[int, int, int], _Window]]:
    """Yield the pixels of the output in order, and the window of each."""
    assert operator.options is not None
    number = operator.options.number
    same, stride = number(0) == 0, (number(2), number(1))
    spread = (1, 1) if dilation is None else tuple(number(s) for s in dilation[::-1])
    before = [0, 0]
    if same:
        for axis in (0, 1):
            extent = (size[axis] - 1) * spread[axis] + 1
            missing = (y.shape[1 + axis] - 1) * stride[axis] + extent - x.shape[1 + axis]
            before[axis] = max(missing, 0) // 2
    for row, column in itertools.product(range(y.shape[1]), range(y.shape[2])):
        first = row * stride[0] - before[0], column * stride[1] - before[1]
        rows = first[0] + spread[0] * np.arange(size[0])
        columns = first[1] + spread[1] * np.arange(size[1])
        yield (0, row, column), _Window(rows, columns, x.shape)


class _Drawn:
    """A small TFLite model over images of bytes, drawn with a seed."""

    def __init__(self, seed: int) -> None:
        self.draw, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.tensors: list[dict[int, Any]] = []
        self.shapes: list[tuple[int, ...]] = []
        self.images: list[int] = []
        self.operators: list[dict[int, Any]] = []
        self.names: list[str] = []
        self.buffers = [b""]

    def image(self, *shape: int) -> int:
        self.images.append(len(self.tensors))
        self.shapes.append(shape)
        self.tensors.append(flat.tensor(f"t{len(self.tensors)}", shape, flat.INT8))
        return len(self.tensors) - 1

    def constant(self, array: Array) -> int:
        self.buffers.append(array.tobytes())
        self.shapes.append(array.shape)
        type_ = flat.INT8 if array.dtype == np.int8 else flat.INT32
        name, buffer = f"t{len(self.tensors)}", len(self.buffers) - 1
        self.tensors.append(flat.tensor(name, array.shape, type_, buffer=buffer))
        return len(self.tensors) - 1

    def weights(self, *shape: int) -> int:
        return self.constant(self.rng.integers(-9, 9, shape).astype(np.int8))

    def node(self, name: str, reads: Sequence[int], write: int, options: Any = None) -> None:
        if name not in self.names:
            self.names.append(name)
        self.operators.append(flat.operator(self.names.index(name), reads, [write], options))

    def layer(self) -> None:
        x = self.draw.choice(self.images[-3:])
        _, height, width, channels = self.shapes[x]
        kind = self.draw.choice(["conv", "depthwise", "neg", "neg", "add", "reshape", "move"])
        if kind in ("conv", "depthwise"):
            size, step = self.draw.choice([1, 3]), self.draw.choice([1, 1, 2])
            made = channels if kind == "depthwise" else self.draw.randint(1, 6)
            y = self.image(1, -(-height // step), -(-width // step), made)
            given = {0: flat.Number("b", 0), 1: flat.Number("i", step), 2: flat.Number("i", step)}
            if kind == "conv":
                weights = self.weights(made, size, size, channels)
                self.node("CONV_2D", [x, weights], y, (1, given))
            else:
                weights = self.weights(1, size, size, channels)
                options = (2, {**given, 3: flat.Number("i", 1)})
                self.node("DEPTHWISE_CONV_2D", [x, weights], y, options)
        elif kind == "neg":
            self.node("NEG", [x], self.image(1, height, width, channels))
        elif kind == "add":
            same = [i for i in self.images if self.shapes[i] == self.shapes[x]]
            self.node(
                "ADD",
                [x, self.draw.choice(same)],
                self.image(1, height, width, channels),
                (11, {}),
            )
        elif kind == "reshape":
            self.node("RESHAPE", [x], self.image(1, width, height, channels))
        elif height > 1 and self.draw.random() < 0.5:
            begin, size = np.array([0, 1, 0, 0]), np.array([1, height - 1, width, channels])
            moved = [self.constant(array.astype(np.int32)) for array in (begin, size)]
            self.node("SLICE", [x, *moved], self.image(1, height - 1, width, channels))
        elif height <= 8:
            axis = (10, {0: flat.Number("i", 1)})
            self.node("CONCATENATION", [x, x], self.image(1, 2 * height, width, channels), axis)

    def written(self) -> bytes:
        read = {i for operator in self.operators for i in operator[1].values}
        outputs = [i for i in self.images if i not in read]
        main = flat.subgraph(self.tensors, self.operators, [0], outputs)
        return flat.write(flat.model([flat.code(n) for n in self.names], [main], self.buffers))


def drawn(seed: int) -> bytes:
    """Return a small model of images."""
    model = _Drawn(seed)
    model.image(1, model.draw.randint(3, 7), model.draw.randint(3, 7), model.draw.randint(1, 4))
    for _ in range(model.draw.randint(4, 10)):
        model.layer()
    return model.written()


@pytest.mark.parametrize("seed", range(30))
def test_drawn_tflite_models_compute_the_same_in_their_arena(seed: int) -> None:
    data = drawn(seed)
    graph = ap.load(data)
    plan = ap.plan(graph, target="c")
    header_of(graph, plan)
    assert_right(graph, plan, Images(data))


@pytest.mark.parametrize("seed", range(10))
def test_drawn_tflite_models_compute_the_same_in_two_memories(seed: int) -> None:
    data = drawn(seed)
    graph = ap.load(data)
    fast = _plan_of(data).arena_bytes // 2 // 16 * 16
    plan = ap.plan(graph, target="c", spaces=[ap.Space("fast", fast), ap.Space("slow")])
    used = {place.space for place in plan.placements if place is not None}
    assert used == {0, 1}
    assert_right(graph, plan, Images(data))


def test_the_models_give_plans_something_to_share() -> None:
    shares = [share for seed in range(30) for share in _plan_of(drawn(seed)).shares]
    assert sum(share.rule == "in-place" for share in shares) > 20
    assert sum(share.rule == "view" for share in shares) > 5
    assert {share.rule for share in shares} == {"in-place", "view"}


def _plan_of(data: bytes) -> ap.Plan:
    return ap.plan(ap.load(data), target="c")


def test_a_convolution_in_place_would_be_noticed() -> None:
    model = _Drawn(0)
    shape = (1, 6, 6, 2)
    images = [model.image(*shape) for _ in range(4)]
    size = {slot: flat.Number("b" if slot == 0 else "i", int(slot > 0)) for slot in range(4)}
    model.node("NEG", images[:1], images[1])
    model.node("DEPTHWISE_CONV_2D", [images[1], model.weights(1, 3, 3, 2)], images[2], (2, size))
    model.node("NEG", images[2:3], images[3])
    data = model.written()
    graph, kernel = ap.load(data), Images(data)
    assert_right(graph, ap.plan(graph, target="c"), kernel)
    graph = ap.load(data)
    lie = graph.nodes[1].effects._replace(in_place=(InPlace(0, 0),))
    graph.nodes[1] = replace(graph.nodes[1], effects=lie)
    plan = ap.plan(graph, target="c", optimize="in-place")
    assert ("in-place", 1) in {(share.rule, share.node) for share in plan.shares}
    assert run(graph, plan, kernel, in_arena=True) != run(graph, plan, kernel, in_arena=False)


@pytest.mark.parametrize(
    "name", ["vww_96_int8", "kws_ref_model", "pretrainedResnet_quant", "micro_speech_quantized"]
)
def test_real_models_compute_the_same_in_their_arena(name: str, shared: Path) -> None:
    data = (shared / "models" / "tflite" / f"{name}.tflite").read_bytes()
    graph = ap.load(data)
    assert_right(graph, ap.plan(graph, target="c"), Images(data))


# -- ONNX ----------------------------------------------------------------------------------


class Elements:
    """
    Kernels for an ONNX model that make every element anew from what memory holds then.

    An operator that needs statistics works in the pieces that the importer declares.
    """

    def __init__(self, model: onnx.ModelProto, graph: ap.Graph) -> None:
        self._graph = graph
        self._protos = list(model.graph.node)
        self._opset = model.opset_import[0].version
        self._sessions: dict[int, Any] = {}

    def __call__(self, node: Node, reads: Sequence[Array | None], writes: Sequence[Array]) -> None:
        names = [name for name in self._protos[node.index].input if name]
        operands = [array for array in reads if array is not None]
        session = self._session(node)
        feeds = dict(zip(names, operands, strict=False))
        flows = {flow.output: flow.pieces for flow in node.effects.flows}
        in_place = {pair.output for pair in node.effects.in_place}
        for position, y in enumerate(writes):
            pieces = y.size
            if position in in_place:
                pieces = flows.get(position, 1 if node.op in _STATISTICS else y.size)
            target, size = y.reshape(-1), y.size // max(pieces, 1)
            for start in range(0, y.size, size):
                made = session.run(None, feeds)[position].reshape(-1)
                target[start : start + size] = made[start : start + size]

    def _session(self, node: Node) -> Any:
        if node.index not in self._sessions:
            proto = self._protos[node.index]
            assert (proto.op_type, list(proto.output)) == (
                node.op,
                [self._graph.values[i].name for i in node.outputs if i is not None],
            )
            given = {
                self._graph.values[i].name: self._graph.values[i]
                for i in node.inputs
                if i is not None
            }
            inputs = [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype)), value.shape
                )
                for name, value in given.items()
            ]
            outputs = [onnx.ValueInfoProto(name=name) for name in proto.output]
            body = helper.make_graph([proto], node.op, inputs, outputs)
            opset = helper.make_opsetid("", self._opset)
            model = helper.make_model(body, opset_imports=[opset], ir_version=10)
            self._sessions[node.index] = onnx_runtime(model, plain=True)
        return self._sessions[node.index]


_STATISTICS = frozenset(["GroupNormalization", "LogSoftmax", "Softmax"])
"""Operators that need all of the input before the first result, if no axis says otherwise."""


class _Net:
    """An ONNX model that grows node by node."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(3)

    def node(self, op: str, *inputs: str, count: int = 1, **attributes: Any) -> Any:
        names = [f"{op.lower()}{len(self.nodes)}_{k}" for k in range(count)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if count == 1 else names

    def weight(self, *shape: int) -> str:
        return self.constant(self.rng.uniform(-0.5, 0.5, shape).astype(np.float32))

    def constant(self, array: Array) -> str:
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def model(self, shape: Sequence[int], *outputs: str) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        body = helper.make_graph(self.nodes, "net", [x], results, self.weights)
        opset = helper.make_opsetid("", 18)
        return onnx.shape_inference.infer_shapes(
            helper.make_model(body, opset_imports=[opset], ir_version=10)
        )


def blocks() -> onnx.ModelProto:
    """Return convolutions with a residual, an inception-like join, and a classifier."""
    net = _Net()
    first = net.node("Relu", net.node("Conv", "x", net.weight(4, 2, 3, 3), pads=[1, 1, 1, 1]))
    inner = net.node("Conv", first, net.weight(4, 1, 3, 3), pads=[1, 1, 1, 1], group=4)
    total = net.node("Add", net.node("Sigmoid", inner), first)
    left = net.node("MaxPool", total, kernel_shape=[2, 2], strides=[2, 2])
    right = net.node("AveragePool", total, kernel_shape=[2, 2], strides=[2, 2])
    joined = net.node("Concat", left, net.node("Neg", right), axis=1)
    parts = net.node("Split", joined, net.constant(np.array([3, 5])), count=2, axis=1)
    small = net.node("Mul", net.node("GlobalAveragePool", parts[1]), net.weight(1, 5, 1, 1))
    rows = net.node("Flatten", net.node("Tanh", small))
    y = net.node("Softmax", net.node("Gemm", rows, net.weight(5, 4), transB=0), axis=1)
    return net.model((1, 2, 6, 6), y, parts[0])


def attention() -> onnx.ModelProto:
    """Return one head of attention with a residual and a perceptron."""
    net = _Net()
    norm = net.node("LayerNormalization", "x", net.weight(8), net.weight(8), axis=-1)
    query, key, value = (net.node("MatMul", norm, net.weight(8, 8)) for _ in range(3))
    turned = net.node("Transpose", key, perm=[0, 2, 1])
    scores = net.node("Div", net.node("MatMul", query, turned), net.constant(np.float32([2.0])))
    mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), value)
    total = net.node("Add", "x", mixed)
    wide = net.node("Relu", net.node("MatMul", total, net.weight(8, 16)))
    shape = net.constant(np.array([1, 5, 4, 4]))
    folded = net.node("Exp", net.node("Reshape", wide, shape))
    back = net.node("Reshape", folded, net.constant(np.array([1, 5, 16])))
    y = net.node("Sub", net.node("MatMul", back, net.weight(16, 8)), total)
    return net.model((1, 5, 8), y)


@pytest.mark.parametrize("make", [blocks, attention])
@pytest.mark.parametrize("order", ["all", "all,-order"])
def test_onnx_models_compute_the_same_in_their_arena(
    make: Callable[[], onnx.ModelProto], order: Any
) -> None:
    model = make()
    graph = load_onnx(model)
    plan = ap.plan(graph, target="c", optimize=order)
    assert {share.rule for share in plan.shares} == {"view", "in-place"}
    header_of(graph, plan)
    assert_right(graph, plan, Elements(model, graph))
