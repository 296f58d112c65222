"""Sessions of a server: states survive between runs, are apart, and count against the cap."""

from __future__ import annotations

import gc
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

import arenaplan as ap
from gates import Gate, calling, full, started, summing
from raising import raises

SIZE = 1024
BYTES = 4 * SIZE


def run_bytes() -> int:
    return ap.plan(summing(SIZE), target="numpy").arena_bytes


def test_states_survive_between_runs_and_are_nobody_elses() -> None:
    with ap.Server({"sum": summing()}, cap="1MiB", workers=2) as server:
        a, b = server.session("sum"), server.session("sum")
        for k in range(1, 6):
            assert a.run(full(8, 1))["y"][0] == 2 * k
            assert b.run(full(8, 10))["y"][0] == 20 * k
            assert server.run("sum", full(8, 7))["y"][0] == 14, "states begin as zeros"
        assert a.states["total"].tolist() == [5] * 8
        assert b.states["total"].tolist() == [50] * 8


def test_states_of_many_threads_are_apart() -> None:
    failures: list[object] = []

    def client(k: int) -> None:
        try:
            with server.session("sum") as session:
                for step in range(1, 30):
                    if session.run(full(SIZE, k))["y"][-1] != 2 * k * step:
                        failures.append((k, step))
        except BaseException as error:
            failures.append(error)

    with ap.Server({"sum": summing(SIZE)}, cap=run_bytes() + 5 * BYTES, workers=3) as server:
        threads = [started(client, k) for k in range(12)]
        for thread in threads:
            thread.join()
        numbers = server.statistics()
    assert failures == []
    assert (numbers.sessions, numbers.leased_bytes) == (0, 0)
    assert numbers.peak_bytes <= server.cap


def test_a_run_that_fails_leaves_the_states_as_they_were() -> None:
    fails = threading.Event()

    def then() -> None:
        if fails.is_set():
            raise ZeroDivisionError

    with ap.Server({"sum": summing(8, then)}, cap="1MiB") as server:
        session = server.session("sum")
        session.run(full(8, 3))
        fails.set()
        with raises("KernelError"):
            session.run(full(8, 100))
        fails.clear()
        assert session.states["total"][0] == 3
        assert session.run(full(8, 1))["y"][0] == 8


def test_sessions_count_against_the_cap() -> None:
    cap = run_bytes() + 2 * BYTES
    with ap.Server({"sum": summing(SIZE)}, cap=cap, workers=4) as server:
        first, second = server.session("sum"), server.session("sum")
        assert server.statistics().leased_bytes == 2 * BYTES
        with raises("PoolBusy", match="a session of model 'sum' needs 4,096 bytes"):
            server.session("sum", timeout=0.01)
        assert second.run(full(SIZE))["y"][0] == 2, "one run fits beside all sessions"
        made: list[ap.run.Session] = []
        waiting = started(lambda: made.append(server.session("sum")))
        while not server.statistics().waiting:
            pass
        assert first.run(full(SIZE))["y"][0] == 2, "runs do not wait for sessions"
        first.close()
        waiting.join(60)
        assert made[0].states["total"].tolist() == [0] * SIZE, "not those of another session"


def test_states_that_never_fit_are_refused() -> None:
    with (
        ap.Server({"sum": summing(SIZE)}, cap=run_bytes() + BYTES - 1) as server,
        raises("LeaseTooLarge", match="states of model 'sum' need 4,096 bytes"),
    ):
        server.session("sum")


def test_a_session_that_is_closed_gives_its_memory_back_once() -> None:
    with ap.Server({"sum": summing()}, cap="1MiB") as server:
        with server.session("sum") as session:
            session.run(full(8))
        session.close()
        assert server.statistics().leased_bytes == 0
        other = server.session("sum")
        session.close()
        assert server.statistics().sessions == 1
        for use in (lambda: session.run(full(8)), lambda: session.states):
            with raises("ArenaState", match="session is closed"):
                use()
        assert other.run(full(8))["y"][0] == 2
        assert "closed" in repr(session)


def test_a_session_that_is_forgotten_gives_its_memory_back() -> None:
    with ap.Server({"sum": summing()}, cap="1MiB") as server:
        for _ in range(50):
            server.session("sum").run(full(8))
        gc.collect()
        assert (server.statistics().sessions, server.statistics().leased_bytes) == (0, 0)


def test_one_run_of_a_session_at_a_time() -> None:
    gate = Gate()
    with ap.Server({"sum": summing(8, gate)}, cap="1MiB", workers=2) as server:
        session = server.session("sum")
        running = started(session.run, full(8))
        gate.arrived()
        with raises("ArenaBusy"):
            session.run(full(8))
        with raises("ArenaBusy"):
            _ = session.states
        session.close()
        assert server.statistics().sessions == 1, "a run uses it still"
        gate.open()
        running.join()
        assert server.statistics().sessions == 0
        with raises("ArenaState"):
            session.run(full(8))


def test_sessions_end_with_their_server() -> None:
    server = ap.Server({"sum": summing()}, cap="1MiB")
    session = server.session("sum")
    server.close()
    assert server._pages._map.closed
    with raises("ArenaState"):
        session.run(full(8))
    with raises("ArenaState"):
        server.session("sum")


def test_states_pass_from_one_shape_to_another() -> None:
    def counting(sizes: Mapping[str, Any]) -> ap.Graph:
        graph = summing(8)
        batch = sizes["batch"]
        z = graph.input("z", (batch,))
        (w,) = graph.node("Neg", [z], [("w", (batch,), "float32")])
        assert w is not None
        graph.output(w)
        return graph

    def growing(sizes: Mapping[str, Any]) -> ap.Graph:
        return summing(sizes["n"])

    with ap.Server(
        {"count": counting, "grow": growing},
        cap="1MiB",
        bind={"count": {"batch": [1, 2, 3]}, "grow": {"n": [8, 16]}},
    ) as server:
        with server.session("count") as session:
            for step, batch in enumerate([3, 1, 2, 3], 1):
                result = session.run({**full(8), "z": np.ones(batch, np.float32)})
                assert (result["y"][0], result["w"].shape) == (2 * step, (batch,))
        with server.session("grow") as session:
            session.run(full(16))
            with raises("InputMismatch", match=r"state 'total' has the shape \(8,\)"):
                session.run(full(8))
            assert session.run(full(16))["y"][0] == 4


def test_a_model_without_states_has_sessions_of_no_bytes() -> None:
    with ap.Server({"a": calling(size=8)}, cap=128) as server, server.session("a") as session:
        assert session.run(full(8))["y"][0] == 2
        assert session.states == {}
        assert server.statistics().leased_bytes == 0
