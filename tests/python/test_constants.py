"""Constants that kernels transform: one copy for all executors, and none afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import numpy as np
import pytest
from numpy.lib import stride_tricks

import arenaplan as ap
from arenaplan.run.numpy.constants import shared, shared_bytes
from arenaplan.run.numpy.strided import as_strided
from networks import noise

WEIGHTS = np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype(np.float32)


def biased(weights: np.ndarray, dtype: str = "float32") -> ap.Graph:
    """Return a convolution, whose bias becomes a column of its weights."""
    graph = ap.Graph("biased")
    x = graph.input("x", (1, 8, 10, 10), dtype)
    w = graph.constant("w", weights.shape, dtype, weights)
    b = graph.constant("b", (16,), dtype, np.ones(16, dtype))
    (y,) = graph.node(
        "Conv", [x, w, b], [("y", (1, 16, 10, 10), dtype)], attributes={"pads": [1] * 4}
    )
    assert y is not None
    graph.output(y)
    return graph


@pytest.fixture(autouse=True)
def nothing_is_left() -> object:
    gc.collect()
    assert shared_bytes() == 0
    yield
    gc.collect()
    assert shared_bytes() == 0


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_executors_of_one_graph_share_transformed_weights(dtype: str) -> None:
    graph = biased(WEIGHTS.astype(dtype), dtype)
    first = ap.Executor(graph)
    once = shared_bytes()
    assert once >= 4 * 16 * 8 * 9
    others = [ap.Executor(graph) for _ in range(5)]
    assert shared_bytes() == once
    given = {"x": noise(1, 8, 10, 10).astype(dtype)}
    expected = first.run(given)["y"]
    first.close()
    for other in others:
        np.testing.assert_array_equal(other.run(given)["y"], expected)


def test_graphs_of_equal_constants_share_what_is_read_from_one_file() -> None:
    content = WEIGHTS.tobytes()
    graphs = [biased(np.frombuffer(content, np.float32).reshape(WEIGHTS.shape)) for _ in range(2)]
    executors = [ap.Executor(graphs[0])]
    once = shared_bytes()
    executors.append(ap.Executor(graphs[1]))
    assert shared_bytes() == once
    given = {"x": noise(1, 8, 10, 10)}
    a, b = (executor.run(given)["y"] for executor in executors)
    np.testing.assert_array_equal(a, b)


def test_weights_that_a_caller_changes_are_transformed_anew() -> None:
    weights = WEIGHTS.copy()
    graph = biased(weights)
    first = ap.Executor(graph)
    given = {"x": noise(1, 8, 10, 10)}
    before = first.run(given)["y"]
    weights *= 2
    again = ap.Executor(graph).run(given)["y"]
    np.testing.assert_allclose(again - 1, 2 * (before - 1), rtol=1e-5, atol=1e-5)
    del first


def test_a_view_of_a_constant_is_not_kept() -> None:
    source = np.arange(6.0)
    result, small = shared([source], "view", lambda: (source.reshape(2, 3), None))
    assert result.base is source
    assert small is None
    assert shared_bytes() == 0


def test_threads_transform_a_constant_once() -> None:
    source = np.arange(1000.0)
    source.flags.writeable = False
    calls: list[int] = []
    found: list[np.ndarray] = []
    start = threading.Barrier(8)

    def make() -> tuple[np.ndarray, None]:
        calls.append(1)
        return source + 1, None

    def work() -> None:
        start.wait()
        found.append(shared([source], "plus one", make)[0])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert all(each is found[0] for each in found)
    with pytest.raises(ValueError, match="read-only"):
        found[0][0] = 1


# -- views ------------------------------------------------------------------------------------


def shapes() -> list[Callable[[np.ndarray], np.ndarray]]:
    return [lambda a: a, lambda a: a[2:, 1:], lambda a: a[::2], lambda a: a[::-1], lambda a: a.T]


@pytest.mark.parametrize("part", shapes(), ids=["all", "part", "steps", "backwards", "turned"])
def test_strided_views_are_those_of_numpy(part: Callable[[np.ndarray], np.ndarray]) -> None:
    memory = np.arange(4096, dtype=np.uint8)[64 : 64 + 800].view(np.float32).reshape(10, 20)
    array = part(memory)
    strides = (abs(array.strides[0]) // 2 * 2, 4)
    ours = as_strided(array, (2, 3), strides)
    theirs = stride_tricks.as_strided(array, (2, 3), strides)
    assert ours.__array_interface__["data"] == theirs.__array_interface__["data"]
    assert ours.strides == theirs.strides
    np.testing.assert_array_equal(ours, theirs)


def test_strided_views_keep_their_memory_and_can_be_written_if_it_can() -> None:
    memory = np.zeros(256, np.uint8)
    view = as_strided(memory[64:], (4,), (8,))
    assert view.base is memory
    view[:] = 7
    assert memory.sum() == 28
    fixed = memory[64:]
    fixed.flags.writeable = False
    assert not as_strided(fixed, (4,), (8,)).flags.writeable
    assert not as_strided(np.frombuffer(b"abcdefgh", np.uint8), (4,), (2,)).flags.writeable
