"""
ONNX Runtime's operators, as functions of standard operators.

Optimizers, quantizers and language model builders write these operators. The package ``onnx`` does
not define them; the functions follow ONNX Runtime (``ContribOperators.md``). TensorScatter, which
may write in place, writes caches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np
from onnx import FunctionProto, TensorProto, helper, numpy_helper

from arenaplan.base.errors import InvalidAttribute, InvalidOperand, ShapeMismatch
from arenaplan.formats.onnx.cache_bodies import (
    cached,
    evicts,
    narrowed,
    unpacked,
    widened,
    windowed,
)
from arenaplan.formats.onnx.fused_bodies import FUSED_BODIES
from arenaplan.formats.onnx.op import Op
from arenaplan.formats.onnx.operator_body import BodyBuilder, Write
from arenaplan.formats.onnx.rules.contrib_rules import MICROSOFT
from arenaplan.formats.onnx.standard_bodies import STANDARD_BODIES
from arenaplan.formats.onnx.state_bodies import STATE_BODIES
from arenaplan.formats.onnx.tensors import numpy_dtype
from arenaplan.graph.ops.own_ops import SINKS

_PADDING: Final = -10000.0
"""Added to padding scores, unless the node gives another number."""


# -- activations and normalizations ---------------------------------------------------------------


def _biased(kind: str, **attributes: Any) -> Write:
    """Return an activation of input 0, plus input 1 if present."""

    def write(body: BodyBuilder) -> FunctionProto:
        x = body.name(0)
        if body.name(1):
            x = body("Add", x, body.name(1))
        return body.function(body(kind, x, **attributes))

    return write


def _quick_gelu(body: BodyBuilder) -> FunctionProto:
    return body.function(body("Swish", body.name(0), alpha=body.number("alpha", 1.702)))


def _alike(body: BodyBuilder) -> FunctionProto:
    """Return the standard operator with the same name, inputs and attributes."""
    op = body.op
    inputs = [body.name(position) for position in range(len(op.inputs))]
    return body.function(*body.several(op.type, inputs, len(op.outputs), **op.attributes))


def _expand_dims(body: BodyBuilder) -> FunctionProto:
    return body.function(body("Unsqueeze", body.name(0), body.reshape(body.name(1), 1)))


def _channels_last(kind: str, *more: int, **usual: Any) -> Write:
    """Return an operator on images with channels last, for a kernel with channels first."""

    def write(body: BodyBuilder) -> FunctionProto:
        weights = [body.name(at) for at in more]
        return body.function(_channels_first(body, kind, [body.name(0), *weights], **usual))

    return write


def _channels_first(body: BodyBuilder, kind: str, inputs: Sequence[str], **usual: Any) -> str:
    """Return the result of an operator with channels first, for images with channels last."""
    rank = len(body.operand(0).shape)
    attributes = {**usual, **body.op.attributes}
    is_last = attributes.pop("channels_last", 1)
    activation = attributes.pop("activation", 0)
    if "groups" in attributes:
        attributes["num_groups"] = attributes.pop("groups")
    x, *weights = inputs
    order = [0, rank - 1, *range(1, rank - 1)]
    if is_last:
        x = body("Transpose", x, perm=order)
    if kind == "Conv":
        weights[0] = body("Transpose", weights[0], perm=order)
    y = body(kind, x, *weights, **attributes)
    if activation:
        y = body("Swish", y)
    if is_last:
        y = body("Transpose", y, perm=[0, *range(2, rank), 1])
    return y


def _skip_group_norm(body: BodyBuilder) -> FunctionProto:
    """Normalize a sum, with an optional bias; the sum may also be a result."""
    space = len(body.operand(0).shape) - 2
    behind = 0 if body.op.integer("channels_last", 1) else space
    skip, bias = body.name(3), body.name(4)
    if len(body.op.input(3).shape) == 2:
        first = 2 if behind else 1
        skip = body("Unsqueeze", skip, body.constant([*range(first, first + space)]))
    total = body("Add", body.name(0), skip)
    if bias:
        total = body("Add", total, body.reshape(bias, -1, *[1] * behind))
    inputs = [total, body.name(1), body.name(2)]
    return body.function(_channels_first(body, "GroupNormalization", inputs, epsilon=1e-5), total)


def _split_gelu(body: BodyBuilder) -> FunctionProto:
    """Multiply half of a sum by the activation of the other half."""
    width = body.operand(0).shape[-1]
    if width % 2:
        raise body.op.error(ShapeMismatch, f"{width} elements have no halves")
    left, right = body.split(body("Add", body.name(0), body.name(1)), -1, width // 2, width // 2)
    return body.function(body("Mul", left, body("Gelu", right)))


def _bias_add(body: BodyBuilder) -> FunctionProto:
    return body.function(body("Add", body("Add", body.name(0), body.name(1)), body.name(2)))


def _rms_norm(body: BodyBuilder) -> FunctionProto:
    epsilon, axis = body.number("epsilon", 1e-5), body.op.integer("axis", -1)
    y = body("RMSNormalization", body.name(0), body.name(1), axis=axis, epsilon=epsilon)
    return body.function(y, "")


def _skip_norm(body: BodyBuilder) -> FunctionProto:
    """Normalize a sum, with an optional bias; the sum may also be a result."""
    is_simplified = body.op.type == "SkipSimplifiedLayerNormalization"
    scale, shift, bias = body.name(2), "" if is_simplified else body.name(3), body.name(4)
    if is_simplified:
        bias = body.name(3)
    total = body("Add", body.name(0), body.name(1))
    if bias:
        total = body("Add", total, bias)
    epsilon = body.number("epsilon", 1e-12)
    if is_simplified:
        y = body("RMSNormalization", total, scale, epsilon=epsilon)
        return body.function(y, "", "", total)
    inputs = [total, scale, shift] if shift else [total, scale]
    count = 3 if body.wants(1) or body.wants(2) else 1
    made = body.several("LayerNormalization", inputs, count, epsilon=epsilon)
    return body.function(*made, *[""] * (3 - count), total)


def _embed_norm(body: BodyBuilder) -> FunctionProto:
    """Add and normalize rows from two or three tables."""
    batch, length = body.dims(0, 2)
    positions = body.name(3)
    if body.name(8):
        positions = body("Gather", positions, body.name(8))
    else:
        ends = [body.constant([end]) for end in (0, length, 0)]
        positions = body("Slice", positions, *ends)
    total = body("Add", body("Gather", body.name(2), body.name(0)), positions)
    if body.name(1):
        total = body("Add", total, body("Gather", body.name(4), body.name(1)))
    scaled = [total, body.name(5), body.name(6)]
    y = body("LayerNormalization", *scaled, epsilon=body.number("epsilon", 1e-12))
    lengths = ""
    if body.wants(1):
        if body.name(7):
            axes = body.constant([1])
            lengths = body("ReduceSum", body.name(7), axes, keepdims=0)
        else:
            zero = numpy_helper.from_array(np.zeros(1, np.int32))
            lengths = body("ConstantOfShape", body.constant([batch]), value=zero)
    return body.function(y, lengths, total)


def _gather_blocks(body: BodyBuilder) -> FunctionProto:
    """Gather elements, which may share bytes, and widen the elements."""
    op, data, index = body.op, body.op.input(0), body.op.input(1).shape
    rank, width = len(data.shape), op.input(2).shape
    axis = op.axis(op.integer("gather_axis", 0), rank)
    blocked = op.axis(op.integer("quantize_axis", 1), rank)
    if blocked == axis:
        raise op.error(InvalidAttribute, f"blocks and rows are both along axis {blocked}")
    bits = op.integer("bits", 4) if data.dtype == "uint8" else 0
    length = op.integer("block_size", 128)
    if bits not in (0, 2, 4, 8) or length < 1:
        raise op.error(InvalidAttribute, f"it has blocks of {length} elements with {bits} bits")
    wanted = [*data.shape[:-1], data.shape[-1] * (8 // (bits or 8))]
    wanted[blocked] = -(-wanted[blocked] // length)
    if wanted != [*width]:
        raise op.error(ShapeMismatch, f"scales of shape {width}, not {tuple(wanted)}")

    def gathered(at: int) -> str:
        part, known = body("Gather", body.name(at), body.name(1), axis=axis), op.input(at).shape
        if bits not in (2, 4) or at == 2:
            return part
        shape = [*known[:axis], *index, *known[axis + 1 : -1], known[-1] * 8 // bits]
        part = unpacked(body, part, bits, shape)
        if at == 0:
            return part
        ends = [0], [width[-1]], [len(shape) - 1]
        return body("Slice", part, *map(body.constant, ends))

    scales = gathered(2)
    zeros = gathered(3) if body.name(3) else ""
    if bits and not zeros:
        zeros = body("Expand", body.constant(1 << bits - 1, "uint8"), body("Shape", scales))
    at = blocked if blocked < axis else blocked + len(index) - 1
    parts = gathered(0), scales, zeros
    return body.function(body("DequantizeLinear", *parts, axis=at, block_size=length))


# -- attention ------------------------------------------------------------------------------------


def _heads(body: BodyBuilder, name: str, default: int | None = None) -> int:
    """Return a number of heads."""
    count = body.op.integer(name, default)
    if count < 1:
        raise body.op.error(InvalidAttribute, f"{name} is {count}")
    return count


def _width(body: BodyBuilder, hidden: int, heads: int) -> int:
    """Return a head's width."""
    if hidden % heads:
        raise body.op.error(ShapeMismatch, f"{heads} heads of {hidden} elements")
    return hidden // heads


