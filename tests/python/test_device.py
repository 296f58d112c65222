"""
The executor for devices, on the host: the text of its kernels is compiled by a C++ compiler.

ONNX Runtime is the oracle. Nothing here needs a GPU; where there is one, the same operators run on
it, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import arenaplan as ap
import pointwise
from arenaplan.base.errors import (
    CapacityExceeded,
    InvalidOption,
    TargetMismatch,
    UnsupportedOp,
)
from arenaplan.formats.onnx import load_onnx
from arenaplan.run.cuda.device import Device
from arenaplan.run.cuda.device_executor import DeviceExecutor, open_device
from arenaplan.run.cuda.device_program import ARENA, DeviceProgram, device_program
from arenaplan.run.cuda.device_work import Launch
from arenaplan.run.cuda.lowering import StepLowering, supported_ops
from arenaplan.run.cuda.streams import Schedule
from arenaplan.run.cuda.text import DeviceKernel, literal, strided_index
from host_device import COMPILER, HostDevice, compiled
from operator_cases import cases as operator_cases_of_numpy
from raising import raises

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

Arrays = Mapping[str, np.ndarray]


class Case(NamedTuple):
    """A model and its inputs."""

    name: str
    proto: onnx.ModelProto
    inputs: Arrays


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Return numbers that are neither large nor small."""
    random = np.random.default_rng((seed, *shape))
    if np.dtype(dtype).kind == "f":
        return random.uniform(-2, 2, shape).astype(dtype)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(dtype)
    low = 0 if np.dtype(dtype).kind == "u" else -9
    return random.integers(low, 10, shape).astype(dtype)


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def one(
    op: str,
    *inputs: np.ndarray | None,
    constants: Sequence[int] = (),
    outputs: int = 1,
    opset: int = 21,
    **attributes: Any,
) -> Case:
    """Return a model of one node."""
    names = ["" if x is None else f"x{at}" for at, x in enumerate(inputs)]
    results = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(op, names, results, **attributes)
    label = f"{op} {[x.shape for x in inputs if x is not None]} {attributes} {opset}"
    given = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
    fixed = {f"x{at}" for at in constants}
    return model(label, [node], given, results, fixed, opset)


def model(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    values: Arrays,
    results: Sequence[str],
    constants: set[str],
    opset: int = 21,
) -> Case:
    """Return a model of some nodes."""
    inputs = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for key, x in values.items()
        if key not in constants
    ]
    outputs = [onnx.ValueInfoProto(name=each) for each in results]
    fixed = [onnx.numpy_helper.from_array(values[key], key) for key in sorted(constants)]
    graph = helper.make_graph(list(nodes), "model", inputs, outputs, fixed)
    opsets = [helper.make_opsetid("", opset)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    proto = onnx.shape_inference.infer_shapes(proto)
    given = {key: np.asarray(x) for key, x in values.items() if key not in constants}
    return Case(name, proto, given)


X = numbers(2, 6, 9, 8)
LONG = numbers(3, 700)
MASK = numbers(2, 3, 5, dtype="bool")
POSITIVE = np.abs(numbers(4, 70)) + 0.1

REDUCTIONS = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1"),
    *("ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"),
)


def within(low: float, high: float) -> np.ndarray:
    """Return numbers between two others."""
    return np.interp(X, (X.min(), X.max()), (low, high)).astype(X.dtype)


