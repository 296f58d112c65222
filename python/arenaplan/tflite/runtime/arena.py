"""
The smallest arena in which TensorFlow Lite Micro runs a model: ``kTensorArenaSize``.

The runtime fills the arena from both ends. The tail permanently holds runtime structures and kernel
data. The head first holds requests and tensor descriptions, then the planner's data, and finally
tensors and scratch memory. The arena must be large enough for each phase; for small models, the
largest phase is not the last. The allocations are repeated here in the runtime's order, each with
the runtime's alignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final

from arenaplan.graph.ops import BITS
from arenaplan.tflite.reader.schema import DTYPES
from arenaplan.tflite.reader.tflite_model import TfliteModel, TfliteOperator, TfliteTensor
from arenaplan.tflite.reader.timeline import ALIGNMENT, Box, Timeline, timeline_of
from arenaplan.tflite.runtime import structures as known
from arenaplan.tflite.runtime.build import Build
from arenaplan.tflite.runtime.greedy import ONLINE, greedy_offsets, head_bytes
from arenaplan.tflite.runtime.kernels import KernelRequest, KernelSite, Requests, requests_of
from arenaplan.tflite.runtime.operator_costs import OperatorCost
from arenaplan.tflite.runtime.struct_layout import struct

_ZERO_POINT: Final = 4
"""Bytes per zero point."""
_COMPRESSED: Final = "COMPRESSION_METADATA"
"""Metadata in models whose weights are decompressed by kernels into scratch memory."""


@dataclass(frozen=True, slots=True)
class ArenaTotal:
    """An arena's parts, in bytes."""

    head: int
    """Tensors and scratch memory, as placed by the runtime."""
    tail: int
    """Runtime structures and kernel data."""
    startup: int
    """Smallest arena in which the runtime can prepare and plan, before placing tensors."""
    total: int
    """Smallest sufficient arena, a multiple of 16: the number for ``kTensorArenaSize``."""
    tensors: int
    """Head without scratch memory."""
    parts: dict[str, int] = field(default_factory=dict)
    """Bytes in the tail by purpose, with padding; empty if measured."""
    operators: tuple[OperatorCost, ...] = ()

    @property
    def scratch(self) -> int:
        """Bytes by which scratch memory makes the head larger."""
        return self.head - self.tensors

    @property
    def unknown(self) -> tuple[str, ...]:
        """Operators whose kernels are not known, each once."""
        return tuple(dict.fromkeys(o.name for o in self.operators if not o.is_known))

    @property
    def modelled(self) -> tuple[str, ...]:
        """Operators whose kernels are known only from sources, each once."""
        names = (o.name for o in self.operators if o.is_known and not o.is_compared)
        return tuple(dict.fromkeys(names))


def total(
    model: TfliteModel,
    offsets: Sequence[int] | None = None,
    *,
    kernels: str = "reference",
    pointer: int = 64,
    build: Build | None = None,
) -> ArenaTotal:
    """
    Return the smallest arena in which TensorFlow Lite Micro runs a model.

    Parameters
    ----------
    model : TfliteModel
        From :func:`~arenaplan.tflite.reader.tflite_model.parse`.
    offsets : sequence of int, optional
        Offset of every tensor in every subgraph; -1 where the runtime decides. By default the
        runtime decides all offsets, even if the model stores a plan.
    kernels : {"reference", "cmsis-nn"}
        The kernel set.
    pointer : {32, 64}
        Pointer size in bits.
    build : Build, optional
        The runtime's build, in place of ``kernels`` and ``pointer``.

    Raises
    ------
    InvalidOption
        If the build does not exist.
    PlanError
        If the build's profile belongs to another model.
    PlannerError
        As :func:`~arenaplan.tflite.reader.timeline.timeline_of`.
    """
    run = _Run(model, Build(kernels, pointer) if build is None else build)
    return run.result(timeline_of(model), offsets)


