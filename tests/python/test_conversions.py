"""Conversions of quantized models: nodes that move elements move the stored integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

import arenaplan as ap
from quantized_models import Model, integers, scale

RNG = np.random.default_rng(47)
U8, F32 = np.dtype(np.uint8), np.dtype(np.float32)
SCALES = {
    "s": scale(0.0471),
    "t": scale(0.0319),
    "z": np.uint8(121),
    "y": np.uint8(97),
    "ss": np.full(4, 0.0471, np.float32),
    "zz": np.full(4, 121, np.uint8),
}


def quantize(name: str, result: str, by: str = "s z") -> NodeProto:
    return helper.make_node("QuantizeLinear", [name, *by.split()], [result])


def widen(name: str, result: str, by: str = "s z") -> NodeProto:
    return helper.make_node("DequantizeLinear", [name, *by.split()], [result])


def moved(op: str, inputs: str, result: str = "m", **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), result.split(), **attributes)


def types(graph: ap.Graph, op: str) -> set[str]:
    """Return the types of the elements that nodes of one kind make."""
    made = [node.outputs[0] for node in graph.nodes if node.op == op]
    assert made
    return {graph.values[value].dtype for value in made if value is not None}


def count(graph: ap.Graph, op: str) -> int:
    return sum(node.op == op for node in graph.nodes)


def model_of(
    folder: Path,
    nodes: Sequence[NodeProto],
    outputs: dict[str, np.dtype[Any]],
    inputs: Sequence[str] = ("x",),
    **constants: np.ndarray,
) -> Model:
    """Return a model of images of four channels; names of small integers begin with ``q``."""
    shape = (1, 4, 6, 6)
    given = {
        name: integers(shape, U8, RNG) if name[0] == "q" else RNG.normal(size=shape).astype(F32)
        for name in inputs
    }
    return Model(folder, nodes, given, outputs, SCALES | constants)


def check(model: Model) -> ap.Graph:
    """Compare results, with and without moved conversions, and return the graph."""
    expected = model.expected()
    for options in ({}, {"optimize": "none"}, {"target": "nodes"}):
        for one, other in zip(model.found(**options), expected, strict=True):
            np.testing.assert_array_equal(one, other)
    return ap.load(model.path)


MOVES: dict[str, tuple[Callable[[], NodeProto], dict[str, np.ndarray]]] = {
    "Reshape": (lambda: moved("Reshape", "w shape"), {"shape": np.array([4, 36])}),
    "Transpose": (lambda: moved("Transpose", "w", perm=[0, 2, 3, 1]), {}),
    "Squeeze": (lambda: moved("Squeeze", "w axes"), {"axes": np.array([0])}),
    "Unsqueeze": (lambda: moved("Unsqueeze", "w axes"), {"axes": np.array([0])}),
    "Flatten": (lambda: moved("Flatten", "w"), {}),
    "Identity": (lambda: moved("Identity", "w"), {}),
    "Slice": (
        lambda: moved("Slice", "w low high"),
        {"low": np.array([0, 1, 2]), "high": np.array([1, 3, 6])},
    ),
    "DepthToSpace": (lambda: moved("DepthToSpace", "w", blocksize=2), {}),
    "SpaceToDepth": (lambda: moved("SpaceToDepth", "w", blocksize=2), {}),
    "Expand": (lambda: moved("Expand", "w shape"), {"shape": np.array([3, 4, 6, 6])}),
    "Tile": (lambda: moved("Tile", "w repeats"), {"repeats": np.array([1, 2, 1, 1])}),
    "Gather": (lambda: moved("Gather", "w at", axis=1), {"at": np.array([3, 0, 0])}),
    "MaxPool": (
        lambda: moved("MaxPool", "w", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        {},
    ),
}


PARTS = dict.fromkeys(("DepthToSpace", "SpaceToDepth"), "Transpose")
"""Operators that move elements by others."""


@pytest.mark.parametrize("op", MOVES)
@pytest.mark.parametrize("by", ["s z", "t y"])
def test_a_node_between_conversions_moves_integers(tmp_path: Path, op: str, by: str) -> None:
    make, constants = MOVES[op]
    nodes = [quantize("x", "q"), widen("q", "w"), make(), quantize("m", "r", by)]
    graph = check(model_of(tmp_path, nodes, {"r": U8}, **constants))
    assert types(graph, PARTS.get(op, op)) == {"uint8"}
    # With equal scales, the conversions around the node undo each other.
    assert count(graph, "DequantizeLinear") == (by != "s z")


@pytest.mark.parametrize("op", MOVES)
def test_a_node_whose_result_is_used_as_real_numbers_moves_integers(
    tmp_path: Path, op: str
) -> None:
    make, constants = MOVES[op]
    nodes = [quantize("x", "q"), widen("q", "w"), make(), moved("Sqrt", "a", "b")]
    nodes.insert(3, moved("Abs", "m", "a"))
    graph = check(model_of(tmp_path, nodes, {"b": F32}, **constants))
    assert types(graph, PARTS.get(op, op)) == {"uint8"}
    assert count(graph, "DequantizeLinear") == 1


@pytest.mark.parametrize("scales", ["s z", "t y"])
def test_a_concatenation_joins_integers(tmp_path: Path, scales: str) -> None:
    nodes = [
        *(widen("q", "w"), widen("q2", "w2", scales), moved("Relu", "w2", "v")),
        *(moved("Concat", "w v", "c", axis=1), moved("Concat", "c w2 c2", axis=1)),
        *(moved("Transpose", "v", "c2", perm=[0, 1, 3, 2]), quantize("m", "r", "t y")),
    ]
    nodes[4], nodes[5] = nodes[5], nodes[4]
    graph = check(model_of(tmp_path, nodes, {"r": U8}, ("q", "q2")))
    assert types(graph, "Concat") == types(graph, "Transpose") == {"uint8"}


def test_a_concatenation_of_equal_scales_stays_narrow(tmp_path: Path) -> None:
    nodes = [widen("q", "w"), widen("q2", "v"), moved("Concat", "w v", axis=1)]
    nodes += [moved("Exp", "m", "e")]
    graph = check(model_of(tmp_path, nodes, {"e": F32}, ("q", "q2")))
    assert types(graph, "Concat") == {"uint8"}
    wide = [widen("q", "w"), widen("q2", "v", "t y"), *nodes[2:]]
    assert types(check(model_of(tmp_path, wide, {"e": F32}, ("q", "q2"))), "Concat") == {"float32"}


def test_pieces_of_a_split_are_widened_one_by_one(tmp_path: Path) -> None:
    nodes = [widen("q", "w"), moved("Split", "w", "a b", axis=1, num_outputs=2)]
    nodes += [moved("Exp", "a", "e"), quantize("b", "r")]
    graph = check(model_of(tmp_path, nodes, {"e": F32, "r": U8}, ("q",)))
    assert types(graph, "Split") == {"uint8"}
    assert count(graph, "QuantizeLinear") == 0


def test_the_maximum_of_a_pool_is_that_of_integers_where_the_type_is_known(tmp_path: Path) -> None:
    """Before version 12, MaxPool knows no integers; and no 16 bits in any version."""
    nodes = [widen("q", "w"), moved("MaxPool", "w", kernel_shape=[2, 2]), quantize("m", "r")]
    model = model_of(tmp_path, nodes, {"r": U8}, ("q",))
    assert types(check(model), "MaxPool") == {"uint8"}
    old = onnx.load(model.path)
    old.opset_import[0].version = 10
    model.path.write_bytes(old.SerializeToString())
    assert types(ap.load(model.path), "MaxPool") == {"float32"}


def test_what_is_read_elsewhere_stays(tmp_path: Path) -> None:
    """A result that leaves the graph, or has a second reader, is there as before."""
    flip = moved("Transpose", "x", perm=[0, 1, 3, 2])
    second = [flip, quantize("m", "r"), moved("Exp", "m", "e")]
    graph = check(model_of(tmp_path, second, {"r": U8, "e": F32}))
    assert types(graph, "Transpose") == {"float32"}
    graph = check(model_of(tmp_path, second[:2], {"r": U8, "m": F32}))
    assert types(graph, "Transpose") == {"float32"}
    named = [widen("q", "w"), quantize("w", "r"), moved("Exp", "w", "e")]
    graph = check(model_of(tmp_path, named, {"r": U8, "w": F32, "e": F32}, ("q",)))
    assert count(graph, "DequantizeLinear") == 1
    assert {graph.values[value].name for value in graph.outputs} == {"r", "w", "e"}


def test_scales_of_channels_stay_with_their_channels(tmp_path: Path) -> None:
    nodes = [
        *(helper.make_node("QuantizeLinear", ["x", "ss", "zz"], ["q"], axis=1),),
        *(helper.make_node("DequantizeLinear", ["q", "ss", "zz"], ["w"], axis=1),),
        *(moved("Transpose", "w", perm=[0, 2, 3, 1]), quantize("m", "r")),
    ]
    graph = check(model_of(tmp_path, nodes, {"r": U8}))
    assert count(graph, "DequantizeLinear") == 1


def test_what_a_branch_reads_keeps_its_name(tmp_path: Path) -> None:
    kind = TensorProto.FLOAT
    bodies = {
        name: helper.make_graph(
            [helper.make_node(op, [value], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, kind, (1, 4, 6, 6))],
        )
        for name, op, value in (("exp", "Exp", "v"), ("neg", "Neg", "w"))
    }
    choose = helper.make_node(
        "If", ["is_first"], ["c"], then_branch=bodies["exp"], else_branch=bodies["neg"]
    )
    nodes = [widen("q", "w"), quantize("w", "r"), widen("r", "v"), choose]
    model = model_of(tmp_path, nodes, {"c": F32}, ("q",), is_first=np.array(True))
    expected = model.expected()
    with ap.Executor(ap.load(model.path)) as executor:
        np.testing.assert_array_equal(executor.run(model.inputs)["c"], expected[0])


@pytest.mark.parametrize("number", [0.0, -0.5, 1e-30, np.inf, np.nan])
def test_unusual_scales_are_left_alone(tmp_path: Path, number: float) -> None:
    nodes = [widen("q", "w", "u z"), moved("MaxPool", "w", kernel_shape=[2, 2])]
    nodes += [quantize("m", "r", "u z")]
    graph = ap.load(model_of(tmp_path, nodes, {"r": U8}, ("q",), u=scale(number)).path)
    assert types(graph, "MaxPool") == {"float32"}


@pytest.mark.parametrize("seed", range(40))
def test_random_models_compute_the_same_bits(seed: int, tmp_path: Path) -> None:
    """Moves and functions of one operand, joined and quantized at random."""
    draw = np.random.default_rng(seed)
    nodes, names, wide = [], ["q", "q2"], []
    for at in range(int(draw.integers(4, 14))):
        source = str(draw.choice(names + wide))
        narrow = source in names
        by = str(draw.choice(["s z", "t y"]))
        if narrow:
            nodes.append(widen(source, f"w{at}", by))
            wide.append(f"w{at}")
        elif draw.random() < 0.4:
            nodes.append(quantize(source, f"q_{at}", by))
            names.append(f"q_{at}")
        elif draw.random() < 0.3 and len(wide) > 1:
            other = str(draw.choice(wide))
            nodes.append(moved("Concat", f"{source} {other}", f"c{at}", axis=1))
            nodes.append(moved("Slice", f"c{at} low high", f"w{at}"))
            wide.append(f"w{at}")
        else:
            op, attributes = [
                ("Transpose", {"perm": [0, 1, 3, 2]}),
                ("Relu", {}),
                ("MaxPool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
                ("Identity", {}),
            ][int(draw.integers(4))]
            nodes.append(moved(op, source, f"w{at}", **attributes))
            wide.append(f"w{at}")
    used = {name for one in nodes for name in one.input}
    ends = {name: U8 if name in names else F32 for name in names[2:] + wide if name not in used}
    corner = {"low": np.array([0, 2, 0, 0]), "high": np.array([1, 6, 6, 6])}
    model = model_of(tmp_path, nodes, ends, ("q", "q2"), **corner)
    check(model)
