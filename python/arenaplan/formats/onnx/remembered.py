"""
Cached facts about nodes: networks repeat few operators on few shapes many times.

A node's result shapes, effects, cost and plain attribute values follow from the operator, the
attribute bytes, and each operand's shape and type, unless a rule read a constant's data. So these
facts are computed once for all nodes in all models.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from arenaplan.formats.onnx.node_facts import Facts

if TYPE_CHECKING:
    from onnx import AttributeProto

    from arenaplan.formats.onnx.op import OnnxOperand

_LONGEST: Final = 512
"""Attributes with more bytes are not cached: they hold data or a graph."""

_Key: TypeAlias = tuple[object, ...]


def facts_of(
    kind: str,
    domain: str,
    version: int,
    attributes: Sequence[AttributeProto],
    inputs: Sequence[OnnxOperand | None],
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
    """Forget all facts, because an operator's facts have changed."""
    _facts.cache_clear()
