"""Operators that compute each element from the elements at the same position."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from arenaplan.run.c_formulas import ARITHMETIC, FOLDS, INTEGERS, UNARY, clipped
from arenaplan.run.cuda.lowering.site import Kind, Reading, call, rule
from arenaplan.run.cuda.text import c_type, literal, wide
from arenaplan.run.numpy.registry import Signature

_F32 = np.dtype("float32")


def _is_float(signature: Signature) -> bool:
    tensor = signature.outputs[0]
    return tensor is not None and tensor.dtype.kind == "f"


def _unary(*ops: str, floats: bool = True) -> Callable[[Callable[[Reading, str], str]], Any]:
    """Register an elementwise function."""

    def register(function: Callable[[Reading, str], str]) -> Callable[[Reading, str], str]:
        def element(r: Reading, index: str) -> str:
            return function(r, r.same(0, index))

        rule(*ops, kind=Kind.POINTWISE, accepts=_is_float if floats else None)(element)
        return function

    return register


for _op, _formula in UNARY.items():
    _unary(_op, floats=_op not in INTEGERS)(_formula)


@_unary("Not", floats=False)
def inverse(_: Reading, x: str) -> str:
    """Return the logical inverse."""
    return f"!{x}"


@_unary("BitwiseNot", floats=False)
def bitwise_inverse(r: Reading, x: str) -> str:
    """Return all bits inverted."""
    return f"({r.type})(~{x})"


@rule("Clip", kind=Kind.POINTWISE)
def clip(r: Reading, index: str) -> str:
    """Return an element between two bounds, attributes until version 11."""
    bounds: list[str | None] = []
    for position, name in ((1, "min"), (2, "max")):
        if r.has(position):
            bounds.append(r.element(position, "0"))
        elif r.attribute(name, None) is not None and r.signature.version < 11:
            bounds.append(literal(r.attribute(name, None), r.dtype))
        else:
            bounds.append(None)
    return clipped(r, r.same(0, index), *bounds)


@rule("Cast", "CastLike", kind=Kind.POINTWISE)
def cast(r: Reading, index: str) -> str:
    """Return an element as another type."""
    x = r.same(0, index)
    return f"({x} != 0)" if r.dtype.kind == "b" else f"({r.type}){x}"


@rule("IsNaN", kind=Kind.POINTWISE)
def is_nan(r: Reading, index: str) -> str:
    """Whether an element is no number."""
    x = r.same(0, index)
    return f"({x} != {x})"


@rule("IsInf", kind=Kind.POINTWISE)
def is_inf(r: Reading, index: str) -> str:
    """Return whether an element is infinite, with either sign or a given sign."""
    x, dtype = r.same(0, index), r.tensor(0).dtype
    infinite = literal(np.inf, dtype)
    signs = [("detect_positive", infinite), ("detect_negative", f"-{infinite}")]
    tests = [f"{x} == {bound}" for name, bound in signs if r.attribute(name, 1)]
    return f"({' || '.join(tests) or 'false'})"


# -- two operands and more ------------------------------------------------------------


def _binary(text: str, r: Reading, index: str) -> str:
    return f"({r.type})({r.same(0, index)} {text} {r.same(1, index)})"


for _op, _text in {
    **ARITHMETIC,
    "And": "&&",
    "Or": "||",
    "Xor": "!=",
    "BitwiseAnd": "&",
    "BitwiseOr": "|",
    "BitwiseXor": "^",
    "Equal": "==",
    "Less": "<",
    "LessOrEqual": "<=",
    "Greater": ">",
    "GreaterOrEqual": ">=",
}.items():
    rule(_op, kind=Kind.POINTWISE)(partial(_binary, _text))


@rule("Div", kind=Kind.POINTWISE)
def divide(r: Reading, index: str) -> str:
    """Return a quotient; of whole numbers, towards zero, and zero if the divisor is."""
    a, b = r.same(0, index), r.same(1, index)
    if r.dtype.kind == "f":
        return f"{a} / {b}"
    return f"({r.type})({_safe(r, a, b, '/')})"


def _safe(r: Reading, a: str, b: str, operation: str) -> str:
    """Return a division of whole numbers that no machine traps."""
    if r.dtype.kind == "u":
        return f"{b} == 0 ? 0 : {a} {operation} {b}"
    by_minus_one = "0" if operation == "%" else f"({r.type})(0ull - (unsigned long long){a})"
    return f"{b} == 0 ? 0 : {b} == -1 ? {by_minus_one} : {a} {operation} {b}"


@rule("Mod", kind=Kind.POINTWISE)
def modulo(r: Reading, index: str) -> str:
    """Return a remainder, with the sign of the divisor or, as in C, of the dividend."""
    a, b = r.same(0, index), r.same(1, index)
    if r.dtype.kind == "f":
        rest = r.let(r.call("fmod", a, b))
    else:
        rest = r.let(f"({r.type})({_safe(r, a, b, '%')})")
    if r.attribute("fmod", 0) or r.dtype.kind == "u":
        return rest
    zero = r.call("copysign", f"({r.type})0", b) if r.dtype.kind == "f" else rest
    other = f"({rest} < 0) != ({b} < 0) ? ({r.type})({rest} + {b}) : {rest}"
    return f"({rest} == 0 ? {zero} : {other})"


@rule("Pow", kind=Kind.POINTWISE)
def power(r: Reading, index: str) -> str:
    """Return a power; small constant exponents are products and roots."""
    x, exponent = r.same(0, index), r.signature.constant_data(1)
    if exponent is not None and exponent.size == 1 and r.dtype.kind == "f":
        products = {1.0: x, 2.0: f"{x} * {x}", 3.0: f"{x} * {x} * {x}", 0.5: r.call("sqrt", x)}
        number = float(exponent.reshape(-1)[0])
        if number in products:
            return products[number]
    y = r.same(1, index)
    if wide(r.dtype) == np.float32:
        return f"powf({x}, (float){y})"
    return f"({r.type})pow((double){x}, (double){y})"


@rule("PRelu", kind=Kind.POINTWISE)
def prelu(r: Reading, index: str) -> str:
    """Return a multiple below zero."""
    x = r.same(0, index)
    return f"({x} < 0 ? ({r.type})({x} * {r.same(1, index)}) : {x})"


@rule("Where", kind=Kind.POINTWISE)
def where(r: Reading, index: str) -> str:
    """Return one of two elements."""
    return f"({r.same(0, index)} ? {r.same(1, index)} : {r.same(2, index)})"


def _folded(r: Reading, index: str, combine: Callable[[str, str], str]) -> str:
    result = r.same(0, index)
    for position in range(1, len(r.member.inputs)):
        result = r.let(combine(result, r.same(position, index)))
    return result


for _op, _combine in FOLDS.items():
    rule(_op, kind=Kind.POINTWISE)(partial(_folded, combine=_combine))


# -- parameters per channel -------------------------------------------------------------


def _channel(r: Reading, index: str, axis: int) -> str:
    """Return a result element's position along an axis."""
    shape = r.shape
    inner = prod(shape[axis + 1 :])
    at = f"{index} / {inner}" if inner > 1 else index
    return f"({at}) % {shape[axis]}" if axis else f"({at})"


