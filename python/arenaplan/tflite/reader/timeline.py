"""
When TensorFlow Lite Micro needs each tensor, and in how many bytes.

The rule is the runtime's, not the importer's: the clock runs through the subgraphs that an operator
calls, so all subgraphs share one arena; variables and constants are outside that arena.
:mod:`~arenaplan.tflite.runtime.aliases` adds bytes shared by kernels other than reshapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Final, NamedTuple

from arenaplan.base.errors import (
    UndefinedValue,
    UnsupportedModel,
    UnsupportedOp,
    UnsupportedSubgraph,
    fault,
)
from arenaplan.base.quoting import quoted
from arenaplan.graph import Graph, View
from arenaplan.graph.ops import BITS
from arenaplan.graph.sizes import checked_bytes
from arenaplan.tflite.reader.accepted import check_accepted
from arenaplan.tflite.reader.entries import CALLEES
from arenaplan.tflite.reader.tflite_model import TfliteModel, TfliteOperator, checked_index
from arenaplan.tflite.reader.tflite_operators import CALLS
from arenaplan.tflite.reader.tflite_tensors import SubgraphShapes, dtype_of, unique_names

ALIGNMENT: Final = 16
"""Unit that the runtime rounds every size up to."""

_COPY_FREE: Final = frozenset({"RESHAPE"})
"""Operators whose kernel copies nothing if input and output have the same address."""

_HANDLES: Final = "VAR_HANDLE"
"""
Operator whose kernel points the output at its own memory during preparation, so that the runtime's
planner does not see the output.
"""


@dataclass(slots=True)
class Box:
    """A tensor in the arena, with the steps in which the tensor is needed."""

    tensor: int
    """Position among all subgraphs' tensors."""
    name: str
    size: int
    """Bytes, rounded up to :data:`ALIGNMENT`."""
    start: int
    end: int
    """Step after the last: live ranges are half-open."""
    dtype: str = ""
    """The tensor's element type; empty for bytes without a tensor."""
    shape: tuple[int, ...] = ()


class Same(NamedTuple):
    """
    Two boxes, one of which shows the other's bytes from ``step`` on.

    The boxes may have the given distance: the kernel then copies bytes onto themselves.
    """

    step: int
    source: int
    result: int
    distance: int = 0
    """Bytes from the larger box's start to the smaller box's start."""
    is_joined: bool = False
    """Whether the source is smaller, as for a concatenation's operand."""


class Takeover(NamedTuple):
    """
    A box that may take another box's offset; the other box is read for the last time in ``step``.
    """

    step: int
    source: int
    result: int


@dataclass(slots=True)
class Timeline:
    """All boxes in a model; ``tensors`` also counts tensors without a box."""

    boxes: list[Box] = field(default_factory=list)
    """In the order in which the runtime adds boxes to the planner."""
    same: list[Same] = field(default_factory=list)
    """Pairs of positions in :attr:`boxes`."""
    in_place: list[Takeover] = field(default_factory=list)
    """Pairs for kernels that read each element before writing the element."""
    steps: int = 0
    labels: list[str] = field(default_factory=list)
    """Per step the operator that runs, or ``"Inputs"``."""
    tensors: int = 0
    variables: list[tuple[int, int]] = field(default_factory=list)
    """Each variable's subgraph and position in the subgraph."""
    spans: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """
    By subgraph and operator position, for operators that run: the half-open steps from first to
    last run, in which the kernel needs its scratch memory.
    """
    idle: list[Box] = field(default_factory=list)
    """
    Tensors that no running operator mentions. The runtime still allocates memory for them, as if
    needed in a step before the first.
    """
    starts: tuple[int, ...] = ()
    """Per subgraph, the first tensor's position among all subgraphs' tensors."""
    areas: dict[int, frozenset[int]] = field(default_factory=dict)
    """
    Positions in :attr:`boxes` of tensors that are read but never written, such as an accelerator's
    memory, each with the other operands of the tensor's readers, which the accelerator's compiler
    placed inside.
    """


def timeline_of(model: TfliteModel) -> Timeline:
    """
    Return when the runtime needs each tensor in a model.

    Raises
    ------
    UnsupportedSubgraph, UnsupportedOp
        If an operator calls a subgraph in a way unknown to the runtime, or omits an output.
    UndefinedValue
        If an operator reads a tensor that a later operator writes.
    UnsupportedModel
        If the chosen subgraph is not the first, or a runtime kernel refuses its operand types.
    ModelError
        If subgraphs call each other more often than the file's size justifies.
    """
    if model.main:
        raise UnsupportedModel(
            f"TensorFlow Lite Micro runs the first subgraph alone, and subgraph {model.main} was "
            "chosen; plan for another target, such as litert"
        )
    check_accepted(model)
    clock = _Clock(model)
    clock.run()
    return clock.timeline()


