"""Compiled kernels compute what the kernels of NumPy do: on any part, and in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan._core import CompiledKernel, WindowSide, quantized_way
from arenaplan.run.numpy import compiled
from arenaplan.run.numpy.chains import RECIPES

F32 = "float32"


def both(build: Callable[[], ap.Graph], inputs: dict[str, np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the outputs by compiled kernels, with and without techniques; NumPy's are the same."""
    with compiled.disabled():
        plain = build()
        plan = ap.plan(plain, workspace="auto", target="numpy", optimize="none")
        with ap.Executor(plain, plan) as executor:
            wanted = executor.run(inputs)
    for optimize in ("all", "none"):
        graph = build()
        plan = ap.plan(graph, workspace="auto", target="numpy", optimize=optimize)
        with ap.Executor(graph, plan) as executor:
            found = executor.run(inputs, verify=True)
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=2e-5, atol=2e-5)
            yield found[name]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def conv(
    graph: ap.Graph, x: int, outward: int, kernel: int, stride: int, group: int, size: int
) -> tuple[int, int]:
    """Append a convolution with a bias, and return its result and the size of that."""
    inward = graph.values[x].shape[1]
    w = graph.constant(
        f"w{len(graph.values)}",
        (outward, inward // group, kernel, kernel),
        F32,
        random(outward, inward // group, kernel, kernel, seed=len(graph.values)),
    )
    b = graph.constant(f"b{len(graph.values)}", (outward,), F32, random(outward))
    pads, made = [kernel // 2] * 4, (size + 2 * (kernel // 2) - kernel) // stride + 1
    (y,) = graph.node(
        "Conv",
        [x, w, b],
        [(f"y{len(graph.values)}", (1, outward, made, made), F32)],
        version=13,
        attributes={"pads": pads, "strides": [stride] * 2, "group": group},
    )
    return y, made


@pytest.mark.parametrize(
    ("outward", "kernel", "stride", "group"),
    [(12, 3, 1, 1), (8, 1, 1, 1), (8, 1, 2, 4), (8, 3, 2, 8), (16, 5, 1, 8), (3, 7, 3, 1)],
)
def test_convolutions_agree_with_their_activations_and_residuals(
    outward: int, kernel: int, stride: int, group: int
) -> None:
    def build() -> ap.Graph:
        graph = ap.Graph()
        x = graph.input("x", (1, 8, 21, 21))
        y, size = conv(graph, x, outward, kernel, stride, group, 21)
        shape = (1, outward, size, size)
        low = graph.constant("low", (), F32, np.float32(-0.5))
        high = graph.constant("high", (), F32, np.float32(1.5))
        (c,) = graph.node(
            "Clip", [y, low, high], [("c", shape, F32)], version=13, in_place=[(0, 0)]
        )
        z, _ = conv(graph, c, outward, 3, 1, outward, size)
        (s,) = graph.node("Add", [z, c], [("s", shape, F32)], version=13, in_place=[(0, 0), (1, 0)])
        (r,) = graph.node("HardSwish", [s], [("r", shape, F32)], version=14, in_place=[(0, 0)])
        graph.output(r)
        return graph

    results = list(both(build, {"x": random(1, 8, 21, 21)}))
    # Tiles, and no tiles at all.
    np.testing.assert_array_equal(results[0], results[1])


OTHERS = {"BatchNormalization", "DequantizeLinear", "QuantizeLinear"}
ELEMENTWISE = sorted(op for domain, op in RECIPES if not domain and op not in OTHERS)


@pytest.mark.parametrize("op", ELEMENTWISE)
def test_elementwise_operators_agree(op: str) -> None:
    shape = (3, 5, 700)

    def build() -> ap.Graph:
        graph = ap.Graph()
        x = graph.input("x", shape)
        operands: list[int] = [x]
        if op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Sum"):
            operands.append(graph.input("z", (5, 1)))
        if op == "Pow":
            operands.append(graph.constant("three", (), F32, np.float32(3)))
        (y,) = graph.node(op, operands, [("y", shape, F32)], version=22)
        graph.output(y)
        return graph

    inputs = {"x": random(*shape), "z": random(5, 1)}
    inputs["x"][0, 0, :3] = [np.inf, -np.inf, 0]
    names = [graph.values[at].name for graph in [build()] for at in graph.inputs]
    list(both(build, {name: inputs[name] for name in names}))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_bytes_are_converted_as_numpy_does(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    x = np.arange(-300, 301, dtype=np.float32) / 2  # Half of them are ties.
    x = np.concatenate([x, np.array([np.inf, -np.inf, 3e38, -3e38], np.float32)]).reshape(5, 121)

    def build() -> ap.Graph:
        graph = ap.Graph()
        value = graph.input("x", x.shape)
        scale = graph.constant("scale", (), F32, np.float32(1))
        zero = graph.constant("zero", (), np.dtype(dtype).name, dtype(limits.min + 101))
        for op, name, kind in (
            ("QuantizeLinear", "q", np.dtype(dtype).name),
            ("DequantizeLinear", "y", F32),
        ):
            made = [(name, x.shape, kind)]
            (value,) = graph.node(op, [value, scale, zero], made, version=19)
            graph.output(value)
        return graph

    expected = np.clip(np.rint(x) + (limits.min + 101), limits.min, limits.max).astype(dtype)
    for found in both(build, {"x": x}):
        wanted = expected if found.dtype == dtype else expected - np.float32(limits.min + 101)
        np.testing.assert_array_equal(found, wanted)


def test_bytes_may_be_made_where_wider_operands_begin() -> None:
    memory = np.zeros(4 * 3000, np.uint8)
    x, y = memory.view(np.float32), memory[:3000]
    numbers = np.arange(3000, dtype=np.float32) % 251
    x[:] = numbers
    program = [("load", 0, (0, 0.0, 0.0)), ("add", 1, (0, 2.0, 0.0))]
    CompiledKernel.chain(program, 1, [x], y)()
    np.testing.assert_array_equal(y, numbers + 2)
    with pytest.raises(
        ap.errors.InvalidOperand
    ):  # Elements would be overwritten before they are read.
        CompiledKernel.chain(program, 1, [x], memory[-3000:])


@pytest.mark.parametrize("kinds", [("u1", "u1"), ("u1", "i1"), ("i1", "u1"), ("i1", "i1")])
def test_results_that_are_looked_up_are_those_of_the_chain(kinds: tuple[str, str]) -> None:
    given, made = kinds
    numbers = np.arange(256, dtype=np.uint8).view(given)
    bend = [
        ("load", 0, (0, 0.0, 0.0)),
        ("mul", 1, (0, 0.03, 0.0)),
        ("sigmoid", 2, (1, 0.0, 0.0)),
        ("mul", 1, (2, 211.0, 0.0)),
        ("sub", 0, (1, 90.0, 0.0)),
    ]
    # Of two operands, no result is looked up.
    other = [("load", 3, (1, 0.0, 0.0)), ("add", 1, (0, 3, 0.0))]
    nothing = np.zeros(1, np.float32)
    for shape in [(256,), (1,), (63,), (3, 7, 65), (2, 1, 700)]:
        x = np.resize(numbers, shape)
        views = [x, np.broadcast_to(x[..., :1], shape), x[..., ::-1][..., ::-1]]
        if len(shape) > 1:
            wide = np.zeros((*shape[:-1], shape[-1] + 5), given)
            wide[..., : shape[-1]] = x
            views.append(wide[..., : shape[-1]])
        for view in views:
            found, wanted = np.full(shape, 77, made), np.full(shape, 78, made)
            CompiledKernel.chain(bend, 0, [view], found)()
            wide_nothing = np.broadcast_to(nothing, shape)
            CompiledKernel.chain([*bend, *other], 1, [view, wide_nothing], wanted)()
            np.testing.assert_array_equal(found, wanted)
    if given == made:
        taken, wanted = numbers.copy(), np.empty(256, made)
        CompiledKernel.chain(bend, 0, [numbers.copy()], wanted)()
        CompiledKernel.chain(bend, 0, [taken], taken)()
        np.testing.assert_array_equal(taken, wanted)


def test_a_chain_makes_one_pass_in_the_place_of_its_operand() -> None:
    shape = (2, 6, 40, 40)

    def build() -> ap.Graph:
        graph = ap.Graph()
        x, z = graph.input("x", shape), graph.input("z", (6, 1, 1))
        parameters = [
            graph.constant(f"p{at}", (6,), F32, np.abs(random(6, seed=at)) + 0.5) for at in range(4)
        ]
        (a,) = graph.node("BatchNormalization", [x, *parameters], [("a", shape, F32)], version=15,
                          in_place=[(0, 0)])  # fmt: skip
        (b,) = graph.node("Mul", [a, z], [("b", shape, F32)], version=14, in_place=[(0, 0)])
        (c,) = graph.node("Sigmoid", [b], [("c", shape, F32)], version=13, in_place=[(0, 0)])
        (d,) = graph.node("Mul", [b, c], [("d", shape, F32)], version=14, in_place=[(0, 0), (1, 0)])
        graph.output(d)
        return graph

    list(both(build, {"x": random(*shape), "z": random(6, 1, 1)}))


@pytest.mark.parametrize("op", ["Softmax", "LayerNormalization", "RMSNormalization"])
def test_functions_of_rows_agree(op: str) -> None:
    shape = (2, 3, 50, 33)

    def build() -> ap.Graph:
        graph = ap.Graph()
        x = graph.input("x", shape)
        operands = [x]
        if op != "Softmax":
            operands.append(graph.constant("scale", (33,), F32, random(33)))
        if op == "LayerNormalization":
            operands.append(graph.constant("shift", (33,), F32, random(33)))
        (y,) = graph.node(op, operands, [("y", shape, F32)], version=23, in_place=[(0, 0)])
        graph.output(y)
        return graph

    list(both(build, {"x": random(*shape)}))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("include", [0, 1])
def test_pools_agree(op: str, include: int) -> None:
    def build() -> ap.Graph:
        graph = ap.Graph()
        x = graph.input("x", (1, 4, 23, 17))
        attributes = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
        if op == "AveragePool":
            attributes["count_include_pad"] = include
        (y,) = graph.node(op, [x], [("y", (1, 4, 12, 17), F32)], version=19, attributes=attributes)
        graph.output(y)
        return graph

    list(both(build, {"x": random(1, 4, 23, 17)}))


def test_operands_that_share_memory_with_the_output_are_refused() -> None:
    memory = np.zeros(200, np.float32)
    with pytest.raises(ap.errors.InvalidOperand, match="share memory"):
        CompiledKernel.chain([("load", 0, (0, 0.0, 0.0))], 0, [memory[:100]], memory[50:150])
    CompiledKernel.chain([("load", 0, (0, 0.0, 0.0))], 0, [memory[:100]], memory[:100])()
    one = WindowSide(1, 1, 1, 1, 1, 0)
    image = memory[:16].reshape(1, 1, 1, 16)
    side = WindowSide(16, 16, 1, 1, 1, 0)
    with pytest.raises(ap.errors.InvalidOperand, match="share memory"):
        CompiledKernel.pool(image, memory[16:32].reshape(1, 1, 1, 16), memory[30:60], one, side)


def test_planes_over_those_that_are_read_later_are_refused() -> None:
    side = WindowSide(8, 8, 3, 1, 1, 1)
    weights = random(4, 9)
    scratch = np.empty(CompiledKernel.depthwise_scratch(side, side), np.float32)
    memory = np.zeros(5 * 64, np.float32)
    image, behind = (memory[at : at + 256].reshape(1, 4, 8, 8) for at in (0, 1))
    with pytest.raises(ap.errors.InvalidOperand, match="share memory"):
        CompiledKernel.depthwise(image, weights, behind, scratch, side, side)
    some = memory.reshape(5, 8, 8)
    with pytest.raises(ap.errors.InvalidOperand, match="share memory"):
        CompiledKernel.depthwise(some[None, ::2], weights[:3], some[None, :3], scratch, side, side)


def test_operands_of_other_sizes_and_types_are_refused() -> None:
    side, one = WindowSide(16, 16, 1, 1, 1, 0), WindowSide(1, 1, 1, 1, 1, 0)
    image, output = np.zeros((1, 1, 1, 16), np.float32), np.zeros((1, 1, 1, 15), np.float32)
    with pytest.raises(ap.errors.InvalidOperand, match="15 elements where 16"):
        CompiledKernel.pool(image, output, np.zeros(16, np.float32), one, side)()
    with pytest.raises(BufferError):
        CompiledKernel.softmax(None, np.zeros((2, 3)))
    constant = np.zeros((2, 3), np.float32)
    constant.flags.writeable = False
    with pytest.raises(ap.errors.InvalidOperand, match="cannot be written"):
        CompiledKernel.softmax(None, constant)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("length", [1, 7, 256, 700])
def test_softmax_of_bytes_adds_powers_in_order(dtype: type, length: int) -> None:
    limits = np.iinfo(dtype)
    x = (
        np.random.default_rng(length)
        .integers(limits.min, limits.max + 1, (5, length))
        .astype(dtype)
    )
    table = np.exp((np.arange(256) - 255) * 0.02).astype(np.float32)
    factor, zero = np.float32(255), np.float32(limits.min)
    powers = table[255 + x.astype(int) - x.max(1, keepdims=True)]
    sums = np.add.accumulate(powers, axis=1)[:, -1:]
    wanted = (np.rint(powers * factor / sums) + zero).astype(dtype)
    made = x.copy()  # The output may be the memory of the source.
    for source, output in ((x, np.empty_like(x)), (made, made)):
        kernel = CompiledKernel.table_softmax(
            source, length, table, float(factor), float(zero), output
        )
        kernel()
        np.testing.assert_array_equal(output, wanted)


def test_softmax_of_bytes_refuses_operands_of_other_sizes() -> None:
    x, table = np.zeros(12, np.uint8), np.ones(256, np.float32)
    with pytest.raises(ap.errors.InvalidOperand, match="powers"):
        CompiledKernel.table_softmax(x, 4, table[1:], 1.0, 0.0, np.empty_like(x))()
    for length in (0, 5):
        with pytest.raises(ap.errors.InvalidOperand):
            CompiledKernel.table_softmax(x, length, table, 1.0, 0.0, np.empty_like(x))()
    with pytest.raises(ap.errors.InvalidOperand, match="share memory"):
        CompiledKernel.table_softmax(x[:8], 4, table, 1.0, 0.0, x[4:])
    with pytest.raises(ap.errors.InvalidOperand, match="apart"):
        CompiledKernel.table_softmax(x[::2], 3, table, 1.0, 0.0, np.empty(6, np.uint8))


def test_a_product_and_a_sum_are_rounded_once_where_processors_can() -> None:
    x = np.full(5, 255, np.uint8)
    factor, shift = np.float32(1 / 3), np.float32(-85)
    made = np.empty(5, np.float32)
    steps = [("load", 0, (0, 0.0, 0.0)), ("mul_add", 1, (0, float(factor), float(shift)))]
    CompiledKernel.chain(steps, 1, [x], made)()
    once = np.float32(255.0 * float(factor) + float(shift))
    twice = np.float32(255) * factor + shift
    assert once != twice
    assert set(made) in ({once}, {twice})


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "fan_in", "fan_out", "room", "way", "of_bytes"),
    [
        (56, 3, 1, 64, 64, 3000, (2600, 5694976), (2560, 6999552)),
        (56, 3, 1, 64, 64, 1 << 16, (22320, 4436992), (55728, 2382208)),
        (14, 1, 1, 1024, 256, 3000, (2928, 2522368), (4480, 2236416)),
        (28, 3, 2, 128, 130, 1 << 16, (18432, 1198332), (57648, 684936)),
    ],
)
def test_plans_ask_for_the_same_scratch_memory_on_every_processor(
    size: int,
    kernel: int,
    stride: int,
    fan_in: int,
    fan_out: int,
    room: int,
    way: tuple[int, int],
    of_bytes: tuple[int, int],
) -> None:
    before = kernel // 2
    out = (size + 2 * before - kernel) // stride + 1
    side = WindowSide(size, out, kernel, stride, 1, before)
    found = CompiledKernel.conv_way(side, side, fan_in, fan_out, room)
    assert (found.elements, found.cycles) == way
    found = quantized_way(side, side, fan_in, fan_out, room)
    assert (found.elements, found.cycles) == of_bytes
