"""
Byte convolution by a compiled kernel, with exact sums and a byte result.

Neither the image nor the sums exist in a wide type, not even tile by tile: a result is rounded
while the sum is in a register. A node in :mod:`arenaplan.run.numpy.kernels.integer` is one such
call, and so are the group members that convert an image, convolve the image and convert the result
(:mod:`arenaplan.run.numpy.quantizing`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from math import prod

import numpy as np

from arenaplan._core import (
    ByteEncoding,
    ByteResult,
    CompiledKernel,
    pack_quantized,
    packed_quantized,
    quantized_conv,
    quantized_depthwise,
    quantized_depthwise_scratch,
    quantized_lanes,
    quantized_way,
)
from arenaplan.graph import Choice
from arenaplan.run.numpy.compiled import is_enabled, sides
from arenaplan.run.numpy.constants import shared
from arenaplan.run.numpy.kernels.conv_tiles import Geometry, geometry
from arenaplan.run.numpy.kernels.pieces import worthwhile
from arenaplan.run.numpy.registry import Scratch, Signature, Tensor, scratch_bytes

BYTES = (np.dtype(np.uint8), np.dtype(np.int8))
_ROOMS = (1 << 15, 1 << 14, 1 << 13, 1 << 12, 1 << 11, 0)
"""Scratch elements within which the fastest way is offered."""
_FEW_OUTPUTS = 4
"""Most results per channel, for an image with one channel, without a matrix product."""
_MOST_TERMS = 33_025
"""Most products of two byte differences that fit a 32-bit sum."""
_MOST_TAPS = 258
"""Most such products that fit single precision."""
_MOST_ADDEND = 1 << 23
"""Largest absolute value of an integer that sums begin with, so that neither overflows."""
_CALL, _PLANE = 1.5e3, 80.0
"""Nanoseconds per call, and per plane in a depthwise convolution."""
_CYCLE = 0.58
"""Nanoseconds per cycle that the kernel counts."""
_TAPS = 20.0
"""Operations per nanosecond in depthwise convolutions."""
_CONVERTED = 0.25
"""Nanoseconds in which an element is widened, or rounded."""


@dataclass(frozen=True)
class Encoding:
    """The integers that bytes stand for."""

    dtype: np.dtype
    zero: int

    def compiled(self) -> ByteEncoding:
        """Return the same for the kernel."""
        return ByteEncoding(self.dtype == np.int8, self.zero)


@dataclass(frozen=True)
class Weights:
    """A convolution's weights, and the scales from sums to a result."""

    integers: np.ndarray
    """16-bit integers, less the zero point."""
    scale: np.ndarray
    """For each result channel, the real number that a sum of 1 stands for."""
    shift: np.ndarray
    """Per channel, a number that is added."""
    addend: np.ndarray | None
    """Per channel, an integer that sums begin with."""

    def factors(self, channels: int) -> tuple[np.ndarray, np.ndarray]:
        """Return scale and shift, with one number for each of so many channels."""
        scale, shift = (
            np.ascontiguousarray(np.broadcast_to(numbers.reshape(-1), channels), np.float32)
            for numbers in (self.scale, self.shift)
        )
        return scale, shift


