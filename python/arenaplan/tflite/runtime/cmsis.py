"""
Memory that CMSIS-NN kernels request in TensorFlow Lite Micro.

The formulas come from the functions ``arm_*_get_buffer_size`` in
https://github.com/ARM-software/CMSIS-NN as of July 2026, for processors with the DSP extension
(Cortex-M4, M7 and M33) compiled with GCC, and with the vector extension MVE (Cortex-M55 and M85);
kernels are optimized for speed. Operators that are not in the tables use reference kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Final, NamedTuple, TypeAlias

from arenaplan.graph.ops.window_ops import same_padding
from arenaplan.tflite.runtime import kernels as reference
from arenaplan.tflite.runtime.kernels import KernelSite, RuntimeKernel

Shape: TypeAlias = Sequence[int]

CONV: Final = "9i 2p 3i ?2i"
"""Layout of a convolution's data."""
_GATE: Final = "[2i 2p 2i 3p i]"
_BLOCK: Final = 124
"""Channels that depthwise convolutions with MVE copy at a time."""
_REVERSED: Final = 16
"""Transposed convolutions with more input channels run as convolutions."""


class ConvolutionWindow(NamedTuple):
    """A convolution's strides and padding."""

    stride_width: int
    stride_height: int
    dilation_width: int
    dilation_height: int
    padding_width: int
    padding_height: int


def window_of(site: KernelSite, dilations: tuple[int, int]) -> ConvolutionWindow:
    """Return a convolution's window; the dilations are in the given option slots."""
    options = site.operator.options

    def number(slot: int) -> int:
        return max(1, options.number(slot))

    is_same = options.number(0) == 0
    strides = number(1), number(2)
    steps = number(dilations[0]), number(dilations[1])
    _, height, width, _ = site.shape("i0")
    _, kernel_height, kernel_width, _ = site.shape("i1")
    paddings = [
        same_padding(length, stride, (kernel - 1) * step + 1) // 2 if is_same else 0
        for length, kernel, stride, step in (
            (width, kernel_width, strides[0], steps[0]),
            (height, kernel_height, strides[1], steps[1]),
        )
    ]
    return ConvolutionWindow(*strides, *steps, *paddings)


