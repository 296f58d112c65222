"""Names for the arrays in a loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Final

from arenaplan.formats.jaxpr.unroll import applied

_PREFIX: Final = "arenaplan."
_CALLS: Final = ("closed_call", "core_call", "jit", "pjit")
"""Calls without rules, whose arrays get names, too."""


def named(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function with a name on each computed array of real numbers."""

    def run(*args: Any) -> Any:
        import jax

        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        names = (f"{_PREFIX}{k}" for k in count())
        found = _evaluated(closed.jaxpr, closed.consts, jax.tree.leaves(args), names)
        return jax.tree.unflatten(jax.tree.structure(shapes), found)

    return run


def _evaluated(
    jaxpr: Any, constants: Sequence[Any], operands: Sequence[Any], names: Iterator[str]
) -> list[Any]:
    """Evaluate a jaxpr, and name the results of its equations."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *operands), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if hasattr(atom, "val") else known[atom]

    for equation in jaxpr.eqns:
        given = [read(atom) for atom in equation.invars]
        inner = next(
            (equation.params[key] for key in ("jaxpr", "call_jaxpr") if key in equation.params),
            None,
        )
        if equation.primitive.name in _CALLS and inner is not None:
            body = getattr(inner, "jaxpr", inner)
            made = _evaluated(body, getattr(inner, "consts", ()), given, names)
        else:
            made = [_labeled(array, names) for array in applied(equation, given)]
        known.update(zip(equation.outvars, made, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _labeled(array: Any, names: Iterator[str]) -> Any:
    """Return an array under the next name; a number unchanged."""
    from jax import numpy
    from jax.ad_checkpoint import checkpoint_name

    if not array.shape or not numpy.issubdtype(array.dtype, numpy.floating):
        return array
    return checkpoint_name(array, next(names))
