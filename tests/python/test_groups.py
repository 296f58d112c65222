"""Nodes that run as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arenaplan as ap
import pointwise
from arenaplan.base.errors import UnsupportedOp
from arenaplan.run.numpy.groups import find_units
from flow_graphs import Builder, attention
from group_runs import check, inputs_of, run_with_choice, same_bytes, scratch_of, sizes_of
from grouping import greedy
from networks import F32, noise
from raising import raises

# -- elementwise -------------------------------------------------------------------------


def test_a_gate_runs_in_place_of_what_it_gates() -> None:
    b = Builder()
    x = b.input("x", 5, 1001)
    a = b.elementwise("Neg", x)
    gate = b.elementwise("Sigmoid", a)
    b.graph.output(b.elementwise("Mul", a, gate))
    plan = check(b.graph, [[0], [1, 2]])
    assert plan.placements[gate] is None
    assert plan.arena_bytes - scratch_of(plan) <= 2 * 5 * 1001 * 4 + 64
    assert max(sizes_of(b.graph, [[0], [1, 2]], 2), default=0) <= 4096


def test_a_value_may_be_combined_with_itself() -> None:
    b = Builder()
    a = b.elementwise("Neg", b.input("x", 40, 9))
    square = b.elementwise("Mul", a, a)
    b.graph.output(b.elementwise("Add", square, a))
    plan = check(b.graph, [[0], [1, 2]])
    assert same_bytes(plan, 3, a)


def test_a_group_reshapes_what_it_works_on() -> None:
    b = Builder()
    x = b.input("x", 4, 6, 10)
    a = b.elementwise("Exp", x)
    flat = b.reshape(a, 24, 10)
    c = b.elementwise("Mul", flat, b.weight(10))
    again = b.reshape(c, 4, 60)
    b.graph.output(b.elementwise("Add", again, b.input("y", 4, 60)))
    check(b.graph, [[0, 1, 2, 3, 4]])


def test_a_group_may_end_with_a_reshape() -> None:
    b = Builder()
    a = b.elementwise("Neg", b.input("x", 4, 6))
    b.graph.output(b.reshape(b.elementwise("Exp", a), 24))
    check(b.graph, [[0], [1, 2]])


def test_a_broadcast_operand_of_equal_size_is_not_taken_over() -> None:
    b = Builder()
    column = b.elementwise("Neg", b.input("x", 60, 1))
    row = b.elementwise("Exp", b.input("y", 60))
    b.graph.output(column)
    total = b.elementwise("Add", b.reshape(column, 1, 60), row)
    b.graph.output(b.elementwise("Sqrt", b.elementwise("Abs", total)))
    plan = check(b.graph, [[0], [1], [2], [3, 4, 5]])
    assert not same_bytes(plan, row, b.graph.outputs[1])


def test_a_narrowing_cast_runs_in_a_group() -> None:
    b = Builder()
    x = b.input("x", 300, 7)
    big = b.elementwise("Mul", x, b.weight(1, low=20, high=20))
    small = b.node("Cast", [big], (300, 7), 2100, [0], dtype="int8", in_place=[0])
    wide = b.node("Cast", [small], (300, 7), 2100, [0], dtype=F32)
    b.graph.output(b.elementwise("Add", wide, x))
    check(b.graph, [[0, 1, 2, 3]])


def test_gelu_by_parts_is_one_step() -> None:
    b = Builder()
    x = b.elementwise("Neg", b.input("x", 3, 50, 64))
    half = b.elementwise("Div", x, b.weight(1, low=1.4142, high=1.4142))
    bell = b.elementwise("Erf", half)
    one = b.elementwise("Add", bell, b.weight(1, low=1, high=1))
    product = b.elementwise("Mul", x, one)
    b.graph.output(b.elementwise("Mul", product, b.weight(1, low=0.5, high=0.5)))
    plan = check(b.graph, [[0], [1, 2, 3, 4, 5]])
    assert plan.arena_bytes <= 2 * 3 * 50 * 64 * 4 + 4096


_OTHERWISE = {"Acosh", "Identity"}
"""Not defined for the operand here; never a step of its own."""
BINARY = ("Add", "Div", "Max", "Min", "Mod", "Mul", "PRelu", "Pow", "Sub", "Sum")


@pytest.mark.parametrize("op", [op for op in pointwise.UNARY if op not in _OTHERWISE])
def test_unary_operators_run_in_pieces(op: str) -> None:
    b = Builder()
    x = b.elementwise("Sigmoid", b.input("x", 3, 40, 50))
    y = b.elementwise(op, x, version=24)
    b.graph.output(b.elementwise("Add", y, b.weight(50)))
    steps = [[0], [1, 2]]
    check(b.graph, steps)
    assert min(sizes_of(b.graph, steps, 2), default=0) <= 3 * 4096


@pytest.mark.parametrize("shape", [(3, 40, 50), (40, 1), (3, 1, 50), (50,), (1, 40, 50)])
@pytest.mark.parametrize("op", BINARY)
def test_binary_operators_run_in_pieces(op: str, shape: tuple[int, ...]) -> None:
    b = Builder()
    x = b.elementwise("Sigmoid", b.input("x", 3, 40, 50))
    rest = {"attributes": {"fmod": 1}} if op == "Mod" else {}
    y = b.elementwise(op, x, b.weight(*shape, low=0.5, high=2), **rest)
    b.graph.output(b.elementwise("Add", y, b.weight(50)))
    check(b.graph, [[0], [1, 2]])


# -- convolutions -------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(("group", "kernel"), [(1, 1), (1, 3), (2, 3), (6, 3), (1, 5)])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_residual_block_adds_into_its_shortcut(
    batch: int, group: int, kernel: int, stride: int
) -> None:
    b = Builder()
    size = 9 if stride == 1 else 18
    x = b.input("x", batch, 6, size, size)
    shortcut = b.elementwise("Neg", b.input("y", batch, 12 if group < 6 else 6, 9, 9))
    made = b.batch_norm(b.conv(x, b.shapes[shortcut][1], kernel, stride, group))
    total = b.elementwise("Add", made, shortcut)
    b.graph.output(b.elementwise("Relu", total))
    plan = check(b.graph, [[0], [1, 2, 3, 4]])
    assert same_bytes(plan, b.graph.outputs[0], shortcut)


def test_an_addend_that_is_the_image_too_is_not_taken_over() -> None:
    b = Builder()
    x = b.elementwise("Neg", b.input("x", 1, 6, 9, 9))
    b.graph.output(b.elementwise("Add", x, b.conv(x, 6)))
    plan = check(b.graph, [[0], [1, 2]])
    assert not same_bytes(plan, x, b.graph.outputs[0])


def test_an_addend_with_a_later_reader_is_not_taken_over() -> None:
    b = Builder()
    x = b.input("x", 1, 6, 9, 9)
    shortcut = b.elementwise("Neg", x)
    total = b.elementwise("Add", b.conv(x, 6), shortcut)
    b.graph.output(b.elementwise("Mul", b.elementwise("Relu", total), shortcut))
    check(b.graph, [[0], [1, 2, 3], [4]])


def test_a_convolution_gates_itself() -> None:
    b = Builder()
    y = b.conv(b.input("x", 2, 5, 11, 7), 4)
    gate = b.elementwise("Sigmoid", b.batch_norm(y))
    b.graph.output(b.elementwise("Mul", gate, gate))
    other = b.conv(b.input("z", 2, 5, 11, 7), 4, kernel=1)
    b.graph.output(b.elementwise("Mul", other, b.elementwise("Sigmoid", other)))
    check(b.graph, [[0, 1, 2, 3], [4, 5, 6]])


def test_two_convolutions_run_as_one_where_only_one_can_be_cut() -> None:
    b = Builder()
    x = b.input("x", 1, 6, 9, 9)
    total = b.elementwise("Add", b.conv(x, 6), b.conv(x, 6, kernel=1))
    b.graph.output(b.elementwise("Relu", total))
    check(b.graph, [[0, 1, 2, 3]])


def test_a_convolution_runs_with_a_reshape_behind_it() -> None:
    b = Builder()
    y = b.batch_norm(b.conv(b.input("x", 1, 6, 9, 9), 4))
    b.graph.output(b.reshape(b.elementwise("Relu", y), 1, 2, 2, 81))
    z = b.conv(b.input("z", 1, 6, 9, 9), 4)
    b.graph.output(b.elementwise("Exp", b.reshape(z, 1, 4, 81)))
    check(b.graph, [[0, 1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize(("group", "given"), [(1, False), (2, False), (1, True)])
def test_a_transposed_convolution_adds_into_its_shortcut(group: int, given: bool) -> None:
    b = Builder()
    x = b.input("x", 2, 4, 5, 6)
    kernel = (4, 6 // group, 2, 2)
    weights = b.input("w", *kernel) if given else b.weight(*kernel)
    shortcut = b.elementwise("Neg", b.input("y", 2, 6, 10, 12))
    made = b.node(
        "ConvTranspose",
        [x, weights, b.weight(6)],
        (2, 6, 10, 12),
        2 * 6 * 120,
        attributes={"strides": [2, 2], "group": group},
    )
    b.graph.output(b.elementwise("Relu", b.elementwise("Add", made, shortcut)))
    check(b.graph, [[0], [1, 2, 3]])


@pytest.mark.parametrize(
    ("kernel", "stride", "group"),
    [(1, 1, 1), (3, 1, 1), (3, 2, 1), (1, 2, 1), (3, 1, 6), (3, 1, 2)],
)
def test_what_a_convolution_loads_is_computed_on_the_way_in(
    kernel: int, stride: int, group: int
) -> None:
    b = Builder()
    x = b.elementwise("Neg", b.input("x", 2, 6, 13, 10))
    # A shift, so that padding with zeros before it would be another result.
    loaded = b.elementwise("Exp", b.batch_norm(x))
    y = b.conv(loaded, 6, kernel, stride, group)
    b.graph.output(b.elementwise("Relu", y))
    plan = check(b.graph, [[0], [1, 2, 3, 4]])
    assert plan.placements[loaded] is None


def test_what_is_loaded_and_added_too_is_not_taken_over() -> None:
    b = Builder()
    x = b.elementwise("Neg", b.input("x", 1, 6, 13, 10))
    loaded = b.elementwise("Relu", b.batch_norm(x))
    b.graph.output(b.elementwise("Add", b.conv(loaded, 6), x))
    plan = check(b.graph, [[0], [1, 2, 3, 4]])
    assert not same_bytes(plan, x, b.graph.outputs[0])


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_quantized_convolution_is_one_step(kernel: int) -> None:
    b = Builder()
    x = b.input("x", 1, 6, 13, 10, dtype="int8")
    scale = b.weight(1, low=0.02, high=0.02)
    zero = b.graph.constant("zero", (1,), "int8", np.array([3], np.int8))
    shape = b.shapes[x]
    count = int(np.prod(shape))
    real = b.node("DequantizeLinear", [x, scale, zero], shape, count, [0])
    y = b.elementwise("Relu", b.conv(real, 6, kernel))
    b.graph.output(b.node("QuantizeLinear", [y, scale, zero], shape, count, [0], dtype="int8"))
    feed = {"x": np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)}
    results = []
    for steps in ([[0, 1, 2, 3]], [[0], [1], [2], [3]]):
        plan = ap.plan(b.graph, steps=steps, workspace="auto", target="numpy")
        with ap.Executor(b.graph, plan) as executor:
            results += executor.run(feed, verify=True).values()
    assert np.unique(results[0]).size > 10
    assert np.abs(results[0].astype(int) - results[1]).max() <= 1


def test_half_precision_runs_in_groups() -> None:
    b = Builder()
    x = b.input("x", 1, 4, 9, 8, dtype="float16")
    data = np.random.default_rng(3).uniform(-1, 1, (8, 8)).astype(np.float16)
    weights = b.graph.constant("w", (8, 8), "float16", data)
    b.shapes[weights] = (8, 8)
    y = b.node("MatMul", [x, weights], (1, 4, 9, 8), 36, [0], dtype="float16", loads=[0])
    z = b.elementwise("Sigmoid", y, dtype="float16")
    b.graph.output(b.elementwise("Mul", y, z, dtype="float16"))
    kernel = b.graph.constant("k", (4, 4, 1, 1), "float16", data[:4, :4].reshape(4, 4, 1, 1).copy())
    b.shapes[kernel] = (4, 4, 1, 1)
    c = b.node("Conv", [x, kernel], (1, 4, 9, 8), 288, (), dtype="float16", loads=[0])
    b.graph.output(
        b.elementwise("Add", b.elementwise("Relu", c, dtype="float16"), x, dtype="float16")
    )
    feed = {"x": noise(1, 4, 9, 8).astype(np.float16)}
    with ap.Executor(
        b.graph, ap.plan(b.graph, optimize="all,-in-place", target="ideal")
    ) as executor:
        alone = executor.run(feed)
    plan = ap.plan(b.graph, steps=[[0, 1, 2], [3, 4, 5]], workspace="auto", target="numpy")
    with ap.Executor(b.graph, plan) as executor:
        together = executor.run(feed, verify=True)
    for name, wanted in alone.items():
        np.testing.assert_allclose(together[name], wanted, rtol=1e-2, atol=1e-2)


def test_a_gate_is_loaded_with_both_of_its_factors() -> None:
    b = Builder()
    x = b.elementwise("Neg", b.input("x", 1, 6, 12, 12))
    s = b.elementwise("Sigmoid", b.input("s", 1, 6, 1, 1))
    twice = b.elementwise("Mul", b.elementwise("Tanh", x), x)
    gated = b.elementwise("Mul", twice, s)
    b.graph.output(b.conv(gated, 8))
    check(b.graph, [[0], [1], [2, 3, 4, 5]])


def test_a_convolution_that_loads_another_one_runs_whole() -> None:
    b = Builder()
    y = b.elementwise("Relu", b.conv(b.input("x", 1, 3, 8, 8), 4))
    b.graph.output(b.conv(y, 5))
    check(b.graph, [[0, 1, 2]])


# -- rows ---------------------------------------------------------------------------------


def test_attention_runs_by_rows() -> None:
    graph = attention()
    steps = [[0, 1, 2, 3, 4]]
    plan = check(graph, steps)
    assert all(plan.placements[node.outputs[0] or 0] is None for node in graph.nodes[:-1])
    # A few rows of scores, and one value for the sum of each.
    assert sizes_of(graph, steps, 4)[0] <= 4096
    assert plan.arena_bytes < 5 * 3 * 67 * 8 * 4 + 67 * 67 * 4


def test_a_perceptron_adds_into_its_input_by_rows() -> None:
    b = Builder()
    x = b.elementwise("Neg", b.input("x", 1, 33, 12))
    up = b.elementwise("Add", b.matmul(x, b.weight(12, 48)), b.weight(48))
    down = b.matmul(b.elementwise("Gelu", up, version=20), b.weight(48, 12))
    b.graph.output(b.elementwise("Add", down, x))
    plan = check(b.graph, [[0], [1, 2, 3, 4, 5]])
    assert same_bytes(plan, b.graph.outputs[0], x)


def test_a_product_with_an_epilogue_adds_into_its_shortcut() -> None:
    b = Builder()
    shortcut = b.elementwise("Neg", b.input("y", 21, 10))
    made = b.node(
        "Gemm",
        [b.input("x", 21, 6), b.weight(10, 6), b.weight(10)],
        (21, 10),
        21,
        [0],
        loads=[0],
        attributes={"transB": 1},
    )
    b.graph.output(b.elementwise("Relu", b.elementwise("Add", made, shortcut)))
    check(b.graph, [[0], [1, 2, 3]])


def test_a_product_of_stacks_takes_over_a_square_operand() -> None:
    b = Builder()
    x = b.elementwise("Neg", b.input("x", 2, 9, 8))
    loaded = b.elementwise("Exp", x)
    b.graph.output(b.matmul(loaded, b.weight(2, 8, 8)))
    plan = check(b.graph, [[0], [1, 2]])
    assert same_bytes(plan, b.graph.outputs[0], x)


def test_an_operand_that_is_repeated_is_computed_once() -> None:
    b = Builder()
    x = b.elementwise("Exp", b.input("x", 5, 7))
    b.graph.output(b.matmul(x, b.input("y", 3, 7, 4)))
    check(b.graph, [[0, 1]])


def test_what_is_reduced_is_made_on_the_way() -> None:
    b = Builder()
    x = b.input("x", 6, 11, 16)
    square = b.elementwise("Mul", x, x)
    axes = b.graph.constant("axes", (1,), "int64", np.array([-1], np.int64))
    mean = b.node("ReduceMean", [square, axes], (6, 11, 1), 66, [0])
    b.graph.output(b.elementwise("Sqrt", mean))
    norm = b.elementwise("Abs", x)
    attributes = {"keepdims": 0, "axes": [2]}
    total = b.node("ReduceMax", [norm], (6, 11), 66, [0], attributes=attributes, version=13)
    b.graph.output(b.elementwise("Exp", total))
    check(b.graph, [[0, 1, 2], [3, 4, 5]])


def test_rows_are_normalized_after_an_addition() -> None:
    b = Builder()
    x, y = (b.elementwise("Neg", b.input(name, 2, 10, 24)) for name in "xy")
    total = b.elementwise("Add", x, y)
    norm = b.node(
        "LayerNormalization",
        [total, b.weight(24), b.weight(24)],
        (2, 10, 24),
        20,
        [0],
        in_place=[0],
        attributes={"axis": -1},
    )
    b.graph.output(b.elementwise("Mul", norm, b.weight(24)))
    plan = check(b.graph, [[0], [1], [2, 3, 4]])
    assert plan.arena_bytes <= 3 * 2 * 10 * 24 * 4


# -- limits -------------------------------------------------------------------------------


def test_a_group_with_an_unknown_operator_is_refused_when_it_is_prepared() -> None:
    b = Builder()
    a = b.elementwise("Nonesuch", b.input("x", 40))
    b.graph.output(b.elementwise("Exp", a))
    plan = ap.plan(b.graph, steps=[[0, 1]], workspace="auto", target="numpy")
    with pytest.raises(UnsupportedOp, match="Nonesuch"):
        ap.Executor(b.graph, plan)


def test_a_kernel_that_cannot_be_cut_runs_on_everything(custom: Any) -> None:
    from arenaplan.run.numpy.registry import Step

    @custom("Twice")
    def twice(step: Step) -> Any:
        source, target = step.inputs[0], step.outputs[0]
        assert source is not None
        assert source.shape == (30, 40)
        return lambda: np.multiply(source, 2, out=target)

    b = Builder()
    a = b.elementwise("Neg", b.input("x", 30, 40))
    c = b.elementwise("Twice", a, domain="test")
    b.graph.output(b.elementwise("Add", c, a))
    check(b.graph, [[0, 1, 2]])


def test_a_value_whose_shape_is_asked_for_is_not_inside_of_a_group() -> None:
    b = Builder()
    inner = b.elementwise("Exp", b.input("x", 3, 20))
    b.graph.output(b.elementwise("Neg", inner))
    (shape,) = b.graph.node("Shape", [inner], [("shape", (2,), "int64")], version=13, ignores=[0])
    b.graph.output(shape)
    with raises("InvalidGroup", match="outside"):
        ap.plan(b.graph, steps=[[0, 1], [2]], target="ideal")
    with ap.Executor(b.graph) as executor:
        assert executor.run(inputs_of(b.graph), verify=True)["shape"].tolist() == [3, 20]


def test_too_little_scratch_memory_is_an_error() -> None:
    graph = attention()
    plan = ap.plan(graph, steps=[[0, 1, 2, 3, 4]], workspace="auto", target="numpy")
    from arenaplan.run.numpy.streaming import group_run

    (unit,) = find_units(graph, plan)
    assert unit.group is not None
    arrays = {v.index: np.empty(v.shape, np.float32) for v in graph.values}
    with raises("WorkspaceOverrun", match="64 bytes"):
        group_run(unit.group, arrays, np.empty(64, np.uint8))


def test_steps_that_are_no_groups_are_refused_with_workspaces_too() -> None:
    graph = attention()
    for steps in ([[0, 2], [1], [3], [4]], [[0], [1], [2], [3, 4, 9]], [[1, 0], [2], [3], [4]]):
        with pytest.raises(ap.PlannerError):
            ap.plan(graph, steps=steps, workspace="auto", target="numpy")
    with raises("InvalidGroup"):
        ap.plan(graph, steps=[[0, 2], [1], [3], [4]], workspace="auto", target="numpy")


# -- any graph ----------------------------------------------------------------------------


def random_graph(draw: Any) -> ap.Graph:
    """Return a random network of layers, with values that are read more than once."""
    b = Builder()
    n, c, h, w = (draw(st.integers(1, 3)), 2 * draw(st.integers(1, 3)), *(draw(SIDES), draw(SIDES)))
    known = [b.input("x", n, c, h, w), b.elementwise("Neg", b.input("y", n, c, h, w))]
    for _ in range(draw(st.integers(2, 9))):
        x = known[draw(st.integers(0, len(known) - 1))]
        other = known[draw(st.integers(0, len(known) - 1))]
        kind = draw(st.sampled_from(LAYERS))
        if kind == "conv":
            y = b.conv(x, c, draw(st.sampled_from([1, 3])), 1, draw(st.sampled_from([1, 2, c])))
        elif kind == "norm":
            y = b.batch_norm(x)
        elif kind == "product":
            y = b.elementwise("Mul", b.matmul(x, b.weight(w, w)), b.weight(1))
        elif kind in ("Softmax", "LogSoftmax"):
            y = b.rows(kind, x)
        elif kind == "channel":
            y = b.elementwise("Mul", x, b.weight(c, 1, 1))
        elif kind == "mlp":
            up = b.elementwise("Tanh", b.matmul(x, b.weight(w, 3 * w)))
            y = b.matmul(up, b.weight(3 * w, w))
        elif kind == "flat":
            flat = b.elementwise("Abs", b.reshape(x, n, c, h * w))
            y = b.reshape(flat, n, c, h, w)
        elif kind in ("Add", "Mul", "Max"):
            y = b.elementwise(kind, x, other)
        else:
            y = b.elementwise(kind, x)
        known.append(y)
    b.graph.output(known[-1])
    read = {value for node in b.graph.nodes for value in node.inputs}
    for value in known[:-1]:
        if value not in read and b.graph.values[value].kind == "activation":
            b.graph.output(value)
    return b.graph


SIDES = st.integers(1, 9)
LAYERS = (
    *("conv", "conv", "norm", "product", "mlp", "Softmax", "LogSoftmax", "channel", "flat"),
    *("Add", "Add", "Mul", "Max", "Relu", "Sigmoid", "Erf", "Tanh"),
)


@settings(max_examples=150)
@given(data=st.data())
def test_any_groups_compute_what_their_nodes_would(data: Any) -> None:
    graph = random_graph(data.draw)

    def wanted(_: ap.Graph, nodes: Sequence[int]) -> bool:
        return bool(data.draw(st.integers(0, 5)))

    steps = greedy(graph, wanted)
    feed = inputs_of(graph)
    with ap.Executor(graph, ap.plan(graph, optimize="all,-in-place", target="ideal")) as executor:
        alone = executor.run(feed)
    for options in ({"workspace": "auto"}, {}):
        plan = ap.plan(graph, steps=steps, **options, target="ideal")
        with ap.Executor(graph, plan) as executor:
            together = executor.run(feed, verify=True)
        smallest = run_with_choice(graph, plan, feed, 0)
        for name, values in alone.items():
            np.testing.assert_allclose(together[name], values, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(smallest[name], values, rtol=1e-4, atol=1e-4)
