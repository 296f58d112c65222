"""Storage sharing: values share whole blocks, as NNVM and MXNet plan memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from arenaplan import _core
from arenaplan._core import Assign, StoragePlan
from arenaplan.base.arguments import typed
from arenaplan.base.errors import InvalidOption
from arenaplan.graph import Graph

SizeRule: TypeAlias = Literal["bytes", "elements_x4"]
SharingMode: TypeAlias = Literal["default", "nnvm"]
Assignment: TypeAlias = Literal["external", "dynamic"] | int
FusionKind: TypeAlias = Literal[
    "elementwise", "anchors", "prologue", "attention", "perceptrons", "channels"
]

_CODES = {"external": -2, "dynamic": -3}


@typed
def share_storage(
    graph: Graph,
    *,
    match_range: int = 16,
    auto_search: bool = False,
    num_temp: int = 1,
    size_rule: SizeRule = "bytes",
    mode: SharingMode = "default",
    parallel_safe: bool = False,
    nodes: range | None = None,
    counts: Sequence[int] | None = None,
    assigned: Mapping[int, Assignment] | None = None,
    groups: Iterable[Iterable[int]] = (),
) -> StoragePlan:
    """
    Decide which values in ``graph`` share memory blocks.

    A block serves values one after the other and is as large as the largest value; there are no
    offsets. :func:`plan` needs fewer bytes; blocks are for runtimes without offsets.

    Parameters
    ----------
    graph : Graph
        The graph to plan.
    match_range : int, default 16
        Largest ratio between the sizes of a block and a value, in both directions; 0 gives every
        value a separate block. NNVM reads the range from ``NNVM_EXEC_MATCH_RANGE``.
    auto_search : bool, default False
        Whether to try all powers of two up to ``match_range`` and keep the smallest result.
    num_temp : int, default 1
        Number of colors; above 1, a freed block is reused only by nodes with the same color.
    size_rule : {"bytes", "elements_x4"}, default "bytes"
        Size measure; NNVM counts four bytes per element for every type.
    mode : {"default", "nnvm"}, default "default"
        The rules that decide; ``"nnvm"`` reproduces the original to the byte, with its defects.
    parallel_safe : bool, default False
        Whether the result must be safe in every order permitted by the graph.
    nodes : range, optional
        Positions of the nodes to plan in the execution order.
    counts : sequence of int, optional
        How often each value is read.
    assigned : mapping, optional
        Fixed storage by value: ``"external"``, ``"dynamic"`` or a block number.
    groups : iterable of iterables of int, optional
        Fused nodes, as returned by :func:`fuse`. A value that never leaves a group gets no block.
        Positions in ``nodes`` refer to the grouped graph, ``graph.core.grouped(groups)``, which is
        also the graph for ``to_plan``.

    Returns
    -------
    StoragePlan
        ``storage_ids``, ``in_place_index``, ``blocks``, ``allocated_bytes``, ``colors``.

    Raises
    ------
    InvalidOption
        If the options contradict each other or the graph.
    GraphError
        If a group's nodes cannot be fused.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> last = graph.input("x", (10,))
    >>> for name in "abc":
    ...     (last,) = graph.node("Conv", [last], [(name, (10,), "float32")])
    >>> graph.output(last)
    >>> plan = ap.classic.share_storage(graph)
    >>> plan.storage_ids, plan.allocated_bytes
    ([-1, 0, 1, 0], 80)
    """
    if nodes is not None and nodes.step != 1:
        raise InvalidOption(f"option nodes: {nodes!r} leaves nodes out")
    codes = None
    if assigned is not None:
        codes = [-1] * len(graph.values)
        for value, storage in assigned.items():
            if not 0 <= value < len(codes):
                raise InvalidOption(f"option assigned: there is no value {value}")
            codes[value] = _CODES[storage] if isinstance(storage, str) else storage
    listed = [list(group) for group in groups]
    return _core.share_storage(
        graph.core.grouped(listed) if listed else graph.core,
        match_range=match_range,
        auto_search=auto_search,
        num_temp=num_temp,
        size_rule=size_rule,
        mode=mode,
        parallel_safe=parallel_safe,
        nodes=None if nodes is None else (nodes.start, nodes.stop),
        counts=None if counts is None else list(counts),
        assigned=codes,
    )


@dataclass(frozen=True, slots=True)
class Coloring:
    """A color for every node, as returned by :func:`color_nodes`."""

    colors: list[int]
    """Every node's color, by index."""
    count: int
    """Number of colors: a color per path, and a color for the rest."""

    @property
    def rest(self) -> int:
        """Color for nodes on no path, and for values without a producer."""
        return self.count - 1


