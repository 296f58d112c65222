"""
Unrolls short loops in a jaxpr.

A loop is a single node, so the body's equations cannot run again or be placed separately. In an
unrolled loop, every equation in every round is a node. Arrays that one loop stacks and another loop
reads row by row, such as a backward pass's residuals, are never stacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arenaplan.formats.jaxpr.jaxpr_operators import CALLS
from arenaplan.formats.jaxpr.jaxpr_walk import called


def unrolled(jaxpr: Any, longest: int) -> Any:
    """
    Return a jaxpr whose ``scan`` loops with at most ``longest`` rounds are unrolled.

    Parameters
    ----------
    jaxpr : jax.extend.core.ClosedJaxpr
        The program. Calls are inlined.
    longest : int
        Most rounds in an unrolled loop.
    """
    import jax

    def run(*args: Any) -> list[Any]:
        results = _Rounds(longest).run(jaxpr, args)
        return [_whole(result) for result in results]

    made = jax.make_jaxpr(run)(*jaxpr.in_avals)
    return made.replace(jaxpr=made.jaxpr.replace(debug_info=jaxpr.jaxpr.debug_info))


class _Stack:
    """Rows made by a loop, one per round, in place of the stacked result."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows = rows
        self._whole: Any = None

    def whole(self) -> Any:
        """Return the array."""
        from jax import numpy as jnp

        if self._whole is None:
            self._whole = jnp.stack(self.rows)
        return self._whole


def _whole(value: Any) -> Any:
    """Return an array for a value."""
    return value.whole() if isinstance(value, _Stack) else value


def _row(value: Any, at: int) -> Any:
    """Return the row of a scanned operand for a round."""
    from jax import lax

    if isinstance(value, _Stack):
        return value.rows[at]
    return lax.index_in_dim(value, at, keepdims=False)


class _Rounds:
    """
    An interpreter to be traced.

    Parameters
    ----------
    longest : int
        Most rounds in an unrolled loop.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest

    def run(self, closed: Any, args: Sequence[Any]) -> list[Any]:
        """Return a closed jaxpr's results; some may be stacks."""
        jaxpr = getattr(closed, "jaxpr", closed)
        scope = dict(zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=True))
        scope.update(zip(jaxpr.invars, args, strict=True))

        def value(atom: Any) -> Any:
            return atom.val if hasattr(atom, "val") else scope[atom]

        for equation in jaxpr.eqns:
            results = self._results(equation, [value(atom) for atom in equation.invars])
            scope.update(zip(equation.outvars, results, strict=True))
        return [value(atom) for atom in jaxpr.outvars]

    def _results(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        """Return an equation's results."""
        primitive, params = equation.primitive, equation.params
        if primitive.name == "scan" and 0 < params["length"] <= self._longest:
            return self._loop(params, operands)
        inner = called(equation) if primitive.name in CALLS else None
        if inner is not None:
            return self.run(inner, operands)
        made = primitive.bind(*map(_whole, operands), **params)
        return list(made) if primitive.multiple_results else [made]

    def _loop(self, params: Any, operands: list[Any]) -> list[Any]:
        """Return a loop's results."""
        rounds, fixed, carried = params["length"], params["num_consts"], params["num_carry"]
        closed, carry = operands[:fixed], operands[fixed : fixed + carried]
        scanned = operands[fixed + carried :]
        rows: list[list[Any]] = []
        order = range(rounds)
        for at in reversed(order) if params["reverse"] else order:
            made = self.run(params["jaxpr"], [*closed, *carry, *(_row(x, at) for x in scanned)])
            carry = made[:carried]
            rows.append([_whole(row) for row in made[carried:]])
        if params["reverse"]:
            rows.reverse()
        return [*carry, *(_Stack(column) for column in zip(*rows, strict=True))]
