"""Elementwise kernels: in place as apart, block by block as at once, and exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arenaplan as ap
from arenaplan.base.errors import InvalidAttribute, InvalidOperand, ShapeMismatch
from arenaplan.run.numpy import compiled
from arenaplan.run.numpy.kernels.pieces import boxes
from light_node import (
    BINARY,
    FLOATS,
    LONG,
    RNG,
    SIGNED,
    UNARY,
    UNSIGNED,
    Array,
    Node,
    aligned,
    blank,
    compute,
    ints,
    peak_of,
    result_type,
    values,
)

# -- in place ------------------------------------------------------------------------
from single_node import node_model


def assert_same_in_place(
    op: str, inputs: Sequence[Array], shape: Sequence[int], dtype: str, **options: Any
) -> None:
    """Run a node apart and in place of every input that is large enough; the bytes must agree."""
    expected = compute(op, [array.copy() for array in inputs], shape, dtype, **options)
    for position, array in enumerate(inputs):
        if array.shape != tuple(shape) or array.itemsize < expected.itemsize:
            continue
        operands = [each.copy() for each in inputs]
        memory = aligned(array.nbytes)
        memory[:] = array.reshape(-1).view(np.uint8)
        operands[position] = memory.view(array.dtype).reshape(array.shape)
        output = memory[: expected.nbytes].view(dtype).reshape(shape)
        got = Node(op, operands, [output], **options).run()
        assert got.tobytes() == expected.tobytes(), (op, array.dtype, position)


@pytest.mark.parametrize(
    ("op", "dtype"), [(op, dtype) for op, (dtypes, _) in UNARY.items() for dtype in dtypes]
)
def test_an_elementwise_function_writes_the_same_in_place(op: str, dtype: str) -> None:
    x = values((LONG,), dtype)
    assert_same_in_place(op, [x], x.shape, result_type(op, dtype), **UNARY[op][1])


@pytest.mark.parametrize(
    ("op", "dtype"), [(op, dtype) for op, (dtypes, _) in BINARY.items() for dtype in dtypes]
)
@pytest.mark.parametrize("other", [(7, 6, 2400), (), (6, 1), (2400,), (1, 6, 1)])
def test_a_function_of_two_operands_writes_the_same_in_place(
    op: str, dtype: str, other: tuple[int, ...]
) -> None:
    a, b = values((7, 6, 2400), dtype), np.asarray(values(other, dtype))
    if op in ("BitShift", "Div", "Mod") and a.dtype.kind in "iu":
        a[a == 0], b[b == 0] = 3, 3
    assert_same_in_place(op, [a, b], a.shape, result_type(op, dtype), **BINARY[op][1])
    if op != "PRelu":
        assert_same_in_place(op, [b, a], a.shape, result_type(op, dtype), **BINARY[op][1])


@pytest.mark.parametrize("op", ["Sum", "Max", "Min"])
def test_many_operands_are_combined_from_the_left_whichever_is_overwritten(op: str) -> None:
    inputs = [values((2, LONG // 2), "float32") for _ in range(4)]
    inputs.insert(1, values((LONG // 2,), "float32"))
    assert_same_in_place(op, inputs, (2, LONG // 2), "float32")


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "float32", "int64"])
@pytest.mark.parametrize("mask", [(3, 30_000), (3, 1)])
def test_where_writes_the_same_in_place_of_any_operand(dtype: str, mask: tuple[int, int]) -> None:
    shape = (3, 30_000)
    a, b = values(shape, dtype), values(shape, dtype)
    inputs = [values(mask, bool), a, b]
    expected = np.where(inputs[0], a, b)
    assert compute("Where", inputs, shape, dtype).tobytes() == expected.tobytes()
    assert_same_in_place("Where", inputs, shape, dtype)
    assert_same_in_place("Where", [inputs[0], a, values((), dtype)], shape, dtype)


STANDARD = ("bool", *SIGNED, *UNSIGNED, *FLOATS)


@pytest.mark.parametrize(("source", "target"), list(product(STANDARD, STANDARD)))
def test_a_cast_in_place_writes_what_astype_does(source: str, target: str) -> None:
    x = (
        np.absolute(values((LONG,), source, special=False))
        if source != "bool"
        else values((LONG,), source)
    )
    assert compute("Cast", [x], x.shape, target).tobytes() == x.astype(target).tobytes()
    assert_same_in_place("Cast", [x], x.shape, target)


def test_a_comparison_in_place_needs_no_copy_of_its_operand() -> None:
    x, y = values((400_000,), "float32"), values((400_000,), "float32")
    node = Node("Less", [x, y], [x.view(bool)[: x.size]])
    assert peak_of(node) < 16 << 10


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0, 0.5, -1.5])
def test_a_power_with_a_constant_exponent_equals_the_general_one(exponent: float) -> None:
    x = np.absolute(values((LONG,), "float32", special=False))
    number = np.array(exponent, np.float32)
    got = compute("Pow", [x, number], x.shape, constants=[1])
    np.testing.assert_allclose(got, x**number, rtol=1e-6)
    assert_same_in_place("Pow", [x, number], x.shape, "float32", constants=[1])


def test_an_exponent_may_have_another_type_and_be_overwritten() -> None:
    x, exponent = values((LONG,), "float32"), RNG.integers(0, 4, LONG)
    assert_same_in_place("Pow", [x, exponent], x.shape, "float32")
    np.testing.assert_allclose(compute("Pow", [x, exponent], x.shape), x**exponent, rtol=1e-6)


# -- blocks ---------------------------------------------------------------------------


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_boxes_cover_a_range_of_elements_once_and_in_order(shape: list[int], data: Any) -> None:
    size = math.prod(shape)
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    numbers = np.arange(size).reshape(shape)
    found = [n for box in boxes(shape, start, stop) for n in numbers[box].reshape(-1).tolist()]
    assert found == list(range(start, stop))
    assert all(numbers[box].flags.c_contiguous for box in boxes(shape, start, stop))


@pytest.mark.parametrize(
    ("op", "count"), [("Gelu", 1), ("Erf", 1), ("Mish", 1), ("PRelu", 2), ("Sum", 3), ("Elu", 1)]
)
def test_every_choice_of_workspace_gives_the_same_bits(op: str, count: int) -> None:
    inputs = [values((2, 3, LONG // 6), "float32") for _ in range(count)]
    with compiled.disabled():
        assert_choices_agree(op, inputs)


def assert_choices_agree(op: str, inputs: list[np.ndarray]) -> None:
    sizes = {choice.bytes for choice in Node(op, inputs, [blank(inputs[0].shape)]).choices[0]}
    assert len(sizes) == 3
    results = {compute(op, inputs, inputs[0].shape, choice=k).tobytes() for k in range(3)}
    assert len(results) == 1


def test_nothing_is_declared_for_an_empty_output() -> None:
    assert Node("Gelu", [blank((0, 3))], [blank((0, 3))]).choices == []
    assert compute("Gelu", [blank((0, 3))], (0, 3)).shape == (0, 3)


# -- accuracy --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1.6e-7), ("float64", 1e-16), ("float16", 5e-4)]
)
def test_the_error_function_is_as_exact_as_its_type(dtype: str, tolerance: float) -> None:
    limits = np.finfo(dtype)
    x = np.concatenate(
        [np.linspace(-7, 7, 20_001), np.geomspace(limits.tiny, float(limits.max) ** 0.5, 500)]
    )
    x = x.astype(dtype)
    expected = [math.erf(number) for number in x.tolist()]
    assert np.abs(compute("Erf", [x], x.shape, dtype) - expected).max() <= tolerance


def test_the_error_function_keeps_infinities_and_nan() -> None:
    got = compute("Erf", [np.array([np.inf, -np.inf, np.nan], np.float32)], (3,))
    assert got[0] == 1
    assert got[1] == -1
    assert math.isnan(got[2])


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_follows_its_definition(approximate: str) -> None:
    x = np.linspace(-8, 8, 10_001)
    if approximate == "none":
        expected = [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x]
    else:
        expected = [
            v * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) for v in x
        ]
    for dtype, tolerance in (("float32", 1e-6), ("float64", 1e-15)):
        got = compute("Gelu", [x.astype(dtype)], x.shape, dtype, approximate=approximate)
        np.testing.assert_allclose(got, expected, atol=tolerance)


@pytest.mark.parametrize("op", ["Sigmoid", "Softplus", "Mish", "Swish", "Elu", "Celu", "Selu"])
def test_large_arguments_do_not_overflow_into_nan(op: str) -> None:
    x = np.array([-1e30, -200, -90, 90, 200, 1e30], np.float32)
    got = compute(op, [x], x.shape)
    assert not np.isnan(got).any()
    if op == "Sigmoid":
        np.testing.assert_array_equal(got, [0, 0, 0, 1, 1, 1])


def test_small_probabilities_keep_their_relative_accuracy() -> None:
    x = np.linspace(-80, 0, 1000).astype(np.float32)
    np.testing.assert_allclose(
        compute("Sigmoid", [x], x.shape), 1 / (1 + np.exp(-x.astype(np.float64))), rtol=2e-6
    )


def test_half_precision_is_computed_in_single() -> None:
    x = values((5000,), "float16", special=False)
    for op in ("Gelu", "Softplus", "Sigmoid"):
        with compiled.disabled():
            wide = compute(op, [x.astype(np.float32)], x.shape).astype(np.float16)
        np.testing.assert_array_equal(compute(op, [x], x.shape, "float16"), wide)


def test_whole_numbers_are_divided_towards_zero() -> None:
    a, b = ints(7, -7, 7, -7, 6, -6), ints(2, 2, -2, -2, 3, 3)
    assert compute("Div", [a, b], a.shape, np.int64).tolist() == [3, -3, -3, 3, 2, -2]


def test_bounds_are_read_on_each_run() -> None:
    x, high = values((100,), "float32", special=False), np.array(1.0, np.float32)
    node = Node("Clip", [x, None, high], [blank(x.shape)])
    np.testing.assert_array_equal(node.run(), np.minimum(x, 1))
    high.fill(-1)
    np.testing.assert_array_equal(node.run(), np.minimum(x, -1))


def test_quantizing_in_place_writes_the_same() -> None:
    x, scale = values((LONG,), "float32", special=False), np.array(0.1, np.float32)
    assert_same_in_place("QuantizeLinear", [x, scale, np.array(3, np.uint8)], x.shape, "uint8")


# -- wrong nodes ------------------------------------------------------------------------------


def test_a_missing_operand_is_named() -> None:
    with pytest.raises(InvalidOperand, match=r"'the node' \(Gather\) lacks its input 1"):
        compute("Gather", [blank((3,))], (3,))


@pytest.mark.parametrize("op", ["Add", "Div", "Less", "Where", "PRelu", "Pow", "Mod"])
def test_no_operator_takes_its_output_for_a_missing_input(op: str) -> None:
    with pytest.raises(InvalidOperand, match="lacks its input 1"):
        compute(op, [values((3,), "float32")], (3,))


def test_wrong_attributes_are_named() -> None:
    x = blank((2, 3))
    for op, attributes, problem in (
        ("BitShift", {"direction": "UP"}, "direction"),
        ("Transpose", {"perm": [0, 0]}, "perm"),
        ("Concat", {"axis": 2}, "axis 2"),
        ("Pad", {"mode": "mirror"}, "mode"),
        ("Constant", {}, "value"),
        ("ArgMax", {"axis": 5}, "axis 5"),
        ("TopK", {"axis": 5}, "axis 5"),
        ("Resize", {"axes": [2]}, "axes"),
    ):
        with pytest.raises(InvalidAttribute, match=problem):
            Node(op, [x, x], [blank((2, 3)), blank((2, 3))], **attributes).run()


def test_heads_that_cannot_be_rotated_are_refused() -> None:
    table = blank((2, 1, 3))
    for shape, attributes, error in (
        ((2, 1, 7), {"num_heads": 2}, InvalidAttribute),
        ((2, 1, 4), {}, InvalidAttribute),
        ((2, 1, 4), {"rotary_embedding_dim": 3, "num_heads": 1}, InvalidOperand),
        ((2, 4), {"num_heads": 1}, ShapeMismatch),
    ):
        inputs = [blank(shape), table, table]
        model = node_model("RotaryEmbedding", inputs, attributes, opset=23, outputs=1, constants=[])
        with pytest.raises(error, match="RotaryEmbedding"):
            ap.load(model.SerializeToString())