def graph_of_timeline(
    timeline: Timeline,
    name: str = "",
    boxes: Sequence[Box] | None = None,
    offsets: Sequence[int] | None = None,
) -> Graph:
    """
    Return a graph whose values live exactly when the runtime needs the boxes.

    The values are the boxes, in order; the nodes are the steps, which run one after the other. The
    name of a tensor gets its position if another subgraph has the same name.

    Parameters
    ----------
    timeline : Timeline
        When the runtime needs each tensor.
    name : str, optional
        The graph's name.
    boxes : sequence of Box, optional
        The timeline's boxes, optionally followed by scratch boxes; by default the timeline's boxes.
    offsets : sequence of int, optional
        The plan stored in the model. Tensors inside an accelerator's memory are merged with that
        memory into a value.
    """
    boxes = timeline.boxes if boxes is None else boxes
    if timeline.areas and offsets is not None:
        boxes, timeline = _joined(timeline, boxes, offsets)
    graph = Graph(name)
    graph.target = "tflm"
    seen: set[str] = set()
    values = []
    for position, box in enumerate(boxes):
        unique = f"{box.name}#{position}" if box.name in seen else box.name
        seen.add(unique)
        values.append(graph.value(unique, (box.size,), "uint8"))
        if box.dtype:
            graph.tensors[values[-1]] = (box.dtype, box.shape)
    reads: list[list[int]] = [[] for _ in range(timeline.steps)]
    writes: list[list[int]] = [[] for _ in range(timeline.steps)]
    for value, box in zip(values, boxes, strict=True):
        writes[box.start].append(value)
        if box.end - 1 > box.start:
            reads[box.end - 1].append(value)
    views: list[list[View]] = [[] for _ in range(timeline.steps)]
    for same in timeline.same:
        step, source, result = same[:3]
        if boxes[result].start != step or boxes[source].start >= step:
            continue
        if values[source] not in reads[step]:
            reads[step].append(values[source])
        pair = reads[step].index(values[source]), writes[step].index(values[result])
        views[step].append(View(*pair, same.distance, "output" if same.is_joined else "input"))
    in_place: list[list[tuple[int, int]]] = [[] for _ in range(timeline.steps)]
    for step, source, result in timeline.in_place:
        if boxes[result].start == step and values[source] in reads[step]:
            pair = reads[step].index(values[source]), writes[step].index(values[result])
            in_place[step].append(pair)
    for step in range(timeline.steps):
        graph.node(
            timeline.labels[step] if step < len(timeline.labels) else "Step",
            reads[step],
            writes[step],
            views=views[step],
            in_place=in_place[step],
            after=[step - 1] if step else (),
        )
    return graph


def _joined(
    timeline: Timeline, boxes: Sequence[Box], offsets: Sequence[int]
) -> tuple[list[Box], Timeline]:
    """Merge boxes inside an accelerator's memory."""
    spans = [
        None if box.tensor < 0 or offsets[box.tensor] < 0 else offsets[box.tensor] for box in boxes
    ]
    leader = list(range(len(boxes)))
    for area, others in timeline.areas.items():
        for other in sorted(others):
            low, at = spans[area], spans[other]
            if low is None or at is None:
                continue
            if at < low + boxes[area].size and low < at + boxes[other].size:
                old, new = sorted((leader[area], leader[other]), reverse=True)
                leader = [new if each == old else each for each in leader]
    found: list[Box] = []
    for first in dict.fromkeys(leader):
        inside = [position for position, each in enumerate(leader) if each == first]
        if len(inside) == 1:
            found.append(boxes[first])
            continue
        members = [boxes[position] for position in inside]
        low = min(offsets[box.tensor] for box in members)
        high = max(offsets[box.tensor] + box.size for box in members)
        largest = max(members, key=lambda box: box.size)
        start, end = min(box.start for box in members), max(box.end for box in members)
        found.append(Box(largest.tensor, largest.name, high - low, start, end))
    return found, replace(timeline, boxes=found, same=[], in_place=[])


@dataclass(slots=True)
class _Frame:
    """A subgraph that is being run."""

    subgraph: int
    position: int = 0
    """Operator that is running or comes next."""
    callees: list[int] | None = None
    """Subgraphs that the running operator has yet to call; ``None`` if none is running."""
    began: int = 0
    """Step in which the running operator began."""


