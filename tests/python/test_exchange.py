"""Gradients that go through a function of several processes, and the store of arrays over it."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
import snippets
from arenaplan.train import exchanging
from arenaplan.train.exchanging import Reduce
from raising import raises

ROWS, WIDTH = 8, 16


def net(seed: int, batch: int = ROWS, dtype: str = "float32") -> ap.train.TrainingGraph:
    """Return gradients of random layers."""
    rng = np.random.default_rng(seed)
    graph = ap.Graph("net")
    h: Any = graph.input("x", (batch, WIDTH))
    op, weights, width = ap.train.operators(graph), [], WIDTH
    for layer in range(int(rng.integers(2, 4))):
        wider = int(rng.integers(2, 40))
        data = rng.standard_normal((width, wider)).astype(dtype) / 8
        weights.append(graph.parameter(f"w{layer}", data))
        h = op.MatMul(h, weights[-1] if dtype == "float32" else op.Cast(weights[-1], to=1))
        if rng.random() < 0.6:
            weights.append(graph.parameter(f"b{layer}", np.zeros(wider, np.float32)))
            h = op.Add(h, weights[-1])
        h, width = op.Tanh(h), wider
    loss = op.ReduceSumSquare(h, keepdims=0, name="loss")
    return ap.train.gradient(graph, of=loss, wrt=weights)


def bytes_of(train: ap.train.TrainingGraph) -> int:
    updated = ap.train.sgd(train, lr=0.01)
    return ap.plan(updated.graph, target="numpy", optimize=ap.train.training.EXACT).arena_bytes


def calls_of(train: ap.train.TrainingGraph) -> int:
    return sum(node.op == "Exchange" for node in train.graph.nodes)


def ready(train: ap.train.TrainingGraph) -> list[int]:
    """Return gradients in the order of the backward pass."""
    graph = train.graph
    made = {at: k for k, node in enumerate(graph.core.order) for at in graph.nodes[node].outputs}
    return sorted(train.gradients, key=lambda at: made[at])


def in_calls(train: ap.train.TrainingGraph, cuts: tuple[int, ...]) -> int:
    """Return the bytes with given groups of gradients."""
    order = ready(train)
    groups = [order[a:b] for a, b in pairwise((0, *cuts, len(order)))]
    copy = replace(train, graph=train.graph.copy(), statistics={}, updated={})
    return bytes_of(exchanging._exchanged(copy, groups, 0))


def nothing(flat: np.ndarray, step: int) -> None:
    del flat, step


@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_bytes_are_near_the_best_of_all_groups_and_never_above_buckets(
    seed: int, calls: int
) -> None:
    batch = (1, 8, 24, 40)[seed]
    found = ap.train.exchange(net(seed, batch), nothing, calls=calls)
    assert calls_of(found) <= calls
    size, train = bytes_of(found), net(seed, batch)
    count = len(train.gradients)
    every = {
        cuts: in_calls(train, cuts)
        for some in range(min(calls, count))
        for cuts in combinations(range(1, count), some)
    }
    sizes = np.cumsum([train.graph.core.sizes[at] for at in ready(train)])
    for ends in (
        np.linspace(0, count, calls + 1).round(),
        1 + np.searchsorted(sizes, np.linspace(0, sizes[-1], calls + 1)),
    ):
        buckets = tuple(sorted({int(at) for at in ends[1:-1]} - {0, count}))
        assert size <= every[buckets], buckets
    assert size <= 1.03 * min(every.values())


def test_a_call_per_gradient_needs_few_bytes_and_one_call_is_the_dearest() -> None:
    graph = ap.Graph("deep")
    h: Any = graph.input("x", (32, 64))
    op, weights = ap.train.operators(graph), []
    for layer in range(8):
        weights.append(graph.parameter(f"w{layer}", np.ones((64, 64), np.float32)))
        h = op.Tanh(op.MatMul(h, weights[-1]))
    loss = op.ReduceSumSquare(h, keepdims=0)

    def size(calls: int | None) -> int:
        train = ap.train.gradient(graph, of=loss, wrt=weights)
        if calls != 0:
            train = ap.train.exchange(train, nothing, calls=calls)
        return bytes_of(train)

    each = size(None)
    assert each <= 1.05 * size(0)
    assert each < size(2) < size(1)


def test_all_workers_make_the_same_calls_with_whole_arrays_in_the_arena() -> None:
    seen: list[tuple[int, int]] = []

    def reduce(flat: np.ndarray, step: int) -> None:
        assert flat.ndim == 1
        assert flat.flags.c_contiguous
        seen.append((step, flat.size))

    train = ap.train.exchange(net(2), reduce)
    sizes = [train.graph.core.sizes[at] // 4 for at in train.parameters]
    for workers in (1, 2, 3):
        seen.clear()
        copy = replace(train, graph=train.graph.copy(), statistics={}, updated={})
        with ap.train.Trainer(ap.train.sgd(copy, lr=0.01), workers=workers) as trainer:
            for _ in range(3):
                trainer.step({"x": np.ones((ROWS, WIDTH), np.float32)})
        first = [size for step, size in seen if step == 0]
        assert sorted(first) == sorted(sizes)
        assert seen == [(step, size) for step in range(3) for size in first]


def over_threads(ranks: int) -> Callable[[int], Reduce]:
    """Return a transport: sums in the order of the ranks."""
    barrier, box = Barrier(ranks, timeout=60), {}

    def of(rank: int) -> Reduce:
        def reduce(flat: np.ndarray, step: int) -> None:
            box[rank] = flat.copy()
            barrier.wait()
            np.copyto(flat, sum(box[each] for each in range(ranks)))
            barrier.wait()

        return reduce

    return of


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("calls", [1, 2, None])
def test_ranks_are_equal_to_the_bit_and_train_as_one_process(
    calls: int | None, workers: int, tmp_path: Path
) -> None:
    data = np.random.default_rng(0).standard_normal((2 * ROWS, WIDTH)).astype(np.float32)
    transport = over_threads(2)

    def trained(train: ap.train.TrainingGraph, rows: slice, name: str = "") -> Any:
        with ap.train.Trainer(ap.train.adam(train), workers=workers) as trainer:
            for step in range(6):
                if name and step == 3:
                    trainer.save(tmp_path / name)
                trainer.step({"x": data[rows]}, verify=step == 2 and workers == 1)
            first = trainer.states()
            if name:
                trainer.load(tmp_path / name)
                for _ in range(3):
                    trainer.step({"x": data[rows]})
                again = trainer.states()
                assert all((again[key] == first[key]).all() for key in first)
            return first

    def rank(at: int) -> Any:
        train = ap.train.exchange(net(1), transport(at), calls=calls)
        return trained(train, slice(at * ROWS, (at + 1) * ROWS), f"{at}")

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(rank, (0, 1))
    whole = trained(net(1, 2 * ROWS), slice(None))
    for name, array in whole.items():
        assert (first[name] == second[name]).all()
        np.testing.assert_allclose(first[name], array, atol=1e-6)


def test_a_type_has_calls_of_its_own() -> None:
    seen = []
    train = net(1, dtype="float16")
    with raises("InvalidOption", match=r"calls: 1 for .*float16 and float32: each type"):
        ap.train.exchange(net(1, dtype="float16"), nothing, calls=1)
    train = ap.train.exchange(train, lambda flat, step: seen.append(flat.dtype.name), calls=2)
    with ap.train.Trainer(ap.train.sgd(train, lr=0.01)) as trainer:
        trainer.step({"x": np.ones((ROWS, WIDTH), np.float32)})
    assert sorted(seen) == ["float16", "float32"]


def test_mistakes_are_named() -> None:
    wrong: Any = 3
    with raises("InvalidOption", match="reduce: 3 is not a function"):
        ap.train.exchange(net(0), wrong)
    for calls in (0, -1, 1.5, True):
        with raises("InvalidOption", match="calls"):
            ap.train.exchange(net(0), nothing, calls=calls)  # type: ignore[arg-type]
    with raises("InvalidOption", match="updates have read the gradients"):
        ap.train.exchange(ap.train.sgd(net(0)), nothing)
    with raises("InvalidOption", match="pass arenaplan.train.gradient"):
        ap.train.exchange(ap.Graph(), nothing)  # type: ignore[arg-type]
    train = net(0)
    train = exchanging._exchanged(train, [train.gradients], 10**6)
    with raises("UndefinedValue", match="call arenaplan.train.exchange"):
        ap.train.Trainer(ap.train.sgd(train))


def test_a_function_that_raises_leaves_the_states_as_they_were() -> None:
    def reduce(flat: np.ndarray, step: int) -> None:
        flat += 1
        if step == 1:
            raise TimeoutError("rank 3 is gone")

    train = ap.train.sgd(ap.train.exchange(net(0), reduce, calls=2))
    with ap.train.Trainer(train) as trainer:
        batch = {"x": np.ones((ROWS, WIDTH), np.float32)}
        trainer.step(batch)
        before = trainer.states()
        with raises("KernelError", match="rank 3 is gone"):
            trainer.step(batch)
        assert all((before[name] == array).all() for name, array in trainer.states().items())


# -- the store ------------------------------------------------------------------------------------

CASES: dict[str, list[list[Any]]] = {
    "one": [["init", 3, 0], ["push", 3, [4]], ["pull", 3]],
    "several": [["init", 3, 1], ["pull", 3], ["push", 3, [1, 1, 1, 1]], ["pull", 3]],
    "names": [["init", "a", 0], ["init", "b", 2], ["push", "a", [3, 2]], ["pull", "a"],
              ["pull", "b"]],
    "again": [["init", 3, 0], ["push", 3, [1]], ["push", 3, [2]], ["pull", 3]],
    "updater": [
        ["init", 3, 4], ["updater"], ["push", 3, [1, 1, 1, 1]], ["pull", 3], ["push", 3, [1]],
        ["pull", 3],
    ],
    "between": [["init", 3, 4], ["push", 3, [2]], ["updater"], ["push", 3, [2, 5]], ["pull", 3]],
}  # fmt: skip
"""Calls of a store; numbers stand for arrays of 4 by 4."""
EXPECTED = {
    "one": [4],
    "several": [1, 4],
    "names": [5, 2],
    "again": [2],
    "updater": [8, 9],
    "between": [9],
}
SCRIPT = """
import json, sys, mxnet as mx
def updater(key, pushed, stored):
    stored += pushed
