"""Execution order: nodes after their operands."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Sequence

from onnx import AttributeProto, GraphProto, NodeProto

from arenaplan.base.errors import UndefinedValue, fault
from arenaplan.base.quoting import listed, quoted

MAX_NESTING = 30
"""Deepest subgraph nesting: the limit of protobuf readers."""

BRANCHING = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""Default-domain operators with subgraphs."""


def label(node: NodeProto) -> str:
    """Return a node's name for messages: its own name, or the first output's."""
    return quoted(node.name or next(filter(None, node.output), ""))


def ordered(nodes: Iterable[NodeProto], defined: Container[str]) -> list[NodeProto]:
    """
    Return nodes in topological order.

    Ties are broken by the given order.

    Parameters
    ----------
    defined : container of str
        Names defined without these nodes.

    Raises
    ------
    UndefinedValue, GraphError
        If there is no such order.
    """
    nodes = list(nodes)
    reads = [_reads(node) for node in nodes]
    made = {name for node in nodes for name in node.output}
    readers: dict[str, list[int]] = {}
    missing = []
    for index, (node, names) in enumerate(zip(nodes, reads, strict=True)):
        count = 0
        for name in names:
            if name in defined:
                continue
            if name not in made:
                raise UndefinedValue(
                    f"node {label(node)} reads {quoted(name)}, which nothing produces"
                )
            readers.setdefault(name, []).append(index)
            count += 1
        missing.append(count)
    ready = [index for index, count in enumerate(missing) if not count]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(nodes[index])
        for name in nodes[index].output:
            # A name that is produced twice is found out later.
            for reader in readers.pop(name, ()):
                missing[reader] -= 1
                if not missing[reader]:
                    heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        stuck = [index for index, count in enumerate(missing) if count]
        circle = _circle([nodes[i] for i in stuck], [reads[i] for i in stuck])
        raise fault("GraphCycle", f"nodes depend on each other in a circle: {listed(circle)}")
    return order


def _reads(node: NodeProto) -> set[str]:
    """Return the names that must exist before a node can run."""
    names = set(node.input)
    if node.op_type in BRANCHING:
        names.update(captured(node))
    names.discard("")
    return names


def _circle(nodes: Sequence[NodeProto], reads: Sequence[set[str]]) -> list[str]:
    """Return the names of nodes in a circle; all ``nodes`` wait for another node."""
    producers = {name: index for index, node in enumerate(nodes) for name in node.output}
    path: list[int] = []
    seen: dict[int, int] = {}
    index = 0
    while index not in seen:
        seen[index] = len(path)
        path.append(index)
        index = min(producers[name] for name in reads[index] if name in producers)
    circle = path[seen[index] :]
    return [nodes[i].name or next(filter(None, nodes[i].output), "") for i in reversed(circle)]


def captured(node: NodeProto) -> list[str]:
    """
    Return the names that a node's subgraphs read from outside.

    Raises
    ------
    UnsupportedModel
        If subgraphs are nested too deep.
    """
    names: list[str] = []
    pending = [(graph, 1, frozenset[str]()) for graph in subgraphs(node)]
    while pending:
        graph, depth, outer = pending.pop()
        if depth > MAX_NESTING:
            raise fault(
                "NestingTooDeep",
                f"node {label(node)} nests subgraphs more than {MAX_NESTING} deep",
            )
        inner = outer.union(
            (info.name for info in graph.input),
            (tensor.name for tensor in graph.initializer),
            (name for inside in graph.node for name in inside.output),
        )
        for inside in graph.node:
            names.extend(name for name in inside.input if name and name not in inner)
            pending.extend((below, depth + 1, inner) for below in subgraphs(inside))
        results = (info.name for info in graph.output)
        names.extend(name for name in results if name and name not in inner)
    return names


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """Return the graphs among a node's attributes."""
    graphs = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            graphs.append(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            graphs.extend(attribute.graphs)
    return graphs
