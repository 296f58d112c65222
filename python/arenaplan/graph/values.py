"""A graph's values and nodes."""

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
"""
An array, or a function that returns the array. Such a function may have a method ``quantized``
without arguments, which returns a :class:`Quantized` if the numbers represent integers.
"""
ValueSpec: TypeAlias = "tuple[str, Sequence[int], str | np.dtype[Any] | type]"

_TOO_LARGE = 1 << 64


class ValueId(int):
    """
    A value's index that knows the value's graph.

    Functions that take a number or a value tell them apart by this type, and a graph refuses ids
    from another graph. A graph's copy accepts the ids of all copied values.

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
        """Return the id for a position in :attr:`Graph.values`."""
        made = super().__new__(cls, index)
        made.owner = owner
        return made

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Copies in other processes are plain indices, because the graph is a copy, too."""
        return int, (int(self),)


@dataclass(frozen=True, slots=True)
class Quantized:
    """The 8-bit integers behind a constant's numbers, loaded on call."""

    integers: Callable[[], np.ndarray]
    """Returns the integers, in the constant's shape."""
    scale: Callable[[], np.ndarray]
    """Returns the factor for an integer, or a factor for each index along an axis."""
    zero: Callable[[], np.ndarray] | None
    """Returns the zero point, in the scale's shape."""
    axis: int

    def centered(self, axis: int) -> tuple[np.ndarray, np.ndarray]:
        """
        Return 16-bit integers minus the zero point, and the scales, one or one per index.

        Raises
        ------
        SizeError
            If the scales belong to another axis.
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
    A tensor that a node produces and other nodes read.

    Read-only: the planner works on a copy made by the graph.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    """NumPy's element type name, or one of ``bfloat16``, ``float8_*``, ``int4``…"""
    kind: ValueKind
    index: ValueId
    """Position in :attr:`Graph.values`."""
    alignment: int | None = None
    """Alignment in bytes, if stricter than the plan's."""
    space: str | None = None
    """Name of the memory space, if not the default."""


@dataclass(slots=True)
class Node:
    """
    An operator in the graph.

    Read-only: the planner works on a copy made by the graph.
    """

    name: str
    op: str
    inputs: tuple[int | None, ...]
    """Indices of values read; ``None`` for an omitted optional operand."""
    outputs: tuple[int | None, ...]
    """Indices of values written; ``None`` for an omitted optional result."""
    index: int
    """Position in :attr:`Graph.nodes`."""
    effects: Effects = NO_EFFECTS
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Operator attributes, for kernels; ``None`` for a value missing in a graph file."""
    domain: str = ""
    """Operator set of ``op``; empty for ONNX's default set."""
    version: int = 0
    """Operator set version."""
    after: tuple[int, ...] = ()
    """Indices of nodes that must run first although this node reads none of their values."""
    cost: int = 0
    """Cost per run, in a work unit common to all nodes; 0 if unknown."""
    origin: Origin | None = None
    """Layer and source line of the node, if the model has them."""


def checked_shape(shape: Sequence[int], name: str) -> tuple[int, ...]:
    """Return the dimensions for value ``name``; refuse impossible dimensions."""
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
    """Return ``dim`` as an int; refuse values that only look like an int."""
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
