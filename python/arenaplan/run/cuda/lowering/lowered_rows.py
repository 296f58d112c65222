"""
Operators that reduce rows: sums, extremes, softmax, normalizations.

A row is the set of operand elements that become a single number: elements that differ only in the
reduced axes. Each short row has a thread, each long row a block, whose threads combine partial
results in a tree (Harris, Optimizing Parallel Reduction in CUDA).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any, Final

import numpy as np

from arenaplan.run.c_formulas import add, greater, less
from arenaplan.run.cuda.device_work import Launch, Work
from arenaplan.run.cuda.lowering.site import (
    Builder,
    DeviceSite,
    Kind,
    blocks,
    call,
    index_type,
    rule,
    stem_of,
)
from arenaplan.run.cuda.text import THREADS, c_type, literal, row_major, strided_index, wide
from arenaplan.run.numpy.kernels.pieces import invalid, normalized_axis, numbers
from arenaplan.run.numpy.registry import Signature

_SHORT: Final = 64
"""Longest row that one thread reduces by itself."""

Combine = Callable[[str, str], str]


def _product(a: str, b: str) -> str:
    return f"{a} * {b}"


class RowsKernel:
    """
    A kernel with a row per thread or per block.

    Parameters
    ----------
    site : DeviceSite
        The operator.
    shape : sequence of int
        Shape to cut into rows, from the operand.
    axes : sequence of int
        The axes along which a row goes.
    """

    def __init__(self, site: DeviceSite, shape: Sequence[int], axes: Sequence[int]) -> None:
        strides = row_major(shape)
        kept = [axis for axis in range(len(shape)) if axis not in axes]
        self.count = prod(shape[axis] for axis in kept)
        self.length = prod(shape[axis] for axis in axes)
        self._site = site
        self._along = ([shape[axis] for axis in axes], [strides[axis] for axis in axes])
        self._across = ([shape[axis] for axis in kept], [strides[axis] for axis in kept])
        self._shared = 0
        self.text = Builder(site.sources)
        sizes = [prod(tensor.shape) for tensor in site.sources.tensors.values()]
        self.type = index_type(*sizes)
        self.is_short = self.length <= _SHORT
        self._open: list[AbstractContextManager[None]] = []
        text = self.text
        if self.is_short:
            self._enter(text.block("PHASE(t)"))
            text.line(f"const {self.type} row = ({self.type})(BLOCK * {THREADS} + t);")
            self._enter(text.block(f"if (row < {self.count})"))
        else:
            text.line(f"const {self.type} row = ({self.type})BLOCK;")
        self._first = text.let(self.type, strided_index("row", *self._across))

    def _enter(self, block: AbstractContextManager[None]) -> None:
        block.__enter__()
        self._open.append(block)

    def _loop(self) -> AbstractContextManager[None]:
        if self.is_short:
            return self.text.block(f"for ({self.type} k = 0; k < {self.length}; ++k)")
        return self.text.block(f"for ({self.type} k = t; k < {self.length}; k += {THREADS})")

    @property
    def at(self) -> str:
        """The position of the row's element ``k``."""
        step = strided_index("k", *self._along)
        return f"({self._first} + {step})" if step != "0" else self._first

    def reduce(
        self, dtype: np.dtype[Any], start: Any, term: Callable[[str], str], combine: Combine
    ) -> str:
        """Return the name for the combined terms; each term gets an element's position."""
        dtype = wide(dtype)
        text, type_ = self.text, c_type(dtype)
        if self.is_short:
            total = text.variable(type_, literal(start, dtype))
            with self._loop():
                made = text.let(type_, term(self.at))
                text.line(f"{total} = {combine(total, made)};")
            return total
        shared = f"s{self._shared}"
        self._shared += 1
        text.line(f"SHARED {type_} {shared}[{THREADS}];")
        with text.block("PHASE(t)"):
            total = text.variable(type_, literal(start, dtype))
            with self._loop():
                made = text.let(type_, term(self.at))
                text.line(f"{total} = {combine(total, made)};")
            text.line(f"{shared}[t] = {total};")
        text.line("NEXT_PHASE")
        with text.block(f"for (int half = {THREADS // 2}; half > 0; half /= 2)"):
            with text.block("PHASE(t)"), text.block("if (t < half)"):
                pair = (f"{shared}[t]", f"{shared}[t + half]")
                text.line(f"{shared}[t] = {combine(*pair)};")
            text.line("NEXT_PHASE")
        return text.let(type_, f"{shared}[0]")

    def write_each(self, element: Callable[[str], str]) -> None:
        """Write an output element for each row element, at the same position."""
        output = self._site.output
        dtype = self._site.sources.tensors[output].dtype

        def loop() -> None:
            with self._loop():
                made = self.text.let(c_type(dtype), element(self.at))
                self.text.write(self._site.sources.place(output), dtype, self.at, made)

        if self.is_short:
            loop()
            return
        with self.text.block("PHASE(t)"):
            loop()

    def write_one(self, element: Callable[[], str]) -> None:
        """Write a single output element for the row."""
        output = self._site.output
        dtype = self._site.sources.tensors[output].dtype

        def write() -> None:
            self.text.write(self._site.sources.place(output), dtype, "row", element())

        if self.is_short:
            write()
            return
        with self.text.block("PHASE(t)"), self.text.block("if (t == 0)"):
            write()

    def launch(self) -> Launch:
        """Return the launch."""
        while self._open:
            self._open.pop().__exit__(None, None, None)
        grid = blocks(self.count) if self.is_short else self.count
        return self.text.launch(stem_of(self._site.member), grid)


