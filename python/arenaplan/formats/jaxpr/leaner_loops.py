"""
Loops that save fewer arrays for the loops of the backward pass.

The gradient of a ``scan`` is a second ``scan``, and the first loop stacks every array that a round
of the second loop reads. Many of these arrays follow from others by elementwise operators: gates
from their sums, derivatives from gates. A minimum cut through the body (the same construction as
for whole steps, on one round) says which arrays the first loop stacks; a round of the second loop
computes the other arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

from arenaplan._core import minimum_cut
from arenaplan.formats.jaxpr.fold import INDEX_MAPS
from arenaplan.formats.jaxpr.jaxpr_operators import is_elementwise
from arenaplan.formats.jaxpr.unroll import applied, inlined, retraced, value_of

_JOINS: Final = frozenset(["concatenate", "pad", "split"])
"""Primitives that move elements, with several operands or results."""

_WEIGHT: Final = 16
"""Elements that a round may compute again to save one byte, at most."""

_UNLIMITED: Final = 1 << 60
"""Capacity of an arc that no cut contains."""


def lean(jaxpr: Any, longest: int = 0) -> Any:
    """
    Return a jaxpr whose ``scan`` loops stack fewer arrays for later loops.

    Parameters
    ----------
    jaxpr : jax.extend.core.ClosedJaxpr
        The program. Calls are inlined.
    longest : int, default 0
        Loops with at most so many rounds stay as they are.
    """
    flat = inlined(jaxpr)
    pairs = {pair.first: pair for pair in _pairs(flat.jaxpr, longest)}
    if not pairs:
        return jaxpr

    return retraced(jaxpr, lambda args: _evaluated(flat, args, pairs))


class _Loop:
    """
    A ``scan`` equation.

    Parameters
    ----------
    equation : JaxprEqn
        The equation.
    """

    def __init__(self, equation: Any) -> None:
        params = equation.params
        self.equation = equation
        self.fixed, self.carried = params["num_consts"], params["num_carry"]
        self.length, self.reverse = params["length"], params["reverse"]
        self.body = inlined(params["jaxpr"])

    @property
    def stacked(self) -> Sequence[Any]:
        """Variables for the stacked results."""
        found: Sequence[Any] = self.equation.outvars[self.carried :]
        return found

    @property
    def scanned(self) -> Sequence[Any]:
        """Operands that a round reads a row of."""
        found: Sequence[Any] = self.equation.invars[self.fixed + self.carried :]
        return found

    def scan(self, body: Any, carry: Sequence[Any], rows: Sequence[Any]) -> Any:
        """Trace a loop with as many rounds in the same direction."""
        from jax import lax

        return lax.scan(body, list(carry), list(rows), self.length, self.reverse)


class _Pair(NamedTuple):
    """A loop, and the loop that reads arrays that only this loop needs."""

    first: int
    """Place of the loop in the program."""
    then: int
    """Place of the loop that reads."""
    loop: _Loop
    reader: _Loop
    passed: tuple[int, ...]
    """Positions among the stacked results that only the second loop reads."""
    saved: tuple[Any, ...]
    """Variables in the body that the loop stacks in place of these results."""


def _pairs(jaxpr: Any, longest: int) -> Iterable[_Pair]:
    """Yield the pairs of loops in a jaxpr for which a cut saves bytes."""
    reads: dict[Any, list[tuple[int, int]]] = {}
    for place, equation in enumerate(jaxpr.eqns):
        for position, atom in enumerate(equation.invars):
            if not hasattr(atom, "val"):
                reads.setdefault(atom, []).append((place, position))
    outside = {*jaxpr.invars, *jaxpr.constvars}
    taken: set[int] = set()
    for place, equation in enumerate(jaxpr.eqns):
        if equation.primitive.name != "scan" or equation.params["length"] <= longest:
            continue
        loop = _Loop(equation)
        readers = Counter(
            reads[x][0][0]
            for x in loop.stacked
            if x not in jaxpr.outvars and len(reads.get(x, ())) == 1
        )
        for then, _ in readers.most_common(1):
            other = jaxpr.eqns[then]
            if other.primitive.name != "scan" or other.params["length"] != loop.length:
                continue
            reader = _Loop(other)
            before = reader.fixed + reader.carried
            passed = tuple(
                at
                for at, x in enumerate(loop.stacked)
                if x not in jaxpr.outvars
                and [at for at, p in reads.get(x, ()) if p >= before] == [then]
            )
            saved = _cut(loop, passed, outside)
            results = loop.body.jaxpr.outvars[loop.carried :]
            if then not in taken and _bytes(saved) < _bytes(results[at] for at in passed):
                taken |= {place, then}
                yield _Pair(place, then, loop, reader, passed, saved)


def _cut(loop: _Loop, passed: Sequence[int], outside: Iterable[Any]) -> tuple[Any, ...]:
    """
    Return the variables in a loop's body from which elementwise operators make some results.

    Rows of arrays that live anyway are free; of other variables, the fewest bytes are taken.
    """
    body, known = loop.body.jaxpr, set(outside)
    carried = body.invars[loop.fixed : loop.fixed + loop.carried]
    rows = body.invars[loop.fixed + loop.carried :]
    scanned = zip(rows, loop.scanned, strict=True)
    stored = [*carried, *(row for row, whole in scanned if whole not in known)]
    numbers: dict[Any, int] = {"source": 0, "sink": 1}
    arcs: list[tuple[int, int, int]] = []

    def arc(start: Any, end: Any, capacity: int) -> None:
        first, second = (numbers.setdefault(vertex, len(numbers)) for vertex in (start, end))
        arcs.append((first, second, capacity))

    makers = {}
    for equation in body.eqns:
        if _is_cheap(equation):
            arc("source", id(equation), sum(prod(x.aval.shape) for x in equation.outvars))
            for variable in equation.outvars:
                makers[variable] = equation
                arc(id(equation), variable, _WEIGHT * _bytes([variable]))
            for atom in equation.invars:
                if not hasattr(atom, "val"):
                    arc(atom, id(equation), _UNLIMITED)
        else:
            stored += equation.outvars
    for variable in stored:
        arc("source", variable, _WEIGHT * _bytes([variable]))
    results = body.outvars[loop.carried :]
    for variable in {results[at] for at in passed if not hasattr(results[at], "val")}:
        arc(variable, "sink", _UNLIMITED)
    is_kept = minimum_cut(len(numbers), arcs)
    kept = {vertex for vertex, number in numbers.items() if is_kept[number]}
    needed = dict.fromkeys([*stored, *makers])
    return tuple(x for x in needed if x not in kept and (x not in makers or id(makers[x]) in kept))


def _is_cheap(equation: Any) -> bool:
    """Whether a round of the second loop may compute the results again."""
    name = equation.primitive.name
    moves = name in INDEX_MAPS or name in _JOINS
    return not equation.effects and (moves or is_elementwise(name))


def _bytes(variables: Iterable[Any]) -> int:
    """Return the bytes of the arrays that variables or literals stand for."""
    return sum(prod(x.aval.shape) * x.aval.dtype.itemsize for x in variables)


def _evaluated(flat: Any, args: Sequence[Any], pairs: Mapping[int, _Pair]) -> list[Any]:
    """Evaluate a jaxpr whose loops stack fewer arrays."""
    scope = dict(
        zip((*flat.jaxpr.constvars, *flat.jaxpr.invars), (*flat.consts, *args), strict=True)
    )
    later = {pair.then: pair for pair in pairs.values()}
    stacks: dict[int, dict[Any, Any]] = {}
    for place, equation in enumerate(flat.jaxpr.eqns):
        if place in pairs:
            stacks[place] = _first(pairs[place], scope)
        elif place in later:
            pair = later[place]
            _then(pair, stacks.pop(pair.first), scope)
        else:
            _run([equation], scope)
    return [value_of(atom, scope) for atom in flat.jaxpr.outvars]


def _run(equations: Iterable[Any], scope: dict[Any, Any]) -> None:
    """Apply equations."""
    for equation in equations:
        made = applied(equation, [value_of(x, scope) for x in equation.invars])
        scope.update(zip(equation.outvars, made, strict=True))


def _first(pair: _Pair, scope: dict[Any, Any]) -> dict[Any, Any]:
    """Trace a pair's first loop, and return the stack for each variable that the loop saves."""
    loop, body = pair.loop, pair.loop.body.jaxpr
    given = [value_of(x, scope) for x in loop.equation.invars]
    at = loop.fixed + loop.carried
    known = dict(zip(body.invars[at:], given[at:], strict=True))
    fresh = [x for x in pair.saved if x not in known]
    kept = [k for k in range(len(loop.stacked)) if k not in pair.passed]

    def round_(carry: Any, rows: Any) -> Any:
        inner = _scope(loop, [*given[: loop.fixed], *carry, *rows])
        _run(body.eqns, inner)
        made = [value_of(x, inner) for x in body.outvars]
        stacked = [made[loop.carried + k] for k in kept]
        return made[: loop.carried], (stacked, [inner[x] for x in fresh])

    carry, (stacked, saved) = loop.scan(round_, given[loop.fixed : at], given[at:])
    results = [*carry, *(None for _ in loop.stacked)]
    for k, stack in zip(kept, stacked, strict=True):
        results[loop.carried + k] = stack
    scope.update(zip(loop.equation.outvars, results, strict=True))
    return {x: known[x] for x in body.invars[at:]} | dict(zip(fresh, saved, strict=True))


