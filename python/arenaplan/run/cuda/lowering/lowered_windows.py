"""
Windows that slide over images: pooling, convolution, local response normalization.

Pools, and convolutions with few channels per group, are maps: a thread computes an element. Other
convolutions are matrix products. The windows for some pixels are copied to a matrix in scratch
memory (``im2col``; for several images, a stack of matrices). cuBLAS then multiplies the weights by
that matrix, straight into the output. Single-pixel windows need no copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from math import prod
from typing import Final, NamedTuple

import numpy as np

from arenaplan.base.errors import InvalidAttribute
from arenaplan.graph import Choice
from arenaplan.graph.ops.window_ops import Axis
from arenaplan.run.cuda.device_work import DeviceProduct, Matrix, Work
from arenaplan.run.cuda.lowering.site import (
    Builder,
    DeviceSite,
    Kind,
    Reading,
    elementwise_launch,
    rule,
    stem_of,
)
from arenaplan.run.cuda.rates import BYTES, LAUNCH, PRODUCT
from arenaplan.run.cuda.text import c_type, literal, row_major, wide
from arenaplan.run.numpy.kernels.conv_transpose import transposed_geometry
from arenaplan.run.numpy.kernels.pool import pool_axes
from arenaplan.run.numpy.kernels.windows import window_axes
from arenaplan.run.numpy.registry import Signature, Tensor

_FEW: Final = 8
"""Most output channels in a group whose convolution is a map."""
_LEAST_TILE: Final = 256
"""Fewest columns in a window matrix, if there are so many."""


def _tensors(signature: Signature) -> tuple[Tensor, Tensor]:
    x, y = signature.input(0), signature.outputs[0]
    if x is None or y is None:
        raise InvalidAttribute(f"node {signature.name!r} ({signature.op}) lacks its image")
    return x, y


def _is_float(signature: Signature) -> bool:
    x = signature.input(0)
    is_alone = [output is not None for output in signature.outputs] == [True]
    return is_alone and x is not None and x.dtype.kind == "f"


def _sum(r: Reading, start: str | None = None) -> str:
    """Return a new variable for a sum, wide enough that short types' rounding does not add up."""
    dtype = wide(r.dtype)
    return r.text.variable(c_type(dtype), start or literal(0, dtype))


# -- taps of a window ---------------------------------------------------------------------


class _Tap(NamedTuple):
    """An element under a window, inside the loops over all elements."""

    inside: str
    """Whether the tap is in the image."""
    padded: str
    """Whether the tap is in the image or in the declared padding."""
    place: str
    """The tap's position in the plane."""
    number: str
    """The tap's position in the kernel."""


def _taps(text: Builder, axes: Sequence[Axis], pixel: str) -> Iterator[_Tap]:
    """Open loops over the elements under a pixel's window, yield a tap, and close the loops."""
    outs = [axis.out for axis in axes]
    sizes = [axis.size for axis in axes]
    kernel = [axis.kernel for axis in axes]
    at = []
    for axis, out, stride in zip(axes, outs, row_major(outs), strict=True):
        position = text.let("int", f"({pixel} / {stride}) % {out}" if out > 1 else "0")
        at.append(text.let("int", f"{position} * {axis.stride} - {axis.before}"))
    with ExitStack() as stack:
        steps, places = [], []
        for dim, axis in enumerate(axes):
            step = f"k{dim}"
            stack.enter_context(
                text.block(f"for (int {step} = 0; {step} < {axis.kernel}; ++{step})")
            )
            steps.append(step)
            places.append(text.let("int", f"{at[dim]} + {step} * {axis.dilation}"))
        pairs = list(zip(places, axes, strict=True))
        inside = " && ".join(f"{z} >= 0 && {z} < {axis.size}" for z, axis in pairs)
        padded = " && ".join(
            f"{z} >= {-axis.before} && {z} < {axis.size + axis.after}" for z, axis in pairs
        )
        yield _Tap(inside, padded, _position(places, sizes), _position(steps, kernel))


def _position(coordinates: Sequence[str], shape: Sequence[int]) -> str:
    pairs = zip(coordinates, row_major(shape), strict=True)
    return f"({' + '.join(f'{at} * {stride}' for at, stride in pairs)})"


# -- pools --------------------------------------------------------------------------------


def _plane(r: Reading, index: str) -> str:
    """Return the position at which the operand's plane for a result element starts."""
    inner, size = prod(r.shape[2:]), prod(r.tensor(0).shape[2:])
    return r.text.let("int", f"{index} / {inner} * {size}")


