"""
A shortcut for one operator: ConstantOfShape with a stored shape.

Models without weights have one such node for each of them, more than for everything
else. What is usual about them is read here at a fraction of the general machinery's
cost; for everything unusual, and all that is wrong, that machinery is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import pack, unpack

import numpy as np
from onnx import NodeProto, TensorProto

from arenaplan.importers.common import BITS, MAX_RANK, Shape, array_bytes
from arenaplan.importers.onnx.constants import MAX_FOLDED
from arenaplan.importers.onnx.op import Operand
from arenaplan.importers.onnx.tensors import DTYPES, Loadable, from_bytes

_INT64 = int(TensorProto.INT64)


class Filled(Loadable):
    """A constant whose elements are all the same."""

    __slots__ = ("_element", "_shape")

    def __init__(self, element: bytes, dtype: str, shape: Shape, size: int) -> None:
        self._element = element
        self._shape = shape
        self.dtype = dtype
        self.bytes = size

    def load(self) -> np.ndarray:
        """Return the elements, as one that is seen many times."""
        return np.broadcast_to(from_bytes(self._element, self.dtype, ()), self._shape)


def filled(node: NodeProto, stored: Mapping[str, TensorProto]) -> Operand | None:
    """Return the result of a ConstantOfShape node, or ``None`` if it is not a usual one."""
    names, attributes, outputs = node.input[:], node.attribute[:], node.output[:]
    if not len(names) == len(attributes) == len(outputs) == 1:
        return None
    target, attribute, name = stored.get(names[0]), attributes[0], outputs[0]
    if target is None or target.data_type != _INT64 or attribute.name != "value" or not name:
        return None
    shape = _integers(target)
    value = attribute.t
    dtype = DTYPES.get(value.data_type)
    if shape is None or dtype is None or value.dims[:] != [1]:
        return None
    listed = value.float_data[:]
    if listed:
        element = pack("<f", listed[0]) if len(listed) == 1 and dtype == "float32" else b""
    else:
        element = value.raw_data
    size = array_bytes(shape, dtype)
    if 8 * len(element) != BITS[dtype] or size > MAX_FOLDED:
        return None
    return Operand(name, shape, dtype, Filled(element, dtype, shape, size), True)


def _integers(proto: TensorProto) -> Shape | None:
    """Return a stored list of numbers, none of which is negative."""
    data = proto.raw_data
    count, rest = divmod(len(data), 8)
    if rest or not 0 < count <= MAX_RANK or proto.dims[:] != [count]:
        return None
    numbers: Shape = unpack(f"<{count}q", data)
    return numbers if min(numbers) >= 0 else None
