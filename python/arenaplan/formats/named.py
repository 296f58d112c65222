"""Operators with named attributes, for ATen and JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from arenaplan.graph.ops import Operand


class NamedOp(NamedTuple):
    """A node for an importer's table."""

    inputs: Sequence[Operand | None]
    outputs: Sequence[Operand | None]
    arguments: Mapping[str, Any]
    """Arguments that are no arrays, by name."""

    def shape(self, position: int = 0) -> tuple[int, ...]:
        """Return an input's shape; a scalar's shape if left out."""
        operand = self.inputs[position] if position < len(self.inputs) else None
        return () if operand is None else operand.shape

    def integer(self, name: str, default: int) -> int | None:
        """Return a whole number from the arguments; ``None`` if not a whole number."""
        value = self.arguments.get(name, default)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def integers(self, name: str) -> list[int] | None:
        """Return a list of whole numbers from the arguments; ``None`` if not such a list."""
        value = self.arguments.get(name)
        if not isinstance(value, (list, tuple)):
            return None
        return list(value) if all(isinstance(number, int) for number in value) else None
