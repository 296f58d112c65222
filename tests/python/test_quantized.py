"""Quantized models: the bytes that live, and results equal to those of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import arenaplan as ap
from arenaplan.base.errors import TargetMismatch, UnknownShape
from arenaplan.run.numpy import compiled
from arenaplan.run.numpy.chained import in_chains
from arenaplan.run.numpy.groups import group_of
from quantized_models import MICROSOFT, RNG, Model, integers, narrow_weights, node, scale

# -- bytes that live ---------------------------------------------------------------------------


def residual(folder: Path, dtype: Any) -> Model:
    """Two convolutions and the image they were made from, with Q and DQ around everything."""
    zero = np.iinfo(dtype).min + 100
    constants: dict[str, np.ndarray] = {"zero": np.array(zero, dtype), "none": np.int8(0)}
    nodes, inputs = [], {"x": RNG.normal(size=(1, 4, 12, 12)).astype(np.float32)}

    def quantized(name: str) -> str:
        constants[f"{name}_scale"] = scale(0.04713)
        pair = [f"{name}_scale", "zero"]
        nodes.append(helper.make_node("QuantizeLinear", [name, *pair], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *pair], [f"{name}_dq"]))
        return f"{name}_dq"

    def convolved(name: str, source: str, channels: int) -> None:
        constants[f"{name}_w"] = integers((16, channels, 3, 3), np.int8)
        constants[f"{name}_s"] = scale(0.003917)
        pair = [f"{name}_w", f"{name}_s", "none"]
        nodes.append(helper.make_node("DequantizeLinear", pair, [f"{name}_wide"]))
        nodes.append(helper.make_node("Conv", [source, f"{name}_wide"], [name], pads=[1, 1, 1, 1]))

    convolved("a", quantized("x"), 4)
    shown = quantized("a")
    convolved("b", shown, 16)
    nodes.append(helper.make_node("Relu", ["b"], ["c"]))
    convolved("d", quantized("c"), 16)
    nodes.append(helper.make_node("Add", [quantized("d"), shown], ["sum"]))
    quantized("sum")
    nodes.pop()  # Nothing reads the result as real numbers.
    return Model(folder, nodes, inputs, {"sum_q": np.dtype(dtype)}, constants)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_values_of_a_quantized_model_live_as_small_integers(tmp_path: Path, dtype: Any) -> None:
    model = residual(tmp_path, dtype)
    graph = ap.load(model.path)
    names = [name for name in ap.planner.techniques() if name != "duplicate"]
    small = ap.plan(graph, target="ideal")
    wide = ap.plan(graph, target="ideal", optimize=names)
    image = 16 * 12 * 12
    assert small.repeated
    assert {graph.nodes[node].op for node in small.repeated} == {"DequantizeLinear"}
    assert small.arena_bytes <= 3 * image
    assert wide.arena_bytes > 4 * image
    for value, placement in zip(graph.values, small.placements, strict=True):
        assert placement is None or value.kind == "input" or value.dtype != "float32"
    small.check(graph)
    # A runner of single nodes cannot run such a plan.
    nodes = ap.Target.known("nodes")
    assert nodes is not None
    with pytest.raises(TargetMismatch):
        small.check_target(nodes)


def attention(folder: Path) -> Model:
    """Scores of two heads, and sums of values that they weigh; every value is quantized."""
    constants = {"zero": np.uint8(120), **{f"{name}s": scale(0.031) for name in "qkvsw"}}
    constants |= {"ws": scale(1 / 255), "none": np.uint8(0)}
    shape = (1, 2, 48, 16)
    inputs = {name: integers(shape, np.uint8) for name in "qkv"}
    nodes = [helper.make_node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2])]
    for name, narrow in (("q", "q"), ("k", "t"), ("v", "v")):
        pair = [narrow, f"{name}s", "zero"]
        nodes.append(helper.make_node("DequantizeLinear", pair, [f"{name}_wide"]))
    nodes += [
        helper.make_node("MatMul", ["q_wide", "k_wide"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"]),
        helper.make_node("QuantizeLinear", ["weights", "ws", "none"], ["w"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "none"], ["w_wide"]),
        helper.make_node("MatMul", ["w_wide", "v_wide"], ["sums"]),
        helper.make_node("QuantizeLinear", ["sums", "ss", "zero"], ["y"]),
    ]
    return Model(folder, nodes, inputs, {"y": np.dtype(np.uint8)}, constants)


def upsampled(folder: Path) -> Model:
    """A transposed convolution of an image, both quantized."""
    constants = {"s": scale(0.031), "zero": np.uint8(120), "w": RNG.normal(size=(8, 4, 2, 2))}
    constants["w"] = constants["w"].astype(np.float32)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "zero"], ["n"]),
        helper.make_node("DequantizeLinear", ["n", "s", "zero"], ["wide"]),
        helper.make_node("ConvTranspose", ["wide", "w"], ["made"], strides=[2, 2]),
        helper.make_node("QuantizeLinear", ["made", "s", "zero"], ["y"]),
    ]
    inputs = {"x": RNG.normal(size=(1, 8, 24, 24)).astype(np.float32)}
    return Model(folder, nodes, inputs, {"y": np.dtype(np.uint8)}, constants)


def normalized(folder: Path) -> Model:
    """A local response normalization of an image, both quantized."""
    constants = {"s": scale(0.031), "zero": np.uint8(120), "ms": scale(0.0057)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "zero"], ["n"]),
        helper.make_node("DequantizeLinear", ["n", "s", "zero"], ["wide"]),
        helper.make_node("LRN", ["wide"], ["made"], size=5, alpha=0.9, bias=2.0),
        helper.make_node("QuantizeLinear", ["made", "ms", "zero"], ["y"]),
    ]
    inputs = {"x": RNG.normal(size=(1, 16, 20, 20)).astype(np.float32)}
    return Model(folder, nodes, inputs, {"y": np.dtype(np.uint8)}, constants)


@pytest.mark.parametrize("build", [attention, upsampled, normalized])
def test_wide_operands_are_made_tile_by_tile(tmp_path: Path, build: Any) -> None:
    model = build(tmp_path)
    graph = ap.load(model.path)
    plan = ap.plan(graph, inputs="caller", workspace="none")
    for value, placement in zip(graph.values, plan.placements, strict=True):
        assert placement is None or value.kind == "input" or value.dtype != "float32"
    for slowdown in (None, 1.1):
        (found,) = model.found(inputs="caller", max_slowdown=slowdown)
        np.testing.assert_array_equal(found, model.expected()[0])


def test_wide_values_around_a_transposed_convolution_are_no_whole(tmp_path: Path) -> None:
    model, options = upsampled(tmp_path), {"inputs": "caller", "max_slowdown": None}
    assert ap.plan(ap.load(model.path), **options).arena_bytes < 8 * 24 * 24 * 4
    np.testing.assert_array_equal(model.found(**options)[0], model.expected()[0])


def test_conversions_behind_a_product_are_one_chain(tmp_path: Path) -> None:
    constants = {"w": integers((32, 24), np.int8), "ws": scale(0.01), "none": np.int8(0)}
    constants |= {"s": scale(0.07), "zero": np.uint8(99), "b": np.arange(24, dtype=np.float32)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "zero"], ["wide"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "none"], ["weights"]),
        helper.make_node("MatMul", ["wide", "weights"], ["product"]),
        helper.make_node("QuantizeLinear", ["product", "s", "zero"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "s", "zero"], ["q"]),
        helper.make_node("Sigmoid", ["q"], ["r"]),
        helper.make_node("Mul", ["q", "r"], ["t"]),
        helper.make_node("Add", ["t", "b"], ["sum"]),
        helper.make_node("QuantizeLinear", ["sum", "s", "zero"], ["y"]),
    ]
    inputs = {"x": integers((50, 32), np.uint8)}
    model = Model(tmp_path, nodes, inputs, {"y": np.dtype(np.uint8)}, constants)
    graph = ap.load(model.path)
    (nodes,) = ap.plan(graph, workspace="none", target="numpy").steps
    group = group_of(graph, nodes)
    chained = in_chains(group)
    assert [m.signature.op for m in chained.members] == ["DequantizeLinear", "MatMul", "Chain"]
    assert len(group.members) == 8
    np.testing.assert_array_equal(model.found(max_slowdown=None)[0], model.expected()[0])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("slowdown", [None, 1.1])
def test_results_of_repeated_nodes_are_those_of_onnx_runtime(
    tmp_path: Path, dtype: Any, slowdown: float | None
) -> None:
    model = residual(tmp_path, dtype)
    (found,) = model.found(max_slowdown=slowdown)
    np.testing.assert_array_equal(found, model.expected()[0])


def test_constant_chains_of_quantization_are_folded(tmp_path: Path) -> None:
    constants = {
        "w": RNG.normal(size=(8, 4)).astype(np.float32),
        "s": scale(0.02),
        "z": np.uint8(120),
        "axis": np.int64(0),
    }
    chain = [("QuantizeLinear", ["w", "s", "z"], "q"), ("DequantizeLinear", ["q", "s", "z"], "r")]
    chain += [("Tanh", ["r"], "t"), ("Sigmoid", ["t"], "u"), ("Softmax", ["u"], "v")]
    chain += [("CumSum", ["v", "axis"], "c"), ("QuantizeLinear", ["c", "s", "z"], "k")]
    chain += [("DequantizeLinear", ["k", "s", "z"], "m"), ("MatMul", ["x", "m"], "y")]
    nodes = [helper.make_node(op, inputs, [output]) for op, inputs, output in chain]
    inputs = {"x": RNG.normal(size=(2, 8)).astype(np.float32)}
    model = Model(tmp_path, nodes, inputs, {"y": np.dtype(np.float32)}, constants)
    assert [node.op for node in ap.load(model.path).nodes] == ["MatMul"]
    np.testing.assert_allclose(model.found()[0], model.expected()[0], rtol=1e-6)


# -- integers ----------------------------------------------------------------------------------

PAIR = "a as az b bs bz ys yz"


def _pair(
    dtype: Any, left: Sequence[int], right: Sequence[int], *, weights: Any = None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return two operands, and the scales and zero points of a node with both."""
    weights = weights or dtype
    inputs = {"a": integers(left, dtype)}
    constants = {
        "b": narrow_weights(right) if weights != dtype else integers(right, weights),
        "as": scale(0.021),
        "bs": scale(0.013),
        "ys": scale(0.9),
        "az": np.array(np.iinfo(dtype).min + 131, dtype),
        "bz": np.array(np.iinfo(weights).min + 125, weights),
        "yz": np.array(np.iinfo(dtype).min + 77, dtype),
    }
    return inputs, constants