def _is_pool(signature: Signature) -> bool:
    x, y = signature.input(0), signature.outputs[0]
    is_alone = sum(output is not None for output in signature.outputs) == 1
    return is_alone and x is not None and y is not None and len(x.shape) > 2


@rule("MaxPool", kind=Kind.WINDOW, accepts=_is_pool)
def max_pool(r: Reading, index: str) -> str:
    """Return the largest element under a window."""
    lowest = -np.inf if r.dtype.kind == "f" else np.iinfo(r.dtype).min
    plane = _plane(r, index)
    total = r.text.variable(r.type, literal(lowest, r.dtype))
    for tap in _taps(r.text, pool_axes(r.signature), index):
        with r.text.block(f"if ({tap.inside})"):
            x = r.element(0, f"({plane} + {tap.place})")
            r.text.line(f"{total} = ({x} > {total} || {x} != {x}) ? {x} : {total};")
    return total


@rule("AveragePool", kind=Kind.WINDOW, accepts=_is_float)
def average_pool(r: Reading, index: str) -> str:
    """Return the mean over the elements under a window."""
    plane = _plane(r, index)
    total = _sum(r)
    count = r.text.variable("int", "0")
    for tap in _taps(r.text, pool_axes(r.signature), index):
        counted = tap.padded if r.attribute("count_include_pad", 0) else tap.inside
        r.text.line(f"{count} += {counted};")
        with r.text.block(f"if ({tap.inside})"):
            r.text.line(f"{total} += {r.element(0, f'({plane} + {tap.place})')};")
    return f"{total} / ({c_type(wide(r.dtype))}){count}"


@rule("LRN", kind=Kind.WINDOW, accepts=_is_float)
def local_response(r: Reading, index: str) -> str:
    """Return an element divided by a power of the sum of squares in neighboring channels."""
    size, channels, inner = int(r.attribute("size", 1)), r.shape[1], prod(r.shape[2:])
    channel = r.text.let("int", f"{index} / {inner} % {channels}")
    total = _sum(r)
    loop = f"for (int k = {-((size - 1) // 2)}; k <= {size // 2}; ++k)"
    inside = f"if ({channel} + k >= 0 && {channel} + k < {channels})"
    with r.text.block(loop), r.text.block(inside):
        x = r.element(0, f"({index} + k * {inner})")
        r.text.line(f"{total} += {x} * {x};")
    factor = literal(float(r.attribute("alpha", 1e-4)) / size, r.dtype)
    root = r.call("pow", f"{r.number('bias', 1.0)} + {factor} * {total}", r.number("beta", 0.75))
    return f"{r.element(0, index)} / {root}"


# -- convolution --------------------------------------------------------------------------


def _conv_axes(signature: Signature) -> list[Axis]:
    weights = signature.input(1)
    if weights is None:
        raise InvalidAttribute(f"node {signature.name!r} ({signature.op}) lacks its weights")
    return window_axes(signature, weights.shape[2:])


def _groups(signature: Signature) -> int:
    return int(signature.attributes.get("group", 1))


def _is_narrow(signature: Signature) -> bool:
    """Return whether groups have few channels, so that a matrix product does not pay."""
    if not _is_float(signature) or len(_tensors(signature)[0].shape) < 3:
        return False
    groups = _groups(signature)
    return groups > 1 and _tensors(signature)[1].shape[1] // groups <= _FEW


@rule("Conv", kind=Kind.WINDOW, accepts=_is_narrow)
def narrow_convolution(r: Reading, index: str) -> str:
    """Return the sum of products between an element's window and the channel's weights."""
    text, image, weights = r.text, r.tensor(0).shape, r.tensor(1).shape
    channels, pixels, taps = r.shape[1], prod(r.shape[2:]), prod(weights[2:])
    of_group, made = weights[1], channels // _groups(r.signature)
    channel = text.let("int", f"{index} / {pixels} % {channels}")
    first = text.let(
        "int", f"({index} / {pixels * channels} * {image[1]} + {channel} / {made} * {of_group})"
    )
    total = _sum(r, r.element(2, channel) if r.has(2) else None)
    with text.block(f"for (int c = 0; c < {of_group}; ++c)"):
        for tap in _taps(text, _conv_axes(r.signature), index):
            with text.block(f"if ({tap.inside})"):
                x = r.element(0, f"(({first} + c) * {prod(image[2:])} + {tap.place})")
                w = r.element(1, f"(({channel} * {of_group} + c) * {taps} + {tap.number})")
                text.line(f"{total} += {x} * {w};")
    return total


def _is_of_single_pixels(signature: Signature) -> bool:
    if not _is_float(signature) or len(_tensors(signature)[0].shape) < 3:
        return False
    return all(
        (axis.kernel, axis.stride, axis.before) == (1, 1, 0) and axis.out == axis.size
        for axis in _conv_axes(signature)
    )


