"""
Lowers elementwise operators.

An 8-bit result depends on a single 8-bit number and is looked up in a table filled by the
executor's kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from arenaplan.deploy.code.code_shapes import broadcast
from arenaplan.deploy.code.code_site import (
    CodePart,
    CodeSite,
    Emit,
    at_row,
    difference,
    lowers,
    scaled_by,
    words_of,
)
from arenaplan.deploy.code.code_text import Field, c_type
from arenaplan.run.c_formulas import UNARY
from arenaplan.run.c_formulas import Formula as FloatFormula
from arenaplan.run.cuda.text import literal
from arenaplan.run.numpy.registry import Tensor
from arenaplan.run.numpy.tflite.binary import sum_factors
from arenaplan.run.numpy.tflite.fixed import Multiplier, multiplier_of
from arenaplan.run.numpy.tflite.sigmoid import SIGMOID
from arenaplan.run.numpy.tflite.tflite_facts import (
    FLOAT,
    Quantity,
    activation_range,
    check_types,
    encoding,
    float_range,
    limits,
    rounded,
)
from arenaplan.run.numpy.tflite.unary import table_multiplier

Fields: TypeAlias = dict[str, tuple[str, Field]]
"""Types and values of the parameters of a kernel."""
_BYTES: Final = (np.dtype(np.int8), np.dtype(np.uint8))


class KernelFormula:
    """The text of a kernel that computes result elements, and everything that the text needs."""

    dtype: Final = FLOAT
    type: Final = "float"

    def __init__(self, site: CodeSite, name: str = "") -> None:
        self.site, self.name = site, name or site.op.lower()
        self._fields: Fields = {}
        self._used: dict[str, None] = {}
        self._lines: list[str] = []

    # -- parts of expressions ------------------------------------------------------------------

    def use(self, function: str, *arguments: str) -> str:
        """Return a call to a function among the kernels."""
        self._used[function] = None
        return f"{function}({', '.join(arguments)})"

    def call(self, function: str, *arguments: str) -> str:
        """Return a call to a C math function."""
        return f"{function}f({', '.join(arguments)})"

    def literal(self, number: float) -> str:
        """Return a number as text."""
        return literal(number, FLOAT)

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute that the kernel's text, and so the name, depends on."""
        value = self.site.signature.attributes.get(name, default)
        self.name += f"_{value}" if value != default else ""
        return value

    def field(self, name: str, value: Field, type_: str = "int32_t") -> str:
        """Return a parameter of the kernel."""
        self._fields[name] = (type_, value)
        return f"c->{name}"

    def number(self, name: str, default: float) -> str:
        """Return a numeric attribute: a parameter of the kernel."""
        return self.field(name, float(self.site.signature.attributes.get(name, default)), self.type)

    def let(self, expression: str, type_: str = "float") -> str:
        """Name an expression, and return the name."""
        name = f"v{len(self._lines)}"
        self._lines.append(f"const {type_} {name} = {expression};")
        return name

    def centered(self, number: str, name: str, encoded: Quantity) -> str:
        """Return a number minus the zero point."""
        return f"({number} - {self.field(f'{name}_zero', encoded.zero)})"

    def scaled(self, number: str, prefix: str, factor: float | Multiplier) -> str:
        """Return a number times a factor."""
        own = factor if isinstance(factor, Multiplier) else multiplier_of(factor)
        parts = ("multiplier", own.value), ("shift", own.shift)
        return self.use(
            "scaled", number, *(self.field(f"{prefix}{part}", value) for part, value in parts)
        )

    def encoded(self, number: str, bounds: tuple[int, int] | None = None) -> str:
        """Return a result element: a number plus the zero point, within bounds."""
        words = words_of(self.site.output.dtype)
        limits_ = words["LOW"], words["HIGH"]
        zero = self.field("zero", encoding(self.site.signature, 0, "output").zero)
        if bounds is not None:
            limits_ = self.field("low", bounds[0]), self.field("high", bounds[1])
        return f"({words['NUMBER']}){self.use('encoded', number, zero, *limits_)}"

    def activated(self, number: str) -> str:
        """Return a real number within the bounds of a fused activation."""
        low, high = map(float, float_range(self.site.signature))
        bounds = self.field("low", low, "float"), self.field("high", high, "float")
        return self.use("real_bounded", number, *bounds)

    # -- kernels -------------------------------------------------------------------------------

    def kernel(
        self, template: str, what: str, dtypes: tuple[np.dtype[Any], np.dtype[Any]], **words: str
    ) -> str:
        """Add the kernel that makes numbers of one type from another; return its name."""
        read, made = map(words_of, dtypes)
        kinds = dict.fromkeys((read["KIND"], made["KIND"]))
        function = "_".join((self.name, *kinds))
        own = {
            "KIND": "_".join(kinds),
            "NAME": self.name,
            "WHAT": f"{self.site.op} {what}",
            "MADE": made["NUMBER"],
            "FIELDS": "\n  ".join(f"{type_} {each};" for each, (type_, _) in self._fields.items()),
            "USED": " ".join(self._used),
        }
        self.site.use(template, read | own | words, function)
        return function

    def structure(self, function: str, **first: Field) -> str:
        """Return the parameters of the kernel."""
        return self.site.structure(
            function, first | {name: value for name, (_, value) in self._fields.items()}
        )

    def unary(self, result: str) -> Emit:
        """Return a call that makes ``y[i]`` from ``x[i]``."""
        x, y = self.site.input(0), self.site.output
        if prod(x.shape) != prod(y.shape):
            raise self.site.refuse(f"a result of shape {y.shape} is not that of {x.shape}")
        function = self.kernel(
            "unary" if self._fields else "unary_plain",
            "of each number",
            (x.dtype, y.dtype),
            BODY="\n    ".join([*self._lines, f"y[i] = {result};"]),
        )
        return _on_rows(self.site, function, *([self.structure(function)] if self._fields else []))

    def binary(self, result: str) -> Emit:
        """Return a call on some rows that makes each result element from ``*p`` and ``*q``."""
        site = self.site
        a, b, y = site.input(0), site.input(1), site.output
        if a.dtype != b.dtype:
            raise site.refuse("its operands have different types")
        loops = broadcast((a.shape, b.shape), y.shape, 5)
        if loops is None:
            raise site.refuse("its operands have too many dimensions to be broadcast")
        dims, steps = loops
        body = "\n            ".join([*self._lines, f"*y++ = {result};"])
        function = self.kernel("binary", "of pairs", (a.dtype, y.dtype), BODY=body, AXIS="1")
        parameters = self.structure(function, dims=dims, a_steps=steps[0], b_steps=steps[1])
        # Tensors that are not images have a single "row" with all numbers.
        is_image = len(y.shape) == 4

        def emit(part: CodePart) -> list[str]:
            operands = []
            for at, own in enumerate(steps):
                base = part.input(at)
                operands.append(at_row(base, part.start, own[1]) if own[1] else base.pointer)
            rows = difference(part.stop, part.start) if is_image else str(dims[1])
            return [f"{function}({parameters}, {', '.join(operands)}, {part.output()}, {rows});"]

        return emit


