"""
Elementwise nodes that an earlier kernel performs while its output is still in cache.

A chain such as Conv, BatchNormalization, Add, Relu whose every step the plan put in
place over the convolution's output needs one pass over that memory, not four. The
plan does not change for it: all values keep their places, some are never written
in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from arenaplan.errors import UnsupportedOp
from arenaplan.executor.registry import Run, Step, find_kernel
from arenaplan.executor.steps import signature_of
from arenaplan.graph import Graph, Node

_CACHED = 1 << 16
"""Elements of output that an epilogue works on while they are in cache."""

# -- which nodes ------------------------------------------------------------------


def find_epilogues(
    graph: Graph, order: Sequence[int], same_place: Callable[[int, int], bool]
) -> dict[int, list[int]]:
    """
    Return, per node, the nodes after it that its kernel performs as well.

    Parameters
    ----------
    order : sequence of int
        Indices of the nodes, in execution order.
    same_place : callable
        Whether two values were given exactly the same bytes.
    """
    position = {node: step for step, node in enumerate(order)}
    born = {
        value: position[node.index]
        for node in graph.nodes
        for value in node.outputs
        if value is not None
    }
    readers: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                readers.setdefault(value, []).append(node)
    outputs = set(graph.outputs)
    epilogues: dict[int, list[int]] = {}
    taken: set[int] = set()
    for index in order:
        if index in taken or not _performs_epilogues(graph, graph.nodes[index]):
            continue
        value = graph.nodes[index].outputs[0]
        chain: list[int] = []
        while value is not None and value not in outputs and len(readers.get(value, ())) == 1:
            node = readers[value][0]
            early = all(
                other is None or other == value or born.get(other, -1) < position[index]
                for other in node.inputs
            )
            if not (early and _is_elementwise(graph, node, value)):
                break
            result = node.outputs[0]
            if result is None or not same_place(value, result):
                break
            chain.append(node.index)
            value = result
        if chain:
            epilogues[index] = chain
            taken.update(chain)
    return epilogues


def _performs_epilogues(graph: Graph, node: Node) -> bool:
    """Whether the node's kernel performs epilogues."""
    try:
        return find_kernel(signature_of(graph, node)).epilogue
    except UnsupportedOp:
        return False


def _is_elementwise(graph: Graph, node: Node, value: int) -> bool:
    """Whether :class:`Stages` can perform ``node`` on the memory of its operand ``value``."""
    if node.op not in _STAGES or node.domain not in ("", "ai.onnx") or node.after:
        return False
    if Counter(node.outputs)[None] != len(node.outputs) - 1 or node.outputs[0] is None:
        return False
    result, operand = graph.values[node.outputs[0]], graph.values[value]
    if result.shape != operand.shape or result.dtype != operand.dtype:
        return False
    if operand.dtype not in ("float32", "float64"):
        return False
    others = [index for position, index in enumerate(node.inputs) if position and index is not None]
    constant = all(graph.has_data(index) for index in others)
    if node.op == "BatchNormalization":
        return node.inputs[0] == value and constant and not node.attributes.get("training_mode", 0)
    if node.op in ("Clip", "Relu"):
        return node.inputs[0] == value and constant
    return len(node.inputs) == 2 and node.version >= 7


# -- what they do --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Affine:
    """``x * scale + shift``; either may be absent, both broadcast to the output."""

    scale: np.ndarray | None
    shift: np.ndarray | None

    def on(self, tile: np.ndarray, cut: Callable[[np.ndarray], np.ndarray]) -> list[Run]:
        """Return what applies this to a tile; ``cut`` takes the same part of an operand."""
        runs: list[Run] = []
        if self.scale is not None:
            runs.append(partial(np.multiply, tile, cut(self.scale), tile))
        if self.shift is not None:
            runs.append(partial(np.add, tile, cut(self.shift), tile))
        return runs

    def then(self, later: Affine) -> Affine:
        """Return the one map that does this and then ``later``."""
        scale = later.scale if self.scale is None else _times(self.scale, later.scale)
        shift = None if self.shift is None else _times(self.shift, later.scale)
        if later.shift is not None:
            shift = later.shift if shift is None else shift + later.shift
        return Affine(scale, shift)


@dataclass(frozen=True, slots=True)
class Clamp:
    """Limits every element."""

    low: np.generic
    high: np.generic

    def on(self, tile: np.ndarray, cut: Callable[[np.ndarray], np.ndarray]) -> list[Run]:
        """Return what applies this to a tile; ``cut`` takes the same part of an operand."""
        return [partial(tile.clip, self.low, self.high, tile)]


@dataclass(frozen=True, slots=True)
class Combine:
    """Adds or multiplies another value of the run."""

    function: Callable[..., Any]
    other: np.ndarray

    def on(self, tile: np.ndarray, cut: Callable[[np.ndarray], np.ndarray]) -> list[Run]:
        """Return what applies this to a tile; ``cut`` takes the same part of an operand."""
        return [partial(self.function, tile, cut(self.other), tile)]


