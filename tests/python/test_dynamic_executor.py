"""Inputs of varying shape in one arena: right results, no search, no allocation."""

import gc
import itertools
import threading
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.formats.onnx import open_onnx
from arenaplan.run.dynamic import dynamic_executor as executor_module
from arenaplan.run.dynamic import families as family_module
from dynamic_models import (
    array,
    attention,
    branching,
    convolutions,
    expected,
    hidden,
    shrinking,
    unnamed,
)
from raising import raises

CASES = {
    "convolutions": (convolutions(), {"batch": range(1, 7)}, ("batch", 3, 12, 12)),
    "attention": (attention(), {"batch": [1, 3], "seq": [2, 7, 16]}, ("batch", "seq", 8)),
    "shrinking": (shrinking(), {"batch": range(1, 9)}, ("batch", 128)),
    "branching": (branching(), {"seq": range(8, 14)}, ("seq", 16)),
    "unnamed": (unnamed(), {"x": [(4, 16), (9, 16)]}, ("x", 16)),
}


def inputs(bind: Mapping, dims: tuple) -> Iterator[dict[str, np.ndarray]]:
    """Yield inputs of every planned shape, large and small in turn."""
    shapes = [dict(zip(bind, sizes, strict=True)) for sizes in itertools.product(*bind.values())]
    half = len(shapes) // 2
    for sizes in [s for pair in zip(shapes[half:], shapes[:half], strict=False) for s in pair]:
        bound = [sizes.get(dim, dim) for dim in dims]
        yield {"x": array(*(dim[0] if isinstance(dim, tuple) else dim for dim in bound))}


