"""
Bodies: the graphs that a branch or loop node runs, each with its own plan.

A body is planned once, whatever the number of runs. The body reads the node's operands and writes
the node's results in place, so that only the values in between need bytes. These bytes are the
node's scratch value: an additional node result without readers. If a node has several bodies, a
single body runs at a time, and the largest counts.

A value that a loop carries to the next round is updated in place where the plan permits: when
nothing reads the old value after the new value is begun (:func:`may_replace`). Otherwise the new
value has separate bytes, and an ``Emit`` node copies these bytes at the end of the round. Values
that leave the body at every round are emitted, too. ``Take`` nodes bring in the slices that a scan
runs over.

With recomputation, nodes inside a body may run again, so that a node needs less scratch memory
(:attr:`Bodies.smaller`). A plan says which size each node has (:attr:`Plan.inner`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from arenaplan.base.free_names import free_name
from arenaplan.graph import Graph, Node
from arenaplan.graph.effects import NO_EFFECTS, InPlace
from arenaplan.planner.planning import plan as make_plan
from arenaplan.planner.planning import recompute_curve

if TYPE_CHECKING:
    from arenaplan._core import Plan
    from arenaplan.planner.plan_options import PlanKeywords

__all__ = ["DOMAIN", "EMIT", "TAKE", "Body", "Draft", "Emitted", "Slot", "finish", "inner_value"]

DOMAIN: Final = "arenaplan"
"""Domain for the nodes that move values in and out of a body."""
EMIT: Final = "Emit"
TAKE: Final = "Take"

_OPTIONS: Final[PlanKeywords] = {
    "target": "numpy",
    "inputs": "caller",
    "outputs": "caller",
    # These techniques keep every node a separate step.
    "optimize": ("views", "in-place", "elision", "order"),
    "workspace": "none",
    "effort": "fast",
}

_NUMBERS = count()

SlotKind: TypeAlias = Literal["operand", "result", "counter"]


class Slot(NamedTuple):
    """Memory outside a body that holds a body value."""

    kind: SlotKind
    """An operand or a result of the node, or the round's number."""
    position: int = 0
    """Position among the node's operands or results."""


class Emitted(NamedTuple):
    """Destination for a value that leaves a body at every round."""

    kind: Literal["condition", "carried", "scan"]
    position: int = 0
    """Which carried value, or which result that is joined from all rounds."""


@dataclass(slots=True)
class Draft:
    """A body as read by an importer, before planning."""

    graph: Graph
    """All nodes, without outputs; the inputs are ``slots``."""
    slots: dict[int, Slot] = field(default_factory=dict)
    """Memory by input."""
    carried: list[int] = field(default_factory=list)
    """Inputs that hold carried values; empty for a branch."""
    results: list[int] = field(default_factory=list)
    """Values that the results of a branch have, or carried values after the round."""
    scanned: list[int | None] = field(default_factory=list)
    """Values that are joined over all rounds; ``None`` where nothing wants the result."""
    condition: int | None = None
    """Value that says whether another round follows; ``None`` if another round always follows."""


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """A planned body."""

    graph: Graph
    plan: Plan
    slots: Mapping[int, Slot]
    """Memory outside the plan's arena, by graph input and output."""
    variant: _Variant
    number: int = field(default_factory=lambda: next(_NUMBERS))
    """Different for all bodies."""

    def __repr__(self) -> str:
        # Steps with equal attributes share facts, so that two bodies must never look the same.
        return f"Body({self.number})"

    @property
    def nbytes(self) -> int:
        """Bytes that the inside values need."""
        return self.plan.arena_bytes

    @property
    def cost(self) -> int:
        """Work per run; rows that are taken in count if they are taken in again."""
        taken = sum(node.cost for node in self.variant.draft.graph.nodes if node.domain == DOMAIN)
        return sum(node.cost for node in self.graph.nodes) - taken

    @property
    def moves(self) -> Iterator[Node]:
        """The nodes that move values in and out."""
        return (node for node in self.graph.nodes if node.domain == DOMAIN)


