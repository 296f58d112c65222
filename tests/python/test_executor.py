"""The executor: what goes in and comes out, what fails and how, what verification finds."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import arenaplan as ap
import light_models
from arenaplan.errors import (
    ArenaBusy,
    ArenaInUse,
    ArenaState,
    CapacityExceeded,
    InputMismatch,
    KernelError,
    PlanMismatch,
    RankTooLarge,
    UnsupportedDtype,
    UnsupportedOp,
    VerificationError,
    WorkspaceOverrun,
)
from arenaplan.executor import kernel, workspace_choices
from arenaplan.executor.registry import _KERNELS, Step

F32 = "float32"


def chain(length: int = 3, shape: tuple[int, ...] = (4, 5)) -> ap.Graph:
    """Return a graph that negates its input some times, out of place."""
    graph = ap.Graph("chain")
    value = graph.input("x", shape)
    for k in range(length):
        (value,) = graph.node("Neg", [value], [(f"v{k}", shape, F32)], name=f"n{k}")
    graph.output(value)
    return graph


def small_network(*, relu_in_place: bool = True) -> ap.Graph:
    """Return Conv, BatchNormalization, Add of a shortcut, Relu, Softmax, with weights."""
    rng = np.random.default_rng(3)
    graph = ap.Graph("small")
    shape = (1, 8, 12, 12)
    x = graph.input("x", shape)

    def weight(name: str, *dims: int, low: float = -0.3, high: float = 0.3) -> int:
        data = rng.uniform(low, high, dims).astype(np.float32)
        return graph.constant(name, dims, F32, data)

    place = [(0, 0)] if relu_in_place else []
    (stem,) = graph.node(
        "Conv",
        [x, weight("w0", 8, 8, 3, 3)],
        [("stem", shape, F32)],
        attributes={"pads": [1] * 4},
        version=17,
    )
    (main,) = graph.node(
        "Conv",
        [stem, weight("w1", 8, 8, 3, 3), weight("b1", 8)],
        [("main", shape, F32)],
        attributes={"pads": [1] * 4},
        version=17,
        name="conv",
    )
    statistics = [weight("s", 8), weight("t", 8), weight("m", 8), weight("v", 8, low=0.5, high=2)]
    (normal,) = graph.node(
        "BatchNormalization",
        [main, *statistics],
        [("normal", shape, F32)],
        version=15,
        in_place=place,
    )
    (total,) = graph.node(
        "Add", [normal, stem], [("total", shape, F32)], version=14, in_place=place
    )
    (active,) = graph.node("Relu", [total], [("active", shape, F32)], version=14, in_place=place)
    (result,) = graph.node("Softmax", [active], [("y", shape, F32)], version=13, in_place=place)
    graph.output(result)
    return graph


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def custom() -> Iterator[Any]:
    """Register kernels of the domain "test" for one test."""
    yield lambda op, **options: kernel(op, domain="test", **options)
    for key in [key for key in _KERNELS if key[0] == "test"]:
        del _KERNELS[key]


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
@pytest.mark.parametrize("in_place", [False, True])
def test_every_plan_gives_the_same_numbers(workspace: Any, in_place: bool) -> None:
    graph = small_network()
    x = noise(1, 8, 12, 12)
    plan = ap.plan(graph, workspace=workspace, in_place=in_place)
    with ap.Executor(graph, plan) as executor:
        result = executor.run({"x": x}, verify=True)["y"]
        assert (executor.scratch_bytes > 0) == (workspace == "none")
    wanted = ap.Executor(small_network(relu_in_place=False)).run({"x": x})["y"]
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-7)


def test_nan_and_infinity_everywhere_give_the_same_bits_planned_or_not() -> None:
    for poison in (np.nan, np.inf, -np.inf):
        x = np.full((1, 8, 12, 12), poison, np.float32)
        ap.Executor(small_network()).run({"x": x}, verify=True)


# -- epilogues ---------------------------------------------------------------------------


def steps(graph: ap.Graph, **options: Any) -> list[str]:
    """Return the operators that a planned run has steps for."""
    executor = ap.Executor(graph, ap.plan(graph, workspace="auto", **options))
    return [node.op for node in executor._setup.program.nodes]


def test_a_convolution_performs_what_follows_it_in_place() -> None:
    assert steps(small_network()) == ["Conv", "Conv", "Softmax"]


def test_nothing_is_performed_early_that_the_plan_did_not_put_in_place() -> None:
    every = ["Conv", "Conv", "BatchNormalization", "Add", "Relu", "Softmax"]
    assert steps(small_network(), in_place=False) == every


def test_a_value_with_two_readers_ends_an_epilogue() -> None:
    graph = ap.Graph()
    x = graph.input("x", (1, 2, 4, 4))
    w = graph.constant("w", (2, 2, 1, 1), F32, noise(2, 2, 1, 1))
    (y,) = graph.node("Conv", [x, w], [("y", (1, 2, 4, 4), F32)], version=13)
    (r,) = graph.node("Relu", [y], [("r", (1, 2, 4, 4), F32)], version=13)
    (s,) = graph.node("Add", [r, y], [("s", (1, 2, 4, 4), F32)], version=13, in_place=[(0, 0)])
    graph.output(s)
    assert steps(graph) == ["Conv", "Relu", "Add"]


def test_an_output_of_the_graph_ends_an_epilogue() -> None:
    graph = ap.Graph()
    x = graph.input("x", (1, 2, 4, 4))
    w = graph.constant("w", (2, 2, 1, 1), F32, noise(2, 2, 1, 1))
    (y,) = graph.node("Conv", [x, w], [("y", (1, 2, 4, 4), F32)], version=13)
    (r,) = graph.node("Relu", [y], [("r", (1, 2, 4, 4), F32)], version=13, in_place=[(0, 0)])
    graph.output(y)
    graph.output(r)
    result = ap.Executor(graph).run({"x": noise(1, 2, 4, 4)}, verify=True)
    np.testing.assert_array_equal(np.maximum(result["y"], 0), result["r"])


def test_an_addend_that_is_not_there_yet_ends_an_epilogue() -> None:
    graph = ap.Graph()
    shape = (1, 2, 4, 4)
    x = graph.input("x", shape)
    w = graph.constant("w", (2, 2, 1, 1), F32, noise(2, 2, 1, 1))
    (y,) = graph.node("Conv", [x, w], [("y", shape, F32)], version=13)
    (late,) = graph.node("Neg", [x], [("late", shape, F32)], version=13)
    (s,) = graph.node("Add", [y, late], [("s", shape, F32)], version=13, in_place=[(0, 0)])
    graph.output(s)
    assert steps(graph) == ["Conv", "Neg", "Add"]


def followed(op: str, *, computed_weights: bool = False) -> ap.Graph:
    """Return a heavy node and every elementwise node that can be performed with it."""
    rng = np.random.default_rng(5)
    graph = ap.Graph()
    shape = (2, 6, 8, 8)
    x = graph.input("x", shape)
    gate = graph.input("gate", (2, 6, 1, 1))

    def weight(name: str, *dims: int) -> int:
        return graph.constant(name, dims, F32, rng.uniform(0.5, 1.5, dims).astype(np.float32))

    kernel_shape = (6, 6, 3, 3)
    w = graph.input("w", kernel_shape) if computed_weights else weight("w", *kernel_shape)
    statistics = [weight(name, 6) for name in "stmv"]
    if op == "BatchNormalization":
        operands, attributes = [x, *statistics], {}
    else:
        operands, attributes = [x, w, weight("b", 6)], {"pads": [1] * 4}
    low, high = (
        graph.constant(name, (), F32, np.array(limit, np.float32))
        for name, limit in (("low", -2), ("high", 20))
    )
    (value,) = graph.node(op, operands, [("host", shape, F32)], attributes=attributes, version=15)
    chain: list[tuple[str, list[int], int]] = [
        ("Mul", [weight("c1", 6, 1, 1)], 0),
        ("Add", [weight("c2", 1, 6, 1, 1)], 1),
        ("BatchNormalization", statistics, 0),
        ("Mul", [gate], 0),
        ("Relu", [], 0),
        ("Add", [x], 1),
        ("Mul", [weight("c3")], 0),
        ("Add", [weight("c4", 8, 8)], 0),
        ("Sum", [x], 0),
        ("Clip", [low, high], 0),
    ]
    for k, (later, others, place) in enumerate(chain):
        operands = [value, *others] if place == 0 else [*others, value]
        (value,) = graph.node(
            later, operands, [(f"v{k}", shape, F32)], version=15, in_place=[(place, 0)]
        )
    graph.output(value)
    return graph


@pytest.mark.parametrize(
    ("op", "computed_weights"),
    [
        ("Conv", False),
        ("Conv", True),
        ("ConvTranspose", False),
        ("ConvTranspose", True),
        ("BatchNormalization", False),
    ],
)
def test_an_epilogue_computes_what_its_nodes_would(op: str, computed_weights: bool) -> None:
    graph = followed(op, computed_weights=computed_weights)
    shapes = {graph.values[index].name: graph.values[index].shape for index in graph.inputs}
    inputs = {name: noise(*shape, seed=k) for k, (name, shape) in enumerate(shapes.items())}
    assert steps(graph) == [op]
    with ap.Executor(graph) as executor:
        (together,) = executor.run(inputs, verify=True).values()
    with ap.Executor(graph, ap.plan(graph, in_place=False)) as executor:
        assert len(executor._setup.program.nodes) == len(graph.nodes)
        (apart,) = executor.run(inputs, verify=True).values()
    assert np.unique(apart).size > 100
    np.testing.assert_allclose(together, apart, rtol=1e-4, atol=1e-4)


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
    plan = ap.plan(graph)
    arena = plan.commit()
    executor = ap.Executor(graph, plan, arena=arena)
    executor.run({"x": np.ones((4, 5), np.float32)})
    before = bytes(memoryview(arena))
    with pytest.raises(InputMismatch, match=message):
        executor.run(inputs)
    assert bytes(memoryview(arena)) == before


def test_an_input_inside_the_arena_is_copied_first() -> None:
    graph = ap.Graph()
    a, b = graph.input("a", (64,)), graph.input("b", (64,))
    (c,) = graph.node("Sub", [a, b], [("c", (64,), F32)], version=14)
    graph.output(c)
    plan = ap.plan(graph)
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
    ap.plan(graph)
    with pytest.raises(RankTooLarge, match="'x'"):
        ap.Executor(graph)


def test_an_element_type_that_numpy_lacks_is_refused() -> None:
    graph = ap.Graph()
    x = graph.input("x", (4,), "bfloat16")
    (y,) = graph.node("Neg", [x], [("y", (4,), "bfloat16")])
    graph.output(y)
    ap.plan(graph, workspace="auto")
    with pytest.raises(UnsupportedDtype, match="bfloat16"):
        ap.Executor(graph)


def test_an_unknown_operator_is_named() -> None:
    graph = ap.Graph()
    x = graph.input("x", (4,))
    (y,) = graph.node("Frobnicate", [x], [("y", (4,), F32)], name="here", version=17)
    graph.output(y)
    ap.plan(graph, workspace="auto")
    with pytest.raises(UnsupportedOp, match=r"'here'.*Frobnicate"):
        ap.Executor(graph)


def test_the_plan_of_another_graph_is_refused() -> None:
    with pytest.raises(PlanMismatch):
        ap.Executor(chain(3), ap.plan(chain(4)))


def test_an_arena_that_is_too_small_is_refused() -> None:
    small, large = ap.plan(chain(1, (4,))), ap.plan(chain(1, (4000,)))
    with pytest.raises(CapacityExceeded):
        ap.Executor(chain(1, (4000,)), large, arena=small.commit())


def test_a_closed_executor_does_not_run_and_lets_go_of_the_arena() -> None:
    graph = chain()
    plan = ap.plan(graph)
    arena = plan.commit()
    executor = ap.Executor(graph, plan, arena=arena)
    with pytest.raises(ArenaInUse):
        arena.close()
    executor.close()
    executor.close()
    arena.close()
    with pytest.raises(ArenaState):
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
        with pytest.raises(KernelError, match=r"'weak spot' \(Fragile\).*boom") as caught:
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
    with pytest.raises(KernelError):
        ap.Executor(graph).run({"x": noise(4, 5)})
    assert (np.geterr(), np.getbufsize()) == before


def test_a_kernel_may_not_take_more_workspace_than_it_declared(custom: Any) -> None:
    @custom("Greedy", workspace=lambda signature: [[ap.Choice(64, 1.0)]])
    def greedy(step: Step) -> Any:
        step.scratch().array((17,))

    graph = ap.Graph()
    x = graph.input("x", (4,))
    (y,) = graph.node("Greedy", [x], [("y", (4,), F32)], name="more", domain="test")
    graph.output(y)
    with pytest.raises(WorkspaceOverrun, match="'more'"):
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
    with pytest.raises(ArenaBusy):
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
    with pytest.raises(KernelError) as caught:
        inner[0].run({"x": np.zeros(4, np.float32)})
    assert isinstance(caught.value.__cause__, ArenaBusy)
    inner.clear()


def test_two_arenas_of_one_plan_run_side_by_side() -> None:
    graph = small_network()
    plan = ap.plan(graph, workspace="auto")
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
            except ArenaBusy:
                continue
            if not np.array_equal(result, wanted[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- verification ------------------------------------------------------------------------------


def custom_graph(shape: tuple[int, ...] = (32,)) -> ap.Graph:
    """Return a graph whose middle node is of a kernel that a test registers."""
    graph = ap.Graph()
    x = graph.input("x", shape)
    (a,) = graph.node("Neg", [x], [("a", shape, F32)])
    (b,) = graph.node("Rogue", [a], [("b", shape, F32)], name="rogue", domain="test")
    (c,) = graph.node("Add", [b, x], [("c", shape, F32)], version=14)
    graph.output(c)
    return graph


def run_verified(graph: ap.Graph) -> None:
    with ap.Executor(graph) as executor:
        (x,) = (graph.values[index] for index in graph.inputs)
        executor.run({x.name: noise(*x.shape)}, verify=True)


def beyond(array: np.ndarray, elements: int) -> np.ndarray:
    """Return an array of the same arena that starts some elements after this one's first."""
    memory = array
    while memory.base is not None and isinstance(memory.base, np.ndarray):
        memory = memory.base
    flat = memory.view(np.uint8)
    start = array.ctypes.data - flat.ctypes.data + elements * array.itemsize
    return flat[start : start + array.itemsize].view(array.dtype)


