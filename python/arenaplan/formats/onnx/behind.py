"""Shapes that hold in front of a chain of elementwise operators because they do behind it."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto

from arenaplan.formats.onnx.dims import Declared, declared
from arenaplan.formats.onnx.rules.elementwise_rules import SAME

_CHAINED = frozenset([*SAME, "Cast", "CastLike"])


def shapes_behind(graph: GraphProto) -> Mapping[str, Declared]:
    """
    Return shapes of values that follow from those of results that only pass through chains.

    Axes that data decide have no shape of their own, and a model may only declare what is left of
    them at its end. A kernel that finds other data in a run refuses it.
    """
    infos = {info.name: info for info in (*graph.value_info, *graph.output)}
    known: dict[str, Declared] = {}
    for node in reversed(graph.node):
        if node.domain or node.op_type not in _CHAINED or not node.input or not node.output:
            continue
        name, behind = node.input[0], node.output[0]
        if behind in infos and behind not in known:
            kind = infos[behind].type.WhichOneof("value")
            if kind == "tensor_type" and infos[behind].type.tensor_type.HasField("shape"):
                known[behind] = Declared(None, declared(infos[behind]).dims)
        if behind in known:
            known.setdefault(name, known[behind])
    return known
