"""Kernels that compute no products: elementwise work, moves, reductions, lookups, resizing."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenaplan.errors import (
    IndexOutOfRange,
    InvalidAttribute,
    InvalidOperand,
    ShapeMismatch,
    UnsupportedDtype,
    UnsupportedOp,
)
from arenaplan.executor.kernels.pieces import boxes
from arenaplan.executor.registry import Run, Signature, Step, Tensor, find_kernel

RNG = np.random.default_rng(20261121)
LONG = 100_003
"""More elements than a block has."""

Array = np.ndarray


class Node:
    """One node on arrays of its own, or on those that a test lays out for it."""

    def __init__(
        self,
        op: str,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None],
        *,
        version: int = 23,
        constants: Sequence[int] = (),
        choice: int = 0,
        **attributes: Any,
    ) -> None:
        self.outputs = outputs
        signature = Signature(
            "the node",
            op,
            "",
            version,
            attributes,
            tuple(_tensor(array) for array in inputs),
            tuple(_tensor(array) for array in outputs),
            tuple(
                (lambda data=array: data) if k in constants else None
                for k, array in enumerate(inputs)
            ),
        )
        kernel = find_kernel(signature)
        self.choices = (
            [list(slot) for slot in kernel.workspace(signature)] if kernel.workspace else []
        )
        workspaces = tuple(aligned(slot[min(choice, len(slot) - 1)].bytes) for slot in self.choices)
        self.work: Run | None = kernel.prepare(
            Step(signature, tuple(inputs), tuple(outputs), workspaces)
        )

    def run(self) -> Array:
        with np.errstate(all="ignore"):
            if self.work is not None:
                self.work()
        first = self.outputs[0]
        assert first is not None
        return first


def _tensor(array: Array | None) -> Tensor | None:
    return None if array is None else Tensor(array.shape, array.dtype)


def aligned(size: int) -> Array:
    """Return bytes at a multiple of 64, with garbage in them."""
    memory = np.full(size + 64, 0xAB, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def blank(shape: Sequence[int], dtype: Any = np.float32) -> Array:
    """Return an array with garbage in it."""
    dtype = np.dtype(dtype)
    return aligned(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def compute(
    op: str,
    inputs: Sequence[Array | None],
    shape: Sequence[int],
    dtype: Any = np.float32,
    **options: Any,
) -> Array:
    """Return what an operator makes of ``inputs``."""
    return Node(op, inputs, [blank(shape, dtype)], **options).run()


def values(shape: Sequence[int], dtype: Any, special: bool = True) -> Array:
    """Return random numbers of a type; floating ones with infinities and NaN among them."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return RNG.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        low = 0 if dtype.kind == "u" else -9
        return RNG.integers(low, 9, shape).astype(dtype)
    numbers = (RNG.standard_normal(shape) * 3).astype(dtype)
    if special and numbers.size > 8:
        numbers.reshape(-1)[:6] = [np.nan, np.inf, -np.inf, 0, -0.0, 0.5]
    return numbers


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


# -- in place ------------------------------------------------------------------------

FLOATS = ("float32", "float64", "float16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")

