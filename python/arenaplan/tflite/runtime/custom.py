"""
Memory that custom kernels request in TensorFlow Lite Micro.

The kernels belong to the signal library, object detection, and the Ethos-U accelerator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from arenaplan.tflite.runtime.flex import numbers
from arenaplan.tflite.runtime.kernels import KernelSite, Preparation, RuntimeKernel
from arenaplan.tflite.runtime.struct_layout import struct

_CIRCULAR_BUFFER: Final = "3p 2i p"
_FACTORS: Final = 64
"""Maximum number of factors in a Fourier transform."""
_MOST_VECTORS: Final = 1 << 16
"""Most vectors for which a kernel keeps buffers; more means a damaged file."""


def _option(site: KernelSite, name: str, default: int = 0) -> int:
    return int(numbers(site.operator.custom_options).get(name, default))


def _channels(size: int, more: int = 0) -> Preparation:
    """Return the request for kernels that keep a number of ``size`` bytes per channel."""

    def initialize(site: KernelSite) -> None:
        site.keep(size * (_option(site, "num_channels") + more))

    return initialize


def _transform(site: KernelSite) -> None:
    """Keep a real Fourier transform's twiddle factors."""
    site.keep(_factors(site))


def _inverse(site: KernelSite) -> None:
    """Keep the factors; for floats, also the result's length."""
    is_float = site.dtype("i0") == "float32"
    site.keep(_factors(site) + (struct("i p", site.pointer).size if is_float else 0))


def _factors(site: KernelSite) -> int:
    """Return the bytes for the twiddle factors, two numbers each."""
    half = _option(site, "fft_length") // 2
    pair = 4 if site.dtype("i0") == "int16" else 8
    inner = 4 * (2 + _FACTORS) + pair * half
    return struct("3p", site.pointer).size + inner + pair * (half * 3 // 2)


def _forward(site: KernelSite) -> None:
    site.describe("i0 o0")
    width = 2 if site.dtype("i0") == "int16" else 4
    site.scratch(width * _option(site, "fft_length"))


def _ring(site: KernelSite, capacity: int) -> None:
    """Keep a circular buffer of 16-bit numbers, readable across the end."""
    size = struct(_CIRCULAR_BUFFER, site.pointer).size
    site.keep(size + 2 * 2 * capacity)


def _stacker(site: KernelSite) -> None:
    context = _option(site, "stacker_left_context") + _option(site, "stacker_right_context")
    _ring(site, _option(site, "num_channels") * (context + 1))


def _outer(shape: Sequence[int]) -> int:
    """Return the number of vectors along the last axis of this shape."""
    count = prod(shape)
    if count > _MOST_VECTORS:
        raise ValueError(count)
    return count


def _rings(site: KernelSite, capacity: int, count: int) -> None:
    site.keep(site.pointer // 8 * count)
    site.keep(site.pointer // 8 * count)
    for _ in range(count):
        _ring(site, capacity)


def _delay(site: KernelSite) -> None:
    site.describe("i0 o0")
    *outer, frame = site.shape("i0") or (1,)
    _rings(site, frame + _option(site, "delay_length"), _outer(outer))


def _framer(site: KernelSite) -> None:
    site.describe("i0 o0 o1")
    frame, step = _option(site, "frame_size"), max(1, _option(site, "frame_step"))
    *outer, _ = site.shape("i0") or (1,)
    capacity = (frame + step - 1) // step * step
    _rings(site, capacity, _outer(outer))


def _overlap_add(site: KernelSite) -> None:
    site.describe("i0 o0")
    *outer, _, frame = site.shape("i0")
    width = 2 if site.dtype("i0") == "int16" else 4
    count = _outer(outer)
    site.keep(site.pointer // 8 * count)
    for _ in range(count):
        site.keep(width * frame)


def _detections(site: KernelSite) -> None:
    site.describe("i0 i1 i2")
    boxes = site.shape("i0")[1]
    most = _option(site, "max_detections")
    classes = _option(site, "num_classes")
    scores = site.shape("i1")
    for size in (
        boxes,
        16 * boxes,
        4 * scores[1] * scores[2],
        4 * boxes,
        4 * boxes,
        4 * most * boxes,
        4 * most * boxes,
        4 * boxes,
        4 * most * boxes,
        4 * max(classes, most) * boxes,
        4 * min(boxes, most) * boxes,
    ):
        site.scratch(size)


def _ethos_u(site: KernelSite) -> None:
    addresses = len(site.operator.inputs) + len(site.operator.outputs)
    site.scratch(8 * addresses)
    site.scratch(site.pointer // 8 * addresses)
    site.describe("i0")


CUSTOM: Final[Mapping[str, RuntimeKernel]] = {
    "CIRCULAR_BUFFER": RuntimeKernel("2i", "i0 o0"),
    "SignalDelay": RuntimeKernel("3i 2p", _delay),
    "SignalEnergy": RuntimeKernel("2i", "i0 o0"),
    "SignalFftAutoScale": RuntimeKernel("", "i0 o0 o1"),
    "SignalFilterBank": RuntimeKernel("[i 5p 2i] p", "i0 i1 i2 i3 i4 i5 o0", _channels(8, 1)),
    "SignalFilterBankLog": RuntimeKernel("2i", "i0 o0"),
    "SignalFilterBankSpectralSubtraction": RuntimeKernel("[8i b] 2p", "i0 o0 o1", _channels(4)),
    "SignalFilterBankSquareRoot": RuntimeKernel("", "i0 i1 o0"),
    "SignalFramer": RuntimeKernel("4i b 2p", _framer),
    "SignalIrfft": RuntimeKernel("5i p", "i0 o0", _inverse),
    "SignalOverlapAdd": RuntimeKernel("5i p", _overlap_add),
    "SignalPCAN": RuntimeKernel("i", "i0 i1 i2 o0"),
    "SignalRfft": RuntimeKernel("5i p i p", _forward, _transform),
    "SignalStacker": RuntimeKernel("4i 2p b 2p", "i0 o0 o1", _stacker),
    "SignalWindow": RuntimeKernel("2i", "i0 i1 o0"),
    "TFLite_Detection_PostProcess": RuntimeKernel(
        "3i 2i i b 4i 11i 6i", _detections, is_compared=False
    ),
    "ethos-u": RuntimeKernel("3i", _ethos_u, is_compared=False),
}
"""Custom kernels, by operator name."""
