"""Operators that ONNX Runtime's tools write: each form against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

import arenaplan as ap
from arenaplan.base.errors import PlannerError, ShapeMismatch, UnsupportedOp
from quantized_models import MICROSOFT, Model
from single_node import compare, expected, node_model

RNG = np.random.default_rng(33)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i32(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


class Case(NamedTuple):
    """One node, with the operands that are constant, and the results that are read."""

    op: str
    inputs: Sequence[np.ndarray | None]
    attributes: dict[str, Any] = {}  # noqa: RUF012
    constants: Sequence[int] = ()
    outputs: Sequence[str] = ("float32",)
    """Types; empty for a result that is left out."""
    domain: str = MICROSOFT
    tolerance: float = 1e-5

    def node(self) -> Any:
        names = ["" if array is None else f"in{at}" for at, array in enumerate(self.inputs)]
        made = [f"out{at}" if kind else "" for at, kind in enumerate(self.outputs)]
        return helper.make_node(self.op, names, made, domain=self.domain, **self.attributes)

    def model(self, folder: Path) -> Model:
        arrays = {f"in{at}": x for at, x in enumerate(self.inputs) if x is not None}
        stored = {f"in{at}": arrays.pop(f"in{at}") for at in self.constants}
        outputs = {f"out{at}": np.dtype(kind) for at, kind in enumerate(self.outputs) if kind}
        return Model(folder, [self.node()], arrays, outputs, stored)


def activations() -> Iterator[Case]:
    x = f32(2, 3, 16)
    for op in ("BiasGelu", "FastGelu"):
        yield Case(op, [x, f32(16)])
    for op in ("FastGelu", "Gelu", "QuickGelu"):
        yield Case(op, [x])
    yield Case("QuickGelu", [x], {"alpha": 1.2})
    integers, scale, zero = (
        RNG.integers(-99, 99, (3, 4)).astype(np.int16),
        np.array(0.1, np.float32),
        np.array(3, np.int16),
    )
    yield Case("DequantizeLinear", [integers, scale, zero])
    yield Case("QuantizeLinear", [x, scale, zero], outputs=["int16"])


def normalizations() -> Iterator[Case]:
    x, scale = f32(2, 3, 16), f32(16)
    sum_too = ("float32", "", "", "float32")
    yield Case("SimplifiedLayerNormalization", [x, scale], {"axis": -1}, domain="")
    yield Case("SkipSimplifiedLayerNormalization", [x, f32(2, 3, 16), scale])
    yield Case("SkipSimplifiedLayerNormalization", [x, x, scale, f32(16)], outputs=sum_too)
    yield Case("SkipLayerNormalization", [x, x, scale, scale, f32(16)], outputs=sum_too)
    yield Case("SkipLayerNormalization", [1e-4 * x, 1e-4 * f32(3, 16), scale])
    yield Case("SkipLayerNormalization", [x, f32(1, 3, 16), scale], {"epsilon": 0.1})
    words, tables = RNG.integers(0, 9, (2, 3)).astype(np.int32), [f32(9, 16), f32(12, 16)]
    segments, scales, mask = f32(2, 16), [f32(16), f32(16)], np.array([i32(1, 1, 0), i32(1, 1, 1)])
    op, outputs = "EmbedLayerNormalization", ("float32", "int32", "float32")
    yield Case(op, [words, words % 2, *tables, segments, *scales], {}, range(2, 7), outputs)
    yield Case(op, [words, None, *tables, None, *scales, mask], {}, (2, 3, 5, 6), outputs)
    given = [words, words % 2, *tables, segments, *scales, None, words]
    yield Case(op, given, {"epsilon": 1e-5}, range(2, 7), outputs)


ANGLES = np.arange(16)[:, None] / 10.0 ** np.arange(8)
TABLES = [np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)]


def rotations() -> Iterator[Case]:
    at = RNG.integers(0, 16, (2, 3))
    for x, attributes in (
        (f32(2, 3, 32), {}),
        (f32(2, 2, 3, 16), {"interleaved": 1}),
        (f32(2, 3, 48), {"num_heads": 2, "rotary_embedding_dim": 16}),
    ):
        for positions in (at, np.array([2])):
            inputs = [x, positions, *TABLES]
            yield Case("RotaryEmbedding", inputs, attributes, (2, 3))

    streams = RNG.integers(0, 16, (3, 2, 3))
    for layout, section in ((0, [4, 3, 1]), (1, [4, 2, 2]), (0, [8, 0, 0]), (1, [2, 3, 3])):
        attributes = {"mrope_section": section, "mrope_layout": layout}
        for x, more in (
            (f32(2, 3, 32), {"num_heads": 2}),
            (f32(2, 2, 3, 16), {"interleaved": 1}),
        ):
            operands = [x, streams, *TABLES]
            yield Case("MRotaryEmbedding", operands, {**attributes, **more}, (2, 3))
    partly = {"num_heads": 2, "rotary_embedding_dim": 16, "mrope_section": [4, 3, 1]}
    yield Case("MRotaryEmbedding", [f32(2, 3, 48), streams, *TABLES], partly, (2, 3))


def multi_head() -> Iterator[Case]:
    q, k, v = f32(2, 3, 16), f32(2, 5, 16), f32(2, 5, 16)
    padding, three = np.array([i32(1, 1, 1, 0, 0), i32(1, 1, 1, 1, 1)]), ("float32",) * 3
    past, new = f32(2, 2, 4, 8), f32(2, 3, 16)
    some = (RNG.random((2, 3, 5)) < 0.7).astype(np.int32)
    for inputs, more, outputs in (
        ([q, k, v], {}, ("float32",)),
        ([q, k, v], {"scale": 0.3}, three),
        ([q, new, new], {"unidirectional": 1}, ("float32",)),
        ([q, new, new, None, None, None, past, past], {}, three),
        ([q, k, v, f32(48)], {}, ("float32",)),
        ([q, k, f32(2, 5, 12), f32(44)], {}, ("float32",)),
        ([q, k, v, None, padding], {}, ("float32",)),
        ([q, k, v, None, padding], {"mask_filter_value": -1.0}, ("float32",)),
        ([q, k, v, None, i32(3, 5)], {}, ("float32",)),
        ([q, k, v, None, some], {}, ("float32",)),
        ([q, k, v, None, padding, f32(1, 2, 3, 5)], {}, ("float32",)),
        ([q, f32(2, 2, 5, 8), f32(2, 2, 5, 8)], {}, ("float32",)),
        ([q, f32(2, 2, 5, 8), f32(2, 2, 5, 8), f32(48)], {}, ("float32",)),
    ):
        yield Case("MultiHeadAttention", inputs, {"num_heads": 2, **more}, (), outputs)
    w, b, past = f32(16, 48), f32(48), f32(2, 2, 2, 4, 8)
    some, two = (RNG.random((2, 3, 7)) < 0.7).astype(np.int32), ("float32",) * 2
    for inputs, more, outputs in (
        ([q, w, b], {}, ("float32",)),
        ([q, w, None], {"unidirectional": 1}, ("float32",)),
        ([q, w, b, i32(2, 3)], {}, ("float32",)),
        ([q, w, b, i32(2, 3, 1, 0)], {}, ("float32",)),
        ([q, w, b, padding[:, 1:4].copy()], {}, ("float32",)),
        ([q, w, b, some, past], {"unidirectional": 1}, two),
        ([q, w, b, None, past], {}, two),
        ([q, f32(16, 40), f32(40), None, None, f32(2, 2, 3, 3)], {}, ("float32",)),
    ):
        sizes = {"qkv_hidden_sizes": [16, 16, 8]} if len(inputs) == 6 else {}
        constants = [1, 2] if inputs[2] is not None else [1]
        attributes = {"num_heads": 2, **more, **sizes}
        yield Case("Attention", inputs, attributes, constants, outputs, tolerance=1e-4)


def states() -> Iterator[Case]:
    x, past, bias, two = f32(2, 6, 5), f32(2, 6, 3), f32(6), ("float32", "float32")
    op = "CausalConvWithState"
    yield Case(op, [x, f32(6, 1, 4)], {}, [1], two)
    yield Case(op, [x, f32(6, 1, 4), bias, past], {"activation": "silu"}, (1, 2), two)
    yield Case(op, [x[..., :1].copy(), f32(6, 1, 4), None, past], {}, [1], two)
    yield Case(op, [x, f32(6, 1, 2), bias, past], {"dilation": 3}, (1, 2), two)
    turned = [f32(2, 5, 3, 2), f32(6, 1, 4), bias, f32(2, 3, 3, 2)]
    yield Case(op, turned, {"channels_last": 1, "activation": "swish"}, (1, 2), two)
    queries, values, gate, rate = f32(2, 3, 8), f32(2, 3, 20), -(f32(2, 3, 4) ** 2), f32(2, 3, 4)
    wide, state = f32(2, 3, 16), f32(2, 4, 4, 5)
    heads = {"q_num_heads": 2, "kv_num_heads": 4}
    for keys in (queries, wide):
        operands = [queries, keys, values, state, gate, rate]
        yield Case("LinearAttention", operands, {**heads, "scale": 1.0}, (), two)
    heads = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "linear"}
    yield Case("LinearAttention", [wide, queries, values], heads, (), two)
    vectors = [f32(4), -(f32(4) ** 2)]
    yield Case("LinearAttentionGate", [gate, *vectors, rate], {}, (1, 2), two)
    yield Case("LinearAttentionGate", [gate, *vectors], {}, (1, 2))
    yield Case("GatedAdd", [wide, f32(2, 3, 16), f32(2, 3, 1)])
    for attributes in ({}, {"activation": "sigmoid", "epsilon": 0.1}):
        yield Case("GatedRMSNorm", [wide, f32(8), f32(2, 3, 16)], attributes, [1])


def experts() -> Iterator[Case]:
    router, fused = f32(12, 4), {"activation_type": "swiglu", "swiglu_fusion": 1}
    limits = {"activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": 1.0}
    for rows, activation in ((24, "relu"), (24, "gelu"), (24, "silu"), (24, "identity")):
        layers = [f32(4, rows, 16), f32(4, rows), f32(4, 16, 24), f32(4, 16)]
        attributes = {"activation_type": activation, "k": 2}
        yield Case("MoE", [f32(3, 4, 16), router, *layers], attributes, range(2, 6), tolerance=1e-4)
    layers = [f32(4, 48, 16), None, f32(4, 16, 24)]
    for more in ({"k": 1}, {"k": 4, "normalize_routing_weights": 1, **limits}):
        yield Case("MoE", [f32(12, 16), router, *layers], {**fused, **more}, (2, 4), tolerance=1e-4)
    x, router = f32(3, 4, 32), f32(12, 4)
    for bits in (4, 8):
        for block in (0, 16):
            sizes = {"expert_weight_bits": bits, "k": 2, **({"block_size": block} if block else {})}
            parts = [32 // block] if block else []
            tables = [
                (u8(4, rows, 32 * bits // 8), 0.02 * np.abs(f32(4, rows, *parts)), f32(4, rows))
                for rows in (64, 32)
            ]
            flat = [x, router, *tables[0], *tables[1]]
            for normalize in (0, 1):
                more = {**limits, **sizes, "normalize_routing_weights": normalize}
                yield Case("QMoE", flat, {**fused, **more}, range(2, 8), tolerance=6e-2)
                apart = [*flat, *[None] * 6, np.abs(f32(12, 4))]
                yield Case("QMoE", apart, {**fused, **more}, range(2, 8), tolerance=6e-2)
            zeros = [
                u8(4, rows, -(-(32 // block) * bits // 8)) if block else u8(4, rows * bits // 8)
                for rows in (64, 32)
            ]
            points = [*flat, None, None, None, *zeros]
            constants = [*range(2, 8), 11, 12]
            yield Case("QMoE", points, {**fused, **limits, **sizes}, constants, tolerance=6e-2)


def quantized_attention() -> Iterator[Case]:
    x, scale, per_column = u8(2, 3, 16), np.array(0.02, np.float32), 0.01 * np.abs(f32(48))
    zero, past, two = np.array(120, np.uint8), f32(2, 2, 2, 4, 8), ("float32", "float32")
    for w, point, scales in (
        (u8(16, 48), np.array(128, np.uint8), np.array(0.01, np.float32)),
        ((u8(16, 48) // 2).astype(np.int8), np.zeros(48, np.int8), per_column),
    ):
        for mask, old in ((None, None), (i32(2, 3), None), (None, past)):
            operands = [x, w, f32(48), scale, scales, mask, zero, point, old]
            attributes = {"num_heads": 2, "unidirectional": int(old is not None)}
            outputs = two[: 1 if old is None else 2]
            yield Case("QAttention", operands, attributes, (1, 2, 3, 4, 6, 7), outputs)


def packed() -> Iterator[Case]:
    for bits in (2, 4, 8):
        for inner, columns, block in ((64, 8, 32), (70, 37, 32), (128, 300, 16)):
            blocks = -(-inner // block)
            operands = [f32(2, 3, inner), u8(columns, blocks, block * bits // 8)]
            operands.append(0.1 * f32(columns, blocks))
            sizes = {"K": inner, "N": columns, "bits": bits, "block_size": block}
            zeros = u8(columns, -(-blocks * bits // 8))
            yield Case("MatMulNBits", operands, sizes, (1, 2))
            for x in (operands[0], np.where(operands[0][:, :1] > 1, operands[0], 0)):
                rounded = {**sizes, "accuracy_level": 4}
                yield Case("MatMulNBits", [x, *operands[1:]], rounded, (1, 2))
            yield Case("MatMulNBits", [*operands, zeros], sizes, (1, 2, 3))
            bias = [*operands, None, None, f32(columns)]
            yield Case("MatMulNBits", bias, sizes, (1, 2, 5))
            if bits == 4:
                groups = RNG.integers(0, blocks, inner).astype(np.int32)
                yield Case("MatMulNBits", [*operands, None, groups], sizes, (1, 2, 4))
    rows = RNG.integers(-10, 10, (2, 3))
    for bits in (4, 8):
        attributes = {"bits": bits, "block_size": 16, "quantize_axis": 1, "gather_axis": 0}
        for width in (32, 40):
            blocks = -(-width // 16)
            operands = [u8(10, width * bits // 8), rows, f32(10, blocks)]
            yield Case("GatherBlockQuantized", operands, attributes, (0, 2))
            operands = [*operands, u8(10, -(-blocks * bits // 8))]
            yield Case("GatherBlockQuantized", operands, attributes, (0, 2, 3))


CASES = [
    *activations(),
    *normalizations(),
    *rotations(),
    *multi_head(),
    *states(),
    *quantized_attention(),
    *experts(),
    *packed(),
]


@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda at: f"{CASES[at].op} {at}")
def test_operators_of_the_tools_agree_with_onnx_runtime(tmp_path: Path, at: int) -> None:
    model = CASES[at].model(tmp_path)
    compare(model.found(), model.expected(), CASES[at].tolerance)


def test_scales_that_do_not_fit_a_table_are_refused(tmp_path: Path) -> None:
    attributes = {"bits": 4, "block_size": 16, "quantize_axis": 1, "gather_axis": 0}
    operands = [u8(10, 16), RNG.integers(0, 10, 3), f32(10, 3)]
    model = Case("GatherBlockQuantized", operands, attributes, (0, 2)).model(tmp_path)
    with pytest.raises(ShapeMismatch, match=r"scales of shape \(10, 3\), not \(10, 2\)"):
        ap.load(model.path)


@pytest.mark.parametrize("activation", [0, 1])
def test_groups_of_channels_are_normalized_wherever_channels_are(
    tmp_path: Path, activation: int
) -> None:
    """ONNX Runtime has no kernel for the cpu: the definition says what is right."""
    x, scale, shift = f32(2, 4, 5, 6), f32(6), f32(6)
    attributes = {"groups": 3, "activation": activation, "epsilon": 1e-3}
    model = Case("GroupNorm", [x, scale, shift], attributes, [1, 2]).model(tmp_path)
    groups = x.reshape(2, 20, 3, 2)
    mean, variance = groups.mean((1, 3), keepdims=True), groups.var((1, 3), keepdims=True)
    wanted = ((groups - mean) / np.sqrt(variance + 1e-3)).reshape(x.shape) * scale + shift
    if activation:
        wanted = wanted / (1 + np.exp(-wanted))
    compare(model.found(), [wanted.astype(np.float32)], 1e-5)
    last_first = x.transpose(0, 3, 1, 2).copy()
    attributes["channels_last"] = 0
    model = Case("GroupNorm", [last_first, scale, shift], attributes, [1, 2]).model(tmp_path)
    compare(model.found(), [wanted.astype(np.float32).transpose(0, 3, 1, 2)], 1e-5)


def standard(op: str, inputs: Sequence[np.ndarray], **attributes: Any) -> np.ndarray:
    """Return what ONNX Runtime computes by an operator of the standard."""
    model = node_model(op, inputs, attributes, opset=21, outputs=1, constants=())
    (made,) = expected(model, inputs, "onnxruntime")
    return made


@pytest.mark.parametrize("skip", [(2, 4, 5, 6), (2, 1, 1, 6), (2, 6)])
@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_sums_are_normalized_in_groups_of_channels(
    tmp_path: Path, skip: Sequence[int], channels_last: int, activation: int
) -> None:
    """ONNX Runtime has kernels for the cpu of the parts alone; so for the next two tests."""
    arrays = [f32(2, 4, 5, 6), f32(6), f32(6), f32(*skip), f32(6)]
    total = (
        arrays[0] + arrays[3].reshape(2, *((1, 1, 6) if skip == (2, 6) else skip[1:])) + arrays[4]
    )
    parts = [total.transpose(0, 3, 1, 2).copy(), *arrays[1:3]]
    wanted = standard("GroupNormalization", parts, num_groups=3, epsilon=1e-3)
    if activation:
        wanted = wanted / (1 + np.exp(-wanted))
    if channels_last:
        wanted = wanted.transpose(0, 2, 3, 1)
    else:
        arrays[0], total = (x.transpose(0, 3, 1, 2).copy() for x in (arrays[0], total))
        if len(skip) == 4:
            arrays[3] = arrays[3].transpose(0, 3, 1, 2).copy()
    attributes = {"groups": 3, "epsilon": 1e-3, "activation": activation}
    attributes["channels_last"] = channels_last
    case = Case("SkipGroupNorm", arrays, attributes, [1, 2], ("float32", "float32"))
    compare(case.model(tmp_path).found(), [wanted, total], 1e-5)


@pytest.mark.parametrize(
    "attributes",
    [{}, {"pads": [1, 2, 1, 0]}, {"strides": [2, 1], "group": 2}, {"dilations": [2, 2]}],
    ids=str,
)
def test_convolutions_of_images_with_channels_last(
    tmp_path: Path, attributes: dict[str, Any]
) -> None:
    x, w, bias = f32(2, 7, 8, 4), f32(6, 3, 2, 4 // attributes.get("group", 1)), f32(6)
    first = [each.transpose(0, 3, 1, 2).copy() for each in (x, w)]
    wanted = standard("Conv", [*first, bias], **attributes).transpose(0, 2, 3, 1)
    case = Case("NhwcConv", [x, w, bias], {"kernel_shape": [3, 2], **attributes}, [1, 2])
    compare(case.model(tmp_path).found(), [wanted], 1e-5)


def test_sums_of_a_diffusion_model(tmp_path: Path) -> None:
    x, bias, skip = f32(2, 3, 8), f32(8), f32(2, 3, 8)
    model = Case("BiasAdd", [x, bias, skip], {}, [1]).model(tmp_path)
    compare(model.found(), [x + bias + skip], 1e-6)
    left, right = np.split(x + bias, 2, -1)
    model = Case("BiasSplitGelu", [x, bias], {}, [1]).model(tmp_path)
    compare(model.found(), [left * standard("Gelu", [right.copy()])], 1e-5)


@pytest.mark.parametrize("is_two_sided", [0, 1])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (1, 40), (40, 40), (3, 1)])
def test_distances_share_rows_of_a_table(
    tmp_path: Path, is_two_sided: int, queries: int, keys: int
) -> None:
    """ONNX Runtime has no kernel for the cpu: T5 (Raffel et al. 2020) says what is right."""
    table, farthest = f32(16, 3), 20
    lengths = [np.array([queries], np.int64), np.array([keys], np.int64)]
    attributes = {"max_distance": farthest, "is_bidirectional": is_two_sided}
    case = Case("RelativePositionBias", [table, *lengths], attributes, [1, 2])
    wanted = np.empty((1, 3, queries, keys), np.float32)
    rows = 8 if is_two_sided else 16
    for query in range(queries):
        for key in range(keys):
            ahead = key - query
            distance = abs(ahead) if is_two_sided else max(-ahead, 0)
            row = distance
            if distance >= rows // 2:
                share = np.log(np.float32(distance / (rows // 2))) / np.log(farthest / (rows // 2))
                row = min(rows // 2 + int(share * (rows - rows // 2)), rows - 1)
            wanted[0, :, query, key] = table[row + (rows if is_two_sided and ahead > 0 else 0)]
    compare(case.model(tmp_path).found(), [wanted], 1e-6)


class Cached(NamedTuple):
    """A step of grouped attention with a cache."""

    rows: int
    cache: int | None
    """Entries that the old cache has room for; ``None`` without an old cache."""
    lengths: Sequence[int]
    """Entries after the step."""
    attributes: dict[str, Any] = {}  # noqa: RUF012
    packed: bool = False
    rotary: bool = True
    more: Sequence[np.ndarray | None] = ()
    """Inputs from number 9 on."""


HEADS, KV_HEADS, WIDTH = 4, 2, 16
STEPS = [
    Cached(1, 7, [8]),
    Cached(1, 16, [8]),
    Cached(1, 7, [8], rotary=False),
    Cached(5, 0, [5]),
    Cached(5, None, [5]),
    Cached(5, 16, [5]),
    Cached(5, 16, [5, 3]),
    Cached(1, 16, [8, 5]),
    Cached(3, 16, [7]),
    Cached(3, 4, [7]),
    Cached(1, 16, [8], packed=True),
    Cached(5, 0, [5], packed=True),
    Cached(1, 16, [8], {"rotary_interleaved": 1}),
    Cached(5, 16, [5], {"local_window_size": 2}),
    Cached(1, 16, [8], {"local_window_size": 3}),
    Cached(1, 16, [8], {"softcap": 2.0, "scale": 0.2}),
    Cached(1, 16, [8], more=[np.array([[7]]), f32(1, 1, 1, 8)]),
    Cached(5, 0, [5], more=[None, f32(1, HEADS, 5, 5)]),
    *(
        Cached(rows, cache, lengths, {"local_window_size": 6, "sliding_window_cache": 1})
        for cache in (6, 9)
        for rows, lengths in (
            *((5, [5]), (1, [6]), (1, [7]), (1, [9, 7]), (1, [10]), (1, [14, 2])),
            *((4, [12]), (13, [13]), (9, [14])),
        )
    ),
    Cached(5, 0, [5], {"smooth_softmax": 1}),
    Cached(1, 16, [8, 5], {"softcap": 2.0}, more=[None, None, f32(HEADS)]),
    Cached(5, 16, [5, 3], {"local_window_size": 2}, packed=True, more=[None, None, f32(HEADS)]),
]


@pytest.mark.parametrize("step", STEPS)
def test_grouped_attention_agrees_with_onnx_runtime(tmp_path: Path, step: Cached) -> None:
    batch, total = len(step.lengths), max(step.lengths)
    counts = [HEADS + 2 * KV_HEADS] if step.packed else [HEADS, KV_HEADS, KV_HEADS]
    inputs: list[np.ndarray | None] = [f32(batch, step.rows, count * WIDTH) for count in counts]
    inputs += [None] * (3 - len(inputs))
    shape = (batch, KV_HEADS, step.cache or 0, WIDTH)
    inputs += [None if step.cache is None else f32(*shape) for _ in range(2)]
    inputs += [i32(*step.lengths) - 1, np.array(total, np.int32)]
    inputs += TABLES if step.rotary else [None, None]
    attributes = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, **step.attributes}
    attributes["do_rotary"] = int(step.rotary)
    constants = [6, 7, 8] if step.rotary else [6]
    case = Case(
        "GroupQueryAttention", [*inputs, *step.more], attributes, constants, ["float32"] * 3
    )
    model = case.model(tmp_path)
    found, wanted = model.found(), model.expected()
    for sample, length in enumerate(step.lengths):
        # Nobody reads rows behind a prompt, or entries that were not written yet.
        rows = min(step.rows, length)
        kept = length
        if step.cache and "sliding_window_cache" in step.attributes:
            spare = step.cache - step.attributes["local_window_size"] + 1
            kept -= spare * -(-max(length - step.cache, 0) // spare)
        cuts = [np.s_[sample, :rows], *[np.s_[sample, :, :kept]] * 2]
        parts = zip(found, wanted, cuts, strict=True)
        compare(*zip(*((x[cut], y[cut]) for x, y, cut in parts), strict=True), 1e-5)


BLOCK, ROOM = 16, 64


def _layouts(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of layouts: the own block, the first, and every other one before."""
    blocks = ROOM // BLOCK
    seen = [
        [[c for c in range(r + 1) if c in (0, r) or (r + c + at) % 2] for r in range(blocks)]
        for at in range(count)
    ]
    columns = [[c for row in layout for c in row] for layout in seen]
    most = max(map(len, columns))
    ends = [np.cumsum([0, *map(len, layout)]) for layout in seen]
    padded = [row + [-1] * (most - len(row)) for row in columns]
    return np.array(ends, np.int32), np.array(padded, np.int32)


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("layouts", [1, HEADS])
@pytest.mark.parametrize(
    ("rows", "lengths"), [(5, [5]), (40, [40]), (64, [64, 33]), (1, [1]), (1, [40, 64])]
)
def test_sparse_attention_agrees_with_onnx_runtime(
    tmp_path: Path, rows: int, lengths: list[int], layouts: int, packed: bool, rotary: bool
) -> None:
    counts = [HEADS + 2 * KV_HEADS] if packed else [HEADS, KV_HEADS, KV_HEADS]
    inputs: list[np.ndarray | None] = [f32(len(lengths), rows, n * WIDTH) for n in counts]
    inputs += [None] * (3 - len(inputs))
    inputs += [f32(len(lengths), KV_HEADS, ROOM, WIDTH) for _ in range(2)]
    inputs += [*_layouts(layouts), i32(max(lengths)), i32(*lengths)]
    angles = f32(ROOM, WIDTH // 2)
    inputs += [np.cos(angles), np.sin(angles)] if rotary else []
    attributes = {
        "num_heads": HEADS,
        "kv_num_heads": KV_HEADS,
        "sparse_block_size": BLOCK,
        "scale": 0.3,
        "do_rotary": int(rotary),
    }
    constants = [5, 6, *([9, 10] if rotary else [])]
    case = Case("SparseAttention", inputs, attributes, constants, ["float32"] * 3)
    found = case.model(tmp_path).found()
    for sample, length in enumerate(lengths):
        # ONNX Runtime computes other heads than the first wrongly if a batch has shorter sequences.
        kept, own = min(rows, length), slice(sample, sample + 1)
        alone = [None if x is None else x[own, :kept] for x in inputs[:3]]
        alone += [*(x[own] for x in inputs[3:5] if x is not None), *inputs[5:7], *[i32(length)] * 2]
        folder = tmp_path / str(sample)
        folder.mkdir()
        wanted = _with_shared_caches(case._replace(inputs=[*alone, *inputs[9:]]).model(folder))
        parts = zip(found, wanted, (kept, length, length), strict=True)
        y, keys, values = ((x[own, ..., :end, :], z[..., :end, :]) for x, z, end in parts)
        compare(*zip(y, keys, values, strict=True), 1e-5)


def _with_shared_caches(model: Model) -> list[np.ndarray]:
    """Return the results of ONNX Runtime, which writes new entries into the given caches."""
    session = ort.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
    bound, arrays = session.io_binding(), {n: np.array(x) for n, x in model.inputs.items()}
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
    for name, value in values.items():
        bound.bind_ortvalue_input(name, value)
    y, *caches = model.names
    bound.bind_output(y)
    for name, given in zip(caches, ("in3", "in4"), strict=True):
        bound.bind_ortvalue_output(name, values[given])
    session.run_with_iobinding(bound)
    return [each.numpy().copy() for each in bound.get_outputs()]


@pytest.mark.parametrize(
    ("rows", "columns", "problem"),
    [
        ([[0] * (1 << 15)], [[0]], "1 layouts of 32767 blocks"),
        ([[0]], [[0]], "1 layouts of 0 blocks"),
        ([[0, 1, 3]], [[0, 0]], "do not count"),
        ([[0, 1, 2]], [[0, 2]], "not from 0 to 1"),
        ([[0, 1, 2]], [[0, 1]], "64 entries for 2 blocks of 16"),
    ],
)
def test_layouts_of_sparse_attention_are_checked(
    tmp_path: Path, rows: list[list[int]], columns: list[list[int]], problem: str
) -> None:
    inputs: list[np.ndarray | None] = [f32(1, 5, n * WIDTH) for n in (HEADS, KV_HEADS, KV_HEADS)]
    inputs += [f32(1, KV_HEADS, ROOM, WIDTH) for _ in range(2)]
    inputs += [np.array(rows, np.int32), np.array(columns, np.int32), i32(5), i32(5)]
    attributes = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, "sparse_block_size": BLOCK}
    model = Case("SparseAttention", inputs, attributes, [5, 6], ["float32"] * 3).model(tmp_path)
    with pytest.raises(PlannerError, match=problem):
        ap.load(model.path)


