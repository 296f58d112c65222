"""Incremental arenas and variables from Python."""

from __future__ import annotations

import pytest

import arenaplan as ap
from arenaplan.base.errors import (
    InvalidOption,
    PlanOverlap,
)
from raising import raises

MAX_BYTES = 2**63 - 1


def test_row_25_basic_arena_operations_of_2019() -> None:
    arena = ap.classic.SimpleArena(64)
    offsets = [arena.allocate(32, 2047) for _ in range(3)]
    arena.deallocate(offsets[0], 2047)
    offsets += [arena.allocate(32, 1023), arena.allocate(32, 2047)]
    arena.deallocate(offsets[1], 2047)
    offsets.append(arena.allocate(32, 1023))
    assert offsets == [0, 2048, 4096, 0, 6144, 1024]
    assert arena.commit()
    assert (arena.high_water, arena.buffer_bytes) == (8191, 8319)


def test_row_25_growth_keeps_content_and_clearing_keeps_memory() -> None:
    arena = ap.classic.SimpleArena()
    first = arena.allocate(1, 100)
    with raises("ArenaState"):
        arena.resolve(first, 100)
    arena.commit()
    arena.write(first, b"abc")
    arena.allocate(64, 10_000)
    arena.commit()
    assert arena.resolve(first, 100)[:4] == b"abc\0"
    with raises("ArenaState"):
        arena.deallocate(first, 99)
    with raises("PlanOutOfBounds"):
        arena.resolve(1 << 40, 1)
    before = arena.buffer_bytes
    arena.clear()
    assert (arena.high_water, arena.buffer_bytes) == (0, before)


def test_row_26_zero_sizes_alignment_and_overflow() -> None:
    for arena, more in (
        (ap.classic.SimpleArena(64), ()),
        (ap.classic.IncrementalArena(64), (0, 1)),
    ):
        nothing = arena.allocate(32, 0, *more)
        arena.commit()
        if isinstance(arena, ap.classic.SimpleArena):
            arena.deallocate(nothing, 0)
            arena.deallocate(nothing, 0)
            assert arena.resolve(nothing, 0) is None
        else:
            assert (nothing.offset, nothing.nbytes, nothing.live) == (0, 0, ap.Live(0, 1))
            assert arena.resolve(nothing) is None
        for alignment in (0, 3, 128):
            with raises("InvalidAlignment"):
                arena.allocate(alignment, 1, *more)
        arena.allocate(1, 16, *more)
        with raises("SizeOverflow"):
            arena.allocate(1, MAX_BYTES, *more)


def test_row_25_basic_arena_operations_of_today() -> None:
    arena = ap.classic.IncrementalArena(64)
    rows = [(2047, 1, 3), (2047, 2, 5), (2047, 3, 6), (2047, 5, 6), (1023, 4, 6), (1023, 6, 6)]
    found = [arena.allocate(32, nbytes, first, last + 1) for nbytes, first, last in rows]
    assert [it.offset for it in found] == [0, 2048, 4096, 0, 6144, 2048]
    assert arena.active == 6
    assert arena.commit()
    arena.write(found[1], b"x" * 2047)
    assert arena.resolve(found[1]) == b"x" * 2047
    with raises("ArenaState"):
        arena.write(found[5], b"x" * 1024)
    with raises("InvalidLiveRange"):
        arena.allocate(1, 1, 2, 2)
    with pytest.raises(InvalidOption, match="'shortest' nor 'litert'"):
        ap.classic.IncrementalArena(rule="first")


def test_row_25_purging_resetting_and_releasing() -> None:
    arena = ap.classic.IncrementalArena(64)
    made = [arena.allocate(32, 2047, *live) for live in ((0, 3), (1, 3), (2, 4))]
    arena.commit()
    arena.purge_before(4)
    assert arena.active == 0
    arena.restore(made)
    arena.purge_after(1)
    assert arena.active == 2
    arena.deallocate(made[0])
    assert arena.allocate(32, 13, 0, 4).offset == 0
    arena.reset()
    assert (arena.active, arena.high_water) == (0, 6143)
    arena.release()
    assert arena.buffer_bytes == 0
    with raises("ArenaState"):
        arena.resolve(made[0])
    arena.allocate(1, MAX_BYTES - 8192, 0, 1)
    with raises("ArenaCommitError"):
        arena.commit()
    arena.clear()
    assert arena.high_water == 0


def test_k11_the_rule_of_litert_compares_gaps_as_it_does() -> None:
    rows = [(28, 2, 2), (22, 3, 6), (21, 5, 5), (8, 2, 4), (7, 4, 6), (6, 4, 4)]
    arena = ap.classic.IncrementalArena(64, rule="litert")
    found = [arena.allocate(8, nbytes, first, last + 1).offset for nbytes, first, last in rows]
    assert found == [0, 0, 24, 32, 48, 40]


# -- variables -------------------------------------------------------------------------


def assign(graph: ap.Graph, state: int, source: int, name: str) -> int:
    (result,) = graph.node(
        "Assign",
        [state, source],
        [(name, (10,), "float32")],
        in_place=[(1, 0, True)],
        ignores=[0],
        mutates=[0],
    )
    return result


def update() -> ap.Graph:
    """``reader = f(w); w = source(x)``, where the source comes first."""
    graph = ap.Graph()
    w, x = graph.state("w", (10,)), graph.input("x", (10,))
    (source,) = graph.node("Op", [x], [("source", (10,), "float32")])
    (reader,) = graph.node("Op", [w], [("reader", (10,), "float32")])
    graph.output(assign(graph, w, source, "new"))
    graph.output(reader)
    return graph


