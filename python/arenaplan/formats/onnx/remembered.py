"""
Facts about nodes that are remembered: networks repeat few operators on few shapes many times.

The shapes of a node's results, its effects, its cost and the plain values of its attributes follow
from its operator, the bytes of its attributes, and shape and type of each operand, unless somebody
looked at the data of a constant. So they are worked out once, for all nodes of all models.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from arenaplan.formats.onnx.node_facts import Facts

if TYPE_CHECKING:
    from onnx import AttributeProto

    from arenaplan.formats.onnx.op import Operand

_LONGEST: Final = 512
"""Bytes of an attribute from which on it is not remembered: it holds data or a graph."""

_Key: TypeAlias = tuple[object, ...]


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


def forget() -> None:
    """Forget all facts, since an operator has other ones from now on."""
    _facts.cache_clear()