def operator_costs(model: TfliteModel, build: Build) -> tuple[OperatorCost, ...]:
    """Return each operator's memory beside tensors, by subgraph, in operator order."""
    return _Run(model, build).costs()


def with_scratch(timeline: Timeline, costs: Sequence[OperatorCost]) -> list[Box]:
    """
    Return a timeline's boxes, followed by boxes for scratch memory.

    Scratch boxes have no tensor: :attr:`Box.tensor` is -1. Kernels that never run get no scratch
    box.
    """
    boxes = list(timeline.boxes)
    for cost in costs:
        span = timeline.spans.get((cost.subgraph, cost.position))
        if span is None:
            continue
        for number, bytes_ in enumerate(cost.scratch):
            name = f"scratch {number} of {cost.name}_{cost.position}"
            if cost.subgraph:
                name += f" of subgraph {cost.subgraph}"
            boxes.append(Box(-1, name, _up(bytes_, ALIGNMENT), *span))
    return boxes


def head_of(timeline: Timeline, boxes: Sequence[Box], offsets: Sequence[int] | None = None) -> int:
    """
    Return the bytes that the runtime's planner needs for boxes.

    Parameters
    ----------
    timeline : Timeline
        The boxes' timeline; idle tensors are counted, too.
    boxes : sequence of Box
        From :func:`with_scratch`, or only the timeline's boxes.
    offsets : sequence of int, optional
        Offset of every tensor; -1 where the runtime decides. The runtime always places scratch
        memory.
    """
    every = [*boxes, *timeline.idle]
    fixed = [ONLINE if offsets is None or box.tensor < 0 else offsets[box.tensor] for box in every]
    return head_bytes(every, greedy_offsets(every, fixed))


