"""
Data-dependent branches and loops: subgraphs become a node's bodies.

A subgraph is walked as a separate graph (:class:`BodyWalk`). Captured names become the graph's
inputs and the node's operands; captured constants stay constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import NamedTuple

import numpy as np
from onnx import GraphProto, TensorProto

from arenaplan.base.errors import (
    InvalidAttribute,
    InvalidOperand,
    PlannerError,
    UnboundDim,
    UndefinedValue,
    UnknownShape,
    UnsupportedDtype,
    UnsupportedSubgraph,
)
from arenaplan.base.quoting import quoted
from arenaplan.formats.onnx.dims import Dim, declared
from arenaplan.formats.onnx.frames import (
    Frame,
    declared_types,
    stored_operand,
    stored_tensors,
)
from arenaplan.formats.onnx.node_facts import Result
from arenaplan.formats.onnx.onnx_work import are_pure, cost_of_bodies
from arenaplan.formats.onnx.op import Absent, DataDependent, Items, OnnxOperand, Op, Scope
from arenaplan.formats.onnx.sequences import refuse_items, settle, walk_body
from arenaplan.formats.onnx.tensors import StoredTensor
from arenaplan.formats.onnx.walk import SEQUENCES, OnnxWalk
from arenaplan.graph import Graph
from arenaplan.graph.effects import NO_EFFECTS
from arenaplan.graph.ops import Shape, roofline
from arenaplan.graph.sizes import checked_bytes
from arenaplan.planner.bodies import (
    DOMAIN,
    TAKE,
    Bodies,
    Body,
    Draft,
    Slot,
    branch_pairs,
    declare_scratch,
    finish,
    loop_pairs,
)


class _Around(MutableMapping[str, "OnnxOperand | TensorProto | None"]):
    """
    The names visible in a subgraph: its own, and the names around its node.

    A captured value becomes an input of the subgraph on first use.
    """

    def __init__(self, graph: Graph, outer: OnnxWalk, scope: Scope) -> None:
        self.own: dict[str, OnnxOperand | TensorProto | None] = {}
        self.captured: list[tuple[int, OnnxOperand]] = []
        """The subgraph's captured inputs, with the captured values."""
        self._known: dict[int, tuple[OnnxOperand, OnnxOperand]] = {}
        self._graph = graph
        self._outer = outer
        self._scope = scope

    def __getitem__(self, name: str) -> OnnxOperand | TensorProto | None:
        if name not in self.own:
            if name not in self._scope:
                raise KeyError(name)
            self.own[name] = self._brought(self._outer.lookup(self._scope, name))
        return self.own[name]

    def _brought(self, known: OnnxOperand | None) -> OnnxOperand | None:
        """Return a captured value as a value inside, where a value has only one name."""
        if known is None or isinstance(known, Absent):
            return known
        if isinstance(known, Items):
            items = [self._brought(item) for item in known.items]
            return Items(known.name, [item for item in items if item is not None])
        found = self._known.get(id(known))
        if found is None:
            name, shape, dtype = known.name, known.shape, known.dtype
            if known.source is not None:
                inside = OnnxOperand(name, shape, dtype, known.source, known.inline)
            else:
                inside = OnnxOperand(
                    name, shape, dtype, index=self._graph.input(name, shape, dtype)
                )
                assert inside.index is not None
                self.captured.append((inside.index, known))
            # The outer value is kept alive, so that no other object gets its id.
            found = self._known[id(known)] = (known, inside)
        return found[1]

    def __setitem__(self, name: str, value: OnnxOperand | TensorProto | None) -> None:
        self.own[name] = value

    def __delitem__(self, name: str) -> None:
        del self.own[name]

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self._scope

    def __iter__(self) -> Iterator[str]:
        return iter(self.own)

    def __len__(self) -> int:
        return len(self.own)


