"""
Models written in Python: operators as functions, with inferred shapes, types and effects.

:class:`Operators` (``graph.op``) appends nodes to a graph whose shapes are known.
:class:`Symbol` is a model without shapes, which is composed first (``ap.op``, ``ap.variable``,
``ap.group``); its graph follows from the shapes that are known, of inputs or of results.
"""

from arenaplan.train.symbols.composer import Operators, find_schema, operator_names
from arenaplan.train.symbols.inference import Inferred
from arenaplan.train.symbols.symbol import Symbol, SymbolOperators, group, op, variable
from arenaplan.train.symbols.symbol_schema import Argument, Attribute, Schema

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
    "variable",
]
