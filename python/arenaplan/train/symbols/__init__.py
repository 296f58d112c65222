"""
Models written in Python: operators as functions, with inferred shapes, types and effects.

:func:`operators` gives the :class:`Operators` that append nodes to a graph with known shapes.
:class:`Symbol` is a model without shapes, which is composed first (``ap.train.op``,
``ap.train.variable``, ``ap.train.group``); its graph follows from the shapes that are known, of
inputs or of results.
"""

from arenaplan.formats.onnx.symbol_schema import Argument, Attribute, Schema
from arenaplan.train.symbols.composer import Operators, find_schema, operator_names, operators
from arenaplan.train.symbols.inference import Inferred
from arenaplan.train.symbols.symbol import Symbol, SymbolOperators, group, op, variable

__all__ = [
    "Argument",
    "Attribute",
    "Inferred",
    "Operators",
    "Schema",
    "Symbol",
    "SymbolOperators",
    "find_schema",
    "group",
    "op",
    "operator_names",
    "operators",
    "variable",
]