class BodyWalk(OnnxWalk):
    """
    Walks a subgraph.

    Parameters
    ----------
    outer : OnnxWalk
        The walk with the node.
    frame : Frame
        The surrounding graph or function.
    op : Op
        The node that runs the subgraph.
    name : str
        The node's attribute with the subgraph.
    """

    def __init__(self, outer: OnnxWalk, frame: Frame, op: Op, name: str) -> None:
        proto = op.attributes.get(name)
        if not isinstance(proto, GraphProto):
            raise op.error(InvalidAttribute, f"attribute {name!r} is missing")
        graph = Graph(f"{op.outputs[0] or op.type}.{name}")
        self._begin(graph, proto, outer.common)
        self._is_inside = self._has_items = True
        self.depth = outer.depth
        self.draft = Draft(graph)
        self._op = op
        self.scope = _Around(self.graph, outer, frame.scope)
        for inner, stored in stored_tensors(proto, self._folder).items():
            self.scope.own[inner] = stored_operand(StoredTensor(stored, inner, self._folder))
        self._main = Frame(
            iter(proto.node),
            self.scope.own,
            self.scope,
            frame.versions,
            declared_types(proto.value_info, proto.output),
            bound=frame.bound,
        )
        self.inputs = [info.name for info in proto.input]
        self.results = [info.name for info in proto.output]

    def bring(self, position: int, shape: Shape, dtype: str, slot: Slot) -> int:
        """Declare an input; return its value in the graph."""
        name = self.inputs[position]
        index = self.graph.input(name, shape, dtype)
        self.scope.own[name] = OnnxOperand(name, shape, dtype, index=index)
        self.draft.slots[index] = slot
        return index

    def take(self, position: int, source: OnnxOperand, axis: int, at: int) -> None:
        """Declare an input that in every round is a slice of a value around the node."""
        name = self.inputs[position]
        dims = source.shape
        shape = dims[:axis] + dims[axis + 1 :]
        whole = self.graph.input(f"{name}.all", dims, source.dtype)
        self.draft.slots[whole] = Slot("operand", at)
        made = self.graph.value(name, shape, source.dtype)
        row = self.scope.own[name] = OnnxOperand(name, shape, source.dtype, index=made)
        self.graph.append(
            TAKE,
            (whole,),
            (made,),
            name=f"{TAKE}.{position}",
            attributes={"operand": at, "axis": axis},
            effects=NO_EFFECTS._replace(pure=True),
            cost=2 * roofline(0, [row]),
            domain=DOMAIN,
        )

    def walk(self) -> list[OnnxOperand]:
        """Take in all nodes, and return the results."""
        with self.deeper(self._op):
            self._visit_all()
        return [self._result(name) for name in self.results]

    def _result(self, name: str) -> OnnxOperand:
        operand = self.lookup(self.scope, name) if name in self.scope else None
        if operand is None:
            raise self._op.error(
                UndefinedValue, f"result {quoted(name)} of its subgraph is never produced"
            )
        if isinstance(operand, (Items, Absent)):
            raise self._op.error(
                UnsupportedSubgraph, f"result {quoted(name)} of its subgraph is not an array"
            )
        return operand

    def declared_input(self, position: int) -> tuple[Dim, ...] | None:
        """Return the shape with which an input is declared, as far as known."""
        return declared(self._proto.input[position]).dims


class FlowNode(NamedTuple):
    """A branch or loop as a node."""

    operands: list[OnnxOperand | None]
    results: list[Result]
    bodies: list[Body]
    attributes: dict[str, object]
    carried: int = 0
    """Number of a loop's carried values, which are the first results."""
    first: int = 0
    """Position of the first initial value among the operands."""
    rounds: int | None = None
    """How often a loop runs the body, if known."""


def emit_flow(
    walk: OnnxWalk, frame: Frame, op: Op, names: Sequence[str]
) -> list[OnnxOperand | None]:
    """
    Add a branch or loop to the graph, or settle a sequence; return the results.

    Raises
    ------
    UnsupportedSubgraph
        If sizes or result types depend on the branch or the rounds.
    """
    if op.type in SEQUENCES:
        return settle(walk, frame, op, names)
    calls = walk.common.functions
    depth = calls.depth
    try:
        flow = _FLOWS[op.type](walk, frame, op)
    except DataDependent as dependent:
        if op.type != "Loop" or dependent.operand is not None or dependent.error is None:
            raise
        return _unrolled(walk, frame, op, dependent.error)
    except (UnboundDim, UnknownShape, UnsupportedDtype, UnsupportedSubgraph) as error:
        calls.unwind(depth)
        if op.type == "If":
            raise DataDependent(op.input(0), error) from None
        if op.type == "Loop":
            return _unrolled(walk, frame, op, error)
        raise
    graph = walk.graph
    # A carried value needs memory, even if its last state is not read.
    names = [*names, *[""] * (flow.carried - len(names))]
    made: list[OnnxOperand | None] = []
    for at, (name, (shape, dtype)) in enumerate(zip(names, flow.results, strict=False)):
        if not name and at >= flow.carried:
            made.append(None)
            continue
        shown = name or walk.unique(f"{op.name or op.type}.carried.{at}")
        checked_bytes(shown, shape, dtype)
        made.append(OnnxOperand(shown, shape, dtype, index=graph.value(shown, shape, dtype)))
    operands = tuple(None if known is None else walk.index_of(known) for known in flow.operands)
    results = tuple(None if known is None else known.index for known in made)
    label = next(filter(None, [op.name, *names]), op.type)
    inner = declare_scratch(graph, label, flow.bodies)
    if op.type == "If":
        pairs = branch_pairs(graph, operands, results, flow.bodies)
    else:
        pairs = loop_pairs(graph, operands, flow.first, results[: flow.carried])
    bodies = Bodies(flow.bodies)
    bodies.rounds = flow.rounds
    graph.append(
        op.type,
        operands,
        (*results, *inner),
        name=op.name,
        effects=NO_EFFECTS._replace(in_place=pairs, pure=are_pure(flow.bodies)),
        attributes={
            "bodies": bodies,
            "results": len(results),
            "carried": flow.carried,
            **flow.attributes,
        },
        cost=cost_of_bodies(flow.bodies, flow.rounds, (*flow.operands, *made)),
        domain=op.domain,
        version=op.version,
    )
    walk.scratch.update(inner)
    return made[: len(op.outputs)]


