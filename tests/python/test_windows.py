"""Values at sub-spans of others: operands inside of what joins them, parts inside of a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from networks import F32, noise


class PlacedPlan:
    """A plan whose placements a test has chosen."""

    __class__ = ap.Plan  # type: ignore[assignment]  # The executor takes nothing else.

    def __init__(self, plan: ap.Plan, offsets: dict[int, int], arena_bytes: int) -> None:
        self._plan = plan
        self.arena_bytes = arena_bytes
        self.spaces = [
            ap.planner.PlannedSpace("arena", arena_bytes, arena_bytes, "feasible", 64, None, 1)
        ]
        self.placements = list(plan.placements)
        for index, offset in offsets.items():
            place = plan.placements[index]
            assert place is not None
            self.placements[index] = ap.planner.Placement(0, offset, place.bytes, place.live)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)

    def check(self, graph: ap.Graph) -> None:
        pass

    def commit(self) -> Any:
        graph = ap.Graph()
        graph.output(graph.input("memory", (self.arena_bytes,), "uint8"))
        return ap.plan(graph, target="ideal").commit()


def run_at(
    graph: ap.Graph, offsets: dict[int, int], arena_bytes: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the outputs with the given placements, verified, and those of an ordinary plan."""
    values = [graph.values[index] for index in graph.inputs]
    feed = {value.name: noise(*value.shape, seed=k) for k, value in enumerate(values)}
    placed = PlacedPlan(ap.plan(graph, target="ideal"), offsets, arena_bytes)
    with ap.Executor(graph, placed) as executor:  # type: ignore[arg-type]
        found = executor.run(feed, verify=True)
    with ap.Executor(graph) as executor:
        return found, executor.run(feed)


def concatenation(copied: tuple[int, ...]) -> tuple[ap.Graph, dict[int, int], int]:
    """Return a Concat of three operands, of which some lie in the output."""
    graph = ap.Graph()
    x = graph.input("x", (1, 2, 3, 5))
    kinds = ("Neg", "Exp", "Abs")
    parts = [graph.node(op, [x], [(op, (1, 2, 3, 5), F32)], version=13)[0] for op in kinds]
    (y,) = graph.node(
        "Concat", parts, [("y", (1, 6, 3, 5), F32)], attributes={"axis": 1}, version=13
    )
    (z,) = graph.node("Sqrt", [y], [("z", (1, 6, 3, 5), F32)], version=13)
    (w,) = graph.node("Add", [parts[1], parts[2]], [("w", (1, 2, 3, 5), F32)], version=13)
    for value in (y, z, w):
        graph.output(value)
    # 120 bytes a part: only the first one is at a multiple of 64.
    offsets = {x: 2048, y: 0, z: 512, w: 3072}
    for k, part in enumerate(parts):
        offsets[part] = 1024 + 128 * k if k in copied else 120 * k
    return graph, offsets, 4096


@pytest.mark.parametrize("copied", [(), (0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_operands_of_a_concatenation_may_lie_in_it(copied: tuple[int, ...]) -> None:
    graph, offsets, size = concatenation(copied)
    found, wanted = run_at(graph, offsets, size)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


def test_a_concatenation_copies_only_what_lies_elsewhere() -> None:
    from arenaplan.run.numpy.groups import Unit
    from arenaplan.run.numpy.steps import prepare

    graph, offsets, size = concatenation((1,))
    memory = np.empty(size, np.uint8)
    arrays = {
        index: memory[at : at + 4 * np.prod(graph.values[index].shape)]
        .view(np.float32)
        .reshape(graph.values[index].shape)
        for index, at in offsets.items()
    }
    program = prepare(graph, [Unit(3, (3,))], arrays, {})
    (copy,) = program.runs
    assert getattr(copy, "func", None) is np.copyto


def test_parts_of_a_split_and_slices_may_lie_in_their_source() -> None:
    graph = ap.Graph()
    x = graph.input("x", (7, 5))
    (a,) = graph.node("Neg", [x], [("a", (7, 5), F32)], version=13)
    sizes = graph.constant("sizes", (2,), "int64", np.array([3, 4], np.int64))
    first, second = graph.node(
        "Split", [a, sizes], [("first", (3, 5), F32), ("second", (4, 5), F32)], version=13
    )
    bounds = [
        graph.constant(f"bound{at}", (1,), "int64", np.array([at], np.int64)) for at in (1, 3)
    ]
    (piece,) = graph.node("Slice", [second, *bounds], [("piece", (2, 5), F32)], version=13)
    (p,) = graph.node("MatMul", [piece, weight(graph, 5, 6)], [("p", (2, 6), F32)], version=13)
    (q,) = graph.node("Exp", [first], [("q", (3, 5), F32)], version=13)
    graph.output(p)
    graph.output(q)
    # The arena's first 4 bytes are free, so that nothing is at a multiple of 64.
    offsets = {x: 1028, a: 4, first: 4, second: 64, piece: 84, p: 516, q: 772}
    found, wanted = run_at(graph, offsets, 2048)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


def weight(graph: ap.Graph, *shape: int) -> int:
    index = len(graph.values)
    return graph.constant(f"w{index}", shape, F32, noise(*shape, seed=index))


def test_convolutions_and_products_work_at_any_multiple_of_an_element() -> None:
    graph = ap.Graph()
    x = graph.input("x", (1, 3, 9, 9))
    (a,) = graph.node(
        "Conv",
        [x, weight(graph, 4, 3, 3, 3)],
        [("a", (1, 4, 9, 9), F32)],
        attributes={"pads": [1] * 4},
        version=13,
    )
    (b,) = graph.node(
        "Conv", [a, weight(graph, 5, 4, 1, 1)], [("b", (1, 5, 9, 9), F32)], version=13
    )
    (c,) = graph.node("MatMul", [b, weight(graph, 9, 8)], [("c", (1, 5, 9, 8), F32)], version=13)
    (d,) = graph.node("Softmax", [c], [("d", (1, 5, 9, 8), F32)], version=13)
    graph.output(d)
    found, wanted = run_at(graph, {x: 4, a: 1004, b: 2404, c: 4124, d: 5868}, 8192)
    np.testing.assert_allclose(found["d"], wanted["d"], rtol=1e-5)
