"""Values and nodes of a graph: the records that a graph is made of."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from arenaplan.base.errors import InvalidOption, fault
from arenaplan.graph.effects import NO_EFFECTS, Effects
from arenaplan.graph.origin import Origin

ValueKind: TypeAlias = Literal["input", "constant", "activation", "state"]
ConstantData: TypeAlias = np.ndarray | Callable[[], np.ndarray]
"""An array, or a function that returns it. Such a function may have a method ``quantized`` without
arguments, which returns a :class:`Quantized` if the numbers stand for integers."""
ValueSpec: TypeAlias = "tuple[str, Sequence[int], str | np.dtype[Any] | type]"

_TOO_LARGE = 1 << 64


class ValueId(int):
    """
    A value of one graph: its index, which knows the graph that it belongs to.

    Functions that take a number or a value tell the two apart by this type, and a graph refuses
    ids of another graph. A copy of a graph takes the ids of all values that it was copied with.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph, other = ap.Graph("here"), ap.Graph("there")
    >>> x, y = graph.input("x", (4,)), other.input("y", (4,))
    >>> graph.values[x].name
    'x'
    >>> graph.output(y)
    Traceback (most recent call last):
    arenaplan.base.errors.UndefinedValue: value 0 belongs to another graph than 'here': pass what \
the methods of this graph returned, or Graph.find("NAME").index
    """

    owner: object
    """An object that stands for the graph, and for no other graph."""

    def __new__(cls, index: int, owner: object) -> ValueId:
        """Return the id of the value at a position of :attr:`Graph.values`."""
        made = super().__new__(cls, index)
        made.owner = owner
        return made

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Copies in other processes are plain indices: their graph is a copy, too."""
        return int, (int(self),)


@dataclass(frozen=True, slots=True)
class Quantized:
    """Integers of 8 bits that the numbers of a constant stand for, to be loaded by a call."""

    integers: Callable[[], np.ndarray]
    """Returns them, in the shape of the constant."""
    scale: Callable[[], np.ndarray]
    """Returns the number that an integer is multiplied by, or one for each index of an axis."""
    zero: Callable[[], np.ndarray] | None
    """Returns the integer that stands for zero, in the shape of the scale."""
    axis: int

    def centered(self, axis: int) -> tuple[np.ndarray, np.ndarray]:
        """
        Return the integers less their zero point, of 16 bits, and the scales, one or one per index.

        Raises
        ------
        SizeError
            If there is a scale for each index of another axis.
        """
        integers, scale = self.integers().astype(np.int16), self.scale().reshape(-1)
        if scale.size > 1 and self.axis % integers.ndim != axis:
            raise fault("InvalidDim", f"scales belong to axis {self.axis}, not to axis {axis}")
        if self.zero is not None:
            zero = self.zero().astype(np.int16).reshape(-1)
            shape = [-1 if at == axis else 1 for at in range(integers.ndim)]
            integers -= zero.reshape(shape) if zero.size > 1 else zero
        return integers, scale


@dataclass(slots=True)
class Value:
    """
    A tensor that one node produces and other nodes read.

    To be read only: the planner works on a copy that the graph has made.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    """NumPy's name of the element type, or one of ``bfloat16``, ``float8_*``, ``int4``…"""
    kind: ValueKind
    index: ValueId
    """Position in :attr:`Graph.values`."""
    alignment: int | None = None
    """Alignment in bytes, where it must be stricter than the plan's."""
    space: str | None = None
    """Name of the memory space, where it is not the default one."""


@dataclass(slots=True)
class Node:
    """
    One operator of the graph.

    To be read only: the planner works on a copy that the graph has made.
    """

    name: str
    op: str
    inputs: tuple[int | None, ...]
    """Indices of the values read; ``None`` for an optional operand left out."""
    outputs: tuple[int | None, ...]
    """Indices of the values written; ``None`` for an optional result left out."""
    index: int
    """Position in :attr:`Graph.nodes`."""
    effects: Effects = NO_EFFECTS
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Properties of the operator, for kernels; ``None`` for a value that a graph file lacks."""
    domain: str = ""
    """Operator set of ``op``; empty for ONNX's default one."""
    version: int = 0
    """Version of the operator set."""
    after: tuple[int, ...] = ()
    """Indices of nodes that must run before this one although it reads nothing of theirs."""
    cost: int = 0
    """Cost of one run, in units of work that all nodes have in common; 0 if it is unknown."""
    origin: Origin | None = None
    """Layer and line of source code that the node comes from, where the model carries them."""


def checked_shape(shape: Sequence[int], name: str) -> tuple[int, ...]:
    """Return the dimensions of the value ``name``; refuse those that no array has."""
    try:
        dims = tuple(shape)
    except TypeError:
        raise fault(
            "InvalidDim", f"the shape of {name!r} is {shape!r}, not a sequence of numbers"
        ) from None
    # Nearly every dimension is a plain int; importers declare values by the thousand.
    for dim in dims:
        if type(dim) is not int or not 0 <= dim < _TOO_LARGE:
            return tuple(_checked_dim(dim, name) for dim in dims)
    return dims


def _checked_dim(dim: object, name: str) -> int:
    """Return ``dim`` as an int; refuse values that only look like one."""
    if isinstance(dim, (bool, np.bool_)):
        raise InvalidOption(f"a dimension of {name!r} is {dim!r}, not a whole number")
    try:
        number = operator.index(dim)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidOption(f"a dimension of {name!r} is {dim!r}, not a whole number") from None
    if number < 0:
        raise fault("InvalidDim", f"value {name!r} has the negative dimension {number}")
    if number >= _TOO_LARGE:
        raise fault("InvalidSize", f"value {name!r} has dimension {number}, more than 64 bits hold")
    return number
