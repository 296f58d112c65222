"""From a jaxpr to a :class:`~arenaplan.formats.jaxpr.jaxpr_program.JaxprProgram`."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np

from arenaplan.base.errors import (
    UnboundDim,
    UnsupportedDtype,
    UnsupportedOp,
    UnsupportedSubgraph,
    fault,
)
from arenaplan.base.quoting import quoted
from arenaplan.formats.jaxpr.jaxpr_operators import BODIES, CALLS, REPEATED
from arenaplan.formats.jaxpr.jaxpr_program import (
    Atom,
    Equation,
    JaxprArray,
    JaxprProgram,
    Line,
    Number,
)
from arenaplan.graph.ops import BITS, Shape
from arenaplan.graph.sizes import checked_bytes

_DEEPEST: Final = 100
"""Most jaxprs inside each other."""

_Scope: TypeAlias = "dict[Any, Atom]"
"""Operand by variable of a jaxpr."""


class JaxprWalk:
    """
    Reads a jaxpr, and merges equal equations, as XLA does.

    Equations in the body of ``jax.checkpoint`` are the user's repetitions: each body is read by
    itself.

    Parameters
    ----------
    core : module
        ``jax.extend.core``, a parameter because of its late import.
    depth : int, default 0
        The number of enclosing jaxprs.
    """

    def __init__(self, core: Any, depth: int = 0) -> None:
        self._core = core
        self._depth = depth
        self._lines: list[Line] = []
        self._made: dict[Hashable, list[JaxprArray | None]] = {}
        """The results of equations that equal equations have, too."""

    def run(self, jaxpr: Any, constants: Collection[int] = ()) -> JaxprProgram:
        """Return a closed jaxpr's program; some inputs never change."""
        inputs = [
            _tensor(name, variable.aval, "constant" if i in constants else "input")
            for i, (variable, name) in enumerate(
                zip(jaxpr.jaxpr.invars, _input_names(jaxpr.jaxpr), strict=True)
            )
        ]
        return self._program(jaxpr, inputs)

    def run_body(self, jaxpr: Any) -> JaxprProgram:
        """Return the program of a jaxpr whose inputs are elsewhere."""
        inputs = [
            _tensor(f"operand:{position}", variable.aval, "constant")
            for position, variable in enumerate(_open(jaxpr).invars)
        ]
        for tensor in inputs:
            if tensor is not None:
                tensor.is_outside = True
        return self._program(jaxpr, inputs)

    def _program(self, jaxpr: Any, inputs: list[JaxprArray | None]) -> JaxprProgram:
        """Read the equations."""
        scope = self._constants(jaxpr)
        constants = [atom for atom in scope.values() if isinstance(atom, JaxprArray)]
        scope.update(zip(_open(jaxpr).invars, inputs, strict=True))
        self._equations(_open(jaxpr), scope)
        outputs = [_atom(atom, scope) for atom in _open(jaxpr).outvars]
        return JaxprProgram(constants, inputs, self._lines, outputs)

    def _constants(self, jaxpr: Any) -> _Scope:
        """Declare the constants that a jaxpr closes over."""
        variables = _open(jaxpr).constvars
        data = getattr(jaxpr, "consts", None) or [None] * len(variables)
        scope: _Scope = {}
        for variable, content in zip(variables, data, strict=True):
            scope[variable] = tensor = _tensor("a constant", variable.aval, "constant")
            if tensor is not None:
                tensor.name, tensor.data = "", content
        return scope

    def _equations(self, jaxpr: Any, scope: _Scope) -> None:
        """Append a jaxpr's lines."""
        for equation in jaxpr.eqns:
            name = equation.primitive.name
            if name in CALLS:
                self._call(equation, scope)
            elif name == "name":
                self._label(equation, scope)
            else:
                self._append(equation, name, scope)

    def _call(self, equation: Any, scope: _Scope) -> None:
        """Inline the jaxpr that an equation calls."""
        name = equation.primitive.name
        inner = called(equation)
        if inner is None or len(_open(inner).invars) != len(equation.invars):
            raise UnsupportedSubgraph(f"primitive {quoted(name)} does not say what it calls")
        values = [_atom(atom, scope) for atom in equation.invars]
        inside = self._constants(inner) | dict(zip(_open(inner).invars, values, strict=True))
        self._deeper(name)
        around = self._made
        self._made = {} if name in REPEATED else around
        self._equations(_open(inner), inside)
        self._made = around
        self._depth -= 1
        for variable, atom in zip(equation.outvars, _open(inner).outvars, strict=True):
            scope[variable] = _atom(atom, inside)

    def _label(self, equation: Any, scope: _Scope) -> None:
        """Read ``checkpoint_name``: the result is the operand, which gets a label."""
        atom = _atom(equation.invars[0], scope)
        scope[equation.outvars[0]] = atom
        if isinstance(atom, JaxprArray) and not atom.label:
            atom.label = str(equation.params["name"])

    def _deeper(self, name: str) -> None:
        """Note that something inside is read."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise fault("NestingTooDeep", f"{quoted(name)} is inside more than {_DEEPEST} others")

    def _append(self, equation: Any, name: str, scope: _Scope) -> None:
        """Append an equation's line, unless an equal equation has one."""
        inputs = [_atom(atom, scope) for atom in equation.invars]
        bodies = tuple(self._bodies(equation, name))
        found = Equation(name, inputs, [], equation.params, equation, bodies)
        meaning = _meaning(found)
        outputs = self._made.get(meaning)
        if outputs is None:
            outputs = [
                _tensor(f"a result of {name}", variable.aval, "activation")
                for variable in equation.outvars
            ]
            found.outputs = outputs
            self._lines.append(Line(found))
            if meaning is not None:
                self._made[meaning] = outputs
        scope.update(zip(equation.outvars, outputs, strict=True))

    def _bodies(self, equation: Any, name: str) -> Iterator[JaxprProgram]:
        """Yield the programs that a node runs, except programs for single elements."""
        is_control_flow = name in BODIES
        for jaxpr in self._jaxprs(equation.params.values()):
            inner = _open(jaxpr)
            if is_control_flow:
                self._deeper(name)
                yield JaxprWalk(self._core, self._depth).run_body(jaxpr)
                self._depth -= 1
            elif any(getattr(variable.aval, "shape", None) != () for variable in inner.invars):
                raise UnsupportedSubgraph(f"primitive {quoted(name)} runs a jaxpr in unknown ways")

    def _jaxprs(self, params: Iterable[Any]) -> Iterator[Any]:
        """Yield the jaxprs among parameters, including in tuples."""
        for param in params:
            if isinstance(param, (self._core.ClosedJaxpr, self._core.Jaxpr)):
                yield param
            elif isinstance(param, (list, tuple)):
                yield from self._jaxprs(param)


