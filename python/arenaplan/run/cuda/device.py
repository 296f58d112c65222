"""
Devices: the interface between the executor of device plans and a library that runs kernels.

A device has memory outside of the host's, queues of work (*streams*), and a compiler for the text
of kernels. The CUDA device is :mod:`arenaplan.run.cuda.cuda`; tests have one that compiles the same
text for the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import numpy as np

from arenaplan.run.cuda.device_work import Product
from arenaplan.run.cuda.text import Kernel

Run: TypeAlias = Callable[[], object]
"""Puts prepared work into a stream."""


class Memory(Protocol):
    """Contiguous memory of a device."""

    @property
    def bytes(self) -> int:
        """Size in bytes."""

    @property
    def address(self) -> int:
        """Address of the first byte on the device."""

    def view(self, start: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """Return an array of the device's library on some bytes of the memory, C-contiguous."""


class Stream(Protocol):
    """A queue of work, which runs in order."""

    def launch(
        self, function: Any, grid: int, arrays: Sequence[Any], scalars: Sequence[int]
    ) -> Run:
        """Return a function that launches a kernel, given an array per pointer."""

    def product(self, product: Product, a: Any, b: Any, c: Any) -> Run:
        """
        Return a function that multiplies matrices.

        Parameters
        ----------
        a, b, c : array
            The memory of the operands and of the result, from the first element of each.
        """

    def copy(self, source: Any, target: Any) -> Run:
        """Return a function that copies an array of bytes to another one."""

    def upload(self, source: np.ndarray, target: Any) -> Run:
        """Return a function that copies staging memory to the device."""

    def download(self, source: Any, target: np.ndarray) -> Run:
        """Return a function that copies from the device to staging memory."""

    def record(self, event: Any) -> Run:
        """Return a function that marks the end of the work that is in the stream by then."""

    def wait(self, event: Any) -> Run:
        """Return a function that lets later work wait for a mark."""

    def synchronize(self) -> None:
        """Return when all work of the stream is done."""


class Device(Protocol):
    """A device that runs kernels."""

    @property
    def name(self) -> str:
        """Name for messages."""

    def allocate(self, count: int) -> Memory:
        """
        Return new memory, at a multiple of 256 bytes.

        Raises
        ------
        OutOfMemory
            If the device has no such memory left.
        """

    def adopt(self, memory: object) -> Memory:
        """
        Return memory of the caller: an object with ``__dlpack__`` or ``__cuda_array_interface__``.

        Raises
        ------
        ArenaError
            If it is not contiguous, or not on this device.
        """

    def staging(self, count: int) -> np.ndarray:
        """Return bytes of the host that the device copies from and to without a detour."""

    def compile(self, kernels: Sequence[Kernel]) -> Mapping[str, Any]:
        """
        Return the functions of kernels by name.

        Raises
        ------
        ExecutionError
            If the compiler refuses them.
        """

    @property
    def product_bytes(self) -> int:
        """Bytes of device memory that each stream with products keeps for them."""

    def active(self) -> AbstractContextManager[object]:
        """Return a context in which work is put into streams of this device."""

    def stream(self, *, products: bool) -> Stream:
        """Return a new stream, for matrix products too or for none."""

    def event(self) -> Any:
        """Return a new event."""

    def capture(self, stream: Any, run: Run) -> Run:
        """Return a function that repeats, by one call, all work that ``run`` puts into streams."""

    def watched(self) -> AbstractContextManager[Callable[[], int]]:
        """
        Return a context that counts how often this thread takes memory from the device's allocator.

        Its value is a function that returns the count so far.
        """
