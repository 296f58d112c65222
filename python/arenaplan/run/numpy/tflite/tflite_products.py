"""The shapes of convolutions, and the parts that integers and real numbers have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from arenaplan.run.numpy.registry import Run, Signature, Tensor
from arenaplan.run.numpy.tflite.images import Border, Rows, side_of
from arenaplan.run.numpy.tflite.tflite_facts import refused


class Windowed:
    """An operator whose weights are ``(…, taps down, taps across, …)``."""

    border: Border

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        x, w = signature.input(0), signature.input(1)
        if x is None or w is None or len(w.shape) != 4:
            raise refused(signature, "it has no weights of four dimensions")
        self.image: Tensor = x
        self.taps: Tensor = w
        attributes = signature.attributes
        self.rows, self.columns = (
            side_of(
                signature,
                axis,
                w.shape[axis],
                attributes[f"stride_{s}"],
                attributes.get(f"dilation_{s}", 1),
            )
            for axis, s in ((1, "h"), (2, "w"))
        )


class Unrolled(Windowed):
    """A convolution whose windows are unrolled before they are multiplied."""

    offset = 0

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature)
        self.channels, down, across, self.depth = self.taps.shape
        depth = self.image.shape[3]
        if self.depth < 1 or depth % self.depth or self.channels % (depth // self.depth):
            raise refused(signature, "its channels are in no groups")
        self.groups = depth // self.depth
        self.inner = down * across * self.depth

    @property
    def is_plain(self) -> bool:
        """Whether windows are pixels."""
        sides = (self.rows, self.columns)
        return self.groups == 1 and all(
            side.taps == side.stride == 1 and not side.is_padded and side.made == side.size
            for side in sides
        )

    def unroll(
        self,
        x: np.ndarray,
        copy: np.ndarray | None,
        patches: np.ndarray,
        block: Rows,
        group: int,
    ) -> Run:
        """Return a function that writes the windows of a block of rows."""
        if copy is None:
            source = x[block.image, block.start : block.stop].reshape(len(patches), -1)
            offset = patches.dtype.type(self.offset)
            return lambda: np.add(source, offset, out=patches, casting="unsafe")
        height = block.stop - block.start
        channels = slice(group * self.depth, (group + 1) * self.depth)
        windows = self.border.windows(copy, height)[..., channels]
        target = patches.reshape(windows.shape)
        load = self.border.load(x, copy, block) if group == 0 else None

        def unroll() -> None:
            if load is not None:
                load()
            np.copyto(target, windows)

        return unroll


class Separate(Windowed):
    """A convolution of each channel by itself."""

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature)
        self.channels, self.depth = self.taps.shape[3], self.image.shape[3]
        if self.depth < 1 or self.channels % self.depth:
            raise refused(signature, "its channels are no multiple of those of the image")


def matrix_product(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Run:
    """Return a function that multiplies matrices; columns of a larger one are not contiguous."""
    if out.flags.c_contiguous:
        return lambda: np.matmul(a, b, out=out)
    # NumPy would copy such a result behind our back: einsum's plain loops do not.
    return lambda: np.einsum("ij,jk->ik", a, b, out=out, optimize=False)


def tap_sum(windows: np.ndarray, taps: np.ndarray, sums: np.ndarray, products: np.ndarray) -> Run:
    """Return a function that adds up the products of a window with its weights."""
    places = [
        (windows[:, :, row, column], taps[row, column])
        for row in range(taps.shape[0])
        for column in range(taps.shape[1])
    ]
    first, rest = places[0], places[1:]

    def run() -> None:
        np.multiply(*first, out=sums)
        for image, weight in rest:
            np.multiply(image, weight, out=products)
            np.add(sums, products, out=sums)

    return run


def in_turn(runs: Sequence[Callable[[], object]]) -> Run:
    """Return a function that calls all others."""

    def run() -> None:
        for each in runs:
            each()

    return run
