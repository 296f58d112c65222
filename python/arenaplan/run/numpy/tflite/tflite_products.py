"""The shapes of convolutions, and the parts that integers and real numbers have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.registry import Run, Signature, Step, Tensor, kernel
from arenaplan.run.numpy.tflite.images import Border, RowBlock, is_empty, row_counts, sides_of
from arenaplan.run.numpy.tflite.real import summed
from arenaplan.run.numpy.tflite.tflite_facts import (
    DOMAIN,
    FLOAT,
    constant_operand,
    encoding,
    limits,
    refused,
)

_COSTS: Final = (1.0, 1.05, 1.2, 2.0)


def exact_float(weights: np.ndarray, offset: int, x: np.dtype[Any]) -> np.dtype[Any]:
    """
    Return a float type in which sums of products are exact.

    Every partial sum of products, whatever their order, is a whole number not larger than the sum
    of the absolute products. That is at most the largest input times the sum of the absolute
    weights of one channel. Whole numbers up to 2**24 are exact as ``float32``, those up to 2**53 as
    ``float64``; so are products and sums that stay below, with and without fused multiplication.

    Parameters
    ----------
    weights : array
        Weights, channels of the result first.
    offset : int
        Addend to inputs.
    x : dtype
        Type of the inputs.
    """
    bound = largest_sums(weights, offset, x).max(initial=0)
    return np.dtype(np.float32 if bound <= 1 << 24 else np.float64)


def largest_sums(weights: np.ndarray, offset: int, x: np.dtype[Any]) -> np.ndarray:
    """Return by channel the sum of absolute products of weights and the largest input."""
    low, high = limits(x)
    flat = weights.reshape(len(weights), -1)
    sizes = np.abs(flat.astype(np.int16) if flat.itemsize == 1 else flat)
    sums: np.ndarray = sizes.sum(axis=1, dtype=np.int64)
    return sums * max(abs(low + offset), abs(high + offset))


class Windowed:
    """An operator whose weights are ``(…, taps down, taps across, …)``."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        x, w = signature.input(0), signature.input(1)
        if x is None or w is None or len(w.shape) != 4:
            raise refused(signature, "it has no weights of four dimensions")
        self.image: Tensor = x
        self.taps: Tensor = w
        self.rows, self.columns = sides_of(signature, (w.shape[1], w.shape[2]))
        self.is_real = x.dtype == FLOAT
        self.offset, self.dtype = 0, FLOAT

    @cached_property
    def weights(self) -> np.ndarray:
        """The weights, which are constant."""
        return constant_operand(self.signature, 1)

    def set_numbers(self, by_channel: np.ndarray) -> None:
        """Choose the type of sums, given the weights of each channel of the result."""
        if not self.is_real:
            self.offset = -encoding(self.signature, 0).zero
            self.dtype = exact_float(by_channel, self.offset, self.image.dtype)
        self.border = Border(self.image, self.rows, self.columns, self.dtype, 0, self.offset)

    def counts(self) -> list[int]:
        """Return the numbers of rows that can be made at a time, the largest first."""
        return row_counts(self.rows.out, self.columns.out)


class Unrolled(Windowed):
    """A convolution whose windows are unrolled before they are multiplied."""

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
            side.kernel == side.stride == 1 and not side.is_padded and side.out == side.size
            for side in sides
        )

    def unroll(
        self,
        x: np.ndarray,
        copy: np.ndarray | None,
        patches: np.ndarray,
        block: RowBlock,
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


def product(a: np.ndarray, b: np.ndarray, sums: np.ndarray, products: np.ndarray | None) -> Run:
    """Return a function that multiplies matrices; real numbers with memory for products."""
    if products is None:
        return matrix_product(a, b, sums)
    return summed(a, b, sums, products[: len(a)])


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


class ByRows(Protocol):
    """Work that makes some rows of a result at a time."""

    def counts(self) -> list[int]:
        """Return the numbers of rows that can be made at a time, the largest first."""

    def scratch(self, count: int) -> int:
        """Return the bytes for making ``count`` rows at a time."""

    def bind(self, step: Step, count: int) -> list[Run]:
        """Return functions that make the rows, ``count`` at a time."""


def made_by_rows(
    *ops: str, work: Callable[[Signature], ByRows], costs: Sequence[float] = _COSTS
) -> None:
    """Register a kernel that makes many rows at a time, or fewer at a price."""

    def choices(signature: Signature) -> list[list[Choice]]:
        if is_empty(signature):
            return []
        made = work(signature)
        pairs = zip(made.counts(), costs, strict=False)
        return [[Choice(made.scratch(count), cost) for count, cost in pairs]]

    def prepare(step: Step) -> Run | None:
        if is_empty(step.signature):
            return None
        made = work(step.signature)
        counts, room = made.counts(), step.workspaces[0].nbytes
        count = next((n for n in counts if made.scratch(n) <= room), counts[-1])
        return in_turn(made.bind(step, count))

    kernel(*ops, domain=DOMAIN, workspace=choices, in_order=True)(prepare)
