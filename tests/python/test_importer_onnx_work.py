"""The work of nodes of ONNX, by numbers computed by hand, and which of them may run again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import arenaplan as ap

MICROSOFT = "com.microsoft"
TYPES = {"i": TensorProto.INT64, "u": TensorProto.UINT8, "b": TensorProto.BOOL}


def load(
    nodes: list[Any],
    inputs: dict[str, tuple[int, ...]],
    outputs: list[str],
    constants: dict[str, np.ndarray] | None = None,
) -> ap.Graph:
    """Read a model of float32; names of int64, uint8 and bool begin with ``i``, ``u`` and ``b``."""
    graph = helper.make_graph(
        nodes,
        "work",
        [
            helper.make_tensor_value_info(name, TYPES.get(name[0], TensorProto.FLOAT), shape)
            for name, shape in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return ap.load(helper.make_model(graph, opset_imports=opsets).SerializeToString())


def node(kind: str, inputs: str, outputs: str = "y", domain: str = "", **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), outputs.split(), domain=domain, **attributes)


@pytest.mark.parametrize(
    ("proto", "inputs", "cost"),
    [
        # Bytes: 8 units for each of 3 arrays of 4 x 6 elements of 4 bytes.
        (node("Add", "x z"), {"x": (4, 6), "z": (4, 6)}, 8 * 3 * 96),
        # An operand that is read twice is moved once.
        (node("Mul", "x x"), {"x": (4, 6)}, 8 * 2 * 96),
        (node("Softmax", "x"), {"x": (4, 6)}, 8 * 2 * 96),
        (node("Less", "x z"), {"x": (4, 6), "z": (4, 6)}, 8 * (2 * 96 + 24)),
        # Products: one multiplication and one addition for each element and each summand.
        (node("MatMul", "x z"), {"x": (3, 256, 512), "z": (512, 128)}, 2 * 3 * 256 * 128 * 512),
        (node("MatMul", "x z"), {"x": (512,), "z": (512,)}, 8 * (2 * 2048 + 4)),
        (node("Gemm", "x z c", transA=1), {"x": (512, 256), "z": (512, 128), "c": (128,)},
         2 * 256 * 128 * 512),
        (node("FusedMatMul", "x z", domain=MICROSOFT, transA=1),
         {"x": (512, 256), "z": (512, 128)}, 2 * 256 * 128 * 512),
        # Convolutions: one filter per element of the result, of which a group sees a part.
        (node("Conv", "x w"), {"x": (2, 64, 30, 30), "w": (32, 64, 3, 3)},
         2 * (2 * 32 * 28 * 28) * (64 * 9)),
        (node("Conv", "x w", group=4), {"x": (2, 64, 30, 30), "w": (32, 16, 3, 3)},
         2 * (2 * 32 * 28 * 28) * (16 * 9)),
        # A depthwise convolution has 18 operations per element, and moves two elements of 4 bytes.
        (node("Conv", "x w", group=8, pads=[1, 1, 1, 1]), {"x": (1, 8, 16, 16), "w": (8, 1, 3, 3)},
         8 * 4 * (2 * 2048 + 72)),
        (node("ConvTranspose", "x w"), {"x": (2, 64, 28, 28), "w": (64, 32, 3, 3)},
         2 * (2 * 64 * 28 * 28) * (32 * 9)),
        (node("ConvGrad", "d x w", "y z"),
         {"d": (2, 32, 28, 28), "x": (2, 64, 30, 30), "w": (32, 64, 3, 3)},
         2 * 2 * (2 * 32 * 28 * 28) * (64 * 9)),
        # Without the gradient of the image, half as many.
        (helper.make_node("ConvGrad", ["d", "x", "w"], ["", "y"]),
         {"d": (2, 32, 28, 28), "x": (2, 64, 30, 30), "w": (32, 64, 3, 3)},
         2 * (2 * 32 * 28 * 28) * (64 * 9)),
        # 5 steps of 7 rows in 2 directions, 4 gates of 32 units, which see 64 elements and 32.
        (node("LSTM", "x w r", direction="bidirectional", hidden_size=32),
         {"x": (5, 7, 64), "w": (2, 128, 64), "r": (2, 128, 32)},
         2 * 5 * 7 * 2 * 128 * (64 + 32)),
        (node("LSTM", "x w r", hidden_size=32),
         {"x": (50, 70, 64), "w": (1, 128, 64), "r": (1, 128, 32)},
         2 * 50 * 70 * 128 * (64 + 32)),
    ],
)  # fmt: skip
def test_work_is_the_larger_one_of_operations_and_bytes(
    proto: Any, inputs: dict[str, tuple[int, ...]], cost: int
) -> None:
    graph = load([proto], inputs, [name for name in proto.output if name])
    assert [made.cost for made in graph.nodes] == [cost]


def test_attention_counts_scores_and_sums() -> None:
    inputs = {"q": (2, 8, 100, 32), "k": (2, 8, 300, 32), "v": (2, 8, 300, 16)}
    proto = node("Attention", "q k v")
    graph = helper.make_graph(
        [proto],
        "attention",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 8, 100, 16))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    (made,) = ap.load(model.SerializeToString()).nodes
    assert made.cost == 2 * 2 * 8 * 100 * 300 * (32 + 16)


def test_a_loop_costs_its_rounds() -> None:
    body = helper.make_graph(
        [node("MatMul", "state w", "next"), node("Identity", "b", "again")],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("b", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, (64, 64)),
        ],
        [helper.make_empty_tensor_value_info(name) for name in ("again", "next")],
    )
    loop = node("Loop", "trips true x", "y", body=body)
    constants = {"trips": np.array(10), "true": np.array(True)}
    (made,) = load([loop], {"x": (64, 64), "w": (64, 64)}, ["y"], constants).nodes
    assert made.cost == 10 * 2 * 64**3
    assert made.effects.pure


@pytest.mark.parametrize(
    ("proto", "is_pure"),
    [
        (node("Relu", "x"), True),
        (node("RandomNormalLike", "x"), False),
        (node("Dropout", "x"), True),
        (node("Dropout", "x ratio b"), False),
        (node("Gelu", "x", domain=MICROSOFT), True),
        (node("InPlaceAccumulator", "x x", domain=MICROSOFT), False),
    ],
)
def test_nodes_that_draw_numbers_or_overwrite_run_once(proto: Any, is_pure: bool) -> None:
    inputs = {"x": (4, 6), "b": ()}
    graph = load([proto], inputs, ["y"], {"ratio": np.float32(0.5)})
    assert [made.effects.pure for made in graph.nodes] == [is_pure]


def layers(count: int, width: int, rows: int) -> ap.Graph:
    """Return layers ``relu(x w)``, the gradients of all weights, as ONNX Runtime writes them."""
    nodes, results, read = [], [], "x0"
    for at in range(count):
        nodes += [
            node("MatMul", f"{read} w{at}", f"h{at}"),
            node("Relu", f"h{at}", f"x{at + 1}"),
        ]
        read = f"x{at + 1}"
    gradient = read
    for at in reversed(range(count)):
        nodes += [
            node("ReluGrad", f"{gradient} x{at + 1}", f"dh{at}", MICROSOFT),
            node("FusedMatMul", f"x{at} dh{at}", f"dw{at}", MICROSOFT, transA=1),
            node("FusedMatMul", f"dh{at} w{at}", f"dx{at}", MICROSOFT, transB=1),
        ]
        gradient, results = f"dx{at}", [*results, f"dw{at}"]
    shapes = {"x0": (rows, width), **{f"w{at}": (width, width) for at in range(count)}}
    return load(nodes, shapes, results)


def test_a_training_graph_of_onnx_is_recomputed() -> None:
    graph = layers(12, 32, 1024)
    options = {"inputs": "caller", "outputs": "caller", "target": "nodes"}
    plain = ap.plan(graph, **options)
    plan = ap.plan(graph, recompute=plain.arena_bytes * 6 // 10, **options)
    plan.check(graph)
    assert plan.arena_bytes <= plain.arena_bytes * 6 // 10
    assert plan.schedule is not None
    work = sum(made.cost for made in graph.nodes)
    again = sum(graph.nodes[at].cost for at in plan.schedule) - work
    assert plan.extra_cost == pytest.approx(again / work, abs=1e-6)
    assert 0 < plan.extra_bound <= plan.extra_cost < 0.2
