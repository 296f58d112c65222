"""
Proofs of arenas, against all orders and all choices of operands to write over, by brute force.

A node here reads some values and writes others; an output may take over an input that has no
later reader. The smallest number of bytes live at the highest step, over all orders and choices,
is what a plan must reach whose order is "complete", and what its floor must not be above.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest

import arenaplan as ap
from arenaplan.cli.printing import proof_of

_UNIT = 64


class Op(NamedTuple):
    """A node, by indices of values, and its pairs of values that may share bytes."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]


class Drawn(NamedTuple):
    """A graph, and the facts that its bytes follow from."""

    graph: ap.Graph
    ops: list[Op]
    sizes: list[int]
    supplied: int
    results: set[int]


def drawn(seed: int) -> Drawn:
    draw = random.Random(seed)
    graph = ap.Graph("drawn")
    sizes = [_UNIT * draw.randint(1, 5) for _ in range(draw.randint(1, 2))]
    supplied = len(sizes)
    values = [graph.input(f"x{at}", (size,), "uint8") for at, size in enumerate(sizes)]
    ops = []
    for _ in range(draw.randint(2, 5)):
        inputs = draw.sample(range(len(sizes)), min(len(sizes), draw.randint(1, 3)))
        made = [
            sizes[draw.choice(inputs)] if draw.random() < 0.6 else _UNIT * draw.randint(1, 5)
            for _ in range(draw.choice([1, 1, 2, 3]))
        ]
        places = [
            (at, output)
            for at, index in enumerate(inputs)
            for output, size in enumerate(made)
            if sizes[index] >= size and draw.random() < 0.6
        ]
        first = len(sizes)
        names = [(f"v{first + at}", (size,), "uint8") for at, size in enumerate(made)]
        values += graph.node("Op", [values[index] for index in inputs], names, in_place=places)
        pairs = tuple((inputs[at], first + output) for at, output in places)
        ops.append(Op(tuple(inputs), tuple(range(first, first + len(made))), pairs))
        sizes += made
    read = {index for op in ops for index in op.inputs}
    results = {index for index in range(supplied, len(sizes)) if index not in read}
    for index in sorted(results):
        graph.output(values[index])
    return Drawn(graph, ops, sizes, supplied, results)


def orders(model: Drawn) -> Iterator[tuple[int, ...]]:
    def go_on(done: tuple[int, ...], there: frozenset[int]) -> Iterator[tuple[int, ...]]:
        if len(done) == len(model.ops):
            yield done
        for at, op in enumerate(model.ops):
            if at not in done and there.issuperset(op.inputs):
                yield from go_on((*done, at), there | set(op.outputs))

    return go_on((), frozenset(range(model.supplied)))


def least(model: Drawn, order: tuple[int, ...]) -> int:
    """Return the fewest bytes live at the highest step of an order, over all choices."""
    born = dict.fromkeys(range(model.supplied), 0)
    dies = dict(born)
    for step, at in enumerate(order):
        born |= dict.fromkeys(model.ops[at].outputs, step)
        dies |= dict.fromkeys(model.ops[at].inputs + model.ops[at].outputs, step)
    dies |= dict.fromkeys(model.results, len(order))
    peak = 0
    for step, at in enumerate(order):
        live = sum(model.sizes[value] for value in born if born[value] <= step <= dies[value])
        taken = [
            (source, result)
            for source, result in model.ops[at].pairs
            if dies[source] == step and source >= model.supplied
        ]
        peak = max(peak, live - _most_shared(model.sizes, taken))
    return peak


def _most_shared(sizes: list[int], pairs: list[tuple[int, int]]) -> int:
    """Return the most bytes of results that have an operand each to take over."""
    if not pairs:
        return 0
    (source, result), rest = pairs[0], pairs[1:]
    others = [pair for pair in rest if pair[0] != source and pair[1] != result]
    return max(_most_shared(sizes, rest), sizes[result] + _most_shared(sizes, others))


def live(plan: ap.Plan) -> int:
    """Return the bytes live at the highest step of a plan, each byte once."""
    places = [place for place in plan.placements if place is not None]
    highest = 0
    for step in range(len(plan.steps)):
        spans = sorted(
            (place.offset, place.offset + place.bytes)
            for place in places
            if place.live.start <= step < place.live.end
        )
        total = end = 0
        for start, stop in spans:
            total += max(0, stop - max(start, end))
            end = max(end, stop)
        highest = max(highest, total)
    return highest


@pytest.mark.parametrize("first", range(0, 500, 50))
def test_claims_hold_against_all_orders_and_choices(first: int) -> None:
    for seed in range(first, first + 50):
        model = drawn(seed)
        plan = ap.plan(model.graph)
        best = min(least(model, order) for order in itertools.islice(orders(model), 500))
        assert plan.floor is not None
        assert plan.floor <= best, seed
        assert live(plan) == least(model, tuple(step[0] for step in plan.steps)), seed
        if plan.order_search == "complete":
            assert live(plan) == best, seed


def test_the_models_have_outputs_that_want_the_same_input() -> None:
    shared = 0
    for seed in range(500):
        for op in drawn(seed).ops:
            sources = [source for source, _ in op.pairs]
            shared += len(set(sources)) < len(sources)
    assert shared > 100


# -- the texts ------------------------------------------------------------------------------------


def chain(*sizes: int) -> ap.Graph:
    graph = ap.Graph("chain")
    value = graph.input("x", (sizes[0],), "uint8")
    for at, size in enumerate(sizes[1:]):
        fits = [(0, 0)] if size <= sizes[at] else []
        (value,) = graph.node("Op", [value], [(f"v{at}", (size,), "uint8")], in_place=fits)
    graph.output(value)
    return graph


def test_a_proof_names_its_scope() -> None:
    graph = chain(64, 128, 64)
    assert proof_of(ap.plan(graph)) == "proven minimal for these steps in any order"
    capped = ap.plan(graph, budget=1024)
    assert proof_of(capped) == "proven minimal for these steps in any order"
    wide = ap.Graph("wide")
    x = wide.input("x", (640,), "uint8")
    ends = []
    for at in range(2):
        (a,) = wide.node("Op", [x], [(f"a{at}", (640,), "uint8")])
        (b,) = wide.node("Op", [a], [(f"b{at}", (64,), "uint8")], in_place=[(0, 0)])
        ends.append(b)
    (y,) = wide.node("Op", ends, [("y", (64,), "uint8")])
    wide.output(y)
    plan = ap.plan(wide)
    assert plan.floor is not None
    assert plan.status == "optimal"
    assert plan.floor < plan.arena_bytes
    assert proof_of(plan) == (
        "proven minimal for these steps in this order, with these shared bytes; "
        "no other order of them has fewer live bytes"
    )
    plan = ap.plan(wide, optimize="none")
    assert proof_of(plan) == "proven minimal for these steps in this order"


def test_too_small_a_capacity_is_named_with_the_bound() -> None:
    graph = chain(64, 128, 64)
    with pytest.raises(ap.errors.CapacityExceeded) as refused:
        ap.plan(graph, budget=100)
    plan = refused.value.plan
    assert plan is not None
    assert (
        proof_of(plan)
        == "infeasible for these steps in any order: the budget is 100, the lower bound 192"
    )
    assert "no plan with its steps, order and sharing of bytes needs fewer than 192" in str(
        refused.value
    )
