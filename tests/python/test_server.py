"""The server: results, the cap, the order of arrival, errors, and the end."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.run.server.book import Book, MemoryRequest
from arenaplan.run.server.pages import PageRange
from arenaplan.run.server.served_model import Resident
from dynamic_models import attention, convolutions
from gates import Gate, calling, full, started
from networks import noise, small_network
from raising import raises
from test_plan_family import open_onnx


def perceptron(size: int, seed: int) -> ap.Graph:
    """Return two matrix products with a Relu between them."""
    rng = np.random.default_rng(seed)
    graph = ap.Graph(f"perceptron {size}")
    value = graph.input("x", (4, size))
    for k in range(2):
        data = rng.standard_normal((size, size)).astype(np.float32)
        weights = graph.constant(f"w{k}", (size, size), "float32", data)
        (value,) = graph.node("MatMul", [value, weights], [(f"m{k}", (4, size), "float32")])  # type: ignore[assignment]
        (value,) = graph.node("Relu", [value], [(f"r{k}", (4, size), "float32")], in_place=[(0, 0)])  # type: ignore[assignment]
    graph.output(value)
    return graph


def until(condition: Callable[[], bool]) -> None:
    """Wait until something is true."""
    for _ in range(60_000):
        if condition():
            return
        time.sleep(0.001)
    raise AssertionError("it did not happen")


def same(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(a[k].tobytes() == b[k].tobytes() for k in a)


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Check every lease against all others, and record the bytes that are leased."""
    seen: list[int] = []
    lend = Book._lend

    def checked(book: Book, request: MemoryRequest, place: PageRange) -> None:
        others = [*book._runs.values(), *book._sessions.values()]
        assert place.bytes == request.size
        assert 0 <= place.start <= place.stop <= book._pages.size == len(book._pages._map)
        assert not any(map(place.overlaps, others))
        lend(book, request, place)
        seen.append(place.bytes + sum(other.bytes for other in others))

    monkeypatch.setattr(Book, "_lend", checked)
    yield seen
    assert seen


# -- results and the cap -----------------------------------------------------------------


@pytest.mark.parametrize("part", [1.0, 1.7, 4.0], ids=["one lane", "some", "ample"])
def test_many_threads_get_the_bits_of_runs_alone_below_the_cap(
    leases: list[int], part: float
) -> None:
    graphs = {"small": small_network(), **{f"p{n}": perceptron(n, n) for n in (16, 40, 64, 96)}}
    cases = []
    for name, graph in graphs.items():
        with ap.Executor(graph) as executor:
            shape = graph.values[graph.inputs[0]].shape
            for seed in range(3):
                given = {"x": noise(*shape, seed=seed)}
                cases.append((name, given, executor.run(given)))
    largest = max(ap.plan(graph, target="numpy").arena_bytes for graph in graphs.values())
    cap = int(part * largest)
    failures: list[object] = []

    def client(seed: int) -> None:
        draw = random.Random(seed)
        try:
            for _ in range(25):
                name, given, expected = draw.choice(cases)
                if not same(server.run(name, given), expected):
                    failures.append(name)
        except BaseException as error:
            failures.append(error)

    with ap.Server(graphs, cap=cap, workers=4, prepared=9) as server:
        threads = [started(client, seed) for seed in range(40)]
        for thread in threads:
            thread.join()
        numbers = server.statistics()
    assert failures == []
    assert max(leases) <= cap
    assert numbers.peak_bytes <= cap
    assert numbers.leases == 1000 == len(leases)
    assert (numbers.running, numbers.waiting, numbers.leased_bytes) == (0, 0, 0)
    assert numbers.prepared <= 9
    assert numbers.preparations - numbers.evicted == numbers.prepared


def test_models_that_fit_side_by_side_run_side_by_side() -> None:
    gate = Gate()
    graphs = {"a": calling(gate, size=512), "b": calling(gate, size=768)}
    sizes = {name: ap.plan(graph, target="numpy").arena_bytes for name, graph in graphs.items()}
    with ap.Server(graphs, cap=sum(sizes.values()), workers=2) as server:
        threads = [started(server.run, "a", full(512)), started(server.run, "b", full(768))]
        gate.arrived()
        gate.arrived()
        assert server.statistics().leased_bytes == sum(sizes.values())
        gate.open(2)
        for thread in threads:
            thread.join()


