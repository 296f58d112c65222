"""
An exported program from any source: the facts for an importer.

Files and live objects are both turned into this, and so there is one way from here to a graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from arenaplan.graph.origin import Origin

Size: TypeAlias = "int | str"
"""A number, or an expression of symbols as :class:`~arenaplan.formats.pt2.pt2_dims.Dims` reads."""


class Tensor(NamedTuple):
    """Known facts about a tensor."""

    sizes: tuple[Size, ...]
    dtype: str
    """One of our element types, or the source's name of an unknown one."""


class Argument(NamedTuple):
    """One argument of a call: tensors, or anything else."""

    name: str
    tensors: tuple[str | None, ...]
    """Names of tensors, ``None`` for one left out of a list."""
    value: Any
    """Value of an argument that is no tensor: numbers, booleans, strings, lists of these,
    ``None``."""


class Call(NamedTuple):
    """One node."""

    name: str
    target: str
    """Qualified name of the operator, ``torch.ops.aten.add.Tensor``."""
    arguments: tuple[Argument, ...]
    results: tuple[str, ...]
    """Names of the tensors that it makes."""
    graphs: tuple[Program, ...] = ()
    """Programs that it runs, such as the branches of ``cond``."""
    origin: Origin | None = None
    """Layer and line of source that it comes from."""
    is_random: bool = False
    """Whether it draws random numbers; of live programs only."""

    def reads(self) -> Iterator[str | None]:
        """Yield the tensors among the arguments."""
        for argument in self.arguments:
            yield from argument.tensors


class Port(NamedTuple):
    """A tensor that goes into a program or comes out of it."""

    kind: str
    """``user_input``, ``parameter``, ``buffer``, ``user_output``, ``buffer_mutation`` …"""
    tensor: str
    owner: str = ""
    """The buffer that it is, or becomes."""


class Program(NamedTuple):
    """A list of calls, with inputs and outputs."""

    tensors: Mapping[str, Tensor]
    calls: tuple[Call, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


class JointProgram(NamedTuple):
    """A program with forward and backward pass, and perhaps the update."""

    program: Program
    replaced: Mapping[str, str]
    """Donated inputs, and the tensors that replace them in their bytes."""
