"""Stored tensors: initializers and tensor attributes, checked now and decoded later."""

from __future__ import annotations

import sys
import weakref
from functools import cache
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from arenaplan.base.errors import UnsupportedDtype, UnsupportedModel, fault
from arenaplan.base.quoting import quoted
from arenaplan.formats.onnx.external import FileSpan, Folder, read_span
from arenaplan.formats.onnx.lean import own_offset
from arenaplan.graph.mapped import Reread
from arenaplan.graph.ops import BITS, Shape
from arenaplan.graph.sizes import checked_bytes

DTYPES: dict[int, str] = {
    TensorProto.FLOAT: "float32",
    TensorProto.UINT8: "uint8",
    TensorProto.INT8: "int8",
    TensorProto.UINT16: "uint16",
    TensorProto.INT16: "int16",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.BOOL: "bool",
    TensorProto.FLOAT16: "float16",
    TensorProto.DOUBLE: "float64",
    TensorProto.UINT32: "uint32",
    TensorProto.UINT64: "uint64",
    TensorProto.COMPLEX64: "complex64",
    TensorProto.COMPLEX128: "complex128",
    TensorProto.BFLOAT16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
}
"""
Element types by number in a model. Newer types are numbers, because older versions of the package
``onnx`` have no name for them.
"""

DTYPE_CODES: dict[str, int] = {name: code for code, name in DTYPES.items()}

_EXTERNAL = int(TensorProto.EXTERNAL)

# Which field holds the elements if ``raw_data`` does not; all others are in int32_data.
_FIELDS: dict[str, str] = {
    "float32": "float_data",
    "complex64": "float_data",
    "float64": "double_data",
    "complex128": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
}


def dtype_of(code: int, what: str) -> str:
    """
    Return an element type's NumPy name.

    Raises
    ------
    UnsupportedDtype
        If the type's elements have no fixed size, or the type is unknown.
    """
    dtype = DTYPES.get(code)
    if dtype is None:
        known = "strings" if code == TensorProto.STRING else f"elements of unknown type {code}"
        raise UnsupportedDtype(f"{what} holds {known}")
    return dtype


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the data type ``name``, which may be a type missing in NumPy."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype


def from_bytes(data: bytes | memoryview, dtype: str, shape: Shape) -> np.ndarray:
    """Return an array from little-endian elements."""
    if BITS[dtype] < 8:
        packed = TensorProto(dims=shape, data_type=DTYPE_CODES[dtype], raw_data=b"".join((data,)))
        return numpy_helper.to_array(packed)
    array = np.frombuffer(data, numpy_dtype(dtype)).reshape(shape)
    return array if sys.byteorder == "little" else array.byteswap()


class StoredTensor:
    """A tensor in a model file. Its bytes are counted at once, and decoded by :meth:`load`."""

    __slots__ = (
        *("_folder", "_loaded", "_own", "_proto", "_span"),
        *("bytes", "dtype", "is_external", "name", "shape"),
    )

    def __init__(self, proto: TensorProto, name: str, folder: Folder) -> None:
        dtype = DTYPES.get(proto.data_type)
        if dtype is None:
            dtype = dtype_of(proto.data_type, f"tensor {quoted(name)}")
        shape: Shape = tuple(proto.dims[:])
        if shape and min(shape) < 0:
            raise fault(
                "InvalidDim", f"tensor {quoted(name)} has the negative dimension {min(shape)}"
            )
        self.name = name
        self.dtype = dtype
        self.shape = shape
        if proto.HasField("segment"):
            raise UnsupportedModel(f"tensor {quoted(name)} is one segment of a larger tensor")
        self.bytes = checked_bytes(name, shape, dtype)
        self._proto = proto
        self._folder = folder
        self._span: FileSpan | None = None
        self._loaded: weakref.ref[np.ndarray] | None = None
        """The elements, while in use: graphs from one model share the elements."""
        self._own: int | None = None
        """Where the bytes are in the model's own file, if missing in the message."""
        self.is_external = proto.data_location == _EXTERNAL
        """Whether the bytes are in another file than the model."""
        if self.is_external:
            entries = ((entry.key, entry.value) for entry in proto.external_data)
            self._span = read_span(name, entries, self.bytes)
        elif (own := own_offset(proto)) is not None:
            self._own = own[0]
            self._check_stored(own[1])
        else:
            self._check_payload()

    def load(self) -> np.ndarray:
        """Return the elements, without reading again if still in memory."""
        array = None if self._loaded is None else self._loaded()
        if array is None:
            array = self._decode()
            self._loaded = weakref.ref(array)
        return array

    def _decode(self) -> np.ndarray:
        """Return the elements, without copying where possible."""
        if self._span is not None:
            data = self._folder.read(self.name, self._span)
            return Reread.of(from_bytes(data, self.dtype, self.shape))
        if self._own is not None:
            data = self._folder.inside(self.name, self._own, self.bytes)
            return Reread.of(from_bytes(data, self.dtype, self.shape))
        if self._proto.HasField("raw_data"):
            return from_bytes(self._proto.raw_data, self.dtype, self.shape)
        return numpy_helper.to_array(self._proto)

    def _check_stored(self, stored: int) -> None:
        """Refuse a tensor whose byte count does not match the shape."""
        if stored != self.bytes:
            raise fault(
                "TensorPayloadMismatch",
                f"tensor {quoted(self.name)} has {stored} bytes; its shape needs {self.bytes}",
            )

    def _check_payload(self) -> None:
        """Refuse a tensor whose element count does not match the shape."""
        proto, dtype = self._proto, self.dtype
        field = _FIELDS.get(dtype, "int32_data")
        listed = len(getattr(proto, field))
        # protobuf hands out a copy, which is gone again after this line.
        stored = len(proto.raw_data)
        if stored or proto.HasField("raw_data"):
            if listed:
                raise fault(
                    "TensorPayloadMismatch",
                    f"tensor {quoted(self.name)} has both raw_data and {field}",
                )
            self._check_stored(stored)
            return
        count = self.bytes if BITS[dtype] < 8 else prod(self.shape)
        if dtype in ("complex64", "complex128"):
            count *= 2
        if listed != count:
            raise fault(
                "TensorPayloadMismatch",
                f"tensor {quoted(self.name)} has {listed} elements in {field}; "
                f"its shape needs {count}",
            )