class _Clock:
    """The steps of a run, and each tensor's first and last needed step."""

    def __init__(self, model: TfliteModel) -> None:
        self._model = model
        self._handles = [
            {
                output
                for operator in subgraph.operators
                if not operator.is_custom and operator.name == _HANDLES
                for output in operator.outputs
            }
            for subgraph in model.subgraphs
        ]
        self._first: list[list[int | None]] = [[None] * len(s.tensors) for s in model.subgraphs]
        self._last: list[list[int]] = [[0] * len(s.tensors) for s in model.subgraphs]
        self._same: list[tuple[int, int, int, int]] = []
        self._unwritten: list[tuple[int, int]] = []
        self._areas: list[tuple[int, int]] = []
        self._spans: dict[tuple[int, int], tuple[int, int]] = {}
        self._step = 0
        self._labels = ["Inputs"]
        self._budget = len(model.data)

    def run(self) -> None:
        """
        Run the main subgraph and called subgraphs; not recursively, because files are untrusted.
        """
        stack = [self._enter(0)]
        while stack:
            frame = stack[-1]
            subgraph = self._model.subgraphs[frame.subgraph]
            if frame.callees:
                callee = frame.callees.pop(0)
                if any(caller.subgraph == callee for caller in stack):
                    raise UnsupportedSubgraph(f"subgraph {callee} calls itself")
                self._tick("Call")
                stack.append(self._enter(callee))
            elif frame.callees is not None:
                self._finish(frame.subgraph, subgraph.operators[frame.position])
                operator = (frame.subgraph, frame.position)
                first, _ = self._spans.get(operator, (frame.began, 0))
                self._spans[operator] = (first, self._step + 1)
                frame.callees = None
                frame.position += 1
            elif frame.position < len(subgraph.operators):
                self._tick(subgraph.operators[frame.position].name)
                frame.began = self._step
                frame.callees = self._begin(frame.subgraph, frame.position)
            else:
                for tensor in subgraph.outputs:
                    self._create(frame.subgraph, tensor)
                    self._use(frame.subgraph, tensor)
                stack.pop()
        self._settle()

    def _settle(self) -> None:
        """Decide about tensors that were read before any write."""
        for index, tensor in self._unwritten:
            # An accelerator's scratch memory is never written: always live.
            if self._first[index][tensor] is None:
                self._first[index][tensor] = 0
                self._areas.append((index, tensor))
            elif self._in_arena(index, tensor) and self._first[index][tensor] != 0:
                name = self._model.subgraphs[index].tensors[tensor].name
                raise UndefinedValue(
                    f"tensor {tensor} ({quoted(name)}) of subgraph {index} is read before it is "
                    "written"
                )

    def _tick(self, label: str) -> None:
        """Go on to the next step."""
        self._step += 1
        self._labels.append(label)
        self._spend()

    def _spend(self) -> None:
        """Refuse more subgraph calls than the file's size justifies."""
        self._budget -= 1
        if self._budget < 0:
            raise fault(
                "BudgetExceeded",
                "subgraphs call each other more often than the file justifies",
            )

    def _enter(self, index: int) -> _Frame:
        """Begin a subgraph: the inputs exist."""
        for tensor in self._model.subgraphs[index].inputs:
            self._create(index, tensor)
            self._use(index, tensor)
        return _Frame(index)

    def _begin(self, index: int, position: int) -> list[int]:
        """Begin an operator: the outputs exist. Return the subgraphs that the operator calls."""
        operator = self._model.subgraphs[index].operators[position]
        for tensor in operator.outputs:
            if tensor is None:
                raise UnsupportedOp(
                    f"operator {position} ({quoted(operator.name, 40)}) of subgraph {index} leaves "
                    "out an output, which TensorFlow Lite Micro does not know"
                )
            self._create(index, tensor)
        if operator.is_custom or operator.name not in CALLS:
            return []
        return self._callees(operator, f"operator {position} of subgraph {index}")

    def _callees(self, operator: TfliteOperator, what: str) -> list[int]:
        """Return the subgraphs that an operator calls."""
        slots = CALLEES.get(operator.name)
        if slots is None:
            raise UnsupportedSubgraph(
                f"{what} ({operator.name}) calls a subgraph in a way that TensorFlow Lite Micro "
                "does not know"
            )
        count = len(self._model.subgraphs)
        return [
            checked_index(operator.options.number(slot), count, f"{what}: a called subgraph")
            for slot in slots
        ]

    def _finish(self, index: int, operator: TfliteOperator) -> None:
        """End an operator: inputs and outputs were needed until now."""
        for tensor in operator.inputs:
            if tensor is None:
                continue
            if self._first[index][tensor] is None:
                self._unwritten.append((index, tensor))
            self._use(index, tensor)
        for tensor in operator.outputs:
            if tensor is not None:
                self._use(index, tensor)
        if not operator.is_custom and operator.name in _COPY_FREE:
            for source, result in zip(operator.inputs[:1], operator.outputs[:1], strict=False):
                if source is not None and result is not None:
                    self._same.append((self._step, index, source, result))

    def _create(self, subgraph: int, tensor: int) -> None:
        """Record that a tensor exists, if not yet recorded."""
        if self._first[subgraph][tensor] is None:
            self._first[subgraph][tensor] = self._step

    def _use(self, subgraph: int, tensor: int) -> None:
        """Note that a tensor is needed in this step."""
        self._spend()
        self._last[subgraph][tensor] = self._step

    def _in_arena(self, subgraph: int, index: int) -> bool:
        """Whether the runtime's planner gives a tensor memory."""
        tensor = self._model.subgraphs[subgraph].tensors[index]
        is_elsewhere = tensor.is_variable or self._model.is_constant(tensor)
        return not is_elsewhere and index not in self._handles[subgraph]

    def timeline(self) -> Timeline:
        """Return the run's result."""
        result = Timeline(steps=self._step + 1, labels=self._labels, spans=self._spans)
        position: dict[tuple[int, int], int] = {}
        for number, subgraph in enumerate(self._model.subgraphs):
            names = unique_names(subgraph)
            shapes = SubgraphShapes(subgraph, names, None)
            result.starts += (result.tensors,)
            for index, tensor in enumerate(subgraph.tensors):
                first = self._first[number][index]
                if tensor.is_variable:
                    result.variables.append((number, index))
                if not self._in_arena(number, index):
                    continue
                shape, dtype = shapes.of(index), dtype_of(tensor, names[index])
                size = _bytes(names[index], shape, dtype)
                if size and first is None:
                    result.idle.append(Box(result.tensors + index, names[index], size, -1, 0))
                elif size and first is not None:
                    position[number, index] = len(result.boxes)
                    end = self._last[number][index] + 1
                    flat = result.tensors + index
                    result.boxes.append(Box(flat, names[index], size, first, end, dtype, shape))
            result.tensors += len(subgraph.tensors)
        for number, area in self._areas:
            if (number, area) in position:
                others = self._operands_beside(number, area)
                inside = {position[number, i] for i in others if (number, i) in position}
                result.areas[position[number, area]] = frozenset(inside)
        for step, number, source, output in self._same:
            pair = position.get((number, source)), position.get((number, output))
            if pair[0] is None or pair[1] is None or not self._may_be_same(number, source, output):
                continue
            if result.boxes[pair[0]].size == result.boxes[pair[1]].size:
                result.same.append(Same(step, pair[0], pair[1]))
        return result

    def _operands_beside(self, subgraph: int, tensor: int) -> set[int]:
        """Return all other operands of a tensor's readers."""
        found: set[int] = set()
        for operator in self._model.subgraphs[subgraph].operators:
            if tensor in operator.inputs:
                found.update(i for i in (*operator.inputs, *operator.outputs) if i is not None)
        return found - {tensor}

    def _may_be_same(self, subgraph: int, source: int, output: int) -> bool:
        """Whether sharing cannot disturb how callers copy into and out of a subgraph."""
        if subgraph == 0:
            return True
        called = self._model.subgraphs[subgraph]
        return not {source, output} & {*called.inputs, *called.outputs}


def _bytes(name: str, shape: tuple[int, ...], dtype: str) -> int:
    """Return a tensor's bytes in the runtime, which does not pack small elements."""
    checked_bytes(name, shape, dtype)
    size = prod(shape) * max(8, BITS[dtype]) // 8
    return -(-size // ALIGNMENT) * ALIGNMENT


def unused_bytes(model: TfliteModel) -> int:
    """Return the bytes of first-subgraph tensors that no operator and no caller uses."""
    main = model.subgraphs[0]
    used: set[int | None] = {*main.inputs, *main.outputs}
    for operator in main.operators:
        used.update(operator.inputs, operator.outputs, operator.intermediates)
    names = unique_names(main)
    shapes = SubgraphShapes(main, names, None)
    return sum(
        _bytes(names[index], shapes.of(index), dtype_of(tensor, names[index]))
        for index, tensor in enumerate(main.tensors)
        if index not in used and not model.is_constant(tensor) and not tensor.is_variable
    )
