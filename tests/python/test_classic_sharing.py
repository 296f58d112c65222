"""Storage sharing from Python: options, results, and the command's report."""

from __future__ import annotations

import json

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base.errors import ArenaInUse, InvalidOption, PlanOverlap
from arenaplan.cli.classic import sharing_document
from raising import raises


def chain(sizes: list[int], dtype: str = "float32") -> ap.Graph:
    graph = ap.Graph("chain")
    last = graph.input("x", (10,))
    for index, size in enumerate(sizes):
        (last,) = graph.node("Conv", [last], [(f"v{index}", (size,), dtype)])
    graph.output(last)
    return graph


@pytest.mark.parametrize(
    ("match_range", "auto_search", "expected"),
    [
        (0, False, 29080),
        (1, False, 24680),
        (4, False, 24440),
        (16, False, 20400),
        (16, True, 20400),
    ],
)
def test_row_14_row_15_match_ranges_of_g_n21(
    match_range: int, auto_search: bool, expected: int
) -> None:
    plan = ap.classic.share_storage(
        chain([100, 1000, 100, 1000, 10, 5000, 60]),
        match_range=match_range,
        auto_search=auto_search,
        size_rule="elements_x4",
        mode="nnvm",
    )
    assert plan.allocated_bytes == expected


def test_k04_sizes_are_true_unless_asked_for_elements() -> None:
    graph = chain([100], "int8")
    assert ap.classic.share_storage(graph).allocated_bytes == 100
    assert ap.classic.share_storage(graph, size_rule="elements_x4").allocated_bytes == 400


def test_row_17_row_18_assigned_storage_and_node_ranges() -> None:
    graph = chain([10, 10, 10, 10])
    plan = ap.classic.share_storage(graph, assigned={1: "external", 2: "dynamic", 3: 2})
    assert plan.storage_ids == [-1, -2, -3, 2, 3]
    assert ap.classic.share_storage(graph, nodes=range(1, 3)).storage_ids == [-1, -1, 0, 1, -1]


def test_row_19_colors() -> None:
    graph = ap.Graph()
    x = graph.input("x", (10,))
    (a,) = graph.node("A", [x], [("a", (10,), "float32")])
    (b,) = graph.node("B", [a], [("b", (10,), "float32")])
    (c,) = graph.node("C", [a], [("c", (10,), "float32")])
    graph.output(b)
    graph.output(c)
    assert ap.classic.color_nodes(graph, 2) == ap.classic.Coloring([0, 1, 0], 2)
    assert ap.classic.share_storage(graph, num_temp=2).colors == [0, 1, 0]
    assert ap.classic.share_storage(graph).colors is None


def test_row_19_count_and_rest_of_colors_are_those_of_g_n14() -> None:
    """Four independent chains of one node: paths get colors first, other nodes the last."""
    graph = ap.Graph()
    for name in "abcd":
        graph.node("Op", [], [(name, (10,), "float32")])
    coloring = ap.classic.color_nodes(graph, 3)
    assert (coloring.count, coloring.rest) == (3, 2)
    assert sorted(coloring.colors) == [0, 1, 2, 2]
    assert (ap.classic.color_nodes(graph, 9).count, ap.classic.color_nodes(graph, 9).rest) == (5, 4)


def test_d7_fusion_groups_are_found_and_share_storage() -> None:
    """exp(y + x), then a node that needs all of it: one group, one block less."""
    graph = ap.Graph()
    x, y = graph.input("x", (10,)), graph.input("y", (10,))
    (s,) = graph.node("Add", [y, x], [("s", (10,), "float32")], flows=[(0, 10, (0, 1))])
    (e,) = graph.node("Exp", [s], [("e", (10,), "float32")], flows=[(0, 10, (0,))])
    (m,) = graph.node("Opaque", [e], [("m", (10,), "float32")])
    graph.output(m)
    assert ap.classic.fuse(graph, ["elementwise"]) == [[0, 1]]
    assert ap.classic.fuse(graph, []) == []
    alone, grouped = (
        ap.classic.share_storage(graph),
        ap.classic.share_storage(graph, groups=[[0, 1]]),
    )
    assert (alone.storage_ids, grouped.storage_ids) == ([-1, -1, 0, 1, 0], [-1, -1, -1, 0, 1])
    assert grouped.to_plan(graph.core.grouped([[0, 1]]), alignment=4).arena_bytes == 160
    with pytest.raises(InvalidOption, match="channels"):
        ap.classic.fuse(graph, ["everything"])
    with raises("InvalidGroup"):
        ap.classic.share_storage(graph, groups=[[1, 2]])