def _then(pair: _Pair, stacks: Mapping[Any, Any], scope: dict[Any, Any]) -> None:
    """Trace a pair's second loop, whose rounds compute what the first loop does not stack."""
    loop, reader, body = pair.loop, pair.reader, pair.loop.body.jaxpr
    equations, wanted = _remade(pair)
    fixed = [value_of(x, scope) for x in loop.equation.invars[: loop.fixed]]
    given = [value_of(x, scope) for x in reader.equation.invars]
    at = reader.fixed + reader.carried
    results = {loop.stacked[k]: body.outvars[loop.carried + k] for k in pair.passed}
    own = [k for k, x in enumerate(reader.scanned) if x not in results]

    def round_(carry: Any, rows: Any) -> Any:
        inner = dict(zip(body.constvars, loop.body.consts, strict=True))
        inner.update(zip(body.invars, fixed, strict=False))
        inner.update(zip(wanted, rows[len(own) :], strict=True))
        _run(equations, inner)
        passed = dict(zip(own, rows, strict=False))
        read = [
            passed[k] if k in passed else value_of(results[x], inner)
            for k, x in enumerate(reader.scanned)
        ]
        inner = _scope(reader, [*given[: reader.fixed], *carry, *read])
        _run(reader.body.jaxpr.eqns, inner)
        made = [value_of(x, inner) for x in reader.body.jaxpr.outvars]
        return made[: reader.carried], made[reader.carried :]

    rows = [*(given[at + k] for k in own), *(stacks[x] for x in wanted)]
    carry, stacked = reader.scan(round_, given[reader.fixed : at], rows)
    scope.update(zip(reader.equation.outvars, [*carry, *stacked], strict=True))


def _remade(pair: _Pair) -> tuple[list[Any], list[Any]]:
    """Return the equations that make passed results, and the variables that they start from."""
    body, saved = pair.loop.body.jaxpr, set(pair.saved)
    results = [body.outvars[pair.loop.carried + k] for k in pair.passed]
    wanted = {x for x in results if not hasattr(x, "val")}
    found = []
    for equation in reversed(body.eqns):
        if not (wanted - saved).isdisjoint(equation.outvars):
            found.append(equation)
            wanted |= {x for x in equation.invars if not hasattr(x, "val")}
    rows = body.invars[pair.loop.fixed + pair.loop.carried :]
    return found[::-1], list(dict.fromkeys([*pair.saved, *(x for x in rows if x in wanted)]))


def _scope(loop: _Loop, operands: Sequence[Any]) -> dict[Any, Any]:
    """Return the scope in a loop's body."""
    body = loop.body
    return dict(
        zip((*body.jaxpr.constvars, *body.jaxpr.invars), (*body.consts, *operands), strict=True)
    )
