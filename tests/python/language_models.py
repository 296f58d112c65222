"""A small language model in the layout of ONNX Runtime's GenAI builder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
HEADS, KV_HEADS, WIDTH, HIDDEN, WORDS = 4, 2, 16, 64, 200


class _Builder:
    """Nodes and weights of a model, in order."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[TensorProto] = []

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def scale(self, name: str) -> str:
        return self.weight(name, (1 + 0.1 * self.draw.standard_normal(HIDDEN)).astype(np.float32))

    def node(
        self, op: str, inputs: Sequence[str], *outputs: str, domain: str = "", **attributes: Any
    ) -> str:
        name = outputs[0] + "/" + op
        self.nodes.append(helper.make_node(op, inputs, outputs, name, domain=domain, **attributes))
        return outputs[0]

    def product(self, x: str, inner: int, columns: int, output: str) -> str:
        blocks = inner // 32
        packed = self.draw.integers(0, 256, (columns, blocks, 16)).astype(np.uint8)
        scales = (0.02 * self.draw.random(columns * blocks)).astype(np.float32)
        return self.node(
            "MatMulNBits",
            [x, self.weight(output + ".qweight", packed), self.weight(output + ".scales", scales)],
            output,
            domain=MICROSOFT,
            K=inner,
            N=columns,
            bits=4,
            block_size=32,
        )


