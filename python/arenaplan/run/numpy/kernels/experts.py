"""
Mixtures: a router chooses a few of many small expert networks for each row.

Experts run one after another, each on the rows that chose the expert, some rows at a time. Packed
weights with a few bits are widened for one expert at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, prod, sqrt, tau
from typing import NamedTuple

import numpy as np

from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.activations import logistic
from arenaplan.run.numpy.kernels.packed_weights import unpacked, unpacking
from arenaplan.run.numpy.kernels.pieces import invalid, operand, result
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.registry import MICROSOFT, Run, Scratch, Signature, Step, scratch_bytes

_ROWS = 256
"""Rows that an expert works on at a time."""
_PLAIN, _PACKED = ((2, 3), (4, 5), (6, 7)), ((2, 4, 3, 11), (5, 7, 6, 12), (8, 10, 9, 13))
"""Positions of each layer's weights and bias; of packed weights, bias, scales, zero points."""
_WEIGHTS = 14
"""Position of factors for results, if separate from the factors that choose."""


class _Sizes(NamedTuple):
    """Sizes in a mixture."""

    tokens: int
    hidden: int
    experts: int
    inner: int
    """Inner width of an expert."""
    first: int
    """Result width of the first layer."""
    is_gated: bool
    """Whether a third layer makes the factors for the first layer's results."""
    packed: int
    """Bytes of an expert's widest layer, packed; 0 if the weights are numbers."""
    wide: int
    """Elements in that layer."""

    @classmethod
    def of(cls, signature: Signature) -> _Sizes | None:
        """Return the sizes for a node; ``None`` if an operand is missing."""
        is_packed = signature.op == "QMoE"
        layers = _PACKED if is_packed else _PLAIN
        shapes = [known and known.shape for known in (signature.input(at[0]) for at in layers)]
        x, first, second = signature.input(0), shapes[0], shapes[1]
        if x is None or first is None or second is None:
            return None
        hidden, rows = x.shape[-1], first[1]
        each = [s for s in shapes if s]
        inner = rows if _activation(signature) != "swiglu" or shapes[2] else rows // 2
        return cls(
            prod(x.shape[:-1]),
            hidden,
            first[0],
            inner,
            rows,
            bool(shapes[2]),
            max(s[1] * s[2] for s in each) if is_packed else 0,
            max(rows * hidden, hidden * inner) if is_packed else 0,
        )

    def shapes(self) -> Iterator[tuple[int, ...]]:
        """Yield the scratch memory shapes, in allocation order."""
        rows = min(self.tokens, _ROWS)
        yield from [(self.tokens, self.experts)] * 2
        yield from [(rows, self.hidden)] * 2
        yield from [(rows, self.first)] * (2 if self.is_gated else 1)
        yield from [(rows, self.inner)] * 2
        if self.wide:
            yield (self.wide,)


def _activation(signature: Signature) -> str:
    return str(signature.attributes.get("activation_type", "relu"))


def _declare(signature: Signature) -> Sequence[Sequence[Choice]]:
    sizes, x = _Sizes.of(signature), signature.input(0)
    if sizes is None or x is None:
        return []
    size = sum(scratch_bytes(shape, x.dtype) for shape in sizes.shapes())
    return [[Choice(size + scratch_bytes((sizes.packed,), np.uint8))]]


# -- activations ----------------------------------------------------------------------------------


def _relu(x: np.ndarray, y: np.ndarray) -> None:
    np.maximum(x, 0, out=y)


def _silu(x: np.ndarray, y: np.ndarray) -> None:
    logistic(x, y)
    np.multiply(x, y, out=y)


def _gelu(x: np.ndarray, y: np.ndarray) -> None:
    """The approximation by a hyperbolic tangent, which is a sigmoid of twice the operand."""
    np.multiply(x, x, out=y)
    np.multiply(y, 0.044715, out=y)
    np.add(y, 1, out=y)
    np.multiply(x, y, out=y)
    logistic(y, y, 4 / sqrt(tau))
    np.multiply(x, y, out=y)


_ACTIVATIONS: Mapping[str, Callable[[np.ndarray, np.ndarray], None]] = {
    "gelu": _gelu,
    "identity": lambda x, y: np.copyto(y, x),
    "relu": _relu,
    "silu": _silu,
}


