"""What happens when memory, threads or other limits of the machine run out."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import arenaplan as ap

SOURCE = Path(__file__).parent.parent.parent / "python"

linux_only = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="limits of address space and threads are Linux's"
)

BEGIN = """
import resource, sys
import arenaplan as ap

def pages():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

def limited(more, work):
    resource.setrlimit(resource.RLIMIT_AS, (pages() + more, resource.RLIM_INFINITY))
    try:
        work()
    except (ap.errors.PlannerError, MemoryError) as error:
        print(type(error).__name__)
    else:
        print("done")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

def chain(count):
    graph = ap.Graph("chain")
    last = graph.input("x", (64,), "uint8")
    for index in range(count):
        size = 64 * (1 + index % 7)
        (last,) = graph.node("Op", [last], [(f"v{index}", (size,), "uint8")])
    graph.output(last)
    return graph
"""

WORK = {
    "plan": """
graph = chain(20_000)
graph.core
work = lambda: ap.plan(graph)
""",
    "graph": """
graph = chain(20_000)
work = lambda: graph.core
""",
    "explain": """
graph = chain(3_000)
graph.core
work = lambda: ap.explain(graph)
""",
    "pack": """
count = 300_000
sizes = [64 * (1 + index % 11) for index in range(count)]
live = [(index, index + 2 + index % 5) for index in range(count)]
ap.pack([64], [(0, 1)])
work = lambda: ap.pack(sizes, live, time_limit=2.0).offsets
""",
    "load": """
import pathlib, tempfile
path = pathlib.Path(tempfile.mkdtemp()) / "plan.json"
graph = chain(20_000)
ap.plan(graph).save(path)
work = lambda: ap.Plan.load(path).check(graph)
""",
    "together": """
graphs = [chain(6_000), chain(5_000)]
shared = ap.plan_together(graphs, "never-together")
text = shared.to_json().encode()
def work():
    # More than what planning has left behind for later calls.
    kept = [ap.SharedPlan.from_json(text) for _ in range(12)]
    shared.to_json()
    shared.check(graphs)
    [plan.arena_bytes for one in kept for plan in one.plans]
""",
    "sharing": """
graph = chain(20_000)
graph.core
def work():
    storage = ap.share_storage(graph)
    storage.storage_ids, storage.in_place_index, storage.blocks, storage.colors
    ap.color_nodes(graph, 4)
    ap.find_assigns(graph)
""",
    "incremental": """
count = 60_000
values = [(64 * (1 + index % 7), "arena") for index in range(count)]
nodes = [([index], [index + 1], [], []) for index in range(count - 1)]
def work():
    planner = ap.IncrementalPlanner(values, nodes, [0], [count - 1])
    planner.execute(0, count - 1)
    planner.read(count - 1)
""",
}

MEBIBYTE = 1 << 20
STEPS = [1, 2, 3, 5, 7, 9, 11, 14, 17, 20, 25, 30, 35, 40, 50, 60, 70, 80, 100, 120]
"""Mebibytes that a process may have more than it has. Each step is a process of its own."""


def run(code: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
        **options,  # type: ignore[call-overload]
    )


@linux_only
@pytest.mark.parametrize("name", WORK)
def test_too_little_memory_is_an_error(name: str) -> None:
    seen = set()
    for step in STEPS:
        code = BEGIN + WORK[name] + f"limited({step * MEBIBYTE}, work)\nprint('alive')"
        done = run(code)
        assert done.returncode == 0, (step, done.stderr[-600:])
        outcome, alive = done.stdout.split()
        assert alive == "alive"
        seen.add(outcome)
    # The memory that building its graph has left is enough for some machines to explain it.
    too_little = seen - {"done"}
    assert too_little or name == "explain", "no step was too little: the test tests nothing"


@linux_only
def test_a_process_plans_on_after_it_had_too_little_memory() -> None:
    code = BEGIN + textwrap.dedent("""
        graph = chain(5_000)
        before = ap.plan(graph).to_json()
        for step in range(2, 14, 2):
            limited(step << 20, lambda: ap.plan(graph))
        assert ap.plan(graph).to_json() == before
    """)
    done = run(code)
    assert done.returncode == 0, done.stderr[-600:]


NO_THREADS = """
import os, resource, sys, threading
import arenaplan as ap
graph = ap.Graph()
x = graph.input("x", (64,), "uint8")
(y,) = graph.node("Op", [x], [("y", (64,), "uint8")])
graph.output(y)
ap.plan(graph)
ap.pack([64], [(0, 1)])
if os.geteuid() == 0:
    os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
    threading.Thread(target=int).start()
except RuntimeError:
    pass
else:
    print("threads can be started")
    sys.exit()
