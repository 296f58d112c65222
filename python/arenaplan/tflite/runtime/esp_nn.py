"""
Memory that ESP-NN kernels request in TensorFlow Lite Micro.

The formulas come from the functions ``esp_nn_get_*_scratch_size`` for the ESP32-S3 in
https://github.com/espressif/esp-nn, version 1.2.3 of April 2026, and the requests from the kernels
in https://github.com/espressif/esp-tflite-micro as of August 2026. Operators that are not in the
table use reference kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Final

from arenaplan.tflite.runtime import kernels as reference
from arenaplan.tflite.runtime.cmsis import CONV, ConvolutionWindow, window_of
from arenaplan.tflite.runtime.kernels import KernelSite, RuntimeKernel

_MARGIN: Final = 64
"""Bytes for alignment, and for loads before and after a convolution's memory."""
_LARGEST_IMAGE: Final = 40 << 10
"""Larger padded images are copied some rows at a time."""
_LARGEST_WIDE: Final = 48 << 10
"""The same for images and weights as numbers of 16 bits."""

OWN_ELEMENTWISE: Final = frozenset({"ADD", "MUL"})
"""Elementwise operators with kernels of ESP-NN, which load ahead of what they store."""


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _excess(site: KernelSite, window: ConvolutionWindow) -> tuple[int, int]:
    """Return columns and rows under windows behind the image."""
    _, height, width, _ = site.shape("i0")
    _, made_height, made_width, _ = site.shape("o0")
    _, tall, wide, _ = site.shape("i1")
    return (
        made_width * window.stride_width + wide - 1 - width,
        made_height * window.stride_height + tall - 1 - height,
    )


def conv_bytes(site: KernelSite) -> int:
    """Return a byte convolution's scratch memory."""
    window = window_of(site, (4, 5))
    _, height, width, depth = site.shape("i0")
    _, tall, wide, _ = site.shape("i1")
    made, left, top = site.shape("o0")[3], window.padding_width, window.padding_height
    is_point = (tall, wide, left, top) == (1, 1, 0, 0)
    if is_point and (window.stride_width, window.stride_height) == (1, 1):
        padded = _up(depth, 8)
        image = width * height * padded if depth % 8 else 0
        turned = 16 * padded if width * height >= 8 else 0
        return image + padded * made + turned + _MARGIN
    row, taps = wide * depth, wide * tall * depth
    if row < 16 <= taps:
        aligned = _up(taps, 16)
        return made * (4 + aligned) + aligned + 32 + _MARGIN
    image = (width + 2 * left) * (height + 2 * top) * depth if left or top else 0
    right, below = (max(0, each) for each in _excess(site, window))
    edges = (width + right) * (height + below) * depth if right or below else 0
    filters = wide * tall * _up(depth, 16) * made + _up(row, 16) * tall * made
    return image + filters + edges + _MARGIN + 4 * made


def depthwise_bytes(site: KernelSite) -> int:
    """Return a byte depthwise convolution's scratch memory."""
    factor = max(1, site.operator.options.number(3))
    _, height, width, depth = site.shape("i0")
    _, tall, wide, _ = site.shape("i1")
    filters, image = wide * tall * depth * factor, width * height * depth
    if factor % 4 == 0:
        return 2 * (filters + image) + 32
    if factor > 1 or depth <= 3:
        return 32
    if depth % 8 == 0 and (tall, wide) == (3, 3) and depth > 8:
        return _three_by_three(site, filters)
    if depth % 8 == 0:
        is_small = depth == 8 and (tall, wide) == (3, 3)
        if is_small or 2 * (filters + image) <= _LARGEST_WIDE:
            return 2 * (filters + image) + 32
        return 2 * filters + 2 * width * tall * depth + 32
    padded = _up(depth, 8)
    at = _up(2 * wide * tall * padded, 16)
    at = _up(at + 2 * width * height * padded, 16)
    at = _up(at + prod(site.shape("o0")[1:3]) * padded, 16)
    return at + 3 * 4 * padded + 16


def _three_by_three(site: KernelSite, filters: int) -> int:
    """Return the scratch memory for windows of three by three, at more than eight channels."""
    window = window_of(site, (5, 6))
    _, height, width, depth = site.shape("i0")
    left, top = 2 * window.padding_width, 2 * window.padding_height
    right, below = _excess(site, window)
    if depth % 16:
        padded = _up(depth, 16)
        image = (width + left + max(0, right)) * (height + top + max(0, below)) * padded
        return 9 * padded + image + prod(site.shape("o0")[1:3]) * padded + 64
    columns, rows = (left, top) if left or top else (right, below)
    if not columns and not rows:
        return filters + 16
    image = (width + columns) * (height + rows) * depth
    return filters + (image if image <= _LARGEST_IMAGE else (width + columns) * 3 * depth) + 16


def _softmax_bytes(site: KernelSite) -> int:
    """Return the scratch memory for the second dimension, which the kernel takes for the row."""
    shape = site.shape("i0")
    return 4 * shape[1] if site.dtype("o0") == "int8" and len(shape) > 1 else 0


def _kernel(name: str, data: str, scratch: Callable[[KernelSite], int]) -> RuntimeKernel:
    """Return the reference kernel with scratch memory for bytes."""
    prepared = reference.KERNELS[name].prepare

    def prepare(site: KernelSite) -> None:
        if callable(prepared):
            prepared(site)
        if site.dtype("i0") == "int8" and (amount := scratch(site)) > 0:
            site.scratch(amount)

    return RuntimeKernel(data, prepare, is_compared=False)


ESP_NN: Final[Mapping[str, RuntimeKernel]] = {
    "CONV_2D": _kernel("CONV_2D", f"[{CONV}] i", conv_bytes),
    "DEPTHWISE_CONV_2D": _kernel("DEPTHWISE_CONV_2D", f"[{CONV}] i", depthwise_bytes),
    "SOFTMAX": _kernel("SOFTMAX", "[d 7i 5p] i", _softmax_bytes),
}
"""Kernels that differ from the reference kernels, on the ESP32-S3."""
