"""
A JAX program as a list of future nodes: calls are inlined, and equations may be joined.

The walk (:mod:`~arenaplan.formats.jaxpr.jaxpr_walk`) makes a :class:`Line` for each equation.
Passes (:mod:`~arenaplan.formats.jaxpr.fold`) join equations to lines, and the last step
(:mod:`~arenaplan.formats.jaxpr.emit`) turns each line into a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from arenaplan.formats.jaxpr.jaxpr_operators import is_elementwise
from arenaplan.graph.ops import Array, Shape

RANDOM: Final = frozenset(["rng_uniform"])
"""Primitives whose results differ from run to run, for any inputs."""


@dataclass(slots=True, eq=False)
class JaxprArray:
    """An array in the program; the same object wherever the program mentions the array."""

    shape: Shape
    dtype: str
    kind: Literal["input", "constant", "activation"] = "activation"
    name: str = ""
    """An input's name; other arrays are named by place in the graph."""
    label: str = ""
    """The first name given by ``checkpoint_name``."""
    is_outside: bool = False
    """Whether the array is an operand of the node that runs this program as its body."""
    data: Any = None
    """A constant's content, if stored in the program."""

    @property
    def operand(self) -> Array:
        """The array for the operator table."""
        return Array(self.shape, self.dtype, self.kind == "constant")


@dataclass(slots=True, eq=False)
class Number:
    """A number in the text of the program. It has no bytes: its readers contain it."""

    value: Any
    shape: Shape
    dtype: str


Atom: TypeAlias = "JaxprArray | Number | None"
"""An operand; ``None`` for a token, which only orders effects."""


@dataclass(slots=True, eq=False)
class Equation:
    """One application of a primitive."""

    primitive: str
    inputs: list[Atom]
    outputs: list[JaxprArray | None]
    params: Mapping[str, Any]
    source: Any
    """The equation of JAX; ``None`` for a copy that an importer added."""
    bodies: tuple[JaxprProgram, ...] = ()
    """Programs that it runs one at a time: loops and branches."""

    @property
    def is_pure(self) -> bool:
        """Whether equal operands give equal results, and nothing else happens."""
        if self.primitive in RANDOM or (self.source is not None and self.source.effects):
            return False
        lines = (line for body in self.bodies for line in body.lines)
        return all(equation.is_pure for line in lines for equation in line.equations)

    @property
    def is_elementwise(self) -> bool:
        """Whether each result element depends only on elements at the same place."""
        return is_elementwise(self.primitive)

    @property
    def result(self) -> JaxprArray | None:
        """The only result, if there is only one."""
        return self.outputs[0] if len(self.outputs) == 1 else None


def joined(first: Iterable[Equation], then: Iterable[Equation]) -> list[Equation]:
    """Return the equations in both lists, each once."""
    return list(dict.fromkeys([*first, *then]))


@dataclass(slots=True, eq=False)
class Line:
    """
    A future node: fused equations, one of which is the operator.

    Arrays between these equations have no bytes. A kernel reads operands through the equations
    before the operator, and writes results through the equations after the operator.
    """

    main: Equation
    before: list[Equation] = field(default_factory=list)
    behind: list[Equation] = field(default_factory=list)
    is_formula: bool = False
    """Whether equations before compute an operand from several arrays."""
    name: str = ""
    """The operator's name, if different from :attr:`main`'s."""

    @property
    def equations(self) -> list[Equation]:
        """All equations, in an executable order."""
        return [*self.before, self.main, *self.behind]

    @property
    def outputs(self) -> list[JaxprArray | None]:
        """Arrays that get bytes."""
        return (self.behind[-1] if self.behind else self.main).outputs

    @property
    def inputs(self) -> list[Atom]:
        """
        Operands with bytes, at the operator's positions unless the line is a formula.

        An operand read through equations is the first equation's operand. A number represents
        operands computed only from numbers.
        """
        if not self.before:
            return list(self.main.inputs)
        if self.is_formula:
            return list(self._leaves(self.main.inputs))
        return [self._leaf(atom) for atom in self.main.inputs]

    def through(self, position: int) -> bool:
        """Whether the operator reads an operand through equations before the operator."""
        return self._maker(self.main.inputs[position]) is not None

    def _maker(self, atom: Atom) -> Equation | None:
        """Return the equation before the operator that makes an operand."""
        return next((found for found in self.before if atom in found.outputs), None)

    def _leaf(self, atom: Atom) -> Atom:
        """Return the array with bytes shown by an operand, or the operand's number."""
        leaves = list(self._leaves([atom]))
        if leaves == [] and isinstance(atom, JaxprArray):
            return Number(None, atom.shape, atom.dtype)
        return leaves[0] if leaves else atom

    def _leaves(self, atoms: Iterable[Atom]) -> Iterator[JaxprArray]:
        """Yield each array with bytes that operands are computed from, once."""
        makers = {out: found for found in self.before for out in found.outputs if out is not None}
        todo, seen = list(atoms)[::-1], set[JaxprArray]()
        while todo:
            atom = todo.pop()
            if not isinstance(atom, JaxprArray) or atom in seen:
                continue
            seen.add(atom)
            if atom in makers:
                todo += makers[atom].inputs[::-1]
            else:
                yield atom


@dataclass(slots=True, eq=False)
class JaxprProgram:
    """A program whose calls are inlined."""

    constants: list[JaxprArray]
    inputs: list[JaxprArray | None]
    lines: list[Line]
    outputs: list[Atom]
    ahead: list[Line] = field(default_factory=list)
    """Lines that make constants, once for all runs."""

    def readers(self) -> dict[JaxprArray, list[Line]]:
        """Return the lines that read each array's bytes, each line once."""
        readers: dict[JaxprArray, list[Line]] = {}
        for line in self.lines:
            for atom in dict.fromkeys(line.inputs):
                if isinstance(atom, JaxprArray):
                    readers.setdefault(atom, []).append(line)
        return readers

    def makers(self) -> dict[JaxprArray, Line]:
        """Return the line that makes each array."""
        return {out: line for line in self.lines for out in line.outputs if out is not None}
