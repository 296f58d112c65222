"""
Constants that are computed from others: the results of folding.

Folding an operator only records it. Its data is computed on demand: for the
importer, for the few small constants that say shapes, or for an executor. So a model is
planned without reading its weights, and a constant of any size costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from arenaplan.base.errors import BudgetExceeded, InternalError, InvalidOperand
from arenaplan.base.quoting import quoted
from arenaplan.formats.onnx.node_order import label, subgraphs
from arenaplan.formats.onnx.tensors import StoredTensor, numpy_dtype
from arenaplan.graph.ops import array_bytes
from arenaplan.graph.sizes import MAX_RANK
from arenaplan.graph.values import Quantized

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from arenaplan.formats.onnx.op import Op, Operand, Result

Arrays: TypeAlias = "list[np.ndarray | None]"
Evaluate: TypeAlias = "Callable[[Op, Arrays, Sequence[Result]], Sequence[np.ndarray]]"

MAX_COMPUTED = 64 << 20
"""Most bytes that are computed while a model is read, all constants together."""

MAX_FOLDED = 2 << 30
"""Bytes that one folded constant may have however small the model is."""

MAX_EXPANDED = 16_384
"""Nodes that functions and branches may expand to however small the model is."""

KEPT = 1 << 16
"""Largest constant that is remembered once it is computed."""


class Budget:
    """
    How much work and memory a model may cost to read, given its size.

    Parameters
    ----------
    model : ModelProto
        The model.
    """

    def __init__(self, model: ModelProto) -> None:
        self._model = model
        self._largest: int | None = None
        self._expanded: int | None = None
        self._computed = MAX_COMPUTED

    @property
    def largest(self) -> int:
        """Most bytes that a folded constant may have."""
        if self._largest is None:
            # The content of the file itself is smaller than the limit for all models.
            stored = [
                tensor.dims for tensor in self._model.graph.initializer if tensor.external_data
            ]
            elements = sum(prod(dims) for dims in stored if len(dims) <= MAX_RANK)
            self._largest = max(MAX_FOLDED, 16 * elements)
        return self._largest

    def compute(self, name: str, size: int) -> None:
        """Account for ``size`` computed bytes of constant ``name``."""
        self._computed -= size
        if self._computed < 0:
            raise BudgetExceeded(
                f"constant {quoted(name)}: reading the model would compute more than "
                f"{MAX_COMPUTED} bytes of constants"
            )

    def fold(self, name: str, size: int) -> None:
        """Refuse a folded constant that no executor should ever make."""
        if size > MAX_FOLDED and size > self.largest:
            raise BudgetExceeded(
                f"constant {quoted(name)} would have {size} bytes, "
                f"out of proportion to the model; the limit is {self.largest}"
            )

    def expand(self, node: NodeProto | str, size: int = 1) -> None:
        """
        Account for a node, or a call, that is walked in the place of another.

        ``node`` is for the message: a node of the model, or the text that names one.
        """
        if self._expanded is None:
            self._expanded = MAX_EXPANDED + 64 * _count_nodes(self._model)
        self._expanded -= size
        if self._expanded < 0:
            name = node if isinstance(node, str) else f"node {label(node)}"
            raise BudgetExceeded(
                f"{name}: functions, loops and sequences of the model expand to too many nodes"
            )


def _count_nodes(model: ModelProto) -> int:
    """Return how many nodes a model has, in all its graphs and functions."""
    count = 0
    pending: list[Iterable[NodeProto]] = [model.graph.node, *(f.node for f in model.functions)]
    while pending:
        for node in pending.pop():
            count += 1
            pending.extend(graph.node for graph in subgraphs(node))
    return count


class Folded:
    """A constant that an operator makes of other constants."""

    __slots__ = ("evaluate", "op", "position", "results")

    def __init__(
        self, op: Op, evaluate: Evaluate, results: Sequence[Result], position: int
    ) -> None:
        self.op = op
        self.evaluate = evaluate
        self.results = results
        self.position = position

    def compute(self, arrays: Arrays) -> np.ndarray:
        """Return the constant, given the operator's inputs."""
        shape, dtype = self.results[self.position]
        array = evaluate_now(self.op, self.evaluate, arrays, self.results)[self.position]
        if array.shape != shape:
            raise self.op.error(InternalError, f"folded to shape {array.shape} instead of {shape}")
        return array.astype(numpy_dtype(dtype), copy=False)