# -- branches -------------------------------------------------------------------------------


def _branch(walk: OnnxWalk, frame: Frame, op: Op) -> FlowNode:
    """A node with both branches, only one of which runs."""
    condition = op.input(0)
    if condition.dtype != "bool" or condition.shape not in ((), (1,)):
        raise op.error(InvalidOperand, "its condition is not a single bool")
    branches = [BodyWalk(walk, frame, op, name) for name in ("then_branch", "else_branch")]
    results = [branch.walk()[: len(op.outputs)] for branch in branches]
    for name, found in zip(("then_branch", "else_branch"), results, strict=True):
        if len(found) < len(op.outputs):
            raise op.error(InvalidOperand, f"{name} has {len(found)} outputs")
    for output, one, other in zip(op.outputs, *results, strict=True):
        _check_same(op, output, one, other)
    operands: list[OnnxOperand | None] = [condition]
    bodies = []
    for branch, found in zip(branches, results, strict=True):
        _capture(branch, operands, 1)
        branch.draft.results = [branch.index_of(known) for known in found]
        bodies.append(finish(branch.draft))
    kinds = [(known.shape, known.dtype) for known in results[0]]
    return FlowNode(operands, kinds, bodies, {})


def _check_same(op: Op, output: str, one: OnnxOperand, other: OnnxOperand) -> None:
    """Refuse branches that give a result different types."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        raise DataDependent(
            op.input(0),
            op.error(
                UnsupportedSubgraph,
                f"output {quoted(output)} has shape {one.shape} ({one.dtype}) in one branch and "
                f"{other.shape} ({other.dtype}) in the other, and which one is taken depends on "
                f"{quoted(op.input(0).name)}, which is not known before the model runs; bind may "
                "say what an input holds",
            ),
        )


def _capture(body: BodyWalk, operands: list[OnnxOperand | None], first: int) -> None:
    """
    Add a body's captured values to the operands of its node.

    Operands before position ``first`` are then repeated, so that no result overwrites them.
    """
    for index, known in body.scope.captured:
        at = next((at for at in range(first, len(operands)) if operands[at] is known), None)
        if at is None:
            at = len(operands)
            operands.append(known)
        body.draft.slots[index] = Slot("operand", at)


# -- loops ----------------------------------------------------------------------------------


def _loop(walk: OnnxWalk, frame: Frame, op: Op) -> FlowNode:
    """A body that runs a number of times, or until its condition is false."""
    _check_control(op)
    initial = [op.input(at) for at in range(2, len(op.inputs))]
    body = BodyWalk(walk, frame, op, "body")
    _check_count(op, body, 2 + len(initial), 1 + max(len(initial), len(op.outputs)))
    counter, condition = body.inputs[:2]
    if counter:
        body.bring(0, _single(body, 0), "int64", Slot("counter"))
    if condition:
        # Where the body runs, the condition holds.
        shape = _single(body, 1)
        body.scope.own[condition] = OnnxOperand(condition, shape, "bool", np.array(True), True)
    results = _carry(op, body, 2, initial)
    again, changed, scanned = results[0], results[1 : 1 + len(initial)], results[1 + len(initial) :]
    if again.dtype != "bool" or again.shape not in ((), (1,)):
        raise op.error(InvalidOperand, "the condition that its body makes is not a single bool")
    _check_carried(op, body, initial, changed)
    trips = _trips(op, again)
    wanted = op.outputs[len(initial) :]
    if trips is None and any(wanted):
        name = next(filter(None, wanted))
        undecided = [known for known in op.inputs[:2] if known is not None and not known.inline]
        raise DataDependent(
            undecided[0] if undecided and _always(again, op) else None,
            op.error(
                UnsupportedSubgraph,
                f"output {quoted(name)} has one row for each round, and the number of rounds "
                "depends on data that is only known when the model runs",
            ),
        )
    draft = body.draft
    draft.condition = None if _always(again, op) else body.index_of(again)
    operands: list[OnnxOperand | None] = [op.optional(0), op.optional(1), *initial]
    kinds = _finish_loop(body, operands, changed, scanned, wanted, trips or 0, [0] * len(scanned))
    return FlowNode(operands, kinds, [finish(draft)], {}, len(initial), 2, trips)


def _always(condition: OnnxOperand, op: Op) -> bool:
    """Whether a condition is known to hold."""
    return condition.inline and bool(np.all(_peeked(condition, op)))


def _peeked(operand: OnnxOperand, op: Op) -> np.ndarray:
    """Return a constant's data."""
    return Op(op.name, op.type, "", op.version, [operand], [], {}, op.budget).array(0)


