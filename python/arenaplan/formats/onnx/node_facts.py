"""What is known of all nodes that are alike: one record, shared by the operators of all models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from arenaplan.graph.ops import Shape

if TYPE_CHECKING:
    from arenaplan.graph import Effects

Result: TypeAlias = tuple[Shape, str]
"""Shape and element type of an output."""

_PLAIN: Final = (int, float, str, tuple)


class Facts:
    """What is known of all nodes that are alike; filled by the walk over the first one."""

    __slots__ = ("attributes", "cost", "effects", "results")

    def __init__(self) -> None:
        self.attributes: Mapping[str, Any] | None = None
        """Attributes by name; ``None`` until a node was checked against its schema."""
        self.results: Sequence[Result] = ()
        """Shapes and types of the results, if a rule gives them."""
        self.effects: Effects | None = None
        """Effects of the node in the graph, whose results are :attr:`results`."""
        self.cost = 0
        """Cost of the node, once its effects are known."""

    def remember(self, attributes: Mapping[str, Any]) -> bool:
        """Keep attributes, and return True; unless they are tensors, which belong to a model."""
        if not all(isinstance(value, _PLAIN) for value in attributes.values()):
            return False
        self.attributes = attributes
        return True