found = {}
for name, calls in json.loads(sys.argv[1]).items():
    store, found[name] = mx.kv.create("local"), []
    for call, *given in calls:
        if call == "init":
            store.init(given[0], mx.nd.full((4, 4), given[1]))
        elif call == "push":
            store.push(given[0], [mx.nd.full((4, 4), each) for each in given[1]])
        elif call == "updater":
            store._set_updater(updater)
        else:
            out = mx.nd.zeros((4, 4))
            store.pull(given[0], out=out)
            assert (out.asnumpy() == out.asnumpy()[0, 0]).all()
            found[name].append(float(out.asnumpy()[0, 0]))
print(json.dumps(found))
"""


def run_case(calls: list[list[Any]]) -> list[float]:
    store, found = ap.train.KVStore(), []
    for call, *given in calls:
        if call == "init":
            store.init(given[0], np.full((4, 4), given[1], np.float32))
        elif call == "push":
            store.push(given[0], [np.full((4, 4), each, np.float32) for each in given[1]])
        elif call == "updater":
            store.set_updater(lambda key, pushed, stored: stored.__iadd__(pushed))
        else:
            (value,) = set(store.pull(given[0]).reshape(-1).tolist())
            found.append(value)
    return found


def test_the_store_does_what_the_one_of_mxnet_does() -> None:
    assert {name: run_case(calls) for name, calls in CASES.items()} == EXPECTED


def test_mxnet_says_the_same() -> None:
    python = os.environ.get("ARENAPLAN_MXNET")
    if not python:
        pytest.skip("no ARENAPLAN_MXNET: a Python that has mxnet 1.9.1 and numpy 1.23.5")
    command = [python, "-c", SCRIPT, json.dumps(CASES)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert json.loads(said.splitlines()[-1]) == EXPECTED


def test_stores_of_several_ranks_hold_the_same() -> None:
    transport = over_threads(2)

    def rank(at: int) -> list[float]:
        store = ap.train.KVStore(transport(at))
        store.init("w", np.zeros(3))
        for _ in range(3):
            store.push("w", [np.full(3, at + 1.0), np.ones(3)])
        store.barrier()
        return store.pull("w").tolist()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(rank, (0, 1))) == [[5.0] * 3] * 2


def test_mistakes_with_a_store_are_named() -> None:
    store = ap.train.KVStore()
    store.init("w", np.zeros(3, np.int64))
    with raises("InvalidOption", match="key 'w' has a value"):
        store.init("w", np.zeros(3))
    for call in (store.pull, lambda key: store.push(key, np.zeros(3))):
        with raises("UndefinedValue", match="no key 'v'"):
            call("v")
    with raises("ShapeMismatch", match=r"key 'w' has shape \(3,\), .* \(4,\)"):
        store.push("w", [np.zeros(3, np.int64), np.zeros(4, np.int64)])
    with raises("InvalidOption", match="'w' holds int64, and an array pushed float64"):
        store.push("w", np.zeros(3))
    assert store.pull("w").tolist() == [0, 0, 0]


# -- the page -------------------------------------------------------------------------------------

PAGE = Path(__file__).resolve().parents[2] / "docs" / "exchange.md"
TRANSPORTS = {
    "over_torch.py": ("torch", []),
    "over_ray.py": ("ray", []),
    "over_mpi.py": ("mpi4py", ["mpiexec", "-n", "2"]),
}


def test_the_page_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    snippets.run_page(PAGE)
    assert capsys.readouterr().out.splitlines() == ["True", "True", "[1.5 1.5 1.5]"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("script", TRANSPORTS)
def test_two_processes_train_as_one(script: str, tmp_path: Path) -> None:
    library, launcher = TRANSPORTS[script]
    pytest.importorskip(library)
    if launcher and shutil.which(launcher[0]) is None:
        pytest.skip(f"no {launcher[0]}")
    for block in snippets.blocks_of(PAGE.read_text()):
        if block.title:
            (tmp_path / block.title).write_text(block.text)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    said = subprocess.run(
        [*launcher, sys.executable, script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    first, second = (line for line in said.splitlines() if line.startswith("[('v'"))
    assert first == second
    names: dict[str, Any] = {}
    exec(compile((tmp_path / "ranks.py").read_text(), "ranks.py", "exec"), names)
    whole = names["train"](0, 1)
    for name, values in ast.literal_eval(first):
        np.testing.assert_allclose(np.array(values), whole[name], atol=1e-6)


def test_every_transport_is_tried() -> None:
    titles = [block.title for block in snippets.blocks_of(PAGE.read_text()) if block.title]
    assert titles == ["ranks.py", *TRANSPORTS]
