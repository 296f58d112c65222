"""From a JAX training step to a jaxpr, with the donated arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from arenaplan.formats.jaxpr.jaxpr_operators import CALLS
from arenaplan.formats.jaxpr.leaner_loops import lean
from arenaplan.formats.jaxpr.unroll import unrolled
from arenaplan.formats.trees import Donate, DonatedPair, donated_pairs, subtree


class JaxprStep(NamedTuple):
    """A training step as a program."""

    jaxpr: Any
    pairs: list[DonatedPair]
    """Which result replaces which donated input, both by position among all leaves."""
    donated: list[int]
    """Positions of all donated inputs."""


def traced_step(
    step: Any, args: Sequence[Any], donate: Donate, unroll: int = 0, segments: int = 0
) -> JaxprStep:
    """
    Trace a step.

    Raises
    ------
    InvalidOption
        If a donated argument or result is not a whole number.
    IndexError
        If the argument or result does not exist.
    ValueError
        If a result's structure or types differ from the argument to be replaced.
    """
    import jax
    from jax.tree_util import tree_flatten

    jaxpr, shapes = jax.make_jaxpr(step, return_shape=True)(*args)
    types = jax.eval_shape(lambda *trees: trees, *args)
    arguments = subtree(types, tree_flatten, _types)
    if len(jaxpr.jaxpr.invars) != arguments.leaves:
        raise ValueError("the step has static arguments: bind them with functools.partial")
    results = subtree(shapes, tree_flatten, _types)
    if donate is None:
        marked = set(donated_inputs(jaxpr.jaxpr))
        donate = [
            at
            for at, part in enumerate(arguments.parts)
            if part.leaves and marked.issuperset(range(part.first, part.first + part.leaves))
        ]
    pairs, donated = donated_pairs(arguments, results, donate)
    if segments:
        jaxpr = lean(jaxpr, max(unroll, segments))
    if unroll or segments:
        jaxpr = unrolled(jaxpr, unroll, segments)
    return JaxprStep(jaxpr, pairs, donated)


def donated_inputs(jaxpr: Any) -> list[int]:
    """Return the inputs donated by a jaxpr: those passed to a ``jax.jit`` around all of it."""
    if len(jaxpr.eqns) != 1 or jaxpr.eqns[0].primitive.name not in CALLS:
        return []
    (call,) = jaxpr.eqns
    marks = call.params.get("donated_invars") or ()
    given = {id(atom) for atom, is_donated in zip(call.invars, marks, strict=False) if is_donated}
    return [at for at, variable in enumerate(jaxpr.invars) if id(variable) in given]


def _types(leaves: list[Any]) -> Any:
    """Return shapes and types of arrays."""
    return tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