@dataclass(frozen=True)
class QuantizedConv:
    """A byte convolution; the weights are loaded at preparation."""

    sizes: Geometry
    image: Encoding
    result: Encoding
    divisor: float
    """The result scale."""
    bounds: tuple[float, float]
    """Smaller and larger real numbers become these bounds."""
    weights: Callable[[], Weights]

    @cached_property
    def is_depthwise(self) -> bool:
        """Whether every channel is convolved by itself, without a product."""
        sizes = self.sizes
        is_exact = sizes.taps <= _MOST_TAPS
        return sizes.fan_in == 1 and sizes.fan_out <= _FEW_OUTPUTS and is_exact

    @property
    def writes_over(self) -> bool:
        """Whether the result may be the image's memory, where each plane is read first."""
        return self.is_depthwise and self.sizes.fan_out == 1

    def part(self, channels: slice) -> QuantizedConv:
        """
        Return the convolution that makes some result channels.

        Either the convolution has no groups, or a single channel per image channel.
        """
        sizes, whole = self.sizes, self.weights
        count = channels.stop - channels.start
        part = replace(sizes, groups=count) if self.writes_over else replace(sizes, fan_out=count)

        def weights() -> Weights:
            every = whole()
            scale, shift = every.factors(sizes.groups * sizes.fan_out)
            addend = None if every.addend is None else every.addend[channels]
            return Weights(every.integers[channels], scale[channels], shift[channels], addend)

        return replace(self, sizes=part, weights=weights)

    def ways(self) -> Iterator[tuple[int, float]]:
        """Yield elements of scratch memory, and about how many nanoseconds a run then takes."""
        sizes = self.sizes
        planes = sizes.batch * sizes.groups
        axes = sides(sizes.axes)
        if self.is_depthwise:
            made = planes * sizes.fan_out * sizes.rows * sizes.row
            time = 2 * made * sizes.taps / _TAPS + _PLANE * planes
            read = planes * prod(axis.size for axis in sizes.axes)
            yield quantized_depthwise_scratch(*axes), _CALL + time + _CONVERTED * (made + read)
            return
        for room in _ROOMS:
            way = quantized_way(*axes, sizes.fan_in, sizes.fan_out, room)
            yield way.elements, _CALL + _CYCLE * way.cycles * planes

    def choices(self) -> tuple[Choice, ...]:
        """Return the scratch memory sizes to declare."""
        return worthwhile(Choice(scratch_bytes((size,)), cost) for size, cost in self.ways())

    def bind(self, image: np.ndarray, output: np.ndarray, scratch: Scratch) -> CompiledKernel:
        """Return the kernel, bound to the operands and the remaining scratch memory."""
        sizes = self.sizes
        axes = sides(sizes.axes)
        weights = self.weights()
        scale, shift = weights.factors(sizes.groups * sizes.fan_out)
        packed, lanes = self._packed(weights.integers)
        addend = weights.addend
        low, high = self.bounds
        finish = (scale, shift, low, high, self.divisor, self.result.compiled())
        bits = image.view(np.uint8), self.image.compiled()
        target = output.view(np.uint8)
        if self.is_depthwise:
            own = scratch.array((quantized_depthwise_scratch(*axes),))
            start = None if addend is None else addend.astype(np.float32)
            return quantized_depthwise(
                *bits, packed, start, ByteResult(*finish), target, own, *axes
            )
        start = None if addend is None else np.ascontiguousarray(addend, np.int32)
        own = scratch.array((self._elements(scratch.left),))
        result = ByteResult(*finish, start)
        return quantized_conv(*bits, packed, result, target, own, *axes, sizes.groups, lanes)

    def _elements(self, room: int) -> int:
        """Return the elements of scratch memory that the fastest way within some bytes needs."""
        within = [way for way in self.ways() if scratch_bytes((way[0],)) <= room]
        return min(within or self.ways(), key=lambda way: (way[1], way[0]))[0]

    def _packed(self, integers: np.ndarray) -> tuple[np.ndarray, int]:
        """
        Return the weights in reading order, which executors share.

        The second result is the number of channels per lane.
        """
        sizes = self.sizes
        shape = (sizes.groups, sizes.fan_out, sizes.fan_in, sizes.taps)

        def pack() -> tuple[np.ndarray, int]:
            if self.is_depthwise:
                return integers.astype(np.float32), 1
            weights = np.ascontiguousarray(integers.reshape(shape))
            lanes = quantized_lanes(weights)
            packed = np.empty(packed_quantized(list(shape), lanes), np.int32)
            pack_quantized(weights, packed, lanes)
            return packed, lanes

        return shared([], ("quantized Conv", shape, self.is_depthwise, digest(integers)), pack)


def quantized_conv_of(
    signature: Signature,
    encodings: tuple[Encoding, Encoding],
    weights: Callable[[], Weights],
    *,
    divisor: float = 1.0,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> QuantizedConv | None:
    """
    Return a byte convolution, if the compiled kernel runs the convolution.

    Parameters
    ----------
    signature : Signature
        The signature of a Conv node over a byte image.
    encodings : (Encoding, Encoding)
        The encodings of the image and the result.
    """
    image, made = signature.inputs[0], signature.outputs[0]
    if not is_enabled() or image is None or made is None or len(image.shape) not in (3, 4):
        return None
    single = Tensor(image.shape, np.dtype(np.float32))
    sizes = geometry(replace(signature, inputs=(single, *signature.inputs[1:])))
    is_empty = 0 in (*made.shape, sizes.fan_in, *(axis.size for axis in sizes.axes))
    if is_empty or not has_sums(encodings, sizes.depth):
        return None

    def used() -> Weights:
        every = weights()
        return replace(every, integers=np.ascontiguousarray(sizes.used(every.integers)))

    return QuantizedConv(sizes, *encodings, divisor, bounds, used)


def has_sums(encodings: tuple[Encoding, Encoding], terms: int) -> bool:
    """Whether operand and result are bytes, and 32 bits hold a sum of so many terms."""
    are_bytes = all(encoding.dtype in BYTES for encoding in encodings)
    return are_bytes and terms <= _MOST_TERMS - _MOST_ADDEND // 255**2 - 1


def digest(integers: np.ndarray) -> bytes:
    """Return a key that distinguishes weights: each call makes weights anew, and none is kept."""
    return blake2b(np.ascontiguousarray(integers).data).digest()


def small_addend(addend: np.ndarray | None) -> bool:
    """Whether sums may begin with some integers."""
    return addend is None or int(np.abs(addend.astype(np.int64)).max(initial=0)) <= _MOST_ADDEND
