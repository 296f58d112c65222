"""Graphs built by hand, and the sizes that the boundary refuses."""

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base import errors
from raising import raises


def chain(*sizes: int) -> ap.Graph:
    """Return a chain of nodes over arrays of the given sizes, in bytes."""
    graph = ap.Graph("chain")
    value = graph.input("x0", (sizes[0],), "uint8")
    for index, size in enumerate(sizes[1:], 1):
        (value,) = graph.node("Op", [value], [(f"x{index}", (size,), "uint8")])
    graph.output(value)
    return graph


def test_a_graph_by_hand_plans_to_what_is_live_at_once() -> None:
    plan = ap.plan(chain(64, 128, 64), target="ideal")
    assert (plan.arena_bytes, plan.lower_bound, plan.status) == (192, 192, "optimal")
    assert plan.naive_bytes == 256
    assert plan.gap == 0


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        pytest.param((1 << 40, 1 << 40), "SizeOverflow", id="A01"),
        pytest.param((1 << 62,), "SizeOverflow", id="A02"),
        pytest.param((1 << 61,), "SizeOverflow", id="A03"),
        pytest.param((-4,), "InvalidDim", id="A07"),
        pytest.param((1.5,), TypeError, id="A13-fraction"),
        pytest.param((float("nan"),), TypeError, id="A13-nan"),
        pytest.param((True,), TypeError, id="A13-bool"),
        pytest.param(("12",), TypeError, id="A13-text"),
        pytest.param((-1,), errors.SizeError, id="A14-negative"),
        pytest.param((1 << 64,), "InvalidSize", id="A14-2^64"),
        pytest.param((1 << 200,), "InvalidSize", id="A14-2^200"),
    ],
)
def test_shapes_that_no_machine_holds_are_refused(shape: tuple, error: type[Exception]) -> None:
    def plan() -> ap.Plan:
        graph = ap.Graph()
        graph.output(graph.input("big", shape))
        return ap.plan(graph, target="ideal")

    with raises(error, match=r"'big'"):
        plan()


@pytest.mark.parametrize(
    "shape", [(0, 1 << 63, 1 << 63), (3, 0), (0,)], ids=["A04", "A10", "A10-1d"]
)
def test_empty_arrays_need_no_bytes(shape: tuple[int, ...]) -> None:
    graph = ap.Graph()
    graph.output(graph.input("empty", shape))
    assert ap.plan(graph, target="ideal").arena_bytes == 0


def test_a11_a_scalar_needs_one_element() -> None:
    graph = ap.Graph()
    graph.output(graph.input("scalar", (), "float64"))
    assert ap.plan(graph, alignment=1, target="ideal").arena_bytes == 8


@pytest.mark.parametrize("alignment", [0, 3, 48, 1 << 63, -8, 1 << 70])
def test_a15_alignments_are_powers_of_two(alignment: int) -> None:
    with raises("InvalidAlignment"):
        ap.plan(chain(8, 8), alignment=alignment, target="ideal")


@pytest.mark.parametrize("alignment", [64.0, "64", True])
def test_a13_alignments_are_whole_numbers(alignment: object) -> None:
    with pytest.raises(TypeError):
        ap.plan(chain(8, 8), alignment=alignment, target="ideal")  # type: ignore[arg-type]


def test_a16_an_alignment_above_the_capacity_needs_offset_zero() -> None:
    graph = ap.Graph()
    graph.output(graph.input("x", (8,), "uint8"))
    with pytest.raises(errors.CapacityExceeded) as caught:
        ap.plan(graph, alignment=1 << 20, budget=100, target="ideal")
    assert caught.value.plan is not None
    assert ap.plan(graph, alignment=64, budget=64, target="ideal").arena_bytes == 64


def test_a18_elements_below_a_byte_are_packed() -> None:
    graph = ap.Graph()
    graph.output(graph.input("x", (7,), "int4"))
    assert ap.plan(graph, alignment=1, target="ideal").arena_bytes == 4