def _with_bias(site: DeviceSite) -> list[Work]:
    """Return the work that writes the bias to the whole output."""
    if not site.has(2):
        return []
    output = site.output
    shape, dtype = site.sources.tensors[output]
    inner = prod(shape[2:])

    def body(text: Builder, index: str) -> None:
        made = text.read(site.value(2), f"({index} / {inner} % {shape[1]})")
        text.write(site.sources.place(output), dtype, index, made)

    return [elementwise_launch(site.sources, "bias", prod(shape), body)]


@rule("Conv", kind=Kind.WORK, accepts=_is_of_single_pixels, whole=(0, 1))
def convolution_of_pixels(site: DeviceSite) -> list[Work]:
    """Multiply the weights by the images, without a copy."""
    pixels = prod(site.tensor(0).shape[2:])
    return _multiplied(site, pixels, _most_at_once(site.signature), is_copied=False)


def _column_bytes(signature: Signature) -> int:
    """Return the bytes per column in a window matrix."""
    weights = signature.input(1)
    return 0 if weights is None else prod(weights.shape[1:]) * weights.dtype.itemsize


def _most_at_once(signature: Signature) -> int:
    """
    Return the number of window matrices that a single product call can multiply.

    With a single group, a call covers all images; otherwise, all groups in an image.
    """
    groups = _groups(signature)
    return _tensors(signature)[1].shape[0] if groups == 1 else groups