def _is_float(signature: Signature) -> bool:
    tensor, made = signature.input(0), signature.outputs[0]
    return (
        tensor is not None
        and made is not None
        and tensor.dtype.kind == "f"
        and sum(output is not None for output in signature.outputs) == 1
    )


# -- reductions ---------------------------------------------------------------------------


def _axes_are_known(signature: Signature) -> bool:
    x = signature.input(0)
    is_known = signature.input(1) is None or signature.constant_data(1) is not None
    return is_known and x is not None and x.dtype.kind != "b"


def _axes(site: DeviceSite) -> list[int]:
    """Return the reduced axes: all if none is named, unless the node then reduces nothing."""
    facts, rank = site.member.facts, len(site.tensor(0).shape)
    axes = numbers(facts, "axes", 1)
    if not axes:
        if site.signature.attributes.get("noop_with_empty_axes", 0):
            return []
        return list(range(rank))
    return sorted({normalized_axis(facts, axis, rank) for axis in axes})


def _lowest(dtype: np.dtype[Any], sign: int) -> Any:
    """Return the value that no other value is below (``sign`` 1) or above (-1)."""
    if dtype.kind == "f":
        return -sign * np.inf
    return np.iinfo(dtype).min if sign > 0 else np.iinfo(dtype).max


@rule(
    *("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin"),
    kind=Kind.WORK,
    accepts=_axes_are_known,
)
def reduce(site: DeviceSite) -> list[Work]:
    """Reduce all rows along some axes."""
    op, (shape, dtype) = site.signature.op, site.tensor(0)
    dtype = wide(dtype)
    rows = RowsKernel(site, shape, _axes(site))
    text, value, type_ = rows.text, site.value(0), c_type(dtype)

    def plain(at: str) -> str:
        return text.read(value, at)

    if op in ("ReduceMax", "ReduceMin"):
        sign = 1 if op == "ReduceMax" else -1
        combine = greater if sign > 0 else less
        total = rows.reduce(dtype, _lowest(dtype, sign), plain, combine)
    elif op == "ReduceProd":
        total = rows.reduce(dtype, 1, plain, _product)
    else:
        total = rows.reduce(dtype, 0, plain, add)
    if op == "ReduceMean":
        total = f"({type_})({total} / ({type_}){rows.length})"
    rows.write_one(lambda: total)
    return [rows.launch()]


