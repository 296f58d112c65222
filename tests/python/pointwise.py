"""
Operators of one operand that work element by element, from the tables of the package.

An operator that is added there is tested by all tests of such operators.
"""

from __future__ import annotations

from onnx import defs

from arenaplan.formats.onnx.rules.elementwise_rules import SAME

_NEWEST = 24
_NOT_POINTWISE = {"CumProd", "CumSum", "Trilu"}

_BELOW_ONE = {"Acos", "Asin", "Atanh", "Tan"}
ABOVE_ONE = {"Acosh"}
_POSITIVE = {"Log", "Reciprocal", "Sqrt"}


def _takes_floats(op: str) -> bool:
    schema = defs.get_schema(op, _NEWEST)
    return schema.min_input == 1 and "tensor(float)" in schema.inputs[0].types


UNARY = tuple(op for op in SAME if op not in _NOT_POINTWISE and _takes_floats(op))
"""Operators whose result has the type of their operand, which may be a float."""


def opset(op: str) -> int:
    """Return a version of the standard that has an operator."""
    return max(21, int(defs.get_schema(op, _NEWEST).since_version))


def domain(op: str) -> tuple[float, float]:
    """Return two numbers between which a function is defined and smooth enough."""
    if op in _BELOW_ONE:
        return (-0.9, 0.9)
    if op in ABOVE_ONE:
        return (1.2, 3.0)
    return (0.3, 3.0) if op in _POSITIVE else (-3.0, 3.0)
