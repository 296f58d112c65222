"""Arenas in memory of the caller: arrays, mapped and shared memory, used where it is."""

from __future__ import annotations

import mmap
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base import errors
from raising import raises


def two_layers() -> ap.Graph:
    graph = ap.Graph("two layers")
    x = graph.input("x", (4, 64))
    (y,) = graph.node("Neg", [x], [("y", (4, 64), "float32")])
    (z,) = graph.node("Abs", [y], [("z", (4, 64), "float32")])
    graph.output(z)
    return graph


def counter() -> ap.Graph:
    """Return a graph that adds its input to a state."""
    graph = ap.Graph("counter")
    x = graph.input("x", (16,))
    total = graph.state("total", (16,))
    made = [("after", (16,), "float32")]
    (after,) = graph.node("Add", [total, x], made, in_place=[(0, 0)], version=13)
    graph.write_back(after, total)
    graph.output(after)
    return graph


X = np.linspace(-2, 2, 256, dtype=np.float32).reshape(4, 64)


def aligned(size: int, dtype: Any = np.uint8, alignment: int = 64) -> np.ndarray:
    """Return an array of bytes that begins at a multiple of an alignment."""
    memory = np.zeros(size + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    return memory[start : start + size].view(dtype)


def test_a_run_uses_memory_of_the_caller_and_no_byte_beside_it() -> None:
    graph = two_layers()
    plan = ap.plan(graph, target="numpy")
    whole = aligned(plan.arena_bytes + 256)
    whole[:] = 0xA5
    memory = whole[128 : 128 + plan.arena_bytes]
    with ap.Executor(graph, plan, arena=memory) as executor:
        assert executor.arena.address == memory.ctypes.data
        assert executor.arena.nbytes == plan.arena_bytes
        result = executor.run({"x": X}, borrow=True)["z"]
        assert np.shares_memory(result, memory)
        np.testing.assert_array_equal(result, np.abs(X))
        place = plan["z"]
        np.testing.assert_array_equal(
            memory[place.offset : place.offset + place.bytes].view(np.float32), np.abs(X).ravel()
        )
        del result
    assert (whole[:128] == 0xA5).all()
    assert (whole[128 + plan.arena_bytes :] == 0xA5).all()


@pytest.mark.parametrize("kind", ["float64", "matrix", "mmap", "shared", "bytearray", "memoryview"])
def test_every_writable_buffer_can_be_an_arena(kind: str) -> None:
    graph = two_layers()
    plan = ap.plan(graph, target="numpy", alignment=8)
    size = plan.arena_bytes
    shared = SharedMemory(create=True, size=size) if kind == "shared" else None
    try:
        memory: Any = {
            "float64": lambda: aligned(size, np.float64),
            "matrix": lambda: aligned(size).reshape(2, -1),
            "mmap": lambda: mmap.mmap(-1, size),
            "shared": lambda: shared.buf if shared else None,
            "bytearray": lambda: bytearray(size),
            "memoryview": lambda: memoryview(aligned(size, np.float32)),
        }[kind]()
        with ap.Executor(graph, plan, arena=memory) as executor:
            outputs = executor.run({"x": X}, verify=True)
        np.testing.assert_array_equal(outputs["z"], np.abs(X))
        assert np.frombuffer(memory, np.uint8).any()
        del memory
    finally:
        if shared is not None:
            shared.close()
            shared.unlink()


def test_memory_that_cannot_be_an_arena_is_refused() -> None:
    graph = two_layers()
    plan = ap.plan(graph, target="numpy")
    size = plan.arena_bytes
    fixed = aligned(size)
    fixed.flags.writeable = False
    refusals: list[tuple[Any, type[Exception], str]] = [
        (bytes(size), "InvalidBuffer", "read-only"),
        (fixed, "InvalidBuffer", "read-only"),
        (aligned(2 * size)[::2], "InvalidBuffer", "gaps"),
        (np.asfortranarray(np.zeros((2, size))), "InvalidBuffer", "gaps"),
        (np.full(size, None), "InvalidBuffer", "elements that are objects"),
        (np.zeros(size, [("a", "i4"), ("b", "O")]), "InvalidBuffer", "objects"),
        ("memory", "InvalidBuffer", "not a buffer"),
        (size, "InvalidBuffer", "not a buffer"),
        (aligned(size - 64), errors.CapacityExceeded, f"{size - 64} bytes"),
        (aligned(size + 64)[4 : size + 4], "MisalignedBuffer", "multiple of 64"),
    ]
    for memory, kind, words in refusals:
        with raises(kind, match=words):
            ap.Executor(graph, plan, arena=memory)


def test_the_memory_is_let_go_when_the_executor_is_closed() -> None:
    graph = two_layers()
    plan = ap.plan(graph, target="numpy")
    memory = mmap.mmap(-1, plan.arena_bytes)
    executor = ap.Executor(graph, plan, arena=memory)
    with pytest.raises(BufferError):
        memory.close()
    result = executor.run({"x": X}, borrow=True)["z"]
    with pytest.raises(errors.ArenaInUse):
        executor.close()
    del result
    executor.close()
    assert memory[plan["z"].offset : plan["z"].offset + 4] == np.abs(X)[0, 0].tobytes()
    memory.close()
    with raises("ArenaState"):
        executor.run({"x": X})


def test_executors_of_one_arena_take_turns_in_memory_of_the_caller() -> None:
    graph = two_layers()
    plan = ap.plan(graph, target="numpy")
    with ap.Arena(aligned(plan.arena_bytes)) as arena:
        executors = [ap.Executor(graph, plan, arena=arena) for _ in range(2)]
        with arena.lease(), raises("ArenaBusy"):
            executors[1].run({"x": X})
        for executor in executors:
            np.testing.assert_array_equal(executor.run({"x": X})["z"], np.abs(X))
            executor.close()
        assert not arena.closed
    assert arena.closed
    assert "closed" in repr(arena)


def test_states_stay_in_an_arena_and_begin_anew_in_memory_alone() -> None:
    graph = counter()
    plan = ap.plan(graph, target="numpy")
    memory, one = aligned(plan.arena_bytes), np.ones(16, np.float32)
    with ap.Executor(graph, plan, arena=memory) as executor:
        for expected in (1, 2, 3):
            assert (executor.run({"x": one})["after"] == expected).all()
    with ap.Arena(memory) as arena, ap.Executor(graph, plan, arena=arena) as executor:
        assert (executor.run({"x": one})["after"] == 4).all()
    with ap.Executor(graph, plan, arena=memory) as executor:
        assert (executor.run({"x": one})["after"] == 1).all()


def test_all_shapes_of_a_model_run_in_memory_of_the_caller() -> None:
    def negate(sizes: Any) -> ap.Graph:
        graph = ap.Graph()
        x = graph.input("x", (sizes["batch"],))
        (y,) = graph.node("Neg", [x], [("y", (sizes["batch"],), "float32")])
        graph.output(y)
        return graph

    family = ap.plan_family(negate, bind={"batch": range(1, 65)})
    memory = aligned(family.arena_bytes)
    with ap.run.DynamicExecutor(family, arena=memory) as executor:
        for batch in (64, 3, 17):
            outputs = executor.run({"x": np.ones(batch, np.float32)}, borrow=True)
            assert np.shares_memory(outputs["y"], memory)
            assert (outputs["y"] == -1).all()
            del outputs
    with pytest.raises(errors.CapacityExceeded):
        ap.run.DynamicExecutor(family, arena=memory[: family.arena_bytes - 64])
    with raises("InvalidBuffer"):
        ap.run.DynamicExecutor(family, arena=bytes(family.arena_bytes))
