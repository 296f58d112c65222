"""Storage sharing from Python: options, results, and the command's report."""

from __future__ import annotations

import json

import pytest

import arenaplan as ap
from arenaplan.errors import InvalidOption, PlanOverlap
from arenaplan.sharing import report_storage_sharing


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
    plan = ap.share_storage(
        chain([100, 1000, 100, 1000, 10, 5000, 60]),
        match_range=match_range,
        auto_search=auto_search,
        size_rule="elements_x4",
        mode="nnvm",
    )
    assert plan.allocated_bytes == expected


def test_k04_sizes_are_true_unless_asked_for_elements() -> None:
    graph = chain([100], "int8")
    assert ap.share_storage(graph).allocated_bytes == 100
    assert ap.share_storage(graph, size_rule="elements_x4").allocated_bytes == 400


def test_row_17_row_18_assigned_storage_and_node_ranges() -> None:
    graph = chain([10, 10, 10, 10])
    plan = ap.share_storage(graph, assigned={1: "external", 2: "dynamic", 3: 2})
    assert plan.storage_ids == [-1, -2, -3, 2, 3]
    assert ap.share_storage(graph, nodes=range(1, 3)).storage_ids == [-1, -1, 0, 1, -1]


def test_row_19_colors() -> None:
    graph = ap.Graph()
    x = graph.input("x", (10,))
    (a,) = graph.node("A", [x], [("a", (10,), "float32")])
    (b,) = graph.node("B", [a], [("b", (10,), "float32")])
    (c,) = graph.node("C", [a], [("c", (10,), "float32")])
    graph.output(b)
    graph.output(c)
    assert ap.color_nodes(graph, 2) == [0, 1, 0]
    assert ap.share_storage(graph, num_temp=2).colors == [0, 1, 0]
    assert ap.share_storage(graph).colors is None


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
        ap.share_storage(chain([10]), **options)


def test_row_49_a_storage_plan_becomes_a_checked_arena_plan() -> None:
    graph = chain([100, 1000, 100, 1000])
    plan = ap.share_storage(graph).to_plan(graph.core, alignment=64)
    plan.check(graph.core)
    assert plan.arena_bytes >= ap.plan(graph, target="ideal").arena_bytes
    together = ap.share_storage(graph, assigned={1: 0, 2: 0})
    with pytest.raises(PlanOverlap):
        together.to_plan(graph.core, alignment=64)


def test_the_report_is_json() -> None:
    report = json.loads(json.dumps(report_storage_sharing(chain([10, 10, 10]), num_temp=2)))
    assert report["storage_ids"] == {"v0": 0, "v1": 1, "v2": 0}
    assert report["allocated_bytes"] == 80


def test_an_incremental_planner_of_a_graph_has_its_values_and_workspaces() -> None:
    graph = ap.Graph()
    x, w = graph.input("x", (10,)), graph.state("w", (5,))
    (y,) = graph.node("Op", [x, w], [("y", (10,), "float32")], workspaces=[[(100, 1.0), (30, 2.0)]])
    graph.output(y)
    for mode in ("default", "litert", "tflite-2019"):
        planner = ap.IncrementalPlanner.from_graph(graph.core, mode=mode, alignment=4)
        planner.execute(0, 1)
        assert planner.place(w).persistent, "states are persistent"
        sizes = [planner.place(value).bytes for value in (x, w, y, 3)]
        assert sizes == [40, 20, 40, 30]


def test_the_incremental_planner_places_what_becomes_known() -> None:
    planner = ap.IncrementalPlanner(
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
    with pytest.raises(ap.errors.ArenaState):
        planner.read(1)
    planner.acquire_temporary()
    assert len(planner.read(2)) == 400
    with pytest.raises(InvalidOption):
        planner.execute(0, 3)
