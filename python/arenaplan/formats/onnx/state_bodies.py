"""ONNX Runtime operators for layers with a fixed-size state as past, as functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onnx import FunctionProto, TensorProto

from arenaplan.base.errors import InvalidAttribute, ShapeMismatch
from arenaplan.formats.onnx.operator_body import BodyBuilder, Write
from arenaplan.graph.ops.own_ops import TRAINING

_ACTIVATIONS: Final[Mapping[str, Sequence[str]]] = {
    "none": (),
    "sigmoid": ("Sigmoid",),
    "silu": ("Swish",),
    "swish": ("Swish",),
}
_SWAPPED: Final = (0, 2, 1)
"""Dimension order with the last two swapped."""


def _activated(body: BodyBuilder, name: str, default: str) -> str:
    """Return the name of a value after the activation given by an attribute."""
    kind = body.op.text("activation", default)
    if kind not in _ACTIVATIONS:
        raise body.op.error(InvalidAttribute, f"activation {kind!r} is not in {[*_ACTIVATIONS]}")
    for operator in _ACTIVATIONS[kind]:
        name = body(operator, name)
    return name


def _causal_convolution(body: BodyBuilder) -> FunctionProto:
    """A convolution per channel that reads the current and earlier elements."""
    op = body.op
    body.refuse_attributes(
        ndim=1, state_window=0, state_length=0, state_update_capacity=0, state_channels_last=-1
    )
    body.refuse_attributes(input_channels=0, input_channel_offset=0)
    dilation, is_last = op.integer("dilation", 1), op.flag("channels_last")
    channels, _, kernel = body.dims(1, 3)
    known = (kernel - 1) * dilation
    shape = body.operand(0).shape
    past, x = body.name(3), body.name(0)
    if is_last:
        x = body("Transpose", body.reshape(x, *shape[:2], channels), perm=_SWAPPED)
        if past:
            past = body("Transpose", body.reshape(past, shape[0], known, channels), perm=_SWAPPED)
    length, fresh = shape[1] if is_last else body.dims(0, 3)[2], x
    if past:
        x = body("Concat", past, x, axis=2)
    else:
        x = body("Pad", x, body.constant([0, 0, known, 0, 0, 0]))
    weights = [body.name(1), body.name(2)] if body.name(2) else [body.name(1)]
    y = body("Conv", x, *weights, group=channels, dilations=[dilation], kernel_shape=[kernel])
    y = _activated(body, y, "none")
    if past and length <= known:
        moves = [body.constant([count] * shape[0]) for count in (length, known - length)]
        present = body("SlideCache", past, *moves, fresh, domain=TRAINING)
    else:
        ends = [body.constant([end]) for end in (length, length + known, 2)]
        present = body("Slice", x, *ends)
    if is_last:
        y = body.reshape(body("Transpose", y, perm=_SWAPPED), *shape)
        present = body("Transpose", present, perm=_SWAPPED)
        present = body.reshape(present, shape[0], known, *shape[2:])
    return body.function(y, present)


def _linear_attention(body: BodyBuilder) -> FunctionProto:
    """The standard operator; value heads may share queries and keys, too."""
    op = body.op
    body.refuse_attributes(state_window=0)
    queries, heads = op.integer("q_num_heads"), op.integer("kv_num_heads")
    names = [body.name(position) for position in range(6)]
    batch, tokens, width = body.dims(0, 3)
    if queries < 1 or heads < 1 or width % queries or max(queries, heads) % min(queries, heads):
        raise op.error(ShapeMismatch, f"{queries} heads of {width} elements, {heads} of values")
    keys = width // queries
    for at in (0, 1):
        count = body.dims(at, 3)[2] // keys
        if count < heads:
            apart = body.reshape(names[at], batch, tokens, count, 1, keys)
            shape = body.constant([batch, tokens, count, heads // max(count, 1), keys])
            names[at] = body.reshape(body("Expand", apart, shape), batch, tokens, heads * keys)
    attributes: dict[str, Any] = {
        "q_num_heads": max(queries, heads),
        "kv_num_heads": heads,
        "update_rule": op.text("update_rule", "gated_delta"),
    }
    if scale := body.number("scale", 0.0):
        attributes["scale"] = scale
    return body.function(*body.several("LinearAttention", names, 2, **attributes))


def _gates(body: BodyBuilder) -> FunctionProto:
    """The logarithms of decays, in single precision, and the update rates."""
    wide = body("Cast", body.name(0), to=TensorProto.FLOAT)
    decay = body("Softplus", body("Add", wide, body.name(1)))
    decay = body("CastLike", body("Mul", decay, body.name(2)), body.name(0))
    return body.function(decay, body("Sigmoid", body.name(3)) if body.name(3) else "")


def _gated_norm(body: BodyBuilder) -> FunctionProto:
    """Parts as long as the scale are normalized, and multiplied by an activation."""
    shape, (width,) = body.operand(0).shape, body.dims(1, 1)
    if width < 1 or shape[-1] % width:
        raise body.op.error(ShapeMismatch, f"shape {shape} for {width} elements of a scale")
    apart = body.reshape(body.name(0), *shape[:-1], shape[-1] // width, width)
    y = body("RMSNormalization", apart, body.name(1), epsilon=body.number("epsilon", 1e-5))
    gate = _activated(body, body.name(2), "silu")
    return body.function(body("Mul", body.reshape(y, *shape), gate))


def _gated_add(body: BodyBuilder) -> FunctionProto:
    body.refuse_inputs(3)
    return body.function(body("Add", body.name(0), body("Mul", body.name(1), body.name(2))))


STATE_BODIES: Final[Mapping[str, Write]] = {
    "CausalConvWithState": _causal_convolution,
    "GatedAdd": _gated_add,
    "GatedRMSNorm": _gated_norm,
    "LinearAttention": _linear_attention,
    "LinearAttentionGate": _gates,
}
"""How to write an ONNX Runtime operator's function, by name."""
