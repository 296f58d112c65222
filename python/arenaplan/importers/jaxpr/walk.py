"""From a jaxpr to a graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, TypeAlias

from arenaplan.errors import (
    NestingTooDeep,
    UnboundDim,
    UnsupportedDtype,
    UnsupportedOp,
    UnsupportedSubgraph,
)
from arenaplan.graph import Graph
from arenaplan.importers.common import checked_bytes, quoted
from arenaplan.importers.jaxpr.operators import BODIES, CALLS, RANDOM, node_effects
from arenaplan.importers.named import Op
from arenaplan.importers.nested import declare_inner
from arenaplan.ops import BITS, Array, Shape
from arenaplan.origin import Origin

_DEEPEST: Final = 100
"""Most jaxprs inside each other."""

_Scope: TypeAlias = "dict[Any, int | None]"
"""Value by variable of one jaxpr; ``None`` for variables without bytes."""


class Walk:
    """
    One reading of a jaxpr.

    Parameters
    ----------
    core : module
        ``jax.extend.core``, given because it is imported late.
    name : str
        Name of the model.
    depth : int, default 0
        How many jaxprs this one is inside of.
    """

    def __init__(self, core: Any, name: str, depth: int = 0) -> None:
        self._core = core
        self._depth = depth
        self._graph = Graph(name)
        self._operands: dict[int, Array] = {}
        self._outside: set[int] = set()
        """Operands of the node that runs this jaxpr, if one does."""

    def run(self, jaxpr: Any, constants: Collection[int]) -> Graph:
        """Return the graph of a closed jaxpr, some of whose inputs never change."""
        variables = jaxpr.jaxpr.invars
        names = _input_names(jaxpr.jaxpr)
        scope = self._constants(jaxpr)
        for i, (variable, name) in enumerate(zip(variables, names, strict=True)):
            kind = "constant" if i in constants else "input"
            scope[variable] = self._declare(name, variable.aval, kind)
        return self._finish(jaxpr.jaxpr, scope)

    def run_body(self, jaxpr: Any) -> Graph:
        """Return the graph of a jaxpr whose inputs are somewhere else."""
        scope = self._constants(jaxpr)
        for position, variable in enumerate(_open(jaxpr).invars):
            value = self._declare(f"operand:{position}", variable.aval, "constant")
            scope[variable] = value
            if value is not None:
                self._outside.add(value)
        return self._finish(_open(jaxpr), scope)

    def _finish(self, jaxpr: Any, scope: _Scope) -> Graph:
        """Read the equations, and return the graph."""
        self._equations(jaxpr, scope)
        for position, atom in enumerate(jaxpr.outvars):
            if _is_literal(atom):
                value = self._declare(f"result:{position}", atom.aval, "constant")
            else:
                value = scope[atom]
            if value is not None and value not in self._graph.outputs:
                self._graph.output(value)
        return self._graph

    def _constants(self, jaxpr: Any) -> _Scope:
        """Declare the constants that a jaxpr closes over."""
        variables = _open(jaxpr).constvars
        count = len(self._graph.values)
        return {
            variable: self._declare(f"const:{count + i}", variable.aval, "constant")
            for i, variable in enumerate(variables)
        }

    def _equations(self, jaxpr: Any, scope: _Scope) -> None:
        """Append the nodes of a jaxpr."""
        for equation in jaxpr.eqns:
            name = equation.primitive.name
            if name in CALLS:
                self._call(equation, scope)
            else:
                self._append(equation, name, scope)

    def _call(self, equation: Any, scope: _Scope) -> None:
        """Inline the jaxpr that an equation calls."""
        name = equation.primitive.name
        params = equation.params
        inner = next((params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in params), None)
        if inner is None or len(_open(inner).invars) != len(equation.invars):
            raise UnsupportedSubgraph(f"primitive {quoted(name)} does not say what it calls")
        values = [self._atom(atom, scope) for atom in equation.invars]
        inside = self._constants(inner) | dict(zip(_open(inner).invars, values, strict=True))
        self._deeper(name)
        self._equations(_open(inner), inside)
        self._depth -= 1
        for variable, atom in zip(equation.outvars, _open(inner).outvars, strict=True):
            scope[variable] = self._atom(atom, inside)

    def _deeper(self, name: str) -> None:
        """Note that something inside is read."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NestingTooDeep(f"{quoted(name)} is inside more than {_DEEPEST} others")

    def _append(self, equation: Any, name: str, scope: _Scope) -> None:
        """Append a node, or the constants that it computes."""
        inputs = tuple(self._atom(atom, scope) for atom in equation.invars)
        node = f"{name}:{len(self._graph.values)}"
        bodies = list(self._bodies(equation, name))
        is_pure = not equation.effects and name not in RANDOM
        if is_pure and all(self._is_known(value) for value in inputs):
            kind = "constant"
        else:
            kind = "activation"
        outputs: list[int | None] = []
        for position, variable in enumerate(equation.outvars):
            value_name = f"{node}.{position}" if position else node
            outputs.append(self._declare(value_name, variable.aval, kind))
            scope[variable] = outputs[-1]
        if kind == "constant":
            return
        known = [None if value is None else self._operands[value] for value in inputs]
        made = [None if value is None else self._operands[value] for value in outputs]
        effects = node_effects(name, Op(known, made, equation.params))
        if bodies:
            outputs += declare_inner(self._graph, node, bodies)
        operands = (inputs, tuple(outputs))
        appended = self._graph.append(name, *operands, name=node, effects=effects, domain="jax")
        appended.origin = _origin(equation)

    def _bodies(self, equation: Any, name: str) -> Iterator[Graph]:
        """Yield the graphs that a node runs, except those that work on single elements."""
        is_control_flow = name in BODIES
        for jaxpr in self._jaxprs(equation.params.values()):
            inner = _open(jaxpr)
            if is_control_flow:
                self._deeper(name)
                yield Walk(self._core, name, self._depth).run_body(jaxpr)
                self._depth -= 1
            elif any(getattr(variable.aval, "shape", None) != () for variable in inner.invars):
                raise UnsupportedSubgraph(f"primitive {quoted(name)} runs a jaxpr in unknown ways")

    def _jaxprs(self, params: Iterable[Any]) -> Iterator[Any]:
        """Yield the jaxprs among parameters, and in tuples of them."""
        for param in params:
            if isinstance(param, (self._core.ClosedJaxpr, self._core.Jaxpr)):
                yield param
            elif isinstance(param, (list, tuple)):
                yield from self._jaxprs(param)

    def _is_known(self, value: int | None) -> bool:
        """Whether a value is the same in every run."""
        if value is None:
            return True
        return self._operands[value].is_fixed and value not in self._outside

    def _atom(self, atom: Any, scope: _Scope) -> int | None:
        """Return the value of a variable; numbers in the program have no bytes."""
        return None if _is_literal(atom) else scope[atom]

    def _declare(self, name: str, aval: Any, kind: str) -> int | None:
        """Declare a value; ``None`` for a token, which only orders effects."""
        if "Token" in type(aval).__name__:
            return None
        shape, dtype = _type_of(name, aval)
        checked_bytes(name, shape, dtype)
        if kind == "constant":
            value = self._graph.constant(name, shape, dtype)
        elif kind == "input":
            value = self._graph.input(name, shape, dtype)
        else:
            value = self._graph.value(name, shape, dtype)
        self._operands[value] = Array(shape, dtype, kind == "constant")
        return value


