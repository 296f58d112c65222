"""Products of small integers in real numbers, and wide values that are made twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import arenaplan as ap
from quantized_models import RNG, Model, integers, scale


def node(op: str, inputs: str, out: str, **attributes: Any) -> Any:
    """Return a node whose operands and results are given by names with blanks between."""
    return helper.make_node(op, inputs.split(), out.split(), **attributes)


def blocks(folder: Path, count: int = 2, channels: int = 96) -> Model:
    """Convolutions to many channels and back, whose operands are quantized by their ranges."""
    constants: dict[str, np.ndarray] = {"wz": np.uint8(119)}
    nodes, value = [], "x"
    for at in range(2 * count):
        wide = at % 2 == 0
        sizes = (channels, 4) if wide else (4, channels)
        constants[f"w{at}"] = integers((*sizes, 1, 1) if wide else (*sizes, 3, 3), np.uint8)
        constants[f"s{at}"] = scale(0.01)
        pads = [0] * 4 if wide else [1] * 4
        nodes += [
            node("DynamicQuantizeLinear", value, out=f"q{at} qs{at} qz{at}"),
            node("ConvInteger", f"q{at} w{at} qz{at} wz", out=f"i{at}", pads=pads),
            node("Cast", f"i{at}", out=f"c{at}", to=TensorProto.FLOAT),
            node("Mul", f"qs{at} s{at}", out=f"f{at}"),
            node("Mul", f"c{at} f{at}", out=f"m{at}"),
            node("Relu", f"m{at}", out=f"y{at}"),
        ]
        value = f"y{at}"
    inputs = {"x": RNG.normal(size=(1, 4, 20, 20)).astype(np.float32)}
    return Model(folder, nodes, inputs, {value: np.dtype(np.float32)}, constants)


@pytest.mark.parametrize("target", ["ideal", "numpy"])
def test_a_wide_value_is_made_twice_instead_of_stored(tmp_path: Path, target: str) -> None:
    model = blocks(tmp_path, count=1)
    graph = ap.load(model.path)
    plan = ap.plan(graph, target=target, max_slowdown=100)
    wide = 96 * 20 * 20 * 4
    assert graph.warnings == []
    assert "Conv" in {graph.nodes[at].op for at in plan.repeated}
    plan.check(graph)
    once = ap.plan(graph, target=target, optimize="views,in-place,elision", max_slowdown=100)
    assert once.arena_bytes > wide
    assert plan.arena_bytes < wide


@pytest.mark.parametrize("slowdown", [1, 1.1, 1.3, 100])
def test_results_are_those_of_onnx_runtime_however_much_is_made_twice(
    tmp_path: Path, slowdown: float
) -> None:
    model = blocks(tmp_path)
    graph = ap.load(model.path)
    plan = ap.plan(graph, max_slowdown=slowdown)
    with ap.Executor(graph, plan) as executor:
        (found,) = executor.run(model.inputs, verify=True).values()
    np.testing.assert_array_equal(found, model.expected()[0])


def test_more_time_never_needs_more_bytes(tmp_path: Path) -> None:
    graph = ap.load(blocks(tmp_path, count=3).path)
    plans = [ap.plan(graph, max_slowdown=slowdown) for slowdown in (1, 1.1, 1.5, 100)]
    sizes = [plan.arena_bytes for plan in plans]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0]


def product(folder: Path, rows: int, weight: int, reader: str) -> Model:
    """A product of integers whose sums an operator reads as real numbers."""
    constants = {"w": np.full((rows, 8), weight, np.uint8), "f": scale(0.5)}
    nodes = [
        node("MatMulInteger", "x w", out="i"),
        node("Cast", "i", out="c", to=TensorProto.FLOAT),
        node(reader, "c f", out="y"),
    ]
    inputs = {"x": integers((3, rows), np.uint8)}
    return Model(folder, nodes, inputs, {"y": np.dtype(np.float32)}, constants)


@pytest.mark.parametrize(
    ("rows", "weight", "reader", "kind"),
    [
        (257, 255, "Mul", "MatMul"),  # Sums up to 16,711,425, below 2**24.
        (259, 255, "Mul", "MatMulInteger"),
        (600, 40, "Mul", "MatMul"),
        (64, 255, "Add", "MatMulInteger"),
    ],
)
def test_sums_are_real_numbers_only_where_these_are_exact(
    tmp_path: Path, rows: int, weight: int, reader: str, kind: str
) -> None:
    model = product(tmp_path, rows, weight, reader)
    graph = ap.load(model.path)
    assert kind in {each.op for each in graph.nodes}
    np.testing.assert_array_equal(model.found()[0], model.expected()[0])


def test_new_names_are_not_those_of_the_model(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", out="one"),
        node("Neg", "x", out="one_extremes"),
        node("DynamicQuantizeLinear", "one", out="y s z"),
        helper.make_node("Relu", ["one_extremes"], ["one_range"]),
    ]
    outputs = {"y": np.dtype(np.uint8), "s": np.dtype(np.float32), "z": np.dtype(np.uint8)}
    outputs["one_range"] = np.dtype(np.float32)
    model = Model(tmp_path, nodes, {"x": RNG.normal(size=(5, 6)).astype(np.float32)}, outputs, {})
    for found, expected in zip(model.found(), model.expected(), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 3, 4, 5), (1, 2, 2, 3, 4)])
def test_ranges_of_any_rank(tmp_path: Path, shape: tuple[int, ...]) -> None:
    x = np.asarray(RNG.normal(size=shape), np.float32)
    nodes = [node("Neg", "x", out="n"), node("DynamicQuantizeLinear", "n", out="y s z")]
    outputs = {"y": np.dtype(np.uint8), "s": np.dtype(np.float32), "z": np.dtype(np.uint8)}
    model = Model(tmp_path, nodes, {"x": x}, outputs, {})
    for found, expected in zip(model.found(), model.expected(), strict=True):
        np.testing.assert_array_equal(found, expected)