@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("rows", "cache", "total"), [(1, 16, 8), (1, 7, 8), (5, 16, 5), (3, 16, 9), (5, 0, 5)]
)
def test_caches_of_small_integers_agree_with_onnx_runtime(
    tmp_path: Path, kind: str, bits: int, rows: int, cache: int, total: int
) -> None:
    shape = (1, KV_HEADS, cache, WIDTH * bits // 8)
    inputs: list[np.ndarray | None] = [
        f32(1, rows, count * WIDTH) for count in (HEADS, KV_HEADS, KV_HEADS)
    ]
    stored = np.dtype(np.uint8 if bits == 4 else np.int8)
    inputs += [RNG.integers(0, 128, shape).astype(stored) for _ in range(2)]
    inputs += [i32(total - 1), np.array(total, np.int32), *TABLES, None, None, None]
    channels = (1, KV_HEADS, 1, WIDTH) if kind == "PER_CHANNEL" else (1,)
    inputs += [(0.2 + RNG.random(channels)).astype(np.float32) / bits for _ in range(2)]
    attributes = {
        "num_heads": HEADS,
        "kv_num_heads": KV_HEADS,
        "do_rotary": 1,
        "kv_cache_bit_width": bits,
        "k_quant_type": kind,
        "v_quant_type": kind,
    }
    outputs = ["float32", stored.name, stored.name]
    constants = [6, 7, 8, 12, 13]
    model = Case("GroupQueryAttention", inputs, attributes, constants, outputs).model(tmp_path)
    found, wanted = model.found(), model.expected()
    compare([found[0]], [wanted[0]], 1e-5)
    for x, y in zip(found[1:], wanted[1:], strict=True):
        np.testing.assert_array_equal(x[:, :, :total], y[:, :, :total])


def test_a_cache_that_is_long_enough_is_written_in_place() -> None:
    step = Cached(1, 1024, [8])
    shape = (1, KV_HEADS, 1024, WIDTH)
    graph = ap.load(_decoder(shape).SerializeToString())
    plan = ap.plan(graph, inputs="reuse")
    assert plan.arena_bytes < 2 * 4 * int(np.prod(shape)) + (1 << 16), step


def _decoder(shape: Sequence[int]) -> Any:
    """Return one step of grouped attention, with a cache of some shape."""
    from onnx import TensorProto, numpy_helper

    kinds = {"in5": TensorProto.INT32}
    sizes: dict[str, Sequence[int]] = {
        "in0": (1, 1, HEADS * WIDTH),
        "in1": (1, 1, KV_HEADS * WIDTH),
        "in2": (1, 1, KV_HEADS * WIDTH),
        "in3": shape,
        "in4": shape,
        "in5": (1,),
    }
    nodes = [
        helper.make_node(
            "GroupQueryAttention",
            [*sizes, "total"],
            ["y", "keys", "values"],
            domain=MICROSOFT,
            num_heads=HEADS,
            kv_num_heads=KV_HEADS,
        )
    ]
    graph = helper.make_graph(
        nodes,
        "decoder",
        [
            helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), size)
            for name, size in sizes.items()
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in ("y", "keys", "values")
        ],
        [numpy_helper.from_array(np.array(8, np.int32), "total")],
    )
    sets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