@pytest.mark.parametrize(
    "options",
    [
        {"match_range": 0, "auto_search": True},
        {"num_temp": 0},
        {"size_rule": "words"},
        {"mode": "mxnet"},
        {"mode": "nnvm", "parallel_safe": True},
        {"counts": [1]},
        {"counts": [0, 0]},
        {"assigned": {9: "external"}},
        {"assigned": {0: 99}},
        {"nodes": range(0, 2, 2)},
        {"nodes": range(9)},
    ],
)
def test_k05_options_that_make_no_sense_are_refused(options: dict) -> None:
    with pytest.raises(InvalidOption):
        ap.classic.share_storage(chain([10]), **options)


def test_row_49_a_storage_plan_becomes_a_checked_arena_plan() -> None:
    graph = chain([100, 1000, 100, 1000])
    plan = ap.classic.share_storage(graph).to_plan(graph.core, alignment=64)
    plan.check(graph.core)
    assert plan.arena_bytes >= ap.plan(graph, target="ideal").arena_bytes
    together = ap.classic.share_storage(graph, assigned={1: 0, 2: 0})
    with pytest.raises(PlanOverlap):
        together.to_plan(graph.core, alignment=64)


def test_the_report_is_json() -> None:
    report = json.loads(json.dumps(sharing_document(chain([10, 10, 10]), num_temp=2)))
    assert report["storage_ids"] == {"v0": 0, "v1": 1, "v2": 0}
    assert report["allocated_bytes"] == 80


def test_an_incremental_planner_of_a_graph_has_its_values_and_workspaces() -> None:
    graph = ap.Graph()
    x, w = graph.input("x", (10,)), graph.state("w", (5,))
    (y,) = graph.node("Op", [x, w], [("y", (10,), "float32")], workspaces=[[(100, 1.0), (30, 2.0)]])
    graph.output(y)
    for mode in ("default", "litert", "tflite-2019"):
        planner = ap.classic.IncrementalPlanner.from_graph(graph.core, mode=mode, alignment=4)
        planner.execute(0, 1)
        assert planner.place(w).persistent, "states are persistent"
        sizes = [planner.place(value).bytes for value in (x, w, y, 3)]
        assert sizes == [40, 20, 40, 30]


@pytest.mark.parametrize("mode", ["default", "litert", "tflite-2019"])
def test_d3_nodes_run_in_views_of_an_incremental_planner(mode: str) -> None:
    """
    nonzero(x) + 1, where the size of the first result is known once it was computed.

    The temporary arena moves between the nodes; content stays.
    """
    planner = ap.classic.IncrementalPlanner(
        [(40, "arena"), (0, "arena"), (0, "arena")],
        [([0], [1], [], []), ([1], [2], [], [(0, 0, False)])],
        [0],
        [2],
        mode=mode,
        alignment=4,
    )

    def array(value: int, dtype: str) -> np.ndarray:
        return np.frombuffer(planner.view(value), dtype)

    with planner.lease():
        planner.execute(0, 1)
        array(0, "float32")[:] = [0, 3, 0, 5, 0, 0, 7, 8, 9, 9]
        found = np.flatnonzero(array(0, "float32"))
        assert planner.view(1) is None
        planner.set_bytes(1, found.nbytes)
        planner.set_bytes(2, found.nbytes)
        if mode == "tflite-2019":
            planner.plan()
        planner.execute(0, 2)
        array(1, "int64")[:] = found
        np.add(array(1, "int64"), 1, out=array(2, "int64"))
        assert array(2, "int64").tolist() == [2, 4, 7, 8, 9, 10]
        with raises("ArenaBusy"):
            planner.lease()
    assert planner.read(2) == array(2, "int64").tobytes()


