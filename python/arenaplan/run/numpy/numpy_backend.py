"""
The NumPy executor as a backend: the scratch memory and the time of steps.

A network repeats layers, and planning asks for the same steps several times. So the ways to
run a step are kept per graph, and steps that differ in nothing but names share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from arenaplan.graph import Choice, Graph, Node
from arenaplan.graph.scratch import Scratch
from arenaplan.run.numpy.groups import Group, NotAGroup
from arenaplan.run.numpy.narrow_steps import narrow_steps
from arenaplan.run.numpy.regions import RowKernels, region_of
from arenaplan.run.numpy.registry import Signature, Tensor, attributed, find_kernel
from arenaplan.run.numpy.signatures import NOT_RUN, group_of, is_in_order, signature_of
from arenaplan.run.numpy.stages import LIMITS, Former
from arenaplan.run.numpy.staging import staged_ways
from arenaplan.run.numpy.steps import Workspaces
from arenaplan.run.numpy.streaming import group_ways, needed
from arenaplan.run.numpy.timing import nanoseconds

if TYPE_CHECKING:
    from arenaplan._core import Plan, Strips

_FEW = 64
"""Elements of a constant that are looked at, since kernels may depend on them: axes, sizes."""
_SHOWN = 300.0
"""Nanoseconds of a step that does nothing, since its output is where its input is."""


class _Ways(NamedTuple):
    """A way in which a step can run."""

    slots: tuple[tuple[Choice, ...], ...]
    """The choices of each scratch buffer."""
    ways: tuple[Choice, ...]
    """All scratch memory together, and nanoseconds; ascending bytes."""


class _Step(NamedTuple):
    nodes: tuple[int, ...]
    staged: bool


class NumpyBackend:
    """Scratch memory and times of the kernels in :mod:`arenaplan.run.numpy.kernels`."""

    name = "numpy"

    def __init__(self) -> None:
        self._by_step: WeakKeyDictionary[Graph, dict[_Step, _Ways | None]] = WeakKeyDictionary()
        self._by_strips: WeakKeyDictionary[Graph, dict[object, _Ways]] = WeakKeyDictionary()
        self._alike: WeakKeyDictionary[Graph, dict[object, _Ways]] = WeakKeyDictionary()

    def workspaces(
        self,
        graph: Graph,
        steps: Iterable[Sequence[int]] | None = None,
        strips: Sequence[Strips] = (),
    ) -> Scratch:
        """
        Return the scratch buffers that the kernels of steps can work with.

        Steps that no kernel runs, or whose kernel needs no scratch memory, are left out.
        """
        every = ([node.index] for node in graph.nodes)
        choices: dict[int, tuple[tuple[Choice, ...], ...]] = {}
        in_strips = {each.node: each for each in strips}
        for nodes in every if steps is None else steps:
            if nodes[-1] in in_strips:
                choices[nodes[-1]] = self._strips(graph, nodes, in_strips[nodes[-1]]).slots
                continue
            ways = self._ways(graph, nodes, staged=False)
            if ways is not None and ways.slots:
                choices[nodes[-1]] = ways.slots
        return choices

    def staging(self, graph: Graph, steps: Iterable[Sequence[int]]) -> Scratch:
        """Return those of steps whose output overlaps an input."""
        choices = {}
        for nodes in steps:
            ways = self._ways(graph, nodes, staged=True)
            if ways is not None:
                choices[nodes[-1]] = ways.slots
        return choices

    def seconds(self, graph: Graph, plan: Plan) -> list[float]:
        """Return the estimated seconds of each step of a plan."""
        planned: dict[int, int] = {}
        for work in plan.workspaces:
            planned[work.node] = planned.get(work.node, 0) + _padded(work.bytes)
        shown = _shown_bytes(graph, plan)
        overlapped = set(plan.overlapped)
        in_strips = {each.node: each for each in plan.strips}
        times = []
        for nodes in plan.steps:
            if nodes[-1] in in_strips:
                strip_ways = self._strips(graph, nodes, in_strips[nodes[-1]]).ways
                room = planned.get(nodes[-1], max(way.bytes for way in strip_ways))
                within = [way.cost for way in strip_ways if way.bytes <= room]
                times.append(min(within, default=strip_ways[0].cost) * 1e-9)
                continue
            ways = self.step_seconds(graph, nodes, staged=nodes[-1] in overlapped)
            # Unplanned scratch memory is beside the arena, in the best size.
            room = planned.get(nodes[-1], max(way[0] for way in ways))
            fitting = [seconds for size, seconds in ways if size <= room] or [ways[0][1]]
            times.append(min(fitting) * _moved(graph, nodes, shown))
        return times

    def step_seconds(
        self, graph: Graph, nodes: Sequence[int], *, staged: bool
    ) -> list[tuple[int, float]]:
        """Return the ways to run nodes as one: bytes of scratch memory, estimated seconds."""
        ways = self._ways(graph, nodes, staged=staged)
        if ways is None:
            return [(0, 0.0)]
        return [(_padded(choice.bytes), choice.cost * 1e-9) for choice in ways.ways]

    def narrow_steps(self, graph: Graph) -> list[list[list[int]]]:
        """Return steps of a quantized graph in which each makes bytes of bytes."""
        found = (narrow_steps(graph, joined=joined) for joined in (True, False))
        return [steps for steps in found if steps is not None]

    def row_kernels(self, graph: Graph) -> RowKernels:
        """Return what is known of running steps of a graph strip by strip."""
        return RowKernels(graph)

    def _strips(self, graph: Graph, nodes: Sequence[int], strips: Strips) -> _Ways:
        """Return the scratch memory of nodes that run strip by strip."""
        known = self._by_strips.setdefault(graph, {})
        key = (tuple(nodes), strips)
        if key not in known:
            known[key] = _in_strips(graph, nodes, strips)
        return known[key]

    def _ways(self, graph: Graph, nodes: Sequence[int], *, staged: bool) -> _Ways | None:
        """Return how a step can run; None if no kernel runs it, or it is no group."""
        known = self._by_step.setdefault(graph, {})
        step = _Step(tuple(nodes), staged)
        if step not in known:
            known[step] = self._found(graph, step)
        return known[step]

    def _found(self, graph: Graph, step: _Step) -> _Ways | None:
        if not all(0 <= node < len(graph.nodes) for node in step.nodes):
            return None  # The core will refuse it.
        try:
            alike = self._alike.setdefault(graph, {})
            key = _key(graph, step)
            if key in alike:
                return alike[key]
            is_group = len(step.nodes) > 1 or (step.staged and not is_in_order(graph, step.nodes))
            found = _grouped(graph, step) if is_group else None
            alike[key] = found = found or _alone(graph, graph.nodes[step.nodes[0]])
        except (*NOT_RUN, NotAGroup):
            return None  # Such a graph can be planned; an executor, or the core, will refuse it.
        return found


BACKEND = NumpyBackend()
"""The registered backend: its only state is a cache of facts about graphs."""


def missing_workspaces(graph: Graph, plan: Plan, planned: Workspaces) -> dict[int, list[int]]:
    """
    Return the sizes of the workspaces that are not planned, at least cost.

    A plan without scratch memory has line buffers all the same, which are the first workspace of a
    step in strips.
    """
    overlapped = set(plan.overlapped)
    strips = plan.strips
    lines = {each.node for each in strips} if plan.options["workspace"] == "none" else set()
    unplanned = [nodes for nodes in plan.steps if nodes[-1] not in planned or nodes[-1] in lines]
    staged = [nodes for nodes in unplanned if nodes[-1] in overlapped]
    usual = [nodes for nodes in unplanned if nodes[-1] not in overlapped]
    choices = {**BACKEND.workspaces(graph, usual, strips), **BACKEND.staging(graph, staged)}
    return {
        node: [
            min(slot, key=lambda choice: (choice.cost, choice.bytes)).bytes
            for slot in slots[len(planned.get(node, ())) :]
        ]
        for node, slots in choices.items()
    }


def _grouped(graph: Graph, step: _Step) -> _Ways:
    """Return the ways to run several nodes as one, or one node with an overlapping output."""
    group: Group = group_of(graph, step.nodes)
    ways = staged_ways(group) if step.staged else group_ways(group)
    together = needed(ways)
    return _Ways((together,) if together or step.staged else (), ways)


def _in_strips(graph: Graph, nodes: Sequence[int], strips: Strips) -> _Ways:
    """Return the scratch memory and the time of nodes that run strip by strip."""
    former = Former(graph)
    lines, kernels, ways = 0, [], []
    try:
        for limit in LIMITS:
            region = region_of(former, nodes, strips, limit)
            lines = _padded(max(region.line_bytes, 1))
            kernels.append(Choice(region.scratch, region.seconds * 1e9))
    except NotAGroup:
        return _Ways((), (Choice(0, 0.0),))  # The core, or an executor, will refuse it.
    kernels = [each for at, each in enumerate(kernels) if each not in kernels[:at]]
    ways = [Choice(lines + _padded(each.bytes), each.cost) for each in kernels]
    slots: tuple[tuple[Choice, ...], ...] = ((Choice(lines, 0.0),),)
    if any(each.bytes for each in kernels):
        slots += (tuple(sorted(kernels)),)
    return _Ways(slots, tuple(sorted(ways)))


def _alone(graph: Graph, node: Node) -> _Ways:
    """Return how a node can run by itself."""
    signature = signature_of(graph, node)
    kernel = find_kernel(signature)
    declared = (
        () if kernel.workspace is None else attributed(kernel.workspace, signature, signature)
    )
    slots = tuple(tuple(Choice(*choice) for choice in slot) for slot in declared)
    if graph.is_exact:
        # Tiles of another size add products up in another order.
        slots = tuple((min(slot),) for slot in slots)
    if not slots:
        return _Ways((), (Choice(0, nanoseconds(signature, kernel)),))
    # At most one of the buffers comes in several sizes.
    widest = max(slots, key=len)
    ways = []
    for size in widest:
        chosen = [(slot, size if slot is widest else slot[0]) for slot in slots]
        total = sum(_padded(choice.bytes) for _, choice in chosen)
        ways.append(Choice(total, nanoseconds(signature, kernel, chosen)))
    return _Ways(slots, tuple(sorted(ways)))


def _padded(size: int) -> int:
    return -(-size // 64) * 64


# -- what sharing spares ----------------------------------------------------------------------


def _shown_bytes(graph: Graph, plan: Plan) -> dict[int, int]:
    """Return by node the bytes of its result that are where an input has them already."""
    shown: dict[int, int] = {}
    for share in plan.shares:
        if share.rule == "view":
            size = min(_size(graph, share.source), _size(graph, share.result))
            shown[share.node] = shown.get(share.node, 0) + size
    return shown


def _moved(graph: Graph, nodes: Sequence[int], shown: Mapping[int, int]) -> float:
    """Return which part of the time of a step is left if some of its result is not copied."""
    if len(nodes) > 1 or nodes[0] not in shown:
        return 1.0
    node = graph.nodes[nodes[0]]
    if not node.effects.views:
        return 1.0
    made = sum(_size(graph, value) for value in node.outputs if value is not None)
    return max(1.0 - shown[node.index] / max(made, 1), 0.02)


def _size(graph: Graph, value: int) -> int:
    """Return about how many bytes a value has."""
    return prod(graph.values[value].shape)


# -- which steps are alike --------------------------------------------------------------------


def _key(graph: Graph, step: _Step) -> object:
    """Return the key of the ways to run a step."""
    position: dict[int, int] = {}
    rows = []
    for index in step.nodes:
        node = graph.nodes[index]
        signature = signature_of(graph, node)
        for value in (*node.inputs, *node.outputs):
            if value is not None:
                position.setdefault(value, len(position))
        rows.append(
            (
                (node.op, node.domain, node.version, _frozen(node.attributes, node)),
                tuple(map(_tensor, signature.inputs)),
                tuple(map(_tensor, signature.outputs)),
                tuple(_constant(graph, signature, at, v) for at, v in enumerate(node.inputs)),
                tuple(None if v is None else position[v] for v in (*node.inputs, *node.outputs)),
                node.effects,
            )
        )
    return step.staged, tuple(rows)


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
        return tuple((name, _frozen(each, node)) for name, each in sorted(attribute.items()))
    if isinstance(attribute, (list, tuple)):
        return tuple(_frozen(each, node) for each in attribute)
    if isinstance(attribute, (int, float, str, bytes, type(None))):
        return type(attribute), attribute
    return "unlike any other", node.index
