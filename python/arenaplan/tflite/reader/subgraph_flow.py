"""
Operators that run other subgraphs, ``IF`` and ``WHILE``, as nodes with bodies.

The operator's operands and results correspond to the subgraph's inputs and outputs by position. The
branches of an ``IF`` share memory. A ``WHILE`` has a condition subgraph and a body subgraph: the
node's body is the body subgraph followed by the condition for the next round; the nodes for the
first condition come before the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, Self, TypeAlias

from arenaplan.base.errors import (
    InvalidOperand,
    UnsupportedSubgraph,
    fault,
)
from arenaplan.base.quoting import quoted
from arenaplan.graph import Graph
from arenaplan.graph.effects import NO_EFFECTS, InPlace
from arenaplan.planner.bodies import (
    Body,
    Draft,
    Slot,
    branch_pairs,
    declare_scratch,
    finish,
    loop_pairs,
)
from arenaplan.tflite.reader.tflite_model import TfliteModel, TfliteOperator, checked_index
from arenaplan.tflite.reader.tflite_operators import RESOURCES

FLOWS: Final = frozenset({"IF", "WHILE"})
MAX_NESTING: Final = 30
"""Deepest subgraph nesting."""
Kind: TypeAlias = tuple[tuple[int, ...], str]
"""An operand's shape and type."""
_THEN, _ELSE = 0, 1
_CONDITION, _BODY = 0, 1


@dataclass
class ExpansionBudget:
    """Operators and tensors to which a model's subgraphs may still be expanded."""

    left: int

    def spend(self, count: int) -> None:
        """
        Count operators and tensors.

        Raises
        ------
        ModelError
            If there are more than the file's size justifies.
        """
        self.left -= count
        if self.left < 0:
            raise fault(
                "BudgetExceeded",
                "subgraphs call each other more often than the file justifies",
            )


class Within(NamedTuple):
    """The place of a walk over a subgraph that an operator runs."""

    subgraph: int
    graph: Graph
    prefix: str
    """Prefix for node and value names."""
    callers: tuple[int, ...]
    """The surrounding subgraphs."""
    budget: ExpansionBudget


class FlowWalk(Protocol):
    """A walk over a subgraph, as seen by branches and loops."""

    @property
    def model(self) -> TfliteModel:
        """The model that is read."""

    @property
    def graph(self) -> Graph:
        """The graph that nodes are appended to."""

    @property
    def place(self) -> Within:
        """The subgraph being read, and the subgraphs around it."""

    def inside(self, place: Within) -> Self:
        """Return the walk over a subgraph that an operator in this walk runs."""

    def value_of(self, index: int | None, what: str) -> int:
        """Return the value of a required operand."""

    def declare_inputs(self, kinds: Sequence[Kind]) -> list[int]:
        """Declare a subgraph's inputs, with the shapes and types of some operands."""

    def take_inputs(self, values: Sequence[int]) -> None:
        """Bind a subgraph's inputs to values in the graph."""

    def made(self, kinds: Sequence[Kind] | None) -> list[int]:
        """Append a subgraph's nodes, and return the results."""


def add_flow(walk: FlowWalk, operator: TfliteOperator, what: str) -> None:
    """
    Append the node of an ``IF`` or ``WHILE``.

    Raises
    ------
    UnsupportedSubgraph
        If a subgraph does not fit the operator, has variables, or runs itself.
    UnsupportedModel, ModelError
        If subgraphs are nested too deeply, or are too many.
    """
    operands = [walk.value_of(index, what) for index in operator.inputs]
    results = [walk.value_of(index, what) for index in operator.outputs]
    add = _add_branch if operator.name == "IF" else _add_loop
    add(walk, operator, what, operands, results)


def _add_branch(
    walk: FlowWalk, operator: TfliteOperator, what: str, operands: list[int], results: list[int]
) -> None:
    """Append a node with two bodies, only one of which runs."""
    if not operands:
        raise InvalidOperand(f"operator {quoted(what)} has no condition")
    _check_condition(walk.graph, operands[0], what)
    bodies = []
    for slot, role in ((_THEN, "then"), (_ELSE, "else")):
        draft = Draft(Graph(f"{what}.{role}"))
        inner = _inside(walk, operator, slot, draft.graph, f"{what}.{role}")
        given = inner.declare_inputs(_kinds(walk.graph, operands[1:]))
        draft.slots = {value: Slot("operand", at) for at, value in enumerate(given, 1)}
        draft.results = inner.made(_kinds(walk.graph, results))
        bodies.append(finish(draft))
    pairs = branch_pairs(walk.graph, operands, results, bodies)
    _append(walk, operator, what, operands, results, bodies, pairs, carried=0)