CASES: dict[str, Any] = {
    "matmul": ("MatMulInteger", "a b az bz", "", {}, (3, 5, 40), (40, 6), np.int32),
    "deep": ("MatMulInteger", "a b az bz", "", {}, (5, 3000), (3000, 6), np.int32),
    "conv": (
        "ConvInteger",
        "a b az bz",
        "",
        {"pads": [1, 0, 2, 1]},
        (2, 6, 9, 7),
        (4, 6, 3, 2),
        np.int32,
    ),
    "groups": (
        "ConvInteger",
        "a b az bz",
        "",
        {"group": 3, "strides": [2, 1]},
        (1, 6, 9, 7),
        (6, 2, 3, 3),
        np.int32,
    ),
    "deep conv": ("QLinearConv", PAIR, "", {"pads": [1] * 4}, (1, 80, 5, 6), (9, 80, 3, 3), None),
    "qlinear matmul": ("QLinearMatMul", PAIR, "", {}, (2, 4, 33), (33, 7), None),
    "add": ("QLinearAdd", PAIR, MICROSOFT, {}, (3, 4, 50), (4, 50), None),
    "mul": ("QLinearMul", PAIR, MICROSOFT, {}, (3, 4, 50), (1, 1, 1), None),
}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("case", CASES)
def test_integers_are_those_of_onnx_runtime(tmp_path: Path, case: str, dtype: Any) -> None:
    op, operands, domain, attributes, left, right, made = CASES[case]
    inputs, constants = _pair(dtype, left, right)
    used = operands.split()
    constants = {name: array for name, array in constants.items() if name in used}
    nodes = [node(op, operands, domain, **attributes)]
    model = Model(tmp_path, nodes, inputs, {"y": np.dtype(made or dtype)}, constants)
    for optimize in ("all", "none"):
        (found,) = model.found(optimize=optimize)
        np.testing.assert_array_equal(found, model.expected()[0])


