"""Training steps of many kinds, written for JAX alone: no search was tuned on them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class JaxStep(NamedTuple):
    """A step with arrays as arguments; parameters and states of the optimizer are donated."""

    run: Callable[..., Any]
    args: tuple[Any, ...]
    donate: tuple[int, ...] = (0, 1)


class Draw:
    """Arrays of normal numbers, one after another."""

    def __init__(self, seed: int) -> None:
        self._key = jax.random.key(seed)

    def __call__(self, *shape: int, scale: float = 1.0) -> Any:
        self._key, key = jax.random.split(self._key)
        return scale * jax.random.normal(key, shape, jnp.float32)

    def dense(self, n: int, m: int) -> Any:
        return {"w": self(n, m, scale=n**-0.5), "b": self(m, scale=0.1)}

    def labels(self, most: int, *shape: int) -> Any:
        self._key, key = jax.random.split(self._key)
        return jax.random.randint(key, shape, 0, most)


def dense(p: Any, x: Any) -> Any:
    return x @ p["w"] + p["b"]


def norm(x: Any) -> Any:
    x = x - jnp.mean(x, -1, keepdims=True)
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)


def attend(p: Any, x: Any, heads: int, causal: bool = True) -> Any:
    b, t, d = x.shape
    q, k, v = jnp.split(dense(p["qkv"], norm(x)).reshape(b, t, heads, -1), 3, -1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (d // heads) ** -0.5
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(b, t, d)
    return x + dense(p["out"], mixed)


def block(p: Any, x: Any, heads: int = 4, causal: bool = True) -> Any:
    x = attend(p, x, heads, causal)
    return x + dense(p["down"], jax.nn.gelu(dense(p["up"], norm(x))))


def block_parameters(draw: Draw, d: int) -> Any:
    return {
        "qkv": draw.dense(d, 3 * d), "out": draw.dense(d, d),
        "up": draw.dense(d, 4 * d), "down": draw.dense(4 * d, d),
    }  # fmt: skip


def cross_entropy(scores: Any, labels: Any) -> Any:
    found = jnp.take_along_axis(jax.nn.log_softmax(scores), labels[..., None], -1)
    return -jnp.mean(found)


def momentum(loss: Callable[..., Any], p: Any, *batch: Any, clip: float = 0.0) -> JaxStep:
    """Return a step of gradient descent with momentum, and perhaps clipping by norm."""

    def run(p: Any, m: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(p, *batch)
        if clip:
            length = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
            grads = jax.tree.map(lambda g: g * jnp.minimum(1, clip / length), grads)
        m = jax.tree.map(lambda m, g: 0.9 * m + g, m, grads)
        return jax.tree.map(lambda p, m: p - 0.01 * m, p, m), m, value

    return JaxStep(run, (p, jax.tree.map(jnp.zeros_like, p), *batch))


def decoder() -> JaxStep:
    """Tied embeddings, gradients clipped by their norm."""
    draw, d = Draw(0), 64

    def loss(p: Any, tokens: Any) -> Any:
        x = p["words"][tokens[:, :-1]]
        for part in p["blocks"]:
            x = block(part, x)
        return cross_entropy(norm(x) @ p["words"].T, tokens[:, 1:])

    p = {"words": draw(96, d), "blocks": [block_parameters(draw, d) for _ in range(2)]}
    return momentum(loss, p, draw.labels(96, 8, 49), clip=1.0)


def diffusion() -> JaxStep:
    """Noise is predicted by a network with skips; an average of parameters follows."""
    draw, c = Draw(1), 16

    def conv(w: Any, x: Any) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout)

    def predict(p: Any, x: Any, t: Any) -> Any:
        time = dense(p["time"], jnp.stack([jnp.sin(t), jnp.cos(t)], -1))[:, None, None]
        h1 = jax.nn.silu(conv(p["c1"], x) + time)
        h2 = jax.nn.silu(conv(p["c2"], h1))
        h3 = jax.nn.silu(conv(p["c3"], h2) + time)
        return conv(p["c5"], jax.nn.silu(conv(p["c4"], h3) + h2) + h1)

    def run(p: Any, average: Any, x: Any, noise: Any, t: Any) -> Any:
        def loss(p: Any) -> Any:
            part = jax.nn.sigmoid(t)[:, None, None, None]
            return jnp.mean((predict(p, part * x + (1 - part) * noise, t) - noise) ** 2)

        value, grads = jax.value_and_grad(loss)(p)
        p = jax.tree.map(lambda p, g: p - 0.1 * g, p, grads)
        return p, jax.tree.map(lambda a, p: 0.9 * a + 0.1 * p, average, p), value

    p = {"time": draw.dense(2, c), "c1": draw(3, 3, 3, c, scale=0.2)}
    p |= {f"c{k}": draw(3, 3, c, c, scale=0.1) for k in (2, 3, 4)} | {"c5": draw(3, 3, c, 3)}
    return JaxStep(run, (p, p, draw(8, 16, 16, 3), draw(8, 16, 16, 3), draw(8)))


def vision() -> JaxStep:
    """Patches, attention without a mask, dropout by keys."""
    draw, d = Draw(2), 48

    def drop(key: Any, x: Any) -> Any:
        return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0)

    def loss(p: Any, x: Any, y: Any, key: Any) -> Any:
        x = dense(p["stem"], x)
        for part, each in zip(p["blocks"], jax.random.split(key, len(p["blocks"])), strict=True):
            x = drop(each, block(part, x, 4, causal=False))
        return cross_entropy(dense(p["head"], jnp.mean(norm(x), 1)), y)

    p = {"stem": draw.dense(27, d), "head": draw.dense(d, 10)}
    p["blocks"] = [block_parameters(draw, d) for _ in range(2)]
    return momentum(loss, p, draw(8, 36, 27), draw.labels(10, 8), jax.random.key(5))


def experts() -> JaxStep:
    """Each row goes to one of four experts, weighted by its gate."""
    draw, d = Draw(3), 32

    def mix(p: Any, x: Any) -> Any:
        gates = jax.nn.softmax(dense(p["gate"], x))
        chosen = jax.nn.one_hot(jnp.argmax(gates, -1), 4) * gates
        inner = jax.nn.gelu(jnp.einsum("nd,edh->neh", x, p["up"]))
        return jnp.einsum("neh,ehd,ne->nd", inner, p["down"], chosen)

    def loss(p: Any, x: Any, y: Any) -> Any:
        for part in p:
            x = x + mix(part, norm(x))
        return jnp.mean((x - y) ** 2)

    p = [
        {"gate": draw.dense(d, 4), "up": draw(4, d, 64, scale=0.2), "down": draw(4, 64, d)}
        for _ in range(3)
    ]
    return momentum(loss, p, draw(256, d), draw(256, d))


def adapters() -> JaxStep:
    """Frozen blocks, of which small matrices are trained (LoRA)."""
    draw, d = Draw(4), 64
    frozen = [block_parameters(draw, d) for _ in range(2)]
    small = [{"a": draw(d, 4), "b": draw(4, 3 * d, scale=0.1)} for _ in range(2)]

    def run(small: Any, m: Any, frozen: Any, x: Any, y: Any) -> Any:
        def loss(small: Any) -> Any:
            h = x
            for part, own in zip(frozen, small, strict=True):
                weight = part["qkv"]["w"] + own["a"] @ own["b"]
                h = block(part | {"qkv": {"w": weight, "b": part["qkv"]["b"]}}, h)
            return jnp.mean((h - y) ** 2)

        value, grads = jax.value_and_grad(loss)(small)
        m = jax.tree.map(lambda m, g: 0.9 * m + g, m, grads)
        return jax.tree.map(lambda p, m: p - 0.01 * m, small, m), m, value

    args = (small, jax.tree.map(jnp.zeros_like, small), frozen, draw(8, 32, d), draw(8, 32, d))
    return JaxStep(run, args)


def physics() -> JaxStep:
    """The residual of the heat equation: derivatives inside of the loss."""
    draw = Draw(5)

    def field(p: Any, t: Any, x: Any) -> Any:
        h = jnp.stack([t, x])
        for part in p[:-1]:
            h = jnp.tanh(dense(part, h))
        return dense(p[-1], h)[0]

    def loss(p: Any, points: Any) -> Any:
        def residual(point: Any) -> Any:
            t, x = point
            first = jax.grad(field, 1)(p, t, x)
            second = jax.grad(jax.grad(field, 2), 2)(p, t, x)
            return (first - second) ** 2

        return jnp.mean(jax.vmap(residual)(points))

    widths = [2, 32, 32, 32, 32, 1]
    p = [draw.dense(n, m) for n, m in pairwise(widths)]
    return momentum(loss, p, draw(512, 2))


def network() -> JaxStep:
    """Messages along the edges of a graph, added up at nodes."""
    draw, d = Draw(6), 32
    ends = draw.labels(200, 2, 800)

    def loss(p: Any, x: Any, y: Any) -> Any:
        for part in p:
            sent = jax.nn.relu(
                dense(part["message"], jnp.concatenate([x[ends[0]], x[ends[1]]], -1))
            )
            total = jax.ops.segment_sum(sent, ends[1], 200)
            x = x + jax.nn.gelu(dense(part["node"], jnp.concatenate([x, total], -1)))
        return jnp.mean((x - y) ** 2)

    p = [{"message": draw.dense(2 * d, d), "node": draw.dense(2 * d, d)} for _ in range(3)]
    return momentum(loss, p, draw(200, d), draw(200, d))


def spaces() -> JaxStep:
    """A linear recurrence by an associative scan, between dense layers."""
    draw, d = Draw(7), 32

    def scan(decay: Any, x: Any) -> Any:
        def join(a: Any, b: Any) -> Any:
            return a[0] * b[0], b[0] * a[1] + b[1]

        return lax.associative_scan(join, (jnp.broadcast_to(decay, x.shape), x), axis=1)[1]

    def loss(p: Any, x: Any, y: Any) -> Any:
        for part in p:
            h = scan(jax.nn.sigmoid(part["decay"]), dense(part["in"], norm(x)))
            x = x + dense(part["out"], jax.nn.gelu(h))
        return jnp.mean((x - y) ** 2)

    p = [{"decay": draw(d), "in": draw.dense(d, d), "out": draw.dense(d, d)} for _ in range(3)]
    return momentum(loss, p, draw(8, 32, d), draw(8, 32, d))


def flow() -> JaxStep:
    """Affine couplings (real NVP): halves change each other."""
    draw, d = Draw(8), 16

    def loss(p: Any, x: Any) -> Any:
        a, b = jnp.split(x, 2, -1)
        total = 0.0
        for part in p:
            scale, shift = jnp.split(dense(part["down"], jnp.tanh(dense(part["up"], a))), 2, -1)
            scale = jnp.tanh(scale)
            a, b, total = b * jnp.exp(scale) + shift, a, total + jnp.sum(scale, -1)
        return jnp.mean(jnp.sum(a * a + b * b, -1) / 2 - total)

    p = [{"up": draw.dense(d, 64), "down": draw.dense(64, 2 * d)} for _ in range(6)]
    return momentum(loss, p, draw(512, 2 * d))


def recurrent() -> JaxStep:
    """A gated recurrent network by ``scan``, with an encoder before it."""
    draw, d = Draw(9), 32

    def loss(p: Any, x: Any, y: Any) -> Any:
        for part in p["encoder"]:
            x = jax.nn.gelu(dense(part, x))

        def cell(h: Any, x: Any) -> Any:
            z, r = jnp.split(jax.nn.sigmoid(dense(p["gates"], jnp.concatenate([h, x], -1))), 2, -1)
            h = z * h + (1 - z) * jnp.tanh(dense(p["new"], jnp.concatenate([r * h, x], -1)))
            return h, h

        _, found = lax.scan(cell, jnp.zeros((16, d)), x)
        return jnp.mean((found - y) ** 2)

    p = {
        "encoder": [draw.dense(d, d) for _ in range(4)],
        "gates": draw.dense(2 * d, 2 * d), "new": draw.dense(2 * d, d),
    }  # fmt: skip
    return momentum(loss, p, draw(12, 16, d), draw(12, 16, d))


def scaled() -> JaxStep:
    """Layers in bfloat16 under a scaled loss, parameters in float32."""
    draw, d = Draw(10), 64

    def loss(p: Any, x: Any, y: Any) -> Any:
        x = x.astype(jnp.bfloat16)
        for part in p:
            half = jax.tree.map(lambda w: w.astype(jnp.bfloat16), part)
            x = x + jax.nn.silu(dense(half, x))
        return 128 * jnp.mean((x.astype(jnp.float32) - y) ** 2)

    def run(p: Any, m: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(p, x, y)
        m = jax.tree.map(lambda m, g: 0.9 * m + g / 128, m, grads)
        return jax.tree.map(lambda p, m: p - 0.01 * m, p, m), m, value / 128

    p = [draw.dense(d, d) for _ in range(6)]
    return JaxStep(run, (p, jax.tree.map(jnp.zeros_like, p), draw(256, d), draw(256, d)))


def contrastive() -> JaxStep:
    """Two towers, compared in all pairs of a batch."""
    draw, d = Draw(11), 48

    def tower(p: Any, x: Any) -> Any:
        for part in p:
            x = norm(jax.nn.gelu(dense(part, x)))
        return x

    def loss(p: Any, a: Any, b: Any) -> Any:
        scores = tower(p["a"], a) @ tower(p["b"], b).T
        labels = jnp.arange(len(a))
        return cross_entropy(scores, labels) + cross_entropy(scores.T, labels)

    p = {side: [draw.dense(d, d) for _ in range(5)] for side in "ab"}
    return momentum(loss, p, draw(256, d), draw(256, d))


def lstm() -> JaxStep:
    """Long short-term memory over 64 rounds by ``scan``."""
    draw, d = Draw(12), 32

    def loss(p: Any, x: Any, y: Any) -> Any:
        def cell(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(dense(p["cell"], jnp.concatenate([h, x], -1)), 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        (h, _), _ = lax.scan(cell, (jnp.zeros((16, d)), jnp.zeros((16, d))), x)
        return jnp.mean((dense(p["out"], h) - y) ** 2)

    p = {"cell": draw.dense(2 * d, 4 * d), "out": draw.dense(d, d)}
    return momentum(loss, p, draw(64, 16, d), draw(16, d))


def gru() -> JaxStep:
    """Gated units over 64 rounds by ``scan``, all of whose results are read."""
    draw, d = Draw(13), 32

    def loss(p: Any, x: Any, y: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            z, r = jnp.split(jax.nn.sigmoid(dense(p["gates"], jnp.concatenate([h, x], -1))), 2, -1)
            h = z * h + (1 - z) * jnp.tanh(dense(p["new"], jnp.concatenate([r * h, x], -1)))
            return h, h

        _, found = lax.scan(cell, jnp.zeros((16, d)), x)
        return jnp.mean((dense(p["out"], found) - y) ** 2)

    p = {"gates": draw.dense(2 * d, 2 * d), "new": draw.dense(2 * d, d), "out": draw.dense(d, d)}
    return momentum(loss, p, draw(64, 16, d), draw(64, 16, d))


def mixer() -> JaxStep:
    """Layers across positions and across channels in turn."""
    draw, d, t = Draw(14), 32, 24

    def loss(p: Any, x: Any, y: Any) -> Any:
        for part in p:
            across = jnp.swapaxes(norm(x), 1, 2)
            across = dense(part["t2"], jax.nn.gelu(dense(part["t1"], across)))
            x = x + jnp.swapaxes(across, 1, 2)
            x = x + dense(part["c2"], jax.nn.gelu(dense(part["c1"], norm(x))))
        return jnp.mean((x - y) ** 2)

    p = [
        {
            "t1": draw.dense(t, 2 * t), "t2": draw.dense(2 * t, t),
            "c1": draw.dense(d, 2 * d), "c2": draw.dense(2 * d, d),
        }
        for _ in range(3)
    ]  # fmt: skip
    return momentum(loss, p, draw(16, t, d), draw(16, t, d))


def normalized() -> JaxStep:
    """Convolutions with batch normalization and joins."""
    draw, c = Draw(15), 12

    def loss(p: Any, x: Any, y: Any) -> Any:
        for w in p:
            layout = ("NHWC", "HWIO", "NHWC")
            h = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout)
            mean = jnp.mean(h, (0, 1, 2))
            h = (h - mean) * lax.rsqrt(jnp.mean((h - mean) ** 2, (0, 1, 2)) + 1e-5)
            x = jax.nn.relu(h) + x
        return jnp.mean((x - y) ** 2)

    p = [draw(3, 3, c, c, scale=0.1) for _ in range(5)]
    return momentum(loss, p, draw(8, 12, 12, c), draw(8, 12, 12, c))


def variational() -> JaxStep:
    """An autoencoder with a random code (a key is an argument)."""
    draw, d = Draw(16), 64

    def loss(p: Any, x: Any, key: Any) -> Any:
        h = x
        for part in p["encoder"]:
            h = jax.nn.softplus(dense(part, h))
        mean, scale = jnp.split(dense(p["code"], h), 2, -1)
        h = mean + jnp.exp(scale / 2) * jax.random.normal(key, mean.shape)
        for part in p["decoder"]:
            h = jax.nn.softplus(dense(part, h))
        distance = jnp.mean(mean**2 + jnp.exp(scale) - scale)
        return jnp.mean((dense(p["out"], h) - x) ** 2) + 0.1 * distance

    p = {"encoder": [draw.dense(d, d) for _ in range(3)], "code": draw.dense(d, 2 * d)}
    p |= {"decoder": [draw.dense(d, d) for _ in range(3)], "out": draw.dense(d, d)}
    return momentum(loss, p, draw(256, d), jax.random.key(7))


def sharpness() -> JaxStep:
    """Two gradients per step: the second one at parameters that the first one moves."""
    draw, d = Draw(17), 48

    def loss(p: Any, x: Any, y: Any) -> Any:
        for part in p:
            x = x + jax.nn.gelu(dense(part, norm(x)))
        return jnp.mean((x - y) ** 2)

    def run(p: Any, m: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(p, x, y)
        length = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
        moved = jax.tree.map(lambda p, g: p + 0.05 * g / length, p, grads)
        grads = jax.grad(loss)(moved, x, y)
        m = jax.tree.map(lambda m, g: 0.9 * m + g, m, grads)
        return jax.tree.map(lambda p, m: p - 0.01 * m, p, m), m, value

    p = [draw.dense(d, d) for _ in range(4)]
    return JaxStep(run, (p, jax.tree.map(jnp.zeros_like, p), draw(256, d), draw(256, d)))


def fourier() -> JaxStep:
    """Layers on the lowest frequencies of a signal (a Fourier operator)."""
    draw, d = Draw(18), 24

    def loss(p: Any, x: Any, y: Any) -> Any:
        for part in p:
            low = jnp.fft.rfft(x, axis=1)[:, :8]
            low = jnp.einsum("bfd,fde->bfe", low, part["real"] + 1j * part["imaginary"])
            low = jnp.pad(low, ((0, 0), (0, x.shape[1] // 2 - 7), (0, 0)))
            x = jax.nn.gelu(jnp.fft.irfft(low, axis=1) + dense(part["here"], x))
        return jnp.mean((x - y) ** 2)

    shape = (8, d, d)
    p = [
        {"real": draw(*shape, scale=0.1), "imaginary": draw(*shape, scale=0.1)}
        | {"here": draw.dense(d, d)}
        for _ in range(3)
    ]
    return momentum(loss, p, draw(8, 64, d), draw(8, 64, d))


def pair() -> JaxStep:
    """Two networks, each with a loss of its own through the other (adversaries)."""
    draw, d = Draw(19), 32

    def network(p: Any, x: Any) -> Any:
        for part in p[:-1]:
            x = jax.nn.leaky_relu(dense(part, x))
        return dense(p[-1], x)

    def run(g: Any, c: Any, noise: Any, real: Any) -> Any:
        def makes(g: Any) -> Any:
            return jnp.mean(jax.nn.softplus(-network(c, network(g, noise))))

        def tells(c: Any) -> Any:
            made = network(c, network(g, noise))
            return jnp.mean(jax.nn.softplus(made) + jax.nn.softplus(-network(c, real)))

        value, ups = jax.value_and_grad(makes)(g)
        downs = jax.grad(tells)(c)
        g = jax.tree.map(lambda p, x: p - 0.1 * x, g, ups)
        return g, jax.tree.map(lambda p, x: p - 0.1 * x, c, downs), value

    g = [draw.dense(d, d) for _ in range(4)]
    c = [draw.dense(d, d) for _ in range(3)] + [draw.dense(d, 1)]
    return JaxStep(run, (g, c, draw(256, d), draw(256, d)))


STEPS: dict[str, Callable[[], JaxStep]] = {
    each.__name__: each
    for each in (
        decoder, diffusion, vision, experts, adapters, physics, network, spaces, flow, recurrent,
        scaled, contrastive, lstm, gru, mixer, normalized, variational, sharpness, fourier, pair,
    )
}  # fmt: skip