def operator_cases() -> list[Case]:
    """Return models of one node: every kind of operator, some of several blocks of threads."""
    image, weights = numbers(2, 4, 11, 9), numbers(6, 4, 3, 3, seed=1)
    grouped, bias = numbers(4, 2, 3, 3, seed=2), numbers(6, seed=3)
    cases = [
        one(op, within(*pointwise.domain(op)), opset=pointwise.opset(op))
        for op in pointwise.UNARY
        if op != "Clip"
    ]
    cases += [one("IsNaN", X)]
    cases += [one("Gelu", X, approximate=how) for how in ("none", "tanh")]
    cases += [one(op, LONG, whole(1), constants=[1]) for op in REDUCTIONS]
    cases += [one(op, X, whole(1, -1), constants=[1], keepdims=0) for op in REDUCTIONS[:4]]
    cases += [one("ReduceSum", X), one("ReduceLogSum", POSITIVE, whole(0), constants=[1])]
    cases += [one("ReduceSum", numbers(3, 90, dtype="int32"), whole(1), constants=[1])]
    cases += [one(op, LONG, axis=1, keepdims=0) for op in ("ArgMax", "ArgMin")]
    cases += [one("ArgMax", numbers(5, 7), axis=0, select_last_index=1)]
    cases += [
        one(op, x, axis=a) for op in ("Softmax", "LogSoftmax") for x, a in ((LONG, -1), (X, 1))
    ]
    cases += [one("Softmax", X, opset=11, axis=2)]
    scale, shift = numbers(700, seed=5), numbers(700, seed=6)
    cases += [one("LayerNormalization", LONG, scale, shift), one("LayerNormalization", LONG, scale)]
    cases += [one("LayerNormalization", X, numbers(9, 8), numbers(9, 8, seed=1), axis=2)]
    cases += [one("RMSNormalization", X, numbers(8), opset=23)] if _has_opset(23) else []
    cases += [one("InstanceNormalization", X, numbers(6), numbers(6, seed=1))]
    cases += [one("GroupNormalization", X, numbers(6), numbers(6, seed=1), num_groups=3)]
    cases += [
        one("BatchNormalization", X, *(numbers(6, seed=s) for s in range(3)), POSITIVE[0, :6])
    ]
    for op in ("Add", "Sub", "Mul", "Div", "PRelu"):
        cases += [one(op, X, numbers(6, 1, 1, seed=7) + 3), one(op, X, numbers(2, 6, 9, 8, seed=8))]
    cases += [one(op, X, numbers(9, 1)) for op in ("Less", "GreaterOrEqual", "Equal")]
    a, b = numbers(5, 60, dtype="int32"), np.abs(numbers(60, dtype="int32", seed=1)) + 1
    cases += [one(op, a, b) for op in ("Add", "Mul", "Div", "Mod", "Max", "Min")]
    cases += [one("Mod", a, b, fmod=1), one("Mod", X, X[::-1] + 9, fmod=1)]
    cases += [one(op, MASK, ~MASK[:1]) for op in ("And", "Or", "Xor")]
    cases += [one("Not", MASK), one("Where", MASK, numbers(3, 5), numbers(2, 1, 1))]
    cases += [one("Pow", POSITIVE, np.float32([e]), constants=[1]) for e in (2, 0.5, 3, 1.7)]
    cases += [one(op, X, X[:1], X[0, 0]) for op in ("Sum", "Max", "Min", "Mean")]
    cases += [one("Clip", X, np.float32(-1), np.float32(1.5), constants=[1, 2])]
    cases += [one("Clip", X, None, np.float32(0.5)), one("Clip", X, opset=6, min=-0.5)]
    cases += [one("Cast", X, to=to) for to in (6, 7, 9, 11)]
    cases += [one("Cast", numbers(300, dtype="int64"), to=1)]
    cases += [one("Transpose", X, perm=p) for p in ([0, 2, 3, 1], [3, 1, 2, 0], [0, 1, 3, 2])]
    cases += [one("Reshape", X, whole(12, -1), constants=[1]), one("Flatten", X, axis=2)]
    ends = (whole(1, -1), whole(5, -99), whole(1, 3), whole(2, -2))
    cases += [one("Slice", X, *ends, constants=[1, 2, 3, 4])]
    cases += [one("Split", X, whole(1, 5), constants=[1], axis=1, outputs=2)]
    cases += [one("Split", LONG, axis=1, num_outputs=3, outputs=3)]
    cases += [one("Concat", X, X[:, :2], X[:, :1] + 1, axis=1), one("Concat", LONG, LONG, axis=0)]
    cases += [one("Expand", numbers(6, 1, 8), whole(2, 6, 9, 8), constants=[1])]
    cases += [one("Tile", numbers(2, 3, 4), whole(3, 1, 2), constants=[1])]
    pads = whole(0, 0, 2, 1, 0, 1, 3, 0)
    cases += [one("Pad", X, pads, constants=[1], mode=m) for m in ("constant", "edge", "reflect")]
    cases += [one("Pad", X, pads, np.float32(7), constants=[1, 2])]
    cases += [one("Gather", X, whole(0, -1, 3).reshape(3, 1), axis=a) for a in (1, 2, -1)]
    cases += [one("Gather", X, np.int64(2), constants=[1], axis=1)]
    cases += [one("GatherElements", LONG, numbers(3, 20, dtype="int64"), axis=1)]
    cases += [one("Trilu", X, whole(1).reshape(()), constants=[1], upper=u) for u in (0, 1)]
    cases += [one("DepthToSpace", numbers(1, 8, 3, 4), blocksize=2, mode=m) for m in ("DCR", "CRD")]
    cases += [one("SpaceToDepth", numbers(1, 2, 6, 4), blocksize=2)]
    nearest = {"mode": "nearest", "nearest_mode": "floor"}
    scales = np.float32([1, 1, 2, 3])
    how = {**nearest, "coordinate_transformation_mode": "asymmetric"}
    cases += [one("Resize", X, None, scales, constants=[2], **how)]
    cases += [one(op, X) for op in ("GlobalAveragePool", "GlobalMaxPool")]
    slide = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    cases += [one("MaxPool", X, **slide), one("MaxPool", X, **slide, ceil_mode=1)]
    cases += [one("MaxPool", X, kernel_shape=[2, 2], dilations=[2, 3])]
    cases += [one("AveragePool", X, **slide, count_include_pad=c) for c in (0, 1)]
    cases += [one("LRN", X, size=3, alpha=0.01, beta=0.6, bias=1.5)]
    fixed: dict[str, Any] = {"constants": [1, 2]}
    cases += [one("Conv", image, weights, bias, **fixed, pads=[1, 1, 1, 1])]
    cases += [one("Conv", image, weights, constants=[1], strides=[2, 3], dilations=[2, 1])]
    cases += [one("Conv", image, numbers(6, 4, 1, 1), bias, **fixed)]
    cases += [
        one("Conv", image, numbers(4, 1, 3, 3), constants=[1], group=4, auto_pad="SAME_UPPER")
    ]
    cases += [one("Conv", image, grouped, constants=[1], group=2)]
    cases += [one("Conv", numbers(3, 36, 7, 7), numbers(36, 18, 3, 3), constants=[1], group=2)]
    cases += [one("Conv", numbers(1, 36, 7, 7), numbers(36, 18, 1, 1), constants=[1], group=2)]
    cases += [one("Conv", numbers(2, 3, 40), numbers(5, 3, 7), constants=[1], pads=[3, 3])]
    cases += [one("Conv", numbers(1, 2, 5, 6, 4), numbers(3, 2, 2, 3, 2), constants=[1])]
    cases += [one("Conv", numbers(0, 3, 4, 4), numbers(5, 3, 1, 1), constants=[1])]
    upward = {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 0]}
    cases += [one("ConvTranspose", image, numbers(4, 3, 3, 4), numbers(3), **fixed, **upward)]
    cases += [one("ConvTranspose", image, numbers(4, 1, 2, 2), constants=[1], group=2)]
    same = {"group": 2, "strides": [2, 2], "auto_pad": "SAME_UPPER"}
    cases += [one("ConvTranspose", image, numbers(4, 1, 3, 3), constants=[1], **same)]
    shapes = [((4, 5), (5, 3)), ((2, 3, 4, 5), (5, 3)), ((2, 3, 4, 5), (2, 3, 5, 6))]
    shapes += [((3, 4, 5), (2, 1, 5, 6)), ((5,), (5, 3)), ((4, 5), (5,)), ((2, 1, 4, 5), (3, 5, 2))]
    cases += [one("MatMul", numbers(*a), numbers(*b, seed=1)) for a, b in shapes]
    cases += [one("MatMul", numbers(4, 5, dtype="int32"), numbers(5, 3, dtype="int32"))]
    for flips in ({}, {"transA": 1}, {"transB": 1, "alpha": 0.5, "beta": 2.0}):
        left = numbers(*((5, 4) if "transA" in flips else (4, 5)))
        right = numbers(*((6, 5) if "transB" in flips else (5, 6)), seed=1)
        cases += [one("Gemm", left, right, numbers(6), **flips), one("Gemm", left, right, **flips)]
    points = (np.float32([0.1, 0.2, 0.05, 0.3, 0.02, 0.4]), np.uint8([3, 0, 9, 128, 255, 7]))
    cases += [one("QuantizeLinear", X, *points, axis=1)]
    cases += [one("DequantizeLinear", numbers(2, 6, 50, dtype="uint8"), *points, axis=1)]
    return cases