def _positions(body: BodyBuilder, name: str, batch: int, length: int, *, are_first: bool) -> str:
    """Return all elements' positions, where each row's first position may be given."""
    if not are_first:
        return name
    moved = body("Add", body.reshape(name, -1, 1), body.steps(length))
    return body("Expand", moved, body.constant([batch, length]))


def _rotary(body: BodyBuilder) -> FunctionProto:
    """Rotate; positions are given for all tokens, or for the first."""
    op = body.op
    body.refuse_attributes(scale=1.0, is_packed_batching=0)
    x, positions, pairs = op.input(0).shape, op.input(1).shape, body.dims(2, 2)[1]
    attributes: dict[str, Any] = {"interleaved": op.integer("interleaved", 0)}
    if rotated := op.integer("rotary_embedding_dim", 0):
        attributes["rotary_embedding_dim"] = rotated
    if len(x) == 3:
        batch, length, hidden = x
        heads = op.integer("num_heads", 0)
        attributes["num_heads"] = heads or max(hidden // max(2 * pairs, 1), 1)
    elif len(x) == 4:
        batch, _, length, _ = x
    else:
        raise op.error(ShapeMismatch, f"input 0 has shape {x}")
    are_first = prod(positions) == 1 and op.type == "RotaryEmbedding"
    at = _positions(body, body.name(1), batch, length, are_first=are_first)
    tables = [body.name(2), body.name(3)]
    if op.type == "MRotaryEmbedding":
        tables, at = [_by_section(body, table) for table in tables], ""
    return body.function(body("RotaryEmbedding", body.name(0), *tables, at, **attributes))


def _by_section(body: BodyBuilder, table: str) -> str:
    """Return a table row per token, in which each column belongs to one of three positions."""
    op = body.op
    (_, batch, length), pairs = body.dims(1, 3), body.dims(2, 2)[1]
    sections = op.integers("mrope_section") or ()
    if len(sections) != 3 or sum(sections) != pairs or min(sections) < 0:
        raise op.error(InvalidAttribute, f"mrope_section {sections} for {pairs} columns")
    column = np.arange(pairs)
    if op.integer("mrope_layout", 0):
        stream = np.zeros(pairs, int)
        for at in (1, 2):
            stream[(column % 3 == at) & (column < 3 * sections[at])] = at
    else:
        stream = np.repeat(np.arange(3), sections)
    parts = body.split(body("Gather", table, body.name(1)), 0, 1, 1, 1)
    chosen, *others = (body.reshape(part, batch, length, pairs) for part in parts)
    for at, other in enumerate(others, 1):
        chosen = body("Where", body.constant(stream == at, "bool"), other, chosen)
    return chosen


def _padding(body: BodyBuilder, position: int, batch: int, rows: int, keys: int, dtype: str) -> str:
    """Return the score addend for a padding mask; empty without a mask."""
    mask = body.op.optional(position)
    if mask is None:
        return ""
    if "float" not in dtype:
        raise body.op.error(InvalidOperand, f"its data holds {dtype}")
    name, shape = body.name(position), mask.shape
    if shape in ((batch,), (2 * batch,)):
        # Trailing padding keys, and leading keys that are not padding.
        places = body.steps(keys, mask.dtype)
        ends = body.reshape(name, -1, batch, 1, 1, 1)
        parts = body.split(ends, 0, *[1] * (shape[0] // batch))
        seen = body("Less", places, body.reshape(parts[0], batch, 1, 1, 1))
        for start in parts[1:]:
            inside = body("GreaterOrEqual", places, body.reshape(start, batch, 1, 1, 1))
            seen = body("And", seen, inside)
    elif shape == (batch, keys):
        zero = body.constant(0, mask.dtype)
        seen = body("Greater", body.reshape(name, batch, 1, 1, keys), zero)
    elif shape == (batch, rows, keys):
        zero = body.constant(0, mask.dtype)
        seen = body("Greater", body.reshape(name, batch, 1, rows, keys), zero)
    else:
        raise body.op.error(
            InvalidOperand,
            f"a mask of shape {shape} for a batch of {batch}, {rows} rows and {keys} keys",
        )
    least = float(np.finfo(numpy_dtype(dtype)).min)
    hidden = body.constant(max(body.number("mask_filter_value", _PADDING), least), dtype)
    return body("Where", seen, body.constant(0, dtype), hidden)


def _relative_bias(body: BodyBuilder) -> FunctionProto:
    """
    Look up a table row per distance between key and query, for all heads.

    Near distances have a row each; far distances share rows, by logarithm.
    """
    op = body.op
    is_two_sided, farthest = op.flag("is_bidirectional"), op.integer("max_distance")
    queries, keys = int(op.scalar(1)), int(op.scalar(2))
    rows = body.dims(0, 2)[0] // (2 if is_two_sided else 1)
    near = rows // 2
    if not 0 < near < farthest or queries < 1 or keys < 1:
        raise op.error(
            InvalidAttribute, f"max_distance {farthest} for {rows} rows, {queries} by {keys}"
        )
    ahead = body("Sub", body.steps(keys), body.reshape(body.steps(queries), queries, 1))
    behind = body("Neg", ahead)
    zero = body.constant(0)
    distance = body("Abs", ahead) if is_two_sided else body("Max", behind, zero)
    real = body("Cast", body("Max", distance, body.constant(near)), to=TensorProto.FLOAT)
    ratio = body("Log", body("Div", real, body.constant(near, "float32")))
    factor = body.constant((rows - near) / np.log(farthest / near), "float32")
    far = body("Cast", body("Mul", ratio, factor), to=TensorProto.INT64)
    far = body("Min", body("Add", far, body.constant(near)), body.constant(rows - 1))
    row = body("Where", body("Less", distance, body.constant(near)), distance, far)
    if is_two_sided:
        shift = body("Where", body("Greater", ahead, zero), body.constant(rows), zero)
        row = body("Add", row, shift)
    apart = body("Transpose", body("Gather", body.name(0), row), perm=[2, 0, 1])
    return body.function(body("Unsqueeze", apart, body.constant([0])))


def _added(body: BodyBuilder, first: str, second: str) -> str:
    """Return the sum of two optional values."""
    return body("Add", first, second) if first and second else first or second


def _attend(
    body: BodyBuilder,
    operands: Sequence[str],
    heads: tuple[int, int],
    outputs: int,
    **attributes: Any,
) -> list[str]:
    """Return attention's results."""
    scale = body.number("scale", 0.0)
    if scale:
        attributes["scale"] = scale
    attributes |= {"q_num_heads": heads[0], "kv_num_heads": heads[1]}
    domain = SINKS if len(operands) > _SINKS else ""
    return body.several("Attention", operands, outputs, domain=domain, **attributes)


_SINKS: Final = 7
"""Position of scores without a value, among attention operands."""


def _multi_head(body: BodyBuilder) -> FunctionProto:
    """Queries, keys and values may share an array, and keys may be another sequence's cache."""
    op = body.op
    body.refuse_inputs(8, 9)
    heads = _heads(body, "num_heads")
    q, k, v = (body.name(position) for position in range(3))
    query = body.operand(0)
    if len(query.shape) not in (3, 5):
        raise op.error(ShapeMismatch, f"input 0 has shape {query.shape}")
    batch, rows = query.shape[:2]
    if len(query.shape) == 5:
        hidden = heads * query.shape[4]
        parts = body.split(q, 3, 1, 1, 1)
        q, k, v = (body.reshape(part, batch, rows, hidden) for part in parts)
        keys, width, value_width = rows, query.shape[4], query.shape[4]
    else:
        hidden = body.dims(0, 3)[2]
        width = value_width = _width(body, hidden, heads)
        key = body.operand(1).shape
        if len(key) == 5:
            keys = key[1]
            parts = body.split(k, 3, 1, 1)
            k, v = (body.reshape(part, batch, keys, heads * key[4]) for part in parts)
        elif len(key) == 4:
            keys, value_width = key[2], body.dims(2, 4)[3]
        else:
            keys = body.dims(1, 3)[1]
            value_width = _width(body, body.dims(2, 3)[2], heads)
    if body.name(3):
        is_cached = len(query.shape) == 3 and len(body.operand(1).shape) == 4
        sizes = [heads * width, heads * width, heads * value_width]
        biases = body.split(body.name(3), 0, *sizes)
        q = body("Add", q, biases[0])
        if not is_cached:
            k, v = body("Add", k, biases[1]), body("Add", v, biases[2])
    past = op.optional(6)
    total = keys + (0 if past is None else body.dims(6, 4)[2])
    mask = _added(body, _padding(body, 4, batch, rows, total, query.dtype), body.name(5))
    made = _attend(
        body,
        [q, k, v, mask, body.name(6), body.name(7)],
        (heads, heads),
        3 if body.wants(1) or body.wants(2) else 1,
        is_causal=op.integer("unidirectional", 0),
    )
    return body.function(*made)


def _attention(body: BodyBuilder) -> FunctionProto:
    """Queries, keys and values are products with parts of one matrix."""
    op = body.op
    body.refuse_inputs(6)
    columns = body.dims(1, 2)[1]
    sizes = op.integers("qkv_hidden_sizes") or (columns // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != columns:
        raise op.error(InvalidAttribute, f"qkv_hidden_sizes {sizes} for {columns} columns")
    weights = body.split(body.name(1), 1, *sizes)
    parts = [body("MatMul", body.name(0), weight) for weight in weights]
    if body.name(2):
        biases = body.split(body.name(2), 0, *sizes)
        parts = [body("Add", part, bias) for part, bias in zip(parts, biases, strict=True)]
    return _attended(body, parts, op.input(0).dtype, 3, 4, body.name(5))


def _whole_attention(body: BodyBuilder) -> FunctionProto:
    """Queries, keys and values are parts of an integer product."""
    columns = body.dims(1, 2)[1]
    if columns % 3:
        raise body.op.error(ShapeMismatch, f"{columns} columns have no thirds")
    zeros = [body.name(6), body.name(7)] if body.name(7) else [body.name(6)]
    sums = body("MatMulInteger", body.name(0), body.name(1), *zeros)
    scale = body("Mul", body.name(3), body.name(4))
    real = body("Mul", body("CastLike", sums, body.name(2)), scale)
    parts = body.split(body("Add", real, body.name(2)), 2, *[columns // 3] * 3)
    return _attended(body, parts, body.op.input(2).dtype, 5, 8, "")


def _attended(
    body: BodyBuilder, parts: Sequence[str], dtype: str, mask_at: int, past_at: int, bias: str
) -> FunctionProto:
    """Return attention of queries on keys and values, appended to an optional past."""
    op = body.op
    body.refuse_attributes(do_rotary=0, past_present_share_buffer=0)
    heads = _heads(body, "num_heads")
    batch, rows, _ = body.dims(0, 3)
    total, past = rows, ["", ""]
    if body.name(past_at):
        _, _, _, length, width = shape = body.dims(past_at, 5)
        total += length
        each = body.split(body.name(past_at), 0, 1, 1)
        past = [body.reshape(part, *shape[1:4], width) for part in each]
    mask = _padding(body, mask_at, batch, rows, total, dtype)
    made = _attend(
        body,
        [*parts, _added(body, mask, bias), *past],
        (heads, heads),
        3 if body.wants(1) else 1,
        is_causal=op.integer("unidirectional", 0),
    )
    if len(made) == 1:
        return body.function(made[0])
    axes = body.constant([0])
    both = [body("Unsqueeze", name, axes) for name in made[1:]]
    return body.function(made[0], body("Concat", *both, axis=0))


def _grouped(body: BodyBuilder) -> FunctionProto:
    """
    Attention whose heads share keys and values, which are written into a cache.

    The cache keeps its length, or grows to the needed length. Each sequence's new entries follow
    its last old entry.
    """
    op = body.op
    body.refuse_attributes(qk_output=0)
    is_causal = op.integer("causal", 1)
    heads, kv_heads = _heads(body, "num_heads"), _heads(body, "kv_num_heads")
    batch, rows, _ = body.dims(0, 3)
    names, width = _unpacked(body, heads, kv_heads)
    last = body("Cast", body.reshape(body.name(5), -1), to=_INT64)
    lengths = body("Add", last, body.constant([1]))
    fresh = body("Min", lengths, body.constant([rows]))
    if body.name(16):
        fresh = body("Cast", body.reshape(body.name(16), -1), to=_INT64)
    starts = body("Sub", lengths, fresh)
    for at, (count, position, epsilon) in enumerate(
        ((heads, 14, "q_norm_epsilon"), (kv_heads, 15, "k_norm_epsilon"))
    ):
        if body.name(position):
            least_square = body.number(epsilon, body.number("qk_norm_epsilon", 1e-6))
            apart = body.reshape(names[at], batch, rows, count, width)
            scaled = body("RMSNormalization", apart, body.name(position), epsilon=least_square)
            names[at] = body.reshape(scaled, batch, rows, count * width)
    if op.integer("do_rotary", 0):
        _turn(body, names, (heads, kv_heads), width, starts, 7)
    new = [_by_head(body, name, kv_heads, width) for name in names[1:]]
    new = [narrowed(body, at, name) for at, name in enumerate(new)]
    if is_causal:
        # Rows after a shorter prompt's end exist, too, but are never read.
        lengths = body("Add", starts, body.constant([rows]))
    if evicts(body):
        lengths, keys, caches = windowed(body, new, starts, fresh)
    else:
        keys = caches = [cached(body, 3 + at, each, starts) for at, each in enumerate(new)]
    keys = [widened(body, at, name, width) for at, name in enumerate(keys)]
    window = op.integer("local_window_size", -1)
    attributes = {"is_causal": is_causal, "softcap": body.number("softcap", 0.0)}
    if window > 0:
        attributes["left_window_size"] = window - 1
    operands = [names[0], *keys, body.name(10), "", "", lengths]
    if sinks := body.name(11):
        operands.append(sinks)
    elif op.integer("smooth_softmax", 0) > 0:
        operands.append(body.constant([0] * heads, op.input(0).dtype))
    (y,) = _attend(body, operands, (heads, kv_heads), 1, **attributes)
    return body.function(y, *caches)


def _unpacked(body: BodyBuilder, heads: int, kv_heads: int) -> tuple[list[str], int]:
    """Return queries, keys and values, which may share an array, and the width of a head."""
    names, hidden = [body.name(position) for position in range(3)], body.dims(0, 3)[2]
    if names[1]:
        return names, _width(body, hidden, heads)
    width = _width(body, hidden, heads + 2 * kv_heads)
    return body.split(names[0], 2, heads * width, kv_heads * width, kv_heads * width), width


def _by_head(body: BodyBuilder, name: str, heads: int, width: int) -> str:
    """Return keys or values with heads before tokens, as in a cache."""
    batch, rows, _ = body.dims(0, 3)
    return body("Transpose", body.reshape(name, batch, rows, heads, width), perm=[0, 2, 1, 3])


def _sparse(body: BodyBuilder) -> FunctionProto:
    """Attention of grouped heads on some blocks of keys; heads take turns with the layouts."""
    op = body.op
    heads, kv_heads = _heads(body, "num_heads"), _heads(body, "kv_num_heads")
    batch, rows, _ = body.dims(0, 3)
    room = body.dims(3, 4)[2]
    names, width = _unpacked(body, heads, kv_heads)
    known = body("Cast", body.reshape(body.name(8), -1), to=_INT64)
    starts = body("Sub", known, body("Min", known, body.constant([rows])))
    if op.integer("do_rotary", 0):
        _turn(body, names, (heads, kv_heads), width, starts, 9)
    new = [_by_head(body, name, kv_heads, width) for name in names[1:]]
    caches = [body("TensorScatter", body.name(3 + at), each, starts) for at, each in enumerate(new)]
    seen, size = _layouts(body), _heads(body, "sparse_block_size")
    if room > seen.shape[1] * size:
        raise op.error(
            ShapeMismatch, f"a cache of {room} entries for {seen.shape[1]} blocks of {size}"
        )
    where = _positions(body, starts, batch, rows, are_first=True)
    queries, keys = (body("Div", place, body.constant(size)) for place in (where, body.steps(room)))
    turns = body.constant(np.arange(heads) % len(seen))
    mask = body.constant(seen, "bool")
    for axis, places in ((1, queries), (3, keys), (0, turns)):
        mask = body("Gather", mask, places, axis=axis)
    operands = [
        *(names[0], *caches, body("Transpose", mask, perm=[1, 0, 2, 3]), "", ""),
        body("Add", starts, body.constant([rows])),
    ]
    (y,) = _attend(body, operands, (heads, kv_heads), 1, is_causal=1)
    return body.function(y, *caches)


_MOST_PAIRS: Final = 1 << 28
"""Most pairs of blocks in all layouts: a file of few bytes may state many blocks."""


def _layouts(body: BodyBuilder) -> np.ndarray:
    """Return for each layout and block of queries the blocks of keys that the queries see."""
    op = body.op
    (count, ends), (also, most) = body.dims(5, 2), body.dims(6, 2)
    rows, columns = op.array(5), op.array(6)
    if count < 1 or ends < 2 or count * ends**2 > _MOST_PAIRS:
        raise op.error(InvalidOperand, f"{count} layouts of {ends - 1} blocks, not a few thousand")
    seen = np.zeros((count, ends - 1, ends - 1), np.bool_)
    steps = np.diff(rows, axis=1)
    fits = count == also and not rows[:, 0].any() and (steps >= 0).all()
    if not fits or (rows[:, -1] > most).any():
        raise op.error(InvalidOperand, "block_row_indices do not count the block_col_indices")
    for layout, (widths, blocks) in enumerate(zip(steps, columns, strict=True)):
        used = blocks[: widths.sum()]
        if (used < 0).any() or (used >= ends - 1).any():
            raise op.error(InvalidOperand, f"block_col_indices are not from 0 to {ends - 2}")
        seen[layout, np.repeat(np.arange(ends - 1), widths), used] = True
    return seen


def _turn(
    body: BodyBuilder, names: list[str], counts: Sequence[int], width: int, starts: str, at: int
) -> None:
    """Rotate queries and keys by position; the tables are input ``at`` and the next."""
    batch, rows = body.op.input(0).shape[:2]
    rotated = 2 * body.dims(at, 2)[1]
    given = body.name(at + 2)
    where = _positions(body, given or starts, batch, rows, are_first=not given)
    attributes: dict[str, Any] = {"interleaved": body.op.integer("rotary_interleaved", 0)}
    if rotated < width:
        attributes["rotary_embedding_dim"] = rotated
    for each, count in enumerate(counts):
        turned = [names[each], body.name(at), body.name(at + 1), where]
        names[each] = body("RotaryEmbedding", *turned, num_heads=count, **attributes)


_INT64: Final = helper.np_dtype_to_tensor_dtype(np.dtype(np.int64))


BODIES: Final[Mapping[str, Mapping[str, Write]]] = {
    **STANDARD_BODIES,
    "": {**STANDARD_BODIES[""], "SimplifiedLayerNormalization": _rms_norm},
    MICROSOFT: {
        **dict.fromkeys(("DequantizeLinear", "QuantizeLinear", "Trilu"), _alike),
        **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip_norm),
        **dict.fromkeys(("BiasGelu", "Gelu"), _biased("Gelu")),
        **FUSED_BODIES,
        **STATE_BODIES,
        "Attention": _attention,
        "BiasAdd": _bias_add,
        "BiasSplitGelu": _split_gelu,
        "EmbedLayerNormalization": _embed_norm,
        "ExpandDims": _expand_dims,
        "FastGelu": _biased("Gelu", approximate="tanh"),
        "GatherBlockQuantized": _gather_blocks,
        "GroupQueryAttention": _grouped,
        "GroupNorm": _channels_last("GroupNormalization", 1, 2, epsilon=1e-5),
        "MultiHeadAttention": _multi_head,
        "NhwcConv": _channels_last("Conv", 1, 2),
        "NhwcMaxPool": _channels_last("MaxPool"),
        "QuickGelu": _quick_gelu,
        "MRotaryEmbedding": _rotary,
        "QAttention": _whole_attention,
        "RelativePositionBias": _relative_bias,
        "RotaryEmbedding": _rotary,
        "SkipGroupNorm": _skip_group_norm,
        "SparseAttention": _sparse,
    },
}
"""How to write an operator's function, by domain and name; ``None`` if not needed."""


def contrib_body(op: Op) -> FunctionProto | None:
    """Return the function for an operator in :data:`BODIES`; ``None`` if not needed."""
    return BODIES[op.domain][op.type](BodyBuilder(op))