def test_the_constant_part_of_a_sum_is_rounded_once(tmp_path: Path) -> None:
    # With these scales, the part that the zero points add decides thousands of ties.
    numbers = np.arange(256, dtype=np.uint8)
    inputs = {"a": np.repeat(numbers, 256), "b": np.tile(numbers, 256)}
    constants = {"as": scale(0.115), "az": np.uint8(190), "bs": scale(0.115), "bz": np.uint8(2)}
    constants |= {"ys": scale(0.138), "yz": np.uint8(71)}
    nodes = [node("QLinearAdd", "a as az b bs bz ys yz", MICROSOFT)]
    model = Model(tmp_path, nodes, inputs, {"y": np.dtype(np.uint8)}, constants)
    np.testing.assert_array_equal(model.found()[0], model.expected()[0])


def test_scales_and_zero_points_of_channels(tmp_path: Path) -> None:
    inputs, constants = _pair(np.uint8, (1, 5, 8, 8), (7, 5, 3, 3), weights=np.int8)
    constants |= {
        "bs": RNG.uniform(0.001, 0.02, 7).astype(np.float32),
        "bz": np.zeros(7, np.int8),
        "bias": integers((7,), np.int16).astype(np.int32),
    }
    nodes = [node("QLinearConv", f"{PAIR} bias", pads=[1, 1, 1, 1])]
    model = Model(tmp_path, nodes, inputs, {"y": np.dtype(np.uint8)}, constants)
    np.testing.assert_array_equal(model.found()[0], model.expected()[0])


