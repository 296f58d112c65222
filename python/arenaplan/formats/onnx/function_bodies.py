"""Operators that are imported as their defining functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onnx import AttributeProto, FunctionProto, defs

from arenaplan.base.errors import UnsupportedOp
from arenaplan.formats.onnx.contrib_bodies import BODIES, contrib_body
from arenaplan.formats.onnx.op import Op
from arenaplan.formats.onnx.rules.schema_rules import node_of, type_of

INLINED: Final[Mapping[str, frozenset[str]]] = {
    **{domain: frozenset(names) for domain, names in BODIES.items()},
    "": frozenset(
        [
            "CausalConvWithState",
            "NegativeLogLikelihoodLoss",
            "SoftmaxCrossEntropyLoss",
            *BODIES[""],
        ]
    ),
    "ai.onnx.preview": frozenset(["FlexAttention"]),
}
"""
Operators that are replaced by functions, by domain.

Each operator is a short chain of other operators, whose values the planner places better than a
kernel could in scratch memory.
"""


def body_of(
    op: Op, attributes: Sequence[tuple[str, AttributeProto]], versions: Mapping[str, int]
) -> FunctionProto | None:
    """
    Return the function for an operator in :data:`INLINED`; ``None`` if not needed.

    Parameters
    ----------
    attributes : sequence
        The attributes by name, including a surrounding call's.
    versions : mapping
        Operator set versions.

    Raises
    ------
    UnsupportedOp
        If the operator has no function in this operator set version.
    """
    if op.type in BODIES.get(op.domain, ()):
        return contrib_body(op)
    try:
        # The package's type stubs lack most schema attributes.
        schema: Any = defs.get_schema(op.type, op.version, op.domain)
    except defs.SchemaError:
        raise _without(op) from None
    version = versions.get("", op.version)
    given = dict(attributes)
    function = FunctionProto()
    if schema.has_function:
        known = [each for each in schema.function_opset_versions if each <= version]
        # A function from an older operator set holds until a newer function replaces it.
        data = schema.get_function_with_opset_version(max(known, default=schema.since_version))
        if data is None:
            raise _without(op)
        function.ParseFromString(data)
    elif schema.has_context_dependent_function:
        known = [e for e in schema.context_dependent_function_opset_versions if e <= version]
        node = node_of(op, given.items())
        types = [
            b"" if each is None else type_of(each.dtype, each.shape).SerializeToString()
            for each in op.inputs
        ]
        data = schema.get_context_dependent_function_with_opset_version(
            max(known, default=schema.since_version), node.SerializeToString(), types
        )
        function.ParseFromString(data)
    else:
        raise _without(op)
    if not function.node:
        raise _without(op)
    imported = {each.domain for each in function.opset_import}
    for domain, number in versions.items():
        if domain not in imported:
            function.opset_import.add(domain=domain, version=number)
    stated = {default.name for default in function.attribute_proto}
    for name, attribute in schema.attributes.items():
        if name not in stated and attribute.default_value.type:
            function.attribute_proto.add().CopyFrom(attribute.default_value)
    return function


def _without(op: Op) -> UnsupportedOp:
    domain = op.domain or "ai.onnx"
    return UnsupportedOp(
        f"{op.label}: {domain}::{op.type} version {op.version} is not defined by a function "
        "that the installed package onnx knows"
    )