def test_row_21_assignments_are_found() -> None:
    graph = update()
    assert ap.classic.find_assigns(graph) == {2: ap.classic.Assign(False, 0, 2, 4)}
    assert ap.classic.find_assigns(graph, elementwise=[0]) == {2: ap.classic.Assign(True, 0, 2, 4)}


def test_row_09_readers_of_the_old_bytes_run_before_what_writes() -> None:
    graph = update()
    ordered = ap.classic.order_mutations(graph, elementwise=[0])
    assert [node.after for node in graph.nodes] == [(), (), ()]
    assert [node.after for node in ordered.nodes] == [(1,), (), ()]
    assert ordered.core.order == [1, 0, 2]
    assert [node.after for node in ap.classic.order_mutations(graph).nodes] == [(), (), (1,)]


def test_row_22_a_decorated_plan_is_checked_and_refused_where_it_would_be_wrong() -> None:
    graph = update()
    wrong = ap.classic.share_storage(graph).decorate(graph.core, [0])
    with pytest.raises(PlanOverlap):
        wrong.to_plan(graph.core, alignment=1)
    ordered = ap.classic.order_mutations(graph, elementwise=[0])
    plan = ap.classic.share_storage(ordered).decorate(ordered.core, [0])
    assert plan.storage_ids[2] == plan.storage_ids[0] == plan.storage_ids[4]
    plan.to_plan(ordered.core, alignment=1).check(ordered.core)


def test_row_09_a_writer_that_must_wait_for_itself_is_refused() -> None:
    graph = ap.Graph()
    v, w, x = (graph.state("v", (10,)), graph.state("w", (10,)), graph.input("x", (10,)))
    (p,) = graph.node("Op", [v], [("p", (10,), "float32")])
    (q,) = graph.node("Op", [x], [("q", (10,), "float32")])
    assign(graph, v, q, "new v")
    graph.node("Op", [v, w], [("r", (10,), "float32")])
    assign(graph, w, p, "new w")
    with raises("GraphCycle"):
        ap.classic.order_mutations(graph, elementwise=[0, 1])
    assert ap.classic.order_mutations(graph).core.order == [0, 1, 2, 3, 4]


def g_n16(**effects) -> ap.Graph:
    """``w += 1; w2 = w + 1``."""
    graph = ap.Graph()
    w2, w = graph.state("w2", (10,)), graph.state("w", (10,))
    (add0,) = graph.node("Op", [w], [("add0", (10,), "float32")], **effects)
    assign0 = assign(graph, w, add0, "assign0")
    (add1,) = graph.node("Op", [assign0], [("add1", (10,), "float32")], **effects)
    graph.output(assign(graph, w2, add1, "assign1"))
    return graph


def test_d1_g_n16_keeps_its_direct_writes_in_the_order_of_mutations() -> None:
    graph = g_n16()
    ordered = ap.classic.order_mutations(graph, elementwise=[0, 2])
    shared = ap.classic.share_storage(ordered)
    found = ap.classic.find_assigns(graph, elementwise=[0, 2])
    assert ap.classic.find_assigns(ordered, elementwise=[0, 2]) == found
    assert all(each.direct for each in found.values())
    for plan in (
        shared.decorate(ordered.core, [0, 2]),
        shared.decorate(ordered.core, assigns=found),
    ):
        w2, w, add0, assign0, add1, assign1 = plan.storage_ids
        assert w2 == add1 == assign1
        assert w == add0 == assign0
        assert plan.allocated_bytes == 80
    found[1] = ap.classic.Assign(False, found[1].state, found[1].source, found[1].result)
    assert shared.decorate(ordered.core, assigns=found).allocated_bytes == 120, "add0 by itself"


def test_d1_assignments_of_another_graph_are_refused() -> None:
    graph = g_n16()
    shared = ap.classic.share_storage(graph)
    for wrong in (
        {0: ap.classic.Assign(False, 0, 1, 2)},
        {9: ap.classic.Assign(False, 0, 1, 2)},
        {1: ap.classic.Assign(True, 0, 2, 3)},
    ):
        with pytest.raises(InvalidOption, match="assigns"):
            shared.decorate(graph.core, assigns=wrong)
    with pytest.raises(InvalidOption, match="assigns"):
        shared.decorate(graph.core, [0], assigns={})


def test_d8_effects_say_which_nodes_write_directly() -> None:
    """G-N16 again, with in-place pairs, and no list of nodes anywhere."""
    graph = g_n16(in_place=[(0, 0)])
    assert [each.direct for each in ap.classic.find_assigns(graph).values()] == [True, True]
    assert not any(each.direct for each in ap.classic.find_assigns(graph, elementwise=()).values())
    ordered = ap.classic.order_mutations(graph)
    plan = ap.classic.share_storage(ordered).decorate(ordered.core)
    assert plan.allocated_bytes == 80
    plan.to_plan(ordered.core, alignment=1).check(ordered.core)
    flows = ap.Graph()
    v, x = flows.state("v", (10,)), flows.input("x", (10,))
    (y,) = flows.node("Exp", [x], [("y", (10,), "float32")], flows=[(0, 10, (0,))])
    flows.output(assign(flows, v, y, "new v"))
    assert ap.classic.find_assigns(flows)[1].direct