def _on_rows(site: CodeSite, function: str, *parameters: str) -> Emit:
    """Return a call on the numbers in some rows."""
    numbers = site.row_numbers

    def emit(part: CodePart) -> list[str]:
        count = scaled_by(difference(part.stop, part.start), numbers)
        x = at_row(part.input(0), part.start, numbers)
        return [f"{function}({', '.join((*parameters, x, part.output(), count))});"]

    return emit


# -- one operand ----------------------------------------------------------------------------------


def _table(site: CodeSite) -> Emit:
    """Return a lookup of results computed by the executor's kernel."""
    x, y = site.input(0), site.output
    if x.shape != y.shape:
        raise site.refuse(f"a result of shape {y.shape} is not that of {x.shape}")
    numbers = np.arange(256).astype(np.uint8).view(x.dtype)
    (results,) = site.executed({0: numbers}, [Tensor((256,), y.dtype)])
    assert results is not None
    words = words_of(y.dtype)
    words |= {"MADE": words["NUMBER"], "ENTRY": str(c_type(y.dtype))}
    function = f"table_{words['KIND']}"
    site.use("table", words, function)
    return _on_rows(site, function, site.constant("table", results))


def _logistic(w: KernelFormula, x: str) -> str:
    exponential = w.call("exp", x)
    return (
        f"{x} > 16.619047164916992f ? 1.0f : {x} < -9.0f ? {exponential} : "
        f"1.0f / (1.0f + {w.call('exp', f'-{x}')})"
    )


