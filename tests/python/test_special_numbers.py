"""
Every elementwise and every reducing kernel on special numbers.

These are NaN, infinities, zeros of both signs, the smallest and the largest numbers.

The kernel table says which operators there are, and the standard which element types and operands
each one has. Results are those of ONNX Runtime or of the reference implementation: bit for bit,
unless :data:`ROUNDED` says that the standard leaves the rounding of an operator open.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import arenaplan as ap
from arenaplan.base.errors import UnsupportedModel
from arenaplan.formats.onnx import load_onnx
from arenaplan.run.numpy.compiled import disabled
from arenaplan.run.numpy.cuts import ELEMENTWISE, REDUCED, UNARY
from arenaplan.run.numpy.registry import _KERNELS, supported_ops
from light_models import onnx_runtime

OPSET = 24
FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")

ROUNDED = {
    *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan"),
    *("Celu", "Elu", "Erf", "Exp", "Gelu", "Log", "Mish", "Selu", "Sigmoid", "Softplus", "SwiGLU"),
    *("Swish", "Tanh", "Pow"),  # Functions that are no fraction: the standard has no rounding.
    *("HardSigmoid", "HardSwish", "Softsign", "Mean", "Sum"),  # Several operations in any order.
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd"),
    *("ReduceSum", "ReduceSumSquare"),
}
"""Operators whose results may differ by a few roundings, and in the sign of zero."""

ONE_WAY = {"PRelu"}
"""Operators whose first operand has the shape of the result."""

ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "BitShift": [{"direction": "LEFT"}, {"direction": "RIGHT"}],
    "Cast": [{"to": onnx.TensorProto.FLOAT}, {"to": onnx.TensorProto.DOUBLE}],
    "LeakyRelu": [{"alpha": float(a)} for a in (0.01, 1, 2, 0, -0.5, np.inf, -np.inf, np.nan)],
    "Mod": [{"fmod": 1}, {"fmod": 0}],
}
"""Attributes to try, where the default alone says little or there is none."""


def _no_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return where two integers have no quotient, or a quotient that their type cannot hold."""
    if a.dtype.kind == "f":
        return np.zeros(np.broadcast_shapes(a.shape, b.shape), bool)
    overflows = (a == np.iinfo(a.dtype).min) & (b == -1) if a.dtype.kind == "i" else False
    return (b == 0) | overflows


def _no_integer(a: np.ndarray, *_: np.ndarray) -> np.ndarray:
    """Return where a number is larger than any integer, or none."""
    return ~(np.abs(a.astype(np.float64)) < 100) if a.dtype.kind == "f" else np.zeros(a.shape, bool)


def _overflows(*arrays: np.ndarray) -> np.ndarray:
    """Return where a sum of finite numbers is infinite."""
    with np.errstate(all="ignore"):
        return ~np.isfinite(sum(arrays)) & reduce(np.logical_and, map(np.isfinite, arrays))


DEFINED = {
    "LeakyRelu": lambda x, alpha=0.01: np.where(x < 0, x * x.dtype.type(np.float32(alpha)), x),
    "PRelu": lambda x, slope: np.where(x < 0, x * slope, x),
}
"""Definitions in the text of the standard, where the reference computes something else: it adds a
product for positive and one for negative numbers, of which one is zero times the slope."""

UNDEFINED = {
    "BitShift": lambda a, b: np.broadcast_to(b >= 8 * b.itemsize, (a + b).shape),
    "CastLike": _no_integer,
    "Div": _no_quotient,
    "Mean": _overflows,
    "Mod": _no_quotient,
}
"""Per operator, for which operands the standard has no result."""


def special(dtype: str) -> list[Any]:
    """Return the numbers of a type that arithmetic treats in ways of their own."""
    if dtype == "bool":
        return [False, True]
    if dtype not in FLOATS:
        limits = np.iinfo(dtype)
        return sorted({limits.min, limits.max, 0, 1, 3, limits.max - 1, -1 if limits.min else 2})
    limits = np.finfo(dtype)
    tiny, least = float(limits.tiny), float(limits.smallest_subnormal)
    large = float(limits.max)
    one_sided = [0.0, least, tiny, 0.5, 1.0, 3.0, large, np.inf]
    return [np.nan, *one_sided, *(-x for x in one_sided)]


