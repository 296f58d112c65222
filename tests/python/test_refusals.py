"""Models that ONNX Runtime runs run here, and others are refused with an error that says why."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

import arenaplan as ap
from arenaplan.base import errors
from arenaplan.cli import main
from arenaplan.formats.onnx import load_onnx
from light_models import onnx_runtime
from models import model, node
from raising import raises
from single_node import check_node, node_graph

INT64 = TensorProto.INT64
PLANS: Sequence[dict[str, Any]] = (
    {},
    {"optimize": "none"},
    {"workspace": "auto"},
    {"optimize": "views,in-place"},
)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def int64(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def run(proto: ModelProto, feed: Mapping[str, np.ndarray], **options: Any) -> list[np.ndarray]:
    graph = load_onnx(proto)
    with ap.Executor(graph, ap.plan(graph, **options, target="ideal")) as executor:
        return list(executor.run(feed, verify=True).values())


MOST_LINES = 1_000_000


def counted(work: Callable[[], list[np.ndarray]]) -> list[np.ndarray]:
    """Do work, and raise once it has run more lines of Python than a loop over elements may."""
    lines = 0

    def trace(frame: object, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        assert lines < MOST_LINES, "one line of Python per element"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return work()
    finally:
        sys.settrace(before)


def check(proto: ModelProto, feed: Mapping[str, np.ndarray]) -> None:
    """Compare several plans of a model with ONNX Runtime."""
    wanted = onnx_runtime(proto, plain=True).run(None, dict(feed))
    for options in PLANS:
        for found, want in zip(run(proto, feed, **options), wanted, strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


# -- wrong results ----------------------------------------------------------------------


@pytest.mark.parametrize("index", [2, -1])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_w1_one_constant_index_into_a_list_reads_it_on_each_run(
    index: int, shape: tuple[int, ...]
) -> None:
    proto = model(
        [node("Neg", "x", "n"), node("Gather", "n i", "y")],
        {"x": [5]},
        weights={"i": np.full(shape, index, np.int64)},
    )
    graph = load_onnx(proto)
    with ap.Executor(graph, ap.plan(graph, optimize="none", target="ideal")) as executor:
        for x in (np.arange(5, dtype=np.float32), floats(5)):
            np.testing.assert_array_equal(
                executor.run({"x": x})["y"], np.take(-x, index).reshape(shape)
            )
    check(proto, {"x": floats(5)})


@pytest.mark.parametrize("amounts", [(1, 0, -1, 0), (-1, 0, 1, 0), (0, 2, 0, -2), (0, 0, 0, 0)])
def test_w2_pads_that_cancel_move_elements(amounts: tuple[int, ...]) -> None:
    nodes = [node("Neg", "x", "n"), node("Pad", "n p", "q"), node("Neg", "q", "y")]
    proto = model(nodes, {"x": [2, 5]}, weights={"p": int64(*amounts)})
    x = floats(2, 5)
    rows, columns = np.indices((2, 5))
    rows, columns = rows - amounts[0], columns - amounts[1]
    inside = (rows >= 0) & (rows < 2) & (columns >= 0) & (columns < 5)
    wanted = np.where(inside, x[rows % 2, columns % 5], 0)
    for options in PLANS:
        (found,) = run(proto, {"x": x}, **options)
        np.testing.assert_array_equal(found, wanted)
    graph = load_onnx(proto)
    assert bool(graph.nodes[1].effects.in_place) == (not any(amounts))


# Operator, shape of the data, shape that is declared, what a run asks for, and attributes.
CONTRADICTIONS: Sequence[tuple[str, list[int], list[int], Sequence[int], dict[str, Any]]] = (
    ("Reshape", [2, 3], [3, 2], (2, 3), {}),
    ("Reshape", [2, 3], [3, 2], (-1, 3), {}),
    ("Squeeze", [1, 3, 1], [1, 3], (0,), {}),
    ("Squeeze", [1, 3, 1], [3, 1], (2,), {}),
    ("Unsqueeze", [3], [1, 3], (1,), {}),
    ("Expand", [1, 3], [2, 3], (4, 3), {}),
    ("Expand", [2, 3], [2, 3], (2, 4), {}),
    ("Tile", [2, 3], [4, 3], (1, 2), {}),
    ("Tile", [2, 3], [2, 3], (2, 1), {}),
    ("ReduceSum", [3, 3], [3], (0, 1), {"keepdims": 0}),
    ("ReduceMax", [3, 3], [1, 3], (1,), {}),
    ("ReduceMax", [3, 3], [3, 1], (0,), {}),
    ("ConstantOfShape", [], [2, 3], (3, 2), {}),
)


@pytest.mark.parametrize("case", CONTRADICTIONS, ids=lambda case: f"{case[0]}-{case[3]}")
@pytest.mark.parametrize("options", PLANS[:3], ids=str)
def test_w3_operands_that_contradict_the_declared_shape_are_refused(
    case: tuple[str, list[int], list[int], Sequence[int], dict[str, Any]], options: dict[str, Any]
) -> None:
    op, given, declared, asked, attributes = case
    generator = op == "ConstantOfShape"
    nodes = [
        node("Relu", "x", "r"),
        node(op, "s" if generator else "r s", "z", **attributes),
        node("Neg", "z", "y"),
    ]
    inputs = {"x": given, "s": ([len(asked)], INT64)}
    proto = model(nodes, inputs, {"y": declared, "r": given}, declared={"z": declared})
    with raises("KernelError", match=op) as caught:
        run(proto, {"x": floats(*given), "s": int64(*asked)}, **options)
    assert isinstance(caught.value.__cause__, errors.ShapeMismatch | errors.InvalidAttribute)


def test_w3_operands_that_agree_are_not_refused() -> None:
    x = floats(2, 3)
    for op, declared, asked, wanted in (
        ("Reshape", [3, 2], (-1, 2), x.reshape(3, 2)),
        ("Reshape", [2, 3], (0, 3), x),
        ("Unsqueeze", [2, 1, 3], (-2,), x[:, None]),
        ("Expand", [2, 2, 3], (2, 1, 3), np.broadcast_to(x, (2, 2, 3))),
        ("Expand", [2, 3], (1,), x),
        ("Tile", [4, 3], (2, 1), np.tile(x, (2, 1))),
        ("ReduceSum", [1, 3], (0,), x.sum(0, keepdims=True)),
    ):
        nodes = [node("Neg", "x", "n"), node(op, "n s", "z"), node("Neg", "z", "y")]
        inputs = {"x": [2, 3], "s": ([len(asked)], INT64)}
        proto = model(nodes, inputs, {"y": declared}, declared={"z": declared})
        for options in PLANS:
            (found,) = run(proto, {"x": x, "s": int64(*asked)}, **options)
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_w3_top_k_of_another_number_than_declared_is_refused(k: int) -> None:
    proto = model(
        [node("TopK", "x k", "y i")],
        {"x": [4], "k": ([1], INT64)},
        {"y": [3], "i": ([3], INT64)},
    )
    with raises("KernelError", match="TopK"):
        run(proto, {"x": floats(4), "k": int64(k)})
    values, _ = run(proto, {"x": floats(4), "k": int64(3)})
    np.testing.assert_array_equal(values, np.sort(floats(4))[:0:-1])


def test_w3_numbers_and_classes_and_pieces_of_another_count_are_refused() -> None:
    distances = {name: ([], INT64) for name in ("a", "b", "c")}
    proto = model([node("Range", "a b c", "y")], distances, {"y": ([3], INT64)})
    feed = {name: np.array(n, np.int64) for name, n in (("a", 1), ("b", 7), ("c", 2))}
    np.testing.assert_array_equal(run(proto, feed)[0], [1, 3, 5])
    for name, number, says in (("b", 8, ""), ("c", 0, ".*distance is 0"), ("a", 9, "")):
        with raises("KernelError", match=f"Range{says}"):
            run(proto, {**feed, name: np.array(number, np.int64)})
    proto = model(
        [node("OneHot", "x d v", "y")],
        {"x": ([2], INT64), "d": ([], INT64)},
        {"y": [2, 3]},
        {"v": np.array([0, 1], np.float32)},
    )
    with raises("KernelError", match="OneHot"):
        run(proto, {"x": int64(0, 1), "d": np.array(4, np.int64)})
    proto = model(
        [node("Split", "x s", "a b", axis=0)],
        {"x": [4], "s": ([2], INT64)},
        {"a": [1], "b": [3]},
    )
    first, _ = run(proto, {"x": floats(4), "s": int64(1, 3)})
    np.testing.assert_array_equal(first, floats(4)[:1])
    with raises("KernelError", match="Split"):
        run(proto, {"x": floats(4), "s": int64(2, 2)})


@pytest.mark.parametrize("op", ["ArgMax", "ReduceMax"])
def test_w3_reductions_built_by_hand_have_the_shape_that_follows(op: str) -> None:
    graph = ap.Graph()
    x = graph.input("x", (3, 4))
    attributes: dict[str, Any] = {"axis": 0} if op == "ArgMax" else {"axes": [0]}
    dtype = "int64" if op == "ArgMax" else "float32"
    (y,) = graph.node(op, [x], [("y", (4, 1), dtype)], attributes=attributes, version=13)
    graph.output(y)
    with pytest.raises(errors.ShapeMismatch, match=op):
        ap.Executor(graph)


@pytest.mark.parametrize("name", ["qk_matmul_output_mode", "is_causal"])
def test_w4_modes_of_attention_that_do_not_exist_are_refused(name: str) -> None:
    heads = [floats(1, 2, 3, 4)] * 3
    graph = node_graph("Attention", heads, heads[:1], {name: 7}, opset=23, constants=[])
    with pytest.raises(errors.InvalidAttribute, match=f"{name} is 7"):
        ap.Executor(graph)


def test_pieces_that_are_left_out_move_those_behind_them() -> None:
    # ONNX Runtime 1.31 ends with a segmentation fault here.
    nodes = [node("Neg", "x", "n"), node("Split", "n s", "_ b _ d", axis=0)]
    nodes += [node("Neg", "b", "y"), node("Neg", "d", "z")]
    declared = {"b": ([2], TensorProto.UINT8), "d": ([4], TensorProto.UINT8)}
    declared = {name: (dims, TensorProto.INT8) for name, (dims, _) in declared.items()}
    proto = model(
        nodes,
        {"x": ([10], TensorProto.INT8)},
        {"y": ([2], TensorProto.INT8), "z": ([4], TensorProto.INT8)},
        {"s": int64(1, 2, 3, 4)},
        declared,
    )
    x = np.arange(10, dtype=np.int8)
    for options in PLANS:
        y, z = run(proto, {"x": x}, **options)
        np.testing.assert_array_equal(y, x[1:3])
        np.testing.assert_array_equal(z, x[6:])


# -- wrong refusals -----------------------------------------------------------------------


POOLS: Sequence[tuple[tuple[int, ...], dict[str, Any]]] = (
    ((1, 2, 7, 7), {"kernel_shape": [16, 16], "strides": [16, 16]}),
    ((1, 2, 7, 7), {"kernel_shape": [1280, 1280], "strides": [1280, 1280]}),
    ((2, 3, 5), {"kernel_shape": [9], "strides": [16], "pads": [2, 1]}),
    ((1, 2, 2, 9), {"kernel_shape": [3, 4], "strides": [7, 3], "pads": [0, 3, 0, 2]}),
    ((1, 1, 4, 4), {"kernel_shape": [3, 3], "strides": [5, 1], "dilations": [3, 1]}),
)


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool", "LpPool"])
@pytest.mark.parametrize("case", POOLS, ids=str)
def test_d0_windows_larger_than_their_image_count_if_rounded_up(
    op: str, case: tuple[tuple[int, ...], dict[str, Any]]
) -> None:
    shape, attributes = case
    attributes = {**attributes, "ceil_mode": 1}
    opset = 18 if op == "LpPool" else 19
    check_node(op, [floats(*shape)], attributes, opset=opset)
    if op == "AveragePool":
        check_node(op, [floats(*shape)], {**attributes, "count_include_pad": 1}, opset=opset)
    if op == "MaxPool":
        check_node(op, [floats(*shape)], attributes, opset=opset, outputs=2)
    names = {"x": list(shape)}
    nodes = [node("Relu", "x", "r"), node(op, "r", "p", **attributes), node("Neg", "p", "y")]
    check(model(nodes, names, opset=opset), {"x": floats(*shape)})


def test_d0_windows_that_fit_nowhere_are_refused() -> None:
    for attributes in ({"strides": [8]}, {"strides": [2], "ceil_mode": 1}, {"ceil_mode": 1}):
        nodes = [node("AveragePool", "x", "y", kernel_shape=[9], **attributes)]
        with pytest.raises(errors.ShapeMismatch, match="does not fit"):
            load_onnx(model(nodes, {"x": [1, 1, 3]}, opset=19))


def test_windows_that_are_almost_all_padding_take_no_time() -> None:
    side = 1 << 30
    for op in ("AveragePool", "MaxPool", "LpPool"):
        nodes = [node(op, "x", "y", kernel_shape=[2 * side - 1], pads=[side, side], strides=[3])]
        proto = model(nodes, {"x": [1, 1, 8]})
        (found,) = counted(lambda proto=proto: run(proto, {"x": np.ones((1, 1, 8), np.float32)}))
        wanted = {"AveragePool": 1.0, "MaxPool": 1.0, "LpPool": 8**0.5}[op]
        np.testing.assert_allclose(found[0, 0, :3], wanted, rtol=1e-6)


@pytest.mark.parametrize(("start", "stop"), [(-5, -9), (-5, -4), (-4, -9), (-3, -9), (-9, 2)])
@pytest.mark.parametrize("step", [-1, -2])
def test_slices_backwards_that_start_before_the_first_element(
    start: int, stop: int, step: int
) -> None:
    bounds = {"s": int64(start), "e": int64(stop), "a": int64(0), "t": int64(step)}
    nodes = [node("Neg", "x", "n"), node("Slice", "n s e a t", "y")]
    check(model(nodes, {"x": [3]}, weights=bounds), {"x": floats(3)})
    # Folded, too.
    weights = {**bounds, "w": floats(3)}
    nodes = [node("Slice", "w s e a t", "c"), node("Concat", "x c", "y", axis=0)]
    check(model(nodes, {"x": [3]}, weights=weights), {"x": floats(3)})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_verified_runs_of_values_that_are_not_aligned_agree(dtype: str) -> None:
    kind = TensorProto.DOUBLE if dtype == "float64" else TensorProto.FLOAT
    rng = np.random.default_rng(3)
    misaligned = 0
    for _ in range(24):
        rows, inner, columns, other = (int(size) for size in rng.integers(1, 40, 4))
        nodes = [
            node("BitwiseNot", "p", "q"),  # Of one byte each: that moves the others.
            node("Neg", "x", "n"),
            node("Gemm", "n b", "g", transA=1, transB=1, alpha=0.5),
            node("Neg", "g", "y"),
            node("BitwiseNot", "q", "z"),
        ]
        inputs = {"p": ([9 * other], TensorProto.UINT8), "x": ([inner, rows], kind)}
        weights = {"b": rng.standard_normal((columns, inner)).astype(dtype)}
        graph = load_onnx(model(nodes, inputs, "y z", weights))
        feed = {
            "p": rng.integers(0, 9, 9 * other).astype(np.uint8),
            "x": rng.standard_normal((inner, rows)).astype(dtype),
        }
        for options in PLANS[:3]:
            plan = ap.plan(graph, alignment=1, **options, target="ideal")
            with ap.Executor(graph, plan) as executor:
                executor.run(feed, verify=True)
            placed = zip(graph.values, plan.placements, strict=True)
            misaligned += any(place and place.offset % 4 for v, place in placed if v.dtype == dtype)
    assert misaligned > 12


# -- errors of their own ------------------------------------------------------------------


@pytest.mark.parametrize("options", PLANS, ids=str)
def test_u1_batches_of_nothing_run(options: dict[str, Any]) -> None:
    weights = {"w": floats(4, 2, 3, 3), "v": floats(4, 2, 2, 2), "b": np.float32(0.5)}
    nodes = [
        node("Conv", "x w", "c", pads=[1] * 4),
        node("Relu", "c", "r"),
        node("Sub", "r b", "s"),
        node("ConvTranspose", "s v", "t", strides=[2, 2], group=2),
        node("Relu", "t", "y"),
        node("ReduceSum", "r a", "z", keepdims=0),
    ]
    proto = model(nodes, {"x": [0, 2, 5, 5]}, "y z", {**weights, "a": int64(0)})
    y, z = run(proto, {"x": np.zeros((0, 2, 5, 5), np.float32)}, **options)
    assert y.shape == (0, 4, 10, 10)
    np.testing.assert_array_equal(z, np.zeros((4, 5, 5)))


def test_u2_segments_of_tensors_are_refused() -> None:
    proto = model([node("Add", "x w", "y")], {"x": [4]}, weights={"w": floats(4)})
    proto.graph.initializer[0].segment.begin = 0
    proto.graph.initializer[0].segment.end = 2
    with pytest.raises(errors.UnsupportedModel, match=r"'w'.*segment"):
        load_onnx(proto)


def test_u3_shapes_without_elements_that_numpy_cannot_have_are_refused(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "r"), node("Neg", "r", "y")], {"x": [0, 1 << 40, 1 << 40]})
    graph = load_onnx(proto)
    for options in PLANS:
        plan = ap.plan(graph, **options, target="ideal")
        with raises("SizeOverflow", match="'x'"):
            ap.Executor(graph, plan)
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    assert main(["run", str(path)]) == 2


def test_u4_shapes_with_more_dimensions_than_numpy_has_are_refused(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")], {"x": [1] * 66})
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    with raises("RankTooLarge", match="66"):
        ap.Executor(load_onnx(proto))
    assert main(["run", str(path)]) == 2


def test_h1_an_lrn_over_more_channels_than_there_are_is_one_over_all() -> None:
    x = np.abs(floats(2, 4, 3))
    nodes = [node("LRN", "x", "y", size=(1 << 31) - 1, alpha=1e9)]
    (found,) = counted(lambda: run(model(nodes, {"x": [2, 4, 3]}), {"x": x}))
    sums = (x * x).sum(1, keepdims=True)
    np.testing.assert_allclose(found, x / (1 + 1e9 / ((1 << 31) - 1) * sums) ** 0.75, rtol=1e-5)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("ScatterElements", "x i x", {"reduction": "average"}),
        ("ScatterND", "x i x", {"reduction": "average"}),
        ("Pad", "x i", {"mode": "mirror"}),
    ],
)
def test_attributes_that_do_not_exist_are_refused_before_a_run(
    op: str, inputs: str, attributes: dict[str, Any]
) -> None:
    shape = {"ScatterElements": [4], "ScatterND": [4, 1], "Pad": [2]}[op]
    nodes = [node(op, inputs, "y", **attributes)]
    graph = load_onnx(model(nodes, {"x": [4], "i": (shape, INT64)}, {"y": [4]}))
    with pytest.raises(errors.InvalidAttribute, match=r"average|mirror"):
        ap.Executor(graph)


def test_updates_without_an_index_each_are_refused() -> None:
    nodes = [node("ScatterElements", ["x", "at", "u"], ["y"], axis=1)]
    proto = model(nodes, {"x": (1, 3, 8), "u": (1, 3, 8)}, {"y": (1, 3, 8)}, {"at": [[[0] * 8]]})
    with pytest.raises(errors.ShapeMismatch, match=r"indices have shape \(1, 1, 8\)"):
        load_onnx(proto)


@pytest.mark.parametrize("layout", [0, 1])
def test_an_initial_state_of_another_size_is_refused(layout: int) -> None:
    """The exporter of torch writes such a cell for an LSTM with projections."""
    batch, hidden, steps, width = 2, 4, 3, 5
    shapes = {
        "x": (batch, steps, width) if layout else (steps, batch, width),
        "w": (1, 4 * hidden, width),
        "r": (1, 4 * hidden, hidden),
        "h": (batch, 1, hidden) if layout else (1, batch, hidden),
        "c": (batch, 1, 2 * hidden) if layout else (1, batch, 2 * hidden),
    }
    names = ["x", "w", "r", "", "", "h", "c"]
    attributes = {"hidden_size": hidden, "layout": layout}
    nodes = [node("LSTM", names, ["", "y"], **attributes)]
    proto = model(nodes, shapes, {"y": shapes["h"]})
    with pytest.raises(errors.InvalidAttribute, match="input 6 has shape"):
        run(proto, {name: floats(*shape) for name, shape in shapes.items()})