def test_models_that_exclude_each_other_share_bytes() -> None:
    gate = Gate()
    graphs = {"a": calling(gate, size=512), "b": calling(size=768)}
    cap = ap.plan(graphs["b"], target="numpy").arena_bytes
    with ap.Server(graphs, cap=cap, workers=2) as server:
        first = started(server.run, "a", full(512))
        gate.arrived()
        with raises("PoolBusy", match=r"run of model 'b' needs 6,144 bytes"):
            server.run("b", full(768), timeout=0)
        gate.open()
        first.join()
        assert server.run("b", full(768))["y"][0] == 2
        assert server.statistics().peak_bytes == cap


def test_a_model_above_the_cap_is_refused_at_the_start() -> None:
    graphs = {"small": calling(size=8), "large": calling(size=1024)}
    with raises("LeaseTooLarge", match="model 'large' needs 8,192 bytes"):
        ap.Server(graphs, cap=8191)
    ap.Server(graphs, cap=8192).close()


def test_every_shape_of_a_family_is_served(leases: list[int]) -> None:
    families = {
        "attention": ap.plan_family(open_onnx(attention()), {"batch": [1, 2], "seq": [3, 5, 8]}),
        "convolutions": ap.plan_family(open_onnx(convolutions()), {"batch": [1, 3]}),
    }
    cases = []
    for name, family in families.items():
        with ap.run.DynamicExecutor(family) as executor:
            for sizes in family:
                graph = family.graph(**sizes)
                values = [graph.values[index] for index in graph.inputs]
                given = {value.name: noise(*value.shape) for value in values}
                cases.append((name, given, executor.run(given)))
    cap = max(family.arena_bytes for family in families.values())
    with ap.Server(families, cap=cap, workers=2, prepared=3) as server:
        for name, given, expected in cases * 2:
            assert same(server.run(name, given), expected)
        numbers = server.statistics()
        assert numbers.prepared == 3
        assert numbers.evicted > 3
        assert len(server._models["attention"]._entries) <= 4, "graphs go with their executors"
        with raises("InputMismatch", match="no shape that was planned"):
            server.run("attention", {k: v[:, :1] for k, v in cases[0][1].items()})
    assert min(leases) < max(leases), "a smaller shape leases fewer bytes"


def test_files_and_functions_are_planned_here(tmp_path: Any) -> None:
    import onnx

    onnx.save(convolutions(), tmp_path / "model.onnx")
    path = tmp_path / "model.onnx"
    bind = {"file": {"batch": range(1, 3)}}
    with ap.Server({"file": path, "graph": calling(size=8)}, cap="64MiB", bind=bind) as server:
        (source,) = ap.load(path, bind={"batch": 2}).inputs
        value = ap.load(path, bind={"batch": 2}).values[source]
        assert server.run("file", {value.name: noise(*value.shape)})
        assert server.models == ["file", "graph"]
    with pytest.raises(errors.UnboundDim, match="model 'file': "):
        ap.Server({"file": path}, cap="64MiB")