def evaluate_now(
    op: Op, evaluate: Evaluate, arrays: Arrays, results: Sequence[Result]
) -> list[np.ndarray]:
    """Return the results of an operator for ``arrays``."""
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(array) for array in evaluate(op, arrays, results)]
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise op.error(InvalidOperand, f"cannot be folded: {error}") from error


def peek(operand: Operand, budget: Budget) -> np.ndarray | None:
    """Return a constant's data while a model is read, or ``None`` if it is not at hand."""
    source = operand.source
    if isinstance(source, StoredTensor) and operand.inline and source.bytes <= KEPT:
        # The common case, without the machinery for the others.
        source = operand.source = source.load()
    if isinstance(source, np.ndarray):
        return np.broadcast_to(source, operand.shape)
    return compute(operand, budget) if operand.inline else None


def compute(operand: Operand, budget: Budget | None) -> np.ndarray:
    """Return a constant's data; compute its inputs first, without recursion."""
    uses = _count_uses(operand)
    arrays: dict[int, np.ndarray] = {}
    pending = [operand]
    while pending:
        current = pending[-1]
        source = current.source
        missing = [known for known in _inputs(source) if id(known) not in arrays]
        if missing:
            pending.extend(missing)
            continue
        pending.pop()
        if id(current) in arrays:
            continue
        if budget is not None:
            budget.compute(current.name, array_bytes(current.shape, current.dtype))
        array = arrays[id(current)] = _data(current, arrays)
        for known in _inputs(source):
            uses[id(known)] -= 1
            if not uses[id(known)]:
                del arrays[id(known)]
        if array.nbytes <= KEPT and quantized_source(current) is None:
            current.source = array
    return arrays[id(operand)]


def quantized_source(operand: Operand) -> Quantized | None:
    """Return the integers of 8 bits that DequantizeLinear makes a constant of, if it does."""
    source = operand.source
    if not isinstance(source, Folded) or source.op.type != "DequantizeLinear" or source.op.domain:
        return None
    op = source.op
    integers, scale, zero = op.input(0), op.input(1), op.optional(2)
    is_plain = not op.attributes.get("block_size") and operand.dtype == "float32"
    if not is_plain or scale.dtype != "float32" or integers.dtype not in ("int8", "uint8"):
        return None
    return Quantized(integers, scale, zero, int(op.attributes.get("axis", 1)))


def _data(operand: Operand, arrays: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return a constant's data, given that of the constants it is computed from."""
    source = operand.source
    if isinstance(source, Folded):
        return source.compute([None if i is None else arrays[id(i)] for i in source.op.inputs])
    if isinstance(source, StoredTensor):
        return source.load()
    if isinstance(source, np.ndarray):
        return np.broadcast_to(source, operand.shape)
    raise InternalError(f"value {quoted(operand.name)} is not a constant")


def _inputs(source: object) -> list[Operand]:
    """Return the constants that a source is computed from."""
    if not isinstance(source, Folded):
        return []
    return [known for known in source.op.inputs if known is not None]


def _count_uses(operand: Operand) -> dict[int, int]:
    """Return how often each constant below ``operand`` is read to compute it."""
    uses = {id(operand): 1}
    pending = [operand]
    while pending:
        for known in _inputs(pending.pop().source):
            if id(known) not in uses:
                pending.append(known)
            uses[id(known)] = uses.get(id(known), 0) + 1
    return uses
