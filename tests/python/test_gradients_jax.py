"""Gradients against those of JAX, in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.train import operators

jax = pytest.importorskip("jax")
jnp = jax.numpy


def ours(graph: ap.Graph, loss: int, wrt: list[int], inputs: dict[str, Any]) -> list[np.ndarray]:
    train = ap.train.gradient(graph, of=loss, wrt=wrt)
    with ap.Executor(train.graph) as executor:
        found = executor.run(inputs)
    return [found[f"{graph.values[index].name}.grad"] for index in wrt]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def assert_close(found: list[np.ndarray], expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        scale = float(np.abs(b).max()) or 1.0
        np.testing.assert_allclose(a, np.asarray(b), rtol=1e-5, atol=1e-5 * scale)


def test_a_perceptron() -> None:
    arrays = {"x": draw(8, 12), "w": draw(12, 16), "b": draw(16), "v": draw(16, 5)}
    labels = np.random.default_rng(1).integers(0, 5, 8)
    graph = ap.Graph()
    x, w, b, v = (graph.input(name, array.shape) for name, array in arrays.items())
    h = operators(graph).Gelu(operators(graph).Gemm(x, w, b))
    loss = operators(graph).SoftmaxCrossEntropyLoss(operators(graph).MatMul(h, v), labels)

    def function(x: Any, w: Any, b: Any, v: Any) -> Any:
        scores = jax.nn.gelu(x @ w + b, approximate=False) @ v
        return -jnp.mean(jax.nn.log_softmax(scores)[jnp.arange(8), labels])

    expected = jax.grad(function, (0, 1, 2, 3))(*arrays.values())
    assert_close(ours(graph, loss, [x, w, b, v], arrays), expected)


@pytest.mark.parametrize(
    ("stride", "dilation", "groups"), [(1, 1, 1), (2, 1, 2), (1, 2, 1), (3, 2, 4)]
)
def test_a_convolution(stride: int, dilation: int, groups: int) -> None:
    arrays = {"x": draw(2, 4, 11, 10), "w": draw(8, 4 // groups, 3, 3), "b": draw(8)}
    graph = ap.Graph()
    x, w, b = (graph.input(name, array.shape) for name, array in arrays.items())
    y = operators(graph).Conv(
        x, w, b, strides=[stride] * 2, dilations=[dilation] * 2, pads=[1, 0, 2, 1], group=groups
    )
    loss = operators(graph).ReduceSum(operators(graph).Sin(y), keepdims=0)

    def function(x: Any, w: Any, b: Any) -> Any:
        y = jax.lax.conv_general_dilated(
            x, w, (stride, stride), [(1, 2), (0, 1)], rhs_dilation=(dilation, dilation),
            feature_group_count=groups, precision="highest",
        )  # fmt: skip
        return jnp.sum(jnp.sin(y + b[None, :, None, None]))

    expected = jax.grad(function, (0, 1, 2))(*arrays.values())
    assert_close(ours(graph, loss, [x, w, b], arrays), expected)


def test_pools_with_ties_after_relu() -> None:
    arrays = {"x": draw(2, 3, 9, 8)}
    graph = ap.Graph()
    x = graph.input("x", arrays["x"].shape)
    most = operators(graph).MaxPool(operators(graph).Relu(x), kernel_shape=[3, 3], strides=[2, 2])
    mean = operators(graph).AveragePool(x, kernel_shape=[3, 3], strides=[2, 2])
    loss = operators(graph).ReduceSum(
        operators(graph).Mul(most, operators(graph).Cos(mean)), keepdims=0
    )

    def pool(x: Any, first: float, function: Any) -> Any:
        return jax.lax.reduce_window(x, first, function, (1, 1, 3, 3), (1, 1, 2, 2), "VALID")

    def function(x: Any) -> Any:
        mean = pool(x, 0.0, jax.lax.add) / 9
        return jnp.sum(pool(jax.nn.relu(x), -jnp.inf, jax.lax.max) * jnp.cos(mean))

    expected = [jax.grad(function)(arrays["x"])]
    assert_close(ours(graph, loss, [x], arrays), expected)


def test_attention_with_layer_normalization() -> None:
    arrays = {"x": draw(2, 6, 8), "q": draw(8, 8), "k": draw(8, 8), "v": draw(8, 8),
              "scale": draw(8), "shift": draw(8)}  # fmt: skip
    graph = ap.Graph()
    op = operators(graph)
    x, q, k, v, scale, shift = (graph.input(name, array.shape) for name, array in arrays.items())
    h = op.LayerNormalization(x, scale, shift)

    def heads(w: int, order: list[int]) -> int:
        return op.Transpose(op.Reshape(op.MatMul(h, w), [2, 6, 2, 4]), perm=order)

    scores = op.MatMul(heads(q, [0, 2, 1, 3]), heads(k, [0, 2, 3, 1]))
    share = op.Softmax(op.Mul(scores, np.float32(0.5)), axis=-1)
    made = op.MatMul(share, heads(v, [0, 2, 1, 3]))
    y = op.Add(x, op.Reshape(op.Transpose(made, perm=[0, 2, 1, 3]), [2, 6, 8]))
    loss = op.ReduceMean(op.Mul(y, y), keepdims=0)

    def function(x: Any, q: Any, k: Any, v: Any, scale: Any, shift: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        h = (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift
        a, b, c = ((h @ w).reshape(2, 6, 2, 4) for w in (q, k, v))
        share = jax.nn.softmax(jnp.einsum("bihd,bjhd->bhij", a, b) * 0.5)
        y = x + jnp.einsum("bhij,bjhd->bihd", share, c).reshape(2, 6, 8)
        return jnp.mean(y * y)

    expected = jax.grad(function, tuple(range(6)))(*arrays.values())
    assert_close(ours(graph, loss, [x, q, k, v, scale, shift], arrays), expected)


def test_batch_normalization_and_tied_embeddings() -> None:
    arrays = {"table": draw(7, 4), "scale": draw(4), "shift": draw(4)}
    words = np.array([[1, 2, 2], [6, 0, 1]])
    graph = ap.Graph()
    op = operators(graph)
    table, scale, shift = (graph.input(name, array.shape) for name, array in arrays.items())
    h = op.Transpose(op.Gather(table, words), perm=[0, 2, 1])
    zeros, ones = np.zeros(4, np.float32), np.ones(4, np.float32)
    h, *_ = op.BatchNormalization(h, scale, shift, zeros, ones, training_mode=1, outputs=3)
    rows = op.Reshape(op.Transpose(op.Tanh(h), perm=[0, 2, 1]), [6, 4])
    scores = op.Gemm(rows, table, transB=1)
    loss = op.ReduceLogSumExp(scores, keepdims=0)

    def function(table: Any, scale: Any, shift: Any) -> Any:
        h = table[words].reshape(6, 4)
        h = (h - h.mean(0)) / jnp.sqrt(h.var(0) + 1e-5) * scale + shift
        return jax.nn.logsumexp(jnp.tanh(h) @ table.T)

    expected = jax.grad(function, (0, 1, 2))(*arrays.values())
    assert_close(ours(graph, loss, [table, scale, shift], arrays), expected)


def test_a_product_with_zeros_and_broadcasting() -> None:
    arrays = {"a": draw(3, 1, 4), "b": np.array([[0.5], [0.0]], np.float32)}
    graph = ap.Graph()
    a, b = (graph.input(name, array.shape) for name, array in arrays.items())
    op = operators(graph)
    y = op.Max(op.Div(a, op.Add(op.Pow(b, np.float32(2)), np.float32(1))), op.Mul(a, b))
    loss = op.ReduceSum(op.ReduceL2(y, [1], keepdims=0), keepdims=0)

    def function(a: Any, b: Any) -> Any:
        y = jnp.maximum(a / (b**2 + 1), a * b)
        return jnp.sum(jnp.sqrt(jnp.sum(y * y, 1)))

    expected = jax.grad(function, (0, 1))(*arrays.values())
    assert_close(ours(graph, loss, [a, b], arrays), expected)