def _is_inference(signature: Signature) -> bool:
    is_one = sum(tensor is not None for tensor in signature.outputs) == 1
    return is_one and not signature.attributes.get("training_mode", 0) and _is_float(signature)


@rule("BatchNormalization", kind=Kind.POINTWISE, accepts=_is_inference)
def batch_normalization(r: Reading, index: str) -> str:
    """Return elements scaled and shifted by training statistics, per channel."""
    channel = _channel(r, index, min(1, len(r.shape) - 1))
    scale, shift, mean_, variance = (r.element(position, channel) for position in range(1, 5))
    dtype = wide(r.dtype)
    type_, epsilon = c_type(dtype), r.number("epsilon", 1e-5, dtype)
    root = call(dtype, "sqrt", f"({type_}){variance} + {epsilon}")
    factor = r.text.let(type_, f"({type_}){scale} / {root}")
    return f"({r.same(0, index)} - ({type_}){mean_}) * {factor} + ({type_}){shift}"


def _of_channel(r: Reading, position: int, index: str) -> str:
    """Return a quantization parameter: a single number for all, or a number per channel."""
    shape = r.tensor(position).shape
    if prod(shape) == 1:
        return r.element(position, "0")
    axis = int(r.attribute("axis", 1))
    return r.element(position, _channel(r, index, axis + len(r.shape) if axis < 0 else axis))


def _is_by_channel(signature: Signature) -> bool:
    """Whether there is one scale, or one per channel, and the types are of whole bytes."""
    x, scale = signature.input(0), signature.input(1)
    if x is None or scale is None or signature.attributes.get("block_size", 0):
        return False
    return len(scale.shape) <= 1 and scale.dtype == np.float32


@rule("DequantizeLinear", kind=Kind.POINTWISE, accepts=_is_by_channel)
def dequantize(r: Reading, index: str) -> str:
    """Return the number that a quantized element stands for."""
    x, scale = r.same(0, index), _of_channel(r, 1, index)
    zero = f" - (int){_of_channel(r, 2, index)}" if r.has(2) else ""
    return f"({r.type})((int){x}{zero}) * {scale}"


@rule("QuantizeLinear", kind=Kind.POINTWISE, accepts=_is_by_channel)
def quantize(r: Reading, index: str) -> str:
    """Return the quantized element nearest to a number, halves to even."""
    x, scale = r.same(0, index), _of_channel(r, 1, index)
    limits = np.iinfo(r.dtype)
    zero = f" + (float){_of_channel(r, 2, index)}" if r.has(2) else ""
    value = r.text.let("float", f"rintf({x} / {scale}){zero}")
    low, high = literal(limits.min, _F32), literal(limits.max, _F32)
    # Comparisons that are false for NaN end at the lower bound, as the conversion requires.
    value = r.text.let("float", f"!({value} > {low}) ? {low} : {value} > {high} ? {high} : {value}")
    return f"({c_type(r.dtype)}){value}"
