"""
The work of a whole plan, before a device is there.

Everything that graph and plan determine is decided here: kernel text, constants, scratch memory and
streams. Copies are dropped where a value already is in place. Results wait elsewhere while a kernel
still reads what is in the result's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from arenaplan.base.errors import TargetMismatch, fault
from arenaplan.graph import Graph
from arenaplan.run.cuda.device_work import (
    DeviceCopy,
    DevicePlace,
    DeviceProduct,
    DeviceSpan,
    HostCall,
    Launch,
    Work,
    early_writes,
    moved,
)
from arenaplan.run.cuda.lowering import StepLowering, check_supported
from arenaplan.run.cuda.streams import Schedule, schedule
from arenaplan.run.cuda.text import DeviceKernel
from arenaplan.run.numpy.signatures import byte_size
from arenaplan.run.numpy.steps import spans_of

if TYPE_CHECKING:
    from arenaplan._core import Plan

ALIGNMENT: Final = 256
"""Bytes that the addresses of arenas, constants and scratch buffers are multiples of."""


ARENA: Final = 0
CONSTANTS: Final = 1
OUTSIDE: Final = 2


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """A step's work, with the memory for every place."""

    node: int
    """Index of the last node of the step."""
    works: tuple[Work, ...]
    spans: dict[DevicePlace, DeviceSpan]


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """A plan's work."""

    steps: tuple[DeviceStep, ...]
    kernels: tuple[DeviceKernel, ...]
    """Every kernel once, by name."""
    arena_bytes: int
    constants: dict[int, DeviceSpan]
    """Constants that kernels read."""
    constant_bytes: int
    outside_bytes: int
    """Memory outside the arena: scratch buffers that the plan does not have, and results that
    must not be in their places before all operands are read."""
    values: dict[int, DeviceSpan]
    """Bytes of every value that is in the arena."""
    schedule: Schedule

    @property
    def source(self) -> str:
        """The text for all kernels, without platform definitions."""
        return "\n".join(kernel.text for kernel in self.kernels)

    @property
    def multiplies(self) -> bool:
        """True if there are matrix products."""
        return any(isinstance(work, DeviceProduct) for step in self.steps for work in step.works)

    @property
    def host_calls(self) -> list[HostCall]:
        """The nodes that run on the host."""
        works = (work for step in self.steps for work in step.works)
        return [work for work in works if isinstance(work, HostCall)]

    @property
    def launches(self) -> int:
        """Number of work pieces per run."""
        return sum(len(step.works) for step in self.steps)


def device_program(graph: Graph, plan: Plan, streams: int = 1) -> DeviceProgram:
    """
    Return a plan's work.

    Parameters
    ----------
    graph : Graph
        The graph that was planned.
    plan : Plan
        A plan for the target ``"cupy"``.
    streams : int, default 1
        Most streams that run steps at the same time.

    Raises
    ------
    TargetMismatch
        If the plan is for another target.
    UnsupportedOp, UnsupportedDtype
        If a node has no kernel; the message lists all operators without a kernel.
    """
    if plan.target.runtime != "cupy":
        raise TargetMismatch(
            f"the plan is for target {plan.target.name!r}, and a device runs plans for 'cupy'"
        )
    check_supported(graph)
    return _Maker(graph, plan, streams).program()


