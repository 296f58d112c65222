"""The arena's memory: shared, leased, and never gone while somebody looks at it."""

import gc
import os
import pickle
import resource
import subprocess
import sys
import threading

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base import errors
from raising import raises
from test_graph import chain


@pytest.fixture
def arena() -> ap.Arena:
    return ap.plan(chain(100, 300, 50), alignment=256, target="ideal").commit()


def test_the_arena_is_zeroed_aligned_and_as_large_as_planned(arena: ap.Arena) -> None:
    view = np.frombuffer(memoryview(arena), np.uint8)
    assert view.nbytes == arena.nbytes == len(arena) == 768
    assert view.ctypes.data == arena.address
    assert arena.address % 256 == 0
    assert not view.any()
    assert view.flags.writeable


def test_buffers_and_dlpack_share_one_memory(arena: ap.Arena) -> None:
    first = np.frombuffer(memoryview(arena), np.uint8)
    second = np.from_dlpack(arena)
    first[5] = 7
    assert second[5] == 7
    assert arena.__dlpack_device__() == (1, 0)


def test_an_arena_does_not_close_under_a_view(arena: ap.Arena) -> None:
    view = memoryview(arena)
    assert arena.views == 1
    with pytest.raises(errors.ArenaInUse, match="1 view"):
        arena.close()
    view.release()
    arena.close()
    assert arena.closed


def test_f04_a_closed_arena_gives_nothing(arena: ap.Arena) -> None:
    arena.close()
    arena.close()  # once more does no harm
    with raises("ArenaState"):
        memoryview(arena)
    with raises("ArenaState"):
        arena.lease()
    with raises("ArenaState"), arena:
        pass


def test_a_with_block_closes_unless_views_live(arena: ap.Arena) -> None:
    with arena:
        view = np.frombuffer(memoryview(arena), np.uint8)
    assert not arena.closed
    view[0] = 1
    del view
    with arena:
        pass
    assert arena.closed


def test_f13_a_view_keeps_the_memory_alive(arena: ap.Arena) -> None:
    view = np.frombuffer(memoryview(arena), np.uint8)
    view[:] = 42
    del arena
    gc.collect()
    assert (view == 42).all()


def test_g01_one_run_at_a_time(arena: ap.Arena) -> None:
    with arena.lease():
        with raises("ArenaBusy"):
            arena.lease()
        with raises("ArenaBusy"):
            arena.close()
    lease = arena.lease()
    lease.release()
    lease.release()  # once more does no harm, also to the next lease
    with arena.lease():
        lease.release()
        with raises("ArenaBusy"):
            arena.lease()


def test_a_forgotten_lease_is_given_back(arena: ap.Arena) -> None:
    arena.lease()
    gc.collect()
    with arena.lease():
        pass


def test_g01_of_many_threads_one_gets_the_lease(arena: ap.Arena) -> None:
    held, most, busy = 0, 0, 0
    start = threading.Barrier(4)
    guard = threading.Lock()

    def work() -> None:
        nonlocal held, most, busy
        start.wait()
        for _ in range(500):
            try:
                lease = arena.lease()
            except errors.ArenaError:
                with guard:
                    busy += 1
                continue
            with guard:
                held += 1
                most = max(most, held)
            with guard:
                held -= 1
            lease.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_g05_an_arena_cannot_be_pickled(arena: ap.Arena) -> None:
    with pytest.raises(TypeError, match="plan"):
        pickle.dumps(arena)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_g04_a_child_process_has_its_own_copy(arena: ap.Arena) -> None:
    view = np.frombuffer(memoryview(arena), np.uint8)
    view[0] = 1
    child = os.fork()
    if child == 0:
        view[0] = 2
        os._exit(0 if view[0] == 2 and arena.process == os.getppid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert view[0] == 1


def test_f03_too_large_an_arena_is_an_error_and_the_plan_stays_usable() -> None:
    code = f"""
import resource, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import arenaplan as ap
from test_graph import chain
plan = ap.plan(chain(1 << 34, 1 << 34))
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
for _ in range(2):
    try:
        plan.commit()
    except MemoryError as error:
        assert error.kind == "ArenaCommitError"
    else:
        raise SystemExit("no error")
assert plan.arena_bytes == 1 << 35
assert ap.plan(chain(8, 8)).commit().nbytes == 128
"""
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    subprocess.run([sys.executable, "-c", code], check=True)


def test_h04_arenas_at_interpreter_shutdown_are_harmless() -> None:
    code = """
import numpy as np, arenaplan as ap
graph = ap.Graph()
graph.output(graph.input("x", (10,)))
arena = ap.plan(graph).commit()
view, lease = np.frombuffer(memoryview(arena), "u1"), arena.lease()
class Late:
    def __del__(self):
        memoryview(arena)
late = Late()
late.self = late
"""
    subprocess.run([sys.executable, "-c", code], check=True)
