"""The executor: what goes in and comes out, what fails and how, one run at a time."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base.errors import (
    ArenaInUse,
    CapacityExceeded,
    UnsupportedDtype,
    UnsupportedOp,
)
from arenaplan.run.numpy.registry import Step
from networks import F32, noise, small_network
from raising import raises
from step_costs import workspace_choices


def chain(length: int = 3, shape: tuple[int, ...] = (4, 5)) -> ap.Graph:
    """Return a graph that negates its input some times, out of place."""
    graph = ap.Graph("chain")
    value = graph.input("x", shape)
    for k in range(length):
        (value,) = graph.node("Neg", [value], [(f"v{k}", shape, F32)], name=f"n{k}")
    graph.output(value)
    return graph


# -- results -----------------------------------------------------------------------------


def test_results_are_copies_that_a_later_run_leaves_alone() -> None:
    executor = ap.Executor(chain())
    first = executor.run({"x": np.ones((4, 5), np.float32)})["v2"]
    executor.run({"x": np.zeros((4, 5), np.float32)})
    np.testing.assert_array_equal(first, -1)
    first[...] = 7  # Ours to write.


def test_borrowed_results_are_overwritten_by_the_next_run_and_cannot_be_written() -> None:
    executor = ap.Executor(chain())
    borrowed = executor.run({"x": np.ones((4, 5), np.float32)}, borrow=True)["v2"]
    np.testing.assert_array_equal(borrowed, -1)
    executor.run({"x": np.full((4, 5), 3, np.float32)})
    np.testing.assert_array_equal(borrowed, -3)
    with pytest.raises(ValueError, match="read-only"):
        borrowed[...] = 0


def test_a_borrowed_result_outlives_executor_and_arena() -> None:
    executor = ap.Executor(chain())
    borrowed = executor.run({"x": np.ones((4, 5), np.float32)}, borrow=True)["v2"]
    del executor
    gc.collect()
    np.testing.assert_array_equal(borrowed, -1)


def test_inputs_and_constants_can_be_outputs() -> None:
    graph = ap.Graph()
    x = graph.input("x", (3,))
    (y,) = graph.node("Neg", [x], [("y", (3,), F32)])
    c = graph.constant("c", (2,), "int64", np.array([4, 5]))
    for value in (x, y, c):
        graph.output(value)
    result = ap.Executor(graph).run({"x": np.array([1, 2, 3], np.float32)}, verify=True)
    np.testing.assert_array_equal(result["x"], [1, 2, 3])
    np.testing.assert_array_equal(result["y"], [-1, -2, -3])
    np.testing.assert_array_equal(result["c"], [4, 5])
    result["c"][0] = 0
    assert graph.data(c)[0] == 4


def test_constants_are_read_only() -> None:
    graph = ap.Graph()
    graph.output(graph.constant("c", (2,), F32, np.zeros(2, np.float32)))
    for borrow in (False, True):
        result = ap.Executor(graph).run({}, borrow=borrow)["c"]
        assert result.flags.writeable != borrow
    with pytest.raises(ValueError, match="read-only"):
        graph.data(0)[0] = 1


def test_values_without_elements_have_their_shape() -> None:
    graph = chain(2, (3, 0, 2))
    result = ap.Executor(graph).run({"x": np.empty((3, 0, 2), np.float32)}, verify=True)
    assert result["v1"].shape == (3, 0, 2)


def test_an_unread_input_harms_nobody() -> None:
    graph = chain(2)
    graph.input("unread", (50,))
    inputs = {"x": np.ones((4, 5), np.float32), "unread": np.zeros(50, np.float32)}
    np.testing.assert_array_equal(ap.Executor(graph).run(inputs, verify=True)["v1"], 1)


def test_numbers_and_lists_take_the_type_of_their_input() -> None:
    result = ap.Executor(chain(1, (2, 2))).run({"x": [[1, 2], [3, 4.5]]})
    np.testing.assert_array_equal(result["v0"], [[-1, -2], [-3, -4.5]])


@pytest.mark.parametrize("workspace", ["none", "auto"])
@pytest.mark.parametrize("optimize", ["all", "all,-in-place"])
def test_every_plan_gives_the_same_numbers(workspace: Any, optimize: str) -> None:
    graph = small_network()
    x = noise(1, 8, 12, 12)
    plan = ap.plan(graph, workspace=workspace, optimize=optimize, target="numpy")
    with ap.Executor(graph, plan) as executor:
        result = executor.run({"x": x}, verify=True)["y"]
        assert (executor.scratch_bytes > 0) == (workspace == "none")
    wanted = ap.Executor(small_network(relu_in_place=False)).run({"x": x})["y"]
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-7)


def test_nan_and_infinity_everywhere_give_the_same_bits_planned_or_not() -> None:
    for poison in (np.nan, np.inf, -np.inf):
        x = np.full((1, 8, 12, 12), poison, np.float32)
        ap.Executor(small_network()).run({"x": x}, verify=True)


# -- bad inputs --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "'x' is missing"),
        ({"x": np.zeros((4, 5), np.float32), "z": 0}, "'z'"),
        ({"x": np.zeros((4, 5))}, "float64"),
        ({"x": np.zeros((4, 5), np.int32)}, "int32"),
        ({"x": np.zeros((4, 5), ">f4")}, ">f4"),
        ({"x": np.zeros((5, 4), np.float32)}, r"shape \(5, 4\)"),
        ({"x": np.float32(1)}, "shape"),
        ({"x": "abc"}, "element type"),
        ({"x": [[1j] * 5] * 4}, "complex"),
    ],
)
def test_a_wrong_input_is_refused_before_any_write(inputs: Any, message: str) -> None:
    graph = chain()
    plan = ap.plan(graph, target="ideal")
    arena = plan.commit()
    executor = ap.Executor(graph, plan, arena=arena)
    executor.run({"x": np.ones((4, 5), np.float32)})
    before = bytes(memoryview(arena))
    with raises("InputMismatch", match=message):
        executor.run(inputs)
    assert bytes(memoryview(arena)) == before


def test_an_input_inside_the_arena_is_copied_first() -> None:
    graph = ap.Graph()
    a, b = graph.input("a", (64,)), graph.input("b", (64,))
    (c,) = graph.node("Sub", [a, b], [("c", (64,), F32)], version=14)
    graph.output(c)
    plan = ap.plan(graph, target="ideal")
    arena = plan.commit()
    executor = ap.Executor(graph, plan, arena=arena)
    memory = np.frombuffer(arena, np.float32)
    for shift in (0, 16, 64):
        memory[:] = np.arange(memory.size)
        a, b = memory[shift : shift + 64], memory[64:128]
        wanted = a - b
        result = executor.run({"a": a, "b": b})
        np.testing.assert_array_equal(result["c"], wanted)


# -- what cannot be prepared ----------------------------------------------------------------


def test_a_shape_of_more_dimensions_than_an_array_has_is_refused() -> None:
    graph = chain(1, (1,) * 65)
    ap.plan(graph, target="ideal")
    with raises("RankTooLarge", match="'x'"):
        ap.Executor(graph)


def test_elements_that_are_too_narrow_to_compute_with_are_refused() -> None:
    graph = ap.Graph()
    x = graph.input("x", (4,), "float8_e5m2")
    (y,) = graph.node("Neg", [x], [("y", (4,), "float8_e5m2")])
    graph.output(y)
    with pytest.raises(UnsupportedDtype, match=r"Neg.*float8_e5m2"):
        ap.Executor(graph)


def test_an_unknown_operator_is_named() -> None:
    graph = ap.Graph()
    x = graph.input("x", (4,))
    (y,) = graph.node("Frobnicate", [x], [("y", (4,), F32)], name="here", version=17)
    graph.output(y)
    ap.plan(graph, workspace="auto", target="numpy")
    with pytest.raises(UnsupportedOp, match=r"'here'.*Frobnicate"):
        ap.Executor(graph)


def test_values_that_a_graph_has_in_several_spaces_run() -> None:
    graph = ap.Graph()
    x = graph.input("x", (4,), space="fast")
    y = graph.value("y", (4,), space="slow")
    graph.node("Neg", [x], [y])
    graph.output(y)
    plan = ap.plan(graph, target="ideal")
    assert len([space for space in plan.spaces if space.arena_bytes]) == 2
    given = np.array([1, -2, 3, 4], np.float32)
    found = ap.Executor(graph, plan).run({"x": given}, verify=True)
    np.testing.assert_array_equal(found["y"], -given)


def test_the_plan_of_another_graph_is_refused() -> None:
    with raises("PlanMismatch"):
        ap.Executor(chain(3), ap.plan(chain(4), target="ideal"))


def test_an_arena_that_is_too_small_is_refused() -> None:
    small, large = (
        ap.plan(chain(1, (4,)), target="ideal"),
        ap.plan(chain(1, (4000,)), target="ideal"),
    )
    with pytest.raises(CapacityExceeded):
        ap.Executor(chain(1, (4000,)), large, arena=small.commit())


def test_a_closed_executor_does_not_run_and_lets_go_of_the_arena() -> None:
    graph = chain()
    plan = ap.plan(graph, target="ideal")
    arena = plan.commit()
    executor = ap.Executor(graph, plan, arena=arena)
    with pytest.raises(ArenaInUse):
        arena.close()
    executor.close()
    executor.close()
    arena.close()
    with raises("ArenaState"):
        executor.run({"x": np.ones((4, 5), np.float32)})


# -- failures during a run ---------------------------------------------------------------------


def failing(custom: Any, error: BaseException) -> tuple[ap.Graph, SimpleNamespace]:
    """Return a chain with a node in its middle that raises when told to."""
    switch = SimpleNamespace(on=False)

    @custom("Fragile")
    def fragile(step: Step) -> Any:
        def run() -> None:
            if switch.on:
                raise error
            np.negative(step.inputs[0], step.outputs[0])

        return run

    graph = ap.Graph()
    x = graph.input("x", (4, 5))
    (a,) = graph.node("Neg", [x], [("a", (4, 5), F32)])
    (b,) = graph.node("Fragile", [a], [("b", (4, 5), F32)], name="weak spot", domain="test")
    (c,) = graph.node("Neg", [b], [("c", (4, 5), F32)])
    graph.output(c)
    return graph, switch


def test_a_failing_kernel_is_named_and_the_next_run_is_correct(custom: Any) -> None:
    cause = FloatingPointError("boom")
    graph, switch = failing(custom, cause)
    executor = ap.Executor(graph)
    x = noise(4, 5)
    switch.on = True
    for verify in (False, True):
        with raises("KernelError", match=r"'weak spot' \(Fragile\).*boom") as caught:
            executor.run({"x": x}, verify=verify)
        assert caught.value.__cause__ is cause
    switch.on = False
    np.testing.assert_array_equal(executor.run({"x": x})["c"], -x)


def test_an_interrupt_passes_through_and_the_next_run_is_correct(custom: Any) -> None:
    graph, switch = failing(custom, KeyboardInterrupt())
    executor = ap.Executor(graph)
    x = noise(4, 5)
    switch.on = True
    with pytest.raises(KeyboardInterrupt):
        executor.run({"x": x})
    switch.on = False
    np.testing.assert_array_equal(executor.run({"x": x})["c"], -x)


def test_a_run_leaves_numpys_settings_alone(custom: Any) -> None:
    graph, switch = failing(custom, ValueError())
    switch.on = True
    before = np.geterr(), np.getbufsize()
    with raises("KernelError"):
        ap.Executor(graph).run({"x": noise(4, 5)})
    assert (np.geterr(), np.getbufsize()) == before


def test_a_kernel_may_not_take_more_workspace_than_it_declared(custom: Any) -> None:
    @custom("Greedy", workspace=lambda signature: [[ap.graph.Choice(64, 1.0)]])
    def greedy(step: Step) -> Any:
        step.scratch().array((17,))

    graph = ap.Graph()
    x = graph.input("x", (4,))
    (y,) = graph.node("Greedy", [x], [("y", (4,), F32)], name="more", domain="test")
    graph.output(y)
    with raises("WorkspaceOverrun", match="'more'"):
        ap.Executor(graph)


# -- one run at a time ---------------------------------------------------------------------------


def test_a_second_thread_is_told_that_the_arena_is_busy(custom: Any) -> None:
    entered, leave = threading.Event(), threading.Event()

    @custom("Slow")
    def slow(step: Step) -> Any:
        def run() -> None:
            entered.set()
            leave.wait(10)
            np.negative(step.inputs[0], step.outputs[0])

        return run

    graph = ap.Graph()
    x = graph.input("x", (4,))
    (y,) = graph.node("Slow", [x], [("y", (4,), F32)], domain="test")
    graph.output(y)
    executor = ap.Executor(graph)
    results = []
    worker = threading.Thread(
        target=lambda: results.append(executor.run({"x": np.ones(4, np.float32)}))
    )
    worker.start()
    assert entered.wait(10)
    with raises("ArenaBusy"):
        executor.run({"x": np.zeros(4, np.float32)})
    leave.set()
    worker.join()
    np.testing.assert_array_equal(results[0]["y"], -1)
    executor.run({"x": np.zeros(4, np.float32)})


def test_a_kernel_cannot_run_the_arena_it_runs_in(custom: Any) -> None:
    inner: list[ap.Executor] = []

    @custom("Nested")
    def nested(step: Step) -> Any:
        return lambda: inner[0].run({"x": np.zeros(4, np.float32)})

    graph = ap.Graph()
    x = graph.input("x", (4,))
    (y,) = graph.node("Nested", [x], [("y", (4,), F32)], domain="test")
    graph.output(y)
    inner.append(ap.Executor(graph))
    with raises("KernelError") as caught:
        inner[0].run({"x": np.zeros(4, np.float32)})
    assert getattr(caught.value.__cause__, "kind", None) == "ArenaBusy"
    inner.clear()


def test_two_arenas_of_one_plan_run_side_by_side() -> None:
    graph = small_network()
    plan = ap.plan(graph, workspace="auto", target="numpy")
    inputs = [noise(1, 8, 12, 12, seed=k) for k in range(2)]
    wanted = [ap.Executor(graph, plan).run({"x": x})["y"] for x in inputs]
    failures: list[int] = []

    def work(k: int) -> None:
        executor = ap.Executor(graph, plan)
        for _ in range(50):
            if not np.array_equal(executor.run({"x": inputs[k]})["y"], wanted[k]):
                failures.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_two_threads_on_one_arena_never_get_a_wrong_result() -> None:
    graph = small_network()
    executor = ap.Executor(graph)
    inputs = [noise(1, 8, 12, 12, seed=k) for k in range(2)]
    wanted = [executor.run({"x": x})["y"] for x in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(500):
            try:
                result = executor.run({"x": inputs[k]})["y"]
            except ap.errors.ArenaError:
                continue
            if not np.array_equal(result, wanted[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_workspaces_are_declared_for_heavy_nodes_only() -> None:
    graph = small_network()
    declared = {graph.nodes[index].op for index in workspace_choices(graph)}
    assert declared == {"Conv"}


def test_a_kernel_that_cannot_be_prepared_is_named(custom: Any) -> None:
    cause = ValueError("boom")

    @custom("Broken")
    def broken(step: Step) -> None:
        raise cause

    graph = ap.Graph()
    x = graph.input("x", (3,))
    (y,) = graph.node("Broken", [x], [("y", (3,), F32)], name="weak spot", domain="test")
    graph.output(y)
    with raises("KernelError", match=r"'weak spot' \(Broken\).*boom") as caught:
        ap.Executor(graph)
    assert caught.value.__cause__ is cause
