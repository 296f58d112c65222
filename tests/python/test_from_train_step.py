"""Training steps of JAX: planned, and executed inside one arena."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from jax_arena import InArena

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches"))
steps = pytest.importorskip("training_steps")

KEY = jax.random.key(0)


def filled(args: Any, seed: int = 0) -> Any:
    """Return small random numbers in place of shapes."""
    rng = np.random.default_rng(seed)

    def content(leaf: Any) -> Any:
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(seed)
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jnp.asarray(rng.integers(0, 4, leaf.shape), leaf.dtype)
        return jnp.asarray(rng.uniform(0.01, 0.1, leaf.shape), leaf.dtype)

    return jax.tree.map(content, args)


def descend(loss: Any) -> Any:
    """Return a step of gradient descent."""

    def step(p: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(p, *batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, p, grads), value

    return step


P = jnp.ones((512, 512))


def test_a_donated_parameter_is_updated_where_it_is() -> None:
    step = descend(lambda p, x: jnp.sum(p * x))
    graph = ap.from_train_step(step, (P, P), donate=(0,), name="descent")
    assert graph.name == "descent"
    plan = ap.plan(graph)
    (state,) = (value.index for value in graph.values if value.kind == "state")
    ((new, into),) = graph.write_backs
    assert into == state
    assert plan.placements[new].offset == plan.placements[state].offset


def test_jit_says_what_is_donated() -> None:
    step = jax.jit(descend(lambda p, x: jnp.sum(p @ x)), donate_argnums=0)
    told, read = ap.from_train_step(step, (P, P)), ap.from_jaxpr(jax.make_jaxpr(step)(P, P))
    named = ap.from_train_step(step, (P, P), donate=[0])
    assert told.digest == named.digest == read.digest
    assert len(told.write_backs) == 1
    assert not ap.from_train_step(step, (P, P), donate=()).write_backs


def test_equal_results_of_a_step_replace_two_arguments() -> None:
    graph = ap.from_train_step(lambda p, q: (p + q,) * 2, (P, P), donate=(0, 1))
    assert len(graph.write_backs) == 2
    ap.plan(graph).check(graph)


def test_a_mapping_names_results() -> None:
    def step(p: Any, average: Any, g: Any) -> Any:
        p = p - g
        return 0.9 * average + 0.1 * p, p

    named = ap.from_train_step(step, (P, P, P), donate={0: 1, 1: 0})
    assert {named.nodes[i].op for i in range(len(named.nodes))} == {"sub", "update"}
    assert ap.plan(named).arena_bytes == 3 * P.nbytes


def test_shapes_are_enough() -> None:
    shape = jax.ShapeDtypeStruct(P.shape, P.dtype)
    step = descend(lambda p, x: jnp.sum(p @ x))
    graph, other = (ap.from_train_step(step, (x, x), donate=(0,)) for x in (shape, P))
    assert graph.digest == other.digest


@pytest.mark.parametrize(
    ("donate", "error", "message"),
    [
        ([2], IndexError, "no argument 2; there are 2"),
        ([True], TypeError, "argument True is not a whole number"),
        ({0: 7}, IndexError, "no result 7"),
        ({0: 1}, ValueError, "result 1 has not the structure"),
    ],
)
def test_wrong_positions_are_refused(donate: Any, error: type[Exception], message: str) -> None:
    step = descend(lambda p, x: jnp.sum(p * x))
    with pytest.raises(error, match=message):
        ap.from_train_step(step, (P, P), donate)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="'int' is not a function"):
        ap.from_train_step(7, ())  # type: ignore[arg-type]


def test_a_donated_batch_is_named_in_a_warning() -> None:
    step = descend(lambda p, x: jnp.sum(p @ x[:, :1]))
    graph = ap.from_train_step(step, (P, P[:, :4]), donate=(0, 1))
    (warning,) = graph.warnings
    assert "'x'" in warning or "batch" in warning


# -- steps that run inside one arena ---------------------------------------------------------------


def convolution() -> Any:
    """A small network with convolutions, a pool and statistics of a batch."""

    def loss(p: Any, x: Any, y: Any) -> Any:
        x = jax.nn.relu(steps.batch_norm(p["n"], steps.conv(p["w"], x)))
        x = steps.max_pool(x, 2, 2)
        x = steps.residual(p["block"], x, 2)
        return steps.cross_entropy(steps.dense(p["head"], jnp.mean(x, (1, 2))), y)

    p = {
        "w": steps.f32(3, 3, 1, 4), "n": steps.norm_shapes(4),
        "block": steps.residual_shapes(4, 8, 2, False), "head": steps.dense_shapes(8, 5),
    }  # fmt: skip
    return steps.with_adam(loss, p, steps.f32(2, 8, 8, 1), steps.i32(2))


SMALL = {
    "convolution": convolution,
    **{name: make for name, make in steps.OTHERS.items() if name != "checkpointed"},
}


@pytest.mark.parametrize("name", SMALL)
def test_steps_compute_the_same_inside_their_arena(name: str) -> None:
    """Two steps one after the other: the states that the first one leaves are those of the next."""
    step = SMALL[name]()
    args = filled(step.args)
    program = InArena(step.run, args, step.donate)
    for seed in (1, 2):
        batch = filled(step.args[2:], seed)
        expected = step.run(*args[:2], *batch)
        found = program.run(*batch)
        for a, b in zip(found, jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
        args = expected
