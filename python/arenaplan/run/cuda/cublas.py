"""
cuBLAS through the C interface.

CuPy's own cuBLAS calls refuse a stream that is recorded, and let cuBLAS allocate memory. Here each
handle gets its workspace from the caller. See "cuBLAS API" in NVIDIA's documentation, sections on
workspaces and on ``cublasGemmStridedBatchedEx``.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.run.cuda.blas import BlasOperand, column_major
from arenaplan.run.cuda.device import Run
from arenaplan.run.cuda.device_work import DeviceProduct
from arenaplan.run.cuda.text import wide

WORKSPACE: Final = 1 << 25
"""Bytes in a handle's workspace, as recommended by NVIDIA for the Hopper architecture."""

_NUMBER: Final = ctypes.c_int
_POINTER: Final = ctypes.c_void_p
_LONG: Final = ctypes.c_longlong
_OPERAND: Final = (_POINTER, _NUMBER, _NUMBER, _LONG)
_ARGUMENTS: Final = {
    "cublasCreate_v2": (ctypes.POINTER(_POINTER),),
    "cublasDestroy_v2": (_POINTER,),
    "cublasSetStream_v2": (_POINTER, _POINTER),
    "cublasSetWorkspace_v2": (_POINTER, _POINTER, ctypes.c_size_t),
    "cublasGemmStridedBatchedEx": (
        *(_POINTER, _NUMBER, _NUMBER, _NUMBER, _NUMBER, _NUMBER, _POINTER),
        *_OPERAND,
        *_OPERAND,
        _POINTER,
        *_OPERAND,
        *(_NUMBER, _NUMBER, _NUMBER),
    ),
}
_DEFAULT_ALGORITHM: Final = -1


class _Types(NamedTuple):
    """The types in a product, by cuBLAS number."""

    elements: int
    """``cudaDataType_t`` of the matrices."""
    sums: int
    """``cublasComputeType_t``."""


_TYPES: Final = {
    np.dtype(np.float16): _Types(2, 68),
    np.dtype(np.float32): _Types(0, 68),
    np.dtype(np.float64): _Types(1, 70),
}
"""Sums of half precision are single, and single precision is not cut to TF32."""


@cache
def load_cublas() -> Any:
    """
    Return the library.

    Raises
    ------
    ExecutionError
        If the library is not installed.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("cublas").abs_path
        library = ctypes.CDLL(path)
    except (ImportError, OSError, RuntimeError) as error:
        raise fault("DeviceUnavailable", f"running on CUDA needs cuBLAS: {error}") from error
    for name, types in _ARGUMENTS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, _NUMBER
    return library


class Cublas:
    """
    A cuBLAS handle.

    Parameters
    ----------
    stream : int
        The stream for the work, as a CUDA pointer.
    workspace : object
        Device memory with :data:`WORKSPACE` bytes and an ``address``, kept as long as the handle.
    """

    def __init__(self, stream: int, workspace: Any) -> None:
        self._library = load_cublas()
        self._workspace = workspace
        handle = _POINTER()
        self._handle: ctypes.c_void_p | None = None
        self._call("cublasCreate_v2", ctypes.byref(handle))
        self._handle = handle
        self._call("cublasSetStream_v2", handle, stream)
        self._call("cublasSetWorkspace_v2", handle, workspace.address, WORKSPACE)

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            self._library.cublasDestroy_v2(handle)

    def product(self, product: DeviceProduct, a: int, b: int, c: int) -> Run:
        """
        Return a function that puts a product into the stream.

        Parameters
        ----------
        product : DeviceProduct
            Row-major matrices of floating-point numbers, which cuBLAS sees transposed.
        a, b, c : int
            The addresses of the first elements in the operands and in the result.
        """
        factors = np.array([product.alpha, product.beta], wide(product.dtype))
        gemm, types = column_major(product), _TYPES[product.dtype]
        addresses = {"a": a, "b": b}

        def operand(operand: BlasOperand) -> tuple[int, ...]:
            address = addresses[operand.operand]
            return address, types.elements, operand.leading, operand.distance

        arguments = (
            self._handle,
            int(gemm.first.transposed),
            int(gemm.second.transposed),
            gemm.rows,
            gemm.columns,
            gemm.inner,
            factors.ctypes.data,
            *operand(gemm.first),
            *operand(gemm.second),
            factors.ctypes.data + factors.itemsize,
            *(c, types.elements, gemm.leading, gemm.distance),
            *(product.count, types.sums, _DEFAULT_ALGORITHM),
        )

        def run(_kept: np.ndarray = factors) -> None:
            self._call("cublasGemmStridedBatchedEx", *arguments)

        return run

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise fault("KernelError", f"{name} failed with cuBLAS status {status}")