told = []
plan = ap.plan(graph, on_progress=told.append)
plan.check(graph)
assert told and plan.arena_bytes == 128, (told, plan)
live = [(i % 40, i % 40 + 1 + i % 9) for i in range(400)]
packing = ap.pack([64 * (1 + i % 13) for i in range(400)], live, time_limit=0.2, threads=4)
assert packing.peak >= packing.lower_bound > 0
ap.explain(graph)
print("done")
"""


@linux_only
def test_without_threads_the_calling_one_does_the_work() -> None:
    # The extension is loaded before rights are given up, and may be in a folder of root's.
    done = run(NO_THREADS)
    if "can be started" in done.stdout:
        pytest.skip("this system starts threads in spite of RLIMIT_NPROC")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-600:]


COLLECTOR = """
import gc, sys, threading, faulthandler
import arenaplan as ap
faulthandler.dump_traceback_later(20, exit=True)

class Asks:
    def __init__(self, arena):
        self.me, self.arena = self, arena
    def __del__(self):
        self.arena.closed

graph = ap.Graph()
x = graph.input("x", (64,), "uint8")
(y,) = graph.node("Op", [x], [("y", (64,), "uint8")])
graph.output(y)
arena = ap.plan(graph).commit()
view = memoryview(arena)
gc.set_threshold(1)
for _ in range(50):
    Asks(arena)
    try:
        arena.close()
    except ap.errors.ArenaInUse:
        pass
view.release()
arena.close()
for _ in range(50):
    Asks(arena)
    try:
        memoryview(arena)
    except ap.errors.ArenaState:
        pass
print("done")
"""


def test_a_finalizer_may_ask_an_arena_that_refuses_to_close() -> None:
    done = run(COLLECTOR)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-600:]


FORKED = """
import os, warnings
import arenaplan as ap
warnings.simplefilter("ignore")
graph = ap.Graph()
x = graph.input("x", (64,), "uint8")
(y,) = graph.node("Op", [x], [("y", (64,), "uint8")])
graph.output(y)
arena = ap.plan(graph).commit()
lease = arena.lease()
child = os.fork()
if child == 0:
    try:
        with arena.lease():
            lease.release()
            try:
                arena.lease()
            except ap.errors.ArenaBusy:
                os._exit(0)
    finally:
        os._exit(1)
assert os.waitpid(child, 0)[1] == 0
try:
    arena.lease()
except ap.errors.ArenaBusy:
    print("done")
"""


@linux_only
def test_a_fork_does_not_hold_the_lease_of_its_parent() -> None:
    done = run(FORKED)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-600:]


@pytest.mark.parametrize("index", [-1, 1 << 32, 1 << 70])
def test_an_index_out_of_range_is_an_undefined_value(index: int) -> None:
    graph = ap.Graph()
    x = graph.input("x", (4,), "uint8")
    graph.node("Op", [x, index], [("y", (4,), "uint8")], name="reader")
    with pytest.raises(ap.errors.UndefinedValue, match="reader"):
        ap.plan(graph, target="ideal")


@pytest.mark.parametrize("offset", [-4, 1 << 70])
def test_an_offset_out_of_range_is_an_invalid_effect(offset: int) -> None:
    graph = ap.Graph()
    x = graph.input("x", (4,), "uint8")
    graph.node("Op", [x], [("y", (4,), "uint8")], views=[ap.View(0, 0, offset)], name="viewer")
    with pytest.raises(ap.errors.InvalidEffect, match="viewer"):
        ap.plan(graph, target="ideal")


def test_true_is_no_index() -> None:
    graph = ap.Graph()
    graph.input("x", (4,), "uint8")
    x = graph.input("z", (4,), "uint8")
    graph.node("Op", [x, True], [("y", (4,), "uint8")], name="reader")
    with pytest.raises(TypeError, match="reader"):
        ap.plan(graph, target="ideal")


@pytest.mark.parametrize("cost", [float("inf"), -1.0, float("nan")])
def test_a_cost_is_a_finite_number(cost: float) -> None:
    graph = ap.Graph()
    x = graph.input("x", (4,), "uint8")
    graph.node("Op", [x], [("y", (4,), "uint8")], workspaces=[[(64, cost)]], name="worker")
    with pytest.raises(ap.errors.InvalidEffect, match="worker"):
        ap.plan(graph, target="ideal")


def test_a_lone_surrogate_is_an_invalid_name() -> None:
    graph = ap.Graph()
    graph.input("x\udc80", (4,), "uint8")
    with pytest.raises(ap.errors.InvalidName, match="x"):
        ap.plan(graph, target="ideal")


def test_an_unknown_kind_of_allocation_names_those_there_are() -> None:
    with pytest.raises(ap.errors.InvalidOption, match="persistent_arena"):
        ap.IncrementalPlanner([(1, "arena_rw")], [], [], [])


def test_an_operand_left_out_is_none_and_not_minus_one() -> None:
    with pytest.raises(ap.errors.InvalidOption, match="None"):
        ap.IncrementalPlanner([(1, "arena")], [([-1], [], [], [])], [], [])
