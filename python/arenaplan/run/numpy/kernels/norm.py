"""Normalization: by constants, over channels, over rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod

import numpy as np

from arenaplan._core import CompiledKernel
from arenaplan.base.errors import UnsupportedOp
from arenaplan.graph import Choice
from arenaplan.run.numpy.affine import normalization
from arenaplan.run.numpy.compiled import is_enabled
from arenaplan.run.numpy.cuts import PER_CHANNEL, ROWS
from arenaplan.run.numpy.kernels.pieces import (
    address,
    in_sequence,
    invalid,
    negligible,
    normalized_axis,
    operand,
    result,
    worthwhile,
)
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.kernels.window_cuts import (
    FIRST_CHANNEL,
    NEIGHBORS,
    SCALED_PLANES,
    neighbors,
)
from arenaplan.run.numpy.registry import (
    Run,
    Scratch,
    Signature,
    Step,
    compiled_kernel,
    scratch_bytes,
)

_BLOCK = 1 << 16
"""Elements that all passes work on before the next are fetched."""


# -- batch normalization ---------------------------------------------------------------


def _declare_batch(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for a scale and a shift per channel if known only at run time."""
    source, trains = signature.input(0), signature.attributes.get("training_mode", 0)
    if source is None or (all(signature.constant[1:5]) and not trains):
        return []
    channels = source.shape[1] if len(source.shape) > 1 else 1
    if trains:
        return [[Choice(3 * scratch_bytes((channels,), source.dtype), 0.0)]]
    return [[Choice(2 * scratch_bytes((channels,), source.dtype), 0.0)]]


@heavy_kernel("BatchNormalization", since=7, workspace=_declare_batch, cut=PER_CHANNEL)
def batch_normalization(step: Step) -> Run | None:
    """Scale and shift every channel."""
    source, output = operand(step, 0), result(step)
    if step.attributes.get("training_mode", 0) and step.signature.version >= 14:
        return _train(step)
    if any(out is not None for out in step.outputs[1:]):
        raise UnsupportedOp(
            f"node {step.signature.name!r}: BatchNormalization with statistics as outputs "
            "was another operator before operator set 14"
        )
    if not step.attributes.get("spatial", 1):
        raise UnsupportedOp(
            f"node {step.signature.name!r}: BatchNormalization per element is not supported"
        )
    if output.size == 0:
        return None
    channels = source.shape[1] if source.ndim > 1 else 1
    work: list[Run] = []
    if all(step.signature.constant[1:5]):
        parameters = [operand(step, position) for position in range(1, 5)]
        scale, shift = normalization(parameters, step.attributes.get("epsilon", 1e-5))
        scale, shift = scale.astype(source.dtype), shift.astype(source.dtype)
    else:
        scratch = step.scratch()
        scale, shift = (scratch.array((channels,), source.dtype) for _ in range(2))
        work.append(partial(_write_affine, step, scale, shift))
    return in_sequence(*work, *_scaled_and_shifted(source, output, scale, shift))


def _train(step: Step) -> Run | None:
    """Normalize by this run's statistics, and mix the statistics into those of earlier runs."""
    source, output = operand(step, 0), result(step)
    if output.size == 0:
        return None
    gain, offset = operand(step, 1), operand(step, 2)
    scratch, number = step.scratch(), source.dtype.type
    mean, variance, part = (scratch.array((source.shape[1],), source.dtype) for _ in range(3))
    images, targets = (array.reshape(len(source), len(mean), -1) for array in (source, output))
    share = number(1 / (images.shape[0] * images.shape[2]))
    momentum = number(step.attributes.get("momentum", 0.9))

    def run() -> None:
        np.add.reduce(images, axis=(0, 2), out=mean)
        np.multiply(mean, share, mean)
        np.subtract(images, mean[:, None], targets)
        variance.fill(0)
        for target in targets:
            np.vecdot(target, target, part)
            np.add(variance, part, variance)
        np.multiply(variance, share, variance)
        for position, new in ((3, mean), (4, variance)):
            kept = step.output(position - 2)
            if kept is not None:
                np.subtract(operand(step, position), new, part)
                np.multiply(part, momentum, part)
                np.add(part, new, kept)
        np.add(variance, number(step.attributes.get("epsilon", 1e-5)), part)
        np.sqrt(part, part)
        np.divide(gain, part, part)
        np.multiply(targets, part[:, None], targets)
        np.add(targets, offset[:, None], targets)

    return run


