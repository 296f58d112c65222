"""``TRANSPOSE_CONV``: each image pixel is added to a result window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arenaplan.graph import Choice
from arenaplan.graph.ops.window_ops import Axis, same_padding, taps
from arenaplan.run.numpy.kernels.pieces import operand, result
from arenaplan.run.numpy.registry import Run, Signature, Step, kernel, scratch_bytes
from arenaplan.run.numpy.tflite.images import is_empty
from arenaplan.run.numpy.tflite.real import Finish
from arenaplan.run.numpy.tflite.rescale import Rescale
from arenaplan.run.numpy.tflite.tflite_conv import channel_multipliers, check_operands
from arenaplan.run.numpy.tflite.tflite_facts import (
    DOMAIN,
    FLOAT,
    activation_range,
    constant_operand,
    encoding,
    refused,
)
from arenaplan.run.numpy.tflite.tflite_products import exact_float, in_turn

_WEIGHTS, _IMAGE, _BIAS = 1, 2, 3


class _Scatter:
    """The operands, and the result parts that each tap adds to."""

    def __init__(self, signature: Signature) -> None:
        x, y = signature.input(_IMAGE), signature.outputs[0]
        if x is None or y is None or len(x.shape) != 4 or len(y.shape) != 4:
            raise refused(signature, "its operands are no images of four dimensions")
        self.signature, self.image, self.made = signature, x, y
        self.is_real = x.dtype == FLOAT
        self.weights = constant_operand(signature, _WEIGHTS)
        # The first input is the result shape.
        check_operands(_moved(signature))
        self.offset = 0 if self.is_real else -encoding(signature, _IMAGE).zero
        self.dtype = FLOAT if self.is_real else exact_float(self.weights, self.offset, x.dtype)
        attributes = signature.attributes
        strides = (attributes["stride_h"], attributes["stride_w"])
        if min(strides) < 1:
            raise refused(signature, "its windows do not move")
        self.axes = []
        """From the result to the image."""
        for at, stride in enumerate(strides, start=1):
            size, kernel = y.shape[at], self.weights.shape[at]
            is_same = attributes.get("padding", 0) == 0
            before = same_padding(size, stride, kernel) // 2 if is_same else 0
            self.axes.append(Axis(size, x.shape[at], kernel, stride, 1, before))

    def scratch(self) -> int:
        """Return the bytes for one image."""
        _, height, width, depth = self.image.shape
        channels = self.made.shape[3]
        size = scratch_bytes(self.made.shape[1:], self.dtype)
        size += scratch_bytes((height * width, channels), self.dtype)
        if not self.is_real:
            size += scratch_bytes((height * width, depth), self.dtype)
            size += Rescale.scratch(channels, self.made.shape[1] * self.made.shape[2])
        return size

    def bind(self, step: Step) -> list[Run]:
        """Return functions that make one image after the other."""
        x, y, scratch = operand(step, _IMAGE), result(step), step.scratch()
        _, height, width, depth = x.shape
        channels = y.shape[3]
        sums = scratch.array(y.shape[1:], self.dtype)
        products = scratch.array((height * width, channels), self.dtype)
        copy = None if self.is_real else scratch.array((height * width, depth), self.dtype)
        finish = self._finish()
        runs: list[Run] = []
        for image, made in zip(x, y, strict=True):
            if copy is None:
                runs.append(self._real(image, sums, products.reshape(height, width, channels)))
            else:
                runs.append(self._integer(image.reshape(copy.shape), copy, sums, products))
            pixels = made.reshape(-1, channels)
            runs += finish.bind(sums.reshape(pixels.shape), pixels, scratch.rest())
        return runs

    def _integer(
        self, x: np.ndarray, copy: np.ndarray, sums: np.ndarray, products: np.ndarray
    ) -> Run:
        """Return a function that adds up exact sums, one tap after the other."""
        _, height, width, _ = self.image.shape
        weights = self.weights.astype(self.dtype)
        shaped = products.reshape(height, width, -1)
        offset = self.dtype.type(self.offset)
        work = [
            (np.ascontiguousarray(weights[(slice(None), *tap)].T), shaped[taken], sums[placed])
            for tap, placed, taken in taps(self.axes)
        ]

        def run() -> None:
            np.add(x, offset, out=copy, casting="unsafe")
            sums.fill(0)
            for matrix, source, target in work:
                np.matmul(copy, matrix, out=products)
                np.add(target, source, out=target)

        return run

    def _real(self, x: np.ndarray, sums: np.ndarray, products: np.ndarray) -> Run:
        """
        Return a function that adds product by product.

        The source goes through the image, so that a result element gets the last tap's products
        first; products at one pixel come channel by channel.
        """
        work = []
        for tap, placed, taken in reversed(list(taps(self.axes))):
            for channel in range(self.weights.shape[3]):
                weights = np.ascontiguousarray(self.weights[(slice(None), *tap, channel)])
                pixels = x[..., channel, None]
                work.append((pixels[taken], weights, products[taken], sums[placed]))

        def run() -> None:
            sums.fill(0)
            for pixels, weights, product, target in work:
                np.multiply(pixels, weights, out=product)
                np.add(target, product, out=target)

        return run

    def _finish(self) -> Finish | Rescale:
        """Return the last part."""
        signature = self.signature
        if self.is_real:
            return Finish(signature, _BIAS)
        y = encoding(signature, 0, "output")
        multipliers = channel_multipliers(
            signature,
            encoding(signature, _IMAGE),
            encoding(signature, _WEIGHTS),
            y,
            self.made.shape[3],
        )
        has_bias = signature.input(_BIAS) is not None
        bias = constant_operand(signature, _BIAS) if has_bias else None
        bounds = activation_range(signature, y)
        return Rescale(multipliers, bias, y.zero, bounds, wide=self.image.dtype == np.int16)


def scatter_sides(signature: Signature) -> tuple[int, int]:
    """
    Return the rows and columns of the first window that lie before the result.

    Raises
    ------
    UnsupportedOp
        If no kernel runs such a node.
    """
    rows, columns = _Scatter(signature).axes
    return rows.before, columns.before


def _moved(signature: Signature) -> Signature:
    """Return the signature for a convolution with the same operands."""
    return replace(signature, inputs=(signature.inputs[_IMAGE], signature.inputs[_WEIGHTS]))


def _choices(signature: Signature) -> list[list[Choice]]:
    """Return the workspace for one image."""
    return [] if is_empty(signature) else [[Choice(_Scatter(signature).scratch(), 1.0)]]


@kernel("TRANSPOSE_CONV", domain=DOMAIN, workspace=_choices)
def transpose_conv(step: Step) -> Run | None:
    """Make one image after the other."""
    return None if is_empty(step.signature) else in_turn(_Scatter(step.signature).bind(step))