UNARY: Mapping[str, tuple[Sequence[str], Mapping[str, Any]]] = {
    **{
        op: (FLOATS, {})
        for op in (
            "Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid "
            "HardSwish IsInf IsNaN LeakyRelu Log Mish Reciprocal Round Selu Sigmoid Sin Sinh "
            "Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"
        ).split()
    },
    **{op: ((*FLOATS, *SIGNED), {}) for op in ("Abs", "Neg", "Relu", "Sign")},
    "BitwiseNot": ((*SIGNED, *UNSIGNED), {}),
    "Not": (("bool",), {}),
    "Shrink": (("float32", "int32"), {"lambd": 1.5, "bias": 1.0}),
}
BINARY: Mapping[str, tuple[Sequence[str], Mapping[str, Any]]] = {
    **{
        op: ((*FLOATS, *SIGNED, *UNSIGNED), {}) for op in ("Add", "Mul", "Sub", "Max", "Min", "Sum")
    },
    **{
        op: ((*FLOATS, *SIGNED, *UNSIGNED), {})
        for op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    },
    **{op: ((*SIGNED, *UNSIGNED), {}) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{op: (("bool",), {}) for op in ("And", "Or", "Xor")},
    "BitShift": (UNSIGNED, {"direction": "LEFT"}),
    "Div": ((*FLOATS, "int32", "int64", "uint8"), {}),
    "Mean": (FLOATS, {}),
    "Mod": (("int32", "int64"), {}),
    "PRelu": (FLOATS, {}),
    "Pow": (FLOATS, {}),
    "SwiGLU": (("float32",), {}),
}


def _result(op: str, dtype: str) -> str:
    """Return the type of an operator's result."""
    predicates = ("Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual")
    return "bool" if op in predicates else dtype


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
    assert_same_in_place(op, [x], x.shape, _result(op, dtype), **UNARY[op][1])


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
    if op == "SwiGLU":
        b = a[::-1].copy()
    assert_same_in_place(op, [a, b], a.shape, _result(op, dtype), **BINARY[op][1])
    if op != "PRelu":
        assert_same_in_place(op, [b, a], a.shape, _result(op, dtype), **BINARY[op][1])


@pytest.mark.parametrize("op", ["Sum", "Max", "Min", "Mean"])
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
    sizes = {choice.bytes for choice in Node(op, inputs, [blank(inputs[0].shape)]).choices[0]}
    assert len(sizes) == 3
    results = {compute(op, inputs, inputs[0].shape, choice=k).tobytes() for k in range(3)}
    assert len(results) == 1


def test_nothing_is_declared_for_an_empty_output() -> None:
    assert Node("Gelu", [blank((0, 3))], [blank((0, 3))]).choices == []
    assert compute("Gelu", [blank((0, 3))], (0, 3)).shape == (0, 3)


# -- accuracy --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1.5e-7), ("float64", 1e-16), ("float16", 5e-4)]
)
def test_the_error_function_is_as_exact_as_its_type(dtype: str, tolerance: float) -> None:
    limits = np.finfo(dtype)
    x = np.concatenate([np.linspace(-7, 7, 20_001), np.geomspace(limits.tiny, limits.max, 500)])
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
        wide = compute(op, [x.astype(np.float32)], x.shape)
        np.testing.assert_array_equal(compute(op, [x], x.shape, "float16"), wide.astype(np.float16))


def test_whole_numbers_are_divided_towards_zero() -> None:
    a, b = ints(7, -7, 7, -7, 6, -6), ints(2, 2, -2, -2, 3, 3)
    assert compute("Div", [a, b], a.shape, np.int64).tolist() == [3, -3, -3, 3, 2, -2]


def test_bounds_are_read_on_each_run() -> None:
    x, high = values((100,), "float32", special=False), np.array(1.0, np.float32)
    node = Node("Clip", [x, None, high], [blank(x.shape)])
    np.testing.assert_array_equal(node.run(), np.minimum(x, 1))
    high.fill(-1)
    np.testing.assert_array_equal(node.run(), np.minimum(x, -1))


# -- moves -----------------------------------------------------------------------------


def test_views_and_pieces_that_are_in_place_need_no_work() -> None:
    x = values((4, 6), "float32")
    assert Node("Reshape", [x, ints(3, 8)], [x.reshape(3, 8)]).work is None
    assert Node("Squeeze", [x.reshape(1, 4, 6)], [x]).work is None
    assert Node("Dropout", [x], [x]).work is None
    assert Node("Split", [x], [x[:1], x[1:]], axis=0).work is None
    assert Node("Concat", [x[:1], x[1:]], [x], axis=0).work is None
    assert Node("Slice", [x, ints(1), ints(3)], [x[1:3]], constants=[1, 2]).work is None
    assert (
        Node("Transpose", [x.reshape(4, 1, 6)], [x.reshape(1, 4, 6)], perm=[1, 0, 2]).work is None
    )
    assert Node("Expand", [x, ints(4, 6)], [x]).work is None
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
@settings(deadline=None)
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


def test_dropout_in_training_is_refused_unless_it_drops_nothing() -> None:
    x, yes = values((8,), "float32"), np.array(True)
    ratio = np.array(0.5, np.float32)
    with pytest.raises(UnsupportedOp, match="training"):
        Node("Dropout", [x, ratio, yes], [blank((8,))], constants=[1, 2])
    node = Node("Dropout", [x, ratio, yes], [blank((8,)), blank((8,), bool)])
    with pytest.raises(UnsupportedOp, match="training"):
        node.run()
    ratio.fill(0)
    assert node.run().tobytes() == x.tobytes()
    assert node.outputs[1] is not None
    assert node.outputs[1].all()


