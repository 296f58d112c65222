"""
An exported program from any source: the facts for the importer.

Files and live objects both become such a program, so there is a single path to a graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from arenaplan.graph.origin import Origin

Size: TypeAlias = "int | str"
"""A number, or a symbolic expression for :class:`~arenaplan.formats.pt2.pt2_dims.SymbolDims`."""


class Pt2Tensor(NamedTuple):
    """Known facts about a tensor."""

    sizes: tuple[Size, ...]
    dtype: str
    """A supported element type, or the source's name for an unknown type."""


class Argument(NamedTuple):
    """A call's argument: tensors, or anything else."""

    name: str
    tensors: tuple[str | None, ...]
    """Tensor names; ``None`` for a tensor left out of a list."""
    value: Any
    """A non-tensor argument's value: numbers, booleans, strings, lists of these, ``None``."""


class Call(NamedTuple):
    """A node."""

    name: str
    target: str
    """The operator's qualified name, ``torch.ops.aten.add.Tensor``."""
    arguments: tuple[Argument, ...]
    results: tuple[str, ...]
    """Names of the call's result tensors."""
    graphs: tuple[Pt2Program, ...] = ()
    """Programs that the call runs, such as the branches of ``cond``."""
    origin: Origin | None = None
    """The call's layer and source line."""
    is_random: bool = False
    """Whether the call draws random numbers; only in live programs."""

    def reads(self) -> Iterator[str | None]:
        """Yield the tensors among the arguments."""
        for argument in self.arguments:
            yield from argument.tensors

    def reading(self, names: Mapping[str, str]) -> Call:
        """Return a call that reads renamed tensors."""
        arguments = (
            each._replace(tensors=tuple(name and names.get(name, name) for name in each.tensors))
            for each in self.arguments
        )
        return self._replace(arguments=tuple(arguments))


class Port(NamedTuple):
    """A tensor that enters or leaves a program."""

    kind: str
    """``user_input``, ``parameter``, ``buffer``, ``user_output``, ``buffer_mutation`` …"""
    tensor: str
    owner: str = ""
    """The buffer that the tensor is, or becomes."""


class Pt2Program(NamedTuple):
    """A list of calls, with inputs and outputs."""

    tensors: Mapping[str, Pt2Tensor]
    calls: tuple[Call, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


class JointProgram(NamedTuple):
    """A program with forward and backward pass, and perhaps the update."""

    program: Pt2Program
    replaced: Mapping[str, str]
    """Donated inputs, with the tensors that replace their bytes."""
