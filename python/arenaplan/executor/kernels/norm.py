"""Normalization: by constants, over channels, over rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod

import numpy as np

from arenaplan.errors import UnsupportedOp
from arenaplan.executor.epilogue import Stages, channel_affine
from arenaplan.executor.kernels.pieces import in_sequence, invalid, normalized_axis, operand, result
from arenaplan.executor.kernels.widen import heavy_kernel
from arenaplan.executor.registry import Run, Scratch, Signature, Step, scratch_bytes
from arenaplan.graph import Choice

_BLOCK = 1 << 16
"""Elements that all passes work on before the next are fetched."""


# -- batch normalization ---------------------------------------------------------------


def _declare_batch(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for a scale and a shift per channel if they are only known at run time."""
    if all(signature.constant[1:5]):
        return []
    source = signature.input(0)
    if source is None:
        return []
    channels = source.shape[1] if len(source.shape) > 1 else 1
    return [[Choice(2 * scratch_bytes((channels,), source.dtype), 0.0)]]


@heavy_kernel("BatchNormalization", since=7, workspace=_declare_batch, epilogue=True)
def batch_normalization(step: Step) -> Run | None:
    """Scale and shift every channel."""
    source, output = operand(step, 0), result(step)
    if step.attributes.get("training_mode", 0) or any(out is not None for out in step.outputs[1:]):
        raise UnsupportedOp(
            f"node {step.signature.name!r}: BatchNormalization in training mode is not supported"
        )
    if not step.attributes.get("spatial", 1):
        raise UnsupportedOp(
            f"node {step.signature.name!r}: BatchNormalization per element is not supported"
        )
    if output.size == 0:
        return None
    stages = Stages(step)
    channels = source.shape[1] if source.ndim > 1 else 1
    work: list[Run] = []
    if all(step.signature.constant[1:5]):
        scale, shift = channel_affine(step, source)
        more, offset = stages.take_channel_affine()
        scale, shift = (part if more is None else part * more for part in (scale, shift))
        shift = shift if offset is None else shift + offset
        scale, shift = scale.astype(source.dtype), shift.astype(source.dtype)
    else:
        scratch = step.scratch()
        scale, shift = (scratch.array((channels,), source.dtype) for _ in range(2))
        work.append(partial(_write_affine, step, scale, shift))
    column = (channels, *(1 for _ in source.shape[2:]))
    scale, shift = scale.reshape(column), shift.reshape(column)
    tall = max(1, min(channels, _BLOCK // prod(source.shape[2:])))
    for n in range(source.shape[0]):
        for start in range(0, channels, tall):
            cut = slice(start, min(start + tall, channels))
            index = (slice(n, n + 1), cut) if source.ndim > 1 else (slice(n, n + 1),)
            tile = output[index]
            work.append(partial(np.multiply, source[index], scale[cut], tile))
            work.append(partial(np.add, tile, shift[cut], tile))
            work += stages.on(output, index)
    return in_sequence(*work)


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
        """Return the workspace that two values per row of a block take."""
        return 2 * scratch_bytes((cls.block(count, length),), dtype)

    def cuts(self) -> Iterator[slice]:
        """Yield the blocks."""
        for start in range(0, len(self.source), self.height):
            yield slice(start, min(start + self.height, len(self.source)))

    def normalize(self, cut: slice) -> Iterator[Run]:
        """Yield what normalizes the rows of a block, and leaves ``1 / deviation`` behind."""
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
    """Return the number and length of the rows that a node normalizes."""
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
    """Ask for two values per row of a block."""
    source, shape = signature.input(0), _row_shape(signature)
    if source is None or shape is None:
        return []
    return [[Choice(_Rows.bytes(*shape, source.dtype), 0.0)]]


@heavy_kernel("LayerNormalization", since=17, workspace=_declare_rows)
def layer_normalization(step: Step) -> Run | None:
    """Normalize what follows an axis, then scale and shift it."""
    return _trailing_normalization(step, centered=True)


@heavy_kernel("RMSNormalization", since=23, workspace=_declare_rows)
def rms_normalization(step: Step) -> Run | None:
    """Divide what follows an axis by its root mean square, then scale it."""
    return _trailing_normalization(step, centered=False)


def _trailing_normalization(step: Step, *, centered: bool) -> Run | None:
    source, output = operand(step, 0), result(step)
    normalized_axis(step, step.attributes.get("axis", -1), source.ndim)
    shape = _row_shape(step.signature)
    if shape is None:
        return None
    epsilon = step.attributes.get("epsilon", 1e-5)
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


@heavy_kernel("InstanceNormalization", since=6, workspace=_declare_rows)
def instance_normalization(step: Step) -> Run | None:
    """Normalize every channel of every image, then scale and shift it."""
    shape = _row_shape(step.signature)
    if shape is None:
        return None
    return _plane_normalization(step, shape, per_channel=True)


@heavy_kernel("GroupNormalization", since=18, workspace=_declare_rows)
def group_normalization(step: Step) -> Run | None:
    """Normalize groups of channels of every image, then scale and shift them."""
    shape, source = _row_shape(step.signature), operand(step, 0)
    groups = step.attributes.get("num_groups", 0)
    if groups < 1 or source.shape[1] % groups:
        raise invalid(step, f"num_groups is {groups} for {source.shape[1]} channels")
    if shape is None:
        return None
    return _plane_normalization(step, shape, per_channel=step.signature.version >= 21)


def _plane_normalization(step: Step, shape: tuple[int, int], *, per_channel: bool) -> Run | None:
    source, output = operand(step, 0), result(step)
    rows = _Rows(
        source.reshape(shape),
        output.reshape(shape),
        step.scratch(),
        step.attributes.get("epsilon", 1e-5),
    )
    work = [run for cut in rows.cuts() for run in rows.normalize(cut)]
    count = source.shape[1] if per_channel else step.attributes["num_groups"]
    tiles = output.reshape(source.shape[0], count, -1)
    for function, position in ((np.multiply, 1), (np.add, 2)):
        factor = operand(step, position).reshape(count, 1)
        work.append(partial(function, tiles, factor, tiles))
    return in_sequence(*work)


# -- over channels ------------------------------------------------------------------------

_LRN_TILES = (1 << 19, 1 << 17, 0)


def _declare_lrn(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Offer tiles of columns; each takes its squares and their sums."""
    source = signature.input(0)
    if source is None or 0 in source.shape:
        return []
    channels, plane = source.shape[1], prod(source.shape[2:])
    choices: list[Choice] = []
    for limit in reversed(_LRN_TILES):
        width = _lrn_width(channels, plane, limit, source.dtype.itemsize)
        tiles = source.shape[0] * -(-plane // width)
        size = 2 * scratch_bytes((channels, width), source.dtype)
        choice = Choice(size, prod(source.shape) + 1e4 * tiles)
        if not choices or choice.cost < choices[-1].cost:
            choices.append(choice)
    return [choices]


def _lrn_width(channels: int, plane: int, limit: int, item: int) -> int:
    """Return how many columns of all channels are one tile."""
    return max(1, min(plane, limit // 2 // (channels * item)))


@heavy_kernel("LRN", workspace=_declare_lrn)
def lrn(step: Step) -> Run | None:
    """Divide by a power of the mean square of neighboring channels."""
    source, output = operand(step, 0), result(step)
    if output.size == 0:
        return None
    size = step.attributes.get("size", 0)
    if size < 1:
        raise invalid(step, f"size is {size}")
    batch, channels = source.shape[:2]
    images, results = source.reshape(batch, channels, -1), output.reshape(batch, channels, -1)
    plane, item = images.shape[2], source.dtype.itemsize
    width = _lrn_width(channels, plane, step.workspaces[0].nbytes, item)
    scratch = step.scratch()
    squares = scratch.array((channels * width,), source.dtype)
    sums = scratch.array((channels * width,), source.dtype)
    work: list[Run] = []
    for n in range(batch):
        for start in range(0, plane, width):
            columns = min(width, plane - start)
            shape, count = (channels, columns), channels * columns
            work += _lrn_tile(
                step,
                images[n, :, start : start + columns],
                results[n, :, start : start + columns],
                squares[:count].reshape(shape),
                sums[:count].reshape(shape),
            )
    return in_sequence(*work)


def _lrn_tile(
    step: Step, source: np.ndarray, output: np.ndarray, squares: np.ndarray, sums: np.ndarray
) -> Iterator[Run]:
    """Yield the passes over some columns."""
    number = source.dtype.type
    size, channels = step.attributes["size"], len(source)
    alpha, beta = step.attributes.get("alpha", 1e-4), step.attributes.get("beta", 0.75)
    yield partial(np.multiply, source, source, squares)
    yield partial(np.copyto, sums, squares)
    for shift in range(-((size - 1) // 2), size // 2 + 1):
        first, stop = max(0, -shift), min(channels, channels - shift)
        if shift and first < stop:
            into = sums[first:stop]
            yield partial(np.add, into, squares[first + shift : stop + shift], into)
    yield partial(np.multiply, sums, number(alpha / size), sums)
    yield partial(np.add, sums, number(step.attributes.get("bias", 1.0)), sums)
    if beta == 0.75:  # Two square roots are several times faster than a power.
        yield partial(np.sqrt, sums, sums)
        yield partial(np.sqrt, sums, squares)
        yield partial(np.multiply, sums, squares, sums)
    else:
        yield partial(np.power, sums, number(beta), sums)
    yield partial(np.divide, source, sums, output)
