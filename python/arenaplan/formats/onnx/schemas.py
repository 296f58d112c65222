"""What the schemas of the package ``onnx`` say of a node: its operands and types of attributes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from onnx import AttributeProto, NodeProto, defs

from arenaplan.base.errors import InvalidAttribute, InvalidOperand
from arenaplan.base.quoting import quoted
from arenaplan.formats.onnx.node_order import label


class _Schema(NamedTuple):
    """What a standard operator has."""

    inputs: int
    outputs: int
    attributes: Mapping[str, int]
    """Types by name."""


_UNKNOWN = _Schema(2**31, 2**31, {})


@lru_cache(maxsize=1 << 12)  # Names are those of files, of which there may be any number.
def _schema(operator: str, version: int) -> _Schema:
    """Return what an operator has; operators that there are not may have anything."""
    try:
        # The type stubs of the package lack most of what a schema has.
        found: Any = defs.get_schema(operator, version, "")
    except defs.SchemaError:
        return _UNKNOWN
    types = {name: int(attribute.type.value) for name, attribute in found.attributes.items()}
    return _Schema(found.max_input, found.max_output, types)


def check_node(node: NodeProto, version: int) -> None:
    """
    Refuse a node of the standard with more operands than its operator has, or other attributes.

    Rules and kernels read operands by position and attributes by name. What they do not know, they
    would leave out.

    Raises
    ------
    InvalidOperand
        If there are too many inputs or outputs.
    InvalidAttribute
        If an attribute has another type than the operator's attribute of that name.
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