def test_verification_finds_a_kernel_that_writes_into_another_value(custom: Any) -> None:
    @custom("Rogue")
    def rogue(step: Step) -> Any:
        source, target = step.inputs[0], step.outputs[0]

        def run() -> None:
            np.negative(source, target)
            beyond(source, 3)[...] = 1  # Of its own input, which it must not write.

        return run

    with pytest.raises(VerificationError, match=r"'rogue'.*wrote byte \d+.*of value 'a'"):
        run_verified(custom_graph())


def test_verification_finds_a_kernel_that_writes_where_nothing_is(custom: Any) -> None:
    @custom("Rogue")
    def rogue(step: Step) -> Any:
        source, target = step.inputs[0], step.outputs[0]
        gap = beyond(target, target.size)  # Between the end of the value and the next 64 bytes.

        def run() -> None:
            np.negative(source, target)
            gap[...] = 1

        return run

    with pytest.raises(VerificationError, match=r"'rogue'.*that nothing owns"):
        run_verified(custom_graph((33,)))


def test_verification_finds_a_kernel_that_leaves_bytes_unwritten(custom: Any) -> None:
    @custom("Rogue")
    def rogue(step: Step) -> Any:
        source, target = step.inputs[0], step.outputs[0]

        def run() -> None:
            np.negative(source[:-1], target[:-1])

        return run

    with pytest.raises(VerificationError, match=r"'b' differs after node 'rogue'.*byte 124"):
        run_verified(custom_graph())


