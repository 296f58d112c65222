"""
Models in Python: operators as functions, with inferred shapes, types and effects.

:func:`operators` returns the :class:`Operators` that append nodes to a graph with known shapes. A
:class:`Symbol` is a model composed without shapes (``ap.train.op``, ``ap.train.variable``,
``ap.train.group``); the graph follows from known input or result shapes.
"""

from arenaplan.formats.onnx.symbol_schema import Attribute, Schema, SchemaArgument
from arenaplan.train.symbols.composer import Operators, find_schema, operator_names, operators
from arenaplan.train.symbols.inference import Inferred
from arenaplan.train.symbols.symbol import Symbol, SymbolOperators, group, op, variable

__all__ = [
    "Attribute",
    "Inferred",
    "Operators",
    "Schema",
    "SchemaArgument",
    "Symbol",
    "SymbolOperators",
    "find_schema",
    "group",
    "op",
    "operator_names",
    "operators",
    "variable",
]
