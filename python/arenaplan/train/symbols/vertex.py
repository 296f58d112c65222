"""Symbol vertices: variables, constants, operators with operands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.base.quoting import quoted
from arenaplan.formats.onnx.own_operators import OWN
from arenaplan.formats.onnx.symbol_schema import Schema
from arenaplan.train.symbols.relations import PartialShape

Kind: TypeAlias = Literal["input", "state", "constant"]


@dataclass(eq=False, slots=True)
class Vertex:
    """A variable, a constant, or an operator with operands."""

    name: str
    schema: Schema | None = None
    """The operator; ``None`` for variables and constants."""
    inputs: list[Entry | None] = field(default_factory=list)
    outputs: int = 1
    attributes: dict[str, Any] = field(default_factory=dict)
    """Operator attributes."""
    labels: dict[str, str] = field(default_factory=dict)
    """Texts for the user. Variables made by a call have the call's labels."""
    kind: Kind = "input"
    shape: PartialShape = None
    dtype: str | None = None
    data: np.ndarray | None = None
    """A constant's data, or a state's initial content."""
    version: int = 0
    """The number of nodes that write the variable."""

    @property
    def is_variable(self) -> bool:
        """Whether this is a variable."""
        return self.schema is None and self.kind != "constant"

    @property
    def writes(self) -> tuple[tuple[int, int], ...]:
        """Variables that the operator replaces: positions of operand and new content."""
        own = None if self.schema is None else OWN.get((self.schema.domain, self.schema.name))
        return () if own is None else own.writes

    @property
    def mutates(self) -> tuple[int, ...]:
        """Positions of operands that the operator writes."""
        return tuple(position for position, _ in self.writes)


class Entry(NamedTuple):
    """A vertex output."""

    vertex: Vertex
    output: int = 0
    """Position among the vertex's outputs."""
    version: int = 0
    """The number of writes to a variable before this use; a write has the number it makes."""


def entry_name(entry: Entry) -> str:
    """Return an output's name."""
    vertex = entry.vertex
    if vertex.schema is None:
        return vertex.name
    return f"{vertex.name}_output{entry.output if vertex.outputs > 1 else ''}"


def topological(heads: Iterable[Vertex]) -> list[Vertex]:
    """Return vertices after their operands: depth first, operands from first to last."""
    found: dict[Vertex, None] = {}
    for head in heads:
        stack: list[tuple[Vertex, Iterator[Entry | None]]] = []
        if head not in found:
            stack.append((head, iter(head.inputs)))
        while stack:
            vertex, operands = stack[-1]
            entry = next((e for e in operands if e is not None and e.vertex not in found), None)
            if entry is None:
                stack.pop()
                found[vertex] = None
            else:
                stack.append((entry.vertex, iter(entry.vertex.inputs)))
    return list(found)


def checked_names(vertices: Iterable[Vertex]) -> None:
    """Refuse vertices with equal names, which a graph could not tell apart."""
    seen: set[str] = set()
    for vertex in vertices:
        if vertex.name in seen and vertex.kind != "constant":
            raise fault("DuplicateName", f"two nodes or variables are called {quoted(vertex.name)}")
        seen.add(vertex.name)