def test_plans_from_files_are_used_and_nothing_is_searched(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx

    onnx.save(attention(), tmp_path / "model.onnx")
    path = tmp_path / "model.onnx"
    family = ap.plan_family(path, {"batch": [1, 2], "seq": [3, 5]}, target="numpy")
    family.to_model().save(tmp_path / "model.plan.json")
    (tmp_path / "one.plan.json").write_text(family.at(batch=2, seq=5).to_json())
    one = ap.load(path, bind={"batch": 2, "seq": 5})
    cases = []
    with ap.run.DynamicExecutor(family) as executor:
        for sizes in family:
            graph = family.graph(**sizes)
            values = [graph.values[index] for index in graph.inputs]
            given = {value.name: noise(*value.shape) for value in values}
            cases.append((given, executor.run(given)))

    def searched(*_: object, **__: object) -> None:
        raise AssertionError("a search")

    for name in ("make_plan", "plan_family"):
        monkeypatch.setattr(f"arenaplan.run.server.served_model.{name}", searched)
    models: dict[str, Any] = {"all": path, "one": one, "bound": path}
    plans: dict[str, Any] = {
        "all": tmp_path / "model.plan.json",
        "one": tmp_path / "one.plan.json",
        "bound": family.at(batch=2, seq=5),
    }
    bind = {"bound": {"batch": 2, "seq": 5}}
    with ap.Server(models, plans=plans, bind=bind, cap="1MiB") as server:
        for given, expected in cases:
            assert same(server.run("all", given), expected)
        given, expected = cases[0]
        assert same(server.run("one", given), expected)
        assert same(server.run("bound", given), expected)
        with raises("InputMismatch", match="no shape that was planned"):
            server.run("all", {k: v[:, :1] for k, v in given.items()})


def test_plans_of_another_model_are_refused(tmp_path: Any) -> None:
    family = ap.plan_family(open_onnx(attention()), {"batch": [1, 2], "seq": 3}, target="numpy")
    model = family.to_model()
    other = open_onnx(convolutions())
    with pytest.raises(errors.PlannerError, match="model 'a': "):
        ap.Server({"a": other}, plans={"a": model}, cap="1MiB")
    with pytest.raises(errors.PlanError, match=r"model 'a': .*does not belong"):
        ap.Server({"a": calling(size=8)}, plans={"a": family.at(batch=1, seq=3)}, cap="1MiB")
    for options, message in [
        ({"plans": {"b": model}}, "option plans: there is no model 'b'"),
        ({"plans": {"a": model}}, "model 'a': option plans: the model file has the sizes"),
    ]:
        with pytest.raises(errors.InvalidOption, match=message):
            ap.Server({"a": calling(size=8)}, cap="1MiB", **options)
    with pytest.raises(errors.InvalidOption, match="a family of plans has its plans"):
        ap.Server({"a": family}, plans={"a": model}, cap="1MiB")
    broken = tmp_path / "broken.json"
    broken.write_text(model.to_json()[:-9])
    with pytest.raises(errors.PlannerError, match="model 'a': "):
        ap.Server({"a": other}, plans={"a": broken}, cap="1MiB")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cap": 0}, "option cap"),
        ({"cap": "lots"}, "number of bytes"),
        ({"cap": "1MiB", "workers": 0}, "option workers"),
        ({"cap": "1MiB", "prepared": 0}, "option prepared"),
        ({"cap": "1MiB", "keep": -1}, "option keep"),
        ({"cap": "1MiB", "bind": {"b": {}}}, "no model 'b'"),
        ({"cap": "1MiB", "bind": {"a": {"n": 1}}}, "model 'a': option bind"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.PlannerError, match=message):
        ap.Server({"a": calling(size=8)}, **options)


def test_plans_that_need_other_memory_are_refused() -> None:
    def graph(sizes: Mapping[str, Any]) -> ap.Graph:
        return perceptron(sizes["n"], 0)

    for options in ({"workspace": "none"}, {"outputs": "caller"}, {"target": "nodes"}):
        family = ap.plan_family(graph, {"n": 8}, **{"target": "numpy", **options})  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidOption, match="model 'f': the plan"):
            ap.Server({"f": family}, cap="1MiB")


def test_a_node_without_a_kernel_is_found_at_the_start() -> None:
    graph = ap.Graph()
    x = graph.input("x", (2,))
    (y,) = graph.node("Unheard", [x], [("y", (2,), "float32")])
    assert y is not None
    graph.output(y)
    with pytest.raises(errors.UnsupportedOp, match=r"model 'a': .*Unheard"):
        ap.Server({"a": graph}, cap="1MiB")


# -- waiting -------------------------------------------------------------------------------


def test_requests_are_served_in_the_order_of_arrival() -> None:
    gate = Gate()
    order: list[int] = []
    graphs = {str(k): calling(partial(order.append, k), name=str(k)) for k in range(6)}
    graphs["gate"] = calling(gate)
    with ap.Server(graphs, cap="1MiB", workers=1) as server:
        threads = [started(server.run, "gate", full(1024))]
        gate.arrived()
        for k in (3, 0, 5, 1, 4, 2):
            waiting = server.statistics().waiting
            threads.append(started(server.run, str(k), full(1024)))
            until(lambda before=waiting: server.statistics().waiting == before + 1)  # type: ignore[misc]
        gate.open()
        for thread in threads:
            thread.join()
    assert order == [3, 0, 5, 1, 4, 2]


