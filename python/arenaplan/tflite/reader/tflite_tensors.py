"""Tensors for the planner: checked shapes, types, names and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from arenaplan.base.errors import (
    UnboundDim,
    UnknownDim,
    UnknownShape,
    UnsupportedDtype,
    UnsupportedModel,
    fault,
)
from arenaplan.base.quoting import listed, quoted
from arenaplan.graph.ops import Shape
from arenaplan.graph.ops.operands import BITS
from arenaplan.graph.sizes import Bind, checked_bytes, whole_number
from arenaplan.tflite.reader.schema import DTYPES
from arenaplan.tflite.reader.tflite_model import Subgraph, TfliteModel, TfliteTensor

_BY_DATA = frozenset({"UNIQUE", "WHERE"})
"""Operators whose results have as many elements as data says."""
_PLAIN = frozenset(
    {"bool", "float32", "float64", "int16", "int32", "int64", "int8", "uint16", "uint32", "uint8"}
)
"""Variable types whose content NumPy can hold."""
_FEW = 64
"""Largest constant that rules read: axes, first indices, permutations."""


def dtype_of(tensor: TfliteTensor, name: str) -> str:
    """Return NumPy's name for a tensor's element type."""
    dtype = DTYPES.get(tensor.type)
    if dtype is None:
        raise UnsupportedDtype(
            f"tensor {quoted(name)} has elements of type {tensor.type}, whose size is not "
            "known ahead of a run"
        )
    return dtype


def unique_names(subgraph: Subgraph) -> list[str]:
    """Return a unique name per tensor; files may omit or repeat names."""
    names: list[str] = []
    taken = {tensor.name for tensor in subgraph.tensors}
    used: set[str] = set()
    for index, tensor in enumerate(subgraph.tensors):
        name = tensor.name
        if not name or name in used:
            name = f"{name or 'tensor'}#{index}"
            while name in taken or name in used:
                name += "'"
        used.add(name)
        names.append(name)
    return names


class SubgraphShapes:
    """
    Shapes for a subgraph's tensors.

    Parameters
    ----------
    subgraph : Subgraph
        The tensors' subgraph.
    names : list of str
        The tensors' names.
    bind : mapping or None
        Shapes from the caller, by name.
    """

    def __init__(self, subgraph: Subgraph, names: Sequence[str], bind: Bind | None) -> None:
        self._subgraph = subgraph
        self._names = names
        self._bound = _bound(bind, names)
        self._undecided = _undecided(subgraph)

    def of(self, index: int) -> Shape:
        """
        Return a tensor's shape.

        Raises
        ------
        UnboundDim
            If a dimension is open, and neither the file nor the caller has a number.
        UnknownShape
            If data decides the shape, and the caller gives no bound.
        SizeError
            If a dimension is negative.
        """
        tensor, name = self._subgraph.tensors[index], self._names[index]
        shape, signature = tensor.shape, tensor.signature
        maker = self._undecided.get(index)
        if maker is not None and name not in self._bound:
            raise UnknownShape(
                f"tensor {quoted(name)}: data decides its size when {maker} runs, and the file has "
                f"no number for it; pass a bound of its shape: bind={{{name!r}: (…)}}"
            )
        if maker is not None or not shape or any(dim == -1 for dim in shape):
            return self._completed(name, signature if maker is not None or not shape else shape)
        if any(dim < 0 for dim in shape):
            raise fault(
                "InvalidDim", f"tensor {quoted(name)} has the negative dimension {min(shape)}"
            )
        bound = self._bound.get(name, shape)
        if bound != shape:
            self._refuse(name, shape, signature, bound)
        return shape

    def open_axes(self, index: int) -> list[int]:
        """Return the dimensions that the file leaves open."""
        return [a for a, dim in enumerate(self._subgraph.tensors[index].signature or ()) if dim < 0]

    def _completed(self, name: str, dims: Shape | None) -> Shape:
        """Return the shape of a tensor without sizes in the file."""
        bound = self._bound.get(name)
        if bound is not None:
            if dims is not None and (
                len(dims) != len(bound)
                or any(d not in (-1, b) for d, b in zip(dims, bound, strict=True))
            ):
                raise fault(
                    "DimConflict",
                    f"tensor {quoted(name)} has shape {dims}, and was bound to {bound}",
                )
            return bound
        # Without any shape a tensor is a single number.
        for axis, dim in enumerate(dims or ()):
            if dim < 0:
                raise UnboundDim(
                    f"dimension {axis} of tensor {quoted(name)} has no number; "
                    f"pass its shape: bind={{{name!r}: (…)}}"
                )
        return dims or ()

    def _refuse(self, name: str, shape: Shape, signature: Shape | None, bound: Shape) -> None:
        """Raise the error for a shape that differs from the file."""
        fixed = signature if signature is not None and len(signature) == len(shape) else shape
        if len(bound) != len(fixed) or any(
            d not in (-1, b) for d, b in zip(fixed, bound, strict=True)
        ):
            raise fault(
                "DimConflict",
                f"tensor {quoted(name)} has shape {fixed}, and was bound to {bound}",
            )
        raise UnsupportedModel(
            f"tensor {quoted(name)} is stored with shape {shape}; another, {bound}, changes shapes "
            "after it that only a converter knows"
        )


def _undecided(subgraph: Subgraph) -> Mapping[int, str]:
    """
    Return results with data-dependent sizes, and the operators that make these results.

    Files store 1 or no number for such a dimension, which says nothing. A result dimension may also
    be open because an input dimension is.
    """
    found: dict[int, str] = {}
    tensors, inputs = subgraph.tensors, {*subgraph.inputs}
    is_open = any(_has_open(tensors[index]) for index in inputs)
    for position, operator in enumerate(subgraph.operators):
        by_data = operator.name in _BY_DATA and not operator.is_custom
        for index in operator.outputs:
            if index is None or index in inputs or tensors[index].is_variable:
                continue
            tensor = tensors[index]
            if _has_open(tensor) and (by_data or not is_open or not tensor.shape):
                found[index] = f"operator {operator.name}_{position}"
    return found


def _has_open(tensor: TfliteTensor) -> bool:
    """Whether a file leaves a tensor dimension open."""
    return any(dim < 0 for dim in tensor.signature or ())


def _bound(bind: Bind | None, names: Sequence[str]) -> Mapping[str, Shape]:
    """Return the shapes that a caller gave, by name."""
    known = set(names)
    shapes: dict[str, Shape] = {}
    for name, value in (bind or {}).items():
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise UnknownDim(
                f"dimensions of TFLite models have no names such as {quoted(name)}; "
                "pass whole shapes by tensor",
                names=[name],
            )
        if name not in known:
            raise UnknownDim(
                f"the model has no tensor {quoted(name)}; it has {listed(names)}", names=[name]
            )
        what = f"a dimension bound for tensor {quoted(name)}"
        shapes[name] = tuple(whole_number(dim, what) for dim in value)
    return shapes


def check_payload(
    model: TfliteModel, tensor: TfliteTensor, name: str, shape: Shape, dtype: str
) -> None:
    """
    Refuse a constant whose data size does not match the shape.

    Raises
    ------
    ModelError
        If the sizes differ. Sparse data and external data are not checked.
    """
    if tensor.is_sparse or tensor.is_external:
        return
    expected = checked_bytes(name, shape, dtype)
    found = model.buffers[tensor.buffer].length
    if found != expected:
        raise fault(
            "TensorPayloadMismatch",
            f"constant {quoted(name)} needs {expected} bytes, and its buffer holds {found}",
        )


def array(model: TfliteModel, tensor: TfliteTensor, shape: Shape, dtype: str) -> np.ndarray | None:
    """Return a constant's data, if NumPy has the type and the data is stored plainly."""
    try:
        kind = np.dtype(dtype)
    except TypeError:
        return None
    if BITS[dtype] < 8:
        return None  # Packed, though other packages may have taught NumPy the type.
    if tensor.is_sparse or tensor.is_external:
        return None
    span = model.buffers[tensor.buffer]
    count = span.length // kind.itemsize
    if not count:
        return np.empty(shape, kind)
    data = np.frombuffer(model.data, kind.newbyteorder("<"), count, span.start)
    return data.reshape(shape)


def small_numbers(data: np.ndarray | None) -> tuple[int, ...] | None:
    """Return a constant's elements, if these are few whole numbers, for rules to read."""
    if data is None or data.size > _FEW or data.dtype.kind not in "iu":
        return None
    return tuple(int(number) for number in data.ravel())


def first_content(tensor: TfliteTensor, shape: Shape, dtype: str) -> np.ndarray | None:
    """Return a variable's initial content, as in TensorFlow Lite Micro: the zero point, or 0."""
    known = tensor.quantization
    if dtype not in _PLAIN:
        return None
    shifted = dtype == "int8" and known is not None and known.zero_point
    # A single number, however large the file says the variable is.
    number = np.array(known.zero_point[0] if known is not None and shifted else 0).astype(dtype)
    return np.broadcast_to(number, shape)