def _check_control(op: Op) -> None:
    """Refuse a round count or a condition that is not a single value."""
    for known, dtype, what in (
        (op.optional(0), "int64", "number of rounds"),
        (op.optional(1), "bool", "condition"),
    ):
        if known is not None and (known.dtype != dtype or known.shape not in ((), (1,))):
            raise op.error(InvalidOperand, f"its {what} is not a single {dtype}")


def _trips(op: Op, again: OnnxOperand) -> int | None:
    """Return the number of rounds, if known."""
    limit, start = op.optional(0), op.optional(1)
    if start is not None and not start.inline:
        return None
    if start is not None and not _peeked(start, op).all():
        return 0
    if limit is None or not limit.inline or not _always(again, op):
        return None
    return max(int(op.scalar(0)), 0)


def _single(body: BodyWalk, position: int) -> Shape:
    """Return the shape in which a body declares a single number."""
    declared = body.declared_input(position)
    return (1,) if declared == (1,) else ()


def _carry(op: Op, body: BodyWalk, first: int, initial: Sequence[OnnxOperand]) -> list[OnnxOperand]:
    """Declare the carried values; return all of a body's results."""
    refuse_items(op)
    for at, known in enumerate(initial):
        index = body.bring(first + at, known.shape, known.dtype, Slot("result", at))
        body.draft.carried.append(index)
    return body.walk()


def _check_count(op: Op, body: BodyWalk, inputs: int, least: int) -> None:
    """Refuse a body that does not fit its node."""
    if len(body.inputs) != inputs or len(set(body.inputs)) != inputs:
        raise op.error(
            InvalidOperand, f"its body has {len(body.inputs)} inputs instead of {inputs}"
        )
    if len(body.results) < max(least, len(op.outputs)):
        raise op.error(
            InvalidOperand,
            f"its body has {len(body.results)} outputs instead of {max(least, len(op.outputs))}",
        )


def _check_carried(
    op: Op, body: BodyWalk, before: Sequence[OnnxOperand], after: Sequence[OnnxOperand]
) -> None:
    """Refuse carried values whose type changes from round to round."""
    for name, old, new in zip(body.inputs[-len(before) :], before, after, strict=False):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise op.error(
                UnsupportedSubgraph,
                f"carried value {quoted(name)} has shape {old.shape} ({old.dtype}) before a round "
                f"and {new.shape} ({new.dtype}) after it",
            )


def _finish_loop(
    body: BodyWalk,
    operands: list[OnnxOperand | None],
    changed: Sequence[OnnxOperand],
    scanned: Sequence[OnnxOperand],
    wanted: Sequence[str],
    trips: int,
    axes: Sequence[int],
) -> list[Result]:
    """Settle a loop's results; return shapes and types."""
    draft = body.draft
    draft.results = [body.index_of(known) for known in changed]
    kinds: list[Result] = [(known.shape, known.dtype) for known in changed]
    for name, known, axis in zip(wanted, scanned, axes, strict=False):
        draft.scanned.append(body.index_of(known) if name else None)
        shape = known.shape
        kinds.append(((*shape[:axis], trips, *shape[axis:]), known.dtype))
    _capture(body, operands, len(operands))
    return kinds


