"""
Groups: nodes that run as one.

Values between members are passed on piece by piece and have no place in the arena. Most members run
*in step*: each piece goes through all members before the next piece. Others are *loaded*: applied
to operands that a convolution or matrix product reads, any part at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from arenaplan._core import Strips
from arenaplan.graph import Flow, Graph, Node, Window
from arenaplan.run.numpy.registry import Kernel, Signature, attributed, find_kernel
from arenaplan.run.numpy.signatures import byte_size, signature_of

if TYPE_CHECKING:
    from arenaplan._core import Plan


class NotAGroup(ValueError):
    """Nodes cannot run as one. The core refuses such plans, and says why."""


@dataclass(frozen=True)
class Member:
    """A node in a group."""

    inputs: tuple[int | None, ...]
    signature: Signature
    kernel: Kernel
    value: int
    """The member's result."""
    slot: int
    """Position of the result among the outputs."""
    follows: frozenset[int]
    """Positions of inputs that are needed piece by piece, like the output."""
    overwrites: frozenset[int]
    """Positions of inputs whose memory the output may be."""
    is_view: bool
    """Whether the output has the elements of input 0 in the same order."""
    pieces: int
    """Number of equal pieces in which the output can be made in order; 1 if none are known."""
    windows: tuple[Window, ...] = ()
    """The input rows that output rows need."""

    @cached_property
    def is_free(self) -> bool:
        """Whether nothing has to run: a view of operand 0 whose other operands are constant."""
        pairs = zip(self.inputs[1:], self.signature.constant[1:], strict=True)
        return self.is_view and all(value is None or load is not None for value, load in pairs)

    @cached_property
    def hosts(self) -> bool:
        """Whether the kernel performs other members."""
        return self.kernel.hosts is not None and self.kernel.hosts(self.signature)

    @cached_property
    def has_scratch(self) -> bool:
        """Whether the kernel needs scratch memory."""
        if self.kernel.workspace is None:
            return False
        slots = attributed(self.kernel.workspace, self.signature, self.signature)
        return any(choice.bytes > 0 for slot in slots for choice in slot)

    def reads(self) -> Iterator[tuple[int, int]]:
        """Yield position and value of every input."""
        for position, value in enumerate(self.inputs):
            if value is not None:
                yield position, value


@dataclass(frozen=True, slots=True)
class Group:
    """Members in execution order."""

    members: tuple[Member, ...]
    loaded: frozenset[int]
    """Values that are made whenever, and wherever, a reader needs a part."""
    taken: frozenset[int]
    """Values from outside in whose memory the output is, or might be."""

    @property
    def sink(self) -> Member:
        """The last member, which writes the group's output."""
        return self.members[-1]

    @property
    def made(self) -> frozenset[int]:
        """Values that the members make."""
        return frozenset(member.value for member in self.members)


@dataclass(frozen=True, slots=True)
class Unit:
    """The node or fused group in a step."""

    home: int
    """The node at whose place the unit runs, and which has the unit's scratch memory."""
    nodes: tuple[int, ...]
    """All that run, in execution order."""
    group: Group | None = None
    """The group, if there are several nodes, or if the output overlaps an input."""
    staged: bool = False
    """Whether the output overlaps an input."""
    strips: Strips | None = None
    """The strips, if several nodes run strip by strip."""


# -- forming groups -----------------------------------------------------------------------------


def member_of(graph: Graph, node: Node) -> Member:
    """
    Return a node as a group member.

    Raises
    ------
    UnsupportedOp
        If no kernel runs the node.
    NotAGroup
        If the node cannot be a member of any group.
    """
    signature = signature_of(graph, node)
    kernel = find_kernel(signature)
    made = [(at, value) for at, value in enumerate(node.outputs) if value is not None]
    if len(made) != 1:
        raise NotAGroup(f"node {node.name!r} does not make one value")
    ((slot, value),) = made
    view = next((v.input for v in node.effects.views if v.output == slot and v.of == "input"), None)
    is_view = view == 0 and _elements(graph, node.inputs[0]) == _elements(graph, value)
    declared = next((flow for flow in node.effects.flows if flow.output == slot), None)
    if declared is not None:
        follows = frozenset(declared.follows)
    elif is_view:
        follows = frozenset([0])
    else:
        shape = graph.values[value].shape
        same = (at for at, v in enumerate(node.inputs) if _shape(graph, v) == shape)
        follows = frozenset(same if kernel.is_pointwise else ())
    overwrites = {pair.input for pair in node.effects.in_place if pair.output == slot}
    if is_view:
        overwrites.add(0)
    return Member(
        node.inputs,
        signature,
        kernel,
        value,
        slot,
        follows,
        frozenset(overwrites),
        is_view,
        _pieces(graph, node, declared, is_view=is_view),
        tuple(window for window in node.effects.windows if window.output == slot),
    )


