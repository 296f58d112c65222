"""
The importer for JAX programs made by ``jax.make_jaxpr``.

:mod:`~arenaplan.formats.jaxpr.jaxpr_walk` inlines calls and merges equal equations,
:mod:`~arenaplan.formats.jaxpr.fold` joins equations whose intermediate arrays need no bytes, and
:mod:`~arenaplan.formats.jaxpr.emit` turns each line into a node, and gives new contents the bytes
of donated arguments. A table
(:data:`~arenaplan.formats.jaxpr.jaxpr_operators.OPERATORS`) has the memory effects of primitives,
and :mod:`~arenaplan.formats.jaxpr.jaxpr_scratch` knows the scratch memory that XLA's compiler
needs. Loops and branches are nodes, whose bodies are planned separately
(:mod:`arenaplan.planner.nested`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from arenaplan.base.errors import InvalidOption
from arenaplan.base.quoting import quoted
from arenaplan.formats.jaxpr.emit import Emitter
from arenaplan.formats.jaxpr.fold import fold
from arenaplan.formats.jaxpr.jaxpr_program import JaxprArray, JaxprProgram
from arenaplan.formats.jaxpr.jaxpr_step import JaxprStep, donated_inputs, traced_step
from arenaplan.formats.jaxpr.jaxpr_walk import JaxprWalk
from arenaplan.formats.trees import DonatedPair, pairs_of_types

if TYPE_CHECKING:
    from arenaplan.graph import Graph

__all__ = ["graph_of_jaxpr", "lines_of_step", "traced_step"]


def graph_of_jaxpr(jaxpr: Any, name: str, constants: Collection[int]) -> Graph:
    """Read a jaxpr: see :func:`arenaplan.from_jaxpr`."""
    from jax.extend import core

    if not isinstance(jaxpr, core.ClosedJaxpr):
        raise InvalidOption(f"{type(jaxpr).__name__!r} is not a ClosedJaxpr by jax.make_jaxpr")
    count = len(jaxpr.jaxpr.invars)
    for position in constants:
        if not 0 <= position < count:
            raise IndexError(f"there is no input {position} to be constant; there are {count}")
    program = JaxprWalk(core).run(jaxpr, frozenset(constants))
    donated = [at for at in donated_inputs(jaxpr.jaxpr) if at not in constants]
    types_in = [None if x is None else (x.shape, x.dtype) for x in program.inputs]
    types_out = [None if x is None else (x.shape, x.dtype) for x in program.outputs]
    pairs = pairs_of_types(donated, types_in, types_out)
    return emitted(program, pairs, donated, Emitter(name)).graph


def lines_of_step(
    traced: JaxprStep, name: str = "", *, compiles: bool = False
) -> tuple[JaxprProgram, Emitter]:
    """
    Read a training step as lines, and as a graph with a node per line.

    With ``compiles``, a node is what XLA's compiler runs: an elementwise formula is one, and nodes
    need the compiler's scratch memory.
    """
    from jax.extend import core

    program = JaxprWalk(core).run(traced.jaxpr)
    return program, emitted(program, traced.pairs, traced.donated, Emitter(name, compiles))


def emitted(
    program: JaxprProgram,
    pairs: Sequence[DonatedPair],
    donated: Collection[int],
    emitter: Emitter,
) -> Emitter:
    """
    Join lines, bind results to donated inputs, make the graph, and return the emitter.

    Parameters
    ----------
    program : JaxprProgram
        The program as read; changed in place.
    pairs : sequence of DonatedPair
        Outputs paired with the replaced inputs.
    donated : collection of int
        Positions of all donated inputs.
    emitter : Emitter
        A new emitter.
    """
    results = [program.outputs[pair.result] for pair in pairs]
    olds = [program.inputs[pair.into] for pair in pairs]
    fold(
        program,
        [result for result in results if isinstance(result, JaxprArray)],
        [old for old in olds if old is not None],
        compiles=emitter.compiles,
    )
    emitter.run(program, pairs)
    states = {pair.into for pair in pairs}
    for at in sorted(set(donated) - states):
        tensor = program.inputs[at]
        if tensor is not None:
            emitter.graph.warnings.append(
                f"no result replaces the donated argument {quoted(tensor.name)}: it is an input "
                "like others"
            )
    return emitter