def test_verification_finds_a_kernel_that_remembers(custom: Any) -> None:
    @custom("Rogue")
    def rogue(step: Step) -> Any:
        source, target = step.inputs[0], step.outputs[0]
        calls = [0]

        def run() -> None:
            calls[0] += 1
            np.multiply(source, np.float32(calls[0]), target)

        return run

    graph = custom_graph()
    executor = ap.Executor(graph)
    executor.run({"x": noise(32)})
    with pytest.raises(VerificationError, match="'b' differs"):
        executor.run({"x": noise(32)}, verify=True)


class TamperedPlan:
    """A plan with some of its placements changed, that claims to be valid."""

    def __init__(self, plan: ap.Plan, changes: dict[int, tuple[int, int, int]]) -> None:
        self._plan = plan
        self.placements = list(plan.placements)
        for index, placement in changes.items():
            self.placements[index] = placement

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)

    def check(self, graph: ap.Graph) -> None:
        pass


def test_verification_finds_a_value_whose_memory_is_given_away_too_early() -> None:
    graph = ap.Graph()
    x = graph.input("x", (32,))
    (a,) = graph.node("Neg", [x], [("a", (32,), F32)])
    (b,) = graph.node("Sqrt", [a], [("b", (32,), F32)])
    (c,) = graph.node("Add", [a, b], [("c", (32,), F32)], version=14)
    graph.output(c)
    plan = ap.plan(graph)
    executor = ap.Executor(graph, TamperedPlan(plan, {b: plan.placements[a]}))  # type: ignore[arg-type]
    executor.run({"x": -np.ones(32, np.float32)})
    with pytest.raises(VerificationError, match=r"'c' differs after node .*Add"):
        executor.run({"x": -np.full(32, 4, np.float32)}, verify=True)


