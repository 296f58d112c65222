"""JAX programs, with jaxprs inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.formats.jaxpr import jaxpr_walk as walk
from arenaplan.formats.jaxpr.jaxpr_operators import BODIES, CALLS, OPERATORS
from arenaplan.graph.ops import ELEMENTWISE, FIRST_OPERAND
from jax_arena import InArena
from raising import raises

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax


def read(function: Callable[..., Any], *args: Any, **options: Any) -> ap.Graph:
    return ap.from_jaxpr(jax.make_jaxpr(function)(*args), **options)


def ops(graph: ap.Graph) -> list[str]:
    return [node.op for node in graph.nodes]


X = jnp.arange(64, dtype=jnp.float32).reshape(4, 16)


def test_a_chain_is_read_in_order_and_runs_in_place() -> None:
    graph = read(lambda x: jnp.tanh(-jnp.sin(x)), X)
    assert ops(graph) == ["sin", "neg", "tanh"]
    assert [graph.values[i].name for i in graph.inputs] == ["x"]
    assert ap.plan(graph, target="ideal").arena_bytes == 512


def test_what_a_function_closes_over_is_constant() -> None:
    weights = jnp.ones((16, 16))
    graph = read(lambda x: x @ (weights.T * 2), X)
    assert ops(graph) == ["dot_general"]
    assert ap.plan(graph, target="ideal").arena_bytes == 512


def test_parameters_can_be_declared_constant() -> None:
    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ w) ** 2)

    jaxpr = jax.make_jaxpr(jax.value_and_grad(loss))(jnp.ones((16, 16)), X)
    with_weights, without = ap.from_jaxpr(jaxpr), ap.from_jaxpr(jaxpr, constants=[0])
    assert without.find("w").kind == "constant"
    bytes_with, bytes_without = (
        ap.plan(graph, inputs="keep", target="ideal").arena_bytes
        for graph in (with_weights, without)
    )
    assert bytes_with == bytes_without + 1024
    for position in (2, -1):
        with pytest.raises(IndexError, match=f"no input {position}"):
            ap.from_jaxpr(jaxpr, constants=[position])


# -- calls -----------------------------------------------------------------------------


@jax.custom_jvp
def with_jvp(x: Any) -> Any:
    return jnp.exp(jnp.sin(x))


with_jvp.defjvp(lambda primals, tangents: (with_jvp(*primals), tangents[0]))


@jax.custom_vjp
def with_vjp(x: Any) -> Any:
    return jnp.exp(jnp.sin(x))


with_vjp.defvjp(lambda x: (with_vjp(x), x), lambda _, gradient: (gradient,))


def plain(x: Any) -> Any:
    return jnp.exp(jnp.sin(x))


@pytest.mark.parametrize(
    "function", [jax.jit(plain), jax.jit(jax.jit(plain)), jax.checkpoint(plain), with_jvp, with_vjp]
)
def test_functions_that_are_called_are_read_in_their_place(function: Callable[..., Any]) -> None:
    graph, flat = (
        read(lambda x: jnp.cos(function(x)) + function(2 * x), X),
        read(lambda x: jnp.cos(plain(x)) + plain(2 * x), X),
    )
    assert graph.digest == flat.digest


# -- equal equations -------------------------------------------------------------------


@pytest.mark.parametrize("function", [plain, jax.jit(plain), with_jvp, with_vjp])
def test_equal_equations_are_one_node(function: Callable[..., Any]) -> None:
    once, twice = (read(lambda x, k=k: [function(x)] * k, X) for k in (1, 2))
    assert once.digest == twice.digest
    assert ops(read(lambda x: jnp.cos(function(x)) + function(x), X)) == [
        "sin",
        "exp",
        "cos",
        "add",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x + 0.0, lambda x: x + -0.0),
        (lambda x: x + jnp.float32(1), lambda x: x + jnp.float32(2)),
        (lambda x: jnp.sum(x, 0), lambda x: jnp.sum(x, 1)),
        (lambda x: x.astype(jnp.bfloat16), lambda x: x.astype(jnp.float16)),
        (lambda x: x - 2 * x, lambda x: 2 * x - x),
    ],
)
def test_equations_that_differ_are_two_nodes(one: Any, other: Any) -> None:
    count = len(read(one, X).nodes)
    assert len(read(lambda x: (one(x), other(x)), X).nodes) > count
    assert len(read(lambda x: (one(x), one(x)), X).nodes) == count


def test_equations_that_run_again_on_purpose_are_nodes_of_their_own() -> None:
    """Bodies of ``jax.checkpoint``, operands behind barriers, and effects."""
    again = jax.checkpoint(plain)
    assert ops(read(lambda x: (plain(x), again(x), again(x)), X)).count("sin") == 3
    assert ops(read(lambda x: again(x) + again(2 * x), X)).count("sin") == 2
    twice = jax.checkpoint(lambda x: jnp.cos(jnp.sin(x)) + jnp.sin(x))
    assert ops(read(lambda x: (jnp.sin(x), twice(x)), X)).count("sin") == 2

    def loss(x: Any) -> Any:
        return jnp.sum(jnp.exp(jnp.sin(x)))

    assert ops(read(jax.value_and_grad(loss), X)).count("sin") == 1
    assert ops(read(jax.value_and_grad(jax.checkpoint(loss)), X)).count("sin") == 2

    def behind(x: Any) -> Any:
        return (
            jnp.sin(x),
            jnp.sin(lax.optimization_barrier(x)),
            jnp.sin(lax.optimization_barrier(x)),
        )

    assert ops(read(behind, X)).count("sin") == 3

    def tell(x: Any) -> Any:
        jax.debug.callback(lambda _: None, x)
        jax.debug.callback(lambda _: None, x)
        return x

    assert ops(read(tell, X)).count("debug_callback") == 2


def test_results_that_are_operands_need_no_bytes() -> None:
    swap = jax.jit(lambda x, y: (y, x, 1.0))
    graph = read(lambda x: swap(x, jnp.sin(x))[:2], X)
    assert ops(graph) == ["sin"]
    assert graph.outputs == [1, 0]


def test_functions_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def nested(depth: int) -> Callable[..., Any]:
        return jax.jit(lambda x: nested(depth - 1)(x) if depth else jnp.sin(x))

    assert ops(read(nested(20), X)) == ["sin"]
    monkeypatch.setattr(walk, "_DEEPEST", 20)
    with raises("NestingTooDeep"):
        read(nested(20), X)


# -- loops and branches ----------------------------------------------------------------


def inner(graph: ap.Graph) -> dict[str, int]:
    """Return the bytes that bodies need, by primitive."""
    return {
        value.name.split(":")[0]: value.shape[0]
        for value in graph.values
        if value.name.endswith(".inner")
    }


@pytest.mark.parametrize("primitive", ["slice", "dynamic_slice", "gather"])
def test_a_part_costs_what_it_reads(primitive: str) -> None:
    """8 units of work per byte: a row of 1,024 numbers is read and written, and the rest is not."""
    functions: dict[str, Callable[..., Any]] = {
        "slice": lambda x: x[3:4] * 2,
        "dynamic_slice": lambda x: lax.dynamic_slice(x, (jnp.int32(3), 0), (1, 1024)) * 2,
        "gather": lambda x: x[jnp.array([3])] * 2,
    }
    whole, row = jnp.ones((4096, 1024)), 4096
    jaxpr = jax.make_jaxpr(functions[primitive])(whole)
    assert primitive in str(jaxpr)
    costs = [node.cost for node in ap.from_jaxpr(jaxpr).nodes]
    assert 2 * 8 * row <= sum(costs) < 16 * 8 * row


def test_a_loop_needs_the_bytes_of_its_body_once() -> None:
    def body(carry: Any, x: Any) -> tuple[Any, Any]:
        return jnp.cumsum(carry + x), jnp.sum(carry)

    graph = read(lambda x: lax.scan(body, x[0] * 2, x), X)
    # Inside: two arrays, of which the first makes room for a number.
    assert inner(graph) == {"scan": 64 + 64}
    (scan,) = (node for node in graph.nodes if node.op == "scan")
    assert scan.effects.in_place == ((0, 0, False),)
    longer = read(lambda x: lax.scan(body, x[0] * 2, x), jnp.tile(X, (9, 1)))
    assert inner(longer) == inner(graph)


def test_branches_need_the_bytes_of_the_largest() -> None:
    def large(x: Any) -> Any:
        return jnp.sum(jnp.outer(x, x) @ jnp.outer(x, -x), 1)

    graph = read(lambda x: lax.cond(x[0, 0] > 0, large, jnp.sin, x[0] * 2), X)
    assert inner(graph) == {"cond": 3 * 1024}
    plan = ap.plan(graph, target="ideal")
    assert plan.arena_bytes >= 3 * 1024
    assert graph.nodes[plan.order[plan.peak_step]].op == "cond"


def test_a_loop_without_end_needs_its_condition_too() -> None:
    def condition(state: Any) -> Any:
        square = jnp.outer(state[1], state[1])
        return jnp.max(square @ square.T) < 9

    graph = read(
        lambda x: lax.while_loop(condition, lambda s: (s[0] + 1, s[1] * 2), (0, x[0] * 2)), X
    )
    # The condition: an outer product, and its product with itself.
    assert inner(graph) == {"while": 2 * 1024}
    (loop,) = (node for node in graph.nodes if node.op == "while")
    assert [tuple(pair)[:2] for pair in loop.effects.in_place] == [(1, 1)]


def test_what_a_loop_reads_again_is_not_overwritten() -> None:
    """What is carried starts in the bytes that each step reads as well."""

    def function(x: Any) -> Any:
        y = jnp.sin(x)
        return lax.scan(lambda carry, row: (carry * row[0], None), y, y)[0]

    graph = read(function, X)
    (scan,) = (node for node in graph.nodes if node.op == "scan")
    assert scan.inputs[0] == scan.inputs[1]
    plan = ap.plan(graph, target="ideal")
    # Input and sine, then sine, result and body.
    assert plan.arena_bytes >= 3 * 256


def test_loops_inside_loops_are_planned() -> None:
    def function(x: Any) -> Any:
        def outer(carry: Any, row: Any) -> tuple[Any, None]:
            return lax.fori_loop(0, 3, lambda _, y: jnp.outer(y, y) @ y, carry + row), None

        return lax.scan(outer, x[0], x)[0]

    assert inner(read(function, X))["scan"] >= 1024


def test_operations_made_of_small_functions_are_ordinary_nodes() -> None:
    graph = read(
        lambda x: (
            x.at[0].add(1.0),
            lax.reduce(x, np.float32(1), lambda a, b: a * b + 1, (0,)),
            lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID"),
        ),
        X,
    )
    assert inner(graph) == {}
    assert any(op.startswith("scatter") for op in ops(graph))


def test_linear_systems_are_planned() -> None:
    graph = read(lambda x: jnp.linalg.solve(x @ x.T + jnp.eye(4), x[:, 0]), X)
    assert ap.plan(graph, target="ideal").status == "optimal"


# -- what primitives do ----------------------------------------------------------------


VIEWS: dict[str, tuple[Callable[..., Any], int]] = {
    "reshape": (lambda x: x.reshape(8, 8), 0),
    "expand_dims": (lambda x: x[None, :, None], 0),
    "squeeze": (lambda x: jnp.squeeze(x[None], 0), 0),
    "a transpose of a row": (lambda x: x.reshape(1, 64).T, 0),
    "rows": (lambda x: x[1:3], 64),
    "a row": (lambda x: lax.squeeze(lax.slice(x, (2, 0), (3, 16)), (0,)), 128),
    "part of a row": (lambda x: lax.slice(x.reshape(1, 64), (0, 5), (1, 9)), 20),
    "all": (lambda x: lax.slice(x, (0, 0), (4, 16)), 0),
    "bits": (lambda x: lax.bitcast_convert_type(x, jnp.int32), 0),
    "copy": (jnp.copy, 0),
    "stop_gradient": (lax.stop_gradient, 0),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_show_the_bytes_of_their_operands(name: str) -> None:
    function, offset = VIEWS[name]
    graph = read(lambda x: function(jnp.negative(x)), X)
    assert all(node.effects.views for node in graph.nodes[1:])
    assert sum(node.effects.views[0].offset for node in graph.nodes[1:]) == offset
    content = np.asarray(-X).tobytes()
    result = np.asarray(function(-X)).tobytes()
    assert content[offset : offset + len(result)] == result


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.T,
        lambda x: x[:, 1:3],
        lambda x: x[::2],
        lambda x: x[::-1],
        lambda x: lax.dynamic_slice(x, (x[0, 0].astype(int), 0), (2, 16)),
        lambda x: jnp.broadcast_to(x[:, :1], (4, 16)),
        lambda x: jnp.concatenate([x, x], 1),
    ],
)
def test_what_moves_elements_is_no_view(function: Callable[..., Any]) -> None:
    graph = read(lambda x: function(jnp.negative(x)), X)
    assert not graph.nodes[-1].effects.views
    assert not graph.nodes[-1].effects.in_place


def test_operands_of_a_concatenation_are_pieces_of_it() -> None:
    graph = read(lambda x: jnp.concatenate([jnp.sin(x), jnp.cos(x[:1])]), X)
    views = graph.nodes[-1].effects.views
    assert [(view.input, view.offset, view.of) for view in views] == [
        (0, 0, "output"), (1, 256, "output"),
    ]  # fmt: skip


def test_pieces_of_a_split_are_views() -> None:
    graph = read(lambda x: [-part for part in lax.split(x * 2, (1, 3))], X)
    (node,) = (node for node in graph.nodes if node.op == "split")
    assert [view.offset for view in node.effects.views] == [0, 64]


def test_an_updated_array_stays_where_it_is() -> None:
    graph = read(lambda x: lax.dynamic_update_slice(x * 2, jnp.ones((1, 16)), (1, 0)), X)
    assert ap.plan(graph, target="ideal").arena_bytes == 512


def test_narrow_types_are_not_written_over_by_wide_ones() -> None:
    graph = read(lambda x: (x * 2).astype(jnp.bfloat16).astype(jnp.float32), X)
    assert [bool(node.effects.in_place) for node in graph.nodes] == [True, True, False]


def test_keys_of_random_numbers_have_bytes() -> None:
    graph = read(lambda key: jax.random.normal(key, (8,)), jax.random.key(0))
    assert graph.find("key").shape == (8,)
    assert graph.find("key").dtype == "uint8"


def test_numbers_can_be_results() -> None:
    graph = read(lambda x: (jnp.sin(x), 1.0), X)
    assert len(graph.outputs) == 2


def test_equal_programs_give_equal_graphs() -> None:
    def function(x: Any) -> Any:
        return jax.nn.softmax(jax.nn.gelu(x) @ x.T) + lax.map(jnp.sum, x)

    assert read(function, X).digest == read(function, X).digest


def test_the_tables_name_what_jax_has() -> None:
    import jax.extend.core as core

    known = {value.name for value in vars(core.primitives).values() if hasattr(value, "name")}
    assert len(known & set(OPERATORS)) > 80
    assert known & set(CALLS)
    assert known & set(BODIES) >= {"cond", "scan", "while"}


def test_what_may_be_overwritten_is_read_element_by_element() -> None:
    """Another number at one place changes the result there and nowhere else."""
    known = (ELEMENTWISE, FIRST_OPERAND)
    names = [name for name, op in OPERATORS.items() if op in known and hasattr(lax, name)]
    rng = np.random.default_rng(0)
    floats = [rng.uniform(0.1, 0.9, (2, 5)).astype(np.float32) for _ in range(3)]
    integers = [rng.integers(1, 7, (2, 5)).astype(np.int32) for _ in range(3)]
    booleans = [array > 3 for array in integers]
    tried = set()
    for name in names:
        for operands in (floats, integers, booleans):
            for count in (1, 2, 3):
                args = [jnp.asarray(array) for array in operands[:count]]
                try:
                    before = np.asarray(getattr(lax, name)(*args))
                except (TypeError, ValueError):
                    continue
                changed = [args[0].at[1, 2].set(args[0][0, 0]), *args[1:]]
                after = np.asarray(getattr(lax, name)(*changed))
                differs = (after != before) & ((after == after) | (before == before))
                differs[1, 2] = False
                assert not differs.any(), name
                tried.add(name)
    assert len(tried) > 55


# -- running inside the arena ----------------------------------------------------------


def network(x: Any) -> Any:
    y = jax.nn.gelu(x @ jnp.ones((16, 16))).at[1:3].multiply(2.0)
    carry, rows = lax.scan(lambda c, row: (c + row, jnp.tanh(c * row)), y[0], y)
    z = lax.cond(carry[0] > 0, jnp.sin, lambda a: a * 2, rows)
    z = lax.fori_loop(0, 3, lambda i, a: a * 0.5 + i, z)
    parts = lax.split(z, (1, 3))
    joined = jnp.concatenate([jnp.exp(-jnp.abs(parts[1])), parts[0]])
    return jax.nn.softmax(joined.reshape(2, 2, 16).transpose(1, 0, 2)), with_jvp(z).T, joined[1:]


@pytest.mark.parametrize(
    "function", [network, plain, lambda x: jax.grad(lambda a: jnp.sum(network(a)[0] ** 2))(x)]
)
def test_a_program_computes_the_same_inside_its_arena(function: Callable[..., Any]) -> None:
    x = X / 64 - 0.5
    expected = jax.tree.leaves(function(x))
    program = InArena(function, (x,), (), optimize="views,in-place,elision", target="ideal")
    found = program.run(x)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


# -- what is refused -------------------------------------------------------------------


def test_what_is_no_closed_jaxpr_is_refused() -> None:
    with pytest.raises(TypeError, match="'function' is not a ClosedJaxpr"):
        ap.from_jaxpr(lambda x: x)
    with pytest.raises(TypeError, match="'Jaxpr' is not a ClosedJaxpr"):
        ap.from_jaxpr(jax.make_jaxpr(jnp.sin)(X).jaxpr)


def test_symbolic_dimensions_are_refused() -> None:
    from jax import export

    (symbol,) = export.symbolic_shape("n")
    argument = jax.ShapeDtypeStruct((symbol, 4), jnp.float32)
    with pytest.raises(errors.UnboundDim, match="'x' is 'n'"):
        read(lambda x: jnp.sin(x), argument)


def test_programs_over_several_devices_are_refused() -> None:
    if not hasattr(jax, "shard_map"):
        pytest.skip("this version of JAX has no shard_map")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    spec = jax.sharding.PartitionSpec("d")
    function = jax.shard_map(jnp.sin, mesh=mesh, in_specs=spec, out_specs=spec)
    with pytest.raises(errors.UnsupportedSubgraph, match="shard_map"):
        read(function, X)


def test_references_are_refused() -> None:
    if not hasattr(jax, "new_ref"):
        pytest.skip("this version of JAX has no references")

    def function(x: Any) -> Any:
        ref = jax.new_ref(x)
        ref[0] = x[1]
        return ref[...]

    with pytest.raises(errors.UnsupportedOp, match="reference"):
        read(function, X)
