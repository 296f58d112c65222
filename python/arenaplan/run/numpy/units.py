"""
The node or fused group in each step of a plan.

Besides the plan's groups, a chain such as Conv, BatchNormalization, Relu runs as one if the plan
put each value in the place of the value before: a single pass over that memory instead of three.
The plan does not change: all values keep their places, and some are never written in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from arenaplan.base.errors import UnsupportedOp
from arenaplan.graph import Graph, Node
from arenaplan.run.numpy.groups import Unit
from arenaplan.run.numpy.registry import Kernel, find_kernel
from arenaplan.run.numpy.signatures import group_of, is_in_order, signature_of

if TYPE_CHECKING:
    from arenaplan._core import Plan

_STARTS = frozenset(["BatchNormalization", "Conv", "ConvTranspose"])
"""Operators that begin such a chain."""


def find_units(graph: Graph, plan: Plan) -> list[Unit]:
    """Return the unit for each step in a plan."""
    placements = plan.placements

    def same_place(a: int, b: int) -> bool:
        first, second = placements[a], placements[b]
        return first is not None and second is not None and first.same_bytes(second)

    overlapped = set(plan.overlapped)
    alone = {nodes[0]: at for at, nodes in enumerate(plan.steps) if len(nodes) == 1}
    alone = {node: at for node, at in alone.items() if node not in overlapped}
    chains = _chains(graph, plan.steps, alone, same_place)
    follow = {node for chain in chains.values() for node in chain[1:]}
    units = []
    strips = {each.node: each for each in plan.strips}
    for nodes in plan.steps:
        if nodes[-1] in strips:
            units.append(Unit(nodes[-1], tuple(nodes), strips=strips[nodes[-1]]))
        elif nodes[-1] in overlapped and is_in_order(graph, nodes):
            units.append(Unit(nodes[-1], tuple(nodes)))
        elif nodes[-1] in overlapped:
            units.append(Unit(nodes[-1], tuple(nodes), group_of(graph, nodes), staged=True))
        elif len(nodes) > 1:
            units.append(Unit(nodes[-1], tuple(nodes), group_of(graph, nodes)))
        elif nodes[0] in chains:
            group = group_of(graph, chains[nodes[0]])
            output = group.sink.value
            outside = {v for member in group.members for _, v in member.reads()} - group.made
            taken = frozenset(value for value in outside if same_place(value, output))
            units.append(Unit(nodes[0], tuple(chains[nodes[0]]), replace(group, taken=taken)))
        elif nodes[0] not in follow:
            units.append(Unit(nodes[0], tuple(nodes)))
    return units


def _chains(
    graph: Graph,
    steps: Sequence[Sequence[int]],
    alone: Mapping[int, int],
    same_place: Callable[[int, int], bool],
) -> dict[int, list[int]]:
    """
    Return each chain of nodes that work in one place, by its first node.

    ``alone`` names the nodes that may be in a chain, with their steps.
    """
    born = {
        value: at
        for at, nodes in enumerate(steps)
        for value in graph.nodes[nodes[-1]].outputs
        if value is not None
    }
    readers: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                readers.setdefault(value, []).append(node)
    outputs = set(graph.outputs)
    written = {node.inputs[at] for node in graph.nodes for at in node.effects.mutates}
    chains: dict[int, list[int]] = {}
    taken: set[int] = set()
    for start, step in alone.items():
        first = graph.nodes[start]
        if (
            start in taken
            or first.op not in _STARTS
            or any(v is not None for v in first.outputs[1:])
        ):
            continue
        chain, value = [start], first.outputs[0]
        while value is not None and value not in outputs and len(readers.get(value, ())) == 1:
            node = readers[value][0]
            # An operand that a node writes in place may not have its content yet.
            ready = all(
                other is None
                or other == value
                or (other not in written and born.get(other, -1) < step)
                for other in node.inputs
            )
            if node.index not in alone or not ready or not _is_light(graph, node, value):
                break
            result = node.outputs[0]
            if result is None or not same_place(value, result):
                break
            chain.append(node.index)
            value = result
        if len(chain) > 1 and _kernel(graph, graph.nodes[start]) is not None:
            chains[start] = chain
            taken.update(chain)
    return chains


def _is_light(graph: Graph, node: Node, value: int) -> bool:
    """Whether a node works elementwise on ``value``, and without scratch memory."""
    if node.after or [result is not None for result in node.outputs] != [True]:
        return False
    if node.effects.repeats:
        return False  # Others may run the node again, from an operand that would never be written.
    result, operand = graph.values[node.outputs[0] or 0], graph.values[value]
    if (result.shape, result.dtype) != (operand.shape, operand.dtype):
        return False
    if operand.dtype not in ("float32", "float64"):
        return False
    kernel = _kernel(graph, node)
    if kernel is None or not kernel.is_pointwise:
        return False
    return kernel.workspace is None or not kernel.workspace(signature_of(graph, node))


def _kernel(graph: Graph, node: Node) -> Kernel | None:
    try:
        return find_kernel(signature_of(graph, node))
    except UnsupportedOp:
        return None