@pytest.mark.parametrize("dtype", ["string", "float999", ""])
def test_a19_a20_unknown_element_types_are_refused(dtype: str) -> None:
    graph = ap.Graph()
    graph.output(graph.input("strange", (7,), dtype))
    with pytest.raises(errors.UnsupportedDtype, match="'strange'"):
        ap.plan(graph, target="ideal")


def test_b01_a_cycle_names_its_nodes() -> None:
    graph = ap.Graph()
    a, b = graph.value("a", (1,)), graph.value("b", (1,))
    graph.node("Op", [a], [b], name="first")
    graph.node("Op", [b], [a], name="second")
    with raises("GraphCycle", match=r"'first'.*'second'|'second'.*'first'"):
        ap.plan(graph, target="ideal")


def test_numpy_integers_are_dimensions() -> None:
    graph = ap.Graph()
    graph.output(graph.input("x", (np.int64(3), np.uint8(2))))
    assert graph.values[0].shape == (3, 2)


def test_a_graph_can_grow_after_it_was_planned() -> None:
    graph = chain(64, 64)
    before = ap.plan(graph, target="ideal")
    (more,) = graph.node("Op", [1], [("more", (1000,), "uint8")])
    graph.output(more)
    with raises("PlanMismatch"):
        before.check(graph)
    assert ap.plan(graph, target="ideal").arena_bytes > before.arena_bytes


def test_constants_are_outside_the_arena_and_read_only() -> None:
    graph = ap.Graph()
    loads = []

    def weights() -> np.ndarray:
        loads.append(1)
        return np.ones(1000, np.float32)

    w = graph.constant("w", (1000,), data=weights)
    x = graph.input("x", (16,))
    (y,) = graph.node("Op", [x, w], [("y", (16,), "float32")])
    graph.output(y)
    assert ap.plan(graph, target="ideal").arena_bytes == 128
    assert loads == []
    assert not graph.data(w).flags.writeable
    assert graph.data(w) is graph.data(w)
    assert loads == [1]


def test_a_constant_without_data_says_so() -> None:
    graph = ap.Graph()
    w = graph.constant("w", (10,))
    assert not graph.has_data(w)
    with pytest.raises(errors.UndefinedValue, match="'w'"):
        graph.data(w)


def test_states_are_mutated_in_place() -> None:
    graph = ap.Graph()
    x, state = graph.input("x", (16,)), graph.state("state", (16,))
    (y,) = graph.node("Assign", [state, x], [("y", (16,), "float32")], mutates=[0])
    graph.output(y)
    assert ap.plan(graph, target="ideal").arena_bytes == 3 * 64


def test_a_permission_in_place_of_a_smaller_input_has_no_effect() -> None:
    graph = ap.Graph()
    x = graph.input("x", (16,), "uint8")
    (h,) = graph.node("Op", [x], [("h", (16,), "uint8")], in_place=[(0, 0)])
    graph.output(h)
    ap.plan(graph, target="ideal")
    graph.node("Op", [h], [("wide", (16,), "float32")], name="Widen", in_place=[(0, 0)])
    plan = ap.plan(graph, target="ideal")
    assert all(share.result != graph.values[-1].index for share in plan.shares)
    assert ap.classic.share_storage(graph, mode="nnvm").to_plan(graph, alignment=1)


def test_pinned_values_are_planned_around() -> None:
    graph = ap.Graph()
    x = graph.input("x", (16,))
    (h,) = graph.node("Op", [x], [("h", (32,), "float32")])
    (y,) = graph.node("Op", [h], [("y", (16,), "float32")])
    graph.output(y)
    before = graph.digest
    graph.pin(x, 64)
    assert graph.digest != before
    plan = ap.plan(graph)
    plan.check(graph)
    first, middle, last = plan.placements
    assert (first.offset, middle.offset, last.offset) == (64, 128, 0)
    graph.pin(h, 64)  # Both are live at the first node.
    with raises("PinConflict"):
        ap.plan(graph)
    graph.pin(h, 65)
    with pytest.raises(errors.PlannerError):
        ap.plan(graph)
