"""
Operator signatures: argument names, attributes, defaults and documentation.

Standard signatures come from the package ``onnx``; :mod:`arenaplan.formats.onnx.own_operators` has
signatures in the same form.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from onnx import AttributeProto, defs, helper

from arenaplan.base.errors import InvalidAttribute, InvalidOperand, InvalidOption, UnsupportedOp
from arenaplan.base.quoting import listed, quoted
from arenaplan.graph.ops.own_ops import table_name

VERSION: Final = min(24, defs.onnx_opset_version())
"""Operator set for composed nodes: the newest set with kernels."""
TRAINING: Final = "ai.onnx.preview.training"

ArgumentKind: TypeAlias = Literal["required", "optional", "variadic"]
_KINDS: Final[Mapping[str, ArgumentKind]] = {
    "Single": "required",
    "Optional": "optional",
    "Variadic": "variadic",
}


@dataclass(frozen=True, slots=True)
class SchemaArgument:
    """An operator's input or output."""

    name: str
    type: str
    """
    Within an operator, arguments with equal types have the same element type; an element type such
    as ``int64`` means itself.
    """
    kind: ArgumentKind = "required"
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Attribute:
    """An operator attribute, which is not a value."""

    name: str
    default: Any = None
    """The default; ``None`` if there is none."""
    required: bool = False
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Schema:
    """An operator's signature."""

    name: str
    domain: str
    version: int
    inputs: tuple[SchemaArgument, ...]
    outputs: tuple[SchemaArgument, ...]
    attributes: Mapping[str, Attribute]
    doc: str = ""

    @property
    def label(self) -> str:
        """Domain and name."""
        return f"{self.domain or 'ai.onnx'}::{self.name}"

    @property
    def table_name(self) -> str:
        """The name in tables: see :func:`~arenaplan.graph.ops.own_ops.table_name`."""
        return table_name(self.name, self.domain)

    @property
    def least_outputs(self) -> int:
        """The number of required outputs."""
        return max(sum(each.kind == "required" for each in self.outputs), 1)

    @property
    def is_variadic(self) -> bool:
        """Whether the operator takes any number of inputs."""
        return bool(self.inputs) and self.inputs[-1].kind == "variadic"

    def input_names(self) -> str:
        """Return the input and attribute names for an error message."""
        inputs = ", ".join(each.name for each in self.inputs) or "none"
        return f"inputs are {inputs}; attributes are {', '.join(self.attributes) or 'none'}"

    def signature(self) -> str:
        """Return the signature as a line of Python."""
        parts = []
        for each in self.inputs:
            mark = {"required": "", "optional": "=None", "variadic": ""}[each.kind]
            parts.append(("*" if each.kind == "variadic" else "") + each.name + mark)
        if self.attributes and not self.is_variadic:
            parts.append("*")
        for attribute in self.attributes.values():
            text = "" if attribute.required else f"={attribute.default!r}"
            parts.append(attribute.name + text)
        return f"{self.name}({', '.join(parts)})"


def parsed(signature: str, domain: str, doc: str) -> Schema:
    """
    Parse a signature: the reverse of :meth:`Schema.signature`.

    Raises
    ------
    InvalidOption
        If the text is not a signature.

    Examples
    --------
    >>> schema = parsed("Scale(x, factor, bias=None, *, power=1.0) -> y", "acme", "")
    >>> [each.name for each in schema.inputs], schema.attributes["power"].default
    (['x', 'factor', 'bias'], 1.0)
    """
    call, _, results = signature.partition("->")
    try:
        given, made = _function(call), _function(f"_({results})")
        pairs = zip(given.args.kwonlyargs, given.args.kw_defaults, strict=True)
        attributes = {
            each.arg: Attribute(
                each.arg, None if default is None else ast.literal_eval(default), default is None
            )
            for each, default in pairs
        }
        inputs, outputs = _arguments(given.args), _arguments(made.args)
    except (SyntaxError, ValueError) as error:
        raise InvalidOption(
            f"{quoted(signature)} is not a signature like 'Scale(x, bias=None, *, power=1.0) -> y'"
        ) from error
    return Schema(given.name, domain, 1, inputs, outputs, attributes, doc)


def _function(call: str) -> ast.FunctionDef:
    """Return a call from a signature as the head of a function."""
    (function,) = ast.parse(f"def {call.strip()}: ...").body
    if not isinstance(function, ast.FunctionDef):
        raise ValueError(call)
    return function