def test_verification_finds_an_output_that_is_overwritten_after_its_step() -> None:
    graph = ap.Graph()
    x = graph.input("x", (32,))
    (a,) = graph.node("Neg", [x], [("a", (32,), F32)])
    (b,) = graph.node("Exp", [x], [("b", (32,), F32)])
    graph.output(a)
    graph.output(b)
    plan = ap.plan(graph)
    executor = ap.Executor(graph, TamperedPlan(plan, {b: plan.placements[a]}))  # type: ignore[arg-type]
    with pytest.raises(VerificationError, match="'a' differs at the end of the run"):
        executor.run({"x": noise(32)}, verify=True)


def test_a_verified_run_returns_what_a_plain_one_does() -> None:
    executor = ap.Executor(small_network())
    x = noise(1, 8, 12, 12)
    plain, verified = executor.run({"x": x}), executor.run({"x": x}, verify=True)
    np.testing.assert_array_equal(plain["y"], verified["y"])
    np.testing.assert_array_equal(executor.run({"x": x})["y"], plain["y"])


# -- whole models ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", light_models.NAMES)
def test_light_models_give_the_stored_output(name: str, tmp_path: Path) -> None:
    inputs, wanted = light_models.stored_case(name)
    with ap.Executor(ap.load(light_models.path(name))) as executor:
        (result,) = executor.run(inputs).values()
    if np.allclose(result, wanted, rtol=1e-4, atol=1e-6):
        return
    # All weights of these models are equal, and so should all scores be: the stored output
    # is 1/1000 everywhere. But scores are so large (1e10 and more) that the spacing of
    # numbers there exceeds 1, and Softmax tells apart what BLAS rounded differently, as
    # OpenBLAS's AVX2 kernels do from one matrix row to the next. That is all it may be.
    assert name == "squeezenet", np.abs(result - wanted).max()
    assert (wanted == wanted.flat[0]).all()
    path = tmp_path / "scores.onnx"
    path.write_bytes(
        light_models.softmax_input(onnx.load(light_models.path(name))).SerializeToString()
    )
    with ap.Executor(ap.load(path)) as executor:
        (scores,) = executor.run(inputs).values()
    assert np.spacing(scores.min()) > 1
    np.testing.assert_allclose(scores, scores.flat[0], rtol=1e-6)