def _pieces(graph: Graph, node: Node, declared: Flow | None, *, is_view: bool) -> int:
    """Return the number of pieces in which a node with one output can make the output in order."""
    if node.effects.overlaps and (declared is None or declared.follows):
        return 1  # A plan may count on pieces that a kernel does not support.
    if declared is not None:
        return declared.pieces
    return max(_elements(graph, node.inputs[0]), 1) if is_view else 1


def _shape(graph: Graph, value: int | None) -> tuple[int, ...] | None:
    return None if value is None else graph.values[value].shape


def _elements(graph: Graph, value: int | None) -> int:
    return -1 if value is None else prod(graph.values[value].shape)


def group_of(graph: Graph, nodes: Sequence[int]) -> Group:
    """Return the group for some nodes, before a plan decides its in-place operands."""
    return form(graph, [member_of(graph, graph.nodes[node]) for node in nodes])


def form(graph: Graph, members: Sequence[Member]) -> Group:
    """
    Return the group with some members.

    All values that the output might take over count as taken; see :func:`dataclasses.replace`.

    Raises
    ------
    NotAGroup
        If no later member reads some member's output.
    """
    made = {member.value for member in members}
    unread = set(made)
    for member in reversed(members):
        if member.value in unread and member is not members[-1]:
            raise NotAGroup(f"nobody reads what node {member.signature.name!r} makes")
        unread.difference_update(value for _, value in member.reads())
    loaded: set[int] = set()
    for member in reversed(members):
        for position, value in member.reads():
            in_step = member.value not in loaded and position in member.follows
            if value in made and not in_step:
                loaded.add(value)
    sink = members[-1]
    size = byte_size(graph.values[sink.value])
    refused: set[int] = set()
    outside: set[int] = set()
    for member in members:
        for position, value in member.reads():
            if value in made:
                continue
            outside.add(value)
            in_step = member.value not in loaded and position in member.follows
            if not in_step or (member is sink and position not in member.overwrites):
                refused.add(value)
    taken = (
        value
        for value in outside - refused
        if graph.values[value].kind != "constant" and byte_size(graph.values[value]) == size
    )
    return Group(tuple(members), frozenset(loaded), frozenset(taken))


# -- the units of a plan -------------------------------------------------------------------------


def is_in_order(graph: Graph, nodes: Sequence[int]) -> bool:
    """Return whether a step is a node whose kernel may overlap output and input by itself."""
    return len(nodes) == 1 and find_kernel(signature_of(graph, graph.nodes[nodes[0]])).in_order


def continued_group(graph: Graph, nodes: Sequence[int]) -> Group:
    """
    Return the group of nodes of which each replaces the result of the node before.

    Raises
    ------
    NotAGroup
        If the first node cannot finish some elements before others, in the place of an input.
    """
    group, node = group_of(graph, nodes), graph.nodes[nodes[0]]
    over = {node.inputs[pair.input] for pair in node.effects.in_place}
    taken = {
        value for value in over if value is not None and graph.values[value].kind != "constant"
    }
    first, *others = (member.kernel for member in group.members)
    is_piecewise = (first.hosts or first.is_pointwise) and all(it.is_pointwise for it in others)
    if not is_piecewise or not taken <= group.taken:
        raise NotAGroup(f"node {node.name!r} has to end before the next node begins")
    return replace(group, taken=frozenset(taken))


def runs_of(plan: Plan) -> dict[int, list[int]]:
    """Return the nodes of each call, by the call's home: the last node of the first step."""
    homes = call_homes(plan)
    runs: dict[int, list[int]] = {}
    for nodes in plan.steps:
        runs.setdefault(homes[nodes[-1]], []).extend(nodes)
    return runs


def call_homes(plan: Plan) -> dict[int, int]:
    """Map the last node of each step to the home of the call that performs the step."""
    homes: dict[int, int] = {}
    continued, home = set(plan.continued), -1
    for *_, last in plan.steps:
        homes[last] = home = home if last in continued else last
    return homes


def find_units(graph: Graph, plan: Plan) -> list[Unit]:
    """Return the unit for each call in a plan."""
    overlapped, strips = set(plan.overlapped), {each.node: each for each in plan.strips}
    units = []
    for home, nodes in runs_of(plan).items():
        group, staged = None, home in overlapped and not is_in_order(graph, nodes)
        if home != nodes[-1]:
            group = continued_group(graph, nodes)
        elif home not in strips and (staged or len(nodes) > 1):
            group = group_of(graph, nodes)
        units.append(Unit(home, tuple(nodes), group, staged, strips.get(home)))
    return units