def _hard_swish(w: KernelFormula, x: str) -> str:
    three = w.let(f"{x} + 3.0f")
    least = w.let(f"{three} < 0.0f ? 0.0f : {three}")
    return f"{x} * ({least} > 6.0f ? 6.0f : {least}) / 6.0f"


_PLAIN: Final = ("Abs", "Ceil", "Cos", "Elu", "Exp", "Floor", "Log", "Neg", "Relu", "Sin", "Sqrt")
_REAL: Final[dict[str, FloatFormula | Callable[[KernelFormula, str], str]]] = {
    **{op.upper(): UNARY[op] for op in (*_PLAIN, "Tanh")},
    "HARD_SWISH": _hard_swish,
    "LOGISTIC": _logistic,
    "RELU6": lambda w, x: f"{x} > 6.0f ? 6.0f : ({x} < 0.0f ? 0.0f : {x})",
    "ROUND": lambda w, x: f"{x} == 0.0f ? {x} : rintf({x}) + 0.0f",
    "RSQRT": lambda w, x: f"1.0f / sqrtf({x})",
    "SQUARE": lambda w, x: f"{x} * {x}",
}
"""Formulas for real numbers."""


@lowers("ABS", "ELU", "HARD_SWISH", "LOGISTIC", "RELU", "RELU6", "RSQRT", "TANH")
def activation(site: CodeSite) -> Emit:
    """Real numbers by the C library, 8-bit numbers by a table, 16-bit numbers by arithmetic."""
    dtype = site.input(0).dtype
    if dtype == FLOAT:
        return _real(site)
    if dtype in _BYTES:
        return _table(site)
    if dtype == np.int16 and site.op in _SHORT:
        return _SHORT[site.op](site)
    raise site.refuse(f"no kernel makes {site.output.dtype} of {dtype}")


@lowers("CEIL", "COS", "EXP", "FLOOR", "LOG", "NEG", "ROUND", "SIN", "SQRT", "SQUARE")
def _real(site: CodeSite) -> Emit:
    """Real numbers only."""
    check_types(site.signature, "float32 float32")
    formula = KernelFormula(site)
    return formula.unary(_REAL[site.op](formula, "x[i]"))


@lowers("LEAKY_RELU")
def leaky_relu(site: CodeSite) -> Emit:
    """Negative numbers have a slope; that of 16-bit numbers may itself be negative."""
    if site.input(0).dtype in _BYTES:
        return _table(site)
    check_types(site.signature, "float32 float32", "int16 int16")
    f = KernelFormula(site)
    if site.input(0).dtype == FLOAT:
        return f.unary(f"x[i] > 0.0f ? x[i] : x[i] * {f.number('alpha', 0.0)}")
    x, y = encoding(site.signature, 0), encoding(site.signature, 0, "output")
    slope = x.scale * float(site.signature.attributes.get("alpha", 0.0)) / y.scale
    v = f.let(f.centered("x[i]", "x", x), "int32_t")
    above, below = (
        f.scaled(v, "above_", x.scale / y.scale),
        f.scaled(v, "below_", abs(slope)),
    )
    sign = f.field("sign", -1 if slope < 0 else 1)
    return f.unary(f.encoded(f"{v} >= 0 ? {above} : {sign} * {below}"))


def _relu_short(site: CodeSite) -> Emit:
    """The scale changes."""
    x, y = encoding(site.signature, 0), encoding(site.signature, 0, "output")
    low, high = limits(site.output.dtype)
    f = KernelFormula(site)
    number = f.scaled(f.centered("x[i]", "x", x), "", x.scale / y.scale)
    return f.unary(f.encoded(number, (max(low, y.zero), high)))


def _relu6_short(site: CodeSite) -> Emit:
    """The scale stays."""
    x = encoding(site.signature, 0)
    low, high = limits(site.output.dtype)
    six = min(max(x.zero + rounded(float(np.float32(6) / np.float32(x.scale))), low), high)
    f = KernelFormula(site)
    bounds = f.field("low", x.zero), f.field("high", six)
    return f.unary(f"(int16_a){f.use('bounded', 'x[i]', *bounds)}")


def _interpolated_short(site: CodeSite) -> Emit:
    """The logistic function or the hyperbolic tangent by a table with interpolation."""
    is_tanh = site.op == "TANH"
    multiplier, shift = table_multiplier(site.signature, int(is_tanh))
    name = "tanh_s16" if is_tanh else "logistic_s16"
    site.use(name)
    fields: dict[str, Field] = {
        "multiplier": multiplier,
        "shift": shift,
        "table": site.constants.array("sigmoid_table", SIGMOID.astype(np.uint16)),
    }
    return _on_rows(site, name, site.structure("interpolation", fields))