@pytest.fixture
def no_search(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the graphs that are planned from now on."""
    planned: list[str] = []
    plan = family_module.plan_graph

    def counted(graph: ap.Graph, *args: Any, **options: Any) -> ap.Plan:
        planned.append(graph.name)
        return plan(graph, *args, **options)

    monkeypatch.setattr(family_module, "plan_graph", counted)
    return planned


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("verify", [False, True])
def test_every_shape_gives_what_onnx_runtime_gives(case: str, verify: bool) -> None:
    proto, bind, dims = CASES[case]
    with ap.run.DynamicExecutor(open_onnx(proto), bind) as executor:
        for _ in range(2):  # Shapes that were run before, after others have used the arena.
            for given in inputs(bind, dims):
                outputs = executor.run(given, verify=verify)
                for found, wanted in zip(outputs.values(), expected(proto, given), strict=True):
                    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        assert executor.arena.nbytes == executor.family.arena_bytes


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """Return a list of the shapes that are prepared from now on."""
    shapes: list[tuple] = []

    def counted(graph: ap.Graph, *args: Any, **options: Any) -> ap.Executor:
        shapes.append(tuple(graph.values[index].shape for index in graph.inputs))
        return ap.Executor(graph, *args, **options)

    monkeypatch.setattr(executor_module, "Executor", counted)
    return shapes


@pytest.mark.parametrize("case", CASES)
def test_no_shape_is_planned_while_running(
    case: str, no_search: list[str], made: list[tuple]
) -> None:
    proto, bind, dims = CASES[case]
    with ap.run.DynamicExecutor(open_onnx(proto), bind) as executor:
        no_search.clear()
        given = list(inputs(bind, dims))
        for _ in range(2):
            for each in given:
                executor.run(each)
        assert no_search == []
        assert made == [(each["x"].shape,) for each in given]
        assert len(executor.prepared) == len(given)
    assert executor.prepared == []


def test_scratch_memory_is_inside_the_arena() -> None:
    proto, bind, dims = CASES["convolutions"]
    with ap.run.DynamicExecutor(open_onnx(proto), bind) as executor:
        for given in inputs(bind, dims):
            executor.run(given)
        assert [each.scratch_bytes for each in executor._executors.values()] == [0] * 6


def test_a_shape_that_was_seen_allocates_nothing_but_its_outputs() -> None:
    def graph(sizes: Mapping) -> ap.Graph:
        graph = ap.Graph()
        n = sizes["n"]
        x = graph.input("x", (n, 1000))
        w = graph.constant("w", (1000, 1000), "float32", np.ones((1000, 1000), np.float32))
        (y,) = graph.node("MatMul", [x, w], [("y", (n, 1000), "float32")], version=13)
        (z,) = graph.node("Relu", [y], [("z", (n, 1000), "float32")], version=14)
        graph.output(z)
        return graph

    given = {n: {"x": np.ones((n, 1000), np.float32)} for n in (100, 300, 200)}
    with ap.run.DynamicExecutor(graph, {"n": [100, 200, 300]}) as executor:
        for each in given.values():
            executor.run(each, borrow=True)
        gc.collect()
        tracemalloc.start()
        for each in given.values():
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            executor.run(each, borrow=True)
            after, peak = tracemalloc.get_traced_memory()
            assert peak - before < 16 << 10
            assert after - before < 4 << 10
        tracemalloc.stop()


def test_the_shape_run_longest_ago_is_forgotten_first() -> None:
    proto = convolutions()
    given = {n: {"x": array(n, 3, 12, 12)} for n in range(1, 5)}
    wanted = {n: expected(proto, each)[0] for n, each in given.items()}
    with ap.run.DynamicExecutor(open_onnx(proto), {"batch": range(1, 5)}, keep=2) as executor:
        for n, kept in [(1, {1}), (2, {1, 2}), (1, {1, 2}), (3, {1, 3}), (1, {1, 3}), (4, {1, 4})]:
            (found,) = executor.run(given[n]).values()
            np.testing.assert_allclose(found, wanted[n], rtol=1e-4, atol=1e-5)
            assert {each["batch"] for each in executor.prepared} == kept
    for keep in (0, -1):
        with pytest.raises(errors.InvalidOption, match="keep"):
            ap.run.DynamicExecutor(open_onnx(proto), {"batch": 1}, keep=keep)


def test_shapes_share_the_weights_of_the_model(tmp_path: Path) -> None:
    onnx.save(convolutions(), tmp_path / "model.onnx")
    family = ap.plan_family(tmp_path / "model.onnx", {"batch": [1, 2]}, target="ideal")
    first, second = family.graph(batch=1), family.graph(batch=2)
    weights = [value.index for value in first.values if value.name in "abc"]
    assert len(weights) == 3
    for index in weights:
        assert first.data(index) is second.data(second.find(first.values[index].name).index)


def test_a_family_and_an_arena_can_be_given() -> None:
    proto, bind, dims = CASES["attention"]
    family = ap.plan_family(open_onnx(proto), bind, workspace="auto", target="numpy")
    with family.commit() as arena:
        assert arena.nbytes == family.arena_bytes
        with ap.run.DynamicExecutor(family, arena=arena) as executor:
            given = next(inputs(bind, dims))
            (found,) = executor.run(given).values()
        assert not arena.closed
        with raises("ArenaState"):
            executor.run(given)
    np.testing.assert_allclose(found, expected(proto, given)[0], rtol=1e-4, atol=1e-5)
    with family.at(batch=1, seq=2).commit() as small, pytest.raises(errors.CapacityExceeded):
        ap.run.DynamicExecutor(family, arena=small)
    with pytest.raises(errors.InvalidOption, match="bind"):
        ap.run.DynamicExecutor(family, bind)


def test_inputs_that_fit_no_shape_are_refused() -> None:
    with ap.run.DynamicExecutor(
        open_onnx(attention()), {"batch": [1, 2], "seq": [4, 8]}
    ) as executor:
        for shape in [(1, 5, 8), (3, 4, 8), (1, 4, 9), (4, 8), ()]:
            with raises("InputMismatch", match=r"'x' \("):
                executor.run({"x": np.zeros(shape, np.float32)})
        with raises("InputMismatch", match="'x' is missing"):
            executor.run({})
        with raises("InputMismatch", match="'z'"):
            executor.run({"x": array(1, 4, 8), "z": array(1)})
        with raises("InputMismatch", match="float64"):
            executor.run({"x": np.zeros((1, 4, 8))})
        assert executor.run({"x": np.zeros((1, 4, 8)).astype(np.float32).tolist()})


def test_sizes_that_no_input_shows_are_refused() -> None:
    with pytest.raises(errors.InvalidOption, match="same shapes with n=4 m=2 and with n=4 m=1"):
        ap.run.DynamicExecutor(open_onnx(hidden()), {"n": 4, "m": [1, 2]})


def test_states_are_refused() -> None:
    def graph(sizes: Mapping) -> ap.Graph:
        graph = ap.Graph()
        x, s = graph.input("x", (sizes["n"],)), graph.state("s", (sizes["n"],))
        (y,) = graph.node("Add", [x, s], [("y", (sizes["n"],), "float32")], version=14)
        graph.output(y)
        return graph

    with (
        ap.run.DynamicExecutor(graph, {"n": [1, 2]}) as executor,
        pytest.raises(errors.UnsupportedModel, match="states"),
    ):
        executor.run({"x": array(2)})


def test_one_run_at_a_time_has_the_arena() -> None:
    proto, bind, dims = CASES["convolutions"]
    with ap.run.DynamicExecutor(open_onnx(proto), bind) as executor:
        seen, new = list(inputs(bind, dims))[:2]
        executor.run(seen)
        with executor.arena.lease():
            for given in (seen, new):
                with raises("ArenaBusy"):
                    executor.run(given)
        assert executor.prepared == [{"batch": seen["x"].shape[0]}]
        assert executor.run(new)


def test_threads_get_right_results_or_are_told_to_wait(made: list[tuple]) -> None:
    proto, bind, dims = CASES["convolutions"]
    given = list(inputs(bind, dims))
    wanted = [expected(proto, each)[0] for each in given]
    failures: list[BaseException] = []
    with ap.run.DynamicExecutor(open_onnx(proto), bind) as executor:

        def work(start: int) -> None:
            try:
                for turn in range(40):
                    which = (start + turn) % len(given)
                    try:
                        (found,) = executor.run(given[which]).values()
                    except errors.ArenaError:
                        continue
                    np.testing.assert_allclose(found, wanted[which], rtol=1e-4, atol=1e-5)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(start,)) for start in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert len(made) == len(set(made))


def test_closing_waits_for_borrowed_outputs() -> None:
    proto, bind, dims = CASES["attention"]
    executor = ap.run.DynamicExecutor(open_onnx(proto), bind)
    (view,) = executor.run(next(inputs(bind, dims)), borrow=True).values()
    with pytest.raises(errors.ArenaInUse):
        executor.close()
    assert view.shape
    del view
    executor.close()
    assert executor.arena.closed
    executor.close()