def _scaled_and_shifted(
    source: np.ndarray, output: np.ndarray, scale: np.ndarray, shift: np.ndarray
) -> Iterator[Run]:
    """Yield functions that scale and shift some channels at a time, while in cache."""
    channels = len(scale)
    column = (channels, *(1 for _ in source.shape[2:]))
    scale, shift = scale.reshape(column), shift.reshape(column)
    tall = max(1, min(channels, _BLOCK // prod(source.shape[2:])))
    for n in range(source.shape[0]):
        for start in range(0, channels, tall):
            cut = slice(start, min(start + tall, channels))
            index = (slice(n, n + 1), cut) if source.ndim > 1 else (slice(n, n + 1),)
            tile = output[index]
            yield partial(np.multiply, source[index], scale[cut], tile)
            yield partial(np.add, tile, shift[cut], tile)


def _write_affine(step: Step, scale: np.ndarray, shift: np.ndarray) -> None:
    """Write scale and shift per channel."""
    gain, offset, mean, variance = (operand(step, position) for position in range(1, 5))
    np.add(variance, step.attributes.get("epsilon", 1e-5), scale)
    np.sqrt(scale, scale)
    np.divide(gain, scale, scale)
    np.multiply(mean, scale, shift)
    np.subtract(offset, shift, shift)


# -- over rows ---------------------------------------------------------------------------


class _Rows:
    """
    Normalization of rows: subtract the mean, divide by the deviation, a block at a time.

    Parameters
    ----------
    source, output : array, shape (rows, length)
        May be the same memory.
    scratch : Scratch
        Gives :meth:`bytes` bytes.
    epsilon : float
        Added to the variance.
    centered : bool
        Whether the mean is subtracted.
    """

    def __init__(
        self,
        source: np.ndarray,
        output: np.ndarray,
        scratch: Scratch,
        epsilon: float,
        *,
        centered: bool = True,
    ) -> None:
        self.source, self.output = source, output
        self.epsilon = source.dtype.type(epsilon)
        self.centered = centered
        count, self.length = source.shape
        self.height = self.block(count, self.length)
        self.weights = np.full(self.length, 1 / self.length, source.dtype)
        self.means = scratch.array((self.height,), source.dtype)
        self.factors = scratch.array((self.height,), source.dtype)

    @staticmethod
    def block(count: int, length: int) -> int:
        """Return how many rows are one block."""
        return max(1, min(count, _BLOCK // max(length, 1)))

    @classmethod
    def bytes(cls, count: int, length: int, dtype: np.dtype) -> int:
        """Return the workspace for two values per row in a block."""
        return 2 * scratch_bytes((cls.block(count, length),), dtype)

    def cuts(self) -> Iterator[slice]:
        """Yield the blocks."""
        for start in range(0, len(self.source), self.height):
            yield slice(start, min(start + self.height, len(self.source)))

    def normalize(self, cut: slice) -> Iterator[Run]:
        """Yield functions that normalize the rows of a block, and keep ``1 / deviation``."""
        source, output = self.source[cut], self.output[cut]
        mean, factor = self.means[: len(source)], self.factors[: len(source)]
        if self.centered:
            yield partial(np.matmul, source, self.weights, mean)
            yield partial(np.subtract, source, mean[:, None], output)
            source = output
        yield partial(np.vecdot, source, source, factor)
        yield partial(np.multiply, factor, source.dtype.type(1 / self.length), factor)
        yield partial(np.add, factor, self.epsilon, factor)
        yield partial(np.sqrt, factor, factor)
        yield partial(np.divide, source.dtype.type(1), factor, factor)
        yield partial(np.multiply, source, factor[:, None], output)


def _row_shape(signature: Signature) -> tuple[int, int] | None:
    """Return number and length of the rows that a node normalizes."""
    source = signature.input(0)
    if source is None or 0 in source.shape or not source.shape:
        return None
    if signature.op == "InstanceNormalization":
        return prod(source.shape[:2]), prod(source.shape[2:])
    if signature.op == "GroupNormalization":
        groups = source.shape[0] * signature.attributes.get("num_groups", 1)
        return groups, prod(source.shape) // max(groups, 1)
    axis = signature.attributes.get("axis", -1) % len(source.shape)
    return prod(source.shape[:axis]), prod(source.shape[axis:])


def _declare_rows(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for two values per row in a block."""
    source, shape = signature.input(0), _row_shape(signature)
    if source is None or shape is None:
        return []
    return [[Choice(_Rows.bytes(*shape, source.dtype), 0.0)]]


@heavy_kernel("LayerNormalization", since=17, workspace=_declare_rows, cut=ROWS)
@heavy_kernel("RMSNormalization", since=23, workspace=_declare_rows, cut=ROWS)
def trailing_normalization(step: Step) -> Run | None:
    """Divide the elements behind an axis by deviation or root mean square, then scale and shift."""
    source, output = operand(step, 0), result(step)
    normalized_axis(step, step.attributes.get("axis", -1), source.ndim)
    shape = _row_shape(step.signature)
    if shape is None:
        return None
    epsilon = step.attributes.get("epsilon", 1e-5)
    centered = step.signature.op == "LayerNormalization"
    rows = _Rows(
        source.reshape(shape), output.reshape(shape), step.scratch(), epsilon, centered=centered
    )
    statistics = [
        (array.reshape(-1), vector)
        for array, vector in ((step.output(1), rows.means), (step.output(2), rows.factors))
        if array is not None
    ]
    affine = [
        (function, array)
        for function, array in ((np.multiply, operand(step, 1)), (np.add, step.input(2)))
        if array is not None
    ]
    per_row = all(array.size == shape[1] for _, array in affine)
    work: list[Run] = []
    for cut in rows.cuts():
        work += rows.normalize(cut)
        for array, vector in statistics:
            work.append(partial(np.copyto, array[cut], vector[: cut.stop - cut.start]))
        if per_row:
            tile = rows.output[cut]
            work += [partial(function, tile, part.reshape(-1), tile) for function, part in affine]
    if not per_row:
        work += [partial(function, output, part, output) for function, part in affine]
    return in_sequence(*work)


def _is_compiled(signature: Signature) -> bool:
    """Return whether rows in single precision are normalized, and no statistics are wanted."""
    source, shape = signature.input(0), _row_shape(signature)
    if source is None or shape is None or source.dtype != np.float32 or not is_enabled():
        return False
    factors = [tensor for tensor in signature.inputs[1:] if tensor is not None]
    return not any(signature.outputs[1:]) and all(
        tensor.dtype == np.float32 and prod(tensor.shape) == shape[1] for tensor in factors
    )


@compiled_kernel("LayerNormalization", "RMSNormalization", when=_is_compiled)
def compiled_normalization(step: Step) -> Run | None:
    """Normalize the elements behind an axis, then scale and shift."""
    source, output = operand(step, 0), result(step)
    normalized_axis(step, step.attributes.get("axis", -1), source.ndim)
    shape = _row_shape(step.signature)
    assert shape is not None, "the kernel was chosen for such nodes"
    factors = [None if a is None else a.reshape(-1) for a in (step.input(1), step.input(2))]
    return CompiledKernel.normalization(
        None if address(source) == address(output) else source.reshape(shape),
        output.reshape(shape),
        step.attributes.get("epsilon", 1e-5),
        step.signature.op == "LayerNormalization",
        *factors,
    )


@heavy_kernel("InstanceNormalization", since=6, workspace=_declare_rows, cut=SCALED_PLANES)
@heavy_kernel("GroupNormalization", since=18, workspace=_declare_rows)
def plane_normalization(step: Step) -> Run | None:
    """Normalize channels, or channel groups, in every image, then scale and shift."""
    source, output, shape = operand(step, 0), result(step), _row_shape(step.signature)
    count = source.shape[1]
    if step.signature.op == "GroupNormalization":
        groups = step.attributes.get("num_groups", 0)
        if groups < 1 or count % groups:
            raise invalid(step, f"num_groups is {groups} for {count} channels")
        count = count if step.signature.version >= 21 else groups
    if shape is None:
        return None
    rows = _Rows(
        source.reshape(shape),
        output.reshape(shape),
        step.scratch(),
        step.attributes.get("epsilon", 1e-5),
    )
    work = [run for cut in rows.cuts() for run in rows.normalize(cut)]
    tiles = output.reshape(source.shape[0], count, -1)
    for function, position in ((np.multiply, 1), (np.add, 2)):
        factor = operand(step, position).reshape(count, 1)
        work.append(partial(function, tiles, factor, tiles))
    return in_sequence(*work)


# -- over channels ------------------------------------------------------------------------

_LRN_BLOCKS = (1 << 16, 1 << 18)
"""Workspace sizes to offer, in bytes, if worth saving."""


def _lrn_pixels(shape: Sequence[int], limit: int, item: int) -> int:
    """Return of how many pixels sums and squares fit ``limit`` bytes, at least one."""
    half = limit // 128 * 64  # Each half is rounded up to so many bytes.
    return max(1, min(prod(shape[2:]), half // (shape[1] * item)))


def _declare_lrn(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Offer sums and squares for some pixels at a time."""
    source = signature.input(0)
    if source is None or 0 in source.shape:
        return []
    ways = []
    for limit in (min(negligible(signature), _LRN_BLOCKS[0]), *_LRN_BLOCKS):
        pixels = _lrn_pixels(source.shape, limit, source.dtype.itemsize)
        blocks = source.shape[0] * -(-prod(source.shape[2:]) // pixels)
        size = 2 * scratch_bytes((source.shape[1], pixels), source.dtype)
        ways.append(Choice(size, prod(source.shape) + (1e4 + 1e2 * source.shape[1]) * blocks))
    return [worthwhile(ways)]


@heavy_kernel("LRN", workspace=_declare_lrn, cut=NEIGHBORS)
def lrn(step: Step) -> Run | None:
    """
    Divide by a power of the mean square over neighboring channels.

    Some pixels in all channels at a time: pixels need no others. A part of the result has fewer
    channels than the input, since the neighbors are needed, too.
    """
    source, output = operand(step, 0), result(step)
    if output.size == 0:
        return None
    if step.attributes.get("size", 0) < 1:
        raise invalid(step, f"size is {step.attributes.get('size')}")
    count, channels, *_ = source.shape
    item = source.dtype.itemsize
    some = _lrn_pixels(source.shape, step.workspaces[0].nbytes, item)
    scratch = step.scratch()
    made = output.shape[1]
    sums, squares = (scratch.array((size, some), source.dtype) for size in (made, channels))
    images = source.reshape(count, channels, -1)
    targets = output.reshape(count, made, -1)
    return in_sequence(
        *(
            run
            for image, target in zip(images, targets, strict=True)
            for start in range(0, image.shape[1], some)
            for run in _lrn_block(
                step,
                image[:, start : start + some],
                target[:, start : start + some],
                sums[:, : image.shape[1] - start],
                squares[:, : image.shape[1] - start],
            )
        )
    )


def _lrn_block(
    step: Step, image: np.ndarray, output: np.ndarray, sums: np.ndarray, squares: np.ndarray
) -> Iterator[Run]:
    """Yield the passes over some pixels."""
    number = image.dtype.type
    size, channels, made = step.attributes["size"], len(image), len(output)
    alpha, beta = step.attributes.get("alpha", 1e-4), step.attributes.get("beta", 0.75)
    first = step.attributes.get(FIRST_CHANNEL, 0)
    own = slice(first, first + made)
    yield partial(np.multiply, image, image, squares)
    yield partial(np.copyto, sums, squares[own])
    below, above = neighbors(size, channels)
    for shift in range(-below, above + 1):
        start, stop = max(-first - shift, 0), min(channels - first - shift, made)
        if shift and start < stop:
            part = sums[start:stop]
            other = squares[start + first + shift : stop + first + shift]
            yield partial(np.add, part, other, part)
    yield partial(np.multiply, sums, number(alpha / size), sums)
    yield partial(np.add, sums, number(step.attributes.get("bias", 1.0)), sums)
    if beta == 0.75:  # Two square roots are several times faster than a power.
        yield partial(np.sqrt, sums, sums)
        yield partial(np.sqrt, sums, squares[:made])
        yield partial(np.multiply, sums, squares[:made], sums)
    else:
        yield partial(np.power, sums, number(beta), sums)
    yield partial(np.divide, image[own], sums, output)