@pytest.mark.parametrize("name", light_models.NAMES)
def test_light_models_with_random_weights_agree_with_onnx_runtime(
    name: str, tmp_path: Path
) -> None:
    model = light_models.softmax_input(light_models.randomized(name))
    inputs = light_models.random_input(model)
    (wanted,) = light_models.onnx_runtime(model).run(None, inputs)
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    del model
    with ap.Executor(ap.load(path)) as executor:
        (result,) = executor.run(inputs, verify=True).values()
    assert wanted.std() > 1e-2, "a constant output would prove nothing"
    assert np.abs(result - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("name", ["bert", "gpt2", "mobilenet_v2", "resnet", "unet", "vit"])
def test_exported_models_give_the_stored_output(name: str, shared: Path) -> None:
    folder = shared / "models" / "onnx"
    stored = np.load(folder / f"{name}.npz")
    graph = ap.load(folder / f"{name}.onnx")
    with ap.Executor(graph) as executor:
        inputs = {
            graph.values[index].name: stored[f"in{k}"] for k, index in enumerate(graph.inputs)
        }
        (result,) = executor.run(inputs, verify=True).values()
    assert np.abs(result - stored["out0"]).max() <= 1e-5 * np.abs(stored["out0"]).max()


def test_workspaces_are_declared_for_heavy_nodes_only() -> None:
    graph = small_network()
    declared = {graph.nodes[index].op for index in workspace_choices(graph)}
    assert declared == {"Conv", "Softmax"}
