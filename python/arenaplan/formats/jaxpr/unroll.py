"""
Unrolls short loops in a jaxpr, and cuts long loops into several loops.

A loop is a single node, so the body's equations cannot run again or be placed separately. In an
unrolled loop, every equation in every round is a node. A long loop becomes a few loops, one after
another: nodes that may run again one by one. Arrays that one loop stacks and another loop reads,
such as a backward pass's residuals, are never joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from arenaplan.formats.jaxpr.jaxpr_operators import CALLS
from arenaplan.formats.jaxpr.jaxpr_walk import called

_Bounds: TypeAlias = "tuple[range, ...]"
"""The rounds of each part of a loop."""


def unrolled(jaxpr: Any, longest: int, segments: int = 0) -> Any:
    """
    Return a jaxpr whose short ``scan`` loops are unrolled, and whose other loops are cut.

    Parameters
    ----------
    jaxpr : jax.extend.core.ClosedJaxpr
        The program. Calls are inlined.
    longest : int
        Most rounds in an unrolled loop.
    segments : int, default 0
        Number of loops that a longer loop becomes; a loop with fewer rounds is unrolled.
    """

    def run(args: Sequence[Any]) -> list[Any]:
        return [_whole(result) for result in _Rounds(longest, segments).run(jaxpr, args)]

    return retraced(jaxpr, run)


def inlined(jaxpr: Any) -> Any:
    """Return a closed jaxpr whose calls are inlined."""
    return unrolled(jaxpr, 0)


def retraced(jaxpr: Any, run: Callable[[Sequence[Any]], list[Any]]) -> Any:
    """Return the jaxpr of a function with another jaxpr's arguments, under the same names."""
    import jax

    made = jax.make_jaxpr(lambda *args: run(args))(*jaxpr.in_avals)
    return made.replace(jaxpr=made.jaxpr.replace(debug_info=jaxpr.jaxpr.debug_info))


def applied(equation: Any, operands: Sequence[Any]) -> Sequence[Any]:
    """Return the results of a JAX equation."""
    params, functions = equation.primitive.get_bind_params(equation.params), ()
    if isinstance(params, tuple):  # Older JAX versions take called functions apart.
        functions, params = params
    with equation.ctx.manager:
        made = equation.primitive.bind(*functions, *operands, **params)
    return made if equation.primitive.multiple_results else [made]


def value_of(atom: Any, scope: dict[Any, Any]) -> Any:
    """Return the array that a variable or a literal stands for."""
    return atom.val if hasattr(atom, "val") else scope[atom]


class _Stack:
    """
    Parts made by loops, in place of the stacked result.

    Parameters
    ----------
    parts : sequence
        Rows of an unrolled loop, or an array for each loop that a loop was cut into.
    bounds : sequence of range, optional
        The rounds that make each part; empty for rows.
    """

    def __init__(self, parts: Sequence[Any], bounds: _Bounds = ()) -> None:
        self.parts, self.bounds = parts, bounds
        self._whole: Any = None

    def whole(self) -> Any:
        """Return the array."""
        from jax import lax
        from jax import numpy as jnp

        if self._whole is None:
            join = (lambda parts: lax.concatenate(parts, 0)) if self.bounds else jnp.stack
            self._whole = join(list(self.parts))
        return self._whole


def _whole(value: Any) -> Any:
    """Return an array for a value."""
    return value.whole() if isinstance(value, _Stack) else value


def _row(value: Any, at: int) -> Any:
    """Return the row of a scanned operand for a round."""
    from jax import lax

    if isinstance(value, _Stack) and not value.bounds:
        return value.parts[at]
    return lax.index_in_dim(_whole(value), at, keepdims=False)


class _Rounds:
    """
    An interpreter to be traced.

    Parameters
    ----------
    longest : int
        Most rounds in an unrolled loop.
    segments : int
        Number of loops that a longer loop becomes.
    """

    def __init__(self, longest: int, segments: int) -> None:
        self._longest = longest
        self._segments = segments

    def run(self, closed: Any, args: Sequence[Any]) -> list[Any]:
        """Return a closed jaxpr's results; some may be stacks."""
        jaxpr = getattr(closed, "jaxpr", closed)
        scope = dict(zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=True))
        scope.update(zip(jaxpr.invars, args, strict=True))
        for equation in jaxpr.eqns:
            results = self._results(equation, [value_of(atom, scope) for atom in equation.invars])
            scope.update(zip(equation.outvars, results, strict=True))
        return [value_of(atom, scope) for atom in jaxpr.outvars]

    def _results(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        """Return an equation's results."""
        primitive, params = equation.primitive, equation.params
        if primitive.name == "scan" and params["length"] > 0:
            if params["length"] <= max(self._longest, self._segments):
                return self._loop(params, operands)
            if self._segments > 1:
                return self._cut(params, operands)
        inner = called(equation) if primitive.name in CALLS else None
        if inner is not None:
            return self.run(inner, operands)
        return applied(equation, [*map(_whole, operands)])

    def _loop(self, params: Any, operands: list[Any]) -> list[Any]:
        """Return an unrolled loop's results."""
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

    def _cut(self, params: Any, operands: list[Any]) -> list[Any]:
        """
        Return the results of a loop that is cut.

        A loop's rounds take rows out of whole arrays by number: a slice per loop would be a copy.
        """
        from jax import lax
        from jax import numpy as jnp

        fixed, carried = params["num_consts"], params["num_carry"]
        given = [*map(_whole, operands[: fixed + carried])]
        closed, carry = given[:fixed], given[fixed:]
        ends = [k * params["length"] // self._segments for k in range(self._segments + 1)]
        bounds = tuple(range(*pair) for pair in pairwise(ends))
        scanned = operands[fixed + carried :]
        is_cut = [isinstance(x, _Stack) and x.bounds == bounds for x in scanned]
        wholes = [None if cut else _whole(x) for x, cut in zip(scanned, is_cut, strict=True)]
        inner = _Rounds(0, 0)

        def step(carry: Any, given: Any) -> Any:
            rows = iter(given[1:])
            read = [
                next(rows) if x is None else lax.dynamic_index_in_dim(x, given[0], 0, False)
                for x in wholes
            ]
            made = inner.run(params["jaxpr"], [*closed, *carry, *read])
            return made[:carried], made[carried:]

        parts: list[list[Any]] = []
        places = range(len(bounds))
        for at in reversed(places) if params["reverse"] else places:
            own = [x.parts[at] for x, cut in zip(scanned, is_cut, strict=True) if cut]
            rounds = jnp.arange(bounds[at].start, bounds[at].stop, dtype=jnp.uint32)
            carry, made = lax.scan(step, carry, [rounds, *own], reverse=params["reverse"])
            parts.append(made)
        if params["reverse"]:
            parts.reverse()
        return [*carry, *(_Stack(column, bounds) for column in zip(*parts, strict=True))]
