"""Graphs with other shapes or types, whose effects follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from arenaplan.graph import Graph, Node, Value
from arenaplan.graph.effects import Effects, Flow, View
from arenaplan.graph.ops import array_bytes
from arenaplan.report.whatif.axes import CannotEdit


def edited(graph: Graph, values: Mapping[int, Value]) -> Graph:
    """
    Return a graph in which some values have new shapes or types.

    Permissions whose numbers cannot be carried over are dropped, so a real model with these shapes
    needs no more bytes.

    Raises
    ------
    CannotEdit
        If a view would no longer be a view.
    """
    made = graph.copy()
    for index, value in values.items():
        made.values[index] = value
    for index, node in enumerate(graph.nodes):
        touched = [v for v in (*node.inputs, *node.outputs) if v is not None and v in values]
        if touched:
            made.nodes[index] = replace(node, effects=_effects(graph, made, node))
    return made


def _effects(old: Graph, new: Graph, node: Node) -> Effects:
    """Return a node's effects for new operand sizes."""
    effects = node.effects
    views = tuple(_view(old, new, node, view) for view in effects.views)
    flows = tuple(
        flow for flow in (_flow(old, new, node, flow) for flow in effects.flows) if flow is not None
    )
    # Only the operator knows how the distance depends on sizes.
    return effects._replace(views=views, flows=flows, overlaps=())


def _view(old: Graph, new: Graph, node: Node, view: View) -> View:
    """Return a view with the new offset."""
    if view.offset == 0:
        return view
    if view.of == "output":
        before = [_bytes(old, v) for v in node.inputs[: view.input] if v is not None]
        if sum(before) == view.offset:
            after = [_bytes(new, v) for v in node.inputs[: view.input] if v is not None]
            return view._replace(offset=sum(after))
    source, result = node.inputs[view.input], node.outputs[view.output]
    if source is not None and result is not None:
        ratios = {(_bytes(new, value), _bytes(old, value)) for value in (source, result)}
        scaled = {view.offset * now / was for now, was in ratios if was}
        same_shape = all(new.values[v].shape == old.values[v].shape for v in (source, result))
        if same_shape and len(scaled) == 1 and (offset := scaled.pop()).is_integer():
            return view._replace(offset=int(offset))
    raise CannotEdit(f"{node.op} {node.name!r} is a view into a value of another size")


def _flow(old: Graph, new: Graph, node: Node, flow: Flow) -> Flow | None:
    """Return in which pieces a result can be made now; None if that is not known."""
    result = node.outputs[flow.output]
    if result is None:
        return None
    before, after = old.values[result].shape, new.values[result].shape
    for rank in range(len(before), 0, -1):
        if prod(before[:rank]) == flow.pieces:
            return flow._replace(pieces=prod(after[:rank]))
    return None


def _bytes(graph: Graph, value: int) -> int:
    row = graph.values[value]
    return array_bytes(row.shape, row.dtype)
