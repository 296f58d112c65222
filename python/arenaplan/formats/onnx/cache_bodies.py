"""Caches for GroupQueryAttention: written in place, cut to a window, stored as small integers."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

from arenaplan.base.errors import InvalidOperand, ShapeMismatch
from arenaplan.formats.onnx.operator_body import BodyBuilder
from arenaplan.graph.ops.own_ops import TRAINING


def evicts(body: BodyBuilder) -> bool:
    """Whether old entries may have to leave a cache that is as long as a window, or longer."""
    if not body.op.integer("sliding_window_cache", 0) or not body.name(3):
        return False
    total = body.op.input(6)
    return not total.is_fixed or int(body.op.scalar(6)) > body.dims(3, 4)[2]


def windowed(
    body: BodyBuilder, new: Sequence[str], starts: str, fresh: str
) -> tuple[str, list[str], list[str]]:
    """Return lengths, and keys and values for attention and as caches that drop old entries."""
    op = body.op
    body.refuse_inputs(10)
    rows, room = op.input(0).shape[1], body.dims(3, 4)[2]
    spare = room - op.integer("local_window_size", -1) + 1
    if not 0 < spare <= room:
        raise op.error(ShapeMismatch, f"a cache of {room} entries is shorter than the window")

    def kept(count: str) -> str:
        """Return the number of cache entries after a number of tokens."""
        over = body("Max", body("Sub", count, body.constant([room])), body.constant([0]))
        parts = body("Div", body("Add", over, body.constant([spare - 1])), body.constant([spare]))
        return body("Sub", count, body("Mul", parts, body.constant([spare])))

    old = kept(starts)
    known = body("Add", old, fresh)
    first = body("Sub", known, kept(body("Add", starts, fresh)))
    length = body("Add", old, body.constant([rows]))
    if rows == 1:
        count = body("Sub", old, first)
        caches = [
            body("SlideCache", body.name(3 + at), first, count, each, domain=TRAINING)
            for at, each in enumerate(new)
        ]
        return body("Sub", length, first), caches, caches
    # A prompt's rows see entries that leave before the prompt's end.
    ends, count = body.constant([0, 0, 0, 0, 0, 0, rows, 0]), body("Sub", known, first)
    keys = [
        body("TensorScatter", body("Pad", body.name(3 + at), ends), each, old)
        for at, each in enumerate(new)
    ]
    cuts = [body.constant([end]) for end in (0, room, 2)]
    moved = [body("SlideCache", name, first, count, domain=TRAINING) for name in keys]
    return length, keys, [body("Slice", name, *cuts) for name in moved]


def cached(body: BodyBuilder, position: int, new: str, starts: str) -> str:
    """Return a cache with new entries, in place of the old cache if long enough."""
    old = body.name(position)
    if not old:
        return new
    rows, past = body.op.input(0).shape[1], body.dims(position, 4)[2]
    has_window = body.op.integer("sliding_window_cache", 0)
    is_known = body.op.input(6).is_fixed and not has_window
    total = int(body.op.scalar(6)) if is_known else past
    if past == 0 and total == rows:
        return new
    if total > past:
        old = body("Pad", old, body.constant([0, 0, 0, 0, 0, 0, total - past, 0]))
    return body("TensorScatter", old, new, starts)


# -- small integers -------------------------------------------------------------------------------


def _bits(body: BodyBuilder, at: int) -> int:
    """Return the element bits of the key or value cache; 0 for floats."""
    op, part = body.op, "kv"[at]
    kind = op.text(f"{part}_quant_type", "NONE")
    if kind == "NONE":
        body.refuse_inputs(12 + at)
        return 0
    bits, old = op.integer("kv_cache_bit_width", 8), op.optional(3 + at)
    wanted = {4: "uint8", 8: "int8"}.get(bits)
    if kind not in ("PER_TENSOR", "PER_CHANNEL") or old is None or old.dtype != wanted:
        held = "none" if old is None else old.dtype
        raise op.error(
            InvalidOperand,
            f"a cache of {bits} bits per element, scaled {kind}, that holds {held}; int8 has 8 and "
            "uint8 twice 4 bits, PER_TENSOR or PER_CHANNEL",
        )
    return bits


def narrowed(body: BodyBuilder, at: int, new: str) -> str:
    """Return new keys or values in cache form: rounded multiples of a scale."""
    bits = _bits(body, at)
    if not bits:
        return new
    real = body("Div", body("Cast", new, to=TensorProto.FLOAT), body.name(12 + at))
    limits = [body.constant(end, "float32") for end in (-(1 << bits - 1), (1 << bits - 1) - 1)]
    whole = body("Clip", body("Round", real), *limits)
    if bits == 8:
        return body("Cast", whole, to=TensorProto.INT8)
    # Elements with even numbers are in a byte's low half; zero is 8.
    batch, heads, _, half = body.dims(3 + at, 4)
    whole = body("Add", whole, body.constant(8, "float32"))
    pairs = body.reshape(body("Cast", whole, to=TensorProto.UINT8), batch, heads, -1, half, 2)
    low, high = body.split(pairs, 4, 1, 1)
    high = body("BitShift", high, body.constant(4, "uint8"), direction="LEFT")
    return body.reshape(body("BitwiseOr", low, high), batch, heads, -1, half)


def widened(body: BodyBuilder, at: int, cache: str, width: int) -> str:
    """Return keys or values in a cache as numbers for attention."""
    bits = _bits(body, at)
    if not bits:
        return cache
    if bits == 4:
        batch, heads = body.dims(3 + at, 4)[:2]
        cache = unpacked(body, cache, bits, [batch, heads, -1, width])
    real = body("Cast", cache, to=TensorProto.FLOAT)
    if bits == 4:
        real = body("Sub", real, body.constant(8, "float32"))
    return body("CastLike", body("Mul", real, body.name(12 + at)), body.name(0))


def unpacked(body: BodyBuilder, packed: str, bits: int, shape: Sequence[int]) -> str:
    """Return bytes whose parts along the last axis are elements, the lowest bits first, apart."""
    last, mask, parts = body.constant([len(shape)]), body.constant((1 << bits) - 1, "uint8"), []
    for shift in range(0, 8, bits):
        by = body.constant(shift, "uint8")
        part = body("BitShift", packed, by, direction="RIGHT") if shift else packed
        part = body("BitwiseAnd", part, mask) if shift + bits < 8 else part
        parts.append(body("Unsqueeze", part, last))
    return body.reshape(body("Concat", *parts, axis=len(shape)), *shape)
