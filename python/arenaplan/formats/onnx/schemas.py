"""Node facts from the package ``onnx``'s schemas: operands and attribute types."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from onnx import AttributeProto, NodeProto, defs

from arenaplan.base.errors import InvalidAttribute, InvalidOperand
from arenaplan.base.quoting import quoted
from arenaplan.formats.onnx.node_order import label


class _Schema(NamedTuple):
    """Facts about a standard operator."""

    inputs: int
    outputs: int
    attributes: Mapping[str, int]
    """Types by name."""


_UNKNOWN = _Schema(2**31, 2**31, {})


@lru_cache(maxsize=1 << 12)  # Names come from files and are unlimited in number.
def _schema(operator: str, version: int) -> _Schema:
    """Return an operator's facts; unknown operators may have anything."""
    try:
        # The package's type stubs lack most schema attributes.
        found: Any = defs.get_schema(operator, version, "")
    except defs.SchemaError:
        return _UNKNOWN
    types = {name: int(attribute.type.value) for name, attribute in found.attributes.items()}
    return _Schema(found.max_input, found.max_output, types)


def check_node(node: NodeProto, version: int) -> None:
    """
    Refuse a standard node with too many operands, or with wrong attributes.

    Rules and kernels read operands by position and attributes by name, and would ignore unknown
    operands and attributes.

    Raises
    ------
    InvalidOperand
        If there are too many inputs or outputs.
    InvalidAttribute
        If an attribute's type differs from the schema's.
    """
    schema = _schema(node.op_type, version)
    for what, found, most in (
        ("inputs", len(node.input), schema.inputs),
        ("outputs", len(node.output), schema.outputs),
    ):
        if found > most:
            raise InvalidOperand(
                f"node {label(node)} ({node.op_type}) has {found} {what}; the operator has at "
                f"most {most}"
            )
    for attribute in node.attribute:
        kind = schema.attributes.get(attribute.name, attribute.type)
        if kind != attribute.type != AttributeProto.UNDEFINED:
            names = AttributeProto.AttributeType
            raise InvalidAttribute(
                f"node {label(node)} ({node.op_type}): attribute {quoted(attribute.name)} is of "
                f"type {names.Name(attribute.type)}, and the operator's is of type "
                f"{names.Name(kind)}"
            )
