"""Attention whose keys and values are one matrix per head, updated token by token."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import sqrt
from typing import NamedTuple

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.pieces import in_sequence, invalid, operand, result
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.registry import Run, Signature, Step, scratch_bytes

_RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True)}
_RULES["gated_delta"] = (True, True)
"""Whether the state decays, and whether the state's answer to a key is subtracted."""


class _Sizes(NamedTuple):
    """Sizes in a linear attention."""

    batch: int
    tokens: int
    heads: int
    """Heads of keys and values."""
    group: int
    """Queries per head."""
    keys: int
    """Elements per key."""
    values: int
    """Elements per value."""

    @classmethod
    def of(cls, signature: Signature) -> _Sizes | None:
        """Return the sizes for a node; ``None`` if the sizes do not fit together."""
        query, _, value = signature.inputs[:3]
        queries, heads = (signature.attributes.get(f"{x}_num_heads", 0) for x in ("q", "kv"))
        if query is None or value is None or heads < 1 or queries < 1 or queries % heads:
            return None
        if len(query.shape) != 3 or query.shape[2] % queries or value.shape[2] % heads:
            return None
        batch, tokens, width = query.shape
        keys, values = width // queries, value.shape[2] // heads
        return cls(batch, tokens, heads, queries // heads, keys, values)

    @property
    def state(self) -> tuple[int, int, int, int]:
        """Shape of the states."""
        return self.batch, self.heads, self.keys, self.values


def _declare(signature: Signature) -> Sequence[Sequence[Choice]]:
    sizes, x = _Sizes.of(signature), signature.inputs[0]
    if sizes is None or x is None:
        return []
    heads = sizes.batch * sizes.heads
    shapes = (sizes.state, sizes.state, (heads, sizes.values), (heads, sizes.keys))
    return [[Choice(sum(scratch_bytes(shape, x.dtype) for shape in shapes), 0.0)]]


@heavy_kernel("LinearAttention", workspace=_declare)
def linear_attention(step: Step) -> Run | None:
    """Update a state by each key and value, and read the state by the same token's queries."""
    sizes = _Sizes.of(step.signature)
    rule = step.attributes.get("update_rule", "gated_delta")
    if sizes is None or rule not in _RULES:
        raise invalid(step, f"rule {rule!r} with operands that do not fit its heads")
    decays, corrects = _RULES[rule]
    if decays != (step.input(4) is not None) or corrects != (step.input(5) is not None):
        raise invalid(step, f"rule {rule!r} with other operands than it has")
    y, present = result(step), step.output(1)
    past = step.input(3)
    scratch = step.scratch()
    dtype = operand(step, 0).dtype
    state, change = (scratch.array(sizes.state, dtype) for _ in range(2))
    answer = scratch.array((sizes.batch, sizes.heads, 1, sizes.values), dtype)
    factors = scratch.array((sizes.batch, sizes.heads, sizes.keys, 1), dtype)
    split = sizes.batch, sizes.tokens, sizes.heads
    queries = operand(step, 0).reshape(*split, sizes.group, sizes.keys)
    keys = operand(step, 1).reshape(*split, sizes.keys)
    values = operand(step, 2).reshape(*split, 1, sizes.values)
    outputs = y.reshape(*split, sizes.group, sizes.values)
    scale = dtype.type(step.attributes.get("scale", 0.0) or 1 / sqrt(max(sizes.keys, 1)))
    decay = None if not decays else operand(step, 4).reshape(*split, -1, 1)
    rate = None if not corrects else operand(step, 5)
    if rate is not None:
        rate = rate.reshape(sizes.batch, sizes.tokens, -1, 1, 1)

    def advance(token: int) -> None:
        key, value = keys[:, token], values[:, token]
        if decay is not None:
            factor = factors[:, :, : decay.shape[3]]
            np.exp(decay[:, token], out=factor)
            np.multiply(state, factor, out=state)
        if rate is not None:
            np.matmul(key[:, :, None], state, out=answer)
            np.subtract(value, answer, out=answer)
            np.multiply(answer, rate[:, token], out=answer)
            value = answer
        np.multiply(key[..., None], value, out=change)
        np.add(state, change, out=state)
        np.matmul(queries[:, token], state, out=outputs[:, token])

    def run() -> None:
        if past is None:
            state.fill(0)
        else:
            np.copyto(state, past)
        for token in range(sizes.tokens):
            advance(token)
        np.multiply(y, scale, out=y)

    last = None if present is None else partial(np.copyto, present, state)
    return in_sequence(run, last)
