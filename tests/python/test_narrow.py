"""Element types that NumPy has not: in arenas, in kernels, and at the ends of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import arenaplan as ap
from arenaplan.base.errors import UnsupportedDtype
from arenaplan.formats.onnx import load_onnx
from arenaplan.run.numpy.narrow import pack, unpack
from raising import raises

ml_dtypes = pytest.importorskip("ml_dtypes")
RNG = np.random.default_rng(20261122)
PACKED = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}
CODES = {"bfloat16": 16, "float8_e4m3fn": 17, "float8_e5m2": 19, "uint4": 21, "int4": 22}
CODES |= {"float4_e2m1fn": 23, "uint2": 25, "int2": 26}


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name))


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 9000])
def test_what_is_packed_can_be_unpacked(bits: int, count: int) -> None:
    for signed in (False, True):
        low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
        elements = RNG.integers(low, high, count).astype(np.int8)
        packed = np.full(-(-count * bits // 8), 0xEE, np.uint8)
        pack(elements.view(np.uint8), packed, bits)
        back = np.full(count, 0x77, np.int8)
        unpack(packed, back, bits, signed=signed)
        np.testing.assert_array_equal(back, elements)
    if count == 5 and bits == 4:  # The first element is in the lowest bits, the rest is zero.
        pack(np.array([1, 2, 3, 4, 5], np.uint8), packed, 4)
        assert packed.tolist() == [0x21, 0x43, 0x05]


def chain(name: str, shape: tuple[int, ...]) -> ap.Graph:
    """Return a graph that converts to a type, moves its elements and converts back."""
    code = CODES[name]
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], to=code),
        helper.make_node("Transpose", ["narrow"], ["turned"], perm=[1, 0]),
        helper.make_node("Concat", ["turned", "turned"], ["twice"], axis=0),
        helper.make_node("Cast", ["twice"], ["y"], to=1),
    ]
    rows, columns = shape
    given = helper.make_tensor_value_info("x", 1, shape)
    made = [helper.make_tensor_value_info("y", 1, (2 * columns, rows))]
    made.append(helper.make_tensor_value_info("twice", code, (2 * columns, rows)))
    model = helper.make_model(
        helper.make_graph(nodes, "chain", [given], made),
        opset_imports=[helper.make_opsetid("", 25)],
        ir_version=13,
    )
    return load_onnx(model)


@pytest.mark.parametrize("name", CODES)
def test_narrow_values_are_moved_and_handed_out(name: str) -> None:
    x = RNG.integers(0, 2, (5, 7)).astype(np.float32)
    with ap.Executor(chain(name, x.shape)) as executor:
        for verify in (True, False):
            results = executor.run({"x": x}, verify=verify)
    np.testing.assert_array_equal(results["y"], np.concatenate([x.T, x.T]))
    assert results["twice"].dtype == dtype_of(name)
    np.testing.assert_array_equal(results["twice"].astype(np.float32), results["y"])


@pytest.mark.parametrize("name", PACKED)
def test_elements_smaller_than_a_byte_are_packed_in_the_arena(name: str) -> None:
    graph = chain(name, (64, 64))
    narrow = next(value for value in graph.values if value.name == "narrow")
    plan = ap.plan(graph, optimize="none", target="numpy")
    place = plan.placements[narrow.index]
    assert place is not None
    assert place.bytes == 64 * 64 * PACKED[name] // 8


@pytest.mark.parametrize("name", ["int4", "uint2", "float4_e2m1fn", "bfloat16"])
def test_inputs_and_constants_may_be_narrow(name: str) -> None:
    dtype = dtype_of(name)
    given = RNG.integers(0, 2, (3, 5)).astype(np.float32).astype(dtype)
    stored = RNG.integers(0, 2, (2, 5)).astype(np.float32).astype(dtype)
    graph = ap.Graph()
    x = graph.input("x", (3, 5), name)
    c = graph.constant("c", (2, 5), name, stored)
    (both,) = graph.node("Concat", [x, c], [("both", (5, 5), name)], attributes={"axis": 0})
    (y,) = graph.node("Cast", [both], [("y", (5, 5), "float32")], version=21)
    graph.output(y)
    with ap.Executor(graph) as executor:
        got = executor.run({"x": given}, verify=True)["y"]
    np.testing.assert_array_equal(got, np.concatenate([given, stored]).astype(np.float32))


def test_bfloat16_is_computed_in_float32_and_rounded_once() -> None:
    a, b = (RNG.standard_normal((40, 60)).astype(ml_dtypes.bfloat16) for _ in range(2))
    graph = ap.Graph()
    inputs = [graph.input(name, (40, 60), "bfloat16") for name in "ab"]
    (t,) = graph.node("Transpose", inputs[1:], [("t", (60, 40), "bfloat16")])
    (p,) = graph.node("MatMul", [inputs[0], t], [("p", (40, 40), "bfloat16")], version=13)
    (y,) = graph.node("Softmax", [p], [("y", (40, 40), "bfloat16")], version=13)
    graph.output(p)
    graph.output(y)
    with ap.Executor(graph) as executor:
        got = executor.run({"a": a, "b": b}, verify=True)
    product = a.astype(np.float32) @ b.astype(np.float32).T
    np.testing.assert_array_equal(got["p"], product.astype(ml_dtypes.bfloat16))
    powers = np.exp(got["p"].astype(np.float32))
    expected = (powers / powers.sum(1, keepdims=True)).astype(ml_dtypes.bfloat16)
    error = np.abs(got["y"].astype(np.float32) / expected.astype(np.float32) - 1).max()
    assert error <= 2**-7


@pytest.mark.parametrize("saturate", [0, 1])
def test_what_is_too_large_saturates_if_asked_for(saturate: int) -> None:
    x = np.array([1e9, -1e9, 2.0, np.inf], np.float32)
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN, saturate=saturate)
    given = helper.make_tensor_value_info("x", 1, (4,))
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT8E4M3FN, (4,))
    model = helper.make_model(
        helper.make_graph([node], "cast", [given], [made]),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    with ap.Executor(load_onnx(model)) as executor:
        got = executor.run({"x": x})["y"].astype(np.float32)
    wanted = [448, -448, 2, 448] if saturate else [np.nan, np.nan, 2, np.nan]
    np.testing.assert_array_equal(got, wanted)


def test_arithmetic_in_four_bits_is_refused_by_name() -> None:
    graph = ap.Graph()
    x = graph.input("x", (4,), "int4")
    (y,) = graph.node("Add", [x, x], [("y", (4,), "int4")], name="sum", version=21)
    graph.output(y)
    with pytest.raises(UnsupportedDtype, match=r"'sum' \(Add\).*int4"):
        ap.Executor(graph)


def test_packed_values_take_no_buffers_of_callers() -> None:
    graph = ap.Graph()
    x = graph.input("x", (4,), "int4")
    (y,) = graph.node("Cast", [x], [("y", (4,), "int8")], version=21)
    graph.output(y)
    plan = ap.plan(graph, inputs="caller", target="numpy")
    with raises("InvalidBuffer", match="int4"):
        ap.Executor(graph, plan, buffers={"x": np.zeros(4, ml_dtypes.int4)})
    with ap.Executor(graph, plan) as executor:
        got = executor.run({"x": np.array([-8, -1, 0, 7], ml_dtypes.int4)})["y"]
    assert got.tolist() == [-8, -1, 0, 7]
