"""
Lowers elementwise operators.

An 8-bit result depends on a single 8-bit number and is looked up in a table filled by the
executor's kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from arenaplan.run.numpy.registry import Tensor
from arenaplan.run.numpy.tflite.binary import sum_factors
from arenaplan.run.numpy.tflite.fixed import Multiplier, multiplier_of
from arenaplan.run.numpy.tflite.sigmoid import SIGMOID
from arenaplan.run.numpy.tflite.tflite_facts import (
    FLOAT,
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


# -- one operand ----------------------------------------------------------------------------------


def _unary(site: CodeSite, function: str, parameters: str, *, at: int = 0) -> Emit:
    """Return a call on the numbers in some rows."""
    numbers = site.row_numbers

    def emit(part: CodePart) -> list[str]:
        count = scaled_by(difference(part.stop, part.start), numbers)
        x = at_row(part.input(at), part.start, numbers)
        return [f"{function}({parameters}, {x}, {part.output()}, {count});"]

    return emit


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
    return _unary(site, function, site.constant("table", results))


def elementwise(site: CodeSite, name: str, what: str, fields: Fields, body: str, used: str) -> Emit:
    """Return a call of a kernel of its own: ``body`` makes ``y[i]`` from ``x[i]``."""
    x, y = site.input(0), site.output
    if prod(x.shape) != prod(y.shape):
        raise site.refuse(f"a result of shape {y.shape} is not that of {x.shape}")
    words = _words(x.dtype, y.dtype, name, what, fields) | {"USED": used, "BODY": body}
    function = f"{name}_{words['KIND']}"
    site.use("unary" if fields else "unary_plain", words, function)
    if not fields:
        return _plain(site, function)
    values = {field: value for field, (_, value) in fields.items()}
    return _unary(site, function, site.structure(function, values))


def _words(
    read: np.dtype[Any], made: np.dtype[Any], name: str, what: str, fields: Fields
) -> dict[str, str]:
    """Return the words of a kernel that turns numbers of one type into those of another."""
    words, result = words_of(read), words_of(made)
    same = words["KIND"] == result["KIND"]
    return words | {
        "KIND": words["KIND"] if same else f"{words['KIND']}_{result['KIND']}",
        "NAME": name,
        "WHAT": what,
        "MADE": result["NUMBER"],
        "FIELDS": "\n  ".join(f"{type_} {field};" for field, (type_, _) in fields.items()),
        "LOW": result["LOW"],
        "HIGH": result["HIGH"],
    }


def _plain(site: CodeSite, function: str) -> Emit:
    """Return a call of a kernel without parameters."""
    inner = _unary(site, function, "")
    return lambda part: [line.replace("(, ", "(", 1) for line in inner(part)]


REAL: Final = {
    "ABS": "y[i] = fabsf(x[i]);",
    "CEIL": "y[i] = ceilf(x[i]);",
    "COS": "y[i] = cosf(x[i]);",
    "ELU": "y[i] = x[i] < 0.0f ? expm1f(x[i]) : x[i];",
    "EXP": "y[i] = expf(x[i]);",
    "FLOOR": "y[i] = floorf(x[i]);",
    "HARD_SWISH": (
        "const float three = x[i] + 3.0f, least = three < 0.0f ? 0.0f : three;\n"
        "    y[i] = x[i] * (least > 6.0f ? 6.0f : least) / 6.0f;"
    ),
    "LOG": "y[i] = logf(x[i]);",
    "LOGISTIC": (
        "y[i] = x[i] > 16.619047164916992f ? 1.0f\n"
        "           : x[i] < -9.0f ? expf(x[i])\n"
        "                          : 1.0f / (1.0f + expf(-x[i]));"
    ),
    "NEG": "y[i] = -x[i];",
    "RELU": "y[i] = x[i] < 0.0f ? 0.0f : x[i];",
    "RELU6": "y[i] = x[i] > 6.0f ? 6.0f : (x[i] < 0.0f ? 0.0f : x[i]);",
    "ROUND": "y[i] = x[i] == 0.0f ? x[i] : rintf(x[i]) + 0.0f;",
    "RSQRT": "y[i] = 1.0f / sqrtf(x[i]);",
    "SIN": "y[i] = sinf(x[i]);",
    "SQRT": "y[i] = sqrtf(x[i]);",
    "SQUARE": "y[i] = x[i] * x[i];",
    "TANH": "y[i] = tanhf(x[i]);",
}
"""Statements for real numbers."""


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
    name = site.op.lower()
    return elementwise(site, name, f"{site.op} of each number", {}, REAL[site.op], "")


@lowers("LEAKY_RELU")
def leaky_relu(site: CodeSite) -> Emit:
    """Negative numbers have a slope."""
    if site.input(0).dtype in _BYTES:
        return _table(site)
    check_types(site.signature, "float32 float32", "int16 int16")
    alpha = float(site.signature.attributes.get("alpha", 0.0))
    if site.input(0).dtype != FLOAT:
        return _leaky_short(site, alpha)
    body = "y[i] = x[i] > 0.0f ? x[i] : x[i] * c->alpha;"
    fields: Fields = {"alpha": ("float", alpha)}
    return elementwise(site, "leaky_relu", "LEAKY_RELU of each number", fields, body, "")


def _leaky_short(site: CodeSite, alpha: float) -> Emit:
    """Two factors; the factor for negative numbers may itself be negative."""
    x, y = encoding(site.signature, 0), encoding(site.signature, 0, "output")
    low, high = limits(site.output.dtype)
    slope = x.scale * alpha / y.scale
    fields = integers(x_zero=x.zero)
    fields |= factor_of("above_", multiplier_of(x.scale / y.scale))
    fields |= factor_of("below_", multiplier_of(abs(slope)))
    fields |= integers(sign=-1 if slope < 0 else 1, zero=y.zero)
    body = (
        "const int32_t v = x[i] - c->x_zero;\n"
        "    y[i] = (int16_a)encoded(\n"
        "        v >= 0 ? scaled(v, c->above_multiplier, c->above_shift)\n"
        "               : c->sign * scaled(v, c->below_multiplier, c->below_shift),\n"
        f"        c->zero, {low}, {high});"
    )
    return elementwise(
        site, "leaky_relu", "LEAKY_RELU of each number", fields, body, "scaled encoded"
    )


def _relu_short(site: CodeSite) -> Emit:
    """The scale changes."""
    x, y = encoding(site.signature, 0), encoding(site.signature, 0, "output")
    low, high = limits(site.output.dtype)
    fields = integers(x_zero=x.zero) | factor_of("", multiplier_of(x.scale / y.scale))
    fields |= integers(zero=y.zero, low=max(low, y.zero), high=high)
    body = (
        "y[i] = (int16_a)encoded(scaled(x[i] - c->x_zero, c->multiplier, c->shift), c->zero,\n"
        "                        c->low, c->high);"
    )
    return elementwise(site, "relu", "RELU of each number", fields, body, "scaled encoded")


def _relu6_short(site: CodeSite) -> Emit:
    """The scale stays."""
    x = encoding(site.signature, 0)
    low, high = limits(site.output.dtype)
    six = min(max(x.zero + rounded(float(np.float32(6) / np.float32(x.scale))), low), high)
    body = "y[i] = (int16_a)bounded(x[i], c->low, c->high);"
    fields = integers(low=x.zero, high=six)
    return elementwise(site, "relu6", "RELU6 of each number", fields, body, "bounded")


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
    return _unary(site, name, site.structure("interpolation", fields))


_SHORT: Final[dict[str, Callable[[CodeSite], Emit]]] = {
    "LOGISTIC": _interpolated_short,
    "RELU": _relu_short,
    "RELU6": _relu6_short,
    "TANH": _interpolated_short,
}


def integers(**values: int) -> Fields:
    """Return the fields of integers by name."""
    return {name: ("int32_t", value) for name, value in values.items()}


def factor_of(prefix: str, factor: Multiplier) -> Fields:
    """Return the fields of a factor."""
    return integers(**{f"{prefix}multiplier": factor.value, f"{prefix}shift": factor.shift})


@lowers("QUANTIZE")
def quantize(site: CodeSite) -> Emit:
    """Floats are divided by the scale, integers multiplied by the scale ratio."""
    signature = site.signature
    dtype = site.input(0).dtype
    if dtype in _BYTES:
        return _table(site)
    check_types(
        signature,
        *("float32 int8", "float32 int16", "int32 int8", "int32 int16"),
        *("int16 int8", "int16 int16", "int16 int32"),
    )
    y = encoding(signature, 0, "output")
    low, high = limits(site.output.dtype)
    made = words_of(site.output.dtype)["NUMBER"]
    fields = integers(zero=y.zero, low=low, high=high)
    what = "Numbers on another scale"
    if dtype == FLOAT:
        fields["scale"] = ("float", y.scale)
        body = (
            "const float number = roundf(x[i] / c->scale);\n"
            "    const int32_t whole = number > 65536.0f    ? 65536\n"
            "                          : number > -65536.0f ? (int32_t)number\n"
            "                                               : -65536;\n"
            f"    y[i] = ({made})encoded(whole, c->zero, c->low, c->high);"
        )
        return elementwise(site, "quantize", what, fields, body, "encoded")
    x = encoding(signature, 0)
    fields |= integers(x_zero=x.zero) | factor_of("", multiplier_of(x.scale / y.scale))
    body = (
        f"y[i] = ({made})encoded(scaled(x[i] - c->x_zero, c->multiplier, c->shift), c->zero,\n"
        "                          c->low, c->high);"
    )
    if site.output.dtype == np.int32 and y.zero:
        raise site.refuse("its result has a zero point")
    return elementwise(site, "quantize", what, fields, body, "scaled encoded")


@lowers("CAST")
def cast(site: CodeSite) -> Emit:
    """Numbers are truncated, bits cut off."""
    types = ("int8", "int16", "int32", "float32", "bool")
    check_types(site.signature, *(f"{a} {b}" for a in types for b in types))
    made = words_of(site.output.dtype)["NUMBER"]
    value = "x[i]"
    if site.output.dtype == np.bool_:
        value = "x[i] != 0"
    elif site.input(0).dtype == FLOAT and site.output.dtype != FLOAT:
        value = (
            "(x[i] >= -2147483648.0f && x[i] < 2147483648.0f ? (int32_t)x[i]\n"
            "                                                           : INT32_MIN)"
        )
    return elementwise(site, "cast", "Numbers of another type", {}, f"y[i] = ({made}){value};", "")


@lowers("LOGICAL_NOT")
def logical_not(site: CodeSite) -> Emit:
    """Truth values."""
    check_types(site.signature, "bool bool")
    return elementwise(site, "logical_not", "Negations", {}, "y[i] = !x[i];", "")


@lowers("DEQUANTIZE")
def dequantize(site: CodeSite) -> Emit:
    """Products are made with 64 bits."""
    check_types(site.signature, "int8 float32", "int16 float32", "uint8 float32")
    x = encoding(site.signature, 0)
    fields: Fields = {
        "scale": ("double", f"{x.scale!r}"),
        "zero": ("int32_t", x.zero),
    }
    body = "y[i] = (float)(c->scale * (double)(x[i] - c->zero));"
    return elementwise(site, "dequantize", "Integers as real numbers", fields, body, "")


# -- two operands ---------------------------------------------------------------------------------


def binary(site: CodeSite, what: str, fields: Fields, body: str, used: Sequence[str]) -> Emit:
    """Return a call on some rows: ``body`` makes ``*y++`` from ``*p`` and ``*q``."""
    a, b, y = site.input(0), site.input(1), site.output
    if a.dtype != b.dtype:
        raise site.refuse("its operands have different types")
    loops = broadcast((a.shape, b.shape), y.shape, 5)
    if loops is None:
        raise site.refuse("its operands have too many dimensions to be broadcast")
    dims, (a_steps, b_steps) = loops
    words = _words(a.dtype, y.dtype, site.op.lower(), what, fields)
    words |= {"USED": " ".join(used), "BODY": body, "AXIS": "1"}
    function = f"{words['NAME']}_{words['KIND']}"
    site.use("binary", words, function)
    values: dict[str, Field] = {"dims": dims, "a_steps": a_steps, "b_steps": b_steps}
    values |= {field: value for field, (_, value) in fields.items()}
    parameters = site.structure(function, values)
    # Tensors that are not images have a single "row" with all numbers.
    is_image = len(y.shape) == 4

    def emit(part: CodePart) -> list[str]:
        operands = []
        for at, own in ((0, a_steps), (1, b_steps)):
            base = part.input(at)
            operands.append(at_row(base, part.start, own[1]) if own[1] else base.pointer)
        rows = difference(part.stop, part.start) if is_image else str(dims[1])
        return [f"{function}({parameters}, {', '.join(operands)}, {part.output()}, {rows});"]

    return emit


def _real_bounds(site: CodeSite) -> Fields:
    low, high = map(float, float_range(site.signature))
    return {"low": ("float", low), "high": ("float", high)}


def _encoded(site: CodeSite) -> Fields:
    """Return zero point and bounds of the result."""
    y = encoding(site.signature, 0, "output")
    low, high = activation_range(site.signature, y)
    return integers(zero=y.zero, low=low, high=high)


_SIGNS: Final = {"ADD": ("+", "Sums"), "SUB": ("-", "Differences"), "MUL": ("*", "Products")}


@lowers("ADD", "SUB", "MUL")
def arithmetic(site: CodeSite) -> Emit:
    """Sums, differences and products."""
    signature = site.signature
    check_types(signature, "float32 float32", "int8 int8", "int16 int16", "int32 int32")
    sign, what = _SIGNS[site.op]
    dtype = site.output.dtype
    if dtype == FLOAT:
        body = f"*y++ = real_bounded(*p {sign} *q, c->low, c->high);"
        return binary(site, what, _real_bounds(site), body, ["real_bounded"])
    if dtype == np.int32:
        low, high = float_range(signature)
        fields = integers(low=max(int(low), -(1 << 31)), high=min(int(high), (1 << 31) - 1))
        body = f"*y++ = bounded((int32_t)((uint32_t)*p {sign} (uint32_t)*q), c->low, c->high);"
        return binary(site, what, fields, body, ["bounded"])
    made = words_of(dtype)["NUMBER"]
    a, b, y = encoding(signature, 0), encoding(signature, 1), encoding(signature, 0, "output")
    if dtype == np.int16 and (a.zero or b.zero):
        raise site.refuse("its 16-bit operands have zero points")
    fields = integers(a_zero=a.zero, b_zero=b.zero)
    if site.op == "MUL":
        fields |= factor_of("", multiplier_of(a.scale * b.scale / y.scale)) | _encoded(site)
        value = "scaled((*p - c->a_zero) * (*q - c->b_zero), c->multiplier, c->shift)"
    else:
        left = 15 if dtype == np.int16 else 20
        for prefix, factor in zip(("a_", "b_", ""), sum_factors(signature, left), strict=True):
            fields |= factor_of(prefix, factor)
        fields |= _encoded(site)
        each = [_shifted("p", "a", left), _shifted("q", "b", left)]
        value = (
            f"scaled({each[0]} {sign}\n                                     {each[1]},\n"
            "                             c->multiplier, c->shift)"
        )
    bounds_text = "c->zero, c->low, c->high"
    body = f"*y++ = ({made})encoded({value},\n                                {bounds_text});"
    return binary(site, what, fields, body, ["scaled", "encoded"])


@lowers("DIV")
def divide(site: CodeSite) -> Emit:
    """Real numbers only."""
    check_types(site.signature, "float32 float32")
    body = "*y++ = real_bounded(*p / *q, c->low, c->high);"
    return binary(site, "Quotients", _real_bounds(site), body, ["real_bounded"])


@lowers("MAXIMUM", "MINIMUM")
def extreme(site: CodeSite) -> Emit:
    """The scale stays."""
    check_types(
        site.signature, "float32 float32", "int8 int8", "int16 int16", "int32 int32", "int64 int64"
    )
    sign = ">" if site.op == "MAXIMUM" else "<"
    return binary(
        site,
        "The larger number" if sign == ">" else "The smaller number",
        {},
        f"*y++ = *p {sign} *q ? *p : *q;",
        [],
    )


@lowers("PRELU")
def prelu(site: CodeSite) -> Emit:
    """Negative numbers have slopes."""
    signature = site.signature
    check_types(signature, "float32 float32", "int8 int8", "int16 int16")
    what = "Numbers, of which negative ones have slopes"
    if site.output.dtype == FLOAT:
        return binary(site, what, {}, "*y++ = *p >= 0.0f ? *p : *p * *q;", [])
    x, alpha, y = encoding(signature, 0), encoding(signature, 1), encoding(signature, 0, "output")
    if site.output.dtype == np.int16 and (x.zero or alpha.zero):
        raise site.refuse("its 16-bit operands have zero points")
    low, high = limits(site.output.dtype)
    fields = integers(a_zero=x.zero, b_zero=alpha.zero)
    fields |= factor_of("above_", multiplier_of(x.scale / y.scale))
    fields |= factor_of("below_", multiplier_of(x.scale * alpha.scale / y.scale))
    fields |= integers(zero=y.zero, low=low, high=high)
    made = words_of(site.output.dtype)["NUMBER"]
    body = (
        "const int32_t v = *p - c->a_zero;\n"
        f"            *y++ = ({made})encoded(\n"
        "                v >= 0 ? scaled(v, c->above_multiplier, c->above_shift)\n"
        "                       : scaled(v * (*q - c->b_zero), c->below_multiplier,\n"
        "                                c->below_shift),\n"
        "                c->zero, c->low, c->high);"
    )
    return binary(site, what, fields, body, ["scaled", "encoded"])


@lowers("SQUARED_DIFFERENCE")
def squared_difference(site: CodeSite) -> Emit:
    """8-bit numbers are brought to a common scale, and the square is rescaled."""
    signature = site.signature
    check_types(signature, "float32 float32", "int8 int8")
    what = "Squares of differences"
    if site.output.dtype == FLOAT:
        return binary(site, what, {}, "*y++ = (*p - *q) * (*p - *q);", [])
    left = 7
    a, b, y = encoding(signature, 0), encoding(signature, 1), encoding(signature, 0, "output")
    twice = 2 * max(a.scale, b.scale)
    fields = integers(a_zero=a.zero, b_zero=b.zero)
    fields |= factor_of("a_", multiplier_of(a.scale / twice))
    fields |= factor_of("b_", multiplier_of(b.scale / twice))
    fields |= factor_of("", multiplier_of(twice * twice / ((1 << (left * 2)) * y.scale)))
    fields |= integers(zero=y.zero)
    body = (
        f"const int32_t d = {_shifted('p', 'a', left)} -\n"
        f"                              {_shifted('q', 'b', left)};\n"
        "            *y++ = (int8_t)encoded(scaled(d * d, c->multiplier, c->shift), c->zero,\n"
        "                                   -128, 127);"
    )
    return binary(site, what, fields, body, ["scaled", "encoded"])


def _shifted(pointer: str, name: str, left: int) -> str:
    """Return a number on a scale that both operands have."""
    return (
        f"scaled((*{pointer} - c->{name}_zero) * (1 << {left}), c->{name}_multiplier, "
        f"c->{name}_shift)"
    )


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
    signature, sign = site.signature, _COMPARED[site.op]
    check_types(signature, *(f"{name} bool" for name in ("bool", "float32", "int8", "int32")))
    if site.input(0).dtype != np.int8:
        return binary(site, "Comparisons", {}, f"*y++ = *p {sign} *q;", [])
    a, b = encoding(signature, 0), encoding(signature, 1)
    if max(a.scale, b.scale) >= 1:
        raise site.refuse("its operands have scales of 1 or more")
    fields = integers(a_zero=a.zero, b_zero=b.zero)
    fields |= factor_of("a_", multiplier_of(a.scale)) | factor_of("b_", multiplier_of(b.scale))
    body = f"*y++ = {_shifted('p', 'a', 8)} {sign}\n                   {_shifted('q', 'b', 8)};"
    return binary(site, "Comparisons of multiples of scales", fields, body, ["scaled"])


@lowers("LOGICAL_AND", "LOGICAL_OR")
def logical(site: CodeSite) -> Emit:
    """Truth values."""
    check_types(site.signature, "bool bool")
    sign = "&&" if site.op == "LOGICAL_AND" else "||"
    return binary(site, "Truth values", {}, f"*y++ = *p {sign} *q;", [])
