"""Operators that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from arenaplan.run.cuda.device_work import Work
from arenaplan.run.cuda.lowering.site import (
    DeviceSite,
    Kind,
    Reading,
    elementwise_launch,
    rule,
    stem_of,
    unreal,
)
from arenaplan.run.cuda.text import literal, row_major, strided_index
from arenaplan.run.numpy.kernels.layout import pad_sizes, sliced, tiled, transposed
from arenaplan.run.numpy.kernels.pieces import normalized_axis, numbers, operand, result
from arenaplan.run.numpy.registry import Signature, Step


def _is_inference(signature: Signature) -> bool:
    training = signature.constant_data(2)
    return signature.input(2) is None or (training is not None and not training.any())


@rule("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze", kind=Kind.POINTWISE)
def same_elements(r: Reading, index: str) -> str:
    """Return the element at the same position in row-major order."""
    return r.element(0, index)


@rule("Dropout", kind=Kind.POINTWISE, accepts=_is_inference)
def dropout(r: Reading, index: str) -> str:
    """Return the element unchanged, as everywhere outside training; the mask keeps all."""
    return literal(1, r.dtype) if r.slot else r.element(0, index)


View: TypeAlias = Callable[[Step], np.ndarray]
"""Returns the result of a step as a view of operand 0."""


def _viewed(view: View, r: Reading, index: str) -> str:
    """Return the element that a view on operand 0 has at a position."""
    image = unreal(r.tensor(0).shape)
    seen = view(replace(r.facts, inputs=(image, *r.facts.inputs[1:])))
    if seen.size != prod(r.shape):
        raise r.invalid(f"shape {seen.shape} is made where {r.shape} is declared")
    start = seen.__array_interface__["data"][0] - image.__array_interface__["data"][0]
    return r.element(0, strided_index(index, seen.shape, seen.strides, start))


def _are_known(*positions: int) -> Callable[[Signature], bool]:
    """Return a predicate: whether these operands are constants or left out."""

    def accepts(signature: Signature) -> bool:
        return all(
            signature.input(at) is None or signature.constant_data(at) is not None
            for at in positions
        )

    return accepts


_VIEWS: Final[Sequence[tuple[str, View, tuple[int, ...]]]] = (
    ("Expand", lambda step: np.broadcast_to(operand(step, 0), result(step).shape), ()),
    ("Slice", sliced, (1, 2, 3, 4)),
    ("Tile", tiled, ()),
    ("Transpose", transposed, ()),
)
"""Views by operator, with the operands that must be known."""

for _op, _view, _needed in _VIEWS:
    rule(_op, kind=Kind.MOVE, accepts=_are_known(*_needed))(partial(_viewed, _view))


@rule("Split", kind=Kind.MOVE, accepts=_are_known(1))
def split(r: Reading, index: str) -> str:
    """Return an element of a part of the operand along an axis."""

    def part(step: Step) -> np.ndarray:
        x = operand(step, 0)
        axis = normalized_axis(step, r.attribute("axis", 0), x.ndim)
        sizes = numbers(step, "split", 1)
        size = -(-x.shape[axis] // len(r.member.outputs))
        start = r.slot * size if sizes is None else sum(sizes[: r.slot])
        return x[(slice(None),) * axis + (slice(start, start + r.shape[axis]),)]

    return _viewed(part, r, index)


@rule("Concat", kind=Kind.WORK)
def concat(site: DeviceSite) -> list[Work]:
    """Copy each operand to the matching part of the output."""
    output = site.output
    shape, dtype = site.sources.tensors[output]
    axis = normalized_axis(
        site.member.facts, int(site.signature.attributes.get("axis", 1)), len(shape)
    )
    strides, start = row_major(shape), 0
    works: list[Work] = []
    for position, value in enumerate(site.member.inputs):
        if value is None:
            continue
        part = site.sources.tensors[value].shape
        target = partial(strided_index, shape=part, strides=strides, offset=start * strides[axis])

        def body(text: Any, index: str, value: int = value, target: Any = target) -> None:
            element = text.read(value, index)
            text.write(site.sources.place(output), dtype, target(index), element)

        if prod(part):
            launch = elementwise_launch(site.sources, stem_of(site.member), prod(part), body)
            works.append(replace(launch, position=position))
        start += part[axis]
    return works


# -- positions that are computed ----------------------------------------------------------


def _coordinates(r: Reading, index: str) -> list[str]:
    """Return the names for a result element's coordinates."""
    names = []
    for size, stride in zip(r.shape, row_major(r.shape), strict=True):
        at = index if stride == 1 else f"{index} / {stride}"
        names.append(r.text.let("int", f"({at}) % {size}" if size > 1 else "0"))
    return names


def _place(coordinates: Sequence[str], shape: Sequence[int]) -> str:
    """Return the position for some coordinates."""
    pairs = zip(coordinates, row_major(shape), strict=True)
    terms = [at if stride == 1 else f"{at} * {stride}" for at, stride in pairs if at != "0"]
    return f"({' + '.join(terms)})" if terms else "0"


def _pads_are_known(signature: Signature) -> bool:
    mode = signature.attributes.get("mode", "constant")
    mode = mode.decode() if isinstance(mode, bytes) else mode
    return _are_known(1, 3)(signature) and mode in ("constant", "edge", "reflect", "wrap")


