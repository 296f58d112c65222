"""
Packed weights with a few bits each, with a scale and a zero point per element block.

Weights stay packed: a product widens some columns at a time, a table the rows that are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.pieces import (
    in_sequence,
    operand,
    result,
    when_known,
)
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.registry import MICROSOFT, Run, Signature, Step, scratch_bytes

_TILES = (1 << 13, 1 << 15, 1 << 17, 1 << 19)
"""Bytes in columns that are widened at a time."""
_LEAST = 2.0**-100
"""Stands for the largest element in a block of zeros, so that the reciprocal is finite."""
_CALLS, _WIDENING, _FLOPS = 1.5e4, 1.5, 20.0
"""Nanoseconds that the calls for one tile take, and a weight; operations per nanosecond."""


def unpacking(
    packed: np.ndarray, bits: int, spare: np.ndarray | None, target: np.ndarray
) -> Iterator[Run]:
    """Yield functions that write the elements of bytes, the lowest bits first, as numbers."""
    if bits == 8 or spare is None:
        yield partial(np.copyto, target, packed, "unsafe")
        return
    count = 8 // bits
    for number in range(count):
        yield partial(np.right_shift, packed, bits * number, spare)
        if number < count - 1:
            yield partial(np.bitwise_and, spare, (1 << bits) - 1, spare)
        yield partial(
            np.copyto, target[..., number::count][..., : spare.shape[-1]], spare, "unsafe"
        )


def unpacked(packed: np.ndarray, bits: int, count: int, dtype: np.dtype) -> np.ndarray:
    """Return the first elements in each byte row as numbers."""
    numbers = np.empty((*packed.shape[:-1], packed.shape[-1] * 8 // bits), dtype)
    for run in unpacking(packed, bits, np.empty_like(packed), numbers):
        run()
    return numbers[..., :count]


def _zero_points(step: Step, shape: Sequence[int], bits: int, dtype: np.dtype) -> np.ndarray:
    """Return a zero point per block, which may be stored like the weights."""
    given = step.input(3)
    if given is None:
        return np.full((1,) * len(shape), 1 << bits - 1, dtype)
    if given.dtype == dtype:
        return given.reshape(shape)
    return unpacked(given.reshape(*shape[:-1], -1), bits, shape[-1], dtype)


# -- products --------------------------------------------------------------------------------------


def _columns(signature: Signature) -> tuple[int, int, int, int]:
    """Return the number of columns, of blocks per column, of elements per block, and of bits."""
    attributes = signature.attributes
    inner, length = attributes["K"], attributes.get("block_size", 128)
    return attributes["N"], -(-inner // length), length, attributes.get("bits", 4)


def _tile_bytes(signature: Signature, columns: int) -> int:
    """Return the workspace for a tile."""
    _, blocks, length, bits = _columns(signature)
    numbers, dtype = (columns, blocks * length), np.float32
    turned = 2 * scratch_bytes(numbers, dtype) if signature.input(4) is not None else 0
    rounded = sum(scratch_bytes(shape, dtype) for shape in _rounded_shapes(signature))
    return (
        scratch_bytes(numbers, dtype)
        + rounded
        + turned
        + scratch_bytes((columns, blocks * length * bits // 8), np.uint8)
    )


def _rounded_shapes(signature: Signature) -> Sequence[tuple[int, ...]]:
    """
    Return the shapes of operand 0 in blocks and of the blocks' largest elements, if rounded.

    With accuracy level 4, ONNX Runtime multiplies 8-bit integers: each block of operand 0 is
    rounded to multiples of a 127th of the block's largest element.
    """
    _, blocks, length, bits = _columns(signature)
    output = signature.outputs[0]
    is_exact = signature.attributes.get("accuracy_level", 0) != 4 or (bits == 2 and length < 32)
    if is_exact or signature.input(4) is not None or output is None:
        return ()
    rows = prod(output.shape[:-1])
    return (rows, blocks, length), (rows, blocks, 1), (rows, blocks, 1)


def _round(a: np.ndarray, parts: np.ndarray, most: np.ndarray, least: np.ndarray) -> None:
    """Write an array in blocks, each rounded to 8 bits."""
    flat = parts.reshape(len(a), -1)
    np.copyto(flat[:, : a.shape[1]], a)
    flat[:, a.shape[1] :].fill(0)
    np.maximum.reduce(parts, -1, None, most, keepdims=True)
    np.minimum.reduce(parts, -1, None, least, keepdims=True)
    np.negative(least, out=least)
    np.maximum(most, least, out=most)
    np.maximum(most, _LEAST, out=most)
    np.divide(127, most, out=least)
    np.multiply(parts, least, out=parts)
    np.rint(parts, out=parts)
    np.divide(most, 127, out=most)
    np.multiply(parts, most, out=parts)


def _declare_product(signature: Signature) -> Sequence[Sequence[Choice]]:
    columns, blocks, length, _ = _columns(signature)
    line, output = _tile_bytes(signature, 1), signature.outputs[0]
    rows = 0 if output is None else prod(output.shape[:-1])
    work = columns * blocks * length * (_WIDENING + 2 * rows / _FLOPS)
    widths = sorted({min(columns, max(1, limit // line)) for limit in _TILES})
    times = [work + -(-columns // width) * _CALLS for width in widths]
    sizes = [_tile_bytes(signature, width) for width in widths]
    return [[Choice(size, time) for size, time in zip(sizes, times, strict=True)]]


@heavy_kernel("MatMulNBits", domain=MICROSOFT, workspace=_declare_product)
def matmul_nbits(step: Step) -> Run | None:
    """Multiply by a matrix of blocks, some columns at a time, and add input 5."""
    y = result(step)
    if y.size == 0:
        return None
    columns, blocks, length, bits = _columns(step.signature)
    inner, dtype = step.attributes["K"], y.dtype
    a, y = operand(step, 0).reshape(-1, inner), y.reshape(-1, columns)
    packed = operand(step, 1).reshape(columns, -1)
    scales = operand(step, 2).reshape(columns, blocks, 1)
    groups, bias = step.input(4), step.input(5)
    width = columns
    while _tile_bytes(step.signature, width) > step.workspaces[0].nbytes:
        width = -(-width // 2)
    scratch = step.scratch()
    memory = scratch.array((width, blocks * length), dtype)
    spare = scratch.array((width, packed.shape[1]), np.uint8)
    each = [scratch.array((width, blocks * length), dtype) for _ in range(2) if groups is not None]
    shapes = _rounded_shapes(step.signature)
    rounded = [scratch.array(shape, dtype) for shape in shapes]
    factor = rounded[0].reshape(len(a), -1)[:, :inner] if rounded else a

    def prepare() -> Run | None:
        zeros = _zero_points(step, (columns, blocks), bits, dtype)
        zeros = np.broadcast_to(zeros, (columns, blocks))[..., None]
        work: list[Run] = [partial(_round, a, *rounded)] if rounded else []
        for first in range(0, columns, width):
            cut = slice(first, min(first + width, columns))
            count = cut.stop - first
            wide = memory[:count]
            work += unpacking(packed[cut], bits, spare[:count], wide)
            if groups is None:
                by_block = wide.reshape(count, blocks, length)
                work.append(partial(np.subtract, by_block, zeros[cut], by_block))
                work.append(partial(np.multiply, by_block, scales[cut], by_block))
            else:
                wide = wide[:, :inner]
                for source, spread, apply in zip(
                    (zeros, scales), each, (np.subtract, np.multiply), strict=True
                ):
                    flat = spread.reshape(-1)[: count * inner].reshape(count, inner)
                    work.append(partial(np.take, source[cut, :, 0], groups, 1, flat, "clip"))
                    work.append(partial(apply, wide, flat, wide))
            work.append(partial(np.matmul, factor, wide[:, :inner].T, y[:, cut]))
        if bias is not None:
            work.append(partial(np.add, y, bias, y))
        return in_sequence(*work)

    return when_known(step, (3,), prepare)
