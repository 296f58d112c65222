"""
Facts about nodes that are remembered: networks repeat few operators on few shapes many times.

The shapes of a node's results, its effects, its cost and the plain values of its attributes follow
from its operator, the bytes of its attributes, and shape and type of each operand, unless somebody
looked at the data of a constant. So they are worked out once, for all nodes of all models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from onnx import AttributeProto

    from arenaplan.formats.onnx.op import Operand, Result
    from arenaplan.graph import Effects

_LONGEST: Final = 512
"""Bytes of an attribute from which on it is not remembered: it holds data or a graph."""

_PLAIN: Final = (int, float, str, tuple)

_Key: TypeAlias = tuple[object, ...]


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


def facts_of(
    kind: str,
    domain: str,
    version: int,
    attributes: Sequence[AttributeProto],
    inputs: Sequence[Operand | None],
    outputs: Sequence[str],
) -> Facts | None:
    """Return the facts about a node, which may have none yet; ``None`` for an unusual node."""
    if len(inputs) > 1 and len({*inputs}) < len(inputs):
        return None  # An operand that is read twice is moved once.
    key: list[object] = [kind, domain, version, len(outputs)]
    if "" in outputs:
        key.append(tuple(map(bool, outputs)))
    for attribute in attributes:
        data = attribute.SerializeToString()
        if len(data) > _LONGEST:
            return None
        key.append(data)
    for known in inputs:
        if known is None:
            key.append(None)
        else:
            key += (known.shape, known.dtype, known.source is None, known.inline)
    return _facts(tuple(key))


@lru_cache(1 << 12)
def _facts(_key: _Key) -> Facts:
    return Facts()