_SHORT: Final[dict[str, Callable[[CodeSite], Emit]]] = {
    "LOGISTIC": _interpolated_short,
    "RELU": _relu_short,
    "RELU6": _relu6_short,
    "TANH": _interpolated_short,
}


@lowers("QUANTIZE")
def quantize(site: CodeSite) -> Emit:
    """Floats are divided by the scale, integers multiplied by the scale ratio."""
    signature, dtype = site.signature, site.input(0).dtype
    if dtype in _BYTES:
        return _table(site)
    check_types(
        signature,
        *("float32 int8", "float32 int16", "int32 int8", "int32 int16"),
        *("int16 int8", "int16 int16", "int16 int32"),
    )
    y, f = encoding(signature, 0, "output"), KernelFormula(site)
    if dtype == FLOAT:
        number = f.let(f"roundf(x[i] / {f.field('scale', y.scale, 'float')})")
        bounded = f"{number} > -65536.0f ? (int32_t){number} : -65536"
        return f.unary(f.encoded(f.let(f"{number} > 65536.0f ? 65536 : {bounded}", "int32_t")))
    if site.output.dtype == np.int32 and y.zero:
        raise site.refuse("its result has a zero point")
    x = encoding(signature, 0)
    return f.unary(f.encoded(f.scaled(f.centered("x[i]", "x", x), "", x.scale / y.scale)))


@lowers("CAST")
def cast(site: CodeSite) -> Emit:
    """Numbers are truncated, bits cut off."""
    types = ("int8", "int16", "int32", "float32", "bool")
    check_types(site.signature, *(f"{a} {b}" for a in types for b in types))
    value = "x[i]"
    if site.output.dtype == np.bool_:
        value = "x[i] != 0"
    elif site.input(0).dtype == FLOAT and site.output.dtype != FLOAT:
        value = "(x[i] >= -2147483648.0f && x[i] < 2147483648.0f ? (int32_t)x[i] : INT32_MIN)"
    return KernelFormula(site).unary(f"({words_of(site.output.dtype)['NUMBER']}){value}")


@lowers("LOGICAL_NOT")
def logical_not(site: CodeSite) -> Emit:
    """Truth values."""
    check_types(site.signature, "bool bool")
    return KernelFormula(site).unary("!x[i]")


@lowers("DEQUANTIZE")
def dequantize(site: CodeSite) -> Emit:
    """Products are made with 64 bits."""
    check_types(site.signature, "int8 float32", "int16 float32", "uint8 float32")
    x, f = encoding(site.signature, 0), KernelFormula(site)
    scale = f.field("scale", f"{x.scale!r}", "double")
    return f.unary(f"(float)({scale} * (double){f.centered('x[i]', 'x', x)})")


# -- two operands ---------------------------------------------------------------------------------


def _quantities(site: CodeSite) -> tuple[Quantity, Quantity, Quantity]:
    """Return the encodings of both operands and the result; 16-bit operands have no zero point."""
    a, b = encoding(site.signature, 0), encoding(site.signature, 1)
    if site.output.dtype == np.int16 and (a.zero or b.zero):
        raise site.refuse("its 16-bit operands have zero points")
    return a, b, encoding(site.signature, 0, "output")


def _common(
    f: KernelFormula, operands: tuple[Quantity, Quantity], left: int, *factors: float | Multiplier
) -> tuple[str, str]:
    """Return both operands on a scale that both have, after a shift to the left."""
    p, q = (
        f.let(f.scaled(f"{f.centered(at, name, own)} * (1 << {left})", f"{name}_", each), "int32_t")
        for at, name, own, each in zip(("*p", "*q"), "ab", operands, factors, strict=True)
    )
    return p, q


_SIGNS: Final = {"ADD": "+", "SUB": "-", "MUL": "*"}