@pytest.mark.parametrize("transposed", [0, 1])
def test_scales_and_zero_points_of_columns_of_a_gemm(tmp_path: Path, transposed: int) -> None:
    columns = 6
    weights = narrow_weights((columns, 20) if transposed else (20, columns))
    constants = {
        "xs": scale(0.02),
        "xz": np.uint8(120),
        "w": weights,
        "ws": RNG.uniform(0.001, 0.01, columns).astype(np.float32),
        "wz": np.zeros(columns, np.int8),
        "bias": integers((columns,), np.int16).astype(np.int32),
        "ys": scale(0.1),
        "yz": np.uint8(128),
    }
    inputs = {"x": integers((3, 20), np.uint8)}
    nodes = [node("QGemm", "x xs xz w ws wz bias ys yz", MICROSOFT, transB=transposed)]
    model = Model(tmp_path, nodes, inputs, {"y": np.dtype(np.uint8)}, constants)
    np.testing.assert_array_equal(model.found()[0], model.expected()[0])


def test_dynamic_quantization_writes_over_its_operand(tmp_path: Path) -> None:
    x = RNG.normal(size=(64, 1024)).astype(np.float32)
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["wide"]),
        helper.make_node("DynamicQuantizeLinear", ["wide"], ["y", "s", "z"]),
    ]
    outputs = {"y": np.dtype(np.uint8), "s": np.dtype(np.float32), "z": np.dtype(np.uint8)}
    model = Model(tmp_path, nodes, {"x": x}, outputs, {})
    graph = ap.load(model.path)
    plan = ap.plan(graph, inputs="caller", target="ideal")
    extremes = 2 * x.itemsize * len(x)
    assert plan.arena_bytes <= x.nbytes + extremes + 2 * plan.alignment
    found = model.found(inputs="caller", optimize="in-place")
    for array, expected in zip(found, model.expected(), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_wide_scratch_memory_may_be_small(tmp_path: Path, op: str) -> None:
    shape = (4, 1024)
    constants = {"xs": scale(0.02), "xz": np.uint8(120), "bs": scale(0.01), "bz": np.uint8(3)}
    constants |= {"ys": scale(0.03), "yz": np.uint8(100)}
    inputs = {"x": integers(shape, np.uint8), "b": integers(shape, np.uint8)}
    nodes = [node(op, "x xs xz b bs bz ys yz", MICROSOFT)]
    model = Model(tmp_path, nodes, inputs, {"y": np.dtype(np.uint8)}, constants)
    with compiled.disabled():  # Compiled kernels need none.
        graph = ap.load(model.path)
        plan = ap.plan(graph, max_slowdown=100)
        wide = 12 if op[-1] == "d" else 8
        assert [placed.bytes for placed in plan.workspaces] == [shape[1] * wide]
        with ap.Executor(graph, plan) as executor:
            found = executor.run(inputs, verify=True)["y"]
    np.testing.assert_array_equal(found, model.expected()[0])
    graph = ap.load(model.path)
    plan = ap.plan(graph, max_slowdown=100)
    assert not plan.workspaces
    with ap.Executor(graph, plan) as executor:
        np.testing.assert_array_equal(executor.run(inputs, verify=True)["y"], found)


def test_sums_of_products_are_exact_on_every_processor(tmp_path: Path) -> None:
    constants = {"w": integers((64, 16), np.int8)}
    inputs = {"x": integers((8, 64), np.uint8)}
    nodes = [node("MatMulInteger", "x w")]
    model = Model(tmp_path, nodes, inputs, {"y": np.dtype(np.int32)}, constants)
    products = inputs["x"][:, :, None].astype(np.int64) * constants["w"]
    exact = products.sum(1)
    np.testing.assert_array_equal(model.found()[0], exact)
    # Without VNNI, ONNX Runtime adds pairs of products in 16 bits, which saturate.
    pairs = np.clip(products[:, 0::2] + products[:, 1::2], -(2**15), 2**15 - 1).sum(1)
    expected = model.expected()[0]
    assert np.array_equal(expected, exact) or np.array_equal(expected, pairs)
    assert not np.array_equal(pairs, exact)


@pytest.mark.parametrize("numbers", ["random", "zeros", "positive"])
def test_the_range_of_dynamic_quantization(tmp_path: Path, numbers: str) -> None:
    x = RNG.normal(size=(7, 50)).astype(np.float32)
    x = {"random": x, "zeros": np.zeros_like(x), "positive": np.abs(x) + np.float32(1)}[numbers]
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])]
    outputs = {"y": np.dtype(np.uint8), "s": np.dtype(np.float32), "z": np.dtype(np.uint8)}
    model = Model(tmp_path, nodes, {"x": x}, outputs, {})
    for found, expected in zip(model.found(), model.expected(), strict=True):
        np.testing.assert_array_equal(found, expected)


