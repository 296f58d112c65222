"""
Scaled dot-product attention, some heads and some score rows at a time.

The scores of all heads are the largest matrix in a transformer. Only the softmax over the rows
needs the scores, so that any number of rows can be done at once: that number is the workspace
choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np

from arenaplan.base.errors import InvalidAttribute, ShapeMismatch
from arenaplan.graph import Choice
from arenaplan.graph.ops.own_ops import SINKS
from arenaplan.run.numpy.kernels.conv_tiles import FLOPS
from arenaplan.run.numpy.kernels.pieces import in_sequence, operand, result, worthwhile
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.registry import Run, Signature, Step, Tensor, scratch_bytes

_TILES = (0, 1 << 17, 1 << 18, 1 << 19, 1 << 20)
"""Workspace sizes to offer, in bytes; the first stands for one row of one head."""
_TILE_CALLS = 2e4
"""Nanoseconds that the calls for one tile take."""
_FLOPS, _PACKING = FLOPS, 22
"""Operations per nanosecond; rows of which the time goes into repacking keys and values."""
_SOFTMAX = 1.0
"""Nanoseconds per score."""

_RAW, _CAPPED, _MASKED, _PROBABILITIES = range(4)
"""Content of the score output."""


@dataclass(frozen=True)
class _Geometry:
    """All sizes in an attention."""

    batch: int
    kv_heads: int
    repeats: int
    """Query heads that share one key and value head."""
    rows: int
    """Query length."""
    fresh: int
    """Keys that are new in this call."""
    past: int
    """Keys from before."""
    width: int
    """Query and key length."""
    value_width: int
    dtype: np.dtype
    has_bool_mask: bool
    keeps_keys: bool
    """Whether present keys and values have no separate memory."""
    has_sinks: bool
    """Whether there is a score per head that has no value."""

    @property
    def keys(self) -> int:
        """Length of a score row."""
        return self.past + self.fresh

    def cache_bytes(self) -> int:
        """Return the workspace for present keys and values that are not outputs."""
        if not self.keeps_keys:
            return 0
        shape = (self.batch, self.kv_heads, self.keys)
        return scratch_bytes((*shape, self.width), self.dtype) + scratch_bytes(
            (*shape, self.value_width), self.dtype
        )

    def bytes(self, heads: int, rows: int) -> int:
        """Return the workspace for some heads and rows."""
        lines = heads * self.repeats * rows
        return (
            scratch_bytes((lines, self.keys), self.dtype)
            + scratch_bytes((lines, self.width), self.dtype)
            + scratch_bytes((lines,), self.dtype) * (2 if self.has_sinks else 1)
            + (scratch_bytes((lines, self.keys), np.bool_) if self.has_bool_mask else 0)
        )

    def tile(self, limit: int) -> tuple[int, int]:
        """Return how many heads and rows fit ``limit`` bytes, at least one of each."""
        heads = limit // self.bytes(1, self.rows)
        if heads:
            return min(heads, self.kv_heads), self.rows
        most = max(1, min(self.rows, limit // self.bytes(1, 1)))
        return 1, -(-self.rows // -(-self.rows // most))

    def cost(self, heads: int, rows: int) -> float:
        """Return about how many nanoseconds a run takes."""
        parts = -(-self.rows // rows)
        tiles = self.batch * -(-self.kv_heads // heads) * parts
        stacks = self.batch * self.kv_heads * self.repeats
        scores = stacks * self.keys * (self.rows + _PACKING * parts)
        flops = 2 * scores * (self.width + self.value_width)
        return flops / _FLOPS + scores * _SOFTMAX + tiles * _TILE_CALLS


def _geometry(signature: Signature) -> _Geometry:
    """
    Return the sizes for an Attention node.

    Raises
    ------
    ShapeMismatch, InvalidAttribute
        If shapes or attributes contradict each other.
    """

    def invalid(problem: str) -> Exception:
        return ShapeMismatch(f"node {signature.name!r} (Attention): {problem}")

    query, key, value = (signature.input(position) for position in range(3))
    if query is None or key is None or value is None:
        raise invalid("query, key or value is missing")
    past_key, past_value = signature.input(4), signature.input(5)
    if (past_key is None) != (past_value is None):
        raise invalid("past_key and past_value come together or not at all")
    (batch, heads, rows, width), (_, kv_heads, fresh, key_width), (_, _, values, value_width) = (
        _four(signature, tensor, name)
        for tensor, name in ((query, "q_num_heads"), (key, "kv_num_heads"), (value, "kv_num_heads"))
    )
    if kv_heads < 1 or heads % kv_heads or width != key_width or values != fresh:
        raise invalid("the shapes of query, key and value contradict each other")
    past = 0 if past_key is None else past_key.shape[2]
    for name, known in (("qk_matmul_output_mode", range(4)), ("is_causal", range(2))):
        if signature.attributes.get(name, 0) not in known:
            raise InvalidAttribute(
                f"node {signature.name!r} (Attention): {name} is {signature.attributes[name]}"
            )
    mask = signature.input(3)
    outputs = [signature.outputs[k] if k < len(signature.outputs) else None for k in (1, 2)]
    return _Geometry(
        batch,
        kv_heads,
        heads // kv_heads,
        rows,
        fresh,
        past,
        width,
        value_width,
        query.dtype,
        mask is not None and mask.dtype == np.bool_,
        past_key is not None and None in outputs,
        signature.input(7) is not None,
    )


def _four(signature: Signature, tensor: Tensor, heads: str) -> tuple[int, int, int, int]:
    """Return batch, heads, length and width of a query, key or value."""
    shape = tensor.shape
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    count = signature.attributes.get(heads) or 0
    if len(shape) != 3 or count < 1 or shape[2] % count:
        raise InvalidAttribute(
            f"node {signature.name!r} (Attention): {heads} is {count} for an operand of "
            f"shape {shape}"
        )
    return shape[0], count, shape[1], shape[2] // count


def _is_empty(signature: Signature) -> bool:
    return any(tensor is not None and 0 in tensor.shape for tensor in signature.inputs[:3])


def _declare(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Offer scores for all heads, for one head, and for fewer rows."""
    if _is_empty(signature):
        return []
    sizes = _geometry(signature)
    tiles = map(sizes.tile, _TILES)
    choices = worthwhile(Choice(sizes.bytes(*tile), sizes.cost(*tile)) for tile in tiles)
    cache = sizes.cache_bytes()
    return [choices, [Choice(cache, 0.0)]] if cache else [choices]