def _unrolled(
    walk: OnnxWalk, frame: Frame, op: Op, error: PlannerError
) -> list[OnnxOperand | None]:
    """
    Return the results of a loop that is unrolled because shapes differ between rounds.

    Parameters
    ----------
    error : PlannerError
        The reason why the body has no plan for all rounds.
    """
    body = op.attributes["body"]
    limit, start = op.optional(0), op.optional(1)
    if isinstance(error, UnsupportedDtype):
        rounds = "a sequence, and the number of rounds depends on data that is only known when the"
        error = op.error(UnsupportedSubgraph, f"it carries {rounds} model runs")
    for known in (limit, start):
        if known is not None and not known.inline:
            raise DataDependent(known, error)
    trips = None if limit is None else int(op.scalar(0))
    goes_on = start is None or bool(_peeked(start, op).all())
    carried = [op.input(at) for at in range(2, len(op.inputs))]
    joined: list[list[OnnxOperand]] = [[] for _ in body.output[1 + len(carried) :]]
    prefix = op.name or frame.prefix + next(filter(None, op.outputs), op.type)
    number = 0
    while goes_on and (trips is None or number < trips):
        results = _round(walk, frame, op, number, carried)
        again, carried = results[0], results[1 : 1 + len(carried)]
        for rows, row in zip(joined, results[1 + len(carried) :], strict=True):
            rows.append(row)
        if not again.inline:
            walk.keep([*carried, *(row for rows in joined for row in rows)])
            raise DataDependent(again, error)
        goes_on = bool(_peeked(again, op).all())
        number += 1
    made: list[OnnxOperand | None] = [*carried]
    for at, rows in enumerate(joined):
        if not rows:
            raise error  # Without rows, a stacked result's shape is unknown.
        made.append(walk.stacked(rows, walk.unique(f"{prefix[:64]}/joined.{at}"), 0))
    return made[: len(op.outputs)]


def _round(
    walk: OnnxWalk, frame: Frame, op: Op, number: int, carried: Sequence[OnnxOperand]
) -> list[OnnxOperand]:
    """Walk a loop's body once, inline, and return the results."""
    name = op.outputs[0] or op.type
    counter = OnnxOperand(f"{name}.number", (), "int64", np.array(number), True)
    condition = OnnxOperand(f"{name}.condition", (), "bool", np.array(True), True)
    given = [counter, condition, *carried]
    return walk_body(walk, frame, op, op.attributes["body"], f"{number}", given)


# -- scans ----------------------------------------------------------------------------------


def _scan(walk: OnnxWalk, frame: Frame, op: Op) -> FlowNode:
    """A body that runs over slices of operands."""
    if op.version < 9:
        raise op.error(UnsupportedSubgraph, "Scan of version 8 runs over a batch of sequences")
    count = op.integer("num_scan_inputs")
    split = len(op.inputs) - count
    if count < 1 or split < 0:
        raise op.error(InvalidAttribute, f"num_scan_inputs is {count}")
    initial = [op.input(at) for at in range(split)]
    slices = [op.input(split + at) for at in range(count)]
    body = BodyWalk(walk, frame, op, "body")
    _check_count(op, body, len(op.inputs), split)
    axes = _listed(op, "scan_input_axes", count)
    axes = [op.axis(axis, len(x.shape)) for axis, x in zip(axes, slices, strict=True)]
    lengths = {x.shape[axis] for x, axis in zip(slices, axes, strict=True)}
    if len(lengths) > 1:
        raise op.error(InvalidOperand, f"it scans inputs of different lengths {sorted(lengths)}")
    (trips,) = lengths
    for at, (known, axis) in enumerate(zip(slices, axes, strict=True)):
        body.take(split + at, known, axis, split + at)
    results = _carry(op, body, 0, initial)
    changed, scanned = results[:split], results[split:]
    _check_carried(op, body, initial, changed)
    ends = _listed(op, "scan_output_axes", len(scanned))
    ends = [op.axis(axis, len(x.shape) + 1) for axis, x in zip(ends, scanned, strict=True)]
    operands: list[OnnxOperand | None] = [*initial, *slices]
    kinds = _finish_loop(body, operands, changed, scanned, op.outputs[split:], trips, ends)
    attributes = {
        "trips": trips,
        "backward_inputs": tuple(_listed(op, "scan_input_directions", count)),
        "axes": tuple(ends),
        "backward": tuple(_listed(op, "scan_output_directions", len(scanned))),
    }
    return FlowNode(operands, kinds, [finish(body.draft)], attributes, split, rounds=trips)


def _listed(op: Op, name: str, count: int) -> list[int]:
    """Return a list of numbers, 0 where left out."""
    found = op.integers(name)
    if found is not None and len(found) != count:
        raise op.error(InvalidAttribute, f"{name} has {len(found)} numbers instead of {count}")
    return [0] * count if found is None else list(found)


_FLOWS: dict[str, Callable[[OnnxWalk, Frame, Op], FlowNode]] = {
    "If": _branch,
    "Loop": _loop,
    "Scan": _scan,
}