def in_half_precision(case: Case) -> Case:
    """Return a model with half-precision numbers in the place of single ones."""
    proto = onnx.ModelProto()
    proto.CopyFrom(case.proto)
    single, half = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
    for value in (*proto.graph.input, *proto.graph.output):
        if value.type.tensor_type.elem_type == single:
            value.type.tensor_type.elem_type = half
    for constant in proto.graph.initializer:
        if constant.data_type == single:
            array = onnx.numpy_helper.to_array(constant).astype(np.float16)
            constant.CopyFrom(onnx.numpy_helper.from_array(array, constant.name))
    del proto.graph.value_info[:]
    given = {
        name: array.astype(np.float16) if array.dtype == np.float32 else array
        for name, array in case.inputs.items()
    }
    return Case(f"{case.name} in half precision", proto, given)


NEED_SINGLE = {"Cast", "Resize", "QuantizeLinear", "DequantizeLinear"}
"""Operators with a float whose type is fixed."""


def half_cases() -> list[Case]:
    """Return a model of one node in half precision for each operator of real numbers."""
    found: dict[str, Case] = {}
    for case in operator_cases():
        (node,), (opset,) = case.proto.graph.node, case.proto.opset_import
        schema = onnx.defs.get_schema(node.op_type, opset.version)
        takes_half = any("tensor(float16)" in each.types for each in schema.inputs)
        if takes_half and node.op_type not in NEED_SINGLE and np.dtype("f4") in _types(case):
            found.setdefault(node.op_type, in_half_precision(case))
    grouped = one("Conv", numbers(2, 36, 7, 7), numbers(36, 18, 3, 3), constants=[1], group=2)
    narrow = one("Conv", numbers(1, 4, 7, 7), numbers(4, 1, 3, 3), constants=[1], group=4)
    return [*found.values(), in_half_precision(grouped), in_half_precision(narrow)]