class Bodies(tuple[Body, ...]):
    """The bodies of a node."""

    rounds: int | None = None
    """How often a loop runs the body, if known."""

    @cached_property
    def smaller(self) -> Mapping[int, tuple[Bodies, int]]:
        """
        Bodies in which nodes run again, and the additional work, by scratch bytes.

        The work is that of all rounds, or of one round if the number is not known.
        """
        found: dict[int, tuple[Bodies, int]] = {}
        choices = [[body, *_smaller(body)] for body in self]
        least = max(choice[-1].nbytes for choice in choices)
        last = max(body.nbytes for body in self), 0
        for size in sorted({body.nbytes for choice in choices for body in choice}, reverse=True):
            if size >= least:
                chosen = Bodies(
                    next(body for body in choice if body.nbytes <= size) for choice in choices
                )
                chosen.rounds = self.rounds
                nbytes = max(body.nbytes for body in chosen)
                more = max(body.cost for body in chosen) - max(body.cost for body in self)
                if 0 < nbytes < last[0]:
                    rounds = 1 if self.rounds is None else self.rounds
                    last = nbytes, max(more * rounds, last[1] + 1)
                    found[nbytes] = chosen, last[1]
        return found


def bodies_of(node: Node) -> Sequence[Body]:
    """Return the bodies that a node runs."""
    found: Sequence[Body] = node.attributes.get("bodies", ())
    return found


def inner_value(node: Node) -> int | None:
    """Return a node's scratch value, if the node's bodies have inside values."""
    largest = max((body.nbytes for body in bodies_of(node)), default=0)
    return node.outputs[-1] if largest else None


def declare_scratch(graph: Graph, name: str, bodies: Iterable[Body]) -> tuple[int, ...]:
    """Declare and return a node's scratch value; nothing if no body needs bytes."""
    size = max(body.nbytes for body in bodies)
    return (graph.value(f"{name}.inner", (size,), "uint8"),) if size else ()


# -- planning -------------------------------------------------------------------------------


def finish(draft: Draft) -> Body:
    """
    Plan a body.

    Raises
    ------
    PlannerError
        If the body cannot be planned.
    """
    variant = _variant(draft, set(), _passed_on(draft))
    while True:
        made = _made(variant, make_plan(variant.graph, **_OPTIONS))
        late, shown = _unsafe(made)
        if not late and not shown:
            return made
        variant = _variant(draft, variant.stored | late, variant.copied | shown)


def _made(variant: _Variant, plan: Plan) -> Body:
    """Return the body with a plan."""
    return Body(variant.graph.for_plan(plan), plan, variant.slots, variant)


def _unsafe(body: Body) -> tuple[set[int], set[int]]:
    """Return the results that must be stored, and results that need separate bytes."""
    variant, ends = body.variant, dict(body.variant.ends)
    for node in body.moves:
        target = node.attributes["target"] if node.op == EMIT else None
        if target is not None and target.kind == "carried" and node.inputs[0] is not None:
            # The copied value is that of the last execution.
            ends[target.position] = node.inputs[0]
    late = {
        at
        for at, value in ends.items()
        if variant.draft.carried
        and at not in variant.stored
        and not may_replace(body.graph, body.plan, variant.draft.carried[at], value)
    }
    # A stored value that shows a carried value's bytes could change before being read.
    shown = {
        at for at in variant.stored if at not in variant.copied and _is_outside(body.plan, ends[at])
    }
    return late, shown


def _smaller(body: Body) -> list[Body]:
    """Return bodies with fewer and fewer bytes, and more work, in which nodes run again."""
    if not any(node.effects.pure for node in body.graph.nodes):
        return []
    draft, every = body.variant.draft, {*body.variant.ends}
    if draft.carried:
        apart = _variant(draft, every, body.variant.copied)
    else:
        apart = _variant(draft, set(), every)
    found: list[Body] = []
    # Results that have bytes of their own until the end permit all repetitions.
    for variant in (body.variant, apart):
        for point in recompute_curve(variant.graph, **_OPTIONS).points[1:]:
            made = _made(variant, point.plan)
            if not any(_unsafe(made)) and not _lost(body, made):
                found.append(made)
    best: list[Body] = []
    for made in sorted(found, key=lambda made: (made.nbytes, made.cost)):
        if made.nbytes < body.nbytes and (not best or made.cost < best[-1].cost):
            best.append(made)
    return best[::-1]