ONE = "x xs xz ys yz"


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("op", "shape", "attributes"),
    [
        ("QLinearSigmoid", (3, 40), {}),
        ("QLinearLeakyRelu", (3, 40), {"alpha": 0.2}),
        ("QLinearSoftmax", (4, 60), {"axis": -1, "opset": 13}),
        ("QLinearGlobalAveragePool", (2, 5, 7, 6), {}),
        ("QLinearAveragePool", (1, 3, 8, 8), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ],
)
def test_operators_of_one_operand(
    tmp_path: Path, op: str, shape: Sequence[int], attributes: Any, dtype: Any
) -> None:
    least = np.iinfo(dtype).min
    if op == "QLinearGlobalAveragePool" and dtype == np.int8:
        pytest.skip("ONNX Runtime has it for uint8 only")
    constants = {
        "xs": scale(0.06),
        "xz": np.array(least + 120, dtype),
        "ys": scale(1 / 256 if "S" in op[7:8] else 0.05),
        "yz": np.array(least if "S" in op[7:8] else least + 90, dtype),
    }
    inputs = {"x": integers(shape, dtype)}
    nodes = [node(op, ONE, MICROSOFT, **attributes)]
    model = Model(tmp_path, nodes, inputs, {"y": np.dtype(dtype)}, constants)
    np.testing.assert_array_equal(model.found()[0], model.expected()[0])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 0, 0, 1]},
        {"kernel_shape": [3], "strides": [2], "pads": [1, 1]},
    ],
)
def test_means_between_two_integers_are_rounded_as_by_onnx_runtime(
    tmp_path: Path, attributes: Any, dtype: Any
) -> None:
    # Sums of few integers with equal scales: many means are in the middle, and zero points are odd.
    least = np.iinfo(dtype).min
    one = {"xs": scale(0.05), "xz": np.array(least + 120, dtype)}
    constants = {**one, "ys": scale(0.05), "yz": np.array(least + 91, dtype)}
    shape = (2, 40, 8, 8)[: len(attributes["kernel_shape"]) + 2]
    nodes = [node("QLinearAveragePool", ONE, MICROSOFT, **attributes)]
    inputs = {"x": integers(shape, dtype)}
    model = Model(tmp_path, nodes, inputs, {"y": np.dtype(dtype)}, constants)
    np.testing.assert_array_equal(model.found()[0], model.expected()[0])