def _types(case: Case) -> list[Any]:
    return [array.dtype for array in case.inputs.values()]


def _has_opset(version: int) -> bool:
    return onnx.defs.onnx_opset_version() >= version and not onnxruntime.__version__ < "1.23"


def expected(case: Case) -> list[np.ndarray]:
    """Return what ONNX Runtime computes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    text = case.proto.SerializeToString()
    session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, dict(case.inputs))
    return found


def assert_equal(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], name: str) -> None:
    for got, right in zip(found, wanted, strict=True):
        assert (got.shape, got.dtype) == (right.shape, right.dtype), name
        if right.dtype.kind == "f":
            close = 4e-3 if right.dtype == np.float16 else 2e-5
            np.testing.assert_allclose(got, right, rtol=close, atol=close, err_msg=name)
        else:
            np.testing.assert_array_equal(got, right, err_msg=name)


class Ready(NamedTuple):
    """A case with its plan and its work."""

    case: Case
    graph: ap.Graph
    plan: ap.Plan
    program: DeviceProgram


@cache
def prepared() -> list[Ready]:
    """Return the cases of single operators with their work."""
    found = []
    for case in [*operator_cases(), *half_cases()]:
        graph = load_onnx(case.proto)
        plan = ap.plan(graph, target="cupy")
        found.append(Ready(case, graph, plan, device_program(graph, plan)))
    return found


@cache
def functions() -> dict[str, Any]:
    """Return the kernels of all cases, compiled for the host at once."""
    kernels: dict[str, DeviceKernel] = {}
    for ready in prepared():
        kernels.update({kernel.name: kernel for kernel in ready.program.kernels})
    return compiled(list(kernels.values()))


def gpu() -> Device:
    """Return the first CUDA device, or skip."""
    try:
        return open_device("cuda")
    except ap.errors.ExecutionError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("device", ["host", "cuda"])
def test_every_operator_computes_what_onnx_runtime_does(device: str) -> None:
    found = gpu() if device == "cuda" else None
    for case, graph, plan, _ in prepared():
        host = HostDevice(functions=functions())
        with ap.Executor(graph, plan, device=found or host) as executor:
            assert_equal(list(executor.run(case.inputs).values()), expected(case), case.name)
            again = executor.run(case.inputs)
            assert_equal(list(again.values()), expected(case), case.name)
            assert executor.program.outside_bytes == 0, case.name
        assert all(memory.is_intact() for memory in host.memories), case.name


def test_every_operator_that_is_supported_is_among_the_cases() -> None:
    tested = {node.op_type for case in operator_cases() for node in case.proto.graph.node}
    others = {"Acos", "Acosh", "Asin", "Atanh", "Swish", "CastLike", "IsInf", "Dropout", "Upsample"}
    others |= {"BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Greater", "LessOrEqual"}
    others |= {"Squeeze", "Unsqueeze", "RMSNormalization"}
    assert set(supported_ops()) - tested <= others


# -- models ---------------------------------------------------------------------------------


def inverted_residual() -> Case:
    """Return two blocks as in MobileNet-v2, with a residual, and a classifier."""
    random = {
        "x": numbers(1, 8, 12, 12),
        "we": numbers(24, 8, 1, 1, seed=1),
        "wd": numbers(24, 1, 3, 3, seed=2),
        "wp": numbers(8, 24, 1, 1, seed=3) / 5,
        "w": numbers(16, 8, 3, 3, seed=4) / 5,
        "low": np.float32(0),
        "high": np.float32(6),
        "wf": numbers(16, 10, seed=5),
        "bf": numbers(10, seed=6),
    }
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "we"], ["e"]),
        node("Clip", ["e", "low", "high"], ["ec"]),
        node("Conv", ["ec", "wd"], ["d"], group=24, pads=[1, 1, 1, 1]),
        node("Clip", ["d", "low", "high"], ["dc"]),
        node("Conv", ["dc", "wp"], ["p"]),
        node("Add", ["x", "p"], ["r"]),
        node("Conv", ["r", "w"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["cr"]),
        node("GlobalAveragePool", ["cr"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "wf", "bf"], ["y"]),
    ]
    return model("mobile", nodes, random, ["y"], set(random) - {"x"})


def attention_block() -> Case:
    """Return a transformer block: attention of two heads, decomposed Gelu, residuals."""
    random = {
        "x": numbers(1, 7, 16),
        "scale": numbers(16, seed=1),
        "shift": numbers(16, seed=2),
        **{f"w{name}": numbers(16, 16, seed=3 + at) / 4 for at, name in enumerate("qkvo")},
        "w1": numbers(16, 32, seed=8) / 4,
        "w2": numbers(32, 16, seed=9) / 4,
        "split": whole(1, 7, 2, 8),
        "join": whole(1, 7, 16),
        "root": np.float32(8**0.5),
        "sqrt2": np.float32(2**0.5),
        "half": np.float32(0.5),
        "one": np.float32(1),
        "mask": np.triu(np.full((7, 7), -1e9, np.float32), 1),
    }
    node = helper.make_node
    nodes = [node("LayerNormalization", ["x", "scale", "shift"], ["n"])]
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            node("MatMul", ["n", f"w{name}"], [f"{name}0"]),
            node("Reshape", [f"{name}0", "split"], [f"{name}1"]),
            node("Transpose", [f"{name}1"], [name], perm=order),
        ]
    nodes += [
        node("MatMul", ["q", "k"], ["s0"]),
        node("Div", ["s0", "root"], ["s1"]),
        node("Add", ["s1", "mask"], ["s2"]),
        node("Softmax", ["s2"], ["s"], axis=-1),
        node("MatMul", ["s", "v"], ["o0"]),
        node("Transpose", ["o0"], ["o1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["o1", "join"], ["o2"]),
        node("MatMul", ["o2", "wo"], ["o"]),
        node("Add", ["x", "o"], ["r"]),
        node("MatMul", ["r", "w1"], ["h"]),
        node("Div", ["h", "sqrt2"], ["g0"]),
        node("Erf", ["g0"], ["g1"]),
        node("Add", ["g1", "one"], ["g2"]),
        node("Mul", ["h", "g2"], ["g3"]),
        node("Mul", ["g3", "half"], ["g"]),
        node("MatMul", ["g", "w2"], ["m"]),
        node("Add", ["r", "m"], ["y"]),
    ]
    return model("attention", nodes, random, ["y"], set(random) - {"x"})


MODELS = {"mobile": inverted_residual, "attention": attention_block}


@cache
def model_kernels(name: str) -> tuple[Case, ap.Graph, dict[str, Any]]:
    """Return a model, and its kernels compiled for every plan that the tests make."""
    case = MODELS[name]()
    graph = load_onnx(case.proto)
    kernels: dict[str, DeviceKernel] = {}
    for workers in (1, 3):
        for options in ({}, {"optimize": "none"}, {"max_slowdown": None}, {"workspace": "none"}):
            plan = ap.plan(graph, target="cupy", workers=workers, **options)
            kernels.update({k.name: k for k in device_program(graph, plan, workers).kernels})
    return case, graph, compiled(list(kernels.values()))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "options", [{}, {"optimize": "none"}, {"max_slowdown": None}, {"workspace": "none"}]
)
@pytest.mark.parametrize("streams", [1, 3])
def test_a_model_computes_the_same_with_every_plan_and_in_every_order_of_streams(
    name: str, options: dict[str, Any], streams: int
) -> None:
    case, graph, functions = model_kernels(name)
    plan = ap.plan(graph, target="cupy", workers=streams, **options)
    wanted = expected(case)
    for seed in range(4):
        device = HostDevice(seed, functions)
        for capture in (False, True):
            with ap.Executor(
                graph, plan, device=device, workers=streams, capture=capture
            ) as executor:
                assert isinstance(executor, DeviceExecutor)
                for _ in range(3):
                    assert_equal(list(executor.run(case.inputs).values()), wanted, name)
                assert executor.replays == capture
        assert all(memory.is_intact() for memory in device.memories)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("capture", [False, True])
def test_a_model_computes_the_same_on_a_gpu(name: str, streams: int, capture: bool) -> None:
    device = gpu()
    case = MODELS[name]()
    graph = load_onnx(case.proto)
    for options in ({}, {"optimize": "none"}, {"max_slowdown": None}, {"workspace": "none"}):
        plan = ap.plan(graph, target="cupy", workers=streams, **options)
        with ap.Executor(graph, plan, device=device, workers=streams, capture=capture) as executor:
            assert isinstance(executor, DeviceExecutor)
            for _ in range(4):
                found = executor.run(case.inputs)
                assert_equal(list(found.values()), expected(case), name)
            assert executor.replays == capture


def test_memory_of_cupy_is_the_arena_on_a_gpu() -> None:
    device = gpu()
    library = pytest.importorskip("cupy")
    case = MODELS["mobile"]()
    graph = load_onnx(case.proto)
    plan = ap.plan(graph, target="cupy")
    memory = library.zeros(plan.arena_bytes + 256, dtype="uint8")

    class OnlyDlpack:
        """The memory, by DLPack alone."""

        __dlpack__ = memory.__dlpack__
        __dlpack_device__ = memory.__dlpack_device__

    for arena in (memory, OnlyDlpack()):
        memory.fill(0)
        with ap.Executor(graph, plan, device=device, arena=arena) as executor:
            assert_equal(list(executor.run(case.inputs).values()), expected(case), "adopted")
        assert bool(memory[: plan.arena_bytes].any())
        assert not bool(memory[plan.arena_bytes :].any())
    with raises("MisalignedBuffer"):
        ap.Executor(graph, plan, device=device, arena=memory[4:])


def test_a_wait_that_is_missing_shows() -> None:
    case, graph, functions = model_kernels("attention")
    plan = ap.plan(graph, target="cupy", workers=3)
    program = device_program(graph, plan, 3)
    assert program.schedule.streams > 1
    assert any(program.schedule.waits)
    wrong = 0
    for seed in range(8):
        with ap.Executor(graph, plan, device=HostDevice(seed, functions), workers=3) as executor:
            assert isinstance(executor, DeviceExecutor)
            good = executor.program.schedule
            none = Schedule(good.streams, good.stream, ((),) * len(good.waits), good.recorded)
            rewired = replace(executor.program, schedule=none)
            executor.program = rewired
            executor._bound = type(executor._bound)(executor, None)  # type: ignore[misc]
            (found,) = executor.run(case.inputs).values()
            wrong += not np.allclose(found, expected(case)[0], atol=1e-4)
    assert wrong


# -- plans and memory -----------------------------------------------------------------------


def test_offsets_are_aligned_and_every_place_is_inside_its_memory() -> None:
    _, graph, _ = model_kernels("mobile")
    plan = ap.plan(graph, target="cupy")
    program = device_program(graph, plan)
    assert plan.alignment == 256
    assert program.arena_bytes == plan.arena_bytes
    assert program.outside_bytes == 0
    for step in program.steps:
        for place, (memory, start, stop) in step.spans.items():
            limit = program.arena_bytes if memory == ARENA else program.constant_bytes
            assert 0 <= start <= stop <= limit, place
    assert all(start % 256 == 0 for _, start, _ in program.constants.values())


def chain(length: int, op: str = "Sigmoid") -> ap.Graph:
    """Return a product of a value with a chain of functions of it."""
    random = {"x": numbers(64, 50), "w": numbers(50, 40)}
    names = [f"t{at}" for at in range(length + 1)]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t0"])]
    nodes += [helper.make_node(op, [a], [b]) for a, b in pairwise(names)]
    nodes += [helper.make_node("Mul", [names[-1], "t0"], ["y"])]
    return load_onnx(model("chain", nodes, random, ["y"], {"w"}).proto)


def test_nodes_that_run_as_one_are_one_kernel_whose_inner_values_have_no_memory() -> None:
    graph = chain(3)
    plan = ap.plan(graph, target="cupy", steps=[[0], [1, 2, 3, 4]])
    program = device_program(graph, plan)
    assert [len(step.works) for step in program.steps] == [1, 1]
    assert not plan.workspaces
    (kernel,) = program.kernels
    assert kernel.stem == "mul"
    assert kernel.text.count("expf") == 3


def test_a_product_inside_of_a_group_is_written_to_the_output_or_to_scratch_memory() -> None:
    graph = chain(1)
    plan = ap.plan(graph, target="cupy", steps=[[0, 1, 2]])
    program = device_program(graph, plan)
    size = 64 * 40 * 4
    assert [work.bytes for work in plan.workspaces] in ([], [size])
    with ap.Executor(graph, plan, device=HostDevice()) as executor:
        executor.run({"x": numbers(64, 50)}, verify=True)
    assert program.outside_bytes == 0


def test_the_text_of_a_kernel_is_this() -> None:
    graph = ap.Graph()
    x = graph.input("x", (2, 3))
    (y,) = graph.node("Neg", [x], [("y", (2, 3), "float32")])
    (z,) = graph.node("Transpose", [y], [("z", (3, 2), "float32")], attributes={"perm": [1, 0]})
    graph.output(z)
    (work,) = StepLowering(graph, [0, 1]).works([])
    assert isinstance(work, Launch)
    kernel = work.kernel
    assert kernel.text == (
        f"KERNEL {kernel.name}(const float * p0, float * p1) {{\n"
        "    PHASE(t) {\n"
        "        const int i = (int)(BLOCK * 256 + t);\n"
        "        if (i < 6) {\n"
        "            const float v0 = p0[(i / 2 + (i % 2) * 3)];\n"
        "            const float v1 = -v0;\n"
        "            p1[i] = v1;\n"
        "        }\n"
        "    }\n"
        "}\n"
    )


def test_equal_models_give_equal_text() -> None:
    sources = []
    for _ in range(2):
        graph = load_onnx(attention_block().proto)
        sources.append(device_program(graph, ap.plan(graph, target="cupy")).source)
    assert sources[0] == sources[1]


def test_indices_of_strided_arrays_are_those_of_numpy() -> None:
    image = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    for view in (image, image.transpose(2, 0, 3, 1), image[:, ::2, 1:, ::-1], image[:, :1]):
        start = (view.__array_interface__["data"][0] - image.ctypes.data) // image.itemsize
        strides = [step // image.itemsize for step in view.strides]
        text = strided_index("i", view.shape, strides, start).replace("/", "//")
        at = eval(f"lambda i: {text}")
        assert [image.flat[at(i)] for i in range(view.size)] == list(view.flat)


@pytest.mark.parametrize(
    ("number", "dtype", "text"),
    [
        (1.0, "float32", "1.0f"),
        (0.1, "float32", "0.100000001f"),
        (1e30, "float32", "1.00000002e+30f"),
        (-np.inf, "float32", "(float)-INFINITE"),
        (np.nan, "float64", "(double)NO_NUMBER"),
        (-(2**63), "int64", "(long long)(-9223372036854775807ll - 1)"),
        (True, "bool", "true"),
    ],
)
def test_numbers_are_written_so_that_no_digit_is_lost(number: Any, dtype: str, text: str) -> None:
    assert literal(number, np.dtype(dtype)) == text


def test_memory_of_the_caller_is_used_and_checked() -> None:
    case, graph, functions = model_kernels("mobile")
    plan = ap.plan(graph, target="cupy")
    memory = np.zeros(plan.arena_bytes + 512, np.uint8)
    start = -memory.ctypes.data % 256
    own = memory[start : start + plan.arena_bytes]
    device = HostDevice(functions=functions)
    with ap.Executor(graph, plan, device=device, arena=own) as executor:  # type: ignore[arg-type]
        assert_equal(list(executor.run(case.inputs).values()), expected(case), "adopted")
    assert own.any()
    for arena, error in (
        (own[:-256], CapacityExceeded),
        (memory[start + 4 :], "MisalignedBuffer"),
        (bytearray(plan.arena_bytes), "InvalidBuffer"),
    ):
        with raises(error):
            ap.Executor(graph, plan, device=device, arena=arena)  # type: ignore[arg-type]


# -- refusals -------------------------------------------------------------------------------


def test_operators_that_nothing_runs_are_listed_by_name() -> None:
    graph = ap.Graph()
    x = graph.input("x", (4,))
    for op in ("Zig", "Zag"):
        (x,) = graph.node(op, [x], [(op, (4,), "float32")], name=op.lower())
    graph.output(x)
    with pytest.raises(UnsupportedOp, match=r"Zag \('zag'\), Zig \('zig'\)"):
        ap.Executor(graph, device=HostDevice())


# -- on the host ----------------------------------------------------------------------------


@pytest.mark.parametrize("case", operator_cases_of_numpy(), ids=lambda case: case.op)
def test_every_operator_that_numpy_runs_runs_on_a_device(case: Any) -> None:
    """As text, which other tests run, or by a call that gives what NumPy's executor does."""
    graph, feed = case.graph(), case.feed()
    plan = ap.plan(graph, target="cupy")
    program = device_program(graph, plan)
    if not program.host_calls:
        assert {node.op for node in graph.nodes} <= {*supported_ops()}
        return
    device = HostDevice()
    with ap.Executor(graph) as reference, ap.Executor(graph, plan, device=device) as executor:
        assert isinstance(executor, DeviceExecutor)
        for _ in range(2):
            found, wanted = executor.run(feed), reference.run(feed)
            assert_equal(list(found.values()), list(wanted.values()), case.op)
        assert executor.host_nodes
        assert executor.host_bytes > 0
    assert all(memory.is_intact() for memory in device.memories)


