"""
Signals: Fourier transforms, windows, and the matrix from a spectrum to the mel scale.

NumPy transforms straight into given memory, through a few internal lines with the length of the
transform. The transform of real numbers makes half a spectrum; the other half is the mirror image.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.pieces import (
    check_shape,
    in_sequence,
    invalid,
    normalized_axis,
    operand,
    result,
    when_known,
)
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes

_FRAMES = 1 << 15
"""Bytes in frames that are windowed before the transform."""

# -- Fourier transforms ----------------------------------------------------------------------


def _numbers(array: np.ndarray) -> np.ndarray:
    """Return the complex numbers in an array whose last axis has real and imaginary parts."""
    if array.shape[-1] == 1:
        return array[..., 0]
    return array.view(np.complex64 if array.dtype == np.float32 else np.complex128)[..., 0]


def _mirror(spectrum: np.ndarray, axis: int) -> Run | None:
    """Return a function that writes the second half of a real spectrum."""
    length = spectrum.shape[axis]
    along = spectrum.swapaxes(axis, -1)
    known, missing = along[..., 1 : (length + 1) // 2][..., ::-1], along[..., length // 2 + 1 :]
    return partial(np.conjugate, known, out=missing) if missing.size else None


def _transform(x: np.ndarray, y: np.ndarray, length: int, axis: int) -> Run | None:
    """Return a function that transforms ``x``; a ``y`` that is shorter is one half."""
    # NumPy computes in the data's precision only with a factor: without a factor, NumPy takes
    # copies of all data in double precision.
    scale = y.real.dtype.type(length)
    if x.dtype.kind == "c":
        return in_sequence(
            partial(np.fft.fft, x, length, axis, "forward", y),
            partial(np.multiply, y, scale, y),
        )
    half = length // 2 + 1
    front = y.swapaxes(axis, -1)[..., :half].swapaxes(axis, -1)
    mirrored = _mirror(y, axis) if y.shape[axis] == length else None
    return in_sequence(
        partial(np.fft.rfft, x, length, axis, "forward", front),
        partial(np.multiply, front, scale, front),
        mirrored,
    )


def _inverse(x: np.ndarray, y: np.ndarray, length: int, axis: int) -> Run | None:
    """Return a function that transforms back; real results come from half a spectrum."""
    if y.dtype.kind != "c":
        return partial(np.fft.irfft, x, length, axis, None, y)
    if x.dtype.kind == "c":
        return partial(np.fft.ifft, x, length, axis, None, y)
    scale = y.real.dtype.type(1 / length)
    return in_sequence(
        _transform(x, y, length, axis),
        partial(np.conjugate, y, out=y),
        partial(np.multiply, y, scale, out=y),
    )


@heavy_kernel("DFT", since=17)
def dft(step: Step) -> Run | None:
    """Transform along one axis, forth or back; one half of the spectrum if asked for."""
    x, y = operand(step, 0), result(step)
    is_new = step.signature.version >= 20
    inverse, onesided = (bool(step.attributes.get(name, 0)) for name in ("inverse", "onesided"))
    if x.ndim < 2 or x.shape[-1] not in (1, 2) or (onesided and x.shape[-1] == 2 and not inverse):
        raise invalid(step, f"it transforms data of shape {x.shape}")

    def prepare() -> Run | None:
        given = step.input(2) if is_new else None
        axis = step.attributes.get("axis", 1) if given is None else int(given.reshape(-1)[0])
        if is_new and given is None:
            axis = -2
        axis = normalized_axis(step, axis, x.ndim)
        if axis == x.ndim - 1:
            raise invalid(step, "it transforms along real and imaginary parts")
        wanted = step.input(1)
        whole = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
        length = whole if wanted is None else int(wanted.reshape(-1)[0])
        count = length // 2 + 1 if onesided and not inverse else length
        parts = 1 if onesided and inverse else 2
        check_shape(step, (*x.shape[:axis], count, *x.shape[axis + 1 : -1], parts))
        if y.size == 0:
            return None
        return (_inverse if inverse else _transform)(_numbers(x), _numbers(y), length, axis)

    return when_known(step, (1, 2), prepare)


def _declare_frames(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for some frames."""
    x, y, window = signature.input(0), signature.outputs[0], signature.input(2)
    if x is None or y is None or len(x.shape) != 3 or len(y.shape) != 4:
        return []
    onesided = signature.attributes.get("onesided", 1)
    # The frames are as long as the window; without a window, at most so long:
    length = window.shape[0] if window is not None else (2 * y.shape[2] if onesided else y.shape[2])
    each = length * x.shape[2] * x.dtype.itemsize
    count = max(1, min(y.shape[1], _FRAMES // max(each, 1)))
    return [[Choice(scratch_bytes((count, length, x.shape[2]), x.dtype), 0.0)]]


@heavy_kernel("STFT", since=17, workspace=_declare_frames)
def stft(step: Step) -> Run | None:
    """Transform frames in a signal, each multiplied by a window."""
    x, y, window = operand(step, 0), result(step), step.input(2)
    onesided = bool(step.attributes.get("onesided", 1))
    if x.ndim != 3 or x.shape[2] not in (1, 2) or (onesided and x.shape[2] == 2):
        raise invalid(step, f"it transforms a signal of shape {x.shape}")

    def prepare() -> Run | None:
        hop = int(operand(step, 1).reshape(-1)[0])
        given = step.input(3)
        if given is not None:
            length = int(given.reshape(-1)[0])
        else:
            length = x.shape[1] if window is None else len(window)
        taken = length if window is None else len(window)
        if hop < 1 or length < 1 or taken > x.shape[1]:
            raise invalid(step, f"frames of {taken} every {hop} elements of {x.shape[1]}")
        count = 1 + (x.shape[1] - length) // hop
        check_shape(step, (len(x), count, length // 2 + 1 if onesided else length, 2))
        if y.size == 0:
            return None
        room = step.workspaces[0].nbytes // (taken * x.shape[2] * x.itemsize)
        frames = step.scratch().array((max(1, min(room, count)), taken, x.shape[2]), x.dtype)
        stride = (x.strides[0], hop * x.strides[1], *x.strides[1:])
        windows = as_strided(x, (len(x), count, taken, x.shape[2]), stride, writeable=False)
        work: list[Run | None] = []
        for sample in range(len(x)):
            for start in range(0, count, len(frames)):
                cut = slice(start, min(start + len(frames), count))
                part = frames[: cut.stop - cut.start]
                if window is None:
                    work.append(partial(np.copyto, part, windows[sample, cut]))
                else:
                    work.append(partial(np.multiply, windows[sample, cut], window[:, None], part))
                work.append(_transform(_numbers(part), _numbers(y[sample, cut]), length, 1))
        return in_sequence(*work)

    return when_known(step, (1, 3), prepare)


# -- windows ---------------------------------------------------------------------------------

_COSINES = {
    "BlackmanWindow": (0.42, -0.5, 0.08),
    "HammingWindow": (25 / 46, -21 / 46),
    "HannWindow": (0.5, -0.5),
}
"""Factors of the cosines whose sum is a window."""


@kernel(*_COSINES)
def cosine_window(step: Step) -> Run | None:
    """Write a window, symmetric or one period of a repeated window."""
    y = result(step)
    length = len(y) if step.attributes.get("periodic", 1) else len(y) - 1
    turn = np.arange(len(y)) * (2 * np.pi / max(length, 1))
    cosines = enumerate(_COSINES[step.signature.op])
    window: Any = sum(factor * np.cos(times * turn) for times, factor in cosines)
    if len(y) == 1:
        window = np.ones(1)
    data = np.asarray(window).astype(y.dtype)
    checked = when_known(step, (0,), lambda: check_shape(step, [int(operand(step, 0).item())]))
    return in_sequence(checked, partial(np.copyto, y, data))


@kernel("MelWeightMatrix")
def mel_weight_matrix(step: Step) -> Run | None:
    """Write the triangles that turn a spectrum into a mel spectrum."""
    y = result(step)

    def prepare() -> Run:
        bins, length, rate, low, high = (operand(step, at).item() for at in range(5))
        check_shape(step, (length // 2 + 1, bins))
        edges = 2595 * np.log10(1 + np.array([low, high], np.float64) / 700)
        mel = edges[0] + np.arange(bins + 2) * ((edges[1] - edges[0]) / (bins + 2))
        hertz = 700 * (10 ** (mel / 2595) - 1)
        peaks = ((length + 1) * hertz // rate).astype(np.int64)
        if bins and (peaks[0] < 0 or peaks[-1] > len(y)):
            raise invalid(step, f"frequencies {low} to {high} at a sample rate of {rate}")
        return partial(_write_triangles, y, peaks)

    return when_known(step, range(5), prepare)


def _write_triangles(y: np.ndarray, peaks: np.ndarray) -> None:
    """Write a triangle per column, from one peak over the next to the one behind."""
    y.fill(0)
    for column in range(y.shape[1]):
        left, peak, right = (int(at) for at in peaks[column : column + 3])
        if left == peak:
            y[peak, column] = 1
        else:
            y[left : peak + 1, column] = np.arange(peak - left + 1) / (peak - left)
        if right > peak:
            y[peak:right, column] = (right - np.arange(peak, right)) / (right - peak)
