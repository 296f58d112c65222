"""Limits for work and memory while reading a model, relative to the model's size."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

from arenaplan.base.errors import fault
from arenaplan.base.quoting import quoted
from arenaplan.formats.onnx.node_order import label, subgraphs
from arenaplan.graph.sizes import MAX_RANK

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

MAX_COMPUTED = 64 << 20
"""Most bytes that are computed while a model is read, all constants together."""

MAX_FOLDED = 2 << 30
"""Bytes that a folded constant may have however small the model is."""

MAX_EXPANDED = 16_384
"""Nodes that functions and branches may expand to however small the model is."""


class ImportBudget:
    """
    Limits for work and memory while reading a model, relative to the model's size.

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
        """Count ``size`` computed bytes for constant ``name``."""
        self._computed -= size
        if self._computed < 0:
            raise fault(
                "BudgetExceeded",
                f"constant {quoted(name)}: reading the model would compute more than "
                f"{MAX_COMPUTED} bytes of constants",
            )

    def fold(self, name: str, size: int) -> None:
        """Refuse a folded constant that no executor should ever make."""
        if size > MAX_FOLDED and size > self.largest:
            raise fault(
                "BudgetExceeded",
                f"constant {quoted(name)} would have {size} bytes, "
                f"out of proportion to the model; the limit is {self.largest}",
            )

    def expand(self, node: NodeProto | str, size: int = 1) -> None:
        """
        Count a node or call that is walked in place of another.

        ``node`` is for the message: a node in the model, or a text that names a node.
        """
        if self._expanded is None:
            self._expanded = MAX_EXPANDED + 64 * _count_nodes(self._model)
        self._expanded -= size
        if self._expanded < 0:
            name = node if isinstance(node, str) else f"node {label(node)}"
            raise fault(
                "BudgetExceeded",
                f"{name}: functions, loops and sequences of the model expand to too many nodes",
            )


def _count_nodes(model: ModelProto) -> int:
    """Return the number of nodes in a model, including all graphs and functions."""
    count = 0
    pending: list[Iterable[NodeProto]] = [model.graph.node, *(f.node for f in model.functions)]
    while pending:
        for node in pending.pop():
            count += 1
            pending.extend(graph.node for graph in subgraphs(node))
    return count
