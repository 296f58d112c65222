"""Inlines a graph in place of an operator."""

from __future__ import annotations

from collections.abc import Mapping

from arenaplan.base.errors import InvalidOperand, ShapeMismatch
from arenaplan.base.quoting import listed, quoted
from arenaplan.graph import Graph


def call(
    graph: Graph,
    callee: Graph,
    prefix: str,
    inputs: Mapping[str, int],
    names: Mapping[int, str] | None = None,
) -> tuple[int, ...]:
    """
    Append the nodes of ``callee`` to ``graph``: see :meth:`Operators.call`.

    Parameters
    ----------
    names : mapping, optional
        Names of some values of ``callee`` in ``graph``, by index.
    """
    expected = {callee.values[index].name: index for index in callee.inputs}
    unknown = sorted(set(inputs) - set(expected))
    missing = sorted(set(expected) - set(inputs))
    if unknown or missing:
        problem = f"has no input {unknown[0]!r}" if unknown else f"lacks its input {missing[0]!r}"
        raise InvalidOperand(
            f"graph {quoted(callee.name)} {problem}; its inputs are {listed(expected)}"
        )
    place: dict[int, int] = {}
    for name, index in inputs.items():
        index = graph.own(index)
        given, wanted = graph.values[index], callee.values[expected[name]]
        if (given.shape, given.dtype) != (wanted.shape, wanted.dtype):
            raise ShapeMismatch(
                f"input {quoted(name)} of graph {quoted(callee.name)} holds {wanted.dtype} of "
                f"shape {wanted.shape}, and value {quoted(given.name)} holds {given.dtype} of "
                f"shape {given.shape}"
            )
        place[wanted.index] = index
    for value in callee.values:
        if value.index in place:
            continue
        name = (names or {}).get(value.index, f"{prefix}/{value.name}")
        facts = value.shape, value.dtype
        if value.kind == "constant":
            data = callee.data(value.index) if callee.has_data(value.index) else None
            place[value.index] = graph.constant(name, *facts, data)
        elif value.kind == "state":
            first = callee.initial(value.index)
            place[value.index] = graph.state(name, *facts, initial=first)
        else:
            place[value.index] = graph.value(name, *facts)
    start = len(graph.nodes)
    for node in callee.nodes:
        attributes = node.attributes
        if "stream" in attributes:  # Each call draws separate numbers.
            attributes = {**attributes, "stream": f"{prefix}/{attributes['stream']}"}
        graph.append(
            node.op,
            tuple(None if v is None else place[v] for v in node.inputs),
            tuple(None if v is None else place[v] for v in node.outputs),
            name=f"{prefix}/{node.name}",
            effects=node.effects,
            attributes=attributes,
            domain=node.domain,
            version=node.version,
            after=tuple(start + index for index in node.after),
            cost=node.cost,
        )
    for content, into in callee.write_backs:
        graph.write_back(place[content], place[into])
    return tuple(place[index] for index in callee.outputs)