class Stages:
    """
    An epilogue, ready to be applied to tiles of the output.

    Parameters
    ----------
    step : Step
        The step whose epilogue it is.
    """

    def __init__(self, step: Step) -> None:
        output = step.outputs[0]
        assert output is not None, "a node with an epilogue has an output"
        self._shape = output.shape
        self._stages: list[Affine | Clamp | Combine] = []
        value = output
        for later in step.epilogue:
            stage = _STAGES[later.signature.op](later, value)
            last = self._stages[-1] if self._stages else None
            if isinstance(stage, Affine) and isinstance(last, Affine):
                self._stages[-1] = last.then(stage)
            else:
                self._stages.append(stage)

    def take_channel_affine(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """
        Remove and return a leading scale and shift per channel (axis 1), as vectors.

        The kernel then applies them itself, to its weights.
        """
        first = self._stages[0] if self._stages else None
        if not isinstance(first, Affine):
            return None, None
        vectors = [_per_channel(part, self._shape) for part in (first.scale, first.shift)]
        if any(
            vector is None and part is not None
            for vector, part in zip(vectors, (first.scale, first.shift), strict=True)
        ):
            return None, None
        del self._stages[0]
        return vectors[0], vectors[1]

    def add_bias(self, bias: np.ndarray) -> None:
        """Put an addition of ``bias``, one element per channel, before everything else."""
        column = bias.reshape(-1, *(1 for _ in self._shape[2:]))
        self._stages.insert(0, Affine(None, column))

    def __bool__(self) -> bool:
        return bool(self._stages)

    def on(self, output: np.ndarray, index: tuple[int | slice, ...]) -> list[Run]:
        """Return what applies the epilogue to ``output[index]``."""
        tile = output[index]

        def cut(operand: np.ndarray) -> np.ndarray:
            if operand.size == 1:
                return operand.reshape(())
            part = np.broadcast_to(operand, self._shape)[index]
            return part if operand.shape == self._shape else _collapsed(part)

        return [run for stage in self._stages for run in stage.on(tile, cut)]


def finish(output: np.ndarray, stages: Stages) -> Iterator[Run]:
    """Yield an epilogue's steps, for some channels at a time."""
    if not stages:
        return
    channels = output.shape[1]
    some = max(1, min(channels, _CACHED // prod(output.shape[2:])))
    for n in range(output.shape[0]):
        for start in range(0, channels, some):
            cut = slice(start, min(start + some, channels))
            yield from stages.on(output, (slice(n, n + 1), cut))


def _collapsed(array: np.ndarray) -> np.ndarray:
    """Return a broadcast array with size 1 where it only repeats itself."""
    index = tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)
    return array[index]


def _per_channel(operand: np.ndarray | None, shape: Sequence[int]) -> np.ndarray | None:
    """Return ``operand`` as one element per channel of ``shape``, if it has that form."""
    if operand is None or operand.ndim > len(shape):
        return None
    full = operand.reshape((1,) * (len(shape) - operand.ndim) + operand.shape)
    if full.size != full.shape[1] or full.shape[1] not in (1, shape[1]):
        return None
    return np.ascontiguousarray(np.broadcast_to(full.reshape(-1), (shape[1],)))


def _times(a: np.ndarray, b: np.ndarray | None) -> np.ndarray:
    return a if b is None else a * b


def channel_affine(step: Step, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scale and shift per channel of a BatchNormalization, in double precision."""
    parts = [step.input(position) for position in range(1, 5)]
    gain, offset, mean, variance = (np.asarray(part, np.float64).reshape(-1) for part in parts)
    scale = gain / np.sqrt(variance + step.attributes.get("epsilon", 1e-5))
    return scale, offset - mean * scale


def _batch_normalization(step: Step, value: np.ndarray) -> Affine:
    shape = (-1, *(1 for _ in value.shape[2:]))
    scale, shift = channel_affine(step, value)
    return Affine(
        scale.astype(value.dtype).reshape(shape), shift.astype(value.dtype).reshape(shape)
    )


def _other(step: Step, value: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return the operand that is not ``value``, and whether it never changes."""
    first = step.inputs[0]
    position = 1 if first is not None and _is_same(first, value) else 0
    other = step.inputs[position]
    assert other is not None, "find_epilogues has checked that both are there"
    return other, step.signature.constant[position] is not None


def _is_same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.ctypes.data == b.ctypes.data and a.nbytes == b.nbytes


def _add(step: Step, value: np.ndarray) -> Affine | Combine:
    other, constant = _other(step, value)
    return Affine(None, other) if constant else Combine(np.add, other)


def _mul(step: Step, value: np.ndarray) -> Affine | Combine:
    other, constant = _other(step, value)
    return Affine(other, None) if constant else Combine(np.multiply, other)


def _relu(step: Step, value: np.ndarray) -> Clamp:
    return Clamp(value.dtype.type(0), value.dtype.type(np.inf))


def _clip(step: Step, value: np.ndarray) -> Clamp:
    def bound(position: int, name: str, default: float) -> np.generic:
        array = step.input(position)
        number = step.attributes.get(name, default) if array is None else array.reshape(-1)[0]
        limit: np.generic = value.dtype.type(number)
        return limit

    return Clamp(bound(1, "min", -np.inf), bound(2, "max", np.inf))


_STAGES: Mapping[str, Callable[[Step, np.ndarray], Affine | Clamp | Combine]] = {
    "Add": _add,
    "BatchNormalization": _batch_normalization,
    "Clip": _clip,
    "Mul": _mul,
    "Relu": _relu,
    "Sum": _add,
}
