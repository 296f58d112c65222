"""
A fast path for ConstantOfShape with a stored shape.

Models without weights have such a node per weight, more than all other nodes. Usual nodes are read
here at a fraction of the general walk's cost; unusual and malformed nodes are left to the general
walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from struct import unpack

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto

from arenaplan.base.errors import PlannerError
from arenaplan.formats.onnx.budget import MAX_FOLDED
from arenaplan.formats.onnx.external import Folder
from arenaplan.formats.onnx.op import OnnxOperand, Scope
from arenaplan.formats.onnx.tensors import StoredTensor
from arenaplan.graph.ops import BITS, Shape
from arenaplan.graph.sizes import MAX_RANK

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


def _filled(node: NodeProto, scope: Scope) -> OnnxOperand | None:
    """Return a ConstantOfShape node's result; ``None`` if the node is unusual."""
    names, attributes, outputs = node.input[:], node.attribute[:], node.output[:]
    if node.domain or not len(names) == len(attributes) == len(outputs) == 1:
        return None
    stored, name = scope.get(names[0]), outputs[0]
    if type(stored) is not TensorProto or stored.data_type != _INT64 or not name:
        return None
    shape = _shape(stored.raw_data)
    element = _element(attributes[0].SerializeToString())
    if shape is None or element is None or stored.dims[:] != [len(shape)]:
        return None
    data, dtype = element
    if prod(shape) * BITS[dtype] > 8 * MAX_FOLDED:
        return None
    return OnnxOperand(name, shape, dtype, data, True)


# Networks repeat few shapes and elements many times.
@lru_cache(256)
def _shape(data: bytes) -> Shape | None:
    """Return the shape in a tensor's bytes."""
    count = len(data) // 8
    if not 0 < count <= MAX_RANK or len(data) != 8 * count:
        return None
    shape: Shape = unpack(f"<{count}q", data)
    return None if min(shape) < 0 else shape


@lru_cache(256)
def _element(attribute: bytes) -> tuple[np.ndarray, str] | None:
    """Return the fill value and type in an attribute's bytes."""
    proto = AttributeProto.FromString(attribute)
    if proto.name != "value" or proto.type != AttributeProto.TENSOR or len(attribute) > 256:
        return None
    try:
        tensor = StoredTensor(proto.t, "", Folder(None))
    except PlannerError:
        return None
    if tensor.is_external or prod(tensor.shape) != 1:
        return None
    return tensor.load().reshape(()), tensor.dtype