# -- reductions --------------------------------------------------------------------------

REDUCE: Mapping[str, Any] = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceL1": lambda x, axis, keepdims: np.abs(x).sum(axis, keepdims=keepdims),
    "ReduceL2": lambda x, axis, keepdims: np.sqrt((x * x).sum(axis, keepdims=keepdims)),
    "ReduceSumSquare": lambda x, axis, keepdims: (x * x).sum(axis, keepdims=keepdims),
    "ReduceLogSum": lambda x, axis, keepdims: np.log(x.sum(axis, keepdims=keepdims)),
    "ReduceLogSumExp": lambda x, axis, keepdims: np.log(np.exp(x).sum(axis, keepdims=keepdims)),
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
        for choice in (0, 9):
            options |= {"keepdims": int(keep), "choice": choice}
            got = compute(op, [x, ints(*axes)], expected.shape, "float64", **options)
            np.testing.assert_allclose(got, expected, rtol=1e-12)


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
    got = compute("ReduceL2", [x, ints(1)], (2, 1), "float16")
    np.testing.assert_allclose(got, np.sqrt(5e5), rtol=1e-3)


def test_reducing_nothing_gives_the_neutral_element() -> None:
    x = np.empty((2, 0), np.float32)
    neutral = {
        "ReduceSum": 0, "ReduceProd": 1, "ReduceMax": -np.inf, "ReduceMin": np.inf,
        "ReduceL1": 0, "ReduceL2": 0, "ReduceSumSquare": 0,
        "ReduceLogSum": -np.inf, "ReduceLogSumExp": -np.inf,
    }  # fmt: skip
    for op, expected in neutral.items():
        assert compute(op, [x, ints(1)], (2, 1)).tolist() == [[expected]] * 2, op


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
    with pytest.raises(IndexOutOfRange, match=r"the node.*axis of length 5"):
        compute(op, inputs, shape)
    with pytest.raises(IndexOutOfRange):
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
    x = values((3, 70, 20, 10), "float32", special=False)
    size = (3, 70, 41, 33)
    inputs = [x, None, None, ints(*size)]
    at_once = [
        compute("Resize", [x[n : n + 1, c : c + 1], None, None, ints(1, 1, *size[2:])], (1, 1, *size[2:]),
                constants=[3], mode="cubic")
        for n in range(3) for c in range(70)
    ]  # fmt: skip
    got = compute("Resize", inputs, size, constants=[3], mode="cubic")
    assert got.tobytes() == b"".join(one.tobytes() for one in at_once)


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


def test_quantizing_in_place_writes_the_same() -> None:
    x, scale = values((LONG,), "float32", special=False), np.array(0.1, np.float32)
    assert_same_in_place("QuantizeLinear", [x, scale, np.array(3, np.uint8)], x.shape, "uint8")


# -- memory ---------------------------------------------------------------------------------


def peak_of(node: Node) -> int:
    """Return the bytes that a warm run allocates at most."""
    node.run()
    tracemalloc.start()
    try:
        node.run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


BIG = (4, 300, 256)


def _big(dtype: str = "float32") -> Array:
    return values(BIG, dtype, special=False)