def test_results_differ_from_those_of_onnx_runtime_at_ties_only(tmp_path: Path) -> None:
    # Products of scales are not representable, so sums in one order are just below a tie, and just
    # above in another. The exact results are multiples of half a quantum, in rational numbers.
    sizes = {"x": scale(0.1), "w": scale(0.3), "y": scale(0.06)}
    exact = {name: Fraction(float(size)) for name, size in sizes.items()}
    left = RNG.integers(125, 132, (40, 96), np.uint8)
    right = RNG.integers(-8, 9, (96, 32), np.int8)
    constants = {f"{name}s": size for name, size in sizes.items()}
    constants |= {"w": right, "xz": np.uint8(128), "wz": np.int8(0), "yz": np.int8(0)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["left"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["right"]),
        helper.make_node("MatMul", ["left", "right"], ["product"]),
        helper.make_node("QuantizeLinear", ["product", "ys", "yz"], ["y"]),
    ]
    model = Model(tmp_path, nodes, {"x": left}, {"y": np.dtype(np.int8)}, constants)
    found, expected = (results[0].astype(int) for results in (model.found(), model.expected()))
    sums = (left.astype(int) - 128) @ right.astype(int)
    quanta = exact["x"] * exact["w"] / exact["y"]
    size = np.abs(left.astype(int) - 128) @ np.abs(right.astype(int))
    ties = 0
    for place in np.ndindex(sums.shape):
        value = int(sums[place]) * quanta
        # Rounding moves each of the 96 terms by one part in 2**24 for each operation at most.
        error = int(size[place]) * quanta * 100 / 2**24
        low, high = (int(np.clip(round(value + e), -128, 127)) for e in (-error, error))
        ties += low != high
        assert low <= found[place] <= high
        assert low <= expected[place] <= high
    assert ties > 100
    np.testing.assert_array_less(np.abs(found - expected), 2)


def test_a_scale_that_a_run_computes_is_read_by_each_tile(tmp_path: Path) -> None:
    # An operand without dimensions of a group of elementwise nodes that runs in several tiles.
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["scale"], keepdims=0),
        helper.make_node("Cast", ["x"], ["whole"], to=TensorProto.INT32),
        helper.make_node("Cast", ["whole"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["real", "scale"], ["a"]),
        helper.make_node("Mul", ["a", "a"], ["b"]),
        helper.make_node("Tanh", ["b"], ["c"]),
        helper.make_node("Mul", ["a", "c"], ["y"]),
    ]
    inputs = {"x": RNG.normal(scale=3, size=(2, 16384)).astype(np.float32)}
    model = Model(tmp_path, nodes, inputs, {"y": np.dtype(np.float32)}, {})
    plan = ap.plan(ap.load(model.path), optimize="fusion")
    assert [len(step) for step in plan.steps] == [1, 6]
    assert 0 < plan.workspaces[0].bytes < 2 * 16384 * 4
    np.testing.assert_allclose(model.found(optimize="fusion")[0], model.expected()[0], rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("by", ["half_pixel", "asymmetric"])
def test_integers_of_larger_images_are_cut_off(tmp_path: Path, by: str, dtype: Any) -> None:
    attributes = {"mode": "linear", "coordinate_transformation_mode": by}
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], **attributes)]
    constants = {"scales": np.array([1, 1, 2, 2], np.float32)}
    inputs = {"x": integers((1, 4, 9, 17), dtype)}
    model = Model(tmp_path, nodes, inputs, {"y": np.dtype(dtype)}, constants)
    np.testing.assert_array_equal(model.found()[0], model.expected()[0])


def test_a_concatenation_with_other_scales(tmp_path: Path) -> None:
    constants = {"ys": scale(0.1), "yz": np.uint8(10), "as": scale(0.05), "az": np.uint8(3)}
    inputs = {"a": integers((2, 3, 4), np.uint8), "b": integers((2, 5, 4), np.uint8)}
    nodes = [node("QLinearConcat", "ys yz a as az b ys yz", MICROSOFT, axis=1)]
    model = Model(tmp_path, nodes, inputs, {"y": np.dtype(np.uint8)}, constants)
    np.testing.assert_array_equal(model.found()[0], model.expected()[0])


# -- operators of the optimizer ----------------------------------------------------------------


def real(*shape: int) -> np.ndarray:
    """Return random numbers."""
    return RNG.normal(size=shape).astype(np.float32)


