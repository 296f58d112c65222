"""
A shortcut for one operator: ConstantOfShape with a stored shape.

Models without weights have one such node for each of them, more than for everything
else. What is usual about them is read here at a fraction of the general machinery's
cost; for everything unusual, and all that is wrong, that machinery is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from struct import pack, unpack

import numpy as np
from onnx import NodeProto, TensorProto

from arenaplan.importers.common import BITS, MAX_RANK, Shape
from arenaplan.importers.onnx.constants import MAX_FOLDED
from arenaplan.importers.onnx.op import Operand, Scope
from arenaplan.importers.onnx.tensors import DTYPES, from_bytes

_INT64 = int(TensorProto.INT64)


def fill(nodes: Sequence[NodeProto], scope: Scope) -> list[NodeProto]:
    """Put the results of usual ConstantOfShape nodes into ``scope``; return the other nodes."""
    rest = []
    for node in nodes[:]:
        operand = _filled(node, scope) if node.op_type == "ConstantOfShape" else None
        if operand is None or operand.name in scope:
            rest.append(node)
        else:
            scope[operand.name] = operand
    return rest


def _filled(node: NodeProto, scope: Scope) -> Operand | None:
    """Return the result of a ConstantOfShape node, or ``None`` if it is not a usual one."""
    names, attributes, outputs = node.input[:], node.attribute[:], node.output[:]
    if node.domain or not len(names) == len(attributes) == len(outputs) == 1:
        return None
    stored, attribute, name = scope.get(names[0]), attributes[0], outputs[0]
    if type(stored) is not TensorProto or attribute.name != "value" or not name:
        return None
    data = stored.raw_data
    count = len(data) // 8
    if stored.data_type != _INT64 or not 0 < count <= MAX_RANK or stored.dims[:] != [count]:
        return None
    value = attribute.t
    dtype = DTYPES.get(value.data_type)
    if len(data) != 8 * count or dtype is None or value.dims[:] != [1]:
        return None
    element, listed = value.raw_data, value.float_data[:]
    if listed:
        element = pack("<f", listed[0]) if len(listed) == 1 and dtype == "float32" else b""
    shape: Shape = unpack(f"<{count}q", data)
    size = prod(shape) * BITS[dtype] // 8
    if 8 * len(element) != BITS[dtype] or min(shape) < 0 or size > MAX_FOLDED:
        return None
    return Operand(name, shape, dtype, _scalar(element, dtype), True)


@lru_cache(1024)
def _scalar(element: bytes, dtype: str) -> np.ndarray:
    """Return one element, which an operand repeats; models repeat few of them."""
    return from_bytes(element, dtype, ())