HUNGRY: Mapping[str, Any] = {
    **{op: lambda op=op: ([_big()], BIG, _result(op, "float32"), {}) for op in UNARY
       if "float32" in UNARY[op][0]},
    **{f"{op} broadcast": lambda op=op: ([_big(), values((300, 1), "float32")], BIG,
       _result(op, "float32"), {}) for op in BINARY
       if "float32" in BINARY[op][0] and op != "SwiGLU"},
    "Sum three": lambda: ([_big(), _big(), _big()], BIG, "float32", {}),
    "Where": lambda: ([_big("bool"), _big(), _big()], BIG, "float32", {}),
    "Pow mixed": lambda: ([np.absolute(_big()), _big("int64")], BIG, "float32", {}),
    "Cast": lambda: ([_big()], BIG, "int64", {}),
    "Clip": lambda: ([_big(), np.float32(0) * np.ones(()), None], BIG, "float64", {}),
    "Transpose": lambda: ([_big()], BIG[::-1], "float32", {}),
    "Concat": lambda: ([_big(), _big()], (4, 600, 256), "float32", {"axis": 1}),
    "Slice": lambda: ([_big(), ints(0), ints(256), ints(2), ints(2)], (4, 300, 128), "float32", {}),
    "Pad": lambda: ([_big(), ints(1, 2, 3, 1, 2, 3)], (6, 304, 262), "float32", {"mode": "reflect"}),
    "Tile": lambda: ([_big(), ints(1, 1, 2)], (4, 300, 512), "float32", {}),
    "Expand": lambda: ([_big()[:1], ints(*BIG)], BIG, "float32", {}),
    "Trilu": lambda: ([_big()], BIG, "float32", {}),
    "Gather": lambda: ([_big(), RNG.integers(0, 256, (256,)).astype(np.int32)], BIG, "float32", {"axis": 2}),
    "GatherElements": lambda: ([_big(), RNG.integers(0, 256, BIG)], BIG, "float32", {"axis": 2}),
    "GatherND": lambda: ([_big(), RNG.integers(0, 4, (90_000, 2))], (90_000, 256), "float32", {}),
    "ScatterElements": lambda: ([_big(), RNG.integers(0, 256, BIG), _big()], BIG, "float32",
                                {"axis": 2, "reduction": "add"}),
    "ScatterND": lambda: ([_big(), RNG.integers(0, 4, (900, 1)), values((900, 300, 256), "float32")],
                          BIG, "float32", {}),
    "OneHot": lambda: ([RNG.integers(0, 256, BIG[:2]), np.array(256), np.array([0, 1], np.float32)],
                       BIG, "float32", {}),
    "ReduceSum": lambda: ([_big(), ints(0, 2)], (1, 300, 1), "float32", {}),
    "ReduceMean": lambda: ([_big(), ints(2)], (4, 300, 1), "float32", {}),
    "ReduceL2": lambda: ([_big(), ints(1)], (4, 1, 256), "float32", {}),
    "ReduceLogSumExp": lambda: ([_big(), ints(0)], (1, 300, 256), "float32", {}),
    "ArgMax": lambda: ([_big()], (1, 300, 256), "int64", {}),
    "CumSum": lambda: ([_big(), np.array(1)], BIG, "float32", {"reverse": 1, "exclusive": 1}),
    "Resize": lambda: ([_big()[None], None, None, ints(1, 4, 500, 600)], (1, 4, 500, 600), "float32",
                       {"mode": "cubic"}),
    "QuantizeLinear": lambda: ([_big(), values((300,), "float32"), values((300,), "uint8")], BIG, "uint8", {}),
    "DequantizeLinear": lambda: ([_big("int8"), values((300,), "float32"), values((300,), "int8")], BIG,
                                 "float32", {}),
    "RotaryEmbedding": lambda: ([values((2, 8, 300, 64), "float32"), values((400, 32), "float32"),
                                 values((400, 32), "float32"), RNG.integers(0, 400, (2, 300))],
                                (2, 8, 300, 64), "float32", {}),
    "Range": lambda: ([np.array(0.0, np.float32), np.array(300_000.0, np.float32), np.array(1, np.float32)],
                      (300_000,), "float32", {}),
}  # fmt: skip


@pytest.mark.parametrize("case", HUNGRY)
def test_a_warm_run_allocates_next_to_nothing(case: str) -> None:
    inputs, shape, dtype, attributes = HUNGRY[case]()
    node = Node(case.split()[0], inputs, [blank(shape, dtype)], **attributes)
    assert peak_of(node) <= 256 << 10


def test_a_warm_top_k_allocates_next_to_nothing() -> None:
    outputs = [blank((4, 300, 100)), blank((4, 300, 100), np.int64)]
    assert peak_of(Node("TopK", [_big(), ints(100)], outputs)) <= 256 << 10


# -- wrong nodes ------------------------------------------------------------------------------


def test_a_missing_operand_is_named() -> None:
    with pytest.raises(InvalidOperand, match=r"'the node' \(Gather\) lacks its input 1"):
        compute("Gather", [blank((3,))], (3,))


def test_wrong_attributes_are_named() -> None:
    x = blank((2, 3))
    for op, attributes, problem in (
        ("BitShift", {"direction": "UP"}, "direction"),
        ("Transpose", {"perm": [0, 0]}, "perm"),
        ("Concat", {"axis": 2}, "axis 2"),
        ("Pad", {"mode": "mirror"}, "mode"),
        ("DepthToSpace", {"blocksize": 0}, "blocksize"),
        ("Constant", {}, "value"),
    ):
        with pytest.raises(InvalidAttribute, match=problem):
            compute(op, [x, x], (2, 3), **attributes)
