"""Shape rules for attention."""

from __future__ import annotations

from collections.abc import Sequence

from arenaplan.base.errors import InvalidAttribute, InvalidOperand, ShapeMismatch
from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.op import OnnxOperand, Op
from arenaplan.graph.ops import Shape


def attention(op: Op) -> Sequence[Result]:
    """The mean of values, all keys and values, and the scores."""
    op.flags("is_causal")
    if op.integer("qk_matmul_output_mode", 0) not in range(4):
        raise op.error(InvalidAttribute, "qk_matmul_output_mode is out of range")
    query, key, value = op.input(0), op.input(1), op.input(2)
    batch, heads, rows, width = _four(op, query, "q_num_heads")
    _, kv_heads, fresh, key_width = _four(op, key, "kv_num_heads")
    others = _four(op, value, "kv_num_heads")
    if (batch, kv_heads, fresh) != others[:3] or key.shape[0] != batch or width != key_width:
        raise op.error(
            ShapeMismatch,
            f"queries {query.shape}, keys {key.shape} and values {value.shape} do not fit",
        )
    if kv_heads < 1 or heads % kv_heads:
        raise op.error(ShapeMismatch, f"{heads} heads share {kv_heads} heads of keys")
    past = [op.optional(position) for position in (4, 5)]
    if (past[0] is None) != (past[1] is None):
        raise op.error(InvalidOperand, "past_key and past_value come together or not at all")
    total = fresh
    if past[0] is not None and past[1] is not None:
        lengths = [each.shape[2] for each in past if each is not None and len(each.shape) == 4]
        length = lengths[0] if lengths else 0
        wanted = [(batch, kv_heads, length, size) for size in (key_width, others[3])]
        if [past[0].shape, past[1].shape] != wanted:
            shapes = f"{past[0].shape} and {past[1].shape}"
            raise op.error(ShapeMismatch, f"a past of shapes {shapes}, not {wanted}")
        total += length
    made: Shape = (batch, heads, rows, others[3])
    if len(query.shape) == 3:
        made = (batch, rows, heads * others[3])
    return (
        (made, query.dtype),
        ((batch, kv_heads, total, key_width), key.dtype),
        ((batch, kv_heads, total, others[3]), value.dtype),
        ((batch, heads, rows, total), query.dtype),
    )


def _four(op: Op, operand: OnnxOperand, heads: str) -> Shape:
    """Return a query's, key's or value's batch, heads, length and width."""
    shape = operand.shape
    if len(shape) == 4:
        return shape
    count = op.integer(heads, 0)
    if len(shape) != 3 or count < 1 or shape[2] % count:
        raise op.error(InvalidAttribute, f"{heads} is {count} for an operand of shape {shape}")
    return shape[0], count, shape[1], shape[2] // count