def sorted_sums() -> Case:
    """Return operators of which the host runs some, beside each other."""
    random = {"x": numbers(6, 40), "k": whole(20), "axis": np.array(1), "w": numbers(20, 20)}
    node = helper.make_node
    nodes = [
        node("Sigmoid", ["x"], ["s"]),
        node("TopK", ["s", "k"], ["v", "i"]),
        node("CumSum", ["v", "axis"], ["c"], name="sums"),
        node("MatMul", ["v", "w"], ["m"]),
        node("Neg", ["m"], ["n"]),
        node("Add", ["c", "n"], ["y"]),
    ]
    return model("sorted", nodes, random, ["y", "i"], {"k", "axis", "w"})


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("options", [{}, {"optimize": "none"}, {"workspace": "none"}])
def test_nodes_on_the_host_wait_for_every_order_of_streams(
    options: dict[str, Any], streams: int
) -> None:
    case = sorted_sums()
    graph, wanted = load_onnx(case.proto), expected(case)
    plan = ap.plan(graph, target="cupy", workers=streams, **options)
    for seed in range(4):
        with ap.Executor(graph, plan, device=HostDevice(seed), workers=streams) as executor:
            for _ in range(3):
                assert_equal(list(executor.run(case.inputs, verify=True).values()), wanted, "y")
            assert executor.host_nodes == (graph.nodes[1].name, "sums")  # type: ignore[attr-defined]
    with pytest.raises(InvalidOption, match=r"'sums' run on the host"):
        ap.Executor(graph, device=HostDevice(), capture=True)