@pytest.mark.parametrize(
    ("case", "error"),
    [
        (Case("RotaryEmbedding", [f32(2, 3, 32), i32(2), *TABLES], {"scale": 2.0}), UnsupportedOp),
        (Case("SkipLayerNormalization", [f32(2, 3), f32(4, 3), f32(3)]), ShapeMismatch),
        (Case("MultiHeadAttention", [f32(2, 3, 7)] * 3, {"num_heads": 2}), ShapeMismatch),
        (
            Case("MatMulNBits", [f32(2, 64), u8(8, 2, 15), f32(16)], {"K": 64, "N": 8}),
            ShapeMismatch,
        ),
    ],
    ids=lambda value: value.op if isinstance(value, Case) else "",
)
def test_forms_that_make_no_sense_are_refused(
    tmp_path: Path, case: Case, error: type[Exception]
) -> None:
    with pytest.raises(error, match=case.op):
        ap.load(case.model(tmp_path).path)


@pytest.mark.parametrize("op", ["RotaryEmbedding", "EmbedLayerNormalization", "MultiHeadAttention"])
def test_absurd_sizes_cost_nothing(op: str) -> None:
    from onnx import TensorProto

    long, info = 1 << 34, helper.make_tensor_value_info
    integers, real = TensorProto.INT32, TensorProto.FLOAT
    inputs = {
        "RotaryEmbedding": [(1, long, 32), [1], (16, 8), (16, 8)],
        "EmbedLayerNormalization": [[long, 3], [long, 3], (9, 16), (9, 16), (2, 16), (16,), (16,)],
        "MultiHeadAttention": [(1, 3, 16), (1, long, 16), (1, long, 16), None, [1]],
    }[op]
    given = [
        info(f"in{at}", integers if isinstance(shape, list) else real, shape)
        for at, shape in enumerate(inputs)
        if shape is not None
    ]
    names = ["" if shape is None else f"in{at}" for at, shape in enumerate(inputs)]
    node = helper.make_node(op, names, ["y"], domain=MICROSOFT, num_heads=2)
    outputs = [info("y", real, None)]
    sets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    graph = helper.make_graph([node], "g", given, outputs)
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    with pytest.raises(ap.PlannerError):
        ap.plan(ap.load(model.SerializeToString()), budget="1MiB")