def _add_loop(
    walk: FlowWalk, operator: TfliteOperator, what: str, initial: list[int], results: list[int]
) -> None:
    """Append the nodes for the first condition, and a node that repeats its body."""
    kinds = _kinds(walk.graph, initial)
    if kinds != _kinds(walk.graph, results):
        raise UnsupportedSubgraph(
            f"operator {quoted(what)} carries values whose shapes or types change"
        )
    first = _inside(walk, operator, _CONDITION, walk.graph, f"{what}.first")
    first.take_inputs(initial)
    (start,) = first.made(None)
    _check_condition(walk.graph, start, what)
    draft = Draft(Graph(f"{what}.body"))
    body = _inside(walk, operator, _BODY, draft.graph, f"{what}.body")
    draft.carried = body.declare_inputs(kinds)
    draft.slots = {value: Slot("result", at) for at, value in enumerate(draft.carried)}
    draft.results = body.made(kinds)
    again = _inside(walk, operator, _CONDITION, draft.graph, f"{what}.again")
    again.take_inputs(draft.results)
    (draft.condition,) = again.made(None)
    operands = [None, start, *initial]
    pairs = loop_pairs(walk.graph, operands, 2, results)
    count = len(results)
    _append(walk, operator, what, operands, results, [finish(draft)], pairs, carried=count)


def _append(
    walk: FlowWalk,
    operator: TfliteOperator,
    what: str,
    operands: Sequence[int | None],
    results: Sequence[int],
    bodies: Sequence[Body],
    pairs: Sequence[InPlace],
    *,
    carried: int,
) -> None:
    """Append a node with bodies."""
    graph = walk.graph
    inner = declare_scratch(graph, what, bodies)
    graph.append(
        operator.name,
        tuple(operands),
        (*results, *inner),
        name=what,
        attributes={"bodies": tuple(bodies), "results": len(results), "carried": carried},
        effects=NO_EFFECTS._replace(in_place=tuple(pairs)),
        domain="tflite",
        version=operator.version,
    )


def _inside(
    walk: FlowWalk, operator: TfliteOperator, slot: int, graph: Graph, prefix: str
) -> FlowWalk:
    """Return the walk over a subgraph that an operator names."""
    place, model = walk.place, walk.model
    found = operator.options.number(slot)
    number = checked_index(found, len(model.subgraphs), f"operator {quoted(prefix)}: its subgraph")
    callers = (*place.callers, place.subgraph)
    if number in callers:
        raise UnsupportedSubgraph(f"operator {quoted(prefix)}: subgraph {number} runs itself")
    if len(callers) > MAX_NESTING:
        raise fault(
            "NestingTooDeep", f"operator {quoted(prefix)} nests subgraphs {MAX_NESTING} deep"
        )
    subgraph = model.subgraphs[number]
    place.budget.spend(1 + len(subgraph.operators) + len(subgraph.tensors))
    for each in subgraph.operators:
        if each.name in RESOURCES and not each.is_custom:
            raise UnsupportedSubgraph(
                f"operator {quoted(prefix)}: subgraph {number} has a {each.name}, and the "
                "executor keeps no state inside of branches and loops"
            )
    if any(tensor.is_variable for tensor in subgraph.tensors):
        raise UnsupportedSubgraph(
            f"operator {quoted(prefix)}: subgraph {number} has a variable, and the executor keeps "
            "no state inside of branches and loops"
        )
    return walk.inside(Within(number, graph, f"{prefix}/", callers, place.budget))


def _check_condition(graph: Graph, value: int, what: str) -> None:
    """Refuse a condition that is no single bool."""
    known = graph.values[value]
    if known.dtype != "bool" or known.shape not in ((), (1,)):
        raise InvalidOperand(f"operator {quoted(what)}: its condition is not a single bool")


def _kinds(graph: Graph, values: Sequence[int]) -> list[tuple[tuple[int, ...], str]]:
    """Return shapes and types of values."""
    return [(graph.values[value].shape, graph.values[value].dtype) for value in values]