def _lost(body: Body, smaller: Body) -> set[int]:
    """Return the results of a branch that may take over an operand in ``body`` alone."""
    draft = body.variant.draft
    if draft.carried:
        return set()  # No result of a loop takes over an operand that rounds read.
    operands = {slot.position for slot in body.slots.values() if slot.kind == "operand"}
    return {
        at
        for at in range(len(draft.results))
        for operand in operands
        if _may_take(body, operand, at) and not _may_take(smaller, operand, at)
    }


def _changed(draft: Draft) -> list[int]:
    """Return the results that are not simply the unchanged carried values."""
    kept = {
        at
        for at, pair in enumerate(zip(draft.carried, draft.results, strict=False))
        if pair[0] == pair[1]
    }
    return [at for at in range(len(draft.results)) if at not in kept]


def _passed_on(draft: Draft) -> set[int]:
    """Return the results for which no node computes a value."""
    seen: set[int] = set()
    found = set()
    for at, value in enumerate(draft.results):
        if draft.graph.values[value].kind != "activation" or value in seen:
            found.add(at)
        seen.add(value)
    return found


class _Variant(NamedTuple):
    """A body's graph, before planning."""

    draft: Draft
    graph: Graph
    slots: dict[int, Slot]
    """Memory for inputs and outputs."""
    ends: dict[int, int]
    """Values by changed result."""
    stored: set[int]
    """The carried values that are copied at the end of the round."""
    copied: set[int]
    """The results that have separate bytes, which no other value shows."""


def _variant(draft: Draft, stored: set[int], copied: set[int]) -> _Variant:
    """Return a body's graph with some results stored or copied."""
    graph, slots = draft.graph.copy(), dict(draft.slots)
    taken = {value.name for value in graph.values}
    ends = {}
    for at in _changed(draft):
        value = draft.results[at]
        if at in copied:
            source = graph.values[value]
            name = free_name(f"{source.name}.copy", taken)
            taken.add(name)
            made = graph.value(name, source.shape, source.dtype)
            graph.append("Identity", (value,), (made,), effects=NO_EFFECTS, version=16)
            value = made
        ends[at] = value
    for at, scanned in enumerate(draft.scanned):
        if scanned is not None:
            _emit(graph, scanned, Emitted("scan", at))
    if draft.condition is not None:
        _emit(graph, draft.condition, Emitted("condition"))
    before = tuple(range(len(graph.nodes)))
    for at, value in ends.items():
        if at in stored:
            _emit(graph, value, Emitted("carried", at), before)
        else:
            graph.output(value)
            slots[value] = Slot("result", at)
    return _Variant(draft, graph, slots, ends, stored, copied)


def _emit(graph: Graph, value: int, target: Emitted, after: tuple[int, ...] = ()) -> None:
    made = {node for node in after if value in graph.nodes[node].outputs}
    graph.append(
        EMIT,
        (value,),
        (),
        name=f"{EMIT}.{target.kind}.{target.position}",
        attributes={"target": target},
        domain=DOMAIN,
        after=tuple(node for node in after if node not in made),
    )


# -- sharing memory outside ------------------------------------------------------------------


