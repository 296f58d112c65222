"""
cuBLAS by its C interface.

CuPy's own calls of cuBLAS refuse a stream that is recorded, and let cuBLAS take memory of its own.
Here each handle gets its workspace from the caller. See "cuBLAS API" in NVIDIA's documentation,
sections 2.1.10 (workspace) and 2.7 (``gemmStridedBatched``).
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Final

import numpy as np

from arenaplan.device.blas import column_major
from arenaplan.device.device import Run
from arenaplan.device.work import Product
from arenaplan.errors import DeviceUnavailable, KernelError

WORKSPACE: Final = 1 << 25
"""Bytes of a handle's workspace: those that NVIDIA recommends for the Hopper architecture."""

_NUMBER: Final = ctypes.c_int
_POINTER: Final = ctypes.c_void_p
_LONG: Final = ctypes.c_longlong
_OPERAND: Final = (_POINTER, _NUMBER, _LONG)
_GEMM: Final = (
    *(_POINTER, _NUMBER, _NUMBER, _NUMBER, _NUMBER, _NUMBER, _POINTER),
    *_OPERAND,
    *_OPERAND,
    _POINTER,
    *_OPERAND,
    _NUMBER,
)
_ARGUMENTS: Final = {
    "cublasCreate_v2": (ctypes.POINTER(_POINTER),),
    "cublasDestroy_v2": (_POINTER,),
    "cublasSetStream_v2": (_POINTER, _POINTER),
    "cublasSetWorkspace_v2": (_POINTER, _POINTER, ctypes.c_size_t),
    "cublasSgemmStridedBatched": _GEMM,
    "cublasDgemmStridedBatched": _GEMM,
}
_GEMMS: Final = {
    np.dtype(np.float32): "cublasSgemmStridedBatched",
    np.dtype(np.float64): "cublasDgemmStridedBatched",
}


@cache
def load_cublas() -> Any:
    """
    Return the library.

    Raises
    ------
    DeviceUnavailable
        If it is not installed.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("cublas").abs_path
        library = ctypes.CDLL(path)
    except (ImportError, OSError, RuntimeError) as error:
        raise DeviceUnavailable(f"running on CUDA needs cuBLAS: {error}") from error
    for name, types in _ARGUMENTS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, _NUMBER
    return library


class Cublas:
    """
    A handle of cuBLAS.

    Parameters
    ----------
    stream : int
        The stream of its work, as CUDA's pointer.
    workspace : object
        Device memory of :data:`WORKSPACE` bytes with ``address``, kept as long as the handle.
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

    def product(self, product: Product, a: int, b: int, c: int) -> Run:
        """
        Return a function that puts a product into the stream.

        Parameters
        ----------
        product : Product
            Row-major matrices of ``float32`` or ``float64``, which cuBLAS sees transposed.
        a, b, c : int
            The addresses of the first elements of the operands and of the result.
        """
        factors = np.array([product.alpha, product.beta], product.dtype)
        gemm = column_major(product)
        addresses = {"a": a, "b": b}
        arguments = (
            self._handle,
            int(gemm.first.transposed),
            int(gemm.second.transposed),
            gemm.rows,
            gemm.columns,
            gemm.inner,
            factors.ctypes.data,
            addresses[gemm.first.operand],
            gemm.first.leading,
            gemm.first.distance,
            addresses[gemm.second.operand],
            gemm.second.leading,
            gemm.second.distance,
            factors.ctypes.data + product.dtype.itemsize,
            c,
            gemm.leading,
            gemm.distance,
            product.count,
        )
        name = _GEMMS[product.dtype]

        def run(_kept: np.ndarray = factors) -> None:
            self._call(name, *arguments)

        return run

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise KernelError(f"{name} failed with cuBLAS status {status}")
