"""
Devices: the interface between the executor of device plans and a library that runs kernels.

A device has memory outside the host's memory, work queues (*streams*), and a compiler for kernel
text. The CUDA device is :mod:`arenaplan.run.cuda.cuda`; tests have a device that compiles the same
text for the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import numpy as np

from arenaplan.run.cuda.device_work import DeviceProduct
from arenaplan.run.cuda.text import DeviceKernel

Run: TypeAlias = Callable[[], object]
"""Puts prepared work into a stream."""


class Memory(Protocol):
    """Contiguous device memory."""

    @property
    def bytes(self) -> int:
        """Size in bytes."""

    @property
    def address(self) -> int:
        """The first byte's address on the device."""

    def view(self, start: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """Return a C-contiguous array of the device's library, on some bytes in the memory."""


class Stream(Protocol):
    """A work queue, which runs in order."""

    def launch(
        self, function: Any, grid: int, arrays: Sequence[Any], scalars: Sequence[int]
    ) -> Run:
        """Return a function that launches a kernel, given an array per pointer."""

    def product(self, product: DeviceProduct, a: Any, b: Any, c: Any) -> Run:
        """
        Return a function that multiplies matrices.

        Parameters
        ----------
        a, b, c : array
            Operand and result memory, each from the first element on.
        """

    def copy(self, source: Any, target: Any) -> Run:
        """Return a function that copies a byte array to another byte array."""

    def upload(self, source: np.ndarray, target: Any) -> Run:
        """Return a function that copies staging memory to the device."""

    def download(self, source: Any, target: np.ndarray) -> Run:
        """Return a function that copies from the device to staging memory."""

    def record(self, event: Any) -> Run:
        """Return a function that marks the end of the work in the stream so far."""

    def wait(self, event: Any) -> Run:
        """Return a function that lets later work wait for a mark."""

    def synchronize(self) -> None:
        """Return when all work in the stream is done."""


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
            If the device has too little memory left.
        """

    def adopt(self, memory: object) -> Memory:
        """
        Return the caller's memory: an object with ``__dlpack__`` or ``__cuda_array_interface__``.

        Raises
        ------
        ArenaError
            If the memory is not contiguous, or not on this device.
        """

    def staging(self, count: int) -> np.ndarray:
        """Return host bytes that the device copies from and to without a detour."""

    def compile(self, kernels: Sequence[DeviceKernel]) -> Mapping[str, Any]:
        """
        Return compiled kernel functions by name.

        Raises
        ------
        ExecutionError
            If the compiler refuses a kernel.
        """

    @property
    def product_bytes(self) -> int:
        """Device memory bytes that each stream with products keeps for products."""

    def active(self) -> AbstractContextManager[object]:
        """Return a context in which work is put into this device's streams."""

    def stream(self, *, products: bool) -> Stream:
        """Return a new stream, with or without support for matrix products."""

    def event(self) -> Any:
        """Return a new event."""

    def capture(self, stream: Any, run: Run) -> Run:
        """Return a function that repeats, in a single call, all work that ``run`` enqueues."""

    def watched(self) -> AbstractContextManager[Callable[[], int]]:
        """
        Return a context that counts how often this thread takes memory from the device's allocator.

        The context's value is a function that returns the count so far.
        """
