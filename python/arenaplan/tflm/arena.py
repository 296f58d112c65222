"""
The smallest arena with which TensorFlow Lite Micro runs a model: ``kTensorArenaSize``.

The runtime fills its arena from both ends. At the tail it keeps its own structures and the
data of kernels for good. At the head it first notes requests and describes tensors, then plans,
and at last puts tensors and scratch memory there. The arena must be large enough at each of
these moments; for small models that is not the last one. The allocations are repeated here in
the runtime's order, each with its alignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final, Literal, TypeAlias

from arenaplan.errors import InvalidOption
from arenaplan.ops import BITS
from arenaplan.importers.tflite.model import Model, Tensor
from arenaplan.importers.tflite.schema import DTYPES
from arenaplan.importers.tflite.timeline import ALIGNMENT, Box, timeline_of
from arenaplan.tflm import structures as known
from arenaplan.tflm.greedy import ONLINE, greedy_offsets, head_bytes
from arenaplan.tflm.kernels import KERNELS, Kernel, Request, Site
from arenaplan.tflm.layout import struct

Kernels: TypeAlias = Literal["reference"]

_BYTES_OF_ZERO_POINT: Final = 4


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """Memory that one operator takes beside its tensors."""

    subgraph: int
    position: int
    name: str
    scratch: tuple[int, ...]
    """Bytes of each scratch buffer, as the kernel asks for them."""
    persistent: int
    """Bytes of the arena's tail for its options, its data and its tables."""
    is_known: bool
    """Whether the kernel is in the table; an unknown one counts as asking for nothing."""


@dataclass(frozen=True, slots=True)
class ArenaTotal:
    """The parts of an arena, in bytes."""

    head: int
    """Tensors and scratch memory, as the runtime places them."""
    tail: int
    """The runtime's structures and the data of kernels."""
    startup: int
    """Least arena with which the runtime can prepare and plan, before it places tensors."""
    total: int
    """Least arena that suffices, a multiple of 16: the number for ``kTensorArenaSize``."""
    tensors: int
    """Head without scratch memory."""
    parts: dict[str, int] = field(default_factory=dict)
    """Bytes of the tail by purpose, and their padding."""
    operators: tuple[OperatorCost, ...] = ()

    @property
    def scratch(self) -> int:
        """Bytes by which scratch memory makes the head larger."""
        return self.head - self.tensors

    @property
    def unknown(self) -> tuple[str, ...]:
        """Operators whose kernels are not in the table, each once."""
        return tuple(dict.fromkeys(o.name for o in self.operators if not o.is_known))


def total(
    model: Model,
    offsets: Sequence[int] | None = None,
    *,
    kernels: Kernels = "reference",
    pointer: int = 64,
    recording: bool | None = None,
    compression: bool | None = None,
) -> ArenaTotal:
    """
    Return the least arena with which TensorFlow Lite Micro runs a model.

    Parameters
    ----------
    model : Model
        Result of :func:`~arenaplan.importers.tflite.model.parse`.
    offsets : sequence of int, optional
        Offset of every tensor of every subgraph, -1 where the runtime decides; by default all
        are decided by the runtime, whatever plan the model brings along.
    kernels : {"reference"}
        The set of kernels.
    pointer : {32, 64}
        Bits of a pointer.
    recording, compression : bool, optional
        Whether the runtime records its allocations, and whether it is compiled with compressed
        weights. By default both are so for 64 bits, as in the Python package ``tflite-micro``,
        and neither for 32 bits, as in firmware.

    Raises
    ------
    InvalidOption
        If the pointer has another size.
    PlannerError
        As :func:`~arenaplan.importers.tflite.timeline.timeline_of`.
    """
    if pointer not in (32, 64):
        raise InvalidOption(f"option pointer: {pointer} bits; known are 32 and 64")
    is_package = pointer == 64
    run = _Run(
        model,
        pointer,
        is_package if compression is None else compression,
        is_package if recording is None else recording,
    )
    return run.result(offsets)


