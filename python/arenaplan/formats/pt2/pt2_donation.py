"""
Donation: new contents in a joint graph at the old contents' addresses.

A new content may replace an old content if the new content's node can run after all readers of the
old content, and can write in place if the node itself reads the old content. Otherwise, a copy at
the end replaces the old content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from arenaplan.graph import Effects, Graph, InPlace, Node, ops


def write_back(graph: Graph, pairs: Mapping[int, int]) -> dict[int, int]:
    """
    Replace states by new contents.

    Parameters
    ----------
    graph : Graph
        Without write-backs and outputs; changed in place.
    pairs : mapping
        States, with the replacing values.

    Returns
    -------
    dict
        Values of which only copies replace states, with a copy for each.
    """
    binder = _Binder(graph)
    # Large contents are bound first: theirs are the copies to avoid.
    largest = sorted(pairs, key=lambda it: _bytes(graph, it), reverse=True)
    for into in largest:
        if into != pairs[into]:
            binder.bind(pairs[into], into)
    bound = {value for value, _ in graph.write_backs}
    return {value: copy for value, copy in binder.copies.items() if value not in bound}


def _bytes(graph: Graph, value: int) -> int:
    """Return a value's size."""
    return ops.array_bytes(graph.values[value].shape, graph.values[value].dtype)


class _Binder:
    """A run of :func:`write_back`."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._makers: dict[int, Node] = {}
        self._readers: dict[int, list[Node]] = {}
        self._behind: dict[int, list[Node]] = {}
        """By reader of an old content, the replacing nodes."""
        self._views: set[int] = set()
        self._bound: dict[int, Node] = {}
        """By state, the replacing node."""
        self._values: set[int] = set()
        self.copies: dict[int, int] = {}
        """Copies by value."""
        for node in graph.nodes:
            self._note(node)

    def _note(self, node: Node) -> None:
        """Note the values that a node reads and makes."""
        for value in node.outputs:
            if value is not None:
                self._makers[value] = node
        for view in node.effects.views:
            made = node.outputs[view.output]
            if made is not None:
                self._views.add(made)
        for value in {value for value in node.inputs if value is not None}:
            self._readers.setdefault(value, []).append(node)

    def bind(self, value: int, into: int) -> None:
        """Replace a state by a value, or by a copy of the value."""
        if not self._is_bound(value, into):
            value = self.copies[value] = self._copied(value)
            assert self._is_bound(value, into), "nothing depends on a copy"
        self._graph.write_back(value, into)

    def _is_bound(self, value: int, into: int) -> bool:
        """Bind a value to a state's bytes, if the value's node can write there."""
        maker = self._makers.get(value)
        if maker is None or value in self._values or value in self._views:
            return False
        readers = self._readers.get(into, [])
        if any(node is maker for node in readers) and not self._takes_over(maker, into, value):
            return False
        before = [node for node in readers if node is not maker]
        below = self._below(maker)
        if any(node.index in below for node in before):
            return False
        for node in before:
            self._behind.setdefault(node.index, []).append(maker)
        self._bound[into] = maker
        self._values.add(value)
        return True

    def _takes_over(self, maker: Node, into: int, value: int) -> bool:
        """Whether a node that reads a state may overwrite the state with a value."""
        output = maker.outputs.index(value)
        allowed = {pair.input for pair in maker.effects.in_place if pair.output == output}
        return all(at in allowed for at, read in enumerate(maker.inputs) if read == into)

    def _below(self, node: Node) -> set[int]:
        """Return the nodes that must run after a node."""
        found: set[int] = set()
        todo = [node]
        while todo:
            for after in self._after(todo.pop()):
                if after.index not in found:
                    found.add(after.index)
                    todo.append(after)
        return found

    def _after(self, node: Node) -> Iterator[Node]:
        for value in node.outputs:
            if value is not None:
                yield from self._readers.get(value, ())
        yield from self._behind.get(node.index, ())

    def _copied(self, value: int) -> int:
        """Append a node that copies a value, and return the copy."""
        graph, source = self._graph, self._graph.values[value]
        name = free_name(f"{source.name}_copy", (other.name for other in graph.values))
        copy = graph.value(name, source.shape, source.dtype)
        cost = ops.roofline(0, [ops.Array(source.shape, source.dtype, False)] * 2)
        effects = Effects(in_place=(InPlace(0, 0),), pure=True)
        node = graph.append(
            "clone.default", (value,), (copy,), name=name, effects=effects, domain="aten", cost=cost
        )
        self._note(node)
        if value in self._bound:
            self._behind.setdefault(node.index, []).append(self._bound[value])
        return copy


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return an unused name."""
    used = set(taken)
    number = 0
    found = name
    while found in used:
        number += 1
        found = f"{name}_{number}"
    return found