def test_inputs_are_checked_before_a_run_waits() -> None:
    gate = Gate()
    with ap.Server({"gate": calling(gate)}, cap="1MiB", workers=1) as server:
        busy = started(server.run, "gate", full(1024))
        gate.arrived()
        for bad in ({}, full(3), {"x": np.zeros(1024, int)}, {**full(1024), "z": np.zeros(1)}):
            with raises("InputMismatch"):
                server.run("gate", bad)
        with pytest.raises(errors.InvalidOption, match="no model 'other', only 'gate'"):
            server.run("other", {})
        assert server.statistics().waits == 0
        gate.open()
        busy.join()


def test_timed_out_requests_leave_nothing_behind() -> None:
    gate = Gate()
    with ap.Server({"gate": calling(gate)}, cap="1MiB", workers=1) as server:
        busy = started(server.run, "gate", full(1024))
        gate.arrived()
        for k in range(50):
            with raises("PoolBusy", match="nobody gave enough back in time"):
                server.run("gate", full(1024), timeout=0.001 if k % 2 else 0)
        numbers = server.statistics()
        assert (numbers.waiting, numbers.running, numbers.refused) == (0, 1, 50)
        gate.open(2)
        busy.join()
        assert server.run("gate", full(1024), timeout=60)["y"][0] == 2


# -- failures ------------------------------------------------------------------------------


def test_runs_that_fail_give_their_lease_back() -> None:
    calls: list[int] = []

    def fails() -> None:
        calls.append(1)
        if len(calls) % 3:
            raise ZeroDivisionError("on purpose")

    with ap.Server({"a": calling(fails)}, cap="1MiB", workers=2) as server:
        for _ in range(60):
            if (len(calls) + 1) % 3:
                with raises("KernelError", match="on purpose") as caught:
                    server.run("a", full(1024))
                assert isinstance(caught.value.__cause__, ZeroDivisionError)
            else:
                assert server.run("a", full(1024))["y"][0] == 2
        numbers = server.statistics()
    assert (numbers.running, numbers.leased_bytes, numbers.preparations) == (0, 0, 1)


def test_an_interrupt_in_a_run_gives_the_lease_back() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with ap.Server({"a": calling(interrupted)}, cap="1MiB", workers=1) as server:
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                server.run("a", full(1024))
        assert server.statistics().running == 0


def test_a_preparation_that_fails_gives_the_lease_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with ap.Server({"a": calling(size=8), "b": calling(size=9)}, cap="1MiB", prepared=1) as server:
        with monkeypatch.context() as patch:

            def broken(*_: object) -> None:
                raise MemoryError

            patch.setattr(Resident, "__init__", broken)
            with pytest.raises(MemoryError):
                server.run("a", full(8))
        assert server.statistics().running == 0
        assert server.run("a", full(8))["y"][0] == 2


# -- memory ----------------------------------------------------------------------------------


def test_free_memory_can_be_given_back() -> None:
    graph = calling(size=1 << 18)
    with ap.Server({"a": graph}, cap="64MiB", workers=2) as server:
        server.run("a", full(1 << 18))
        before = server.statistics()
        assert before.free_bytes == 1 << 21
        given = server.trim("64KiB")
        if sys.platform != "linux":
            assert given == 0
            return
        assert given == (1 << 21) - (1 << 16)
        assert server.statistics().free_bytes == 1 << 16
        assert server.run("a", full(1 << 18, 3))["y"][-1] == 6
    with ap.Server({"a": graph}, cap="64MiB", workers=2, keep=0) as server:
        assert server.run("a", full(1 << 18))["y"][-1] == 2
        assert server.statistics().free_bytes == 0


def test_results_are_the_callers_own() -> None:
    with ap.Server({"a": calling(size=8)}, cap="1MiB") as server:
        first = server.run("a", full(8))["y"]
        server.run("a", full(8, 5))
        assert first.tolist() == [2] * 8
        first[:] = 7
        assert not np.may_share_memory(first, server._pages.bytes)


