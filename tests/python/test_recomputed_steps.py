"""Training steps of JAX that no search was tuned on: plain and recomputed, inside their arenas."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from jax_arena import InArena
from raising import raises

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches"))
steps = pytest.importorskip("training_steps")
f32, i32 = steps.f32, steps.i32

SQUARE = f32(32, 32)


def filled(args: Any, seed: int) -> Any:
    """Return random numbers in place of shapes: small ones around zero, and positive scalars."""
    rng = np.random.default_rng(seed)

    def content(leaf: Any) -> Any:
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(seed)
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jnp.asarray(rng.integers(0, 4, leaf.shape), leaf.dtype)
        low = -0.3 if leaf.shape else 0.5
        return jnp.asarray(rng.uniform(low, 0.9 + low, leaf.shape), leaf.dtype)

    return jax.tree.map(content, args)


def efficient() -> Any:
    """Inverted bottlenecks with depthwise convolutions and squeezed gates."""

    def depthwise(w: Any, x: Any) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=layout, feature_group_count=x.shape[-1]
        )

    def loss(p: Any, x: Any, y: Any) -> Any:
        for b in p["blocks"]:
            h = jax.nn.silu(steps.batch_norm(b["n1"], steps.conv(b["up"], x)))
            h = jax.nn.silu(depthwise(b["deep"], h))
            gate = jax.nn.sigmoid(steps.dense(b["gate"], jnp.mean(h, (1, 2))))
            x = x + steps.conv(b["down"], h * gate[:, None, None, :])
        return steps.cross_entropy(steps.dense(p["head"], jnp.mean(x, (1, 2))), y)

    block = {
        "n1": steps.norm_shapes(16), "up": f32(1, 1, 8, 16), "deep": f32(3, 3, 1, 16),
        "gate": steps.dense_shapes(16, 16), "down": f32(1, 1, 16, 8),
    }  # fmt: skip
    p = {"blocks": [block] * 4, "head": steps.dense_shapes(8, 4)}
    return steps.with_adam(loss, p, f32(4, 12, 12, 8), i32(4))


def lstm() -> Any:
    """Two layers of an LSTM by scan, with a loss at every step."""

    def loss(p: Any, xs: Any, y: Any) -> Any:
        def layer(q: Any, xs: Any) -> Any:
            def cell(state: Any, x: Any) -> Any:
                h, c = state
                i, f, g, o = jnp.split(x @ q["x"] + h @ q["h"] + q["b"], 4, -1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                h = jax.nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), h

            zeros = jnp.zeros((8, 16))
            return lax.scan(cell, (zeros, zeros), xs)[1]

        return jnp.mean((layer(p["b"], layer(p["a"], xs)) - y) ** 2)

    cell = {"x": f32(16, 64), "h": f32(16, 64), "b": f32(64)}
    return steps.with_adam(loss, {"a": cell, "b": cell}, f32(12, 8, 16), f32(12, 8, 16))


def gated() -> Any:
    """A recurrent network that is unrolled, whose steps share their parameters."""

    def loss(p: Any, xs: Any) -> Any:
        h = jnp.zeros((16, 32))
        for x in xs:
            z = jax.nn.sigmoid(x @ p["zx"] + h @ p["zh"])
            h = z * h + (1 - z) * jnp.tanh(x @ p["x"] + (z * h) @ p["h"])
        return jnp.sum(h**2)

    return steps.with_momentum(loss, dict.fromkeys(("zx", "zh", "x", "h"), SQUARE), f32(8, 16, 32))


def dropout() -> Any:
    """Masks by keys that are split layer by layer."""

    def loss(p: Any, x: Any, key: Any) -> Any:
        for w in p:
            key, own = jax.random.split(key)
            x = x + jnp.where(jax.random.bernoulli(own, 0.8, x.shape), jnp.tanh(x @ w), 0) / 0.8
        return jnp.mean(x**2)

    key = jax.eval_shape(lambda: jax.random.key(0))
    return steps.with_adam(loss, [SQUARE] * 6, f32(64, 32), key)


def tied() -> Any:
    """A table of words that is read at both ends, and layers between."""

    def loss(p: Any, tokens: Any) -> Any:
        x = p["words"][tokens[:, :-1]]
        for w in p["layers"]:
            x = x + jax.nn.gelu(x @ w)
        return steps.cross_entropy(x @ p["words"].T, tokens[:, 1:])

    return steps.with_momentum(loss, {"words": f32(64, 32), "layers": [SQUARE] * 4}, i32(8, 17))


def accumulated() -> Any:
    """Gradients that scan adds up, over micro-batches."""

    def loss(p: Any, x: Any) -> Any:
        for w in p:
            x = jnp.tanh(x @ w)
        return jnp.sum(x**2)

    def run(p: Any, m: Any, batches: Any) -> Any:
        def add(total: Any, x: Any) -> Any:
            value, grads = jax.value_and_grad(loss)(p, x)
            return jax.tree.map(jnp.add, total, grads), value

        total, values = lax.scan(add, jax.tree.map(jnp.zeros_like, p), batches)
        m = jax.tree.map(lambda m, g: 0.9 * m + g / 4, m, total)
        return jax.tree.map(lambda p, m: p - 0.1 * m, p, m), m, jnp.mean(values)

    return steps.Step(run, ([SQUARE] * 4, [SQUARE] * 4, f32(4, 64, 32)))


def average_of_old() -> Any:
    """An average of parameters that reads the content from before the update."""

    def run(p: Any, average: Any, x: Any) -> Any:
        value, grads = jax.value_and_grad(steps.tanh_loss)(p, x)
        average = jax.tree.map(lambda a, p: 0.9 * a + 0.1 * p, average, p)
        return jax.tree.map(lambda p, g: p - 0.1 * g, p, grads), average, value

    return steps.Step(run, ([SQUARE] * 6, [SQUARE] * 6, f32(128, 32)))


def two_losses() -> Any:
    """A generator and a critic with an update each, from one forward pass."""

    def run(g: Any, d: Any, z: Any, real: Any) -> Any:
        chain = steps.tanh_chain
        dg = jax.grad(lambda g: -jnp.mean(chain(d, chain(g, z))))(g)
        dd = jax.grad(lambda d: jnp.mean(chain(d, chain(g, z))) - jnp.mean(chain(d, real)))(d)
        lower = lambda p, g: p - 0.01 * g  # noqa: E731
        return jax.tree.map(lower, g, dg), jax.tree.map(lower, d, dd)

    return steps.Step(run, ([SQUARE] * 5, [SQUARE] * 5, f32(96, 32), f32(96, 32)))


def clipped() -> Any:
    """Gradients that are clipped by their common norm: the peak is inside the optimizer."""

    def run(p: Any, state: Any, x: Any) -> Any:
        value, grads = jax.value_and_grad(steps.tanh_loss)(p, x)
        scale = 1 / jnp.sqrt(1 + sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
        return (*steps.adam_update(p, state, jax.tree.map(lambda g: g * scale, grads)), value)

    state = {"m": [SQUARE] * 6, "v": [SQUARE] * 6, "count": f32()}
    return steps.Step(run, ([SQUARE] * 6, state, f32(4, 32)))


def empty() -> Any:
    """A layer without units beside others."""

    def loss(p: Any, x: Any) -> Any:
        for w, none in zip(p["w"], p["none"], strict=True):
            x = jnp.tanh(jnp.concatenate([x @ w, x[:, :0] @ none], 1)[:, :32])
        return jnp.sum(x**2) * p["scale"]

    p = {"w": [SQUARE] * 5, "none": [f32(0, 3)] * 5, "scale": f32()}
    return steps.with_momentum(loss, p, f32(96, 32))


STEPS: dict[str, tuple[Callable[[], Any], float]] = {
    make.__name__: (make, part)
    for make, part in [
        (efficient, 0.6), (lstm, 1.0), (gated, 0.6), (dropout, 0.7), (tied, 0.8),
        (accumulated, 1.0), (average_of_old, 0.6), (two_losses, 0.7), (clipped, 1.0), (empty, 0.6),
    ]
}  # fmt: skip
"""Steps, each with a part of the bytes beside states that repetitions suffice for; 1 where a loop
or the optimizer decides."""


@pytest.mark.parametrize("name", STEPS)
def test_recomputed_steps_equal_plain_ones(name: str) -> None:
    """Two steps one after the other; the states that the first one leaves are those of the next."""
    make, part = STEPS[name]
    step = make()
    args = filled(step.args, 0)
    plain = InArena(step.run, args, step.donate)
    states = sum(
        plain.plan.placements[at].bytes for at in plain.states() if plain.plan.placements[at]
    )
    budget = states + int((plain.plan.arena_bytes - states) * part)
    programs = [plain]
    if part < 1:
        programs.append(InArena(step.run, args, step.donate, recompute=budget))
        plan = programs[1].plan
        assert plan.arena_bytes <= budget
        assert 0 <= plan.extra_bound <= plan.extra_cost < 1
    for seed in (1, 2):
        batch = filled(step.args[2:], seed)
        expected = jax.tree.leaves(step.run(*args[:2], *batch))
        found = [program.run(*batch) for program in programs]
        for results in found:
            for a, b in zip(results, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
        for other in found[1:]:
            for a, b in zip(found[0], other, strict=True):
                assert np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True)
        args = jax.tree.unflatten(jax.tree.structure(step.run(*args[:2], *batch)), found[0])


@pytest.mark.parametrize("name", ["gated", "empty", "average_of_old"])
def test_a_recomputed_step_without_its_repetition_is_refused(name: str) -> None:
    """A reader that comes to read an older instance would read bytes that others took over."""
    make, part = STEPS[name]
    step = make()
    graph = ap.from_train_step(step.run, step.args, step.donate)
    most = ap.plan(graph).arena_bytes
    plan = ap.plan(graph, recompute=int(most * (1 + part) / 2))
    assert plan.schedule is not None
    runs = [it for it in plan.schedule if isinstance(it, int)]
    again = [at for at, node in enumerate(runs) if node in runs[:at]]
    assert again
    for at in again:
        document = json.loads(plan.to_json())
        document["recomputed"]["schedule"] = [*runs[:at], *runs[at + 1 :]]
        with pytest.raises(ap.PlannerError):
            ap.Plan.from_json(json.dumps(document).encode()).check(graph)


# -- loops that are written out -----------------------------------------------------------------


def reversed_scan() -> Any:
    """Loops in both directions, one inside the other, with whole and stacked results."""

    def loss(p: Any, xs: Any) -> Any:
        def row(state: Any, x: Any) -> Any:
            state = jnp.tanh(state @ p["w"] + x)
            return state, (state, jnp.sum(state))

        def block(state: Any, part: Any) -> Any:
            state, (rows, sums) = lax.scan(row, state, part, reverse=True)
            return state + rows[0], sums * jnp.sum(rows)

        state, sums = lax.scan(block, jnp.zeros((16, 32)), xs)
        return jnp.sum(state**2) + jnp.sum(sums) / 1000

    return steps.with_momentum(loss, {"w": SQUARE}, f32(3, 5, 16, 32))


def keyed_scan() -> Any:
    """A key per round, and a loop that only counts."""

    def loss(p: Any, x: Any, key: Any) -> Any:
        def layer(x: Any, both: Any) -> Any:
            w, own = both
            return x + jnp.where(jax.random.bernoulli(own, 0.7, x.shape), jnp.sin(x @ w), 0), None

        x, _ = lax.scan(layer, x, (p, jax.random.split(key, 6)))
        count, _ = lax.scan(lambda n, _: (n + 1, None), 0.0, None, length=4)
        return jnp.mean(x**2) * count

    key = jax.eval_shape(lambda: jax.random.key(0))
    return steps.with_momentum(loss, f32(6, 32, 32), f32(64, 32), key)


LOOPS: dict[str, tuple[Callable[[], Any], float]] = {
    make.__name__: (make, part)
    for make, part in [(lstm, 0.6), (accumulated, 0.96), (reversed_scan, 0.85), (keyed_scan, 0.9)]
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_that_are_written_out_equal_loops(name: str) -> None:
    """Nodes of a loop's body run again one by one, which a loop as one node cannot offer."""
    make, part = LOOPS[name]
    step = make()
    args = filled(step.args, 0)
    looped = InArena(step.run, args, step.donate)
    plain = InArena(step.run, args, step.donate, (16, 0))
    assert any(node.op == "scan" for node in looped.graph.nodes)
    assert not any(node.op == "scan" for node in plain.graph.nodes)
    assert plain.plan.arena_bytes < looped.plan.arena_bytes
    assert {v.name for v in plain.graph.values if v.kind == "state"} == {
        v.name for v in looped.graph.values if v.kind == "state"
    }
    states = sum(plain.plan.placements[at].bytes for at in plain.states())
    budget = states + int((plain.plan.arena_bytes - states) * part)
    again = InArena(step.run, args, step.donate, (16, 0), recompute=budget)
    assert again.plan.arena_bytes <= budget
    assert 0 < again.plan.extra_cost < 1
    for seed in (1, 2):
        batch = filled(step.args[2:], seed)
        expected = jax.tree.leaves(step.run(*args[:2], *batch))
        found = [program.run(*batch) for program in (looped, plain, again)]
        for a, b, c, d in zip(*found, expected, strict=True):
            np.testing.assert_allclose(a, d, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(b, d, rtol=1e-5, atol=1e-5)
            assert np.array_equal(np.asarray(b), np.asarray(c), equal_nan=True)
        args = jax.tree.unflatten(jax.tree.structure(step.run(*args[:2], *batch)), found[1])


def test_only_loops_that_are_short_enough_are_written_out() -> None:
    step = reversed_scan()
    graphs = [
        ap.from_train_step(step.run, step.args, step.donate, unroll=most) for most in (0, 2, 3, 5)
    ]
    loops = [sum(node.op == "scan" for node in graph.nodes) for graph in graphs]
    assert loops[0] == loops[1] < loops[2]
    assert loops[3] == 0
    assert graphs[0].digest == graphs[1].digest
    for option in ("unroll", "segments"):
        with pytest.raises(ValueError, match=f"{option}: -1 is below 0"):
            ap.from_train_step(step.run, step.args, **{option: -1})
        with pytest.raises(TypeError, match=f"{option}: True is not a whole number"):
            ap.from_train_step(step.run, step.args, **{option: True})


def lstm_loss(p: Any, xs: Any, y: Any) -> Any:
    def cell(state: Any, x: Any) -> Any:
        h, c = state
        parts = jnp.concatenate([x, h], -1) @ p["w"] + p["b"]
        i, f, g, o = jnp.split(parts, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    zeros = jnp.zeros((xs.shape[1], y.shape[-1]))
    return jnp.mean((lax.scan(cell, (zeros, zeros), xs)[0][0] - y) ** 2)


def gru_loss(p: Any, xs: Any, y: Any) -> Any:
    def cell(h: Any, x: Any) -> Any:
        z, r = jnp.split(jax.nn.sigmoid(jnp.concatenate([x, h], -1) @ p["w"] + p["b"]), 2, -1)
        new = jnp.tanh(jnp.concatenate([x, r * h], -1) @ p["n"])
        return z * h + (1 - z) * new, None

    return jnp.mean((lax.scan(cell, jnp.zeros((xs.shape[1], y.shape[-1])), xs)[0] - y) ** 2)


def chain_loss(p: Any, xs: Any, y: Any) -> Any:
    """Rounds without operands of their own."""
    h, _ = lax.scan(lambda h, _: (jnp.tanh(h @ p["n"][:64]), None), xs[0], None, 128)
    return jnp.mean((h - y) ** 2)


@pytest.mark.parametrize("loss", [lstm_loss, gru_loss, chain_loss])
def test_long_loops_need_half_of_the_bytes_at_little_work(loss: Callable[..., Any]) -> None:
    """128 rounds at half of the temporary bytes: at most 15 % more work, equal results."""
    gates = {lstm_loss: 4, gru_loss: 2, chain_loss: 1}[loss] * 64
    p = {"w": f32(128, gates), "b": f32(gates), "n": f32(128, 64)}
    step = steps.with_momentum(loss, p, f32(128, 32, 64), f32(32, 64))
    graphs = [
        ap.from_train_step(step.run, step.args, step.donate, segments=count) for count in (0, 1, 16)
    ]
    works = [sum(node.cost for node in graph.nodes) for graph in graphs]
    half = ap.plan(graphs[0], inputs="caller").arena_bytes // 2
    with raises("RecomputeExceeded"):
        ap.plan(graphs[0], inputs="caller", recompute=half)
    plan = ap.plan(graphs[2], inputs="caller", recompute=half)
    assert plan.arena_bytes <= half
    assert (1 + plan.extra_cost) * works[2] <= 1.15 * works[0]
    args = filled(step.args, 0)
    expected = jax.tree.leaves(step.run(*args))
    for count, options in ((1, {}), (16, {}), (16, {"recompute": "10%"})):
        found = InArena(step.run, args, step.donate, (0, count), **options)
        for a, b in zip(found.run(*args[2:]), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_all_kinds_are_cut(name: str) -> None:
    """Loops in both directions, with keys, with results that others read, in uneven parts."""
    step = LOOPS[name][0]()
    args = filled(step.args, 0)
    expected = jax.tree.leaves(step.run(*args))
    whole = InArena(step.run, args, step.donate).plan.arena_bytes
    for count in (1, 2, 3):
        found = InArena(step.run, args, step.donate, (0, count))
        assert count > 1 or found.plan.arena_bytes <= whole
        for a, b in zip(found.run(*args[2:]), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