@lowers("ADD", "SUB", "MUL")
def arithmetic(site: CodeSite) -> Emit:
    """Sums, differences and products."""
    signature = site.signature
    check_types(signature, "float32 float32", "int8 int8", "int16 int16", "int32 int32")
    sign, dtype, f = _SIGNS[site.op], site.output.dtype, KernelFormula(site)
    if dtype == FLOAT:
        return f.binary(f.activated(f"*p {sign} *q"))
    if dtype == np.int32:
        low, high = float_range(signature)
        bounds = (
            f.field("low", max(int(low), -(1 << 31))),
            f.field("high", min(int(high), (1 << 31) - 1)),
        )
        return f.binary(f.use("bounded", f"(int32_t)((uint32_t)*p {sign} (uint32_t)*q)", *bounds))
    a, b, y = _quantities(site)
    if site.op == "MUL":
        product = f"{f.centered('*p', 'a', a)} * {f.centered('*q', 'b', b)}"
        value = f.scaled(product, "", a.scale * b.scale / y.scale)
    else:
        left = 15 if dtype == np.int16 else 20
        first, second, last = sum_factors(signature, left)
        p, q = _common(f, (a, b), left, first, second)
        value = f.scaled(f"{p} {sign} {q}", "", last)
    return f.binary(f.encoded(value, activation_range(signature, y)))


@lowers("DIV")
def divide(site: CodeSite) -> Emit:
    """Real numbers only."""
    check_types(site.signature, "float32 float32")
    f = KernelFormula(site)
    return f.binary(f.activated("*p / *q"))


@lowers("MAXIMUM", "MINIMUM")
def extreme(site: CodeSite) -> Emit:
    """The scale stays."""
    check_types(
        site.signature, "float32 float32", "int8 int8", "int16 int16", "int32 int32", "int64 int64"
    )
    sign = ">" if site.op == "MAXIMUM" else "<"
    return KernelFormula(site).binary(f"*p {sign} *q ? *p : *q")


@lowers("PRELU")
def prelu(site: CodeSite) -> Emit:
    """Negative numbers have slopes."""
    check_types(site.signature, "float32 float32", "int8 int8", "int16 int16")
    f = KernelFormula(site)
    if site.output.dtype == FLOAT:
        return f.binary("*p >= 0.0f ? *p : *p * *q")
    x, alpha, y = _quantities(site)
    v = f.let(f.centered("*p", "a", x), "int32_t")
    slope = f.centered("*q", "b", alpha)
    above = f.scaled(v, "above_", x.scale / y.scale)
    below = f.scaled(f"{v} * {slope}", "below_", x.scale * alpha.scale / y.scale)
    return f.binary(f.encoded(f"{v} >= 0 ? {above} : {below}"))


@lowers("SQUARED_DIFFERENCE")
def squared_difference(site: CodeSite) -> Emit:
    """8-bit numbers are brought to a common scale, and the square is rescaled."""
    check_types(site.signature, "float32 float32", "int8 int8")
    f = KernelFormula(site)
    if site.output.dtype == FLOAT:
        return f.binary("(*p - *q) * (*p - *q)")
    left, (a, b, y) = 7, _quantities(site)
    twice = 2 * max(a.scale, b.scale)
    p, q = _common(f, (a, b), left, a.scale / twice, b.scale / twice)
    d = f.let(f"{p} - {q}", "int32_t")
    factor = twice * twice / ((1 << (left * 2)) * y.scale)
    return f.binary(f.encoded(f.scaled(f"{d} * {d}", "", factor)))


_COMPARED: Final = {
    "EQUAL": "==",
    "GREATER": ">",
    "GREATER_EQUAL": ">=",
    "LESS": "<",
    "LESS_EQUAL": "<=",
    "NOT_EQUAL": "!=",
}


@lowers(*_COMPARED)
def compare(site: CodeSite) -> Emit:
    """8-bit integers are compared as multiples of their scales."""
    signature, sign, f = site.signature, _COMPARED[site.op], KernelFormula(site)
    check_types(signature, *(f"{name} bool" for name in ("bool", "float32", "int8", "int32")))
    if site.input(0).dtype != np.int8:
        return f.binary(f"*p {sign} *q")
    a, b = encoding(signature, 0), encoding(signature, 1)
    if max(a.scale, b.scale) >= 1:
        raise site.refuse("its operands have scales of 1 or more")
    p, q = _common(f, (a, b), 8, a.scale, b.scale)
    return f.binary(f"{p} {sign} {q}")


@lowers("LOGICAL_AND", "LOGICAL_OR")
def logical(site: CodeSite) -> Emit:
    """Truth values."""
    check_types(site.signature, "bool bool")
    sign = "&&" if site.op == "LOGICAL_AND" else "||"
    return KernelFormula(site).binary(f"*p {sign} *q")
