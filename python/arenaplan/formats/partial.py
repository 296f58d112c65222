"""Model graphs as far as sizes are known, and what must become known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from arenaplan.base.quoting import listed, quoted
from arenaplan.graph import Graph, Node
from arenaplan.graph.ops import Shape

DECIDING: Final = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""Operators whose result sizes depend on input contents."""


def decides(node: Node) -> bool:
    """Return whether the content of the node's operands decides the size of a result."""
    return node.op in DECIDING and not node.domain


class Known(NamedTuple):
    """Facts that a run has found out."""

    data: Mapping[str, np.ndarray]
    """Values that decide sizes."""
    shapes: Mapping[str, Shape]
    """Result shapes of deciding operators."""


NOTHING_KNOWN: Final = Known({}, {})


class Wanted(NamedTuple):
    """A value whose data has to be known before a node's sizes are."""

    value: str
    node: str
    """The waiting node, for messages."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A node that has to run before its result sizes are known."""

    node: str
    """For messages."""
    op: str
    version: int
    attributes: Mapping[str, Any]
    inputs: tuple[str | None, ...]
    """Names of values in the graph; ``constants`` has the constants."""
    constants: Mapping[int, Callable[[], np.ndarray]]
    """Data for constant inputs, by position."""
    results: tuple[str, ...]
    """Result names; empty for omitted results."""


@dataclass(slots=True)
class Partial:
    """A graph as far as sizes are known."""

    graph: Graph
    told: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Data for values found by a run."""
    wanted: list[Wanted] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    awaited: set[str] = field(default_factory=set)
    """Values in the graph that later nodes read."""
    waiting: list[str] = field(default_factory=list)
    """Nodes that are not in the graph yet, for messages."""

    @property
    def is_complete(self) -> bool:
        """Whether the graph has all nodes."""
        return not self.waiting

    @property
    def deciders(self) -> tuple[str, ...]:
        """The values that decide the next sizes, a sentence each."""
        made = [
            f"{each.node} decides the size of {listed(filter(None, each.results))}"
            for each in self.decisions
        ]
        made += [
            f"{each.node} waits for the content of {quoted(each.value)}" for each in self.wanted
        ]
        return tuple(dict.fromkeys(made))


PartialWith: TypeAlias = "Callable[[Known], Partial]"
"""Returns a model's graph as far as it follows from some facts."""