class _Run:
    """The allocations of one start of the runtime."""

    def __init__(self, model: Model, pointer: int, compression: bool, recording: bool) -> None:
        self._model = model
        self._pointer = pointer
        self._compression = compression
        self._recording = recording
        self._table = KERNELS
        self._head = self._temporary = self._tail = self._need = 0
        self._parts: dict[str, int] = {}

    # -- the arena -----------------------------------------------------------------------------

    def _keep(self, purpose: str, size: int, alignment: int = ALIGNMENT) -> None:
        """Take bytes at the tail."""
        before = self._tail
        self._tail = _up(self._tail + size, alignment)
        self._parts[purpose] = self._parts.get(purpose, 0) + self._tail - before
        self._fits(self._head)

    def _keep_struct(self, purpose: str, layout: str, count: int = 1) -> None:
        size, alignment = self._struct(layout)
        self._keep(purpose, size * count, alignment)

    def _struct(self, layout: str) -> tuple[int, int]:
        return struct(layout, self._pointer, compression=self._compression)

    def _take(self, size: int, alignment: int) -> None:
        """Take bytes at the head until the next reset."""
        self._temporary = _up(self._temporary, alignment) + size
        self._fits(self._temporary)

    def _reserve(self, size: int) -> None:
        """Set the size of the head."""
        self._head = self._temporary = size
        self._fits(size)

    def _fits(self, head: int) -> None:
        self._need = max(self._need, head + self._tail)

    # -- the runtime ---------------------------------------------------------------------------

    def result(self, offsets: Sequence[int] | None) -> ArenaTotal:
        model = self._model
        recording = self._recording
        self._keep_struct(
            "allocator", known.RECORDING_ALLOCATOR if recording else known.ALLOCATOR
        )
        self._keep_struct("allocator", known.PLANNER)
        self._keep_struct(
            "allocator", known.RECORDING_MICRO_ALLOCATOR if recording else known.MICRO_ALLOCATOR
        )
        variables = _variables(model)
        if variables:
            self._keep("variables", self._struct(known.VARIABLES)[0])
            self._keep("variables", self._struct(known.VARIABLE)[0] * len(set(variables.values())))
        self._keep_struct("allocator", known.OPTIONS_ALLOCATOR)
        request = self._struct(known.SCRATCH_REQUEST)[0]
        self._reserve(request * known.MOST_SCRATCH)
        self._keep_struct("subgraphs", known.SUBGRAPH, len(model.subgraphs))
        for subgraph in model.subgraphs:
            self._keep_struct("tensors", known.EVAL_TENSOR, len(subgraph.tensors))
        for subgraph in model.subgraphs:
            self._keep_struct("operators", known.NODE, len(subgraph.operators))
        costs = self._operators(request, variables)
        scratch = [bytes_ for cost in costs for bytes_ in cost.scratch]
        if scratch:
            self._keep_struct("scratch handles", "p", len(scratch))
        head, tensors = self._plan(costs, offsets)
        startup = self._need
        self._reserve(head)
        self._interface()
        return ArenaTotal(
            head,
            self._tail,
            _up(startup, ALIGNMENT),
            _up(self._need, ALIGNMENT),
            tensors,
            self._parts,
            tuple(costs),
        )

    def _operators(self, request: int, variables: dict[tuple[int, int], str]) -> list[OperatorCost]:
        """Run through the operators three times, as the runtime does."""
        sites = [
            (number, position, operator)
            for number, subgraph in enumerate(self._model.subgraphs)
            for position, operator in enumerate(subgraph.operators)
        ]
        kept = [0] * len(sites)
        kernels = [None if o.is_custom else self._table.get(o.name) for _, _, o in sites]
        for index, (_, _, operator) in enumerate(sites):
            before = self._tail
            if not operator.is_custom and operator.name in known.OPTIONS:
                self._keep_struct("operators", known.OPTIONS[operator.name])
            kept[index] += self._tail - before
        for index, kernel in enumerate(kernels):
            before = self._tail
            layout = kernel.data if kernel is not None else ""
            size = self._struct(layout)[0] if layout else 0
            if size:
                self._keep("kernels", size)
            kept[index] += self._tail - before
        costs, requests, allocated = [], 0, set[str]()
        for index, (number, position, operator) in enumerate(sites):
            site = Site(self._model, number, operator, self._pointer, self._compression)
            kernel = kernels[index]
            if kernel is not None:
                _prepare(site, kernel)
            before = self._tail
            for wanted in site.requests:
                self._serve(wanted, number)
            handle = (number, operator.inputs[0] or 0) if operator.inputs else (-1, -1)
            name = variables.get(handle)
            if operator.name == "ASSIGN_VARIABLE" and name is not None and name not in allocated:
                allocated.add(name)
                value = self._model.subgraphs[number].tensors[operator.inputs[1] or 0]
                self._keep("variables", _tensor_bytes(value))
            kept[index] += self._tail - before
            scratch = tuple(r.amount for r in site.requests if r.kind == "scratch")
            requests += len(scratch)
            self._reserve(request * (requests + known.MOST_SCRATCH))
            costs.append(
                OperatorCost(
                    number, position, operator.name, scratch, kept[index], kernel is not None
                )
            )
        return costs

    def _serve(self, request: Request, subgraph: int) -> None:
        """Serve one request of a kernel."""
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
                self._take(4 + _BYTES_OF_ZERO_POINT * scales, 4)

    def _plan(
        self, costs: Sequence[OperatorCost], offsets: Sequence[int] | None
    ) -> tuple[int, int]:
        """Plan tensors and scratch memory; return the head with and without the latter."""
        model = self._model
        timeline = timeline_of(model)
        boxes = [*timeline.boxes, *timeline.idle]
        fixed = [ONLINE if offsets is None else offsets[box.tensor] for box in boxes]
        tensors = head_of(boxes, fixed)
        for cost in costs:
            for number, bytes_ in enumerate(cost.scratch):
                span = timeline.spans.get((cost.subgraph, cost.position), (-1, 0))
                name = f"{cost.name}#{cost.position}/{number}"
                boxes.append(Box(-1, name, _up(bytes_, ALIGNMENT), *span))
                fixed.append(ONLINE)
        count = sum(len(subgraph.tensors) for subgraph in model.subgraphs)
        count += sum(len(cost.scratch) for cost in costs)
        pointer = self._pointer // 8
        self._take(pointer * len(model.subgraphs), pointer)
        size, alignment = self._struct(known.ALLOCATION)
        self._take(size * count, alignment)
        for subgraph, flat in timeline.variables:
            if offsets is None or offsets[flat] == ONLINE:
                tensor = model.subgraphs[subgraph].tensors[flat]
                self._keep("variables", _tensor_bytes(tensor))
        self._fits(_up(self._temporary, ALIGNMENT) + known.PLANNED_BUFFER * len(boxes))
        return head_of(boxes, fixed), tensors

    def _interface(self) -> None:
        """Describe inputs and outputs for good."""
        main = self._model.subgraphs[0]
        for operands in (main.inputs, main.outputs):
            self._keep("inputs and outputs", self._pointer // 8 * len(operands))
            for index in operands:
                self._keep_struct("inputs and outputs", known.TENSOR)
                scales = _scales(main.tensors[index])
                if scales:
                    self._keep_struct("inputs and outputs", known.QUANTIZATION)
                    self._keep("inputs and outputs", 4 + _BYTES_OF_ZERO_POINT * scales, 4)


def head_of(boxes: Sequence[Box], fixed: Sequence[int]) -> int:
    """Return the bytes that the runtime's planner needs around fixed offsets."""
    return head_bytes(boxes, greedy_offsets(boxes, fixed))


def _prepare(site: Site, kernel: Kernel) -> None:
    if isinstance(kernel.prepare, str):
        site.describe(kernel.prepare)
    else:
        kernel.prepare(site)


def _up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _tensor_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor, of which the runtime packs none."""
    dtype = DTYPES.get(tensor.type, "")
    return prod(tensor.shape or ()) * max(8, BITS.get(dtype, 0)) // 8


def _variables(model: Model) -> dict[tuple[int, int], str]:
    """Return the name of the variable behind every handle, by subgraph and tensor."""
    found = {}
    for number, subgraph in enumerate(model.subgraphs):
        for operator in subgraph.operators:
            if operator.is_custom or operator.name != "VAR_HANDLE" or operator.options is None:
                continue
            name = operator.options.string(1) or ""
            found.update(((number, i), name) for i in operator.outputs if i is not None)
    return found


def _scales(tensor: Tensor) -> int:
    """Return the number of scales that the runtime copies zero points for."""
    quantization = tensor.quantization
    if quantization is None or not quantization.zero_point:
        return 0
    return len(quantization.scale)