def test_a_closed_server_leaves_nothing() -> None:
    graph = small_network()
    server = ap.Server({"a": graph}, cap="1MiB", workers=2)
    shape = graph.values[graph.inputs[0]].shape
    output = server.run("a", {"x": noise(*shape)})
    pages, resident = server._pages, next(iter(server._models["a"].largest.residents.values()))
    gone = [weakref.ref(each) for each in (pages, resident, server, server._book)]
    mapping = pages._map
    del resident
    server.close()
    assert mapping.closed
    assert output
    del server, pages
    gc.collect()
    assert [ref() for ref in gone] == [None] * 4


def test_a_server_that_is_forgotten_leaves_nothing() -> None:
    server = ap.Server({"a": calling(size=8)}, cap="1MiB")
    server.run("a", full(8))
    pages = weakref.ref(server._pages)
    del server
    gc.collect()
    assert pages() is None


# -- the end ---------------------------------------------------------------------------------


def test_closing_waits_for_runs_and_refuses_the_others() -> None:
    gate = Gate()
    server = ap.Server({"gate": calling(gate)}, cap="1MiB", workers=1)
    results: list[object] = []

    def run() -> None:
        try:
            results.append(server.run("gate", full(1024))["y"][0])
        except errors.ArenaError as error:
            results.append(error)

    running = started(run)
    gate.arrived()
    waiting = [started(run) for _ in range(3)]
    until(lambda: server.statistics().waiting == 3)
    closing = started(server.close)
    for thread in waiting:
        thread.join(60)
    assert [str(each) for each in results] == ["the server is closed"] * 3
    assert closing.is_alive(), "one run has not ended"
    with raises("ArenaState", match="closed"):
        server.run("gate", full(1024))
    gate.open()
    closing.join(60)
    running.join(60)
    assert results[3:] == [2]
    assert server._pages._map.closed
    server.close()
    assert "closed" in repr(server)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_has_a_server_of_its_own_without_the_leases_of_its_parent() -> None:
    gate = Gate()
    graphs = {"gate": calling(gate), "free": calling(size=8)}
    with ap.Server(graphs, cap="1MiB", workers=1) as server, server.session("free") as session:
        busy = started(server.run, "gate", full(1024))
        gate.arrived()
        child = os.fork()
        if not child:
            try:
                good = server.run("free", full(8), timeout=5)["y"][0] == 2
                numbers = server.statistics()
                good = good and (numbers.running, numbers.sessions) == (0, 0)
                try:
                    session.run(full(8))
                    good = False
                except errors.ArenaError:
                    pass
                server.close()
                os._exit(0 if good else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert server.statistics().running == 1
        gate.open()
        busy.join()


# -- everything in any order -------------------------------------------------------------------


def test_random_requests_leave_the_server_as_it_was(leases: list[int]) -> None:
    failing = threading.local()

    def sometimes() -> None:
        if getattr(failing, "on", False):
            raise ValueError("on purpose")

    graphs = {"a": calling(sometimes, size=256), "b": perceptron(32, 1), "c": calling(size=4096)}
    expected = ap.Executor(graphs["b"]).run({"x": noise(4, 32)})
    odd: list[object] = []

    def client(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(60):
            kind = draw.randrange(6)
            timeout = draw.choice([None, 0, 0.002])
            failing.on = kind == 0
            try:
                if kind < 2:
                    good = server.run("a", full(256, seed), timeout=timeout)["y"][0] == 2 * seed
                elif kind < 4:
                    good = same(server.run("b", {"x": noise(4, 32)}, timeout=timeout), expected)
                else:
                    good = server.run("c", full(4096, seed), timeout=timeout)["y"][9] == 2 * seed
                if not good or failing.on:
                    odd.append(kind)
            except errors.ExecutionError:
                if not failing.on:
                    odd.append("failed")
            except errors.ArenaError:
                if timeout is None:
                    odd.append("refused")
            except BaseException as error:
                odd.append(error)

    with ap.Server(graphs, cap=40_000, workers=3, keep=8192, prepared=4) as server:
        threads = [started(client, seed) for seed in range(12)]
        for thread in threads:
            thread.join()
        numbers = server.statistics()
    assert odd == []
    assert (numbers.running, numbers.waiting, numbers.leased_bytes) == (0, 0, 0)
    assert numbers.leases + numbers.refused == 720
    assert max(leases) <= 40_000
