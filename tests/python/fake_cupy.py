"""
A stand-in for CuPy and cuBLAS that works on the host, for the code that calls them.

It has the part of CuPy that the CUDA device uses, with the same signatures. Kernels are compiled
from the text that NVRTC would get; cuBLAS gets addresses and column-major sizes, as the real one.
Work runs at once, except in a stream that is captured.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from arenaplan.run.cuda.cublas import WORKSPACE
from arenaplan.run.cuda.text import CUDA_PRELUDE, DeviceKernel
from host_device import _gemm, compiled

_HEAD = re.compile(r"^KERNEL (\w+)_[0-9a-f]{16}\((.*)\) \{$", re.MULTILINE)
_capturing: list[list[Callable[[], object]]] = []
hooks: list[Any] = []


def _do(work: Callable[[], object]) -> None:
    if _capturing:
        _capturing[-1].append(work)
    else:
        work()


class MemoryPointer:
    def __init__(self, owner: Any, offset: int) -> None:
        self.owner = owner
        self.ptr = owner.ptr + offset
        self._offset = offset

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.owner, self._offset + offset)


def memcpy_async(dst: int, src: int, size: int, kind: int, stream: int) -> None:
    assert kind in (1, 2, 3)
    assert stream == Stream.ptr
    _do(lambda: ctypes.memmove(dst, src, size))


class UnownedMemory:
    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        self.ptr, self.size, self.owner = ptr, size, owner


def alloc(size: int) -> MemoryPointer:
    for hook in hooks:
        hook.malloc_preprocess(device_id=0, size=size, mem_size=size)
    block = np.full(size + 512, 0xCB, np.uint8)
    return MemoryPointer(UnownedMemory(-(-block.ctypes.data // 512) * 512, size, block), 0)


class ndarray:  # noqa: N801
    def __init__(self, shape: Sequence[int], dtype: Any, memptr: MemoryPointer) -> None:
        self.data = memptr
        self.nbytes = prod(shape) * np.dtype(dtype).itemsize


class MemoryHook:
    def __enter__(self) -> MemoryHook:
        hooks.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        hooks.remove(self)


class _Context:
    def __enter__(self) -> _Context:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Device(_Context):
    def __init__(self, number: int) -> None:
        self.id = number


class Event:
    def __init__(self, disable_timing: bool = False) -> None:
        self.is_recorded = False

    def record(self, stream: Stream) -> None:
        self.is_recorded = True


class Stream(_Context):
    ptr = 0

    def __init__(self, non_blocking: bool = False) -> None:
        assert non_blocking, "the default stream waits for all others"

    def begin_capture(self, mode: Any = None) -> None:
        _capturing.append([])

    def end_capture(self) -> Graph:
        return Graph(_capturing.pop())

    def wait_event(self, event: Event) -> None:
        assert event.is_recorded

    def synchronize(self) -> None:
        assert not _capturing, "a stream that is captured cannot be waited for"


class Graph:
    def __init__(self, works: list[Callable[[], object]]) -> None:
        self.works = works

    def upload(self, stream: Stream) -> None:
        pass

    def launch(self, stream: Stream) -> None:
        for work in self.works:
            work()


class RawModule:
    def __init__(self, *, code: str, options: tuple[str, ...]) -> None:
        assert code.startswith(CUDA_PRELUDE)
        assert options == ("--std=c++17",)
        kernels = []
        for part in code.split("\nKERNEL ")[1:]:
            text = f"KERNEL {part}"
            found = _HEAD.match(text)
            assert found is not None
            pairs = [each.rsplit(" ", 1) for each in found.group(2).split(", ")]
            types, names = tuple(t for t, _ in pairs), tuple(n for _, n in pairs)
            body = text[found.end() + 1 : text.rindex("}\n")]
            kernels.append(DeviceKernel(found.group(1), types, names, body))
        self._functions = compiled(kernels)
        self._types = {kernel.name: kernel.parameters for kernel in kernels}

    def get_function(self, name: str) -> Any:
        pointers = sum("*" in type_ for type_ in self._types[name])
        _launched.append((self._functions[name], pointers, len(self._types[name]) - pointers))
        return SimpleNamespace(kernel=SimpleNamespace(ptr=len(_launched)))


_launched: list[Any] = []


def launch_kernel(
    f: int,
    gx: int,
    gy: int,
    gz: int,
    bx: int,
    by: int,
    bz: int,
    shared: int,
    stream: int,
    parameters: int,
    extra: int,
) -> None:
    assert (gy, gz, bx, by, bz, shared, stream, extra) == (1, 1, 256, 1, 1, 0, Stream.ptr, 0)
    function, pointers, scalars = _launched[f - 1]
    count = pointers + scalars
    places = (ctypes.c_void_p * count).from_address(parameters)
    values = [ctypes.c_longlong.from_address(place).value for place in places]
    addresses = (ctypes.c_void_p * max(pointers, 1))(*values[:pointers])
    numbers = (ctypes.c_longlong * max(scalars, 1))(*values[pointers:])
    _do(lambda: function(gx, addresses, numbers))


def alloc_pinned_memory(size: int) -> Any:
    return bytearray(size)


_ELEMENTS = {2: np.float16, 0: np.float32, 1: np.float64}


def _gemm_strided_batched(
    handle: Any,
    transa: int,
    transb: int,
    m: int,
    n: int,
    k: int,
    alpha: int,
    a: int,
    type_a: int,
    lda: int,
    stride_a: int,
    b: int,
    type_b: int,
    ldb: int,
    stride_b: int,
    beta: int,
    c: int,
    type_c: int,
    ldc: int,
    stride_c: int,
    count: int,
    sums: int,
    algorithm: int,
) -> int:
    assert handle.value == 1
    assert type_a == type_b == type_c
    assert (sums, algorithm) == (70 if type_a == 1 else 68, -1)
    dtype, wide = _ELEMENTS[type_a], np.float64 if sums == 70 else np.float32
    factors = (float(_numbers(alpha, 1, wide)[0]), float(_numbers(beta, 1, wide)[0]))

    def operand(address: int, rows: int, columns: int, leading: int, distance: int) -> Any:
        size = (count - 1) * distance + max(columns - 1, 0) * leading + rows
        return _numbers(address, size, dtype), leading, distance

    left, right = (k, m) if transa else (m, k), (n, k) if transb else (k, n)
    _do(
        lambda: _gemm(
            (bool(transa), bool(transb)),
            (m, n, k),
            factors,
            operand(a, *left, lda, stride_a),
            operand(b, *right, ldb, stride_b),
            operand(c, m, n, ldc, stride_c),
            count,
        )
    )
    return 0


def _numbers(address: int, count: int, dtype: Any) -> np.ndarray:
    block = (ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(block, dtype)


def _create(handle: Any) -> int:
    handle._obj.value = 1
    return 0


def _set_workspace(handle: Any, address: int, size: int) -> int:
    assert address % 256 == 0
    assert size == WORKSPACE
    return 0


def load_cublas() -> Any:
    return SimpleNamespace(
        cublasCreate_v2=_create,
        cublasDestroy_v2=lambda handle: 0,
        cublasSetStream_v2=lambda handle, stream: 0,
        cublasSetWorkspace_v2=_set_workspace,
        cublasGemmStridedBatchedEx=_gemm_strided_batched,
    )


cuda = SimpleNamespace(
    Device=Device,
    Event=Event,
    Graph=Graph,
    MemoryHook=MemoryHook,
    MemoryPointer=MemoryPointer,
    Stream=Stream,
    UnownedMemory=UnownedMemory,
    alloc=alloc,
    alloc_pinned_memory=alloc_pinned_memory,
    memory=SimpleNamespace(OutOfMemoryError=MemoryError),
    driver=SimpleNamespace(launchKernel=launch_kernel),
    runtime=SimpleNamespace(
        getDeviceCount=lambda: 1,
        memcpyAsync=memcpy_async,
        memcpyHostToDevice=1,
        memcpyDeviceToHost=2,
        memcpyDeviceToDevice=3,
    ),
)
