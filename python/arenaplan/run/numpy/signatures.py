"""The facts about a graph's nodes that are known before memory is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from arenaplan.base.errors import SizeError, UnsupportedDtype, UnsupportedOp, fault
from arenaplan.graph import Graph, Node, Value
from arenaplan.graph.ops import array_bytes
from arenaplan.graph.values import Quantized
from arenaplan.run.numpy.narrow import narrow_dtype
from arenaplan.run.numpy.registry import Signature, Tensor

_MAX_RANK = 64
_MOST_BYTES = (1 << 63) - 1
_DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}

NOT_RUN = (UnsupportedOp, SizeError)
"""Why an executor refuses a node that can be planned."""


def byte_size(value: Value) -> int:
    """Return a value's size in bytes."""
    dtype_of(value)
    return array_bytes(value.shape, value.dtype)


def dtype_of(value: Value) -> np.dtype[Any]:
    """
    Return NumPy's element type for a value.

    Raises
    ------
    UnsupportedDtype
        If NumPy cannot compute with the type.
    """
    dtype = _DTYPES.get(value.dtype) or narrow_dtype(value.dtype)
    if dtype is None:
        raise UnsupportedDtype(
            f"value {value.name!r} has element type {value.dtype}, which NumPy cannot compute with"
        )
    return dtype


def check_array(value: Value) -> None:
    """
    Raise if NumPy has no array with a value's shape.

    Raises
    ------
    SizeError
        If the shape has too many dimensions.
    SizeError
        If dimensions other than zeros overflow together.
    """
    if prod(dim for dim in value.shape if dim) * dtype_of(value).itemsize > _MOST_BYTES:
        raise fault(
            "SizeOverflow",
            f"value {value.name!r} of shape {value.shape} is too large for a NumPy array, "
            "though it has no elements",
        )
    if len(value.shape) > _MAX_RANK:
        raise fault(
            "RankTooLarge",
            f"value {value.name!r} has {len(value.shape)} dimensions, "
            f"and a NumPy array has at most {_MAX_RANK}",
        )


@dataclass(frozen=True, slots=True)
class ConstantLoad:
    """Loads a constant's data when called."""

    graph: Graph
    index: int

    def __call__(self) -> np.ndarray:
        """Return the data."""
        return self.graph.data(self.index)

    def quantized(self) -> Quantized | None:
        """Return the integers that the data stands for, if that is known."""
        return self.graph.quantized(self.index)


def signature_of(graph: Graph, node: Node) -> Signature:
    """Return the facts about a node that a kernel may know before memory is."""

    def tensor(index: int | None) -> Tensor | None:
        if index is None:
            return None
        value = graph.values[index]
        check_array(value)
        return Tensor(value.shape, dtype_of(value))

    def loader(index: int | None) -> Callable[[], np.ndarray] | None:
        return None if index is None or not graph.has_data(index) else ConstantLoad(graph, index)

    return Signature(
        node.name,
        node.op,
        node.domain,
        node.version,
        node.attributes,
        tuple(map(tensor, node.inputs)),
        tuple(map(tensor, node.outputs)),
        tuple(map(loader, node.inputs)),
    )
