"""
The CUDA executor as a backend for planning: scratch memory and estimated times of steps.

Times are estimates by the bytes that move and the operations of products, with the rates of
:mod:`arenaplan.run.cuda.rates`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from arenaplan.graph import Graph
from arenaplan.graph.scratch import Scratch
from arenaplan.run.cuda.lowering import StepLowering
from arenaplan.run.cuda.lowering.site import Kind
from arenaplan.run.cuda.rates import BYTES, LAUNCH, OPERATIONS, PRODUCT
from arenaplan.run.numpy.registry import Signature
from arenaplan.run.numpy.signatures import NOT_RUN

if TYPE_CHECKING:
    from arenaplan._core import Plan, Strips

_ALIGNMENT: Final = 256


class CupyBackend:
    """Scratch memory and times of the kernels in :mod:`arenaplan.run.cuda.lowering`."""

    name = "cupy"

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Graph, dict[tuple[int, ...], StepLowering | None]]
        self._known = WeakKeyDictionary()

    def lowering(self, graph: Graph, nodes: Sequence[int]) -> StepLowering | None:
        """Return the work of a step; ``None`` if some node has no kernel."""
        known = self._known.setdefault(graph, {})
        key = tuple(nodes)
        if key not in known:
            is_of_graph = all(0 <= node < len(graph.nodes) for node in key)
            try:
                known[key] = StepLowering(graph, key) if is_of_graph else None
            except NOT_RUN:
                known[key] = None  # It can be planned; an executor will refuse it.
        return known[key]

    def workspaces(
        self,
        graph: Graph,
        steps: Iterable[Sequence[int]] | None = None,
        strips: Sequence[Strips] = (),
    ) -> Scratch:
        """Return the scratch buffers of steps, by the last node of each."""
        every = ([node.index] for node in graph.nodes)
        found = {}
        for nodes in every if steps is None else steps:
            lowering = self.lowering(graph, nodes)
            if lowering is not None and lowering.slots:
                found[nodes[-1]] = lowering.slots
        return found

    def staging(self, graph: Graph, steps: Iterable[Sequence[int]]) -> Scratch:
        """Return nothing: outputs never overlap inputs in part."""
        return {}

    def seconds(self, graph: Graph, plan: Plan) -> list[float]:
        """Return the estimated seconds of each step of a plan."""
        planned: dict[int, int] = {}
        for work in plan.workspaces:
            planned[work.node] = planned.get(work.node, 0) + work.bytes
        shown = {share.node for share in plan.shares if share.rule == "view"}
        times = []
        for nodes in plan.steps:
            ways = self.step_seconds(graph, nodes, staged=False)
            room = planned.get(nodes[-1], max(size for size, _ in ways))
            fitting = [seconds for size, seconds in ways if size <= _padded(room)]
            seconds = min(fitting, default=ways[0][1])
            times.append(0.0 if len(nodes) == 1 and nodes[0] in shown else seconds)
        return times

    def step_seconds(
        self, graph: Graph, nodes: Sequence[int], *, staged: bool
    ) -> list[tuple[int, float]]:
        """Return the ways to run nodes as one: bytes of scratch memory, estimated seconds."""
        lowering = self.lowering(graph, nodes)
        if lowering is None:
            return [(0, 0.0)]
        seconds = _seconds(lowering)
        widest = max(lowering.slots, key=len, default=())
        others = sum(_padded(slot[0].bytes) for slot in lowering.slots if slot is not widest)
        if not widest:
            return [(0, seconds)]
        return [(others + _padded(choice.bytes), seconds + choice.cost * 1e-9) for choice in widest]

    def row_kernels(self, graph: Graph) -> None:
        """Return nothing: steps never run strip by strip."""
        return


BACKEND: Final = CupyBackend()
"""The registered backend: its only state is a cache of facts about graphs."""


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _seconds(lowering: StepLowering) -> float:
    """Return the estimated seconds of a step, without those that a choice of scratch adds."""
    total = 0.0
    for member in lowering.members:
        signature = member.signature
        if all(value in lowering.inline for value in member.outputs if value is not None):
            continue
        tensors = [tensor for tensor in (*signature.inputs, *signature.outputs) if tensor]
        total += LAUNCH + sum(tensor.bytes for tensor in tensors) / BYTES
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
    """Return the length of the sums of a product of matrices; 0 for other operators."""
    weights = signature.input(1)
    if weights is None or not weights.shape:
        return 0
    if signature.op in ("MatMul", "Gemm"):
        is_flipped = signature.op == "Gemm" and signature.attributes.get("transB", 0)
        return weights.shape[-1 if is_flipped or len(weights.shape) == 1 else -2]
    if signature.op in ("Conv", "ConvTranspose"):
        return prod(weights.shape[1:])
    return 0