class Node(NamedTuple):
    """A node, and what it reads."""

    op: str
    inputs: tuple[np.ndarray, ...]
    attributes: dict[str, Any]
    constants: tuple[int, ...] = ()
    is_chained: bool = False
    """Whether the first operand is made by other nodes, which may run as one with this one."""

    def model(self) -> onnx.ModelProto:
        names = [f"x{at}" for at in range(len(self.inputs))]
        given = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for at, (name, array) in enumerate(zip(names, self.inputs, strict=True))
            if at not in self.constants
        ]
        stored = [numpy_helper.from_array(self.inputs[at], names[at]) for at in self.constants]
        nodes = []
        if self.is_chained:
            nodes = [helper.make_node("Neg", ["x0"], ["n"]), helper.make_node("Neg", ["n"], ["m"])]
            names[0] = "m"
        nodes.append(helper.make_node(self.op, names, ["y"], **self.attributes))
        result = onnx.ValueInfoProto(name="y")
        graph = helper.make_graph(nodes, self.op, given, [result], stored)
        opset = helper.make_opsetid("", max(OPSET, defs.get_schema(self.op).since_version))
        return helper.make_model(graph, opset_imports=[opset], ir_version=10)

    def feed(self) -> dict[str, np.ndarray]:
        return {f"x{k}": a for k, a in enumerate(self.inputs) if k not in self.constants}

    def oracles(self, model: onnx.ModelProto) -> list[np.ndarray]:
        """Return the results of those who can run it."""
        found = []
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            runs = [lambda: ReferenceEvaluator(model).run(None, self.feed())]
            if self.op in DEFINED:
                runs = [lambda: [DEFINED[self.op](*self.inputs, **self.attributes)]]
            # ONNX Runtime divides integers by an instruction that can end the process.
            if self.op not in ("Div", "Mod") or self.inputs[0].dtype.kind == "f":
                runs.append(lambda: onnx_runtime(model, plain=True).run(None, self.feed()))
            for run in runs:
                try:
                    found += run()
                except Exception:  # Each has operators and types that it lacks.
                    continue
        return [np.asarray(array) for array in found]

    def check(self) -> int:
        """Compare with the oracles; return how many there are."""
        model = self.model()
        oracles = self.oracles(model)
        if not oracles:
            return 0
        for is_compiled in (True, False):
            try:
                made = self.run(model) if is_compiled else self.run_plain(model)
            except UnsupportedModel:
                return 0
            wanted = [array for array in oracles if array.dtype == made.dtype]
            agrees = [self.agrees(made, array) for array in wanted]
            if wanted:
                alike = np.logical_or.reduce(agrees)
                if self.op in UNDEFINED and (self.op != "CastLike" or made.dtype.kind in "iu"):
                    alike = alike | UNDEFINED[self.op](*self.inputs)
                assert alike.all(), self.report(made, wanted, alike, is_compiled)
        return len(oracles)

    def run(self, model: onnx.ModelProto) -> np.ndarray:
        with ap.Executor(load_onnx(model)) as executor:
            return executor.run(self.feed())["y"]

    def run_plain(self, model: onnx.ModelProto) -> np.ndarray:
        with disabled():
            return self.run(model)

    def agrees(self, made: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Return, by element, whether a result is as wanted."""
        assert made.shape == wanted.shape
        if made.dtype.kind != "f":
            return made == wanted
        same = (made == wanted) & (np.signbit(made) == np.signbit(wanted))
        if self.op in ROUNDED:
            limits = np.finfo(made.dtype)
            with np.errstate(all="ignore"):
                error = np.abs(made.astype(np.float64) - wanted.astype(np.float64))
                # Constants have single precision, also where elements have double.
                eps = max(limits.eps, np.finfo(np.float32).eps)
                same |= error <= 16 * eps * np.maximum(np.abs(wanted.astype(np.float64)), 1)
        return same | (np.isnan(made) & np.isnan(wanted))

    def report(
        self,
        made: np.ndarray,
        wanted: Sequence[np.ndarray],
        alike: np.ndarray,
        is_compiled: bool,
    ) -> str:
        at = tuple(np.argwhere(~alike)[0])
        operands = [np.broadcast_to(a, made.shape)[at] for a in self.inputs if self.is_pointwise()]
        return (
            f"{self.op} {self.attributes} of {operands} of {[a.dtype.name for a in self.inputs]}, "
            f"shapes {[a.shape for a in self.inputs]}, constants {self.constants}, chained "
            f"{self.is_chained}, compiled {is_compiled}: {made[at]}, not "
            f"{[array[at] for array in wanted]}"
        )

    def is_pointwise(self) -> bool:
        return all(a.ndim <= 2 for a in self.inputs) and not self.op.startswith("Reduce")


def kernels(*cuts: Any) -> list[str]:
    """Return the operators of the standard whose kernels are cut in one of some ways."""
    known = [(op, _KERNELS["", op][0].cut) for op in supported_ops() if defs.has(op)]
    return [op for op, cut in known if cut in cuts]


def operand_types(op: str) -> Iterator[list[str]]:
    """Yield the element types of as many operands as an operator has, in every combination."""
    schema = defs.get_schema(op)
    count = 2 if schema.min_input < schema.max_input and _is_variadic(schema) else schema.max_input
    names = [schema.inputs[min(at, len(schema.inputs) - 1)].type_str for at in range(count)]
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    known = {f"tensor({_onnx_name(dtype)})": dtype for dtype in (*FLOATS, *INTEGERS, "bool")}
    variables = list(dict.fromkeys(names))
    choices = [
        [known[text] for text in allowed.get(name, [name]) if text in known] for name in variables
    ]
    for chosen in itertools.product(*choices):
        by_name = dict(zip(variables, chosen, strict=True))
        yield [by_name[name] for name in names]


def _onnx_name(dtype: str) -> str:
    return {"float32": "float", "float64": "double"}.get(dtype, dtype)


def _is_variadic(schema: defs.OpSchema) -> bool:
    return schema.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic


def pairs(op: str, dtypes: Sequence[str]) -> list[np.ndarray]:
    """Return operands that hold every pair of special numbers of any two of them."""
    lists = [np.array(special(dtype), dtype) for dtype in dtypes]
    if op == "Pow" and lists[1].dtype.kind == "i":
        lists[1] = lists[1][(lists[1] >= 0) & (lists[1] < 4)]  # Others have no whole power.
    if len(lists) < 3:
        grid = np.meshgrid(*lists, indexing="ij")
        return [np.ascontiguousarray(each).reshape(-1) for each in grid]
    rows: list[list[Any]] = [[] for _ in lists]
    for first, second in itertools.combinations(range(len(lists)), 2):
        for a, b in itertools.product(lists[first], lists[second]):
            for at, numbers in enumerate(lists):
                rows[at].append(a if at == first else b if at == second else numbers[-1])
    return [np.array(row, dtype) for row, dtype in zip(rows, dtypes, strict=True)]


def _distinct(array: np.ndarray) -> np.ndarray:
    """Return the different elements, of zeros of both signs, too."""
    return np.array(list({repr(x): x for x in array}.values()), array.dtype)


def cases(op: str) -> Iterator[Node]:
    """Yield nodes of an elementwise operator: all types, positions and broadcasts."""
    is_bounded = op == "Clip"  # Its parameters are single numbers.
    for attributes in ATTRIBUTES.get(op, [{}]):
        for dtypes in operand_types(op):
            whole = tuple(pairs(op, dtypes))
            if not is_bounded:
                yield Node(op, whole, attributes)
                if dtypes[0] in FLOATS:
                    yield Node(op, whole, attributes, is_chained=True)
            if len(dtypes) == 1:
                continue
            first, second = (_distinct(array) for array in whole[:2])
            if len(dtypes) == 2:
                if op not in ONE_WAY:
                    yield Node(op, (first[:, None], second[None]), attributes)
                    yield Node(op, (first[None], second[:, None]), attributes)
                yield Node(op, (np.repeat(first[:, None], second.size, 1), second), attributes)
            if dtypes[0] in ("float32", "int64") and (op, dtypes[0]) != ("Pow", "int64"):
                yield from _with_numbers(op, dtypes, attributes, is_bounded)
            if _is_variadic(defs.get_schema(op)):
                three = tuple(pairs(op, [*dtypes, dtypes[0]]))
                yield Node(op, three, attributes)


def _with_numbers(
    op: str, dtypes: list[str], attributes: dict[str, Any], is_bounded: bool
) -> Iterator[Node]:
    """Yield nodes in which some operands are single numbers, constant or not."""
    line = np.array(special(dtypes[0]), dtypes[0])
    for number in line:
        single = np.array(number, dtypes[0])
        if is_bounded:
            yield Node(op, (line, single, np.array(3, dtypes[0])), attributes, (1, 2))
            yield Node(op, (line, np.array(0, dtypes[0]), single), attributes, (1, 2))
            yield Node(op, (line, single, np.array(3, dtypes[0])), attributes)
            continue
        first = 1 if op in ONE_WAY else 0
        for at in range(first, len(dtypes)) if len(set(dtypes)) == 1 else ():
            inputs = tuple(single if at == k else line for k in range(len(dtypes)))
            yield Node(op, inputs, attributes)
            yield Node(op, inputs, attributes, (at,))


@pytest.mark.parametrize("op", kernels(ELEMENTWISE, UNARY))
def test_elementwise_kernels_keep_special_numbers(op: str) -> None:
    compared = sum(node.check() for node in cases(op))
    assert compared > 0


@pytest.mark.parametrize("op", kernels(REDUCED))
def test_reducing_kernels_keep_special_numbers(op: str) -> None:
    compared = 0
    for dtypes in operand_types(op):
        first, second = pairs(op, [dtypes[0]] * 2)
        if first.dtype.kind in "iu" and op in ROUNDED:  # Sums that overflow have no right result.
            first, second = (
                np.where(abs(x.astype(float)) > 3, x.dtype.type(2), x) for x in (first, second)
            )
        rows = np.stack([first, second, np.ones_like(first)], axis=1)
        for x, axis in ((rows, 1), (np.ascontiguousarray(rows.T), 0)):
            axes = np.array([axis], np.int64)
            compared += Node(op, (x, axes), {"keepdims": 0}, (1,)).check()
    assert compared > 0


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("is_chained", [False, True])
def test_numbers_become_the_nearest_integers_and_others_the_least(
    dtype: str, is_chained: bool
) -> None:
    x = np.array(special("float32"), np.float32)
    limits, zero = np.iinfo(dtype), np.array(3, dtype)
    node = Node("QuantizeLinear", (x, np.float32(0.5), zero), {}, (1, 2), is_chained)
    with np.errstate(all="ignore"):
        wanted = np.clip(np.rint(x / np.float32(0.5)) + 3, limits.min, limits.max)
    wanted = np.where(np.isnan(x), limits.min, wanted).astype(dtype)
    for run in (node.run, node.run_plain):
        np.testing.assert_array_equal(run(node.model()), wanted)


@pytest.mark.parametrize(("extent", "stride", "rows"), [(2, 1, 1), (2, 2, 1), (3, 3, 1), (2, 1, 2)])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_windows_keep_special_numbers(op: str, extent: int, stride: int, rows: int) -> None:
    line = pairs(op, ["float32", "float32"])
    x = np.stack([*line, np.ones_like(line[0])], axis=1).reshape(-1)
    x = x[: x.size // rows * rows].reshape(1, 1, rows, -1)
    if op == "AveragePool":  # Sums that overflow depend on the order of their terms.
        x = np.where(np.isfinite(x) & (np.abs(x) > 1), np.float32(2), x)
    attributes = {"kernel_shape": [rows, extent], "strides": [1, stride]}
    node = Node(op, (x,), attributes)
    windows = np.lib.stride_tricks.sliding_window_view(x, (1, 1, rows, extent))
    windows = windows[:, :, :, ::stride].reshape(1, 1, 1, -1, rows * extent)
    with np.errstate(all="ignore"):
        wanted = windows.max(-1) if op == "MaxPool" else windows.sum(-1) / windows.shape[-1]
    for run in (node.run, node.run_plain):
        np.testing.assert_allclose(run(node.model()), wanted, rtol=1e-6)


def _with_one(number: float, *shape: int) -> np.ndarray:
    """Return random numbers, and one other in the middle."""
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    array.reshape(-1)[array.size // 2 + 1] = number
    return array


ONE_OF_MANY: dict[str, tuple[str, Callable[[float], tuple[np.ndarray, ...]], dict[str, Any]]] = {
    # Operators of which a result reads some elements: the one that is no number among them, or not.
    **{
        f"{mode} samples": (
            "GridSample",
            lambda number: (
                _with_one(number, 1, 2, 3, 4),
                np.random.default_rng(1).uniform(-2, 2, (1, 9, 9, 2)).astype(np.float32),
            ),
            {"mode": mode},
        )
        for mode in ("nearest", "linear", "cubic")
    },
    "moved windows": (
        "DeformConv",
        lambda number: (
            _with_one(number, 1, 2, 3, 4),
            _with_one(1, 3, 2, 2, 2),
            np.random.default_rng(1).uniform(-3, 3, (1, 8, 2, 3)).astype(np.float32),
        ),
        {},
    ),
    "causal attention": (
        "Attention",
        lambda number: (
            _with_one(1, 1, 2, 3, 4),
            _with_one(number, 1, 2, 3, 4),
            _with_one(1, 1, 2, 3, 4),
        ),
        {"is_causal": 1},
    ),
    "masked attention": (
        "Attention",
        lambda number: (
            *(_with_one(1, 1, 2, 3, 4), _with_one(number, 1, 2, 3, 4), _with_one(1, 1, 2, 3, 4)),
            np.tri(3, dtype=bool),
        ),
        {},
    ),
}


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("name", ONE_OF_MANY)
def test_a_number_reaches_the_results_that_it_reaches_in_onnx_runtime(
    name: str, number: float
) -> None:
    op, inputs, attributes = ONE_OF_MANY[name]
    node = Node(op, inputs(number), attributes)
    model = node.model()
    model.opset_import[0].version = 23 if op == "Attention" else 22
    (wanted,) = onnx_runtime(model, plain=True).run(None, node.feed())
    np.testing.assert_allclose(node.run(model), wanted, rtol=1e-4, atol=1e-5)


NORMALIZATIONS: dict[str, tuple[int, str]] = {
    # The version, and how many scales there are: by element of a row, or by channel.
    "LayerNormalization": (17, "row"),
    "RMSNormalization": (23, "row"),
    "GroupNormalization": (21, "channel"),
    "InstanceNormalization": (6, "channel"),
}


def _normalized(op: str, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the result by the definition, in more digits."""
    exact = x.astype(np.longdouble)
    if op != "RMSNormalization":
        exact = exact - exact.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((exact * exact).mean(axis=-1, keepdims=True) + np.float32(1e-5))
    factors = scale if NORMALIZATIONS[op][1] == "row" else scale[:, None]
    with np.errstate(over="ignore"):
        return (exact / deviation * factors).astype(np.float32)


@pytest.mark.parametrize("op", NORMALIZATIONS)
@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 1e12])
@pytest.mark.parametrize("scale", [3e38, -3e38, 1e-38, 1e-41, 1.0, 0.0, "of each kind"])
def test_a_normalization_has_large_and_small_scales(op: str, size: float, scale: Any) -> None:
    """Elements are divided by their deviation first: a scale times the factor may overflow."""
    version, kind = NORMALIZATIONS[op]
    x = np.random.default_rng(3).uniform(-size, size, (2, 4, 32)).astype(np.float32)
    count = 32 if kind == "row" else 4
    scales = np.resize([3e38, 1e-38, 2.0, -1e-41], count) if isinstance(scale, str) else scale
    scales = np.full(count, scales, np.float32)
    operands, attributes = ["x", "s"], {}
    if op != "RMSNormalization":
        operands.append("b")
    if op == "GroupNormalization":
        attributes = {"num_groups": 4}
    real = onnx.TensorProto.FLOAT
    ends = [[helper.make_tensor_value_info(name, real, x.shape)] for name in ("x", "y")]
    stored = [numpy_helper.from_array(scales, "s")]
    stored.append(numpy_helper.from_array(np.zeros(count, np.float32), "b"))
    node = helper.make_node(op, operands, ["y"], **attributes)
    graph = helper.make_graph([node], op, *ends, stored[: len(operands) - 1])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10
    )
    wanted = _normalized(op, x, scales)
    for is_compiled in (True, False):
        manner = contextlib.nullcontext() if is_compiled else disabled()
        with manner, ap.Executor(load_onnx(model)) as executor:
            found = executor.run({"x": x})["y"]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-44)
