"""
Compares arenas of whole training steps with the temporary memory of XLA's CPU compiler.

Every step is written with ``jax.numpy`` alone, has its parameters and optimizer states donated, and
is traced from shapes; XLA compiles the same function. Run it with JAX installed::

    python benches/training_steps.py [--no-xla] [--others] [STEP ...]

Columns, in MiB: the temporary memory is what remains of the arena without donated states and
inputs; XLA's is ``memory_analysis().temp_size_in_bytes``. The geometric mean of their ratio is
printed last. ``--others`` takes steps with unusual parts: loops, random numbers, tied embeddings.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

import arenaplan as ap

MIB = 1 << 20


class Step(NamedTuple):
    """A training step and the shapes of its arguments; parameters and states come first."""

    run: Callable[..., Any]
    args: tuple[Any, ...]
    donate: tuple[int, ...] = (0, 1)


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


# -- layers ---------------------------------------------------------------------------------------


def dense(p: Any, x: Any) -> Any:
    return x @ p["w"] + p["b"]


def dense_shapes(n: int, m: int) -> Any:
    return {"w": f32(n, m), "b": f32(m)}


def norm(p: Any, x: Any) -> Any:
    """Normalize over the last dimension."""
    mean = jnp.mean(x, -1, keepdims=True)
    centered = x - mean
    scale = lax.rsqrt(jnp.mean(centered**2, -1, keepdims=True) + 1e-5)
    return centered * scale * p["g"] + p["b"]


def norm_shapes(n: int) -> Any:
    return {"g": f32(n), "b": f32(n)}


def batch_norm(p: Any, x: Any) -> Any:
    """Normalize each channel of images (N, H, W, C) with the statistics of the batch."""
    mean = jnp.mean(x, (0, 1, 2))
    var = jnp.mean(x * x, (0, 1, 2)) - mean * mean
    return (x - mean) * (lax.rsqrt(var + 1e-5) * p["g"]) + p["b"]


def conv(w: Any, x: Any, stride: int = 1) -> Any:
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def max_pool(x: Any, size: int, stride: int) -> Any:
    window, strides = (1, size, size, 1), (1, stride, stride, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, "SAME")


def cross_entropy(logits: Any, labels: Any) -> Any:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -jnp.mean(chosen)


def attention(p: Any, x: Any, heads: int, causal: bool) -> Any:
    b, t, d = x.shape
    q, k, v = (
        dense(p[name], x).reshape(b, t, heads, d // heads).transpose(0, 2, 1, 3) for name in "qkv"
    )
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(d // heads)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
    mixed = jax.nn.softmax(scores) @ v
    return dense(p["o"], mixed.transpose(0, 2, 1, 3).reshape(b, t, d))


def block(p: Any, x: Any, heads: int, causal: bool) -> Any:
    x = x + attention(p["attention"], norm(p["n1"], x), heads, causal)
    return x + dense(p["down"], jax.nn.gelu(dense(p["up"], norm(p["n2"], x))))


def block_shapes(d: int) -> Any:
    return {
        "attention": {name: dense_shapes(d, d) for name in "qkvo"},
        "n1": norm_shapes(d), "n2": norm_shapes(d),
        "up": dense_shapes(d, 4 * d), "down": dense_shapes(4 * d, d),
    }  # fmt: skip


# -- optimizers -----------------------------------------------------------------------------------


def momentum(loss: Callable[..., Any], p: Any, m: Any, *batch: Any) -> Any:
    value, grads = jax.value_and_grad(loss)(p, *batch)
    m = jax.tree.map(lambda m, g: 0.9 * m + g, m, grads)
    return jax.tree.map(lambda p, m: p - 0.01 * m, p, m), m, value


def adam(loss: Callable[..., Any], p: Any, state: Any, *batch: Any) -> Any:
    value, grads = jax.value_and_grad(loss)(p, *batch)
    return (*adam_update(p, state, grads), value)


def adam_update(p: Any, state: Any, grads: Any) -> Any:
    count = state["count"] + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state["v"], grads)
    c1, c2 = 1 - 0.9**count, 1 - 0.999**count
    p = jax.tree.map(lambda p, m, v: p - 1e-3 * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), p, m, v)
    return p, {"m": m, "v": v, "count": count}


def with_momentum(loss: Any, p: Any, *batch: Any) -> Step:
    return Step(partial(momentum, loss), (p, p, *batch))


def with_adam(loss: Any, p: Any, *batch: Any) -> Step:
    return Step(partial(adam, loss), (p, {"m": p, "v": p, "count": f32()}, *batch))


# -- the seven steps ------------------------------------------------------------------------------


def mlp() -> Step:
    def loss(p: Any, x: Any, y: Any) -> Any:
        for layer in p[:-1]:
            x = jax.nn.relu(dense(layer, x))
        return cross_entropy(dense(p[-1], x), y)

    p = [dense_shapes(784, 512), *(dense_shapes(512, 512) for _ in range(6)), dense_shapes(512, 10)]
    return with_momentum(loss, p, f32(256, 784), i32(256))


def residual(p: Any, x: Any, stride: int) -> Any:
    """A basic block of a ResNet, or a bottleneck if it has a third convolution."""
    y, last = x, 3 if "w3" in p else 2
    for i in range(1, last + 1):
        y = batch_norm(p[f"n{i}"], conv(p[f"w{i}"], y, stride if i == last - 1 else 1))
        y = jax.nn.relu(y) if i < last else y
    if "w0" in p:
        x = batch_norm(p["n0"], conv(p["w0"], x, stride))
    return jax.nn.relu(x + y)


def residual_shapes(n: int, m: int, stride: int, bottleneck: bool) -> Any:
    if bottleneck:
        widths, sizes = [n, m, m, 4 * m], [1, 3, 1]
    else:
        widths, sizes = [n, m, m], [3, 3]
    p = {}
    for i, size in enumerate(sizes, 1):
        p[f"w{i}"], p[f"n{i}"] = f32(size, size, widths[i - 1], widths[i]), norm_shapes(widths[i])
    if stride > 1 or n != widths[-1]:
        p["w0"], p["n0"] = f32(1, 1, n, widths[-1]), norm_shapes(widths[-1])
    return p


def resnet(counts: tuple[int, ...], bottleneck: bool, batch: int) -> Step:
    strides, blocks, n = [], [], 64
    for stage, count in enumerate(counts):
        for i in range(count):
            strides.append(2 if stage and not i else 1)
            blocks.append(residual_shapes(n, 64 << stage, strides[-1], bottleneck))
            n = (64 << stage) * (4 if bottleneck else 1)

    def loss(p: Any, x: Any, y: Any) -> Any:
        x = jax.nn.relu(batch_norm(p["n"], conv(p["w"], x, 2)))
        x = max_pool(x, 3, 2)
        for part, stride in zip(p["blocks"], strides, strict=True):
            x = residual(part, x, stride)
        return cross_entropy(dense(p["head"], jnp.mean(x, (1, 2))), y)

    p = {"w": f32(7, 7, 3, 64), "n": norm_shapes(64), "blocks": blocks}
    return with_momentum(
        loss, p | {"head": dense_shapes(n, 1000)}, f32(batch, 224, 224, 3), i32(batch)
    )


def unet(batch: int = 4, size: int = 256, width: int = 32, depth: int = 4) -> Step:
    def pair(p: Any, x: Any) -> Any:
        x = jax.nn.relu(batch_norm(p["n1"], conv(p["w1"], x)))
        return jax.nn.relu(batch_norm(p["n2"], conv(p["w2"], x)))

    def shapes(n: int, m: int) -> Any:
        return {
            "w1": f32(3, 3, n, m), "n1": norm_shapes(m), "w2": f32(3, 3, m, m), "n2": norm_shapes(m)
        }  # fmt: skip

    def loss(p: Any, x: Any, y: Any) -> Any:
        kept = []
        for part in p["down"]:
            x = pair(part, x)
            kept.append(x)
            x = max_pool(x, 2, 2)
        x = pair(p["middle"], x)
        for part, skip in zip(p["up"], kept[::-1], strict=True):
            b, h, w, c = x.shape
            x = jnp.broadcast_to(x[:, :, None, :, None], (b, h, 2, w, 2, c))
            x = pair(part, jnp.concatenate([x.reshape(b, 2 * h, 2 * w, c), skip], -1))
        return cross_entropy(conv(p["head"], x), y)

    down = [shapes(3 if not i else width << (i - 1), width << i) for i in range(depth)]
    up = [shapes((width << i) * 3, width << i) for i in reversed(range(depth))]
    p = {"down": down, "middle": shapes(width << (depth - 1), width << depth), "up": up}
    p["head"] = f32(1, 1, width, 4)
    return with_adam(loss, p, f32(batch, size, size, 3), i32(batch, size, size))


def gpt(layers: int = 6, d: int = 384, batch: int = 4, t: int = 256, words: int = 8192) -> Step:
    def loss(p: Any, tokens: Any) -> Any:
        x = p["words"][tokens[:, :-1]] + p["places"]
        for part in p["blocks"]:
            x = block(part, x, 6, causal=True)
        return cross_entropy(norm(p["n"], x) @ p["head"], tokens[:, 1:])

    p = {
        "words": f32(words, d), "places": f32(t, d), "n": norm_shapes(d), "head": f32(d, words),
        "blocks": [block_shapes(d) for _ in range(layers)],
    }  # fmt: skip
    return with_adam(loss, p, i32(batch, t + 1))


def vgg(batch: int = 8) -> Step:
    stages = [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]

    def loss(p: Any, x: Any, y: Any) -> Any:
        layers = iter(p["convs"])
        for _, count in stages:
            for _ in range(count):
                part = next(layers)
                x = jax.nn.relu(conv(part["w"], x) + part["b"])
            x = max_pool(x, 2, 2)
        x = x.reshape(batch, -1)
        for part in p["dense"][:-1]:
            x = jax.nn.relu(dense(part, x))
        return cross_entropy(dense(p["dense"][-1], x), y)

    convs, n = [], 3
    for m, count in stages:
        for _ in range(count):
            convs.append({"w": f32(3, 3, n, m), "b": f32(m)})
            n = m
    heads = [dense_shapes(25088, 4096), dense_shapes(4096, 4096), dense_shapes(4096, 1000)]
    return with_momentum(
        loss, {"convs": convs, "dense": heads}, f32(batch, 224, 224, 3), i32(batch)
    )


def mixer(layers: int = 8, d: int = 512, batch: int = 16) -> Step:
    places = 196

    def mix(p: Any, x: Any) -> Any:
        return dense(p["down"], jax.nn.gelu(dense(p["up"], x)))

    def loss(p: Any, x: Any, y: Any) -> Any:
        x = x.reshape(batch, 14, 16, 14, 16, 3).transpose(0, 1, 3, 2, 4, 5)
        x = dense(p["stem"], x.reshape(batch, places, 768))
        for part in p["blocks"]:
            y1 = norm(part["n1"], x).transpose(0, 2, 1)
            x = x + mix(part["tokens"], y1).transpose(0, 2, 1)
            x = x + mix(part["channels"], norm(part["n2"], x))
        return cross_entropy(dense(p["head"], jnp.mean(norm(p["n"], x), 1)), y)

    def shapes(n: int, m: int) -> Any:
        return {"up": dense_shapes(n, m), "down": dense_shapes(m, n)}

    blocks = [
        {
            "n1": norm_shapes(d), "n2": norm_shapes(d),
            "tokens": shapes(places, 256), "channels": shapes(d, 2048),
        }
        for _ in range(layers)
    ]  # fmt: skip
    p = {"stem": dense_shapes(768, d), "blocks": blocks, "n": norm_shapes(d)}
    return with_adam(loss, p | {"head": dense_shapes(d, 1000)}, f32(batch, 224, 224, 3), i32(batch))


def bert(layers: int = 12, d: int = 768, batch: int = 8, t: int = 128) -> Step:
    def loss(p: Any, tokens: Any, y: Any) -> Any:
        x = norm(p["n"], p["words"][tokens] + p["places"])
        for part in p["blocks"]:
            x = block(part, x, 12, causal=False)
        return cross_entropy(x @ p["words"].T, y)

    p = {
        "words": f32(30522, d), "places": f32(t, d), "n": norm_shapes(d),
        "blocks": [block_shapes(d) for _ in range(layers)],
    }  # fmt: skip
    return with_adam(loss, p, i32(batch, t), i32(batch, t))


STEPS: dict[str, Callable[[], Step]] = {
    "mlp": mlp,
    "resnet18": partial(resnet, (2, 2, 2, 2), False, 8),
    "unet": unet,
    "gpt": gpt,
    "vgg16": vgg,
    "resnet50": partial(resnet, (3, 4, 6, 3), True, 8),
    "mixer": mixer,
    "bert": bert,
}

# -- steps with unusual parts ---------------------------------------------------------------------


def tanh_loss(p: Any, x: Any) -> Any:
    for w in p:
        x = jnp.tanh(x @ w)
    return jnp.sum(x**2)


SQUARES = [f32(256, 256)] * 6


def accumulation() -> Step:
    """Gradients of four micro-batches, unrolled."""

    def run(p: Any, m: Any, batches: Any) -> Any:
        total, value = jax.tree.map(jnp.zeros_like, p), 0.0
        for x in batches:
            loss, grads = jax.value_and_grad(tanh_loss)(p, x)
            total, value = jax.tree.map(jnp.add, total, grads), value + loss
        m = jax.tree.map(lambda m, g: 0.9 * m + g / 4, m, total)
        return jax.tree.map(lambda p, m: p - 0.1 * m, p, m), m, value

    return Step(run, (SQUARES, SQUARES, f32(4, 128, 256)))


def accumulation_by_scan() -> Step:
    def run(p: Any, m: Any, batches: Any) -> Any:
        def add(total: Any, x: Any) -> Any:
            loss, grads = jax.value_and_grad(tanh_loss)(p, x)
            return jax.tree.map(jnp.add, total, grads), loss

        total, losses = lax.scan(add, jax.tree.map(jnp.zeros_like, p), batches)
        m = jax.tree.map(lambda m, g: 0.9 * m + g / 4, m, total)
        return jax.tree.map(lambda p, m: p - 0.1 * m, p, m), m, jnp.mean(losses)

    return Step(run, (SQUARES, SQUARES, f32(4, 128, 256)))


def tied() -> Step:
    """One embedding for the first and the last layer: two gradients of one parameter."""

    def loss(p: Any, tokens: Any) -> Any:
        x = p["words"][tokens[:, :-1]]
        x = block(p["block"], x, 4, causal=True)
        return cross_entropy(x @ p["words"].T, tokens[:, 1:])

    return with_adam(loss, {"words": f32(4096, 128), "block": block_shapes(128)}, i32(4, 65))


def average_of_old() -> Step:
    """An average of parameters that reads the content from before the update."""

    def run(p: Any, average: Any, x: Any) -> Any:
        value, grads = jax.value_and_grad(tanh_loss)(p, x)
        new = jax.tree.map(lambda p, g: p - 0.1 * g, p, grads)
        average = jax.tree.map(lambda a, p: 0.99 * a + 0.01 * p, average, p)
        moved = sum(jnp.sum((a - b) ** 2) for a, b in zip(new, p, strict=True))
        return new, average, (value, moved)

    return Step(run, (SQUARES, SQUARES, f32(128, 256)))


def two_losses() -> Step:
    """A generator and a discriminator, each updated by its own loss."""

    def run(g: Any, d: Any, z: Any, real: Any) -> Any:
        def make(g: Any) -> Any:
            return tanh_chain(g, z)

        def critic(d: Any, x: Any) -> Any:
            return jnp.mean(tanh_chain(d, x))

        dg = jax.grad(lambda g: -critic(d, make(g)))(g)
        dd = jax.grad(lambda d: critic(d, make(g)) - critic(d, real))(d)
        lower = partial(jax.tree.map, lambda p, g: p - 0.01 * g)
        return lower(g, dg), lower(d, dd)

    return Step(run, (SQUARES, SQUARES, f32(64, 256), f32(64, 256)))


def tanh_chain(p: Any, x: Any) -> Any:
    for w in p:
        x = jnp.tanh(x @ w)
    return x


def peak_in_optimizer() -> Step:
    """Gradients clipped by their common norm: all of them are alive when updates begin."""

    def run(p: Any, state: Any, x: Any) -> Any:
        value, grads = jax.value_and_grad(tanh_loss)(p, x)
        length = jnp.sqrt(sum(jnp.sum(g**2) for g in grads))
        grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / length), grads)
        return (*adam_update(p, state, grads), value)

    state = {"m": SQUARES, "v": SQUARES, "count": f32()}
    return Step(run, (SQUARES, state, f32(4, 256)))


def empty() -> Step:
    """Values of zero bytes and of one element."""

    def loss(p: Any, x: Any) -> Any:
        y = jnp.concatenate([x @ p["w"], x[:, :0] @ p["none"]], 1)
        return jnp.sum(y) * p["scale"] + jnp.sum(p["none"] * 2)

    return with_momentum(loss, {"w": f32(16, 4), "none": f32(0, 3), "scale": f32()}, f32(8, 16))


def recurrent() -> Step:
    """An LSTM by scan."""

    def loss(p: Any, xs: Any, y: Any) -> Any:
        def cell(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(x @ p["x"] + h @ p["h"] + p["b"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((32, 128))
        (h, _), _ = lax.scan(cell, (zeros, zeros), xs)
        return cross_entropy(dense(p["head"], h), y)

    p = {"x": f32(64, 512), "h": f32(128, 512), "b": f32(512), "head": dense_shapes(128, 10)}
    return with_adam(loss, p, f32(50, 32, 64), i32(32))


def dropout() -> Step:
    """Random masks by keys, one per layer."""

    def loss(p: Any, x: Any, key: Any) -> Any:
        for at, w in enumerate(p):
            mask = jax.random.bernoulli(jax.random.fold_in(key, at), 0.9, (128, 256))
            x = jnp.where(mask, jnp.tanh(x @ w) / 0.9, 0.0)
        return jnp.sum(x**2)

    key = jax.eval_shape(lambda: jax.random.key(0))
    return with_momentum(loss, SQUARES, f32(128, 256), key)


def mixed_precision() -> Step:
    """Products in bfloat16 from parameters in float32."""

    def loss(p: Any, x: Any) -> Any:
        for w in p:
            x = jnp.tanh(x @ w.astype(jnp.bfloat16))
        return jnp.sum(x.astype(jnp.float32) ** 2)

    x = jax.ShapeDtypeStruct((128, 256), jnp.bfloat16)
    return with_adam(loss, SQUARES, x)


def checkpointed() -> Step:
    """A long chain, each layer of which runs again in the backward pass."""

    def loss(p: Any, x: Any) -> Any:
        for w in p:
            x = jax.checkpoint(lambda w, x: jnp.tanh(jnp.tanh(x @ w) * 2))(w, x)
        return jnp.sum(x)

    return with_momentum(loss, [f32(128, 128)] * 32, f32(1024, 128))


OTHERS: dict[str, Callable[[], Step]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        accumulation, accumulation_by_scan, tied, average_of_old, two_losses, peak_in_optimizer,
        empty, recurrent, dropout, mixed_precision, checkpointed,
    )
}  # fmt: skip


# -- measurement ----------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS | OTHERS))
    parser.add_argument("--others", action="store_true", help="take the steps with unusual parts")
    parser.add_argument("--no-xla", action="store_true", help="do not compile")
    parser.add_argument("--target", default=None, help="target of the plans")
    options = parser.parse_args()
    names = options.steps or list(OTHERS if options.others else STEPS)
    print(f"{'step':22} {'nodes':>6} {'states':>9} {'arena':>9} {'bound':>9} {'temp':>9} "
          f"{'XLA':>9} {'ratio':>6} {'import':>7} {'plan':>7}")  # fmt: skip
    ratios = []
    for name in names:
        ratio = report(name, (STEPS | OTHERS)[name](), options)
        if ratio:
            ratios.append(ratio)
    if ratios:
        print(f"geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}")
    return 0


def report(name: str, step: Step, options: argparse.Namespace) -> float | None:
    """Print one row, and return the ratio to XLA's temporary memory."""
    start = time.process_time()
    graph = ap.from_train_step(step.run, step.args, step.donate, name=name)
    read = time.process_time()
    target = {"target": options.target} if options.target else {}
    plan = ap.plan(graph, inputs="keep", **target)
    planned = time.process_time()
    for warning in graph.warnings:
        print(warning)
    states = [value for value in graph.values if value.kind in ("state", "input")]
    outside = sum(nbytes(value) for value in states)
    temp = plan.arena_bytes - outside
    xla = ratio = None
    if not options.no_xla:
        compiled = jax.jit(step.run, donate_argnums=step.donate).lower(*step.args).compile()
        xla = compiled.memory_analysis().temp_size_in_bytes
        ratio = temp / xla if xla else None
    print(
        f"{name:22} {len(graph.nodes):6} {outside / MIB:9.2f} {plan.arena_bytes / MIB:9.2f} "
        f"{plan.lower_bound / MIB:9.2f} {temp / MIB:9.2f} "
        f"{'' if xla is None else f'{xla / MIB:.2f}':>9} "
        f"{'' if ratio is None else f'{ratio:.3f}':>6} {read - start:6.2f}s {planned - read:6.2f}s",
        flush=True,
    )
    return ratio


def nbytes(value: Any) -> int:
    """Return the bytes of a value; kinds of numbers that NumPy lacks have two bytes here."""
    width = 2 if value.dtype == "bfloat16" else jnp.dtype(value.dtype).itemsize
    return math.prod(value.shape) * width


if __name__ == "__main__":
    raise SystemExit(main())
