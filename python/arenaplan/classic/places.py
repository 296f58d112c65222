"""Assigns nodes to memories, and adds copies for readers in other memories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from arenaplan.base.arguments import typed
from arenaplan.base.errors import InvalidOption
from arenaplan.graph import Graph, Node
from arenaplan.graph.effects import Effects

TRANSFER = "Transfer"
"""Operator for nodes that copy a value to another memory."""
TRANSFER_DOMAIN = "arenaplan"
"""Domain for :data:`TRANSFER`."""


@typed
def place_nodes(
    graph: Graph, places: Mapping[str, str], *, default: str = "arena", cost: int = 0
) -> Graph:
    """
    Return the graph with a memory for each node, and copies between memories as nodes.

    A node without a memory takes the memory of the first operand that has a memory, else the memory
    of the readers, else the default (as NNVM's PlaceDevice pass does). A node reads and writes
    values in the node's memory. A value is copied once to each other memory with readers; the
    readers share the copy. A plan chooses when to copy: after the value is made and before the
    first reader in the other memory.

    Parameters
    ----------
    graph : Graph
        A graph whose values are in the default memory.
    places : mapping of str to str
        Memories by shell patterns for node names; the last matching pattern counts.
    default : str
        The default memory's name.
    cost : int, default 0
        Cost to copy a byte, in the unit of node costs.

    Returns
    -------
    Graph
        A graph with a memory for each value; a plan for memories with these names keeps values
        there. The copy of ``v`` in ``gpu1`` is ``v@gpu1``, made by the node ``v.to.gpu1`` with
        operator ``Transfer`` in domain ``arenaplan``.

    Raises
    ------
    InvalidOption
        If a pattern matches no node, or a node changes a state in another memory.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph("two devices")
    >>> x = graph.input("x", (64,))
    >>> (a,) = graph.node("Exp", [x], [("a", (64,), "float32")], name="first")
    >>> (b,) = graph.node("Neg", [a], [("b", (64,), "float32")], name="second")
    >>> (c,) = graph.node("Add", [a, b], [("c", (64,), "float32")], name="third")
    >>> graph.output(c)
    >>> placed = ap.classic.place_nodes(graph, {"first": "arena", "second": "gpu1"})
    >>> [node.name for node in placed.nodes[3:]]
    ['a.to.gpu1', 'b.to.arena']
    >>> plan = ap.plan(placed)
    >>> plan["a@gpu1"].space == plan["b"].space != plan["a"].space
    True
    """
    homes = _homes_of_nodes(graph, places, default)
    made_in: dict[int, str] = {}
    for node in graph.nodes:
        made_in.update((value, homes[node.index]) for value in node.outputs if value is not None)
    for node in graph.nodes:  # Values without a producer: the memory of the first user.
        for value in node.inputs:
            if value is not None and graph.values[value].kind != "constant":
                made_in.setdefault(value, homes[node.index])
    _check_states(graph, homes, made_in)
    placed = graph.copy()
    placed._change()
    placed.memory = default
    for index, where in made_in.items():
        if where != default:
            placed.values[index] = replace(graph.values[index], space=where)
    copies: dict[tuple[int, str], int] = {}
    added: list[Node] = []
    taken = {value.name for value in graph.values}
    for node in graph.nodes:
        home = homes[node.index]
        operands = list(node.inputs)
        for position, value in enumerate(node.inputs):
            if value is None or made_in.get(value, home) == home:
                continue
            if position in node.effects.ignores:
                continue  # Only the shape is used.
            if (value, home) not in copies:
                source = graph.values[value]
                name = f"{source.name}@{home}"
                while name in taken:
                    name += "'"
                taken.add(name)
                space = None if home == default else home
                copy = placed._declare(
                    name, source.shape, source.dtype, "activation", source.alignment, space
                )
                copies[value, home] = copy
                added.append(
                    Node(
                        f"{source.name}.to.{home}",
                        TRANSFER,
                        (value,),
                        (copy,),
                        len(graph.nodes) + len(added),
                        Effects(pure=True),
                        domain=TRANSFER_DOMAIN,
                        version=1,
                        cost=cost * graph.core.sizes[value],
                    )
                )
            operands[position] = copies[value, home]
        placed.nodes[node.index] = replace(node, inputs=tuple(operands))
    placed.nodes += added
    return placed


def _homes_of_nodes(graph: Graph, places: Mapping[str, str], default: str) -> list[str]:
    """Return each node's memory."""
    homes: list[str | None] = [None] * len(graph.nodes)
    for pattern, home in places.items():
        found = [
            node.index
            for node in graph.nodes
            if node.name == pattern or fnmatchcase(node.name, pattern)
        ]
        if not found:
            raise InvalidOption(f"option places: no node is called {pattern!r}")
        for index in found:
            homes[index] = home
    producer = {value: node.index for node in graph.nodes for value in node.outputs}
    for node in graph.nodes:
        makers = (producer.get(value) for value in node.inputs)
        known = (homes[maker] for maker in makers if maker is not None)
        homes[node.index] = homes[node.index] or next(filter(None, known), None)
    for node in reversed(graph.nodes):
        for value in node.inputs:
            maker = producer.get(value)
            if maker is not None and homes[maker] is None:
                homes[maker] = homes[node.index]
    return [home or default for home in homes]


def _check_states(graph: Graph, homes: list[str], made_in: Mapping[int, str]) -> None:
    """Refuse nodes that change a state in another memory."""
    replaced = dict(graph.write_backs)
    for node in graph.nodes:
        changed = [node.inputs[position] for position in node.effects.mutates]
        changed += [replaced[value] for value in node.outputs if value in replaced]
        for state in changed:
            if state is not None and made_in.get(state, homes[node.index]) != homes[node.index]:
                name, where = graph.values[state].name, made_in[state]
                raise InvalidOption(
                    f"option places: node {node.name!r} computes in {homes[node.index]!r} and "
                    f"changes {name!r}, which is in {where!r}"
                )
