"""Random operators: their distributions, and the facts that their numbers depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import arenaplan as ap
from arenaplan.formats.onnx import load_onnx
from single_node import node_model

SHAPE = (200, 300)


def executor(op: str, x: np.ndarray | None = None, **options: Any) -> ap.Executor:
    """Return an executor of one random node."""
    own = {name: options.pop(name) for name in ("seed_of_run", "workers") if name in options}
    inputs = [] if x is None else [x]
    model = node_model(op, inputs, options, opset=22, outputs=1, constants=[])
    return ap.Executor(load_onnx(model), seed=own.get("seed_of_run", 0))


def drawn(op: str, x: np.ndarray | None = None, **options: Any) -> np.ndarray:
    with executor(op, x, **options) as one:
        return next(iter(one.run({} if x is None else {"in0": x}, verify=True).values()))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_numbers_have_their_distribution(dtype: str) -> None:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    uniform = drawn("RandomUniform", shape=SHAPE, low=-1.0, high=3.0, dtype=code)
    assert uniform.dtype == dtype
    assert -1 <= uniform.min() < -0.99
    assert 2.99 < uniform.max() <= 3
    assert abs(uniform.astype(np.float64).mean() - 1) < 0.02
    normal = drawn("RandomNormal", shape=SHAPE, mean=2.0, scale=0.5, dtype=code)
    assert abs(normal.astype(np.float64).mean() - 2) < 0.01
    assert abs(normal.astype(np.float64).std() - 0.5) < 0.01
    like = drawn("RandomNormalLike", np.zeros((7, 5), dtype))
    assert (like.dtype, like.shape) == (np.dtype(dtype), (7, 5))


def test_chances_are_those_of_the_input() -> None:
    chances = np.repeat(np.array([0.0, 0.25, 0.9, 1.0], np.float32), 20_000)
    shares = drawn("Bernoulli", chances, dtype=7).reshape(4, -1)
    assert shares.dtype == np.int64
    np.testing.assert_allclose(shares.mean(1), [0, 0.25, 0.9, 1], atol=0.01)


def test_classes_are_drawn_by_their_log_probabilities() -> None:
    weights = np.array([[1, 2, 5, 0], [0, 0, 1, 0]], np.float32)
    with np.errstate(divide="ignore"):
        found = drawn("Multinomial", np.log(weights) + 3, sample_size=50_000)
    assert found.dtype == np.int32
    shares = np.bincount(found[0], minlength=4) / found.shape[1]
    np.testing.assert_allclose(shares, weights[0] / 8, atol=0.01)
    assert (found[1] == 2).all()


def test_each_run_draws_anew_and_each_executor_alike() -> None:
    with executor("RandomNormal", shape=SHAPE) as one, executor("RandomNormal", shape=SHAPE) as two:
        runs = [next(iter(one.run({}).values())) for _ in range(3)]
        again = [next(iter(two.run({}, verify=at == 1).values())) for at in range(3)]
    for first, second in zip(runs, again, strict=True):
        np.testing.assert_array_equal(first, second)
    assert not (runs[0] == runs[1]).all()
    assert not (runs[1] == runs[2]).all()


def test_the_seed_of_an_executor_is_for_nodes_without_one() -> None:
    free = [drawn("RandomUniform", shape=SHAPE, seed_of_run=seed) for seed in (1, 2)]
    bound = [drawn("RandomUniform", shape=SHAPE, seed=7.0, seed_of_run=seed) for seed in (1, 2)]
    assert not (free[0] == free[1]).any()
    np.testing.assert_array_equal(*bound)


def two_streams() -> ap.Graph:
    """Return a graph whose two random nodes may run in any order."""
    nodes = [
        helper.make_node("RandomUniformLike", ["x"], ["a"], name="first"),
        helper.make_node("RandomUniformLike", ["x"], ["b"], name="second"),
        helper.make_node("Neg", ["b"], ["c"]),
        helper.make_node("Sub", ["a", "c"], ["y"]),
    ]
    given, made = (helper.make_tensor_value_info(name, 1, SHAPE) for name in "xy")
    model = helper.make_model(
        helper.make_graph(nodes, "two", [given], [made]),
        opset_imports=[helper.make_opsetid("", 22)],
        ir_version=10,
    )
    onnx.checker.check_model(model)
    return load_onnx(model)


def test_numbers_depend_neither_on_the_order_of_steps_nor_on_threads() -> None:
    graph, feed = two_streams(), {"x": np.zeros(SHAPE, np.float32)}
    results = []
    for order in ([0, 1, 2, 3], [1, 0, 2, 3], [1, 2, 0, 3]):
        plan = ap.plan(graph, steps=[[node] for node in order], target="numpy")
        with ap.Executor(graph, plan) as one:
            results.append([one.run(feed)["y"] for _ in range(2)])
    for options in ({}, {"workers": 2}):
        with ap.Executor(graph, **options) as one:
            results.append([one.run(feed)["y"] for _ in range(2)])
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    assert abs(float(results[0][0].mean()) - 1) < 0.01
