"""Training steps as the importer of JAX programs reads them, from jaxprs made by hand."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import arenaplan as ap
from arenaplan.formats.jaxpr import emitted
from arenaplan.formats.jaxpr.emit import Emitter
from arenaplan.formats.jaxpr.jaxpr_program import JaxprArray, JaxprProgram
from arenaplan.formats.jaxpr.jaxpr_walk import JaxprWalk
from arenaplan.formats.jaxpr.loop_fusion import fuse
from arenaplan.formats.trees import DonatedPair, Subtree, pairs_of_trees, pairs_of_types, subtree
from small_jaxprs import CORE, Builder

SIDE = (1024, 1024)
MIB = 1 << 20


def graph_of(jaxpr: Any, *pairs: tuple[int, int], compiles: bool = False) -> ap.Graph:
    """Return the graph of a program in which results replace inputs."""
    program = JaxprWalk(CORE).run(jaxpr)
    emitter, donated = Emitter("", compiles), [into for into, _ in pairs]
    return emitted(program, [DonatedPair(*pair) for pair in pairs], donated, emitter).graph


def ops(graph: ap.Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def names(graph: ap.Graph, node: int) -> list[str | None]:
    """Return the names of the operands of a node."""
    values = graph.nodes[node].inputs
    return [None if value is None else graph.values[value].name for value in values]


def planned(graph: ap.Graph, **options: Any) -> ap.Plan:
    plan = ap.plan(graph, **options)
    plan.check(graph)
    return plan


# -- donation -------------------------------------------------------------------------------------


def descent() -> Any:
    """Return p - 0.1 * g."""
    build = Builder(SIDE, SIDE)
    p, g = build.inputs
    return build.closed(build("sub", p, build("mul", 0.1, g)))


def test_a_donated_parameter_keeps_its_address() -> None:
    graph = graph_of(descent(), (0, 0))
    assert ops(graph) == ["update"]
    (new,) = graph.nodes[0].outputs
    assert graph.values[0].kind == "state"
    plan = planned(graph)
    assert plan.arena_bytes == 8 * MIB
    assert plan.placements[new].offset == plan.placements[0].offset


def test_without_donation_the_new_parameter_has_bytes_of_its_own() -> None:
    assert planned(graph_of(descent()), inputs="keep").arena_bytes == 12 * MIB


def test_the_old_content_is_copied_where_it_is_a_result() -> None:
    build = Builder(SIDE, SIDE)
    p, g = build.inputs
    graph = graph_of(build.closed(build("sub", p, g), p), (0, 0))
    assert sorted(ops(graph)) == ["copy", "sub"]
    assert planned(graph, inputs="keep").arena_bytes == 12 * MIB


def test_a_reader_of_old_and_new_content_keeps_both() -> None:
    build = Builder(SIDE, SIDE)
    p, g = build.inputs
    new = build("sub", p, g)
    moved = build("reduce_sum", build("sub", new, p), shape=(), axes=(0, 1))
    graph = graph_of(build.closed(new, moved), (0, 0))
    assert ops(graph) == ["sub", "reduce_sum", "copy"]
    planned(graph)


def test_an_average_reads_the_content_from_before_the_update() -> None:
    build = Builder(SIDE, SIDE, SIDE)
    p, average, g = build.inputs
    new = build("sub", p, g)
    mean = build("add", build("mul", 0.99, average), build("mul", 0.01, p))
    graph = graph_of(build.closed(new, mean), (0, 0), (1, 1))
    plan = planned(graph)
    assert [graph.nodes[node].op for node in plan.order] == ["update", "sub"]
    assert plan.arena_bytes == 12 * MIB


def test_parameters_that_change_places_go_through_one_copy_more() -> None:
    build = Builder(SIDE, SIDE)
    p, q = build.inputs
    graph = graph_of(build.closed(q, p), (0, 0), (1, 1))
    assert ops(graph) == ["copy"] * 3
    assert planned(graph).arena_bytes == 12 * MIB


def test_a_parameter_that_stays_needs_no_node() -> None:
    build = Builder(SIDE)
    graph = graph_of(build.closed(*build.inputs), (0, 0))
    assert ops(graph) == []
    assert graph.values[0].kind == "state"


def test_one_result_replaces_two_states() -> None:
    """JAX makes one variable of equal results."""
    build = Builder(SIDE, SIDE, SIDE)
    *_, g = build.inputs
    new = build("sin", g)
    graph = graph_of(build.closed(new, new), (0, 0), (1, 1))
    assert ops(graph) == ["sin", "copy"]
    assert planned(graph, inputs="keep").arena_bytes == 12 * MIB


def test_a_product_does_not_write_over_the_parameter_that_it_reads() -> None:
    build = Builder(SIDE, SIDE)
    p, g = build.inputs
    graph = graph_of(build.closed(build.product(p, g)), (0, 0))
    assert ops(graph) == ["dot_general", "copy"]
    planned(graph)


def test_a_number_replaces_a_state() -> None:
    build = Builder(())
    graph = graph_of(build.closed(1.0), (0, 0))
    assert ops(graph) == ["broadcast_in_dim"]
    planned(graph)


def test_donated_arguments_without_a_result_are_named() -> None:
    build = Builder(SIDE)
    program = JaxprWalk(CORE).run(build.closed(build("sin", *build.inputs)))
    graph = emitted(program, [], [0], Emitter("")).graph
    assert graph.warnings == [
        "no result replaces the donated argument 'in0': it is an input like others"
    ]


def described(tree: Any, first: int = 0) -> Subtree:
    """Describe a tree of lists and names of types."""

    def flatten(node: Any, is_leaf: Any = lambda _: False) -> tuple[list[Any], str]:
        if is_leaf(node) or not isinstance(node, list):
            return [node], str(node)
        return [leaf for part in node for leaf in flatten(part, is_leaf)[0]], str(node)

    return subtree(tree, flatten, tuple, first)


def test_results_are_found_by_structure() -> None:
    donated = [described(["a", "b"]), described(["a", "b"], 2), described("c", 4)]
    results = described([["x", ["a", "b"]], "c", ["a", "b"]])
    found = list(pairs_of_trees(donated, results))
    assert found == [
        DonatedPair(0, 1),
        DonatedPair(1, 2),
        DonatedPair(2, 4),
        DonatedPair(3, 5),
        DonatedPair(4, 3),
    ]


def test_parts_are_found_where_the_whole_is_not() -> None:
    donated = [described([["a", "b"], "c", "d"])]
    results = described([["a", "b"], "d"])
    assert list(pairs_of_trees(donated, results)) == [
        DonatedPair(0, 0),
        DonatedPair(1, 1),
        DonatedPair(3, 2),
    ]


def test_types_pair_in_order_of_results() -> None:
    assert pairs_of_types([0, 2], ["a", "a", "a"], ["b", "a", "a", "a"]) == [
        DonatedPair(0, 1),
        DonatedPair(2, 2),
    ]


# -- numbers --------------------------------------------------------------------------------------


def test_arrays_of_one_number_need_no_bytes_where_elements_are_read() -> None:
    build = Builder(SIDE)
    zeros = build.repeated(0.0, SIDE)
    halves = build("mul", build("exp", zeros), 0.5)
    graph = graph_of(build.closed(build("max", build("add", *build.inputs, zeros), halves)))
    assert ops(graph) == ["add", "max"]
    assert not any(value.kind == "constant" for value in graph.values)
    assert planned(graph).arena_bytes == 8 * MIB


def test_operators_that_need_an_array_get_one_that_is_made_before_them() -> None:
    build = Builder(SIDE)
    zeros = build.repeated(0.0, SIDE)
    (x,) = build.inputs
    first = build.product(x, zeros)
    graph = graph_of(build.closed(build.product(build("sin", first), zeros)))
    assert ops(graph) == [
        "broadcast_in_dim",
        "dot_general",
        "sin",
        "broadcast_in_dim",
        "dot_general",
    ]
    assert not any(value.kind == "constant" for value in graph.values)


def test_a_mask_made_of_positions_is_computed_by_its_reader() -> None:
    build = Builder(SIDE)
    rows = build("iota", shape=SIDE, dtype="int32", dimension=0)
    columns = build("iota", shape=SIDE, dtype="int32", dimension=1)
    mask = build("ge", rows, columns, dtype="bool")
    graph = graph_of(build.closed(build("select_n", mask, *build.inputs, -1e9)))
    assert ops(graph) == ["select_n"]


def test_random_numbers_are_no_constants() -> None:
    build = Builder(SIDE)
    noise = build("rng_uniform", 0.0, 1.0, shape=SIDE)
    graph = graph_of(build.closed(build("add", *build.inputs, noise)))
    assert ops(graph) == ["rng_uniform", "add"]
    assert [node.effects.pure for node in graph.nodes] == [False, True]


def test_equations_with_effects_are_kept_and_not_pure() -> None:
    build = Builder(SIDE)
    (x,) = build.inputs
    build("io_callback", x, effects=("io",))
    build("sin", x)
    graph = graph_of(build.closed(build("cos", x)))
    assert ops(graph) == ["io_callback", "cos"]
    assert [node.effects.pure for node in graph.nodes] == [False, True]


def test_a_repeated_operand_is_read_where_it_is() -> None:
    build = Builder((1024,), SIDE)
    bias, x = build.inputs
    graph = graph_of(build.closed(build("add", build.repeated(bias, SIDE, (1,)), x)))
    assert ops(graph) == ["add"]
    assert names(graph, 0) == ["in0", "in1"]
    assert [pair[:2] for pair in graph.nodes[0].effects.in_place] == [(1, 0)]


# -- transposes -----------------------------------------------------------------------------------


def test_a_product_writes_its_result_transposed() -> None:
    build = Builder((8, 16), (16, 4))
    y = build.transposed(build.product(*build.inputs))
    graph = graph_of(build.closed(build("sin", y)))
    assert ops(graph) == ["dot_general", "sin"]
    (made,) = graph.nodes[0].outputs
    assert graph.values[made].shape == (4, 8)


def test_a_product_whose_result_others_read_too_keeps_its_order() -> None:
    build = Builder((8, 16), (16, 4))
    y = build.product(*build.inputs)
    graph = graph_of(build.closed(build.transposed(y), build("sin", y)))
    assert ops(graph) == ["dot_general", "transpose", "sin"]


def test_a_product_reads_its_operand_transposed() -> None:
    build = Builder((8, 16), (8, 4))
    x, y = build.inputs
    graph = graph_of(build.closed(build.product(build.transposed(build("sin", x)), y)))
    assert ops(graph) == ["sin", "dot_general"]
    assert names(graph, 1) == ["sin:2", "in1"]


def test_rows_of_a_batch_stay_together() -> None:
    """A product cannot write elements of several products of a batch side by side."""

    def batched(permutation: tuple[int, ...]) -> list[str]:
        build = Builder((2, 8, 16), (2, 16, 4))
        numbers = (((2,), (1,)), ((0,), (0,)))
        y = build("dot_general", *build.inputs, shape=(2, 8, 4), dimension_numbers=numbers)
        shape = tuple((2, 8, 4)[axis] for axis in permutation)
        return ops(
            graph_of(build.closed(build("transpose", y, shape=shape, permutation=permutation)))
        )

    assert batched((1, 0, 2)) == batched((0, 2, 1)) == batched((2, 0, 1)) == ["dot_general"]
    assert batched((1, 2, 0)) == ["dot_general", "transpose"]


def test_heads_are_written_next_to_each_other() -> None:
    """The results of several heads, reshaped in between, as attention has them."""
    build = Builder((4, 8, 16), (4, 16, 4))
    numbers = (((2,), (1,)), ((0,), (0,)))
    y = build("dot_general", *build.inputs, shape=(4, 8, 4), dimension_numbers=numbers)
    y = build("reshape", y, shape=(2, 2, 8, 4), dimensions=None)
    y = build("transpose", y, shape=(2, 8, 2, 4), permutation=(0, 2, 1, 3))
    graph = graph_of(build.closed(build("reshape", y, shape=(16, 8), dimensions=None)))
    assert ops(graph) == ["dot_general", "reshape"]


def test_an_operand_in_another_order_is_not_taken_over() -> None:
    build = Builder(SIDE, SIDE)
    x, y = (build("sin", x) for x in build.inputs)
    graph = graph_of(build.closed(build("add", x, build.transposed(y))))
    assert ops(graph) == ["sin", "sin", "add"]
    assert [pair[:2] for pair in graph.nodes[2].effects.in_place] == [(0, 0)]


def test_an_update_does_not_take_over_what_it_reads_in_another_order() -> None:
    build = Builder(SIDE, SIDE)
    p, g = build.inputs
    moved = build.transposed(build("sin", g))
    graph = graph_of(build.closed(build("sub", p, build("mul", moved, 0.1))), (0, 0))
    assert ops(graph) == ["sin", "update"]
    assert [pair[:2] for pair in graph.nodes[1].effects.in_place] == [(0, 0)]


# -- cheap arrays ---------------------------------------------------------------------------------


def chain(cheap: str, keeps_operand: bool = True) -> ap.Graph:
    """Return a layer whose derivative, a function of its result, is kept across other layers."""
    build = Builder(SIDE, SIDE)
    x, w = build.inputs
    y = build("tanh", build.product(x, w))
    factor = build(cheap, y, y)
    back = build.product(build.product(y, w), w)
    result = build("mul", back, factor)
    return graph_of(build.closed(build("add", result, y) if keeps_operand else result))


def test_a_cheap_factor_is_computed_where_it_is_read() -> None:
    graph = chain("mul")
    assert ops(graph) == ["dot_general", "tanh", "dot_general", "dot_general", "mul", "add"]
    factor = graph.nodes[4]
    assert [pair[:2] for pair in factor.effects.in_place] == [(0, 0), (1, 0)]
    assert planned(graph).arena_bytes == 4 * 4 * MIB


def test_a_factor_is_kept_where_its_operand_would_have_to_be() -> None:
    assert ops(chain("mul", keeps_operand=False)).count("mul") == 2


def test_an_expensive_factor_runs_once() -> None:
    assert "atan2" in ops(chain("atan2"))


def test_several_factors_of_one_operand_are_replaced_by_it() -> None:
    """Two arrays are kept, or the one that both are computed from."""
    build = Builder(SIDE, SIDE)
    x, w = build.inputs
    y = build("tanh", build.product(x, w))
    factors = build("sub", 1.0, y), build("mul", 0.5, y)
    back = build.product(build.product(y, w), w)
    for factor in factors:
        back = build("mul", back, factor)
    graph = graph_of(build.closed(back))
    assert ops(graph) == ["dot_general", "tanh", "dot_general", "dot_general", "mul", "mul"]


def test_a_reduction_computes_an_operand_that_nothing_else_reads() -> None:
    build = Builder(SIDE, SIDE)
    x, w = build.inputs
    y = build.product(x, w)
    total = build("reduce_sum", build("integer_pow", y, y=2), shape=(), axes=(0, 1))
    graph = graph_of(build.closed(total, build("sin", y)))
    assert ops(graph) == ["dot_general", "reduce_sum", "sin"]
    assert names(graph, 1) == ["dot_general:2"]
    assert planned(graph, inputs="keep").arena_bytes < 13 * MIB


def test_a_late_reduction_does_not_keep_two_operands_alive() -> None:
    build = Builder(SIDE, SIDE)
    x, w = build.inputs
    product = build("mul", build.product(x, w), build.product(w, x))
    other = build.product(w, w)
    total = build("reduce_sum", product, shape=(), axes=(0, 1))
    graph = graph_of(build.closed(total, other))
    assert ops(graph) == ["dot_general", "dot_general", "mul", "dot_general", "reduce_sum"]


def test_a_formula_of_several_steps_is_computed_in_order() -> None:
    """The factor needs one array by two ways, one of which leads through the other."""
    build = Builder(SIDE, SIDE)
    x, w = build.inputs
    y = build("tanh", build.product(x, w))
    twice = build("mul", y, 2.0)
    factor = build("add", twice, build("sub", 1.0, twice))
    first, second = build.product(y, w), build.product(w, w)
    back = build("mul", build.product(first, second), factor)
    program = JaxprWalk(CORE).run(build.closed(build("add", back, y)))
    emitted(program, [], [], Emitter(""))
    (line,) = (line for line in program.lines if line.is_formula)
    assert [found.primitive for found in line.equations] == ["mul", "sub", "add", "mul"]
    known = set(line.inputs)
    for found in line.equations:
        assert known.issuperset(x for x in found.inputs if isinstance(x, JaxprArray))
        known.update(found.outputs)


def test_the_old_content_of_a_parameter_is_not_read_later_for_a_cheap_array() -> None:
    build = Builder(SIDE, SIDE)
    p, w = build.inputs
    decay = build("mul", 0.1, p)
    g = build.product(build.product(w, p), w)
    graph = graph_of(build.closed(build("sub", p, g), build("add", decay, g)), (0, 0))
    assert "copy" not in ops(graph)


# -- formulas that are compiled -------------------------------------------------------------------


def most_live(program: JaxprProgram) -> int:
    """Return the bytes of the arrays that are live at the fullest line."""
    lines = program.lines
    made = {x: place for place, line in enumerate(lines) for x in line.outputs if x is not None}
    last = made | {x: place for place, line in enumerate(lines) for x in line.inputs}
    last |= {x: len(lines) for x in program.outputs if isinstance(x, JaxprArray)}
    return max(
        sum(4 * x.shape[0] * x.shape[1] for x in made if made[x] <= place <= last[x])
        for place in range(len(lines))
    )


def drawn(seed: int) -> Any:
    """Return a program of sums, sines and products of arrays that are mostly recent."""
    draw, build = Random(seed), Builder((8, 8), (8, 8), (8, 4))
    known = list(build.inputs)
    for _ in range(draw.randrange(4, 30)):
        x = draw.choice(known[-4:])
        same = [y for y in known if y.aval.shape == x.aval.shape]
        kind = draw.choice(("sin", "add", "add", "mul", "product"))
        if kind == "product":
            y = draw.choice([y for y in known if y.aval.shape[0] == x.aval.shape[1]] or [None])
            known.append(build("sin", x) if y is None else build.product(x, y))
        elif kind == "sin":
            known.append(build(kind, x))
        else:
            known.append(build(kind, x, draw.choice(draw.choice((same, same[-3:])))))
    return build.closed(*draw.sample(known[3:], 2), known[-1])


@pytest.mark.parametrize("seed", range(60))
def test_formulas_lose_no_equation_and_make_no_more_bytes_live(seed: int) -> None:
    before, after = (JaxprWalk(CORE).run(drawn(seed)) for _ in range(2))
    fuse(after)
    assert most_live(after) <= most_live(before)
    found = [equation.source for line in after.lines for equation in line.equations]
    assert len(found) == len(before.lines)
    known: set[Any] = {*after.inputs}
    for line in after.lines:
        for equation in line.equations:
            assert known.issuperset(x for x in equation.inputs if isinstance(x, JaxprArray))
            known.update(equation.outputs)
        inside = {x for equation in line.equations for x in equation.outputs} - {*line.outputs}
        others = [x for other in after.lines if other is not line for x in other.inputs]
        assert inside.isdisjoint([*others, *after.outputs])


def test_a_derivative_of_several_steps_is_one_formula() -> None:
    """Two arrays for steps of the formula need no bytes, so the products are the fullest place."""
    build = Builder(SIDE, SIDE)
    x, w = build.inputs
    h = build.product(x, w)
    t = build("tanh", h)
    g = build.product(build.product(t, w), w)
    left = build("mul", build("add", h, t), build("add", t, g))
    right = build("mul", build("sub", h, t), build("sub", t, g))
    back = build.product(build("add", left, right), w)
    plain, compiled = (graph_of(build.closed(back), compiles=each) for each in (False, True))
    assert ops(compiled) == ["dot_general", "tanh", *["dot_general"] * 2, "add", "dot_general"]
    assert [planned(graph).arena_bytes // (4 * MIB) for graph in (compiled, plain)] == [5, 6]


def test_a_formula_does_not_wait_for_other_nodes_with_two_operands_for_one() -> None:
    build = Builder(SIDE, SIDE)
    x, w = build.inputs
    total = build("add", build.product(x, w), build.product(w, x))
    result = build("sin", build("mul", total, build.product(build.product(w, w), x)))
    graph = graph_of(build.closed(result), compiles=True)
    assert ops(graph) == [*["dot_general"] * 2, "add", *["dot_general"] * 2, "sin"]


def test_a_formula_reads_the_old_content_of_a_parameter_in_time() -> None:
    build = Builder(SIDE, SIDE)
    p, w = build.inputs
    new = build("sub", p, build.product(p, w))
    result = build("add", build("atan2", p, w), build.product(new, w))
    graph = graph_of(build.closed(new, result), (0, 0), compiles=True)
    assert "copy" not in ops(graph)


# -- updates --------------------------------------------------------------------------------------


def adam(build: Builder, p: Any, m: Any, v: Any, g: Any) -> tuple[Any, Any, Any]:
    m = build("add", build("mul", 0.9, m), build("mul", 0.1, g))
    v = build("add", build("mul", 0.99, v), build("mul", 0.01, build("mul", g, g)))
    length = build("add", build("sqrt", build("div", v, 0.5)), 1e-8)
    return build("sub", p, build("mul", 0.1, build("div", build("div", m, 0.5), length))), m, v


@pytest.mark.parametrize("compiles", [False, True])
def test_adam_needs_no_temporary_of_the_size_of_a_parameter(compiles: bool) -> None:
    build = Builder(*[SIDE] * 4)
    jaxpr = build.closed(*adam(build, *build.inputs))
    graph = graph_of(jaxpr, (0, 0), (1, 1), (2, 2), compiles=compiles)
    assert ops(graph) == ["update"] * 3
    assert planned(graph).arena_bytes == 16 * MIB


@pytest.mark.parametrize("compiles", [False, True])
def test_an_update_does_not_join_a_sum_of_gradients(compiles: bool) -> None:
    """Two gradients would be alive until the update instead of their sum."""
    build = Builder(SIDE, SIDE)
    p, x = build.inputs
    total = build("add", build.product(x, x), build.product(x, x, (0, 0)))
    jaxpr = build.closed(build("sub", p, build("mul", 0.1, total)))
    graph = graph_of(jaxpr, (0, 0), compiles=compiles)
    assert ops(graph) == ["dot_general", "dot_general", "add", "update"]


def test_an_update_does_not_join_what_others_read() -> None:
    build = Builder(SIDE, SIDE)
    p, g = build.inputs
    scaled = build("mul", 0.1, g)
    total = build("reduce_sum", scaled, shape=(), axes=(0, 1))
    graph = graph_of(build.closed(build("sub", p, scaled), total), (0, 0))
    assert ops(graph) == ["mul", "reduce_sum", "sub"]


# -- work -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "factor"), [(8, 8 * 3 * 4 * 8**2), (4096, 2 * 4096**3)])
def test_the_cost_is_the_larger_one_of_operations_and_bytes(side: int, factor: int) -> None:
    build = Builder((side, side), (side, side))
    graph = graph_of(build.closed(build.product(*build.inputs)))
    assert graph.nodes[0].cost == factor