class _Maker:
    """A program under construction."""

    def __init__(self, graph: Graph, plan: Plan, streams: int) -> None:
        self.graph = graph
        self.plan = plan
        self.streams = streams
        spans = spans_of(graph, plan)
        self.values = {
            index: DeviceSpan(ARENA, span.start, span.stop) for index, span in spans.items()
        }
        self.constants: dict[int, DeviceSpan] = {}
        self.constant_bytes = 0
        self.shared = 0
        self.outside = 0
        self.kernels: dict[str, DeviceKernel] = {}

    def program(self) -> DeviceProgram:
        planned: dict[int, list[DeviceSpan]] = {}
        bases = self.plan.bases
        for work in self.plan.workspaces:
            start = bases[work.space] + work.offset
            planned.setdefault(work.node, []).append(DeviceSpan(ARENA, start, start + work.bytes))
        steps = tuple(self._step(nodes, planned.get(nodes[-1])) for nodes in self.plan.steps)
        arena = max(
            base + space.arena_bytes for base, space in zip(bases, self.plan.spaces, strict=True)
        )
        return DeviceProgram(
            steps,
            tuple(self.kernels[name] for name in sorted(self.kernels)),
            arena,
            self.constants,
            self.constant_bytes,
            self.outside,
            self.values,
            schedule(
                self.plan.hazards(self.graph), [bool(step.works) for step in steps], self.streams
            ),
        )

    def _step(self, nodes: Sequence[int], planned: list[DeviceSpan] | None) -> DeviceStep:
        lowering = StepLowering(self.graph, nodes)
        used = 0 if self.streams == 1 else self.outside

        def outside(size: int) -> DeviceSpan:
            nonlocal used
            start, used = used, used + _padded(size)
            self.outside = max(self.outside, used)
            return DeviceSpan(OUTSIDE, start, start + size)

        scratch = planned
        if scratch is None:
            best = [min(slot, key=lambda choice: choice.cost).bytes for slot in lowering.slots]
            scratch = [outside(size) for size in best]
        works = lowering.works([span.stop - span.start for span in scratch])
        spans = {DevicePlace("scratch", at): span for at, span in enumerate(scratch)}
        for work in works:
            for place in (*work.writes, *(read.place for read in work.reads)):
                if place.kind == "value":
                    spans[place] = self._span(place.number)
        left = [work for work in works if not self._is_done(nodes, work, spans)]
        if not early_writes(left, spans):  # A result that waits is made whole.
            works = left
        staged: list[Work] = []
        for place in early_writes(works, spans):
            span = spans[place]
            own = lowering.staging_slot
            if staged or own is None or planned is None:
                waiting = DevicePlace("staged", len(staged))
                spans[waiting] = outside(span.stop - span.start)
            else:
                waiting = DevicePlace("scratch", own)
            works = [moved(work, place, waiting) for work in works]
            staged.append(DeviceCopy(waiting, place, span.stop - span.start))
        if early_writes(works, spans):
            node = self.graph.nodes[nodes[-1]]
            raise fault(
                "KernelError", f"node {node.name!r} ({node.op}) overwrites what it still reads"
            )
        for work in works:
            if isinstance(work, Launch):
                self.kernels.setdefault(work.kernel.name, work.kernel)
        return DeviceStep(nodes[-1], (*works, *staged), spans)

    def _span(self, value: int) -> DeviceSpan:
        if self.graph.values[value].kind != "constant":
            return self.values[value]
        if value not in self.constants:
            size = byte_size(self.graph.values[value])
            start = self.constant_bytes
            self.constants[value] = DeviceSpan(CONSTANTS, start, start + size)
            self.constant_bytes += _padded(size)
        return self.constants[value]

    def _is_done(
        self, nodes: Sequence[int], work: Work, spans: dict[DevicePlace, DeviceSpan]
    ) -> bool:
        """Return whether the plan already has the operand where the work would copy it."""
        if len(nodes) > 1 or not isinstance(work, Launch):
            return False
        node = self.graph.nodes[nodes[0]]
        for view in node.effects.views:
            source, result = node.inputs[view.input], node.outputs[view.output]
            if source is None or result is None or view.input != work.position:
                continue
            if work.writes != (DevicePlace("value", result),):
                continue
            first = spans.get(DevicePlace("value", source))
            second = spans[DevicePlace("value", result)]
            if first is None or first.memory != second.memory:
                continue
            large, small = (first, second) if view.of == "input" else (second, first)
            if small.start == large.start + view.offset:
                return True
        return False


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