def _halves(largest: int, smallest: int) -> list[int]:
    """Return a number, the half rounded up, and so on, down to another number."""
    sizes = [largest]
    while sizes[-1] > smallest:
        sizes.append(max(-(-sizes[-1] // 2), smallest))
    return sizes


def _declare_columns(signature: Signature) -> Sequence[Choice]:
    """Offer matrices for all images, half the images, down to one image, then half the pixels."""
    _, y = _tensors(signature)
    pixels, column = prod(y.shape[2:]), _column_bytes(signature)
    count, most = y.shape[0] * _groups(signature), _most_at_once(signature)
    if not pixels * column * count:
        return []
    seconds = 2.0 * count * pixels * column / BYTES  # The matrices are written and read.
    sizes = [(items, pixels) for items in _halves(most, 1)]
    sizes += [(1, columns) for columns in _halves(pixels, min(pixels, _LEAST_TILE))[1:]]
    choices = []
    for items, columns in reversed(sizes):
        calls = -(-most // items) * (count // most) * -(-pixels // columns)
        nanoseconds = (seconds + calls * (LAUNCH + PRODUCT)) * 1e9
        choices.append(Choice(items * columns * column, nanoseconds))
    return choices


def _is_wide(signature: Signature) -> bool:
    return _is_float(signature) and len(_tensors(signature)[0].shape) >= 3


@rule("Conv", kind=Kind.WORK, accepts=_is_wide, whole=(1,), scratch=_declare_columns)
def convolution(site: DeviceSite) -> list[Work]:
    """Copy windows to a matrix, some columns at a time, and multiply the weights by the matrix."""
    weights, made = site.tensor(1).shape, site.sources.tensors[site.output].shape
    rows, pixels = prod(weights[1:]), prod(made[2:])
    fitting = site.scratch_bytes // max(rows * site.tensor(0).dtype.itemsize, 1)
    items = min(max(fitting // max(pixels, 1), 1), _most_at_once(site.signature))
    return _multiplied(site, min(fitting, pixels), items)


def _multiplied(
    site: DeviceSite, columns: int, items: int, *, is_copied: bool = True
) -> list[Work]:
    """
    Return the products of weights and windows, and the copies of the windows, if any.

    Parameters
    ----------
    columns, items : int
        Columns of a window matrix, and number of matrices, that a product multiplies.
    """
    image, dtype = site.tensor(0)
    shape, axes = site.sources.tensors[site.output].shape, _conv_axes(site.signature)
    pixels, groups = prod(shape[2:]), _groups(site.signature)
    channels, made = image[1] // groups, shape[1] // groups
    rows, plane = channels * prod(axis.kernel for axis in axes), channels * prod(image[2:])
    most, works = _most_at_once(site.signature), _with_bias(site)
    if not rows or not prod(shape):
        return works
    for first in range(0, shape[0] * groups, most):
        for item in range(first, first + most, items):
            stack = min(items, first + most - item)
            for start in range(0, pixels, columns):
                count = min(columns, pixels - start)
                windows = Matrix(site.place(0), item * plane, pixels, False, plane)
                if is_copied:
                    assert site.scratch is not None
                    part = item * plane, start, count, stack
                    works.append(_columns(site, axes, rows, part))
                    windows = Matrix(site.scratch, 0, count, False, rows * count)
                distance = made * rows if groups > 1 else 0
                weights = Matrix(site.place(1), item % groups * made * rows, rows, False, distance)
                at = item * made * pixels + start
                output = Matrix(site.sources.place(site.output), at, pixels, False, made * pixels)
                beta = 1.0 if site.has(2) else 0.0
                product = DeviceProduct(
                    dtype, made, count, rows, weights, windows, output, stack, beta=beta
                )
                works.append(product)
    return works


def _columns(
    site: DeviceSite, axes: Sequence[Axis], rows: int, part: tuple[int, int, int, int]
) -> Work:
    """
    Return the launch that copies windows to matrices.

    Parameters
    ----------
    rows : int
        Matrix rows: window elements.
    part : tuple of int
        The first image, the first pixel, the number of pixels, and the number of matrices, whose
        images follow each other.
    """
    image, dtype = site.tensor(0)
    first, start, count, stack = part
    kernel, outs = [axis.kernel for axis in axes], [axis.out for axis in axes]
    matrix = site.scratch
    assert matrix is not None

    def body(text: Builder, index: str) -> None:
        row = text.let("int", f"{index} / (int)count")  # Over all matrices, one below the other.
        pixel = text.let("int", f"{index} % (int)count + (int)start")
        places = []
        for axis, k, out, tap, stride in zip(
            axes, kernel, outs, row_major(kernel), row_major(outs), strict=True
        ):
            step = f"({row} / {tap}) % {k}" if k > 1 else "0"
            position = f"({pixel} / {stride}) % {out}" if out > 1 else "0"
            places.append(
                text.let(
                    "int",
                    f"({position}) * {axis.stride} + ({step}) * {axis.dilation} - {axis.before}",
                )
            )
        inside = " && ".join(
            f"{z} >= 0 && {z} < {axis.size}" for z, axis in zip(places, axes, strict=True)
        )
        made = text.variable(c_type(dtype), literal(0, dtype))
        with text.block(f"if ({inside})"):
            at = _position(places, image[2:])
            plane = f"{row} / {prod(kernel)} * {prod(image[2:])}"
            text.line(f"{made} = {text.read(site.value(0), f'(first + {plane} + {at})')};")
        text.write(matrix, dtype, index, made)

    return elementwise_launch(
        site.sources,
        stem_of(site.member) + "_columns",
        rows * count * stack,
        body,
        {"first": first, "start": start, "count": count, "rows": rows * stack},
        "rows * count",
    )


# -- transposed convolution -----------------------------------------------------------------


@rule("ConvTranspose", kind=Kind.WINDOW, accepts=_is_wide)
def transposed_convolution(r: Reading, index: str) -> str:
    """Return the sum over the elements of the image whose window has an element."""
    text, image, weights = r.text, r.tensor(0).shape, r.tensor(1).shape
    sizes = transposed_geometry(r.signature)
    pixels, of_group, made = prod(r.shape[2:]), sizes.fan_in, sizes.fan_out
    channel = text.let("int", f"{index} / {pixels} % {r.shape[1]}")
    first = text.let("int", f"{channel} / {made} * {of_group}")
    batch = text.let("int", f"{index} / {pixels * r.shape[1]} * {image[1]}")
    total = _sum(r, r.element(2, channel) if r.has(2) else None)
    with ExitStack() as stack:
        places, tests = [], []
        for d, (axis, inner) in enumerate(zip(sizes.axes, row_major(r.shape[2:]), strict=True)):
            stack.enter_context(text.block(f"for (int k{d} = 0; k{d} < {axis.kernel}; ++k{d})"))
            moved = f"{axis.before} - k{d} * {axis.dilation}"
            at = text.let("int", f"({index} / {inner}) % {axis.size} + {moved}")
            place = f"{at} / {axis.stride}"
            tests.append(f"{at} >= 0 && {at} % {axis.stride} == 0 && {place} < {axis.out}")
            places.append(f"({place})")
        stack.enter_context(text.block(f"if ({' && '.join(tests)})"))
        stack.enter_context(text.block(f"for (int c = 0; c < {of_group}; ++c)"))
        place = _position(places, image[2:])
        tap = _position([f"k{d}" for d in range(len(places))], weights[2:])
        x = r.element(0, f"(({batch} + {first} + c) * {prod(image[2:])} + {place})")
        row = f"(({first} + c) * {made} + {channel} % {made})"
        w = r.element(1, f"({row} * {sizes.taps} + {tap})")
        text.line(f"{total} += {x} * {w};")
    return total
