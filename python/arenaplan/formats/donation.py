"""
Donation: new contents in a training step's graph at the old contents' addresses.

A new content may replace an old content if the new content's node can run after all readers of the
old content, and can write in place if the node itself reads the old content. Otherwise, a copy at
the end replaces the old content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from arenaplan.graph import Graph, Node
from arenaplan.graph.ops import array_bytes


def write_back(
    graph: Graph, pairs: Mapping[int, int], copied: Callable[[int], int]
) -> dict[int, int]:
    """
    Replace states by new contents.

    Parameters
    ----------
    graph : Graph
        Without write-backs; changed in place.
    pairs : mapping
        States, with the replacing values.
    copied : callable
        Appends a node that copies a value, and returns the copy.

    Returns
    -------
    dict
        States, with the values that replace them: the given values, or copies.
    """
    binder = _Binder(graph)

    def size(into: int) -> int:
        return array_bytes(graph.values[into].shape, graph.values[into].dtype)

    bound: dict[int, int] = {}
    # Large contents are bound first: theirs are the copies to avoid.
    for into in sorted(pairs, key=size, reverse=True):
        value = pairs[into]
        if into == value:
            continue
        for _ in range(3):
            if binder.bind(value, into):
                break
            source, value = value, copied(value)
            binder.note_copy(source, graph.nodes[-1])
        else:
            raise AssertionError("nothing depends on a copy of a copy")
        graph.write_back(value, into)
        bound[into] = value
    return bound


class _Binder:
    """A run of :func:`write_back`."""

    def __init__(self, graph: Graph) -> None:
        self._makers: dict[int, Node] = {}
        self._readers: dict[int, list[Node]] = {}
        self._behind: dict[int, list[Node]] = {}
        """By reader of an old content, the replacing nodes."""
        self._bound: dict[int, Node] = {}
        """By state, the replacing node."""
        self._values: set[int] = set()
        for node in graph.nodes:
            self._note(node)

    def _note(self, node: Node) -> None:
        """Note the values that a node reads and makes."""
        for value in node.outputs:
            if value is not None:
                self._makers[value] = node
        for value in {value for value in node.inputs if value is not None}:
            self._readers.setdefault(value, []).append(node)

    def note_copy(self, source: int, node: Node) -> None:
        """Note a new node that copies a value."""
        self._note(node)
        if source in self._bound:
            self._behind.setdefault(node.index, []).append(self._bound[source])

    def bind(self, value: int, into: int) -> bool:
        """Bind a value to a state's bytes, if the value's node can write there."""
        maker = self._makers.get(value)
        if maker is None or value in self._values:
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