@rule("GlobalAveragePool", "GlobalMaxPool", kind=Kind.WORK, accepts=_is_float)
def global_pool(site: DeviceSite) -> list[Work]:
    """Reduce all pixels in each channel."""
    shape, dtype = site.tensor(0).shape, wide(site.tensor(0).dtype)
    rows = RowsKernel(site, shape, range(2, len(shape)))
    text, value = rows.text, site.value(0)
    if site.signature.op == "GlobalMaxPool":
        total = rows.reduce(dtype, -np.inf, lambda at: text.read(value, at), greater)
    else:
        total = rows.reduce(dtype, 0, lambda at: text.read(value, at), add)
        total = f"{total} / {literal(rows.length, dtype)}"
    rows.write_one(lambda: total)
    return [rows.launch()]


@rule("ArgMax", "ArgMin", kind=Kind.WORK)
def arg_extreme(site: DeviceSite) -> list[Work]:
    """Write the position of the first, or last, extreme element in each row."""
    shape, dtype = site.tensor(0).shape, wide(site.tensor(0).dtype)
    attributes = site.signature.attributes
    axis = normalized_axis(site.member.facts, int(attributes.get("axis", 0)), len(shape))
    rows = RowsKernel(site, shape, [axis])
    text, value, sign = rows.text, site.value(0), 1 if site.signature.op == "ArgMax" else -1
    combine = greater if sign > 0 else less
    best = rows.reduce(dtype, _lowest(dtype, sign), lambda at: text.read(value, at), combine)
    is_last, int64 = attributes.get("select_last_index", 0), np.dtype("int64")
    none = -1 if is_last else rows.length

    def position(at: str) -> str:
        return f"{text.read(value, at)} == {best} ? (long long)k : {none}ll"

    found = rows.reduce(int64, none, position, greater if is_last else less)
    # A row that contains NaN gets the first position.
    rows.write_one(lambda: f"{found} < 0 || {found} >= {rows.length} ? 0ll : {found}")
    return [rows.launch()]


# -- normalizations -------------------------------------------------------------------------


@rule("Softmax", "LogSoftmax", kind=Kind.WORK, accepts=_is_float)
def softmax(site: DeviceSite) -> list[Work]:
    """Write exponentials divided by the sum, or the logarithm of the quotient."""
    shape, dtype = site.tensor(0).shape, wide(site.tensor(0).dtype)
    version = site.signature.version
    axis = int(site.signature.attributes.get("axis", 1 if version < 13 else -1))
    axis = normalized_axis(site.member.facts, axis, len(shape))
    axes = range(axis, len(shape)) if version < 13 else [axis]
    rows = RowsKernel(site, shape, axes)
    text, value = rows.text, site.value(0)
    highest = rows.reduce(dtype, -np.inf, lambda at: text.read(value, at), greater)

    def raised(at: str) -> str:
        return call(dtype, "exp", f"{text.read(value, at)} - {highest}")

    total = rows.reduce(dtype, 0, raised, add)
    if site.signature.op == "Softmax":
        rows.write_each(lambda at: f"{raised(at)} / {total}")
    else:
        rows.write_each(
            lambda at: f"{text.read(value, at)} - {highest} - {call(dtype, 'log', total)}"
        )
    return [rows.launch()]


