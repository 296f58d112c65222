"""
Models written in Python: operators as functions, with inferred shapes, types and effects.

:class:`Operators` (``graph.op``) appends nodes to a graph whose shapes are known.
"""

from arenaplan.symbols.composer import Operators, find_schema, operator_names
from arenaplan.symbols.schema import Argument, Attribute, Schema

__all__ = ["Argument", "Attribute", "Operators", "Schema", "find_schema", "operator_names"]
