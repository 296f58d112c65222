"""Propagates declared shapes from the end of an elementwise chain to the values before."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto

from arenaplan.formats.onnx.dims import Declared, declared
from arenaplan.formats.onnx.rules.elementwise_rules import SAME

_CHAINED = frozenset([*SAME, "Cast", "CastLike"])


def shapes_behind(graph: GraphProto) -> Mapping[str, Declared]:
    """
    Return value shapes derived from results at the end of elementwise chains.

    Data-dependent axes have no inferred shape, and a model may declare the final shape only at the
    end of a chain. A kernel refuses different data during a run.
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