# -- operands ------------------------------------------------------------------------


def _heads_first(array: np.ndarray, heads: int) -> np.ndarray:
    """Return a view with shape (batch, heads, length, width)."""
    if array.ndim == 4:
        return array
    batch, length, hidden = array.shape
    return array.reshape(batch, length, heads, hidden // heads).transpose(0, 2, 1, 3)


def _with_past(step: Step, sizes: _Geometry) -> tuple[np.ndarray, np.ndarray, list[Run]]:
    """Return all keys and all values, and the functions that join past and present."""
    cache = step.scratch(1) if sizes.keeps_keys else None
    arrays: list[np.ndarray] = []
    work: list[Run] = []
    for position, width in ((1, sizes.width), (2, sizes.value_width)):
        fresh = _heads_first(operand(step, position), sizes.kv_heads)
        past, present = step.input(position + 3), step.output(position)
        if cache is not None:
            present = cache.array((sizes.batch, sizes.kv_heads, sizes.keys, width), sizes.dtype)
        if present is None:
            arrays.append(fresh)
            continue
        if past is not None:
            work.append(partial(np.copyto, present[:, :, : sizes.past], past))
        work.append(partial(np.copyto, present[:, :, sizes.past :], fresh))
        arrays.append(present)
    for position in (1, 2):
        output = step.output(position)
        if cache is not None and output is not None:
            work.append(partial(np.copyto, output, arrays[position - 1]))
    return arrays[0], arrays[1], work


# -- masks -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Frontier:
    """The keys that a row may look at, by position."""

    causal: bool
    left: int
    """Number of keys before the row's own position; negative for an unlimited number."""
    right: int
    past: int
    lengths: np.ndarray | None
    """Number of unpadded keys, per image in the batch, at run time."""
    rows: int

    def __bool__(self) -> bool:
        return self.causal or self.left >= 0 or self.right >= 0 or self.lengths is not None

    def apply(self, scores: np.ndarray, image: int, first: int) -> None:
        """Hide the keys that the rows of ``scores``, from row ``first`` on, may not look at."""
        keys = scores.shape[-1]
        end, offset = keys, self.past
        if self.lengths is not None:
            end = int(np.clip(self.lengths.reshape(-1)[image], 0, keys))
            offset = end - self.rows if self.past == 0 else self.past
            scores[..., end:].fill(-np.inf)
        if not (self.causal or self.left >= 0 or self.right >= 0):
            return
        for row in range(scores.shape[-2]):
            position = first + row + offset
            stop = position + 1 if self.causal else keys
            if self.right >= 0:
                stop = min(stop, position + self.right + 1)
            start = position - self.left if self.left >= 0 else 0
            line = scores[..., row, :]
            for part in (line[..., max(stop, 0) :], line[..., : max(start, 0)]):
                np.subtract(part, np.inf, out=part)  # A score that is NaN stays NaN.


def _masking(mask: np.ndarray, scores: np.ndarray, hidden: np.ndarray | None) -> Iterator[Run]:
    """Yield functions that apply a mask, which may be shorter than a row, to scores."""
    length = mask.shape[-1]
    covered = scores[..., :length] if length > 1 or scores.shape[-1] == 1 else scores
    mask = np.broadcast_to(mask, covered.shape)
    if hidden is None:
        yield partial(np.add, covered, mask, covered)
    else:
        hidden = hidden[: covered.size].reshape(covered.shape)
        yield partial(np.logical_not, mask, hidden)
        yield partial(np.subtract, covered, np.inf, covered, where=hidden)
    if covered.shape[-1] < scores.shape[-1]:
        yield partial(scores[..., length:].fill, -np.inf)


# -- the kernel ------------------------------------------------------------------------


@heavy_kernel("Attention", domain=SINKS, workspace=_declare)
@heavy_kernel("Attention", since=23, workspace=_declare)
def attention(step: Step) -> Run | None:
    """Compare queries with keys, and take the mean of values weighted by the result."""
    output = result(step)
    if _is_empty(step.signature):
        return partial(output.fill, 0) if output.size else None
    sizes = _geometry(step.signature)
    keys, values, work = _with_past(step, sizes)
    return in_sequence(*work, *_tiles(step, sizes, keys, values))


def _tiles(step: Step, sizes: _Geometry, keys: np.ndarray, values: np.ndarray) -> Iterator[Run]:
    """Yield the steps for all tiles."""
    heads, rows = sizes.tile(step.workspaces[0].nbytes)
    lines = heads * sizes.repeats * rows
    scratch = step.scratch()
    memory = scratch.array((lines * sizes.keys,), sizes.dtype)
    scaled = scratch.array((lines * sizes.width,), sizes.dtype)
    sums = scratch.array((lines,), sizes.dtype)
    hidden = scratch.array((lines * sizes.keys,), np.bool_) if sizes.has_bool_mask else None
    all_heads = sizes.kv_heads * sizes.repeats
    grouped = (sizes.batch, sizes.kv_heads, sizes.repeats)

    def by_group(array: np.ndarray) -> np.ndarray:
        """Return a view with shape (batch, kv_heads, repeats, length, width)."""
        view = _heads_first(array, all_heads)
        return np.lib.stride_tricks.as_strided(
            view,
            (*grouped, *view.shape[2:]),
            (view.strides[0], view.strides[1] * sizes.repeats, *view.strides[1:]),
        )

    query, target = by_group(operand(step, 0)), by_group(result(step))
    shown = step.output(3)
    shown = None if shown is None else shown.reshape(*grouped, sizes.rows, sizes.keys)
    mask = step.input(3)
    if mask is not None:
        lead = (1,) * (4 - mask.ndim) + mask.shape
        full = (sizes.batch, all_heads, sizes.rows, lead[3])
        mask = np.broadcast_to(mask.reshape(lead), full).reshape(*grouped, sizes.rows, lead[3])
    sinks = step.input(7)
    rest = None if sinks is None else scratch.array((lines,), sizes.dtype)
    by_head = None if sinks is None else sinks.reshape(sizes.kv_heads, sizes.repeats, 1)
    tile = _Tile(step, sizes)
    for n in range(sizes.batch):
        for head in range(0, sizes.kv_heads, heads):
            some = slice(head, min(head + heads, sizes.kv_heads))
            for row in range(0, sizes.rows, rows):
                cut = (n, some, slice(None), slice(row, min(row + rows, sizes.rows)))
                part = query[cut]
                shape = part.shape[:-1]
                count = part.size // sizes.width
                yield from tile.steps(
                    part,
                    keys[n, some, None].swapaxes(-1, -2),
                    values[n, some, None],
                    target[cut],
                    scaled[: part.size].reshape(part.shape),
                    memory[: count * sizes.keys].reshape(*shape, sizes.keys),
                    sums[:count],
                    None if mask is None else mask[cut],
                    hidden,
                    None if shown is None else shown[cut],
                    (n, row),
                    None
                    if rest is None or by_head is None
                    else (by_head[some], rest[:count].reshape(shape)),
                )


class _Tile:
    """The passes over some score rows."""

    def __init__(self, step: Step, sizes: _Geometry) -> None:
        attributes, number = step.attributes, sizes.dtype.type
        scale = attributes.get("scale")
        self.scale = number(1 / sqrt(sizes.width) if scale is None else scale)
        self.cap = attributes.get("softcap", 0.0) or 0.0
        self.mode = attributes.get("qk_matmul_output_mode", 0)
        self.ones = np.ones(sizes.keys, sizes.dtype)
        self.lowest = np.finfo(sizes.dtype).min
        self.tiny = np.finfo(sizes.dtype).tiny
        self.frontier = _Frontier(
            bool(attributes.get("is_causal", 0)),
            attributes.get("left_window_size", -1),
            attributes.get("right_window_size", -1),
            sizes.past,
            step.input(6),
            sizes.rows,
        )

    def steps(
        self,
        query: np.ndarray,
        keys: np.ndarray,
        values: np.ndarray,
        output: np.ndarray,
        scaled: np.ndarray,
        scores: np.ndarray,
        sums: np.ndarray,
        mask: np.ndarray | None,
        hidden: np.ndarray | None,
        shown: np.ndarray | None,
        where: tuple[int, int],
        sinks: tuple[np.ndarray, np.ndarray] | None,
    ) -> Iterator[Run]:
        """Yield the passes over one tile; ``sinks`` are scores, and memory for one per row."""

        def show(mode: int) -> list[Run]:
            if shown is None or mode != self.mode:
                return []
            return [partial(np.copyto, shown, scores)]

        yield partial(np.multiply, query, self.scale, scaled)
        yield partial(np.matmul, scaled, keys, scores)
        yield from show(_RAW)
        if self.cap > 0:
            cap = scores.dtype.type(self.cap)
            yield partial(np.divide, scores, cap, scores)
            yield partial(np.tanh, scores, scores)
            yield partial(np.multiply, scores, cap, scores)
        yield from show(_CAPPED)
        if mask is not None:
            yield from _masking(mask, scores, hidden)
        if self.frontier:
            yield partial(self.frontier.apply, scores, *where)
        yield from show(_MASKED)
        flat = scores.reshape(-1, scores.shape[-1])
        column = sums[:, None]
        yield partial(np.maximum.reduce, flat, -1, None, sums)
        if sinks is not None:
            score, rest = sinks
            most = sums.reshape(rest.shape)
            yield partial(np.maximum, most, score, most)
        # A row without visible keys is all -inf; these limits turn the row into zeros.
        yield partial(_at_least, sums, self.lowest)
        if sinks is not None:
            yield partial(np.subtract, score, most, rest)
            yield partial(np.exp, rest, rest)
        yield partial(np.subtract, flat, column, flat)
        yield partial(np.exp, flat, flat)
        yield partial(np.matmul, flat, self.ones, sums)
        if sinks is not None:
            yield partial(np.add, most, rest, most)
        yield partial(_at_least, sums, self.tiny)
        yield partial(np.divide, flat, column, flat)
        yield from show(_PROBABILITIES)
        yield partial(np.matmul, scores, values, output)


def _at_least(array: np.ndarray, limit: np.generic) -> None:
    """Raise every element to ``limit``."""
    np.maximum(array, limit, out=array)
