"""
The CUDA executor as a backend for planning: scratch memory and estimated step times.

Times are estimates from moved bytes and product operations, with the rates in
:mod:`arenaplan.run.cuda.rates`. A node that runs on the host takes NumPy's time and that of copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from arenaplan.graph import Graph
from arenaplan.graph.costs import RowKernel, StepCost, Way
from arenaplan.run.cuda.lowering import StepLowering
from arenaplan.run.cuda.lowering.site import ON_HOST, Kind
from arenaplan.run.cuda.rates import BYTES, CALL, COPIED, LAUNCH, OPERATIONS, PRODUCT
from arenaplan.run.numpy.registry import Signature, find_kernel
from arenaplan.run.numpy.signatures import NOT_RUN
from arenaplan.run.numpy.timing import nanoseconds

if TYPE_CHECKING:
    from arenaplan.graph.costs import StepForm

_ALIGNMENT: Final = 256


class CupyCosts:
    """Scratch memory and times by :mod:`arenaplan.run.cuda.lowering`, for a graph's steps."""

    row_moves: Final = None

    def __init__(self, backend: CupyBackend, graph: Graph) -> None:
        self._backend, self._graph = backend, graph

    def step(self, nodes: Sequence[int], form: StepForm) -> StepCost | None:
        """Return the cost of a step; ``None`` if some node has no kernel."""
        # A launch performs one whole step, whose output never overlaps an input in part.
        lowering = self._backend.lowering(self._graph, nodes) if form == "whole" else None
        if lowering is None:
            return None
        nanoseconds = _seconds(lowering) * 1e9
        widest = max(lowering.slots, key=len, default=())
        if not widest:
            return StepCost((), [Way(0, round(nanoseconds))])
        others = sum(_padded(slot[0].bytes) for slot in lowering.slots if slot is not widest)
        ways = [
            Way(others + _padded(choice.bytes), round(nanoseconds + choice.cost))
            for choice in widest
        ]
        return StepCost(lowering.slots, ways)

    def groupings(self) -> list[list[list[int]]]:
        """Return nothing: the core's own search knows all steps."""
        return []

    def row_kernels(self, nodes: Sequence[int]) -> list[RowKernel]:
        """Return nothing."""
        return []


class CupyBackend:
    """The CUDA executor: the only state is a cache of facts about graphs."""

    name = "cupy"

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Graph, dict[tuple[int, ...], StepLowering | None]]
        self._known = WeakKeyDictionary()

    def costs(self, graph: Graph) -> CupyCosts:
        """Return the step costs for a graph."""
        return CupyCosts(self, graph)

    def lowering(self, graph: Graph, nodes: Sequence[int]) -> StepLowering | None:
        """Return a step's work; ``None`` if some node has no kernel."""
        known = self._known.setdefault(graph, {})
        key = tuple(nodes)
        if key not in known:
            is_of_graph = all(0 <= node < len(graph.nodes) for node in key)
            try:
                known[key] = StepLowering(graph, key) if is_of_graph else None
            except NOT_RUN:
                known[key] = None  # The step can be planned; an executor will refuse the step.
        return known[key]


BACKEND: Final = CupyBackend()
"""The registered backend."""


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _seconds(lowering: StepLowering) -> float:
    """Return a step's estimated seconds, without the seconds that a scratch choice adds."""
    total = 0.0
    for member in lowering.members:
        signature = member.signature
        if all(value in lowering.inline for value in member.outputs if value is not None):
            continue
        tensors = [tensor for tensor in (*signature.inputs, *signature.outputs) if tensor]
        moved = sum(tensor.bytes for tensor in tensors)
        if member.rule is ON_HOST:
            kernel = find_kernel(signature)
            total += CALL + moved / COPIED + nanoseconds(signature, kernel) * 1e-9
            continue
        total += LAUNCH + moved / BYTES
        inner = _inner(signature)
        made = signature.outputs[0]
        if inner and made:
            if member.rule.kind is Kind.WORK:
                total += PRODUCT - (0 if signature.input(2) else LAUNCH)  # A bias is a launch.
            total += (
                2 * prod(made.shape) * inner / OPERATIONS.get(made.dtype.itemsize, OPERATIONS[4])
            )
    return total


def _inner(signature: Signature) -> int:
    """Return the sum length in a matrix product; 0 for other operators."""
    weights = signature.input(1)
    if weights is None or not weights.shape:
        return 0
    if signature.op in ("MatMul", "Gemm"):
        is_flipped = signature.op == "Gemm" and signature.attributes.get("transB", 0)
        return weights.shape[-1 if is_flipped or len(weights.shape) == 1 else -2]
    if signature.op in ("Conv", "ConvTranspose"):
        return prod(weights.shape[1:])
    return 0