def test_d3_memory_does_not_move_under_a_view() -> None:
    planner = ap.classic.IncrementalPlanner(
        [(100, "arena"), (50, "arena"), (100_000, "arena")],
        [([0], [1], [], []), ([1], [2], [], [])],
        [0],
        [2],
    )
    planner.execute(0, 1)
    view = planner.view(1)
    assert (view.nbytes, view.readonly, view.format) == (50, False, "B")
    view[:3] = b"abc"
    with pytest.raises(ArenaInUse, match="1 view of the arena is alive"):
        planner.execute(1, 2)
    with pytest.raises(ArenaInUse):
        planner.release_temporary()
    assert bytes(view[:3]) == b"abc"
    view.release()
    planner.execute(1, 2)
    assert planner.read(1)[:3] == b"abc"
    with planner.view(2) as large:
        assert large.nbytes == 100_000
    kept = np.frombuffer(planner.view(2), "uint8")
    kept[:] = 9
    del planner, large
    assert kept.sum() == 900_000, "a view keeps the memory"


def test_d3_views_of_arenas() -> None:
    simple = ap.classic.SimpleArena()
    offset = simple.allocate(1, 8)
    simple.commit()
    np.frombuffer(simple.view(offset, 8), "uint8")[:] = 7
    assert simple.resolve(offset, 8) == bytes([7] * 8)
    assert simple.view(0, 0) is None
    arena = ap.classic.IncrementalArena()
    first = arena.allocate(1, 8, 0, 2)
    with raises("ArenaState"):
        arena.view(first)
    arena.commit()
    with arena.view(first) as view:
        view[:] = b"12345678"
        arena.allocate(1, 1000, 1, 2)
        for refused in (arena.commit, arena.release):
            with pytest.raises(ArenaInUse):
                refused()
    assert arena.commit()
    assert arena.resolve(first) == b"12345678"
    arena.release()
    for each in (simple, arena):
        with each.lease(), raises("ArenaBusy"):
            each.lease()
        each.lease().release()


def test_d3_another_graph_is_planned_in_the_same_memory() -> None:
    planner = ap.classic.IncrementalPlanner(
        [(1000, "arena"), (1000, "arena")], [([0], [1], [], [])], [0], [1]
    )
    planner.execute(0, 1)
    before = planner.buffer_bytes
    planner.replace_graph(
        [(100, "arena"), (100, "arena"), (64, "persistent_arena")],
        [([0, 2], [1], [], [])],
        [0],
        [1],
        [2],
    )
    assert planner.place(0) is None
    planner.execute(0, 1)
    assert planner.place(1).bytes == 100
    assert planner.place(2).persistent
    assert planner.buffer_bytes.temporary == before.temporary
    with pytest.raises(ap.errors.UndefinedValue):
        planner.replace_graph([(1, "arena")], [([4], [], [], [])], [], [])
    with pytest.raises(InvalidOption, match="persistent_arena, dynamic"):
        planner.replace_graph([(1, "arena_rw")], [], [], [])


def test_the_incremental_planner_places_what_becomes_known() -> None:
    planner = ap.classic.IncrementalPlanner(
        [(100, "arena"), (50, "arena"), (0, "arena")],
        [([0], [1], [], []), ([1, None], [2], [], [])],
        [0],
        [2],
        alignment=4,
    )
    planner.execute(0, 1)
    assert planner.place(2) is None
    planner.write(1, b"abc")
    planner.set_bytes(2, 400)
    planner.execute(1, 2)
    place = planner.place(2)
    assert (place.persistent, place.offset % 4, place.bytes) == (False, 0, 400)
    assert planner.read(1)[:3] == b"abc"
    planner.release_temporary()
    with raises("ArenaState"):
        planner.read(1)
    planner.acquire_temporary()
    assert len(planner.read(2)) == 400
    with pytest.raises(InvalidOption):
        planner.execute(0, 3)