def _columns(rows: int, *, mve: bool) -> int:
    """Return a byte convolution's scratch memory, with ``rows`` inputs per result."""
    return 4 * -(-rows // 16) * 16 if mve else 2 * -(-rows // 4) * 4 * 2


def _described(site: KernelSite, axis: int) -> str:
    """Describe a convolution with channels along ``axis`` of the filter, and return the type."""
    site.describe("i0 i1 o0")
    dtype = site.dtype("i0")
    if dtype in ("int8", "int16"):
        reference.keep_channels(site, site.shape("i1")[axis])
    site.describe("i0 i1 i2 o0")
    return dtype


def _conv(site: KernelSite, *, mve: bool) -> None:
    dtype = _described(site, 0)
    if dtype == "int8":
        shapes = [site.shape(place) for place in ("i0", "i1", "o0")]
        _request(site, conv_bytes(window_of(site, (4, 5)), *shapes, mve=mve))
    elif dtype == "int16":
        rows = site.shape("i0")[3] * prod(site.shape("i1")[1:3])
        _request(site, 4 * -(-rows // 8) * 8 * 2 if mve else 2 * rows * 2)


def _request(site: KernelSite, amount: int) -> None:
    """Request scratch memory, if any is needed."""
    if amount > 0:
        site.scratch(amount)


def conv_bytes(
    window: ConvolutionWindow, image: Shape, weights: Shape, made: Shape, *, mve: bool
) -> int:
    """Return a byte convolution's scratch memory."""
    _, height, width, channels = image
    _, kernel_height, kernel_width, depth = weights
    is_point = (kernel_height, kernel_width) == (1, 1) and channels == depth
    if is_point and window[2:] == (1, 1, 0, 0):
        return 0
    is_row = (height, kernel_height, window.dilation_width) == (1, 1, 1) and channels == depth
    if mve and is_row and window.stride_width * channels % 4 == 0:
        return _row_bytes(window, width, kernel_width, made[2], channels)
    return _columns(channels * kernel_height * kernel_width, mve=mve)


def _row_bytes(
    window: ConvolutionWindow, width: int, kernel: int, results: int, channels: int
) -> int:
    """Return the scratch memory for a convolution along a row, with MVE."""
    stride, left = window.stride_width, window.padding_width
    excess = (results - 1) * stride + kernel - width
    # As in C, the remainder has the dividend's sign.
    odd = abs(excess) % 2 * (1 if excess >= 0 else -1)
    right_count = max(1, int((left + odd + stride - 1) / stride)) if left + odd != 0 else 0
    left_count = max(1, (left + stride - 1) // stride) if left else 0
    inner = max(results - right_count - left_count, 0)
    if right_count + inner + left_count != results:
        return _columns(channels * kernel, mve=True)
    right = right_count * channels if odd else left * channels
    return max(kernel * channels + left * channels, (kernel - 1) * channels + right)


def _depthwise_conv(site: KernelSite, *, mve: bool) -> None:
    dtype = _described(site, 3)
    if dtype == "int8":
        window, is_byte = window_of(site, (5, 6)), site.dtype("i1") == "int8"
        amount = depthwise_bytes(window, site.shape("i0"), site.shape("i1"), is_byte, mve=mve)
        _request(site, amount)


def depthwise_bytes(
    window: ConvolutionWindow, image: Shape, weights: Shape, is_byte: bool = True, *, mve: bool
) -> int:
    """Return a byte depthwise convolution's scratch memory; weights have 8 bits or 4."""
    batch, _, _, channels = image
    _, height, width, results = weights
    if mve and channels == 1 and results > 1 and is_byte:
        # Runs as a convolution with transposed weights.
        return _columns(height * width, mve=True) + results * height * width
    if channels != results or batch != 1 or window[2:4] != (1, 1):
        return 0
    if mve:
        return 4 * _BLOCK * width * height
    is_small = (height, width) == (3, 3) and max(window[4:]) <= 1
    if is_small and is_byte:
        return 0
    return 2 * channels * width * height


def _fully_connected(site: KernelSite, *, mve: bool) -> None:
    site.describe("i0 i1 i2 o0")
    reference.keep_fully_connected(site)
    if site.dtype("i0") != "int8" or site.dtype("i1") == "int4":
        return
    results = site.shape("o0")
    quantization = site.get("i1").quantization
    if len(results) > 2 and site.shape("i1")[-1] % 4 == 0:
        if quantization is None or len(quantization.scale) <= 1:
            site.scratch(8 * results[-1])
    elif mve:
        _sums(site, 4 * results[-1], "i1", "i2")


def _sums(site: KernelSite, amount: int, *places: str) -> None:
    """Keep sums of constant weights, or compute the sums in each run."""
    if all(not site.has(place) or site.is_constant(place) for place in places):
        site.keep(amount)
    else:
        site.scratch(amount)


def _average_pool(site: KernelSite, *, mve: bool) -> None:
    site.describe("i0 o0 i0 o0")
    if site.dtype("i0") in ("int8", "int16"):
        _request(site, average_bytes(site.shape("i0"), mve=mve))


def average_bytes(image: Shape, *, mve: bool) -> int:
    """Return the scratch memory for averages over windows."""
    return 0 if mve else 4 * image[3]


def _svdf(site: KernelSite, *, mve: bool) -> None:
    reference.prepare_svdf(site)
    if mve and site.dtype("i0") == "int8":
        site.keep(4 * site.shape("i1")[0])


def _transpose_conv(site: KernelSite, *, mve: bool) -> None:
    site.describe("o0 i2 i1")
    reference.keep_channels(site, site.shape("i1")[0])
    dtype = site.dtype("i2")
    if dtype == "int8":
        width, height = (max(1, site.operator.options.number(slot)) for slot in (1, 2))
        for amount in _transposed_bytes(site, width, height, mve=mve):
            site.scratch(amount)
    elif dtype == "int16":
        site.scratch(8 * site.count("o0"))
    if dtype != "float32":
        site.describe("i2 i1 i3 o0")
        if dtype == "int16" and site.has("i3") and site.dtype("i3") == "int16":
            site.scratch(8 * site.count("i3"))


def _transposed_bytes(
    site: KernelSite, stride_width: int, stride_height: int, *, mve: bool
) -> tuple[int, int]:
    """Return the scratch memory for a transposed byte convolution and for its weights."""
    _, _, width, channels = site.shape("i2")
    results, kernel_height, kernel_width, _ = site.shape("i1")
    if max(stride_width, stride_height) <= 2 and channels > _REVERSED:
        rows = channels * kernel_height * kernel_width
        return _columns(rows, mve=mve), rows * results
    columns = (width - 1) * stride_width + max(kernel_width, stride_height)
    return 4 * columns * site.shape("o0")[3] * max(kernel_height, stride_height), 0


def _batch_matmul(site: KernelSite, *, mve: bool) -> None:
    site.describe("i0 i1 o0")
    reference.keep_transposed(site)
    reference.keep_shape(site)
    dtype = site.dtype("i0")
    if dtype != "float32":
        site.keep_struct("7i")
    if mve and dtype == "int8":
        site.scratch(4 * site.shape("o0")[-1])


def _lstm(site: KernelSite) -> None:
    size, batch = reference.describe_lstm(site)
    dtype = site.dtype("i0")
    is_integer = dtype in ("int8", "int16") and site.dtype("i19") == "int16"
    if is_integer:
        for _ in range(8):
            site.keep((4 if dtype == "int8" else 8) * size)
    for _ in range(3 if is_integer else 4):
        site.scratch(batch * size * (2 if site.dtype("i19") == "int16" else 4))


def _table(*, mve: bool) -> Mapping[str, RuntimeKernel]:
    return {
        "AVERAGE_POOL_2D": RuntimeKernel("8i i", partial(_average_pool, mve=mve)),
        "BATCH_MATMUL": RuntimeKernel("[3p 3b] 4i i", partial(_batch_matmul, mve=mve)),
        "CONV_2D": RuntimeKernel(f"[{CONV}] i", partial(_conv, mve=mve)),
        "DEPTHWISE_CONV_2D": RuntimeKernel(f"[{CONV}] i", partial(_depthwise_conv, mve=mve)),
        "FULLY_CONNECTED": RuntimeKernel(
            "[9i 2p b ?2i] 2i p 3i", partial(_fully_connected, mve=mve)
        ),
        "MAX_POOL_2D": RuntimeKernel("8i i", "i0 o0"),
        "SOFTMAX": RuntimeKernel("[d 7i 5p] 2i", reference.KERNELS["SOFTMAX"].prepare),
        "SVDF": RuntimeKernel("9i p", partial(_svdf, mve=mve)),
        "TRANSPOSE_CONV": RuntimeKernel("[b 8h 9i] 3i 2p", partial(_transpose_conv, mve=mve)),
        "UNIDIRECTIONAL_SEQUENCE_LSTM": RuntimeKernel(
            f"[{reference.LSTM}] [15i {4 * _GATE}]", _lstm
        ),
    }


CMSIS_NN: Final[Mapping[str, RuntimeKernel]] = _table(mve=False)
"""Kernels that differ from the reference kernels, with the DSP extension."""
CMSIS_NN_MVE: Final[Mapping[str, RuntimeKernel]] = _table(mve=True)
"""Kernels that differ from the reference kernels, with the vector extension."""
