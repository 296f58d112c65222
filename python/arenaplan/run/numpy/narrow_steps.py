"""
Steps in a quantized graph that pass on bytes.

Fusion does not know which groups have a byte kernel. The steps in this module make another plan
that is weighed: each step ends where numbers become bytes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from arenaplan.graph import Graph, Node
from arenaplan.run.numpy.groups import group_of
from arenaplan.run.numpy.quantizing import host_kind, quantized_group
from arenaplan.run.numpy.registry import find_kernel
from arenaplan.run.numpy.signatures import NOT_RUN, signature_of

_CONVERSIONS = ("DequantizeLinear", "QuantizeLinear")


def narrow_steps(graph: Graph, *, joined: bool = False) -> list[list[int]] | None:
    """
    Return a quantized graph's steps that make bytes from bytes, as far as possible.

    A step ends with a QuantizeLinear, and has the nodes before, back to the conversions from bytes:
    elementwise nodes, and at most one convolution or product. Conversions run in each step that
    reads their result.

    Parameters
    ----------
    joined : bool, default False
        Whether a step takes in the step that makes its bytes where byte kernels run both
        (:class:`~arenaplan.run.numpy.quantizing.QuantizedGroup`).

    Returns
    -------
    list of list of int, optional
        Nodes that run as one; ``None`` if all nodes run alone.
    """
    if not any(node.op == "QuantizeLinear" for node in graph.nodes):
        return None
    found = _Narrow(graph)
    steps = [found.step(node) for node in graph.nodes]
    if joined:
        for node in graph.nodes:
            steps[node.index] = found.joined(steps[node.index], steps)
    inside = {node for nodes in steps for node in nodes[:-1]}
    if not inside:
        return None
    needed = set(graph.outputs)
    kept: list[list[int]] = []
    for nodes in reversed(steps):
        last = graph.nodes[nodes[-1]]
        # Values that groups make for themselves are made once more if another reader exists.
        if last.index in inside and needed.isdisjoint(last.outputs):
            continue
        members = [graph.nodes[node] for node in nodes]
        made = {value for node in members for value in node.outputs}
        needed.update(v for node in members for v in node.inputs if v not in made and v is not None)
        kept.append(nodes)
    return kept[::-1]


class _Narrow:
    """Finds the nodes that run as one with each QuantizeLinear in a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {
            value: node for node in graph.nodes for value in node.outputs if value is not None
        }
        self.readers = Counter(value for node in graph.nodes for value in node.inputs)
        self.readers.update(graph.outputs)

    def step(self, node: Node) -> list[int]:
        """Return the nodes that run as one with a node, which is last."""
        if node.op != "QuantizeLinear" or node.domain not in ("", "ai.onnx"):
            return [node.index]
        nodes, products = {node.index}, 0
        shapes = {self.graph.values[value].shape for value in node.outputs if value is not None}
        pending = [value for value in node.inputs if value is not None]
        while pending:
            value = pending.pop()
            maker = self.makers.get(value)
            if maker is None or maker.index in nodes:
                continue
            if maker.op == "DequantizeLinear" and maker.effects.repeats:
                if self.graph.values[value].shape in shapes:
                    nodes.add(maker.index)
                continue
            kind = self._kind(maker, value)
            if kind is None or (kind and products):
                return [node.index]
            if kind:
                shapes = {self.graph.values[v].shape for v in maker.inputs[:1] if v is not None}
            elif self.graph.values[value].shape not in shapes:
                return [node.index]
            products += kind
            nodes.add(maker.index)
            pending += [read for read in maker.inputs if read is not None]
        return sorted(nodes)

    def joined(self, step: list[int], steps: Sequence[list[int]]) -> list[int]:
        """Return a step with the earlier steps that byte kernels run together with the step."""
        if len(step) == 1:
            return step
        for node in step:
            maker = self.graph.nodes[node]
            if maker.op != "DequantizeLinear":
                continue
            read = (maker.inputs[0], maker.outputs[0])
            source = None if read[0] is None else self.makers.get(read[0])
            if source is None or source.op != "QuantizeLinear" or source.index in step:
                continue
            if any(self.readers[value] > 1 for value in read):
                continue
            before = steps[source.index]
            both = sorted({*before, *step})
            if len(before) > 1 and quantized_group(group_of(self.graph, both)) is not None:
                return both
        return step

    def _kind(self, maker: Node, value: int) -> int | None:
        """Return 0 for an elementwise node, 1 for a convolution or a product, or nothing."""
        made = [output for output in maker.outputs if output is not None]
        if made != [value] or self.readers[value] > 1 or maker.op in _CONVERSIONS:
            return None
        try:
            signature = signature_of(self.graph, maker)
            kernel = find_kernel(signature)
        except NOT_RUN:
            return None
        rows = self.graph.values[value]
        if kernel.is_pointwise:
            return 0
        return 1 if host_kind(signature) is not None and math.prod(rows.shape[:-1]) > 1 else None