OPTIMIZED: dict[str, Any] = {
    "Gelu": ("x", {}, {"x": real(3, 17)}, {}),
    "BiasGelu": ("x b", {}, {"x": real(3, 17)}, {"b": real(17)}),
    "FastGelu": ("x b", {}, {"x": real(3, 17)}, {"b": real(17)}),
    "QuickGelu": ("x", {"alpha": 1.5}, {"x": real(3, 17)}, {}),
    "FusedMatMul": ("x b", {"transB": 1, "alpha": 0.5}, {"x": real(2, 3, 8)}, {"b": real(5, 8)}),
    "SkipLayerNormalization": (
        "x s g b c",
        {"epsilon": 1e-6},
        {"x": real(2, 3, 16), "s": real(2, 3, 16)},
        {"g": real(16), "b": real(16), "c": real(16)},
    ),
    "FusedConv": (
        "x w b",
        {"activation": "LeakyRelu", "activation_params": [0.3], "pads": [1, 1, 1, 1]},
        {"x": real(1, 3, 6, 6)},
        {"w": real(4, 3, 3, 3), "b": real(4)},
    ),
    "DynamicQuantizeMatMul": (
        "x w s z b",
        {},
        {"x": real(3, 20)},
        {"w": narrow_weights((20, 6)), "s": scale(0.02), "z": np.int8(0), "b": real(6)},
    ),
    "MatMulIntegerToFloat": (
        "x w xs ws xz wz",
        {},
        {"x": integers((3, 20), np.uint8)},
        {
            "w": narrow_weights((20, 6)),
            "xs": scale(0.1),
            "ws": RNG.uniform(0.01, 0.02, 6).astype(np.float32),
            "xz": np.uint8(9),
            "wz": np.zeros(6, np.int8),
        },
    ),
    "QGemm": (
        "x xs xz w ws wz c",
        {"transB": 1},
        {"x": integers((3, 20), np.uint8)},
        {
            "w": narrow_weights((6, 20)),
            "xs": scale(0.1),
            "ws": scale(0.01),
            "xz": np.uint8(9),
            "wz": np.int8(0),
            "c": integers((6,), np.int16).astype(np.int32),
        },
    ),
}


@pytest.mark.parametrize("op", OPTIMIZED)
def test_operators_of_onnx_runtimes_optimizer(tmp_path: Path, op: str) -> None:
    operands, attributes, inputs, constants = OPTIMIZED[op]
    nodes = [node(op, operands, MICROSOFT, **attributes)]
    model = Model(tmp_path, nodes, inputs, {"y": np.dtype(np.float32)}, constants)
    np.testing.assert_allclose(model.found()[0], model.expected()[0], rtol=3e-6, atol=3e-6)


def test_an_operator_that_nobody_knows_has_no_shape(tmp_path: Path) -> None:
    nodes = [node("QLinearWhere", "x", MICROSOFT)]
    model = Model(tmp_path, nodes, {"x": real(3)}, {"y": np.dtype(np.float32)}, {})
    with pytest.raises(UnknownShape):
        ap.load(model.path)


def test_tiles_of_a_resize_by_sizes_are_resized_by_their_own(tmp_path: Path) -> None:
    """The sizes count all channels, and a tile has some of them, also with the policy named."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["wide"]),
        helper.make_node(
            "Resize",
            ["wide", "", "", "sizes"],
            ["large"],
            mode="linear",
            keep_aspect_ratio_policy="stretch",
        ),
        helper.make_node("QuantizeLinear", ["large", "t", "z"], ["y"]),
    ]
    constants = {"s": scale(0.05), "t": scale(0.03), "z": np.uint8(120)}
    constants["sizes"] = np.array([1, 32, 64, 64])
    inputs = {"x": integers((1, 32, 8, 8), np.uint8)}
    model = Model(tmp_path, nodes, inputs, {"y": np.dtype(np.uint8)}, constants)
    plan = ap.plan(ap.load(model.path), max_slowdown=float("inf"))
    assert [len(step) for step in plan.steps] == [3]
    (tiles,), (whole,) = model.found(max_slowdown=float("inf")), model.found(optimize="none")
    np.testing.assert_array_equal(tiles, whole)
    # Sums of four weighted elements are rounded in another order by ONNX Runtime.
    np.testing.assert_allclose(tiles.astype(int), model.expected()[0].astype(int), atol=1)