def _normalize(
    site: DeviceSite,
    axes: Sequence[int],
    scale: Callable[[str], str] | None,
    shift: Callable[[str], str] | None,
    *,
    centered: bool = True,
) -> list[Work]:
    """
    Write elements minus the row mean, divided by the row deviation, scaled and shifted.

    Parameters
    ----------
    scale, shift : callable, optional
        Return the parameter position for an element position.
    """
    shape, dtype = site.tensor(0).shape, wide(site.tensor(0).dtype)
    rows = RowsKernel(site, shape, axes)
    text, value, length = rows.text, site.value(0), literal(rows.length, dtype)
    mean = literal(0, dtype)
    if centered:
        total = rows.reduce(dtype, 0, lambda at: text.read(value, at), add)
        mean = text.let(c_type(dtype), f"{total} / {length}")

    def square(at: str) -> str:
        difference = text.let(c_type(dtype), f"{text.read(value, at)} - {mean}")
        return f"{difference} * {difference}"

    squares = rows.reduce(dtype, 0, square, add)
    epsilon = literal(site.signature.attributes.get("epsilon", 1e-5), dtype)
    root = call(dtype, "sqrt", f"{squares} / {length} + {epsilon}")
    factor = text.let(c_type(dtype), f"{literal(1, dtype)} / {root}")

    def element(at: str) -> str:
        made = f"({text.read(value, at)} - {mean}) * {factor}"
        if scale is not None:
            made = f"{made} * {text.read(site.value(1), scale(at))}"
        if shift is not None:
            made = f"{made} + {text.read(site.value(2), shift(at))}"
        return made

    rows.write_each(element)
    return [rows.launch()]


@rule("LayerNormalization", "RMSNormalization", kind=Kind.WORK, accepts=_is_float)
def layer_normalization(site: DeviceSite) -> list[Work]:
    """Normalize from an axis on."""
    shape = site.tensor(0).shape
    axis = int(site.signature.attributes.get("axis", -1))
    axis = normalized_axis(site.member.facts, axis, len(shape))

    def parameter(position: int) -> Callable[[str], str] | None:
        if not site.has(position):
            return None
        own = site.tensor(position).shape
        full = (*[1] * (len(shape) - len(own)), *own)
        pairs = zip(full, row_major(full), strict=True)
        strides = [0 if size == 1 else stride for size, stride in pairs]
        return lambda at: strided_index(at, shape, strides)

    centered = site.signature.op == "LayerNormalization"
    axes = range(axis, len(shape))
    return _normalize(site, axes, parameter(1), parameter(2), centered=centered)


@rule("InstanceNormalization", kind=Kind.WORK, accepts=_is_float)
def instance_normalization(site: DeviceSite) -> list[Work]:
    """Normalize the pixels in each channel."""
    shape = site.tensor(0).shape
    inner = prod(shape[2:])

    def channel(at: str) -> str:
        return f"({at} / {inner} % {shape[1]})"

    return _normalize(site, range(2, len(shape)), channel, channel)


def _is_scaled_by_channel(signature: Signature) -> bool:
    return _is_float(signature) and signature.version >= 21


@rule("GroupNormalization", kind=Kind.WORK, accepts=_is_scaled_by_channel)
def group_normalization(site: DeviceSite) -> list[Work]:
    """Normalize groups of channels."""
    shape = site.tensor(0).shape
    groups = int(site.signature.attributes.get("num_groups", 1))
    if groups < 1 or shape[1] % groups:
        raise invalid(site.member.facts, f"{shape[1]} channels are not {groups} groups")
    inner = prod(shape[2:])

    def channel(at: str) -> str:
        return f"({at} / {inner} % {shape[1]})"

    tensor = site.tensor(0)
    split = (shape[0], groups, shape[1] // groups, *shape[2:])
    reshaped = _Reshaped(site, tensor._replace(shape=split))
    return _normalize(reshaped, range(2, len(split)), channel, channel)


class _Reshaped(DeviceSite):
    """A site whose operand 0 has the same elements in another shape."""

    def __init__(self, site: DeviceSite, first: Any) -> None:
        super().__init__(site.member, site.sources, site.scratch, site.scratch_bytes)
        self._first = first

    def tensor(self, position: int) -> Any:
        """Return an operand's shape and type."""
        return self._first if position == 0 else super().tensor(position)
