"""
The NumPy executor as a backend: the scratch memory and the time of steps.

A network repeats layers, and planning asks for the same steps several times, as do later plans for
the graph. So the ways to run a step are kept per graph, and steps that differ in nothing but names
share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from arenaplan.formats.partial import decides
from arenaplan.graph import Choice, Graph, Node
from arenaplan.graph.costs import RowKernel, StepCost, Way
from arenaplan.planner.bodies import DOMAIN, bodies_of
from arenaplan.run.numpy.groups import (
    Group,
    NotAGroup,
    continued_group,
    group_of,
    is_in_order,
    runs_of,
)
from arenaplan.run.numpy.narrow_steps import narrow_steps
from arenaplan.run.numpy.regions import ROW_MOVES, region_of
from arenaplan.run.numpy.registry import (
    Signature,
    Tensor,
    attributed,
    find_kernel,
    padded,
    plain_kernel,
)
from arenaplan.run.numpy.signatures import NOT_RUN, signature_of
from arenaplan.run.numpy.stages import LIMITS, Former
from arenaplan.run.numpy.staging import staged_ways
from arenaplan.run.numpy.steps import Workspaces
from arenaplan.run.numpy.streaming import group_ways, needed
from arenaplan.run.numpy.timing import nanoseconds

if TYPE_CHECKING:
    from arenaplan import _core
    from arenaplan._core import Plan, Strips
    from arenaplan.graph.costs import StepForm

_FEW = 64
"""Elements of a constant that are looked at, since kernels may depend on them: axes, sizes."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """Facts about one graph that outlive a plan: no fact refers to the graph."""

    core: _core.Graph
    """The graph of these facts; a changed graph has other facts."""
    kinds: dict[object, int] = field(default_factory=dict)
    """A number for each kind of node."""
    kind_of: dict[int, int] = field(default_factory=dict)
    """By node, the number of its kind."""
    alike: dict[object, StepCost | None] = field(default_factory=dict)
    """By kinds of nodes and the values between them, the cost of such a step."""
    in_strips: dict[object, StepCost | None] = field(default_factory=dict)
    """By nodes and strips, the cost of such a step."""
    by_rows: dict[tuple[int, ...], Sequence[RowKernel]] = field(default_factory=dict)
    """By nodes, the kernels that perform the nodes on some rows."""


class NumpyCosts:
    """Scratch memory and times of :mod:`arenaplan.run.numpy.kernels`, for the steps of a graph."""

    row_moves = ROW_MOVES

    def __init__(self, graph: Graph, facts: _Facts) -> None:
        self._graph = graph
        self._facts = facts

    def step(self, nodes: Sequence[int], form: StepForm) -> StepCost | None:
        """Return the cost of a step; ``None`` if no kernel runs the nodes in the form."""
        graph = self._graph
        if not all(0 <= node < len(graph.nodes) for node in nodes):
            return None  # The core will refuse it.
        if not isinstance(form, str):
            in_strips, place = self._facts.in_strips, (*nodes, form)
            if place not in in_strips:
                in_strips[place] = self._in_strips(nodes, form)
            return in_strips[place]
        alike: dict[object, StepCost | None] = self._facts.alike
        key: object = None
        try:
            key = form, self._key(nodes)
            if key in alike:
                return alike[key]
            if form == "continued":
                known = _grouped(continued_group(graph, nodes), staged=False)
            elif len(nodes) > 1 or (form == "staged" and not is_in_order(graph, nodes)):
                known = _grouped(group_of(graph, nodes), staged=form == "staged")
            else:
                known = _alone(graph, graph.nodes[nodes[0]])
        except (*NOT_RUN, NotAGroup):
            known = None  # Such a graph can be planned; an executor, or the core, will refuse it.
        alike[key] = known
        return known

    def _in_strips(self, nodes: Sequence[int], strips: Strips) -> StepCost | None:
        try:
            region = region_of(self._former, nodes, strips)
        except NotAGroup:
            return None  # The core, or an executor, will refuse it.
        lines = padded(max(region.line_bytes, 1))
        kernels = [*dict.fromkeys(map(region.way, LIMITS))]
        slots: tuple[tuple[Choice, ...], ...] = ((Choice(lines, 0.0),),)
        if any(each.bytes for each in kernels):
            slots += (tuple(sorted(kernels)),)
        return StepCost(slots, _ways(Choice(lines + padded(c.bytes), c.cost) for c in kernels))

    def groupings(self) -> list[list[list[int]]]:
        """Return steps of a quantized graph in which each makes bytes of bytes."""
        found = (narrow_steps(self._graph, joined=joined) for joined in (True, False))
        return [steps for steps in found if steps is not None]

    def row_kernels(self, nodes: Sequence[int]) -> Sequence[RowKernel]:
        """Return the kernels that perform nodes on some rows."""
        known, key = self._facts.by_rows, tuple(nodes)
        if key not in known:
            known[key] = self._former.kernels(nodes)
        return known[key]

    def _key(self, nodes: Sequence[int]) -> object:
        """Return the key of nodes: nodes that differ in nothing but names have the same."""
        position: dict[int | None, int | None] = {None: None}
        rows = []
        for index in nodes:
            node = self._graph.nodes[index]
            values = (*node.inputs, *node.outputs)
            for value in values:
                position.setdefault(value, len(position))
            rows.append((self._kind(node), tuple([position[value] for value in values])))
        return tuple(rows)

    def _kind(self, node: Node) -> int:
        """Return the number of the kind of a node."""
        facts = self._facts
        known = facts.kind_of.get(node.index)
        if known is None:
            kind = _kind_of(self._graph, node)
            known = facts.kind_of[node.index] = facts.kinds.setdefault(kind, len(facts.kinds))
        return known

    @cached_property
    def _former(self) -> Former:
        return Former(self._graph)


class NumpyBackend:
    """The NumPy executor: its only state is a cache of facts about graphs."""

    name = "numpy"

    def __init__(self) -> None:
        self._facts: WeakKeyDictionary[Graph, _Facts] = WeakKeyDictionary()

    def costs(self, graph: Graph) -> NumpyCosts:
        """Return the costs of the steps of a graph."""
        facts = self._facts.get(graph)
        if facts is None or facts.core is not graph.core:
            facts = self._facts[graph] = _Facts(graph.core)
        return NumpyCosts(graph, facts)


BACKEND = NumpyBackend()
"""The registered backend."""


def require_kernels(graph: Graph) -> None:
    """
    Refuse a graph with an operator that no kernel runs, in branches and loops, too.

    Raises
    ------
    UnsupportedOp
        With the name of the node.
    """
    pending = [graph]
    for each in pending:
        for node in each.nodes:
            bodies = bodies_of(node)
            pending += [body.graph for body in bodies]
            # A node that decides a size runs between two plans.
            if not bodies and not decides(node) and node.domain != DOMAIN:
                plain_kernel(node)


def missing_workspaces(graph: Graph, plan: Plan, planned: Workspaces) -> dict[int, list[int]]:
    """
    Return the sizes of the workspaces that are not planned, at least cost.

    A plan without scratch memory has line buffers all the same, which are the first workspace of a
    step in strips.
    """
    costs = BACKEND.costs(graph)
    overlapped = set(plan.overlapped)
    strips = {each.node: each for each in plan.strips}
    has_lines_only = plan.options["workspace"] == "none"
    missing = {}
    for home, nodes in runs_of(plan).items():
        if home in planned and not (home in strips and has_lines_only):
            continue
        if home in strips:
            cost = costs.step(nodes, strips[home])
        elif home == nodes[-1]:
            cost = costs.step(nodes, "staged" if home in overlapped else "whole")
        else:
            cost = costs.step(nodes, "continued") if has_lines_only else None
        if cost is not None and cost.workspaces:
            missing[home] = least_workspaces(cost)[len(planned.get(home, ())) :]
    return missing


def least_workspaces(cost: StepCost) -> list[int]:
    """Return the sizes of the workspaces of a step, at least cost."""
    slots = cost.workspaces
    return [min(slot, key=lambda choice: (choice.cost, choice.bytes)).bytes for slot in slots]


def _grouped(group: Group, *, staged: bool) -> StepCost:
    """Return the cost of several nodes as one, or of one node with an overlapping output."""
    ways = staged_ways(group) if staged else group_ways(group)
    together = needed(ways)
    return StepCost((together,) if together or staged else (), _ways(ways))


def _ways(choices: Iterable[Choice]) -> list[Way]:
    """Return choices of scratch memory as the core takes them."""
    return [Way(padded(choice.bytes), round(choice.cost)) for choice in sorted(choices)]


def _alone(graph: Graph, node: Node) -> StepCost:
    """Return the cost of a node that runs by itself."""
    signature = signature_of(graph, node)
    kernel = find_kernel(signature)
    declare = kernel.workspace
    declared = () if declare is None else attributed(declare, signature, signature)
    slots = tuple(tuple(Choice(*choice) for choice in slot) for slot in declared)
    if graph.is_exact:
        # Tiles of another size add products up in another order.
        slots = tuple((min(slot),) for slot in slots)
    if not slots:
        return StepCost((), _ways([Choice(0, nanoseconds(signature, kernel))]))
    # At most one of the buffers comes in several sizes.
    widest = max(slots, key=len)
    ways = []
    for size in widest:
        chosen = [(slot, size if slot is widest else slot[0]) for slot in slots]
        total = sum(padded(choice.bytes) for _, choice in chosen)
        ways.append(Choice(total, nanoseconds(signature, kernel, chosen)))
    return StepCost(slots, _ways(ways))


# -- which steps are alike --------------------------------------------------------------------


def _kind_of(graph: Graph, node: Node) -> object:
    """Return all that the cost of a node depends on, but for the values that other nodes make."""
    signature = signature_of(graph, node)
    return (
        (node.op, node.domain, node.version, _frozen(node.attributes, node)),
        tuple(map(_tensor, signature.inputs)),
        tuple(map(_tensor, signature.outputs)),
        tuple(_constant(graph, signature, at, v) for at, v in enumerate(node.inputs)),
        node.effects,
    )


def _tensor(tensor: Tensor | None) -> object:
    return None if tensor is None else (tensor.shape, tensor.dtype.str)


def _constant(graph: Graph, signature: Signature, position: int, value: int | None) -> object:
    """Return the data of a constant for a kernel: the numbers, if they are few or whole ones."""
    if value is None or graph.values[value].kind != "constant":
        return None
    tensor = signature.inputs[position]
    if signature.constant[position] is None or tensor is None:
        return "no data"
    if prod(tensor.shape) <= _FEW:
        return graph.data(value).tobytes()
    return "weights" if tensor.dtype.kind == "f" else value


def _frozen(attribute: Any, node: Node) -> object:
    """Return an attribute as something that can be compared and hashed."""
    if isinstance(attribute, Mapping):
        return tuple(
            (name, _frozen(each, node)) for name, each in sorted(attribute.items(), key=repr)
        )
    if isinstance(attribute, (list, tuple)):
        return tuple(_frozen(each, node) for each in attribute)
    if isinstance(attribute, (int, float, str, bytes, type(None))):
        return type(attribute), attribute
    return "unlike any other", node.index