def _arguments(given: ast.arguments) -> tuple[SchemaArgument, ...]:
    """
    Return inputs or outputs: trailing arguments may be optional, and the last may be variadic.
    """
    required = len(given.args) - len(given.defaults)
    if any(not isinstance(each, ast.Constant) or each.value is not None for each in given.defaults):
        raise ValueError("an input that may be left out has the default None")
    rows: list[tuple[ast.arg, ArgumentKind]] = [
        (each, "required" if at < required else "optional") for at, each in enumerate(given.args)
    ]
    if given.vararg is not None:
        rows.append((given.vararg, "variadic"))
    return tuple(
        SchemaArgument(
            each.arg, "T" if each.annotation is None else ast.unparse(each.annotation), kind
        )
        for each, kind in rows
    )


def sorted_out(
    schema: Schema, inputs: Sequence[Any], keywords: Mapping[str, Any], *, fills: bool = False
) -> tuple[list[Any], dict[str, Any]]:
    """
    Return operands by position, and attributes.

    With ``fills``, operands that are missing are ``None``.
    """
    given = list(inputs)
    if len(given) > len(schema.inputs) and not schema.is_variadic:
        raise InvalidOperand(
            f"{schema.name} has {len(schema.inputs)} inputs, not {len(given)}; "
            f"{schema.input_names()}"
        )
    attributes = {}
    positions = {each.name: at for at, each in enumerate(schema.inputs)}
    for key, item in keywords.items():
        if key in positions and not schema.is_variadic:
            at = positions[key]
            given.extend([None] * (at + 1 - len(given)))
            if given[at] is not None:
                raise InvalidOperand(f"{schema.name} is given input {quoted(key)} twice")
            given[at] = item
        elif key in schema.attributes:
            if item is not None:
                attributes[key] = item
        else:
            raise InvalidAttribute(
                f"{schema.name} has no input and no attribute {quoted(key)}; {schema.input_names()}"
            )
    for at, argument in enumerate(schema.inputs):
        if argument.kind == "required" and not fills and (at >= len(given) or given[at] is None):
            raise InvalidOperand(
                f"{schema.name} lacks its input {quoted(argument.name)}; {schema.input_names()}"
            )
    for attribute in schema.attributes.values():
        if attribute.required and attribute.name not in attributes:
            raise InvalidAttribute(f"{schema.name} lacks its attribute {quoted(attribute.name)}")
    while given and given[-1] is None:
        given.pop()
    return given, attributes


@cache
def standard(name: str, domain: str = "") -> Schema | None:
    """Return a standard operator's signature; ``None`` if unknown."""
    version = 1 if domain == TRAINING else VERSION
    try:
        # The package's type stubs lack most schema attributes.
        schema: Any = defs.get_schema(name, version, domain)
    except defs.SchemaError:
        return None
    if schema.deprecated:
        return None

    def argument(each: Any) -> SchemaArgument:
        return SchemaArgument(
            each.name, _type(each.type_str), _KINDS[each.option.name], each.description
        )

    attributes = {
        attribute.name: Attribute(
            attribute.name, _default(attribute), bool(attribute.required), attribute.description
        )
        for _, attribute in sorted(schema.attributes.items())
    }
    return Schema(
        name,
        domain,
        version,
        tuple(map(argument, schema.inputs)),
        tuple(map(argument, schema.outputs)),
        attributes,
        schema.doc,
    )


def _default(attribute: Any) -> Any:
    """Return a standard attribute's default as a plain value."""
    proto: AttributeProto = attribute.default_value
    if not proto.type:
        return None
    value = helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode()
    return tuple(value) if isinstance(value, list) else value


def _type(text: str) -> str:
    """Return a standard type: ``tensor(int64)`` is ``int64``, a type variable is its name."""
    if text.startswith("tensor("):
        name = text[len("tensor(") : -1]
        return {"float": "float32", "double": "float64"}.get(name, name)
    return text


@cache
def standard_names() -> tuple[str, ...]:
    """Return the names of all default-domain operators, in alphabetical order."""
    known: Any = defs
    names = {each.name for each in known.get_all_schemas() if not each.domain}
    return tuple(sorted(name for name in names if standard(name) is not None))


def unknown_operator(name: str, known: tuple[str, ...]) -> UnsupportedOp:
    """Return the error for an unknown operator, with similar names."""
    lowered = name.lower()
    alike = [each for each in known if each.lower() == lowered or lowered in each.lower()]
    hint = f"; there is {listed(alike[:5])}" if alike else ""
    return UnsupportedOp(f"there is no operator {quoted(name)}{hint}")