@typed
def color_nodes(graph: Graph, num_temp: int) -> Coloring:
    """
    Return a color for every node: long paths first, at most ``num_temp`` colors.

    Nodes with the same color, except the last color, are on a path and never run concurrently.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> (a,) = graph.node("Op", [], [("a", (1,), "float32")])
    >>> _ = graph.node("Op", [a], [("b", (1,), "float32")])
    >>> _ = graph.node("Op", [a], [("c", (1,), "float32")])
    >>> coloring = ap.classic.color_nodes(graph, 2)
    >>> coloring, coloring.rest
    (Coloring(colors=[0, 1, 0], count=2), 1)
    """
    return Coloring(*_core.color_nodes(graph.core, num_temp))


@typed
def fuse(graph: Graph, kinds: Iterable[FusionKind] = ("elementwise", "anchors")) -> list[list[int]]:
    """
    Return groups of nodes that can be fused, by index in execution order.

    Only the nodes' flows decide. A group makes one value, piece by piece; the group's other values
    are never needed whole.

    Parameters
    ----------
    graph : Graph
        What to look at.
    kinds : iterable of str
        Which nodes may join a reader's group: ``"elementwise"`` nodes, ``"anchors"`` (another node,
        such as a convolution, before elementwise nodes), ``"prologue"``, ``"attention"``,
        ``"perceptrons"``, ``"channels"``; the switches of ``Fusion`` in Rust.

    Raises
    ------
    InvalidOption
        If a kind is unknown.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> x, y = graph.input("x", (10,)), graph.input("y", (10,))
    >>> (s,) = graph.node("Add", [x, y], [("s", (10,), "float32")], flows=[(0, 10, (0, 1))])
    >>> (e,) = graph.node("Exp", [s], [("e", (10,), "float32")], flows=[(0, 10, (0,))])
    >>> graph.output(e)
    >>> groups = ap.classic.fuse(graph)
    >>> groups, ap.classic.share_storage(graph, groups=groups).storage_ids
    ([[0, 1]], [-1, -1, -1, 0])
    """
    return _core.fuse(graph.core, list(kinds))


@typed
def find_assigns(graph: Graph, elementwise: Iterable[int] | None = None) -> dict[int, Assign]:
    """
    Return the assignments in ``graph``, by node.

    An assignment mutates a state without reading the state, and has an in-place *identity* pair
    from another operand with the state's size to the result.

    Parameters
    ----------
    graph : Graph
        What to look at.
    elementwise : iterable of int, optional
        Nodes that may write into a state they read. Such a node writes directly for an assignment
        if no other node needs the result. By default, a node qualifies if its effects have an
        in-place pair, or a flow with one element per piece, and a pair for every state it reads.

    Returns
    -------
    dict
        :class:`Assign` by node index.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> w = graph.state("w", (4,))
    >>> (sum_,) = graph.node("AddOne", [w], [("sum", (4,), "float32")], in_place=[(0, 0)])
    >>> (new,) = graph.node(
    ...     "Assign",
    ...     [w, sum_],
    ...     [("new", (4,), "float32")],
    ...     in_place=[(1, 0, True)],
    ...     ignores=[0],
    ...     mutates=[0],
    ... )
    >>> ap.classic.find_assigns(graph)
    {1: Assign(direct=True, state=0, source=1, result=2)}
    """
    found = _core.find_assigns(graph.core, _listed(elementwise))
    return {node: assign for node, assign in enumerate(found) if assign is not None}


def _listed(nodes: Iterable[int] | None) -> list[int] | None:
    return None if nodes is None else list(nodes)


@typed
def order_mutations(graph: Graph, elementwise: Iterable[int] | None = None) -> Graph:
    """
    Return a copy of ``graph`` in which states change in the order of node insertion.

    In every execution order, a node added before a state's writer sees the state's old bytes, and a
    node added later sees the new bytes. For a direct assignment (see :func:`find_assigns`), the
    producer of the right side waits for the readers of the old bytes. :func:`find_assigns` gives
    the same answer for the copy.

    Parameters
    ----------
    graph : Graph
        The graph.
    elementwise : iterable of int, optional
        As in :func:`find_assigns`; with ``()`` no assignment is direct.

    Raises
    ------
    GraphError
        If a node would have to run both before and after another node; with ``elementwise=()``,
        only if the insertion order cannot be executed.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> w, x = graph.state("w", (4,)), graph.input("x", (4,))
    >>> (old,) = graph.node("Copy", [w], [("old", (4,), "float32")])
    >>> _ = graph.node("Write", [w, x], [("new", (4,), "float32")], mutates=[0])
    >>> ap.classic.order_mutations(graph).nodes[1].after
    (0,)
    """
    return graph.with_after(_core.order_mutations(graph.core, _listed(elementwise)))
