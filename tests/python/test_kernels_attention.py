"""Attention: against onnx's reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arenaplan as ap
from arenaplan.base.errors import InvalidAttribute, ShapeMismatch
from single_node import check_node, node_graph

RNG = np.random.default_rng(7)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def attention_inputs(
    *, heads: int = 4, kv_heads: int = 2, past: int = 0, flat: bool = False, rows: int = 5
) -> list[np.ndarray | None]:
    """Return query, key, value, no mask, and the past."""
    batch, keys, width, value_width = 2, 6, 8, 4
    query = random(batch, heads, rows, width)
    key, value = random(batch, kv_heads, keys, width), random(batch, kv_heads, keys, value_width)
    if flat:
        query, key, value = (
            a.transpose(0, 2, 1, 3).reshape(batch, a.shape[2], -1).copy()
            for a in (query, key, value)
        )
    inputs: list[np.ndarray | None] = [query, key, value]
    if past:
        inputs += [None, random(batch, kv_heads, past, width)]
        inputs += [random(batch, kv_heads, past, value_width)]
    return inputs


def check_attention(
    inputs: list, attributes: dict[str, Any], *, outputs: int = 1, opset: int = 24
) -> None:
    check_node("Attention", inputs, attributes, outputs=outputs, opset=opset, oracle="reference")


@pytest.mark.parametrize("flat", [False, True], ids=["4-D", "3-D"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("past", [0, 3])
def test_attention_agrees_for_every_layout(
    flat: bool, kv_heads: int, causal: int, past: int
) -> None:
    inputs = attention_inputs(kv_heads=kv_heads, flat=flat, past=past)
    attributes = {"is_causal": causal}
    if flat:
        attributes |= {"q_num_heads": 4, "kv_num_heads": kv_heads}
    check_attention(inputs, attributes, outputs=3)


@pytest.mark.parametrize("mode", range(4))
def test_attention_shows_its_scores(mode: int) -> None:
    inputs = attention_inputs(past=2)
    inputs[3] = random(5, 8)
    attributes = {"qk_matmul_output_mode": mode, "scale": 0.3, "is_causal": 1}
    check_attention(inputs, attributes, outputs=4)
    if mode:  # Of mode 0, onnx's reference shows capped scores, against its documentation.
        check_attention(inputs, {**attributes, "softcap": 2.0}, outputs=4)


@pytest.mark.parametrize("kind", ["float", "bool"])
@pytest.mark.parametrize(
    "shape", [(6,), (5, 6), (4, 5, 6), (2, 1, 5, 6), (2, 4, 5, 6), (5, 4), (1, 4, 5, 3)]
)
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_masks(kind: str, shape: tuple[int, ...], causal: int) -> None:
    mask = random(*shape) if kind == "float" else RNG.random(shape) < 0.7
    if causal and len(shape) == 1:
        mask = np.broadcast_to(mask, (5, *shape)).copy()  # The reference knows no shorter one.
    check_attention([*attention_inputs(), mask], {"is_causal": causal})


def test_attention_of_a_row_that_may_look_at_nothing_is_zero() -> None:
    mask = np.ones((5, 6), bool)
    mask[2] = False
    check_attention([*attention_inputs(), mask], {"qk_matmul_output_mode": 3}, outputs=1)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_leaves_padding_out(causal: int) -> None:
    lengths = np.array([6, 3], np.int64)
    inputs = [*attention_inputs(), None, None, None, lengths]
    check_attention(inputs, {"is_causal": causal})


@pytest.mark.parametrize("left", [-1, 0, 2])
@pytest.mark.parametrize("right", [-1, 0, 1])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_looks_through_a_window(left: int, right: int, causal: int) -> None:
    attributes = {"left_window_size": left, "right_window_size": right, "is_causal": causal}
    check_attention(attention_inputs(past=2), attributes, outputs=3, opset=25)


def test_attention_keeps_a_past_that_nobody_asked_for() -> None:
    check_attention(attention_inputs(past=3), {})


def test_attention_computes_half_precision() -> None:
    inputs = [a.astype(np.float16) for a in attention_inputs()]
    check_node("Attention", inputs, opset=24, tolerance=3e-3, oracle="reference")


def test_attention_does_long_sequences_in_tiles() -> None:
    shape = (1, 3, 300, 16)
    inputs = [random(*shape), random(*shape), random(*shape), RNG.random((300, 300)) < 0.9]
    check_attention(inputs, {"is_causal": 1})


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"q_num_heads": 0}, InvalidAttribute),
        ({"q_num_heads": 3}, InvalidAttribute),
        ({"kv_num_heads": 4}, ShapeMismatch),
    ],
)
def test_attention_refuses_heads_that_do_not_fit(
    change: dict[str, int], error: type[Exception]
) -> None:
    inputs = attention_inputs(flat=True)
    attributes = {"q_num_heads": 4, "kv_num_heads": 2, **change}
    results = [np.empty((2, 5, 16), np.float32)]
    graph = node_graph("Attention", inputs, results, attributes, opset=23, constants=[])
    with pytest.raises(error, match="Attention"):
        ap.Executor(graph)
