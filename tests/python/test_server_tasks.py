"""The server under asyncio: no thread waits, and tasks that are cancelled leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections.abc import Callable

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base import errors
from dynamic_models import convolutions
from gates import Gate, calling, full, started, summing
from networks import noise
from raising import raises
from test_plan_family import open_onnx


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until something is true."""
    for _ in range(60_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen")


def test_more_tasks_than_threads_get_their_results() -> None:
    gate = Gate()

    async def main() -> None:
        async with ap.Server({"a": calling(gate)}, cap="1MiB", workers=2) as server:
            before = threading.active_count()
            runs = [asyncio.create_task(server.run_async("a", full(1024, k))) for k in range(200)]
            await until(lambda: server.statistics().waiting == 198)
            assert threading.active_count() <= before + 2, "tasks wait, and no threads"
            gate.open(200)
            results = await asyncio.gather(*runs)
            assert [result["y"][0] for result in results] == [2 * k for k in range(200)]
            assert (server.statistics().leases, server.statistics().waits) == (200, 198)

    asyncio.run(main())


def test_tasks_are_served_in_the_order_of_arrival_among_threads() -> None:
    gate, order = Gate(), list[str]()

    async def main() -> None:
        graphs = {
            "gate": calling(gate),
            "task": calling(lambda: order.append("task"), name="task"),
            "thread": calling(lambda: order.append("thread"), name="thread"),
        }
        async with ap.Server(graphs, cap="1MiB", workers=1) as server:
            busy = started(server.run, "gate", full(1024))
            await asyncio.to_thread(gate.arrived)
            first = asyncio.create_task(server.run_async("task", full(1024)))
            await until(lambda: server.statistics().waiting == 1)
            second = started(server.run, "thread", full(1024))
            await until(lambda: server.statistics().waiting == 2)
            third = asyncio.create_task(server.run_async("task", full(1024)))
            await until(lambda: server.statistics().waiting == 3)
            gate.open()
            await asyncio.gather(first, third)
            await asyncio.to_thread(second.join)
            busy.join()

    asyncio.run(main())
    assert order == ["task", "thread", "task"]


def test_tasks_that_are_cancelled_while_they_wait_leave_the_queue() -> None:
    gate = Gate()

    async def main() -> None:
        async with ap.Server({"gate": calling(gate)}, cap="1MiB", workers=1) as server:
            running = asyncio.create_task(server.run_async("gate", full(1024)))
            await asyncio.to_thread(gate.arrived)
            tasks = [asyncio.create_task(server.run_async("gate", full(1024))) for _ in range(100)]
            await until(lambda: server.statistics().waiting == 100)
            for task in tasks[:99]:
                task.cancel()
            ends = await asyncio.gather(*tasks[:99], return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends)
            assert server.statistics().waiting == 1
            gate.open(2)
            assert (await running)["y"][0] == (await tasks[99])["y"][0] == 2
            await until(lambda: server.statistics().leased_bytes == 0)

    asyncio.run(main())


def test_a_run_that_is_cancelled_ends_and_gives_its_lease_back_then() -> None:
    gate = Gate()

    async def main() -> None:
        async with ap.Server({"gate": calling(gate)}, cap="1MiB", workers=1) as server:
            for _ in range(20):
                task = asyncio.create_task(server.run_async("gate", full(1024)))
                await asyncio.to_thread(gate.arrived)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert server.statistics().running == 1, "the kernel has its memory still"
                with raises("PoolBusy"):
                    await server.run_async("gate", full(1024), timeout=0)
                gate.open()
                await until(lambda: server.statistics().running == 0)

    asyncio.run(main())


def test_tasks_time_out() -> None:
    gate = Gate()

    async def main() -> None:
        async with ap.Server({"gate": calling(gate)}, cap="1MiB", workers=1) as server:
            running = asyncio.create_task(server.run_async("gate", full(1024)))
            await asyncio.to_thread(gate.arrived)
            with raises("PoolBusy"):
                await server.run_async("gate", full(1024), timeout=0.01)
            numbers = server.statistics()
            assert (numbers.waiting, numbers.running, numbers.refused) == (0, 1, 1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await server.run_async("gate", full(1024))
            numbers = server.statistics()
            assert (numbers.waiting, numbers.running, numbers.refused) == (0, 1, 1)
            gate.open(2)
            await running
            assert (await server.run_async("gate", full(1024), timeout=60))["y"][0] == 2
            assert server.statistics().refused == 1, "who was served in time was not refused"

    asyncio.run(main())


def test_a_run_begins_when_it_has_its_lease_however_busy_the_loop_is() -> None:
    gate, begun = Gate(), threading.Event()
    graphs = {"gate": calling(gate), "task": calling(begun.set, name="task")}

    async def main() -> None:
        async with ap.Server(graphs, cap="1MiB", workers=1) as server:
            busy = started(server.run, "gate", full(1024))
            await asyncio.to_thread(gate.arrived)
            task = asyncio.create_task(server.run_async("task", full(1024)))
            await until(lambda: server.statistics().waiting == 1)
            gate.open()
            assert begun.wait(60), "the loop did not get a turn"
            busy.join()
            assert server.run("task", full(1024), timeout=60), "nor does another run wait for it"
            await task

    asyncio.run(main())


def test_errors_of_a_run_reach_the_task() -> None:
    def fails() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        async with ap.Server({"a": calling(fails)}, cap="1MiB") as server:
            with raises("KernelError"):
                await server.run_async("a", full(1024))
            with raises("InputMismatch"):
                await server.run_async("a", full(1))
            with pytest.raises(errors.InvalidOption):
                await server.run_async("b", full(1))
            await until(lambda: server.statistics().running == 0)

    asyncio.run(main())


def test_shapes_that_are_new_are_imported_beside_the_loop() -> None:
    family = ap.plan_family(open_onnx(convolutions()), {"batch": range(1, 4)})
    (source,) = family.graph(batch=1).inputs
    value = family.graph(batch=1).values[source]
    given = [{value.name: noise(n, *value.shape[1:])} for n in (1, 2, 3, 2, 1)]
    with ap.run.DynamicExecutor(family) as executor:
        expected = [executor.run(each) for each in given]

    async def main() -> None:
        async with ap.Server({"f": family}, cap=family.arena_bytes, workers=2) as server:
            results = await asyncio.gather(*(server.run_async("f", each) for each in given))
            for result, wanted in zip(results, expected, strict=True):
                assert all(result[name].tobytes() == wanted[name].tobytes() for name in wanted)

    asyncio.run(main())


def test_closing_refuses_tasks_that_wait() -> None:
    gate = Gate()

    async def main() -> None:
        server = ap.Server({"gate": calling(gate)}, cap="1MiB", workers=1)
        running = asyncio.create_task(server.run_async("gate", full(1024)))
        await asyncio.to_thread(gate.arrived)
        waiting = [asyncio.create_task(server.run_async("gate", full(1024))) for _ in range(3)]
        await until(lambda: server.statistics().waiting == 3)
        closing = asyncio.create_task(asyncio.to_thread(server.close))
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(getattr(end, "kind", None) == "ArenaState" for end in ends)
        assert not closing.done()
        gate.open()
        await closing
        assert (await running)["y"][0] == 2

    asyncio.run(main())


def test_a_loop_that_ends_with_tasks_in_the_queue_leaves_nothing() -> None:
    gate = Gate()
    with ap.Server({"gate": calling(gate)}, cap="1MiB", workers=1) as server:
        busy = started(server.run, "gate", full(1024))
        gate.arrived()
        loop = asyncio.new_event_loop()
        tasks = [loop.create_task(server.run_async("gate", full(1024))) for _ in range(5)]
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        while server.statistics().waiting < 5:
            loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        gate.open(2)  # The first of them would get the lease, and its loop is gone.
        busy.join()
        assert server.run("gate", full(1024), timeout=60)["y"][0] == 2
        del tasks, task
        gc.collect()
        numbers = server.statistics()
        assert (numbers.waiting, numbers.running) == (0, 0)


def test_sessions_work_for_tasks() -> None:
    async def main() -> None:
        async with ap.Server({"sum": summing()}, cap="1MiB", workers=2) as server:

            async def client(k: int) -> None:
                with await server.session_async("sum") as session:
                    for step in range(1, 10):
                        result = await session.run_async(full(8, k))
                        assert result["y"][0] == 2 * k * step

            await asyncio.gather(*(client(k) for k in range(20)))
            assert server.statistics().sessions == 0

    asyncio.run(main())


def test_sessions_that_wait_do_so_as_tasks_and_can_be_cancelled() -> None:
    graph = summing(1024)

    async def main() -> None:
        cap = ap.plan(graph, target="numpy").arena_bytes + 4096
        async with ap.Server({"sum": graph}, cap=cap, workers=2) as server:
            first = await server.session_async("sum")
            tasks = [asyncio.create_task(server.session_async("sum")) for _ in range(3)]
            await until(lambda: server.statistics().waiting == 3)
            with raises("PoolBusy"):
                await server.session_async("sum", timeout=0)
            tasks[0].cancel()
            await until(lambda: server.statistics().waiting == 2)
            assert (await first.run_async(full(1024)))["y"][0] == 2
            first.close()
            second = await tasks[1]
            assert not tasks[2].done()
            second.close()
            (await tasks[2]).close()
            assert server.statistics().sessions == 0

    asyncio.run(main())


def test_random_cancellation_leaves_the_server_as_it_was() -> None:
    async def main(seed: int) -> None:
        draw = random.Random(seed)
        graphs = {"a": calling(size=256), "b": calling(size=4096, name="b"), "sum": summing()}
        async with ap.Server(graphs, cap=40_000, workers=2) as server:
            session = await server.session_async("sum")

            async def one(k: int) -> None:
                kind = draw.choice(["a", "b", "sum"])
                size = {"a": 256, "b": 4096, "sum": 8}[kind]
                timeout = draw.choice([None, None, 0, 0.003])
                if kind == "sum":
                    result = await session.run_async(full(size, 0), timeout=timeout)
                    assert result["y"][0] == 0
                else:
                    result = await server.run_async(kind, full(size, k), timeout=timeout)
                    assert result["y"][0] == 2 * k

            tasks = []
            for k in range(150):
                tasks.append(asyncio.create_task(one(k)))
                if draw.random() < 0.3:
                    draw.choice(tasks).cancel()
                if draw.random() < 0.3:
                    await asyncio.sleep(draw.choice([0, 0.001]))
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            allowed = {"CancelledError", "PoolBusy", "ArenaBusy", "NoneType"}
            assert {ap.errors.kind_of(end) for end in ends} <= allowed
            await until(lambda: server.statistics().running == 0)
            assert not np.any(session.states["total"])
            session.close()
            numbers = server.statistics()
            assert (numbers.waiting, numbers.leased_bytes, numbers.sessions) == (0, 0, 0)

    for seed in range(6):
        asyncio.run(main(seed))
