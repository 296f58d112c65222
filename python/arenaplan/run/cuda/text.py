"""
Text of kernels: C++ that NVRTC compiles for a device and a C++ compiler for a host.

A kernel is a sequence of phases. In each phase, all threads in a block run, and only shared arrays
pass from one phase to the next. On a device, a phase is code between two barriers. On a host, a
phase is a loop over the block's threads, so kernel arithmetic can be tested without a device. Loop
fission at barriers is the MCUDA method (Stratton et al., 2008).

Equal work gives equal text, and a kernel's name contains a digest of the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from math import isinf, isnan, prod
from typing import Any, Final

import numpy as np

from arenaplan.base.errors import UnsupportedDtype

THREADS: Final = 256
"""Threads per block."""

CUDA_PRELUDE: Final = """\
#define KERNEL extern "C" __global__ void
#define SHARED __shared__
#define PHASE(t) for (int t = (int)threadIdx.x; t < 256; t += 256)
#define NEXT_PHASE __syncthreads();
#define BLOCK ((long long)blockIdx.x)
#define INFINITE (__int_as_float(0x7f800000))
#define NO_NUMBER (__int_as_float(0x7fc00000))
struct half {
    unsigned short bits;
    half() = default;
    __device__ explicit half(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
    __device__ explicit half(double x) { asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x)); }
    template <class T> __device__ explicit half(T x) : half((float)x) {}
    __device__ operator float() const {
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
        return x;
    }
};
"""
"""
Definitions in front of the kernels for NVRTC, which has no headers.

Arithmetic on ``half`` is ``float`` arithmetic; a conversion back, always written, rounds.
"""

C_TYPES: Final = {
    np.dtype(name): text
    for name, text in {
        "bool": "bool",
        "int8": "signed char",
        "uint8": "unsigned char",
        "int16": "short",
        "uint16": "unsigned short",
        "int32": "int",
        "uint32": "unsigned int",
        "int64": "long long",
        "uint64": "unsigned long long",
        "float16": "half",
        "float32": "float",
        "float64": "double",
    }.items()
}
"""C++ type by element type."""


def c_type(dtype: np.dtype[Any]) -> str:
    """
    Return the C++ type for an element type.

    Raises
    ------
    UnsupportedDtype
        If no kernel computes with the type.
    """
    try:
        return C_TYPES[dtype]
    except KeyError:
        raise UnsupportedDtype(f"no kernel for devices computes with {dtype}") from None


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which kernels keep sums for an element type."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def literal(number: Any, dtype: np.dtype[Any]) -> str:
    """Return a number as C++ text for an element type."""
    if dtype.kind == "b":
        return "true" if number else "false"
    if dtype.kind in "iu":
        suffix = "ull" if dtype == np.uint64 else "ll"
        lowest = np.iinfo(np.int64).min
        text = f"({lowest + 1}ll - 1)" if int(number) == lowest else f"{int(number)}{suffix}"
        return f"({c_type(dtype)}){text}"
    value = float(number)
    if isnan(value):
        return f"({c_type(dtype)})NO_NUMBER"
    if isinf(value):
        return f"({c_type(dtype)}){'-' if value < 0 else ''}INFINITE"
    if dtype == np.float16:
        return f"(half){literal(np.float16(value), wide(dtype))}"
    if dtype == np.float32:
        digits = f"{float(np.float32(value)):.9g}"
        return f"{digits}{'' if set(digits) & set('.e') else '.0'}f"
    digits = f"{value:.17g}"
    return f"{digits}{'' if set(digits) & set('.e') else '.0'}"


def converted(type_: str, expression: str) -> str:
    """Return an expression that can be assigned to a variable with a given type."""
    return f"(half)({expression})" if type_ == "half" else expression


def row_major(shape: Sequence[int]) -> list[int]:
    """Return a contiguous array's strides, in elements."""
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def strided_index(index: str, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> str:
    """
    Return the place where a strided array has an element.

    Parameters
    ----------
    index : str
        The element's position in row-major order over ``shape``.
    shape, strides : sequence of int
        The array's shape and strides; strides count elements, and may be zero or negative.
    offset : int, default 0
        The first element's place.
    """
    dims: list[tuple[int, int]] = []  # Merged where two dimensions step as one.
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if dims and dims[-1][1] == size * stride:
            dims[-1] = (dims[-1][0] * size, stride)
        else:
            dims.append((size, stride))
    terms, inner = [], 1
    for position, (size, stride) in reversed(list(enumerate(dims))):
        if stride:
            at = index if inner == 1 else f"{index} / {inner}"
            at = at if position == 0 else f"{at} % {size}"
            terms.append(at if stride == 1 else f"({at}) * {stride}")
        inner *= size
    if offset or not terms:
        terms.append(str(offset))
    return terms[0] if len(terms) == 1 else "(" + " + ".join(reversed(terms)) + ")"


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """A generated function."""

    stem: str
    """Readable start of the name."""
    parameters: tuple[str, ...]
    """Parameter types, all pointers."""
    names: tuple[str, ...]
    """Parameter names."""
    body: str

    @property
    def name(self) -> str:
        """The stem and a digest of the rest."""
        text = f"{self._head()}\n{self.body}".encode()
        return f"{self.stem}_{blake2b(text, digest_size=8).hexdigest()}"

    @property
    def text(self) -> str:
        """The definition."""
        return f"KERNEL {self.name}({self._head()}) {{\n{self.body}}}\n"

    def _head(self) -> str:
        pairs = zip(self.parameters, self.names, strict=True)
        return ", ".join(f"{type_} {name}" for type_, name in pairs)


class Text:
    """Lines in a function body, with names for expressions."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._named: list[dict[tuple[str, str], str]] = [{}]
        self._count = 0

    def line(self, text: str) -> None:
        """Append a line."""
        self._lines.append("    " * len(self._named) + text)

    def let(self, type_: str, expression: str) -> str:
        """Return a name for an expression; equal expressions in a scope share a name."""
        expression = converted(type_, expression)
        key = (type_, expression)
        for scope in self._named:
            if key in scope:
                return scope[key]
        name = f"v{self._count}"
        self._count += 1
        self.line(f"const {type_} {name} = {expression};")
        self._named[-1][key] = name
        return name

    def variable(self, type_: str, expression: str) -> str:
        """Return the name for a new variable, which later lines may change."""
        expression = converted(type_, expression)
        name = f"v{self._count}"
        self._count += 1
        self.line(f"{type_} {name} = {expression};")
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Put lines into a block; names given inside end with the block."""
        self.line(f"{head} {{")
        self._named.append({})
        yield
        self._named.pop()
        self.line("}")

    @property
    def body(self) -> str:
        """All lines."""
        return "".join(f"{line}\n" for line in self._lines)
