"""Shapes of operators without a rule, inferred by the package ``onnx``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from onnx import (
    AttributeProto,
    NodeProto,
    OperatorSetIdProto,
    TypeProto,
    checker,
    defs,
    helper,
    numpy_helper,
    shape_inference,
)

from arenaplan.base.errors import InvalidAttribute, ShapeMismatch, UnsupportedDtype
from arenaplan.base.quoting import quoted
from arenaplan.formats.onnx.dims import Dim
from arenaplan.formats.onnx.op import OnnxOperand, Op, peek
from arenaplan.formats.onnx.rules.window_rules import check_auto_pad
from arenaplan.formats.onnx.tensors import DTYPE_CODES, dtype_of

PartialResult: TypeAlias = "tuple[tuple[Dim, ...] | None, str | None]"
"""An output's shape and element type, as far as known."""

PartialShape: TypeAlias = "Sequence[int | None] | None"

UNKNOWN: PartialResult = (None, None)

_REFUSALS = (
    shape_inference.InferenceError,
    checker.ValidationError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions raised by the inference for refused nodes."""

_KNOWN_ELEMENTS = 4096
"""Constants up to this size are shown to the inference."""


def infer(
    op: Op,
    attributes: Sequence[tuple[str, AttributeProto]],
    versions: Mapping[str, int],
    shapes: Sequence[PartialShape] | None = None,
) -> Sequence[PartialResult]:
    """
    Return the known facts about an operator's results.

    ``shapes`` are those of operands that are known in part; the other operands' by default.

    Raises
    ------
    ShapeMismatch
        If the operator cannot have these inputs and attributes.
    UnsupportedDtype
        If a result is no array.
    """
    try:
        schema = defs.get_schema(op.type, op.version, op.domain)
    except defs.SchemaError:
        return [UNKNOWN] * len(op.outputs)
    _check_ranges(op)
    given = {f"i{slot}": known for slot, known in enumerate(op.inputs) if known is not None}
    data = {name: _data(op, known) for name, known in given.items()}
    try:
        inferred = shape_inference.infer_node_outputs(
            schema,
            node_of(op, attributes),
            {
                name: type_of(known.dtype, known.shape if shapes is None else shapes[int(name[1:])])
                for name, known in given.items()
            },
            {
                name: numpy_helper.from_array(array)
                for name, array in data.items()
                if array is not None
            },
            opset_imports=[
                OperatorSetIdProto(domain=domain, version=version)
                for domain, version in versions.items()
            ],
        )
    except _REFUSALS as error:
        raise op.error(ShapeMismatch, str(error)[:300]) from error
    return [
        _result(op, name, inferred.get(f"o{slot}")) if name else UNKNOWN
        for slot, name in enumerate(op.outputs)
    ]


def node_of(op: Op, attributes: Iterable[tuple[str, AttributeProto]]) -> NodeProto:
    """Return a node whose values are named by position: names of a model may be anything."""
    names = ["" if known is None else f"i{slot}" for slot, known in enumerate(op.inputs)]
    node = NodeProto(op_type=op.type, domain=op.domain, input=names)
    node.output.extend(f"o{slot}" if name else "" for slot, name in enumerate(op.outputs))
    for name, proto in attributes:
        node.attribute.add().CopyFrom(proto)
        node.attribute[-1].name = name
    return node


def has_schema(op: Op) -> bool:
    """Return whether the package ``onnx`` can infer an operator's shapes."""
    try:
        schema = defs.get_schema(op.type, op.version, op.domain)
    except defs.SchemaError:
        return False
    return bool(schema.has_type_and_shape_inference_function)


def _check_ranges(op: Op) -> None:
    """Refuse windows, groups and blocks that the inference might divide by, and unclear flags."""
    for name, least in (
        ("kernel_shape", 1),
        ("strides", 1),
        ("dilations", 1),
        ("group", 1),
        ("offset_group", 1),
        ("num_heads", 0),
        ("q_num_heads", 1),
        ("kv_num_heads", 1),
        ("blocksize", 1),
        ("block_size", 0),
        ("pads", 0),
    ):
        value = op.attributes.get(name)
        numbers = value if isinstance(value, tuple) else (value,)
        if any(type(item) is int and not least <= item < 1 << 31 for item in numbers):
            raise op.error(InvalidAttribute, f"{name} {value} is out of range")
    check_auto_pad(op)
    op.flags("interleaved", "sorted")


def type_of(dtype: str, shape: PartialShape) -> TypeProto:
    """Return an operand's type for the inference."""
    return helper.make_tensor_type_proto(DTYPE_CODES[dtype], shape)


def _data(op: Op, operand: OnnxOperand) -> np.ndarray | None:
    """Return a small constant's data."""
    size = 1
    for dim in operand.shape:
        size *= dim
    return peek(operand, op.budget) if size <= _KNOWN_ELEMENTS else None


def _result(op: Op, name: str, inferred: TypeProto | None) -> PartialResult:
    """Return the inferred facts about an output."""
    if inferred is None:
        return UNKNOWN
    kind = inferred.WhichOneof("value")
    if kind is None:
        return UNKNOWN
    if kind != "tensor_type":
        raise op.error(UnsupportedDtype, f"output {quoted(name)} is not an array ({kind})")
    tensor = inferred.tensor_type
    dtype = dtype_of(tensor.elem_type, f"value {quoted(name)}") if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return None, dtype
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
    return dims, dtype
