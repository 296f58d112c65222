"""
The CUDA device: CuPy for memory, streams and graphs, NVRTC for kernels, cuBLAS for products.

CuPy is imported here and nowhere else. Arrays are :class:`cupy.ndarray` views on a single
allocation. Kernels and cuBLAS get the arrays' addresses, so that no CuPy call can allocate. Calls
that every run repeats have prepared arguments and go to CUDA directly, since CuPy's calls refuse a
stream during recording and take longer than a small kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from arenaplan.base.errors import InternalError, OutOfMemory, fault
from arenaplan.run.cuda.cublas import WORKSPACE, Cublas, load_cublas
from arenaplan.run.cuda.device import Run
from arenaplan.run.cuda.device_work import DeviceProduct
from arenaplan.run.cuda.text import CUDA_PRELUDE, THREADS, DeviceKernel

_OPTIONS: Final = ("--std=c++17",)


def import_cupy() -> Any:
    """
    Return the package ``cupy``.

    Raises
    ------
    ExecutionError
        If CuPy is not installed, or a library that CuPy needs is missing.
    """
    try:
        import cupy
    except ImportError as error:
        raise fault(
            "DeviceUnavailable",
            f"running on CUDA needs CuPy, such as pip install cupy-cuda12x: {error}",
        ) from error
    return cupy


class CudaMemory:
    """CUDA device memory: bytes behind a pointer, and the owner that keeps the bytes alive."""

    def __init__(self, pointer: Any, count: int, owner: object = None) -> None:
        self._pointer = pointer
        self._owner = owner
        self.bytes = count

    @property
    def address(self) -> int:
        """The first byte's address on the device."""
        return int(self._pointer.ptr)

    def view(self, start: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """Return a C-contiguous :class:`cupy.ndarray` on some bytes in the memory."""
        size = prod(shape) * dtype.itemsize
        if not 0 <= start <= start + size <= self.bytes:
            raise fault(
                "KernelError", f"bytes {start} to {start + size} of {self.bytes} on the device"
            )
        return import_cupy().ndarray(tuple(shape), dtype, memptr=self._pointer + start)


class CudaDevice:
    """
    A CUDA device.

    Parameters
    ----------
    number : int, default 0
        The device number in CUDA.

    Raises
    ------
    ExecutionError
        If the driver, the device or a library is missing.
    """

    def __init__(self, number: int = 0) -> None:
        cupy = import_cupy()
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except Exception as error:  # CuPy's error classes depend on what is missing.
            raise fault("DeviceUnavailable", f"CUDA finds no device: {error}") from error
        if number >= count:
            raise fault(
                "DeviceUnavailable", f"there is no device cuda:{number}, only {count} in all"
            )
        self.name = f"cuda:{number}"
        self._device = cupy.cuda.Device(number)
        load_cublas()

    @property
    def product_bytes(self) -> int:
        """Bytes that each stream keeps for products."""
        return WORKSPACE

    def active(self) -> AbstractContextManager[object]:
        """Return a context in which this device is CUDA's current one."""
        context: AbstractContextManager[object] = self._device
        return context

    def allocate(self, count: int) -> CudaMemory:
        """Return new memory, from CuPy's pool, whose blocks are multiples of 512 bytes."""
        cupy = import_cupy()
        try:
            with self._device:
                pointer = cupy.cuda.alloc(max(count, 1))
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise OutOfMemory(f"{self.name} has no {count} bytes left: {error}") from error
        return CudaMemory(pointer, count)

    def adopt(self, memory: object) -> CudaMemory:
        """Return the caller's memory, by DLPack or ``__cuda_array_interface__``."""
        return adopted(memory)

    def staging(self, count: int) -> np.ndarray:
        """Return pinned host bytes."""
        pinned = import_cupy().cuda.alloc_pinned_memory(max(count, 1))
        array: np.ndarray = np.frombuffer(pinned, np.uint8, count)
        return array

    def compile(self, kernels: Sequence[DeviceKernel]) -> Mapping[str, Any]:
        """Return compiled kernel functions by name, from a module that CuPy also keeps on disk."""
        if not kernels:
            return {}
        cupy = import_cupy()
        try:
            with self._device:
                module = cupy.RawModule(code=cuda_source(kernels), options=_OPTIONS)
                return {kernel.name: module.get_function(kernel.name) for kernel in kernels}
        except Exception as error:  # A CuPy error class.
            raise fault(
                "KernelError", f"the kernels do not compile for {self.name}: {error}"
            ) from error

    def stream(self, *, products: bool) -> CudaStream:
        """Return a new stream, which does not wait for the default stream."""
        return CudaStream(self._device, self.allocate(WORKSPACE) if products else None)

    def event(self) -> Any:
        """Return a new event, without a time."""
        with self._device:
            return import_cupy().cuda.Event(disable_timing=True)

    def capture(self, stream: CudaStream, run: Run) -> Run:
        """Return a function that launches a CUDA graph with all work that ``run`` enqueues."""
        with self._device:
            own = stream.stream
            own.begin_capture()
            try:
                run()
            finally:
                graph = own.end_capture()
            graph.upload(own)
            return lambda: graph.launch(own)

    @contextmanager
    def watched(self) -> Iterator[Callable[[], int]]:
        """Count how often this thread takes memory from CuPy's allocator."""
        with _counting_hook(import_cupy()) as hook:
            yield lambda: int(hook.count)


class CudaStream:
    """A CUDA device stream; with a workspace, the stream has its own cuBLAS handle."""

    def __init__(self, device: Any, workspace: CudaMemory | None) -> None:
        cuda = import_cupy().cuda
        self._launch = cuda.driver.launchKernel
        self._runtime = cuda.runtime
        with device:
            self.stream = cuda.Stream(non_blocking=True)
            self._pointer = int(self.stream.ptr)
            self._cublas = None if workspace is None else Cublas(self._pointer, workspace)

    def launch(
        self, function: Any, grid: int, arrays: Sequence[Any], scalars: Sequence[int]
    ) -> Run:
        """Return a function that launches a kernel."""
        values = [ctypes.c_longlong(array.data.ptr) for array in arrays]
        values += [ctypes.c_longlong(scalar) for scalar in scalars]  # All have 64 bits.
        addresses = (ctypes.c_void_p * max(len(values), 1))(*map(ctypes.addressof, values))
        parameters = ctypes.addressof(addresses)
        pointer = int(function.kernel.ptr)
        sizes = (grid, 1, 1, THREADS, 1, 1, 0)

        def run(_kept: tuple[Any, ...] = (function, arrays, values, addresses)) -> None:
            self._launch(pointer, *sizes, self._pointer, parameters, 0)

        return run

    def product(self, product: DeviceProduct, a: Any, b: Any, c: Any) -> Run:
        """Return a function that calls cuBLAS."""
        if self._cublas is None:
            raise InternalError("a product in a stream that was made for none")
        return self._cublas.product(product, a.data.ptr, b.data.ptr, c.data.ptr)

    def copy(self, source: Any, target: Any) -> Run:
        """Return a function that copies on the device."""
        return self._transfer(target.data.ptr, source.data.ptr, target.nbytes, "DeviceToDevice")

    def upload(self, source: np.ndarray, target: Any) -> Run:
        """Return a function that copies pinned bytes to the device."""
        return self._transfer(target.data.ptr, source.ctypes.data, source.nbytes, "HostToDevice")

    def download(self, source: Any, target: np.ndarray) -> Run:
        """Return a function that copies from the device to pinned bytes."""
        return self._transfer(target.ctypes.data, source.data.ptr, target.nbytes, "DeviceToHost")

    def _transfer(self, target: int, source: int, size: int, way: str) -> Run:
        kind = getattr(self._runtime, f"memcpy{way}")
        return partial(self._runtime.memcpyAsync, target, source, size, kind, self._pointer)

    def record(self, event: Any) -> Run:
        """Return a function that marks the end of the work so far."""
        return lambda: event.record(self.stream)

    def wait(self, event: Any) -> Run:
        """Return a function that lets later work wait for a mark."""
        return lambda: self.stream.wait_event(event)

    def synchronize(self) -> None:
        """Return when all work is done."""
        self.stream.synchronize()


def cuda_source(kernels: Sequence[DeviceKernel]) -> str:
    """Return the kernel text for NVRTC."""
    return "\n".join([CUDA_PRELUDE, *(kernel.text for kernel in kernels)])


def adopted(memory: object) -> CudaMemory:
    """
    Return a caller's memory.

    Raises
    ------
    ArenaError
        If the memory is not contiguous, or not on a CUDA device.
    """
    cupy = import_cupy()
    if hasattr(memory, "__cuda_array_interface__"):
        facts = memory.__cuda_array_interface__
        count = prod(facts["shape"]) * np.dtype(facts["typestr"]).itemsize
        address, is_read_only = facts["data"]
        if is_read_only or facts.get("strides") is not None:
            raise fault("InvalidBuffer", "the arena's memory is read-only or not contiguous")
        whole = cupy.cuda.UnownedMemory(address, count, memory)
        return CudaMemory(cupy.cuda.MemoryPointer(whole, 0), count, memory)
    if not hasattr(memory, "__dlpack__"):
        raise fault(
            "InvalidBuffer", "the arena is no memory of a CUDA device: it has no __dlpack__"
        )
    try:
        array = cupy.from_dlpack(memory)
    except Exception as error:  # An error class of CuPy, or of the memory's library.
        raise fault("InvalidBuffer", f"the arena is no memory of a CUDA device: {error}") from error
    if not array.flags.c_contiguous:
        raise fault("InvalidBuffer", "the arena's memory is not contiguous")
    return CudaMemory(array.data, array.nbytes, array)


def _counting_hook(cupy: Any) -> Any:
    """Return a hook that counts how often memory is taken from CuPy's allocator."""

    class Hook(cupy.cuda.MemoryHook):  # type: ignore[misc,unused-ignore]
        """Counts allocations."""

        def __init__(self) -> None:
            self.name = f"arenaplan {id(self)}"  # CuPy refuses two hooks with the same name.
            self.count = 0

        def malloc_preprocess(self, **_: object) -> None:
            """Count an allocation that the pool serves."""
            self.count += 1

    return Hook()
