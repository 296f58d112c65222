"""Facts about equal nodes: a record shared by the operators in all models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from arenaplan.graph.ops import Shape

if TYPE_CHECKING:
    from arenaplan.graph import Effects

Result: TypeAlias = tuple[Shape, str]
"""An output's shape and element type."""

_PLAIN: Final = (int, float, str, tuple)


class Facts:
    """Facts about equal nodes, filled by the walk over the first node."""

    __slots__ = ("attributes", "cost", "effects", "results")

    def __init__(self) -> None:
        self.attributes: Mapping[str, Any] | None = None
        """Attributes by name; ``None`` until a node is checked against the schema."""
        self.results: Sequence[Result] = ()
        """Result shapes and types, if given by a rule."""
        self.effects: Effects | None = None
        """The node's effects in the graph, for :attr:`results`."""
        self.cost = 0
        """The node's cost, once the effects are known."""

    def remember(self, attributes: Mapping[str, Any]) -> bool:
        """
        Keep attributes and return True, unless attributes are tensors, which belong to a model.
        """
        if not all(isinstance(value, _PLAIN) for value in attributes.values()):
            return False
        self.attributes = attributes
        return True
