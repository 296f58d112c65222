"""Lowers reductions along some dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from arenaplan.deploy.code.code_elements import KernelFormula
from arenaplan.deploy.code.code_shapes import Loops, collapsed, dense_steps, padded
from arenaplan.deploy.code.code_site import CodeSite, Emit, lowers, pointer, words_of
from arenaplan.deploy.code.code_text import real
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
    f, words = KernelFormula(site), words_of(x.dtype)
    if site.op in ("MEAN", "SUM"):
        is_mean = site.op == "MEAN"
        if x.dtype == FLOAT:
            number = f.field("count", float(count if is_mean else 1), "float")
            return reduced(site, f, (outer, inner), "0.0f", "sum + number", f"sum / {number}")
        a, b = encoding(signature, 0), encoding(signature, 0, "output")
        low, high = limits(x.dtype)
        if count * max(abs(low - a.zero), abs(high - a.zero)) >= 1 << 31:
            raise site.refuse("its sums may have more than 32 bits")
        factor = multiplier_of(a.scale / b.scale)
        last = f.encoded(f.scaled("sum", "", divided(factor, count) if is_mean else factor))
        term = f.centered("number", "x", a)
        return reduced(site, f, (outer, inner), "0", f"sum + {term}", last)
    if x.dtype != FLOAT and encoding(signature, 0)[:2] != encoding(signature, 0, "output")[:2]:
        raise site.refuse("its operands have different scales")
    is_max = site.op == "REDUCE_MAX"
    bound = words["LOW" if is_max else "HIGH"]
    if x.dtype == FLOAT:
        bound = ("-" if is_max else "") + real(float(np.finfo(FLOAT).max))
    body = f"number {'>' if is_max else '<'} sum ? number : sum"
    return reduced(site, f, (outer, inner), bound, body, f"({words['NUMBER']})sum")


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
    site: CodeSite, f: KernelFormula, loops: tuple[Loops, Loops], first: str, next_: str, last: str
) -> Emit:
    """Return a call that reduces the inner loops to a number: ``sum``, with each ``number``."""
    outer, inner = loops
    dtype = site.input(0).dtype
    words = {"FIRST": first, "NEXT": next_, "LAST": last}
    words["SUM"] = "float" if dtype == FLOAT else "int32_t"
    function = f.kernel("reduce", "of numbers", (dtype, dtype), **words)
    parameters = f.structure(
        function,
        dims=outer.dims,
        steps=outer.steps[0],
        inner_dims=inner.dims,
        inner_steps=inner.steps[0],
    )
    return lambda part: [f"{function}({parameters}, {pointer(part, 0)}, {part.output()});"]