def _meaning(equation: Equation) -> Hashable:
    """Return what equal equations have in common; ``None`` if each has to run."""
    if not equation.is_pure or equation.primitive == "optimization_barrier":
        return None
    operands: list[Hashable] = []
    for atom in equation.inputs:
        if isinstance(atom, Number):
            # Bytes tell 0.0 from -0.0, which are equal numbers.
            operands.append((atom.dtype, atom.shape, np.asarray(atom.value).tobytes()))
        else:
            operands.append(atom)
    try:
        return equation.primitive, tuple(operands), frozenset(equation.params.items())
    except TypeError:  # A parameter that only the primitive can compare.
        return None


def called(equation: Any) -> Any:
    """Return the jaxpr that an equation calls; ``None`` if not stated."""
    params = equation.params
    return next((params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in params), None)


def _open(jaxpr: Any) -> Any:
    """Return a jaxpr without captured constants."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def _atom(atom: Any, scope: _Scope) -> Atom:
    """Return the operand that a variable or a literal is."""
    if not hasattr(atom, "val"):
        return scope[atom]
    shape, dtype = _type_of("a number", atom.aval)
    return Number(atom.val, shape, dtype)


def _input_names(jaxpr: Any) -> list[str]:
    """Return the argument names if known, else numbers."""
    info = getattr(jaxpr, "debug_info", None)
    names = [str(name) for name in getattr(info, "arg_names", None) or ()]
    if len(names) == len(jaxpr.invars) == len(set(names)):
        return names
    return [f"in{position}" for position in range(len(jaxpr.invars))]


def _tensor(name: str, aval: Any, kind: Any) -> JaxprArray | None:
    """Return a new array; ``None`` for a token."""
    if "Token" in type(aval).__name__:
        return None
    shape, dtype = _type_of(name, aval)
    checked_bytes(name, shape, dtype)
    return JaxprArray(shape, dtype, kind, "" if kind == "activation" else name)


def _type_of(name: str, aval: Any) -> tuple[Shape, str]:
    """Return an array's shape and element type."""
    if "Ref" in type(aval).__name__:
        raise UnsupportedOp(f"{quoted(name)} is a reference that is written in place")
    sizes, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
    if sizes is None or dtype is None:
        raise UnsupportedDtype(f"{quoted(name)} is not an array: {quoted(str(aval))}")
    shape = tuple(_dim(name, dim) for dim in sizes)
    kind = str(dtype)
    if kind in BITS:
        return shape, kind
    if kind.startswith("key<"):  # A random number key is a few bytes.
        return (*shape, int(dtype.itemsize)), "uint8"
    raise UnsupportedDtype(f"{quoted(name)} has the unknown type {quoted(kind)}")


def _dim(name: str, dim: Any) -> int:
    """Return a dimension."""
    try:
        return int(dim.__index__())
    except Exception as error:
        # Symbolic dimensions raise a separate error.
        raise UnboundDim(
            f"a dimension of {quoted(name)} is {quoted(str(dim))}; trace with numbers"
        ) from error
