"""
A device that is the host: kernels are compiled by a C++ compiler and run on NumPy's arrays.

It runs the text that NVRTC compiles for a GPU, so the arithmetic of every kernel is tested without
one. Streams run their work late and in an order that is drawn at random among all orders that the
events allow, so a wait that is missing shows in the results.
"""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.run.cuda.blas import column_major
from arenaplan.run.cuda.device import Run
from arenaplan.run.cuda.device_work import DeviceProduct
from arenaplan.run.cuda.text import DeviceKernel

COMPILER = shutil.which("c++") or shutil.which("g++")

_PRELUDE = """\
#include <math.h>
#define KERNEL static void
#define SHARED
#define PHASE(t) for (int t = 0; t < 256; ++t)
#define NEXT_PHASE
#define BLOCK block
typedef _Float16 half;
#define INFINITE (__builtin_inff())
#define NO_NUMBER (__builtin_nanf(""))
static long long block;
"""
_GUARD = 4096
_POISON = 0xCB
Function = Callable[[int, ctypes.Array[Any], ctypes.Array[Any]], None]
_KEPT: list[tempfile.TemporaryDirectory[str]] = []


class HostMemory:
    """Bytes at a multiple of 256, between guards, full of poison."""

    def __init__(self, count: int) -> None:
        self.bytes = count
        whole = np.full(count + 2 * _GUARD + 256, _POISON, np.uint8)
        self._before = -whole.ctypes.data % 256
        self._whole = whole
        start = self._before + _GUARD
        self._array = whole[start : start + count]

    @property
    def address(self) -> int:
        return int(self._array.ctypes.data)

    def view(self, start: int, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
        size = prod(shape) * dtype.itemsize
        assert 0 <= start <= start + size <= self.bytes
        return self._array[start : start + size].view(dtype).reshape(shape)

    def is_intact(self) -> bool:
        """Whether nothing was written around the memory."""
        start = self._before + _GUARD
        outside = (self._whole[:start], self._whole[start + self.bytes :])
        return all(bool((part == _POISON).all()) for part in outside)


class _Given:
    """Memory of the caller."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array.reshape(-1).view(np.uint8)
        self.bytes = self._array.nbytes
        self.address = int(self._array.ctypes.data)

    def view(self, start: int, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
        size = prod(shape) * dtype.itemsize
        return self._array[start : start + size].view(dtype).reshape(shape)


class _Token:
    """One recording of an event."""

    is_done = False


class _Event:
    token: _Token | None = None


class _Item(NamedTuple):
    is_ready: Callable[[], bool]
    run: Callable[[], object]


class HostDevice:
    """
    The host as a device.

    Work runs in an order that ``seed`` draws. ``functions`` are kernels that were compiled before.
    """

    name = "host"

    def __init__(self, seed: int = 0, functions: Mapping[str, Function] | None = None) -> None:
        self.functions = functions
        self.memories: list[HostMemory] = []
        self.streams: list[HostStream] = []
        self.launched = 0
        self._random = random.Random(seed)
        self._recording: list[Callable[[], None]] | None = None

    def allocate(self, count: int) -> HostMemory:
        self.memories.append(HostMemory(count))
        return self.memories[-1]

    def adopt(self, memory: object) -> _Given:
        if not isinstance(memory, np.ndarray):
            raise fault("InvalidBuffer", "the arena is no array")
        return _Given(memory)

    def staging(self, count: int) -> np.ndarray:
        return np.full(count, _POISON, np.uint8)

    def compile(self, kernels: Sequence[DeviceKernel]) -> Mapping[str, Any]:
        return compiled(kernels) if self.functions is None else self.functions

    product_bytes = 0

    def active(self) -> AbstractContextManager[object]:
        return nullcontext()

    def stream(self, *, products: bool) -> HostStream:
        self.streams.append(HostStream(self))
        return self.streams[-1]

    def event(self) -> _Event:
        return _Event()

    def capture(self, stream: HostStream, run: Run) -> Run:
        self._recording = recorded = []
        run()
        self._recording = None

        def replay() -> None:
            for put in recorded:
                put()

        return replay

    @contextmanager
    def watched(self) -> Iterator[Callable[[], int]]:
        before = len(self.memories)
        yield lambda: len(self.memories) - before

    def put(self, put: Callable[[], None]) -> None:
        """Put work into a stream, or record that it is to be put there."""
        if self._recording is None:
            put()
        else:
            self._recording.append(put)

    def run_until_empty(self, wanted: HostStream) -> None:
        while wanted.items:
            ready = [s for s in self.streams if s.items and s.items[0].is_ready()]
            assert ready, "the streams wait for each other"
            self._random.choice(ready).items.popleft().run()


class HostStream:
    """A queue of work that runs when somebody waits for it."""

    def __init__(self, device: HostDevice) -> None:
        self._device = device
        self.items: deque[_Item] = deque()

    def _work(self, work: Callable[[], object]) -> Run:
        item = _Item(lambda: True, work)
        return lambda: self._device.put(lambda: self.items.append(item))

    def launch(
        self, function: Function, grid: int, arrays: Sequence[np.ndarray], scalars: Sequence[int]
    ) -> Run:
        pointers = (ctypes.c_void_p * max(len(arrays), 1))(*(a.ctypes.data for a in arrays))
        numbers = (ctypes.c_longlong * max(len(scalars), 1))(*scalars)
        kept = list(arrays)

        def work() -> None:
            self._device.launched += bool(kept)
            function(grid, pointers, numbers)

        return self._work(work)

    def product(self, product: DeviceProduct, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Run:
        gemm, operands = column_major(product), {"a": a, "b": b}
        first, second = gemm.first, gemm.second

        def work() -> None:
            _gemm(
                (first.transposed, second.transposed),
                (gemm.rows, gemm.columns, gemm.inner),
                (product.alpha, product.beta),
                (operands[first.operand], first.leading, first.distance),
                (operands[second.operand], second.leading, second.distance),
                (c, gemm.leading, gemm.distance),
                product.count,
            )

        return self._work(work)

    def copy(self, source: np.ndarray, target: np.ndarray) -> Run:
        return self._work(lambda: np.copyto(target, source))

    def upload(self, source: np.ndarray, target: np.ndarray) -> Run:
        return self._work(lambda: np.copyto(target, source))

    def download(self, source: np.ndarray, target: np.ndarray) -> Run:
        return self._work(lambda: np.copyto(target, source))

    def record(self, event: _Event) -> Run:
        def put() -> None:
            token = event.token = _Token()
            self.items.append(_Item(lambda: True, lambda: setattr(token, "is_done", True)))

        return lambda: self._device.put(put)

    def wait(self, event: _Event) -> Run:
        def put() -> None:
            token = event.token
            assert token is not None, "an event that was never recorded"
            self.items.append(_Item(lambda: token.is_done, lambda: None))

        return lambda: self._device.put(put)

    def synchronize(self) -> None:
        self._device.run_until_empty(self)


Strided = tuple[np.ndarray, int, int]


def _gemm(
    flips: tuple[bool, bool],
    sizes: tuple[int, int, int],
    factors: tuple[float, float],
    a: Strided,
    b: Strided,
    c: Strided,
    count: int,
) -> None:
    """Do as BLAS's gemmStridedBatched: matrices in column-major order."""
    (m, n, k), (alpha, beta) = sizes, factors
    left = _columns(a, (k, m) if flips[0] else (m, k), count)
    right = _columns(b, (n, k) if flips[1] else (k, n), count)
    result = _columns(c, (m, n), count)
    left = left.transpose(0, 2, 1) if flips[0] else left
    right = right.transpose(0, 2, 1) if flips[1] else right
    wide = np.promote_types(result.dtype, np.float32)
    made = alpha * (left.astype(wide) @ right.astype(wide))
    result[...] = made if beta == 0 else made + beta * result.astype(wide)


def _columns(matrix: Strided, shape: tuple[int, int], count: int) -> np.ndarray:
    array, leading, distance = matrix
    rows, columns = shape
    assert leading >= max(rows, 1)
    if 0 not in (count, rows, columns):
        last = (count - 1) * distance + (columns - 1) * leading + rows - 1
        assert last < array.size, "a product reads or writes past its operand"
    item = array.itemsize
    steps = (distance * item, item, leading * item)
    return np.lib.stride_tricks.as_strided(array, (count, rows, columns), steps)


def compiled(kernels: Sequence[DeviceKernel]) -> dict[str, Function]:
    """Return kernels as functions of the host."""
    if not kernels:
        return {}
    assert COMPILER is not None
    folder = tempfile.TemporaryDirectory(prefix="kernels")
    _KEPT.append(folder)
    source, library = Path(folder.name) / "kernels.cpp", Path(folder.name) / "kernels.so"
    source.write_text("\n".join([_PRELUDE, *(each.text + _entry(each) for each in kernels)]))
    options = ["-std=c++17", "-O0", "-ffp-contract=off", "-shared", "-fPIC"]
    options += ["-Werror=uninitialized", "-Werror=overflow", "-Werror=shift-count-overflow"]
    command = [COMPILER, *options, str(source), "-o", str(library), "-lm"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[:4000]
    loaded = ctypes.CDLL(str(library))
    return {kernel.name: loaded[f"run_{kernel.name}"] for kernel in kernels}


def _entry(kernel: DeviceKernel) -> str:
    """Return a function that runs all blocks of a kernel."""
    pointers = sum("*" in type_ for type_ in kernel.parameters)
    arguments = [f"({type_})p[{at}]" for at, type_ in enumerate(kernel.parameters[:pointers])]
    arguments += [f"s[{at}]" for at in range(len(kernel.parameters) - pointers)]
    return (
        f'extern "C" void run_{kernel.name}(long long grid, void **p, const long long *s) {{\n'
        f"    for (block = 0; block < grid; ++block) {kernel.name}({', '.join(arguments)});\n}}\n"
    )