def _origin(equation: Any) -> Origin | None:
    """Return the scope of names and the line outside of JAX that an equation comes from."""
    info = getattr(equation, "source_info", None)
    frames = getattr(getattr(info, "traceback", None), "frames", ())
    inside = ("/site-packages/jax/", "/site-packages/jaxlib/")
    lines = (
        f"{frame.file_name}:{frame.line_num}"
        for frame in frames
        if not any(part in frame.file_name for part in inside)
    )
    layer, source = str(getattr(info, "name_stack", "")) or None, next(lines, None)
    return Origin(layer, source) if layer or source else None


def _open(jaxpr: Any) -> Any:
    """Return a jaxpr without the constants that it closes over."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def _is_literal(atom: Any) -> bool:
    """Whether an operand is a number in the program, and no variable."""
    return hasattr(atom, "val")


def _input_names(jaxpr: Any) -> list[str]:
    """Return the names of the arguments if they are known, and else numbers."""
    info = getattr(jaxpr, "debug_info", None)
    names = [str(name) for name in getattr(info, "arg_names", None) or ()]
    if len(names) == len(jaxpr.invars) == len(set(names)):
        return names
    return [f"in{position}" for position in range(len(jaxpr.invars))]


def _type_of(name: str, aval: Any) -> tuple[Shape, str]:
    """Return shape and element type of an array."""
    if "Ref" in type(aval).__name__:
        raise UnsupportedOp(f"{quoted(name)} is a reference that is written in place")
    sizes, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
    if sizes is None or dtype is None:
        raise UnsupportedDtype(f"{quoted(name)} is no array: {quoted(str(aval))}")
    shape = tuple(_dim(name, dim) for dim in sizes)
    kind = str(dtype)
    if kind in BITS:
        return shape, kind
    if kind.startswith("key<"):  # A key of random numbers is some bytes.
        return (*shape, int(dtype.itemsize)), "uint8"
    raise UnsupportedDtype(f"{quoted(name)} has the unknown type {quoted(kind)}")


def _dim(name: str, dim: Any) -> int:
    """Return a dimension."""
    try:
        return int(dim.__index__())
    except Exception as error:
        # Symbolic dimensions raise errors of their own.
        raise UnboundDim(
            f"a dimension of {quoted(name)} is {quoted(str(dim))}; trace with numbers"
        ) from error