class _Run:
    """The allocations during a runtime start."""

    def __init__(self, model: TfliteModel, build: Build) -> None:
        self._model = model
        self._build = build
        self._variables = _variables(model)
        self._sites = [
            (number, position, operator)
            for number, subgraph in enumerate(model.subgraphs)
            for position, operator in enumerate(subgraph.operators)
        ]
        self._head = self._temporary = self._tail = self._need = 0
        self._parts: dict[str, int] = {}

    # -- the arena -----------------------------------------------------------------------------

    def _keep(self, purpose: str, size: int, alignment: int = ALIGNMENT) -> None:
        """Take bytes at the tail."""
        before = self._tail
        self._tail = _up(self._tail + size, alignment)
        self._parts[purpose] = self._parts.get(purpose, 0) + self._tail - before
        # The runtime compares only with the head; tensor descriptions would be overwritten.
        self._fits(self._temporary)

    def _keep_struct(self, purpose: str, layout: str, count: int = 1) -> None:
        size, alignment = self._struct(layout)
        self._keep(purpose, size * count, alignment)

    def _struct(self, layout: str) -> tuple[int, int]:
        return struct(layout, self._build.pointer, compression=self._build.is_package)

    def _take(self, size: int, alignment: int) -> None:
        """Take bytes at the head until the next reset."""
        self._temporary = _up(self._temporary, alignment) + size
        self._fits(self._temporary)

    def _reserve(self, size: int) -> None:
        """Set the head's size."""
        self._head = self._temporary = size
        self._fits(size)

    def _fits(self, head: int) -> None:
        self._need = max(self._need, head + self._tail)

    # -- the runtime ---------------------------------------------------------------------------

    def costs(self) -> tuple[OperatorCost, ...]:
        """Return the operators' costs."""
        profile = self._build.profile
        if profile is not None:
            return profile.costs_of(self._model)
        return tuple(self._operators(self._struct(known.SCRATCH_REQUEST)[0]))

    def result(self, timeline: Timeline, offsets: Sequence[int] | None) -> ArenaTotal:
        """Return the arena's parts."""
        profile = self._build.profile
        if profile is not None:
            costs = profile.costs_of(self._model)
            head = head_of(timeline, with_scratch(timeline, costs), offsets)
            tensors = head_of(timeline, timeline.boxes, offsets)
            need = _up(max(profile.startup, head + profile.tail), ALIGNMENT)
            return ArenaTotal(head, profile.tail, profile.startup, need, tensors, {}, costs)
        request = self._struct(known.SCRATCH_REQUEST)[0]
        self._start(request)
        costs = tuple(self._operators(request))
        requests = sum(len(cost.scratch) for cost in costs)
        if requests:
            self._keep_struct("scratch handles", "p", requests)
        boxes = with_scratch(timeline, costs)
        self._plan(timeline, len(boxes) + len(timeline.idle), requests, offsets)
        startup, head = self._need, head_of(timeline, boxes, offsets)
        self._reserve(head)
        self._interface()
        return ArenaTotal(
            head,
            self._tail,
            _up(startup, ALIGNMENT),
            _up(self._need, ALIGNMENT),
            head_of(timeline, timeline.boxes, offsets),
            self._parts,
            costs,
        )

    def _start(self, request: int) -> None:
        """Create the allocator, and reserve the model's structures."""
        model, records = self._model, self._build.is_package
        self._keep_struct("allocator", known.RECORDING_ALLOCATOR if records else known.ALLOCATOR)
        self._keep_struct("allocator", known.PLANNER)
        self._keep_struct(
            "allocator", known.RECORDING_MICRO_ALLOCATOR if records else known.MICRO_ALLOCATOR
        )
        variables = len(set(self._variables.values()))
        if variables:
            self._keep("variables", self._struct(known.VARIABLES)[0])
            self._keep("variables", self._struct(known.VARIABLE)[0] * variables)
        self._keep_struct("allocator", known.OPTIONS_ALLOCATOR)
        self._reserve(request * known.MOST_SCRATCH)
        self._keep_struct("tensors", known.SUBGRAPH, len(model.subgraphs))
        for subgraph in model.subgraphs:
            self._keep_struct("tensors", known.EVAL_TENSOR, len(subgraph.tensors))
        for subgraph in model.subgraphs:
            self._keep_struct("operators", known.NODE, len(subgraph.operators))

    def _operators(self, request: int) -> list[OperatorCost]:
        """Run through the operators three times, as the runtime does."""
        kept = [0] * len(self._sites)
        for index, (_, _, operator) in enumerate(self._sites):
            before = self._tail
            if not operator.is_custom and operator.name in known.OPTIONS:
                self._keep_struct("operators", known.OPTIONS[operator.name])
            kept[index] += self._tail - before
        asked = [self._requests(number, operator) for number, _, operator in self._sites]
        for index, requests in enumerate(asked):
            before = self._tail
            for wanted in requests.initial if requests is not None else ():
                self._serve(wanted, self._sites[index][0])
            kept[index] += self._tail - before
        costs, count, allocated = [], 0, set[str]()
        for index, (number, position, operator) in enumerate(self._sites):
            before = self._tail
            requests = asked[index]
            prepared = requests.prepared if requests is not None else ()
            for wanted in prepared:
                self._serve(wanted, number)
            self._allocate_variable(number, operator, allocated)
            kept[index] += self._tail - before
            scratch = tuple(wanted.amount for wanted in prepared if wanted.kind == "scratch")
            count += len(scratch)
            self._reserve(request * (count + known.MOST_SCRATCH))
            kernel = self._build.kernel(operator)
            costs.append(
                OperatorCost(
                    number,
                    position,
                    operator.name,
                    scratch,
                    kept[index],
                    is_known=requests is not None,
                    is_compared=kernel is not None and kernel.is_compared,
                )
            )
        return costs

    def _requests(self, subgraph: int, operator: TfliteOperator) -> Requests | None:
        """Return the requests from an operator's kernel, if known."""
        kernel = self._build.kernel(operator)
        if kernel is None or _is_compressed(self._model):
            return None
        site = KernelSite(
            self._model, subgraph, operator, self._build.pointer, self._build.is_package
        )
        return requests_of(kernel, site)

    def _allocate_variable(
        self, subgraph: int, operator: TfliteOperator, allocated: set[str]
    ) -> None:
        """Keep a variable's bytes when the first kernel that writes the variable is prepared."""
        if operator.is_custom or operator.name != "ASSIGN_VARIABLE" or len(operator.inputs) < 2:
            return
        handle, value = operator.inputs[:2]
        name = None if handle is None else self._variables.get((subgraph, handle))
        if name is None or value is None or name in allocated:
            return
        allocated.add(name)
        self._keep("variables", _tensor_bytes(self._model.subgraphs[subgraph].tensors[value]))

    def _serve(self, request: KernelRequest, subgraph: int) -> None:
        """Serve a kernel's request."""
        if request.kind == "keep":
            self._keep("kernels", request.amount)
        elif request.kind == "temporary":
            self._take(request.amount, ALIGNMENT)
        elif request.kind == "describe":
            tensor = self._model.subgraphs[subgraph].tensors[request.amount]
            self._take(*self._struct(known.TENSOR))
            scales = _scales(tensor)
            if scales:
                self._take(*self._struct(known.QUANTIZATION))
                self._take(4 + _ZERO_POINT * scales, 4)

    def _plan(
        self, timeline: Timeline, boxes: int, requests: int, offsets: Sequence[int] | None
    ) -> None:
        """Record the lifetimes of all tensors and scratch memory, and plan them."""
        model = self._model
        pointer = self._build.pointer // 8
        self._take(pointer * len(model.subgraphs), pointer)
        size, alignment = self._struct(known.ALLOCATION)
        self._take(size * (timeline.tensors + requests), alignment)
        for subgraph, index in timeline.variables:
            # The runtime looks up the offset as if the variable were in the first subgraph.
            if offsets is None or offsets[index] == ONLINE:
                self._keep("variables", _tensor_bytes(model.subgraphs[subgraph].tensors[index]))
        # The planner works in the memory between both ends, in whole units only.
        between = _up(self._temporary, ALIGNMENT) + _up(self._tail, ALIGNMENT)
        self._need = max(self._need, between + known.PLANNED_BUFFER * boxes)

    def _interface(self) -> None:
        """Describe inputs and outputs for good."""
        main = self._model.subgraphs[0]
        for operands in (main.inputs, main.outputs):
            self._keep("inputs and outputs", self._build.pointer // 8 * len(operands))
            for index in operands:
                self._keep_struct("inputs and outputs", known.TENSOR)
                scales = _scales(main.tensors[index])
                if scales:
                    self._keep_struct("inputs and outputs", known.QUANTIZATION)
                    self._keep("inputs and outputs", 4 + _ZERO_POINT * scales, 4)


def _up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _is_compressed(model: TfliteModel) -> bool:
    return any(entry.name == _COMPRESSED for entry in model.metadata)


def _tensor_bytes(tensor: TfliteTensor) -> int:
    """Return a tensor's bytes; the runtime packs no elements."""
    dtype = DTYPES.get(tensor.type, "")
    return prod(tensor.shape or ()) * max(8, BITS.get(dtype, 0)) // 8


def _variables(model: TfliteModel) -> dict[tuple[int, int], str]:
    """Return the variable's name for every handle, by subgraph and tensor."""
    found: dict[tuple[int, int], str] = {}
    for number, subgraph in enumerate(model.subgraphs):
        for operator in subgraph.operators:
            if operator.is_custom or operator.name != "VAR_HANDLE":
                continue
            name = operator.options.text(1)
            found.update(((number, i), name) for i in operator.outputs if i is not None)
    return found


def _scales(tensor: TfliteTensor) -> int:
    """Return the number of scales for which the runtime copies zero points."""
    quantization = tensor.quantization
    if quantization is None or not quantization.zero_point:
        return 0
    return len(quantization.scale)
