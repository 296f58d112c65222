"""Convolutions and products of bytes: groups that are one, with sums that are rounded once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import arenaplan as ap
from arenaplan._core import ByteEncoding, ByteResult, packed_quantized, quantized_conv
from arenaplan.base.errors import InvalidOperand
from arenaplan.graph.values import Quantized
from arenaplan.run.numpy import compiled
from arenaplan.run.numpy.groups import group_of
from arenaplan.run.numpy.kernels.quantized_conv import QuantizedConv
from arenaplan.run.numpy.kernels.quantized_product import QuantizedProduct
from arenaplan.run.numpy.narrow_steps import narrow_steps
from arenaplan.run.numpy.quantizing import quantized_group
from arenaplan.run.numpy.registry import Scratch
from arenaplan.run.numpy.signatures import signature_of
from convolutions import convolved
from quantized_models import Model, integers, scale
from raising import raises


@dataclass
class Case:
    """A convolution with conversions around it."""

    image: tuple[int, ...]
    weights: tuple[int, ...]
    """Channels of the result, channels of a group, and the window."""
    attributes: dict[str, Any] = field(default_factory=dict)
    types: tuple[Any, Any, Any] = (np.uint8, np.int8, np.uint8)
    """Those of image, weights and result."""
    per_channel: bool = False
    bias: bool = True
    bounds: tuple[float, float] | None = None
    before: bool = False
    """Whether the image is quantized in the same group."""
    after: bool = False
    """Whether the result is widened, passed through a sigmoid, and quantized again."""

    def model(self, folder: Path) -> Model:
        """Return the model of its own random numbers."""
        draw = np.random.default_rng(len(str(self)))
        image_type, weights_type, made_type = self.types
        made = self.weights[0]
        scales = scale(0.0137)
        if self.per_channel:
            scales = draw.uniform(0.002, 0.03, made).astype(np.float32)
        zeros = np.zeros(scales.shape, weights_type)
        if weights_type == np.uint8:
            zeros = integers(scales.shape, np.uint8, draw)
        fan_in = math.prod(self.weights[1:])
        constants = {
            "xs": scale(0.0173),
            "xz": np.array(np.iinfo(image_type).min + 99, image_type),
            "w": integers(self.weights, weights_type, draw),
            "ws": scales,
            "wz": zeros,
            "ys": scale(0.02 * math.sqrt(fan_in)),
            "yz": np.array(np.iinfo(made_type).max - 101, made_type),
            "b": draw.normal(size=made).astype(np.float32),
            "low": scale(0 if self.bounds is None else self.bounds[0]),
            "high": scale(0 if self.bounds is None else self.bounds[1]),
        }
        inputs = {"x": integers(self.image, image_type, draw)}
        nodes = []
        if self.before:
            inputs = {"real": draw.normal(size=self.image).astype(np.float32)}
            nodes.append(helper.make_node("QuantizeLinear", ["real", "xs", "xz"], ["x"]))
        operands = ["wide", "matrix", "b"] if self.bias else ["wide", "matrix"]
        nodes += [
            helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["wide"]),
            helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["matrix"], axis=0),
            helper.make_node("Conv", operands, ["sums"], **self.attributes),
        ]
        real = "sums"
        if self.bounds is not None:
            real = "bounded"
            relu = self.bounds == (0.0, math.inf)
            nodes.append(
                helper.make_node("Relu", ["sums"], [real])
                if relu
                else helper.make_node("Clip", ["sums", "low", "high"], [real])
            )
        nodes.append(helper.make_node("QuantizeLinear", [real, "ys", "yz"], ["y"]))
        outputs = {"y": made_type}
        if self.after:
            nodes += [
                helper.make_node("DequantizeLinear", ["y", "ys", "yz"], ["again"]),
                helper.make_node("Sigmoid", ["again"], ["curve"]),
                helper.make_node("QuantizeLinear", ["curve", "xs", "xz"], ["z"]),
            ]
            outputs = {"z": image_type}
        return Model(folder, nodes, inputs, outputs, constants)

    def exact(self, model: Model) -> np.ndarray:
        """Return the quotients that are rounded, in double precision."""
        graph = ap.load(model.path)

        def constant(name: str) -> np.ndarray:
            return np.asarray(graph.data(graph.find(name).index), np.float64)

        x = model.inputs["x"].astype(np.float64) - constant("xz")
        known = graph.quantized(graph.find("matrix").index)
        assert known is not None
        matrix, scales = known.centered(0)
        sums = convolved(x, matrix.astype(np.float64), self.attributes)
        shape = (-1, *(1,) * (x.ndim - 2))
        sums = sums * (constant("xs") * np.broadcast_to(scales, len(matrix)).reshape(shape))
        sums = sums + constant("b").reshape(shape) if self.bias else sums
        sums = sums if self.bounds is None else np.clip(sums, *self.bounds)
        return np.asarray(sums / constant("ys"))


def _whole_group(graph: ap.Graph) -> Any:
    """Return all nodes of a graph as one group."""
    return group_of(graph, [node.index for node in graph.nodes])


CASES = [
    Case((1, 3, 13, 17), (10, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    Case((2, 16, 9, 9), (24, 16, 1, 1), types=(np.int8, np.int8, np.int8), per_channel=True),
    Case((1, 3, 33, 31), (8, 3, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}, bias=False),
    Case((1, 12, 10, 10), (18, 4, 3, 3), {"group": 3, "pads": [1, 0, 0, 1]}, per_channel=True),
    Case((1, 6, 14, 15), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}, per_channel=True),
    Case((1, 5, 20, 9), (10, 1, 5, 3), {"group": 5, "strides": [2, 1]}, bounds=(0.0, 6.0)),
    Case((1, 40, 11, 7), (64, 40, 3, 3), {"dilations": [2, 1]}, bounds=(0.0, math.inf)),
    Case((1, 8, 50), (12, 8, 5), {"pads": [2, 2], "strides": [3]}, types=(np.int8,) * 3),
    Case((1, 4, 8, 8), (7, 4, 3, 3), types=(np.uint8, np.uint8, np.int8), bounds=(-9.0, 30.0)),
    # Some elements of these windows meet padding alone.
    Case((1, 24, 6, 7), (20, 24, 3, 3), {"dilations": [6, 4], "pads": [6, 4, 6, 4]}),
    Case((1, 6, 7, 9), (6, 1, 5, 3), {"group": 6, "dilations": [3, 3], "pads": [6, 3, 6, 3]}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.weights))
def test_sums_of_a_group_are_exact_and_rounded_once(tmp_path: Path, case: Case) -> None:
    model = case.model(tmp_path)
    graph = ap.load(model.path)
    assert quantized_group(_whole_group(graph)) is not None
    (found,) = model.found(target="numpy")
    exact = case.exact(model)
    limits, zero = np.iinfo(case.types[2]), np.iinfo(case.types[2]).max - 101
    wanted = np.clip(np.rint(exact) + zero, limits.min, limits.max)
    ties = np.abs(np.abs(exact - np.floor(exact)) - 0.5) < 1e-4
    assert np.array_equal(found[~ties], wanted[~ties])
    assert np.abs(found.astype(int) - wanted).max() <= 1
    assert np.unique(found).size > (30 if case.bounds is None else 8), (
        "bounds hide all that is compared"
    )
    # ONNX Runtime adds real numbers: its sums may be on the other side of a tie.
    (other,) = model.expected()
    assert np.abs(found.astype(int) - other.astype(int)).max() <= 1
    assert (found != other).mean() < 0.01


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_elementwise_nodes_before_and_after_belong_to_the_group(
    tmp_path: Path, before: bool, after: bool
) -> None:
    case = Case((1, 5, 12, 12), (9, 5, 3, 3), {"pads": [1] * 4}, before=before, after=after)
    model = case.model(tmp_path)
    graph = ap.load(model.path)
    group = quantized_group(_whole_group(graph))
    assert group is not None
    assert (group.before is not None) == before
    assert (group.after is not None) == after
    steps = [[node.index for node in graph.nodes]]
    executor = ap.Executor(graph, ap.plan(graph, steps=steps))
    (found,) = executor.run(model.inputs, verify=True).values()
    (wanted,) = model.expected()
    assert (found != wanted).mean() < 0.02
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


def test_the_image_exists_in_no_wide_type(tmp_path: Path) -> None:
    model = Case((1, 32, 28, 28), (32, 32, 3, 3), {"pads": [1] * 4}).model(tmp_path)
    image = 32 * 28 * 28
    with compiled.disabled():
        before = ap.plan(ap.load(model.path)).arena_bytes
    assert ap.plan(ap.load(model.path)).arena_bytes < 3 * image < before


def test_scratch_memory_of_any_choice_gives_the_same_bytes(tmp_path: Path) -> None:
    model = Case((1, 96, 9, 9), (32, 96, 3, 3), {"pads": [1] * 4}).model(tmp_path)
    group = quantized_group(_whole_group(ap.load(model.path)))
    assert group is not None
    conv = group.kernel
    assert isinstance(conv, QuantizedConv)
    choices = conv.choices()
    assert len(choices) > 2
    made = []
    for choice in choices:
        output = np.zeros((1, 32, 9, 9), np.uint8)
        scratch = Scratch(np.zeros(choice.bytes, np.uint8), "conv")
        conv.bind(model.inputs["x"], output, scratch)()
        made.append(output)
    assert all(np.array_equal(each, made[0]) for each in made)


@pytest.mark.parametrize("depthwise", [False, True])
def test_nodes_of_integers_have_the_bits_of_the_kernel_in_numpy(
    tmp_path: Path, depthwise: bool
) -> None:
    channels = 6 if depthwise else 12
    group = channels if depthwise else 1
    draw = np.random.default_rng(7)
    constants = {
        "xs": scale(0.03),
        "xz": np.uint8(91),
        "w": integers((12, channels // group, 3, 3), np.int8, draw),
        "ws": draw.uniform(0.001, 0.02, 12).astype(np.float32),
        "wz": np.zeros(12, np.int8),
        "ys": scale(0.9),
        "yz": np.uint8(130),
        "b": draw.integers(-9000, 9000, 12).astype(np.int32),
    }
    operands = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    conv = helper.make_node("QLinearConv", operands, ["y"], group=group, pads=[1, 1, 1, 1])
    inputs = {"x": integers((2, channels, 15, 11), np.uint8, draw)}
    model = Model(tmp_path, [conv], inputs, {"y": np.uint8}, constants)
    (found,) = model.found()
    with compiled.disabled():
        (wanted,) = model.found()
    assert np.array_equal(found, wanted)
    assert np.unique(found).size > 50


def test_a_plan_passes_on_bytes_where_that_is_fast(tmp_path: Path) -> None:
    """A residual block: one step per convolution, one for the sum, and no real number is stored."""
    case = Case((1, 16, 20, 20), (16, 16, 3, 3), {"pads": [1] * 4})
    draw = np.random.default_rng(5)
    constants: dict[str, np.ndarray] = {"s": scale(0.05), "z": np.uint8(128), "none": np.int8(0)}
    nodes = []

    def convolved(name: str, source: str) -> None:
        constants[f"{name}_w"] = integers(case.weights, np.int8, draw)
        constants[f"{name}_s"] = scale(0.0006)
        nodes.extend(
            [
                helper.make_node("DequantizeLinear", [source, "s", "z"], [f"{name}_x"]),
                helper.make_node(
                    "DequantizeLinear", [f"{name}_w", f"{name}_s", "none"], [f"{name}_m"]
                ),
                helper.make_node("Conv", [f"{name}_x", f"{name}_m"], [f"{name}_y"], pads=[1] * 4),
                helper.make_node("Relu", [f"{name}_y"], [f"{name}_r"]),
                helper.make_node("QuantizeLinear", [f"{name}_r", "s", "z"], [f"{name}_q"]),
            ]
        )

    convolved("a", "x")
    convolved("b", "a_q")
    for name in ("a", "b"):
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", "s", "z"], [f"{name}_d"]))
    nodes.append(helper.make_node("Add", ["a_d", "b_d"], ["sum"]))
    nodes.append(helper.make_node("QuantizeLinear", ["sum", "s", "z"], ["y"]))
    inputs = {"x": integers(case.image, np.uint8, draw)}
    model = Model(tmp_path, nodes, inputs, {"y": np.uint8}, constants)
    graph = ap.load(model.path)
    steps = narrow_steps(graph)
    assert steps is not None
    assert [graph.nodes[nodes[-1]].op for nodes in steps] == ["QuantizeLinear"] * 3
    plan = ap.plan(graph)
    stored = {graph.nodes[nodes[-1]].outputs[0] for nodes in plan.steps}
    assert {graph.values[value].dtype for value in stored if value is not None} == {"uint8"}
    (found,) = model.found()
    (wanted,) = model.expected()
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1
    assert (found != wanted).mean() < 0.01


def chained(folder: Path, *, residual: bool) -> tuple[Model, ap.Graph]:
    """Return a convolution, and a depthwise one or a sum with the image, in bytes throughout."""
    draw = np.random.default_rng(21)
    constants: dict[str, np.ndarray] = {
        "s": scale(0.05179),
        "z": np.uint8(120),
        "ws": scale(0.00071373),
        "a": integers((32, 32, 1, 1), np.int8, draw),
        "b": integers((32, 1, 3, 3), np.int8, draw),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["x_d"]),
        helper.make_node("DequantizeLinear", ["a", "ws"], ["a_m"]),
        helper.make_node("Conv", ["x_d", "a_m"], ["a_y"]),
        helper.make_node("QuantizeLinear", ["a_y", "s", "z"], ["a_q"]),
        helper.make_node("DequantizeLinear", ["a_q", "s", "z"], ["a_d"]),
    ]
    if residual:
        nodes.append(helper.make_node("DequantizeLinear", ["r", "s", "z"], ["r_d"]))
        nodes.append(helper.make_node("Add", ["a_d", "r_d"], ["sum"]))
    else:
        nodes.append(helper.make_node("DequantizeLinear", ["b", "s"], ["b_m"]))
        nodes.append(helper.make_node("Conv", ["a_d", "b_m"], ["sum"], group=32, pads=[1, 1, 1, 1]))
    nodes.append(helper.make_node("QuantizeLinear", ["sum", "s", "z"], ["y"]))
    shape = (1, 32, 24, 24)
    inputs = {name: integers(shape, np.uint8, draw) for name in ("x", "r")[: 1 + residual]}
    model = Model(folder, nodes, inputs, {"y": np.uint8}, constants)
    return model, ap.load(model.path)


@pytest.mark.parametrize("residual", [False, True])
def test_kernels_follow_each_other_some_channels_at_a_time(tmp_path: Path, residual: bool) -> None:
    model, graph = chained(tmp_path, residual=residual)
    steps = narrow_steps(graph, joined=True)
    assert steps is not None
    assert [len(nodes) for nodes in steps] == [len(graph.nodes)]
    group = quantized_group(_whole_group(graph))
    assert group is not None
    assert len(group.stages) == 2 - residual
    value = 32 * 24 * 24
    choices = group.choices()
    assert choices[0].bytes < 0.7 * value, "few channels of the first result exist at a time"
    plan = ap.plan(graph, steps=steps)
    if residual:
        assert plan.arena_bytes < 3.4 * value, "the first result has no bytes of its own"
    with raises("WorkspaceOverrun"):
        group.runs({}, np.empty(0, np.uint8), np.zeros(64, np.uint8))
    (found,) = ap.Executor(graph, plan).run(model.inputs, verify=True).values()
    known = graph.quantized(graph.find("a_m").index)
    assert known is not None
    x = model.inputs["x"].astype(np.float64) - 120
    sums = convolved(x, known.integers().astype(np.float64), {})
    middle = np.clip(np.rint(sums * np.float64(scale(0.00071373))) + 120, 0, 255) - 120
    if residual:
        exact = middle + model.inputs["r"] - 120.0
    else:
        known = graph.quantized(graph.find("b_m").index)
        assert known is not None
        attributes = {"group": 32, "pads": [1, 1, 1, 1]}
        sums = convolved(middle, known.integers().astype(np.float64), attributes)
        exact = sums * np.float64(scale(0.05179))
    wanted = np.clip(np.rint(exact) + 120, 0, 255)
    ties = np.abs(np.abs(exact - np.floor(exact)) - 0.5) < 1e-4
    assert np.array_equal(found[~ties], wanted[~ties])
    # A tie of the first sums that ONNX Runtime's are on the other side of, the weights multiply.
    (other,) = model.expected()
    assert (found != other).mean() < 0.01
    with compiled.disabled():
        assert quantized_group(_whole_group(graph)) is None


@pytest.mark.parametrize("residual", [False, True])
def test_any_division_of_channels_gives_the_same_bytes(tmp_path: Path, residual: bool) -> None:
    model, graph = chained(tmp_path, residual=residual)
    group = quantized_group(_whole_group(graph))
    assert group is not None
    values = {graph.find(name).index: array for name, array in model.inputs.items()}
    made = []
    for choice in group.choices():
        output = np.zeros((1, 32, 24, 24), np.uint8)
        for run in group.runs(values, output, np.zeros(choice.bytes, np.uint8)):
            run()
        made.append(output)
    assert len(made) > 2
    assert all(np.array_equal(each, made[0]) for each in made)
    assert np.unique(made[0]).size > 50


def test_real_graphs_have_no_narrow_steps(tmp_path: Path) -> None:
    inputs = {"x": np.ones((2, 3), np.float32)}
    relu = helper.make_node("Relu", ["x"], ["y"])
    model = Model(tmp_path, [relu], inputs, {"y": np.float32}, {})
    assert narrow_steps(ap.load(model.path)) is None


def test_weights_whose_integers_are_unknown_stay_real(tmp_path: Path) -> None:
    model = CASES[0].model(tmp_path)
    graph = ap.load(model.path)
    index = graph.find("matrix").index
    assert graph.quantized(index) is not None
    graph.data(index)
    assert graph.quantized(index) is not None, "loading the data forgets nothing"
    assert graph.copy().quantized(index) is not None
    assert graph.quantized(graph.find("b").index) is None
    again = ap.Graph.from_json(graph.to_json())
    assert again.quantized(again.find("matrix").index) is None
    conv = next(node for node in graph.nodes if node.op == "Conv")
    load = signature_of(graph, conv).constant[1]
    assert load is not None
    assert load.quantized() is not None  # type: ignore[attr-defined]


def test_scales_of_another_axis_are_refused() -> None:
    numbers = Quantized(
        lambda: np.ones((3, 4), np.int8), lambda: np.ones(4, np.float32), None, axis=1
    )
    assert numbers.centered(1)[1].shape == (4,)
    with raises("InvalidDim", match="axis 1, not to axis 0"):
        numbers.centered(0)


def test_operands_that_no_kernel_takes_are_refused() -> None:
    with pytest.raises(InvalidOperand, match="no byte is the zero point 200"):
        ByteEncoding(True, 200)
    encoding = ByteEncoding(False, 3)
    one = np.ones(2, np.float32)
    result = ByteResult(one, one, 0.0, 1.0, 1.0, encoding)
    side = ap._core.WindowSide(1, 1, 1, 1, 1, 0)
    image, output = np.zeros((1, 2, 1, 1), np.uint8), np.zeros((1, 2, 1, 1), np.uint8)
    weights = np.zeros(packed_quantized((1, 1, 2, 1), 2), np.int32)
    scratch = np.zeros(512, np.float32)
    sizes = side, side, 1
    quantized_conv(image, encoding, weights, result, output, scratch, *sizes, lanes=2)()
    with pytest.raises(InvalidOperand, match="share memory"):
        quantized_conv(image, encoding, weights, result, image, scratch, *sizes, lanes=2)
    with pytest.raises(InvalidOperand, match="no lane has 3 channels"):
        quantized_conv(image, encoding, weights, result, output, scratch, *sizes, lanes=3)
    run = quantized_conv(image, encoding, weights[:4], result, output, scratch, *sizes, lanes=2)
    with pytest.raises(InvalidOperand, match="the weights has 4 elements"):
        run()
    short = quantized_conv(image, encoding, weights, result, output, scratch[:3], *sizes, lanes=2)
    with pytest.raises(InvalidOperand, match="scratch memory"):
        short()


def test_conversions_by_several_scales_are_no_such_group(tmp_path: Path) -> None:
    model = CASES[0].model(tmp_path)
    graph = ap.load(model.path)
    with compiled.disabled():
        assert quantized_group(_whole_group(graph)) is None
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs"], ["wide"], axis=1),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["matrix"]),
        helper.make_node("Conv", ["wide", "matrix"], ["sums"]),
        helper.make_node("QuantizeLinear", ["sums", "ws", "z"], ["y"]),
    ]
    draw = np.random.default_rng(3)
    constants = {
        "xs": np.array([0.1, 0.2, 0.3], np.float32),
        "w": integers((4, 3, 3, 3), np.int8, draw),
        "ws": scale(0.01),
        "z": np.int8(0),
    }
    inputs = {"x": integers((1, 3, 6, 6), np.int8, draw)}
    other = Model(tmp_path, nodes, inputs, {"y": np.int8}, constants)
    loaded = ap.load(other.path)
    assert quantized_group(_whole_group(loaded)) is None
    (found,) = other.found()
    (wanted,) = other.expected()
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


# -- products ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["MatMul", "Gemm", "transposed"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_products_are_exact_and_rounded_once(tmp_path: Path, kind: str, per_channel: bool) -> None:
    rows, depth, columns = 21, 50, 70
    draw = np.random.default_rng(11)
    is_transposed = kind == "transposed"
    shape = (columns, depth) if is_transposed else (depth, columns)
    scales = scale(0.0119)
    if per_channel:
        scales = draw.uniform(0.002, 0.03, columns).astype(np.float32)
    constants = {
        "xs": scale(0.0271),
        "xz": np.uint8(117),
        "w": integers(shape, np.int8, draw),
        "ws": scales,
        "ys": scale(0.11),
        "yz": np.int8(-3),
        "b": draw.normal(size=columns).astype(np.float32),
    }
    leading = (3, 7) if kind == "MatMul" else (rows,)
    product = (
        helper.make_node("MatMul", ["wide", "matrix"], ["sums"])
        if kind == "MatMul"
        else helper.make_node("Gemm", ["wide", "matrix", "b"], ["sums"], transB=int(is_transposed))
    )
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["wide"]),
        helper.make_node(
            "DequantizeLinear", ["w", "ws"], ["matrix"], axis=0 if is_transposed else 1
        ),
        product,
        helper.make_node("Relu", ["sums"], ["bounded"]),
        helper.make_node("QuantizeLinear", ["bounded", "ys", "yz"], ["y"]),
    ]
    inputs = {"x": integers((*leading, depth), np.uint8, draw)}
    model = Model(tmp_path, nodes, inputs, {"y": np.int8}, constants)
    graph = ap.load(model.path)
    group = quantized_group(_whole_group(graph))
    assert group is not None
    assert isinstance(group.kernel, QuantizedProduct)
    (found,) = model.found()
    x = inputs["x"].astype(np.float64).reshape(rows, depth) - 117
    matrix = constants["w"].astype(np.float64)
    sums = x @ (matrix.T if is_transposed else matrix)
    real = sums * (np.float64(constants["xs"]) * np.broadcast_to(scales, columns))
    real = real + constants["b"] if kind != "MatMul" else real
    exact = np.maximum(real, 0) / np.float64(constants["ys"])
    wanted = np.clip(np.rint(exact) - 3, -128, 127)
    ties = np.abs(np.abs(exact - np.floor(exact)) - 0.5) < 1e-4
    made = found.reshape(rows, columns)
    assert np.array_equal(made[~ties], wanted[~ties])
    assert np.unique(made).size > 50
    outputs = []
    for choice in group.kernel.choices():
        output = np.zeros((rows, columns), np.int8)
        scratch = Scratch(np.zeros(choice.bytes, np.uint8), "product")
        group.kernel.bind(inputs["x"], output, scratch)()
        outputs.append(output)
    assert len(outputs) == 2
    assert all(np.array_equal(each, made) for each in outputs)


def test_a_product_may_write_over_its_rows(tmp_path: Path) -> None:
    draw = np.random.default_rng(12)
    constants = {
        "s": scale(0.0271),
        "z": np.uint8(117),
        "w": integers((48, 48), np.int8, draw),
        "ys": scale(0.9),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["wide"]),
        helper.make_node("DequantizeLinear", ["w", "s"], ["matrix"]),
        helper.make_node("MatMul", ["wide", "matrix"], ["sums"]),
        helper.make_node("QuantizeLinear", ["sums", "ys", "z"], ["y"]),
    ]
    inputs = {"x": integers((100, 48), np.uint8, draw)}
    model = Model(tmp_path, nodes, inputs, {"y": np.uint8}, constants)
    group = quantized_group(_whole_group(ap.load(model.path)))
    assert group is not None
    assert group.kernel.writes_over
    apart, over = np.zeros((100, 48), np.uint8), inputs["x"].copy()
    memory = np.zeros(group.kernel.choices()[-1].bytes, np.uint8)
    group.kernel.bind(inputs["x"], apart, Scratch(memory, "product"))()
    group.kernel.bind(over, over, Scratch(memory, "product"))()
    assert np.array_equal(apart, over)


def test_products_of_scaled_or_varying_matrices_stay_real(tmp_path: Path) -> None:
    draw = np.random.default_rng(13)
    constants = {
        "s": scale(0.0271),
        "z": np.uint8(117),
        "w": integers((8, 8), np.int8, draw),
        "ys": scale(0.3),
        "tall": draw.normal(size=(5, 1)).astype(np.float32),
    }
    inputs = {"x": integers((5, 8), np.uint8, draw)}
    for operands, attributes in (
        (["wide", "matrix"], {"alpha": 2.0}),
        (["wide", "matrix", "tall"], {}),
    ):
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "s", "z"], ["wide"]),
            helper.make_node("DequantizeLinear", ["w", "s"], ["matrix"]),
            helper.make_node("Gemm", operands, ["sums"], **attributes),
            helper.make_node("QuantizeLinear", ["sums", "ys", "z"], ["y"]),
        ]
        model = Model(tmp_path, nodes, inputs, {"y": np.uint8}, constants)
        assert quantized_group(_whole_group(ap.load(model.path))) is None
        (found,) = model.found()
        (wanted,) = model.expected()
        assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1
