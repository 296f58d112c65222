"""Jaxprs made by hand, of the parts of JAX's classes that the importer reads: JAX is not needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class Aval:
    shape: tuple[int, ...]
    dtype: str = "float32"


@dataclass(eq=False)
class Var:
    aval: Aval


@dataclass(eq=False)
class Literal:
    val: float
    aval: Aval


@dataclass
class Primitive:
    name: str
    multiple_results: bool = False


@dataclass
class Equation:
    primitive: Primitive
    invars: list[Any]
    outvars: list[Var]
    params: dict[str, Any]
    effects: tuple[str, ...] = ()


@dataclass
class Jaxpr:
    invars: list[Var]
    outvars: list[Any] = field(default_factory=list)
    eqns: list[Equation] = field(default_factory=list)
    constvars: list[Var] = field(default_factory=list)


@dataclass
class ClosedJaxpr:
    jaxpr: Jaxpr
    consts: Sequence[Any] = ()


CORE = SimpleNamespace(Jaxpr=Jaxpr, ClosedJaxpr=ClosedJaxpr)
"""In place of ``jax.extend.core``."""


class Builder:
    """
    A jaxpr under construction.

    Parameters
    ----------
    *shapes : tuple of int
        Shapes of the inputs.
    """

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        self.inputs = [Var(Aval(shape)) for shape in shapes]
        self._jaxpr = Jaxpr(self.inputs)

    def __call__(
        self,
        name: str,
        *operands: Any,
        shape: tuple[int, ...] | None = None,
        dtype: str = "float32",
        effects: tuple[str, ...] = (),
        **params: Any,
    ) -> Var:
        """Append an equation, and return its result: by default of the first operand's shape."""
        atoms = [x if isinstance(x, Var) else Literal(x, Aval((), dtype)) for x in operands]
        if shape is None:
            shape = next(x.aval.shape for x in atoms if isinstance(x, Var))
        out = Var(Aval(shape, dtype))
        self._jaxpr.eqns.append(Equation(Primitive(name), atoms, [out], params, effects))
        return out

    def product(self, x: Var, y: Var, contract: tuple[int, int] = (1, 0)) -> Var:
        """Append a product of matrices."""
        rows, columns = x.aval.shape[1 - contract[0]], y.aval.shape[1 - contract[1]]
        numbers = (((contract[0],), (contract[1],)), ((), ()))
        return self("dot_general", x, y, shape=(rows, columns), dimension_numbers=numbers)

    def transposed(self, x: Var) -> Var:
        """Append a transpose of a matrix."""
        return self("transpose", x, shape=x.aval.shape[::-1], permutation=(1, 0))

    def repeated(self, x: Any, shape: tuple[int, ...], at: tuple[int, ...] = ()) -> Var:
        """Append a broadcast."""
        return self("broadcast_in_dim", x, shape=shape, broadcast_dimensions=at)

    def closed(self, *outputs: Any) -> ClosedJaxpr:
        """Return the jaxpr with these results."""
        self._jaxpr.outvars = [x if isinstance(x, Var) else Literal(x, Aval(())) for x in outputs]
        return ClosedJaxpr(self._jaxpr)