def test_random_numbers_depend_on_the_seed_and_the_number_of_the_run() -> None:
    node = helper.make_node("RandomNormalLike", ["x"], ["y"])
    graph = load_onnx(model("random", [node], {"x": numbers(40)}, ["y"], set()).proto)
    found = []
    for seed in (1, 1, 2):
        with ap.Executor(graph, device=HostDevice(), seed=seed) as executor:
            runs = [executor.run({"x": numbers(40)}, verify=True)["y"] for _ in range(2)]
            assert (executor.seed, executor.runs) == (seed, 2)
            found.append(np.concatenate(runs))
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0][:40], found[0][40:])
    assert not np.array_equal(found[0], found[2])


def test_types_without_text_are_computed_on_the_host() -> None:
    waves = ap.Graph()
    x = waves.input("x", (4,), "complex64")
    (made,) = waves.node("Cos", [x], [("y", (4,), "complex64")])
    waves.output(made)
    given = np.array([1, 2j, 3, 4], np.complex64)
    with ap.Executor(waves, device=HostDevice()) as executor:
        np.testing.assert_allclose(executor.run({"x": given})["y"], np.cos(given), rtol=1e-6)


def test_an_operand_that_is_joined_twice_is_in_both_places() -> None:
    """One of them is in its place before, and the result waits since another place reads it."""
    random = {"x": np.abs(numbers(1, 2, 9, 8)), "z": numbers(1, 2, 9, 8)}
    nodes = [
        helper.make_node("Sqrt", ["x"], ["a"]),
        helper.make_node("Concat", ["z", "a", "a", "z"], ["y"], axis=1),
    ]
    case = model("twice", nodes, random, ["y"], set())
    graph = load_onnx(case.proto)
    for options in ({}, {"optimize": "none"}, {"workspace": "none"}):
        plan = ap.plan(graph, target="cupy", **options)
        with ap.Executor(graph, plan, device=HostDevice()) as executor:
            assert_equal(list(executor.run(case.inputs).values()), expected(case), "twice")


def test_plans_for_others_and_options_without_meaning_are_refused() -> None:
    graph = chain(1)
    with pytest.raises(TargetMismatch, match="'numpy'"):
        ap.Executor(graph, ap.plan(graph, target="numpy"), device=HostDevice())
    with pytest.raises(InvalidOption, match="not cpu, cuda or cuda:NUMBER"):
        ap.Executor(graph, device="gpu")
    with pytest.raises(InvalidOption, match="nothing to record"):
        ap.Executor(graph, capture=True)
    executor = ap.Executor(graph, device=HostDevice())
    executor.close()
    with raises("ArenaState"):
        executor.run({"x": numbers(64, 50)})


def test_a_result_that_differs_from_numpy_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chain(1)
    with ap.Executor(graph, device=HostDevice()) as executor:
        monkeypatch.setattr("arenaplan.run.cuda.device_executor._CLOSE", {("f", 4): -1.0})
        with raises("VerificationError", match="output 'y'"):
            executor.run({"x": numbers(64, 50)}, verify=True)