def decoder(layers: int = 2, seed: int = 0, longest: int = 256, window: int = 0) -> ModelProto:
    """Return a decoder with random weights, whose first layer may see a window alone."""
    build = _Builder(seed)
    node, weight = build.node, build.weight
    mask = ["attention_mask", weight("axis", np.array([1]))]
    known = node("Sub", [node("ReduceSum", mask, "sum", keepdims=0), "axis"], "last")
    node("Cast", [known], "seqlens_k", to=TensorProto.INT32)
    node("Shape", ["attention_mask"], "mask_shape")
    node("Gather", ["mask_shape", weight("one", np.array(1))], "total64")
    node("Cast", ["total64"], "total", to=TensorProto.INT32)
    rows = build.draw.integers(0, 256, (WORDS, HIDDEN // 2)).astype(np.uint8)
    scales = (0.05 * build.draw.random((WORDS, HIDDEN // 32))).astype(np.float32)
    table = [weight("words", rows), "input_ids", weight("words.scales", scales)]
    sizes = {"bits": 4, "block_size": 32, "gather_axis": 0, "quantize_axis": 1}
    residual = node("GatherBlockQuantized", table, "x", domain=MICROSOFT, **sizes)
    angles = np.arange(longest)[:, None] / 1e4 ** (np.arange(WIDTH // 2) * 2 / WIDTH)
    tables = [weight("cos", np.cos(angles).astype(np.float32))]
    tables.append(weight("sin", np.sin(angles).astype(np.float32)))
    y = node("SimplifiedLayerNormalization", ["x", build.scale("n")], "norm", epsilon=1e-5)
    batch, total = "batch_size", "total_sequence_length"
    info = helper.make_tensor_value_info
    inputs = [info("input_ids", TensorProto.INT64, [batch, "sequence_length"])]
    inputs.append(info("attention_mask", TensorProto.INT64, [batch, total]))
    outputs = [info("logits", TensorProto.FLOAT, [batch, "sequence_length", WORDS])]
    for layer in range(layers):
        at = f"layers.{layer}"
        queries = build.product(y, HIDDEN, HEADS * WIDTH, f"{at}.q")
        keys = build.product(y, HIDDEN, KV_HEADS * WIDTH, f"{at}.k")
        values = build.product(y, HIDDEN, KV_HEADS * WIDTH, f"{at}.v")
        past = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        present = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        slides = bool(window) and layer == 0
        lengths = ["past_sliding_length"] * 2 if slides else ["past_sequence_length", total]
        for old, new in zip(past, present, strict=True):
            shapes = [[batch, KV_HEADS, length, WIDTH] for length in lengths]
            inputs.append(info(old, TensorProto.FLOAT, shapes[0]))
            outputs.append(info(new, TensorProto.FLOAT, shapes[1]))
        windows = {"local_window_size": window, "sliding_window_cache": 1} if slides else {}
        attended = node(
            "GroupQueryAttention",
            [queries, keys, values, *past, "seqlens_k", "total", *tables],
            f"{at}.attended",
            *present,
            domain=MICROSOFT,
            num_heads=HEADS,
            kv_num_heads=KV_HEADS,
            do_rotary=1,
            **windows,
        )
        for step, inner in (("attention", None), ("mlp", 2 * HIDDEN)):
            if inner is None:
                made = build.product(attended, HEADS * WIDTH, HIDDEN, f"{at}.o")
            else:
                gate = build.product(y, HIDDEN, inner, f"{at}.gate")
                up = build.product(y, HIDDEN, inner, f"{at}.up")
                act = node("Mul", [gate, node("Sigmoid", [gate], f"{at}.s")], f"{at}.act")
                both = node("Mul", [act, up], f"{at}.both")
                made = build.product(both, inner, HIDDEN, f"{at}.down")
            operands = [residual, made, build.scale(f"{at}.{step}.n")]
            kind = "SkipSimplifiedLayerNormalization"
            total_sum = f"{at}.{step}.sum"
            is_last = layer == layers - 1 and inner is not None
            more = [] if is_last else ["", "", total_sum]
            y = node(kind, operands, f"{at}.{step}.norm", *more, domain=MICROSOFT, epsilon=1e-5)
            residual = total_sum
    build.product(y, HIDDEN, WORDS, "logits")
    graph = helper.make_graph(build.nodes, "main_graph", inputs, outputs, build.weights)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def sizes(cache: int, rows: int = 1) -> dict[str, int]:
    """Return sizes for a cache of a fixed length."""
    return {
        "batch_size": 1,
        "sequence_length": rows,
        "past_sequence_length": cache,
        "total_sequence_length": cache,
    }


def joining_decoder(seed: int = 0) -> ModelProto:
    """Return a decoder that joins caches with new entries, in the layout of Optimum."""
    build = _Builder(seed)
    node, weight = build.node, build.weight

    def matrix(name: str, *shape: int) -> str:
        return weight(name, (0.3 * build.draw.standard_normal(shape)).astype(np.float32))

    x = node("Gather", [matrix("words", WORDS, HIDDEN), "input_ids"], "embedded")
    angles = node("Gather", [matrix("positions", 64, HIDDEN), "position_ids"], "angles")
    x = node("Add", [x, angles], "x")
    parts = {}
    for part in "qkv":
        made = node("MatMul", [x, matrix(f"w.{part}", HIDDEN, HIDDEN)], f"{part}.flat")
        split = [made, weight(f"{part}.shape", np.array([0, 0, HEADS, WIDTH]))]
        parts[part] = node("Transpose", [node("Reshape", split, f"{part}.apart")], part,
                           perm=[0, 2, 1, 3])  # fmt: skip
    caches = {}
    for part, kind in (("k", "key"), ("v", "value")):
        joined = [f"past_key_values.0.{kind}", parts[part]]
        caches[part] = node("Concat", joined, f"present.0.{kind}", axis=2)
    turned = node("Transpose", [caches["k"]], "columns", perm=[0, 1, 3, 2])
    scores = node("MatMul", [parts["q"], turned], "scores")
    mask = node("Cast", ["attention_mask"], "mask", to=TensorProto.BOOL)
    mask = node("Unsqueeze", [mask, weight("axes", np.array([1, 2]))], "mask.apart")
    hidden = node("Where", [mask, scores, weight("low", np.float32(-1e9))], "masked")
    y = node("MatMul", [node("Softmax", [hidden], "chances", axis=-1), caches["v"]], "mean")
    y = node("Transpose", [y], "mean.rows", perm=[0, 2, 1, 3])
    y = node("Reshape", [y, weight("flat", np.array([0, 0, HIDDEN]))], "y")
    node("MatMul", [node("Add", [x, y], "sum"), matrix("head", HIDDEN, WORDS)], "logits")
    batch, rows, info = "batch_size", "sequence_length", helper.make_tensor_value_info
    both, integer, real = f"past_{rows} + {rows}", TensorProto.INT64, TensorProto.FLOAT
    inputs = [
        info("input_ids", integer, [batch, rows]),
        info("position_ids", integer, [batch, rows]),
    ]
    inputs.append(info("attention_mask", integer, [batch, both]))
    outputs = [info("logits", real, [batch, rows, WORDS])]
    for kind in ("key", "value"):
        for name, length, where in (
            ("past_key_values", f"past_{rows}", inputs),
            ("present", both, outputs),
        ):
            where.append(info(f"{name}.0.{kind}", real, [batch, HEADS, length, WIDTH]))
    graph = helper.make_graph(build.nodes, "main_graph", inputs, outputs, build.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