@rule("Pad", kind=Kind.MOVE, accepts=_pads_are_known)
def pad(r: Reading, index: str) -> str:
    """Return an element from the operand, or from the surrounding border."""
    shape = r.tensor(0).shape
    before, _ = pad_sizes(r.facts, len(shape))
    mode = r.attribute("mode", "constant")
    tests, places = [], []
    for size, out, first, at in zip(shape, r.shape, before, _coordinates(r, index), strict=True):
        if (size, first) == (out, 0):
            places.append(at)
            continue
        moved = r.text.let("int", f"{at} - {first}" if first else at)
        if mode == "constant":
            tests.append(f"{moved} >= 0 && {moved} < {size}")
        if mode == "reflect" and size > 1:
            period = 2 * (size - 1)
            folded = r.text.let("int", f"(({moved} % {period}) + {period}) % {period}")
            moved = r.text.let("int", f"{folded} < {size} ? {folded} : {period} - {folded}")
        elif mode == "wrap":
            moved = r.text.let("int", f"(({moved} % {size}) + {size}) % {size}")
        else:
            moved = r.text.let("int", f"{moved} < 0 ? 0 : {moved} < {size} ? {moved} : {size - 1}")
        places.append(moved)
    if 0 in shape:
        return _border(r)
    element = r.element(0, _place(places, shape))
    return f"({' && '.join(tests)} ? {element} : {_border(r)})" if tests else element


def _border(r: Reading) -> str:
    if r.has(2):
        return r.element(2, "0")
    return literal(r.attribute("value", 0.0), r.dtype)


def _bounded(r: Reading, position: str, size: int) -> str:
    """Return an index, counted from the end if negative, and clamped to the axis."""
    at = r.text.let("long long", f"{position} < 0 ? {position} + {size} : {position}")
    return r.text.let("long long", f"{at} < 0 ? 0 : {at} < {size} ? {at} : {size - 1}")


@rule("Gather", kind=Kind.MOVE)
def gather(r: Reading, index: str) -> str:
    """Return an element from the rows that indices name."""
    shape, indices = r.tensor(0).shape, r.tensor(1).shape
    axis = normalized_axis(r.facts, int(r.attribute("axis", 0)), len(shape))
    inner, count = prod(shape[axis + 1 :]), prod(indices)
    named = r.element(1, f"({index} / {inner} % {count})" if count > 1 else "0")
    at = _bounded(r, named, shape[axis])
    terms = [f"{at} * {inner}"]
    if inner > 1:
        terms.append(f"{index} % {inner}")
    if axis and prod(shape[:axis]) > 1:
        terms.append(f"{index} / {inner * count} * {inner * shape[axis]}")
    return r.element(0, f"({' + '.join(terms)})")


@rule("GatherElements", kind=Kind.MOVE)
def gather_elements(r: Reading, index: str) -> str:
    """Return the element that an index names along an axis."""
    shape = r.tensor(0).shape
    axis = normalized_axis(r.facts, int(r.attribute("axis", 0)), len(shape))
    places = _coordinates(r, index)
    places[axis] = _bounded(r, r.element(1, index), shape[axis])
    return r.element(0, _place(places, shape))


@rule("Trilu", kind=Kind.MOVE, accepts=_are_known(1))
def trilu(r: Reading, index: str) -> str:
    """Return elements on one side of a diagonal, and zero on the other."""
    rows, columns = r.shape[-2:]
    diagonal = numbers(r.facts, "k", 1)
    shift = int(diagonal[0]) if diagonal else 0
    row, column = f"({index} / {columns} % {rows})", f"({index} % {columns})"
    test = ">=" if r.attribute("upper", 1) else "<="
    element = r.element(0, index)
    return f"({column} - {row} {test} {shift} ? {element} : ({r.type})0)"


def _is_whole_number_resize(signature: Signature) -> bool:
    """Return whether an image is enlarged by whole numbers, with nearest pixels."""
    x, y = signature.input(0), signature.outputs[0]
    if x is None or y is None or len(x.shape) != len(y.shape) or 0 in x.shape:
        return False
    attributes = signature.attributes

    def text(name: str, default: str) -> str:
        found = attributes.get(name, default)
        return found.decode() if isinstance(found, bytes) else str(found)

    is_plain = signature.op == "Upsample" or (
        text("coordinate_transformation_mode", "half_pixel"),
        text("nearest_mode", "round_prefer_floor"),
    ) in (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"))
    whole = all(out % size == 0 for out, size in zip(y.shape, x.shape, strict=True))
    return text("mode", "nearest") == "nearest" and is_plain and whole


def _enlarged(step: Step) -> np.ndarray:
    """Return each element repeated along each axis."""
    x, y = operand(step, 0), result(step)
    pairs = [(size, out // size) for out, size in zip(y.shape, x.shape, strict=True)]
    lone = x.reshape([each for size in x.shape for each in (size, 1)])
    return np.broadcast_to(lone, [each for pair in pairs for each in pair])


rule("Resize", "Upsample", kind=Kind.MOVE, accepts=_is_whole_number_resize)(
    partial(_viewed, _enlarged)
)