class _Expert:
    """The layers of all experts, and memory for some rows of one expert."""

    def __init__(self, step: Step, sizes: _Sizes, scratch: Scratch, dtype: np.dtype) -> None:
        self._step, self._sizes = step, sizes
        self._is_packed = sizes.packed > 0
        arrays = [scratch.array(shape, dtype) for shape in sizes.shapes()]
        self.chances, self.factors, self.rows, self.sums, self._first, *more = arrays
        self._linear = more.pop(0) if sizes.is_gated else None
        self._act, self._spare = more[:2]
        self._wide = more[2] if self._is_packed else None
        self._bytes = scratch.array((sizes.packed,), np.uint8)
        attributes = step.attributes
        self._alpha = attributes.get("activation_alpha", 1.0)
        self._beta = attributes.get("activation_beta", 0.0)
        self._limit = attributes.get("swiglu_limit", inf)
        self._kind = _activation(step.signature)
        self._fusion = attributes.get("swiglu_fusion", 0)
        if self._kind != "swiglu" and self._kind not in _ACTIVATIONS:
            raise invalid(step, f"activation {self._kind!r}")
        if self._kind == "swiglu" and (self._fusion not in (1, 2)) != sizes.is_gated:
            raise invalid(step, f"swiglu_fusion {self._fusion} with the layers that are there")

    def _weights(self, layer: int, expert: int, inner: int) -> np.ndarray:
        """Return a layer's weights as numbers, a row per result."""
        step = self._step
        if self._wide is None:
            plain: np.ndarray = operand(step, _PLAIN[layer][0])[expert]
            return plain
        at, _, scale_at, zero_at = _PACKED[layer]
        packed = operand(step, at)[expert]
        attributes = step.attributes
        bits = attributes.get(f"fc{layer + 1}_expert_weight_bits")
        bits = bits or attributes.get("expert_weight_bits", 4)
        wide = self._wide[: packed.shape[0] * inner].reshape(-1, inner)
        spare = self._bytes[: packed.size].reshape(packed.shape)
        for run in unpacking(packed, bits, spare, wide):
            run()
        scales = operand(step, scale_at)[expert].reshape(len(packed), -1, 1)
        by_block = wide.reshape(len(packed), scales.shape[1], -1)
        zeros = step.input(zero_at)
        if zeros is None:
            np.subtract(by_block, 1 << bits - 1, out=by_block)
        else:
            # A zero point per block, or per row: rows of bytes in both cases.
            few = zeros[expert].reshape(-1, zeros.shape[-1])
            count = scales.shape[1] if zeros.ndim == 3 else len(packed)
            points = unpacked(few, bits, count, wide.dtype)
            np.subtract(by_block, points.reshape(len(packed), -1, 1), out=by_block)
        np.multiply(by_block, scales, out=by_block)
        return wide

    def _layer(self, layer: int, expert: int, x: np.ndarray, y: np.ndarray) -> None:
        """Multiply rows by a layer's weights, and add the layer's bias."""
        np.matmul(x, self._weights(layer, expert, x.shape[1]).T, out=y)
        layers = _PACKED if self._is_packed else _PLAIN
        bias = self._step.input(layers[layer][1])
        if bias is not None:
            np.add(y, bias[expert], out=y)

    def run(self, expert: int, count: int) -> None:
        """Replace the first rows by an expert's results."""
        x, first, act = self.rows[:count], self._first[:count], self._act[:count]
        self._layer(0, expert, x, first)
        linear: np.ndarray | None = None
        if self._linear is not None:
            linear = self._linear[:count]
            self._layer(2, expert, x, linear)
        elif self._kind == "swiglu":
            inner = self._sizes.inner
            if self._fusion == 2:
                first, linear = first[:, :inner], first[:, inner:]
            else:
                first, linear = first[:, ::2], first[:, 1::2]
        if self._kind == "swiglu":
            assert linear is not None
            np.minimum(first, self._limit, out=first)
            np.clip(linear, -self._limit, self._limit, out=linear)
            np.add(linear, self._beta, out=linear)
            spare = self._spare[:count]
            np.copyto(spare, first)
            logistic(spare, act, self._alpha)
            np.multiply(act, spare, out=act)
        else:
            _ACTIVATIONS[self._kind](first, act)
        if linear is not None:
            np.multiply(act, linear, out=act)
        self._layer(1, expert, act, x)


@heavy_kernel("MoE", "QMoE", domain=MICROSOFT, workspace=_declare)
def mixture(step: Step) -> Run | None:
    """Choose experts for each row, and add their results by the router's probabilities."""
    sizes, attributes = _Sizes.of(step.signature), step.attributes
    y = result(step)
    if sizes is None or y.size == 0:
        return None
    x, y = operand(step, 0).reshape(-1, sizes.hidden), y.reshape(-1, sizes.hidden)
    router = operand(step, 1).reshape(sizes.tokens, sizes.experts)
    chosen, count = step.input(_WEIGHTS), attributes.get("k", 1)
    if not 0 < count <= sizes.experts:
        raise invalid(step, f"k is {count} for {sizes.experts} experts")
    each = _Expert(step, sizes, step.scratch(), y.dtype)
    lines, best = np.arange(sizes.tokens), np.empty(sizes.tokens, np.intp)

    def route() -> None:
        """Write the factor of each expert for each row, 0 where the expert is not chosen."""
        chances, factors = each.chances, each.factors
        np.subtract(router, router.max(1, keepdims=True), out=chances)
        np.exp(chances, out=chances)
        np.divide(chances, chances.sum(1, keepdims=True), out=chances)
        weights = chances if chosen is None else chosen
        factors.fill(0)
        for _ in range(count):
            np.argmax(chances, 1, out=best)
            factors[lines, best] = weights[lines, best]
            chances[lines, best] = -inf
        if attributes.get("normalize_routing_weights", 0) or (sizes.packed and chosen is None):
            np.divide(factors, factors.sum(1, keepdims=True), out=factors)

    def run() -> None:
        route()
        y.fill(0)
        for expert in range(sizes.experts):
            tokens = np.flatnonzero(each.factors[:, expert])
            for first in range(0, len(tokens), _ROWS):
                some = tokens[first : first + _ROWS]
                rows, sums = each.rows[: len(some)], each.sums[: len(some)]
                np.take(x, some, 0, rows, "clip")
                each.run(expert, len(some))
                np.multiply(rows, each.factors[some, expert, None], out=rows)
                np.take(y, some, 0, sums, "clip")
                np.add(sums, rows, out=sums)
                y[some] = sums

    return run
