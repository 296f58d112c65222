"""Lowers reductions along some dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from arenaplan.deploy.code.code_elements import Fields, factor_of, integers
from arenaplan.deploy.code.code_shapes import Loops, collapsed, dense_steps, padded
from arenaplan.deploy.code.code_site import CodeSite, Emit, lowers, pointer, words_of
from arenaplan.deploy.code.code_text import Field, real
from arenaplan.run.numpy.tflite.fixed import multiplier_of
from arenaplan.run.numpy.tflite.tflite_facts import FLOAT, check_types, encoding, limits
from arenaplan.run.numpy.tflite.tflite_reduce import divided, reduced_axes


@lowers("ARG_MAX", "ARG_MIN")
def position(site: CodeSite) -> Emit:
    """Find the first position of the extreme along a dimension."""
    check_types(site.signature, "float32 int32", "int8 int32")
    x = site.input(0)
    (axis,) = reduced_axes(site.signature)
    count = x.shape[axis]
    if not prod(x.shape):
        raise site.refuse("its operand is empty")
    sign = ">" if site.op == "ARG_MAX" else "<"
    words = {**words_of(x.dtype), "NAME": site.op.lower(), "SIGN": sign}
    function = f"{words['NAME']}_{words['KIND']}"
    site.use("arg_extreme", words, function)
    outer, inner = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    return lambda part: [
        f"{function}({pointer(part, 0)}, {part.output()}, {outer}, {count}, {inner});"
    ]


@lowers("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")
def reduction(site: CodeSite) -> Emit:
    """Reduce along some dimensions."""
    signature = site.signature
    check_types(signature, "float32 float32", "int8 int8", "int16 int16")
    x = site.input(0)
    outer, inner = loops_of(site, reduced_axes(signature))
    count = prod(inner.dims)
    words, name = words_of(x.dtype), site.op.lower()
    fields: Fields = {}
    is_sum, is_real = site.op in ("MEAN", "SUM"), x.dtype == FLOAT
    used = ""
    if is_real and is_sum:
        words |= {"FIRST": "float sum = 0.0f;", "BODY": "sum += number;"}
        words["LAST"] = "*y++ = sum / c->count;"
        fields["count"] = ("float", float(count if site.op == "MEAN" else 1))
    elif is_sum:
        a, b = encoding(signature, 0), encoding(signature, 0, "output")
        factor = multiplier_of(a.scale / b.scale)
        if site.op == "MEAN":
            factor = divided(factor, count)
        low, high = limits(x.dtype)
        if count * max(abs(low - a.zero), abs(high - a.zero)) >= 1 << 31:
            raise site.refuse("its sums may have more than 32 bits")
        fields |= integers(x_zero=a.zero) | factor_of("", factor) | integers(zero=b.zero)
        used = "scaled encoded"
        words |= {"FIRST": "int32_t sum = 0;", "BODY": "sum += number - c->x_zero;"}
        words["LAST"] = (
            f"*y++ = ({words['NUMBER']})encoded(scaled(sum, c->multiplier, c->shift), c->zero, "
            f"{low}, {high});"
        )
    else:
        if not is_real:
            a, b = encoding(signature, 0), encoding(signature, 0, "output")
            if a[:2] != b[:2]:
                raise site.refuse("its operands have different scales")
        sign = ">" if site.op == "REDUCE_MAX" else "<"
        least = "LOW" if sign == ">" else "HIGH"
        bound = real(float(np.finfo(FLOAT).max)) if is_real else words[least]
        first = f"-{bound}" if is_real and sign == ">" else bound
        words |= {"FIRST": f"{words['NUMBER']} most = {first};"}
        words |= {"BODY": f"most = number {sign} most ? number : most;", "LAST": "*y++ = most;"}
    words |= {"NAME": name, "USED": used}
    return reduced(site, outer, inner, words, fields)


def loops_of(site: CodeSite, axes: Sequence[int]) -> tuple[Loops, Loops]:
    """Return loops over the kept dimensions, and loops over the reduced dimensions."""
    x = site.input(0)
    steps = dense_steps(x.shape)
    kept = [at for at in range(len(x.shape)) if at not in axes]
    outer, inner = (
        padded(collapsed(Loops([x.shape[at] for at in some], [[steps[at] for at in some]])), 4)
        for some in (kept, axes)
    )
    if outer is None or inner is None or prod(outer.dims) != prod(site.output.shape):
        raise site.refuse("its result does not fit the operand")
    if not prod(inner.dims):
        raise site.refuse("it has no numbers")
    return outer, inner


def reduced(
    site: CodeSite,
    outer: Loops,
    inner: Loops,
    words: dict[str, str],
    fields: Fields,
) -> Emit:
    """Return a call that reduces the inner loops to a number."""
    words |= {
        "WHAT": f"{site.op} of numbers",
        "FIELDS": "\n  ".join(f"{type_} {field};" for field, (type_, _) in fields.items()),
    }
    function = f"{words['NAME']}_{words['KIND']}"
    site.use("reduce", words, function)
    values: dict[str, Field] = {
        "dims": outer.dims,
        "steps": outer.steps[0],
        "inner_dims": inner.dims,
        "inner_steps": inner.steps[0],
    }
    values |= {field: value for field, (_, value) in fields.items()}
    parameters = site.structure(function, values)
    return lambda part: [f"{function}({parameters}, {pointer(part, 0)}, {part.output()});"]