def may_replace(graph: Graph, plan: Plan, old: int, new: int) -> bool:
    """
    Return whether a body output can be written over a body input.

    The condition: no step reads input bytes after a step has written to the output's buffer, and
    any step that does both may work in place.

    Parameters
    ----------
    plan : Plan
        A plan with a single node per step that leaves inputs and outputs to the caller.
    old : int
        A graph input.
    new : int
        A graph output with as many bytes.
    """
    places = plan.placements
    read, written = places[old], places[new]
    if read is None or written is None:
        return True  # Input or output has no bytes.
    if read.bytes != written.bytes:
        return False

    def inside(value: int | None, space: int) -> bool:
        place = None if value is None else places[value]
        return place is not None and place.space == space

    begun = False
    for (index,) in plan.steps:
        node = graph.nodes[index]
        reads = [
            at
            for at, value in enumerate(node.inputs)
            if inside(value, read.space) and at not in node.effects.ignores
        ]
        makes = [at for at, value in enumerate(node.outputs) if inside(value, written.space)]
        if begun and reads:
            return False
        if reads and makes and not _is_in_place(graph, plan, node, reads, makes):
            return False
        begun = begun or bool(makes)
    return True


def _is_in_place(
    graph: Graph, plan: Plan, node: Node, reads: Sequence[int], makes: Sequence[int]
) -> bool:
    """Return whether a node may make an output exactly where the operands are read."""
    if len(makes) > 1:
        return False
    made = node.outputs[makes[0]]
    place = None if made is None else plan.placements[made]
    permitted = {pair.input for pair in node.effects.in_place if pair.output == makes[0]}
    permitted.update(
        view.input
        for view in node.effects.views
        if view.output == makes[0] and view.offset == 0 and view.of == "input"
    )
    for at in reads:
        value = node.inputs[at]
        source = None if value is None else plan.placements[value]
        if source is None or place is None or at not in permitted:
            return False
        if (source.offset, source.bytes) != (place.offset, place.bytes):
            return False
    return True


def _is_outside(plan: Plan, value: int) -> bool:
    """Return whether a value lies in memory that the plan leaves to the caller."""
    place = plan.placements[value]
    return place is not None and place.space >= len(plan.bases)


def branch_pairs(
    graph: Graph,
    operands: Sequence[int | None],
    results: Sequence[int | None],
    bodies: Sequence[Body],
) -> tuple[InPlace, ...]:
    """
    Return the branch node operands that the results may take over, whichever branch runs.

    Parameters
    ----------
    graph : Graph
        The node's graph.
    operands, results : sequence of int or None
        Values in that graph.
    """
    return tuple(
        InPlace(at, result)
        for at, operand in enumerate(operands)
        for result, made in enumerate(results)
        if _is_alone(graph, operands, operand, made)
        and all(_may_take(body, at, result) for body in bodies)
    )


def loop_pairs(
    graph: Graph, operands: Sequence[int | None], first: int, results: Sequence[int | None]
) -> tuple[InPlace, ...]:
    """
    Return the initial loop values that the results may take over.

    Parameters
    ----------
    first : int
        The first initial value's position among the operands.
    results : sequence of int or None
        The results that are carried values.
    """
    return tuple(
        InPlace(first + at, at)
        for at, made in enumerate(results)
        if _is_alone(graph, operands, operands[first + at], made)
    )


def _is_alone(
    graph: Graph, operands: Sequence[int | None], operand: int | None, made: int | None
) -> bool:
    """Return whether an operand is named once, and has as many bytes as a result."""
    if operand is None or made is None or operands.count(operand) > 1:
        return False
    return _is_alike(graph, operand, made)


def _is_alike(graph: Graph, a: int, b: int) -> bool:
    """Return whether two values have equally many bytes."""
    first, second = graph.values[a], graph.values[b]
    return first.shape == second.shape and first.dtype == second.dtype


def _may_take(body: Body, operand: int, result: int) -> bool:
    """Return whether a branch may write a result over an operand."""
    inputs = [value for value, slot in body.slots.items() if slot == Slot("operand", operand)]
    outputs = [value for value, slot in body.slots.items() if slot == Slot("result", result)]
    return all(may_replace(body.graph, body.plan, old, new) for old in inputs for new in outputs)


def describe(node: Node) -> dict[str, Any]:
    """Return a description of a node's bodies, for reports: nodes and bytes."""
    return {
        "node": node.name,
        "op": node.op,
        "bodies": [
            {"nodes": len(body.graph.nodes), "bytes": body.nbytes, "status": body.plan.status}
            for body in bodies_of(node)
        ],
    }
