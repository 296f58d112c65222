"""Caches: inputs that a run hands on as outputs, kept in the arena from run to run instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from arenaplan.base.arguments import typed
from arenaplan.base.errors import InvalidOption, ShapeMismatch
from arenaplan.base.quoting import listed, quoted
from arenaplan.graph.effects import Effects, InPlace
from arenaplan.graph.graph import Graph
from arenaplan.graph.ops.own_ops import TRAINING
from arenaplan.graph.values import Node


@typed
def keep_caches(graph: Graph, pairs: Mapping[str, str] | None = None) -> Graph:
    """
    Return a graph in which some inputs are states that outputs replace in place.

    A language model step reads earlier tokens' keys and values, and returns these with new entries.
    If new entries are written into the old array, a single copy is enough: the state keeps its
    bytes between runs, and is neither passed nor returned.

    If new entries are appended behind the old entries, the state is as long as both: each run moves
    the entries down in place, dropping the oldest, and writes new entries at the end. In the first
    runs, zeros precede the entries, and a mask has to hide the zeros like left padding.

    A cache that is converted before new entries are written, and converted back for the caller, is
    kept in the type in between, as in models of 16 bits whose inputs and outputs have 32.

    Parameters
    ----------
    graph : Graph
        A step's graph, which is not changed.
    pairs : mapping of str to str, optional
        Outputs by replaced input. By default, each output written over an input with equal shape
        and type, such as TensorScatter's results, and each output that Concat makes from new
        entries and an input without other readers.

    Raises
    ------
    InvalidOption
        If an input or output does not exist, or there are no pairs.
    ShapeMismatch
        If a pair's shapes or types differ.
    GraphError
        On planning, if an output's producer cannot write over the input.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph("step")
    >>> old, new = graph.input("past", (1, 64, 8)), graph.input("key", (1, 1, 8))
    >>> at = graph.input("at", (1,), "int64")
    >>> spec = ("present", (1, 64, 8), "float32")
    >>> (cache,) = graph.node("TensorScatter", [old, new, at], [spec], in_place=[(0, 0)])
    >>> (y,) = graph.node("ReduceSum", [cache], [("y", (1, 1, 1), "float32")])
    >>> graph.output(y)
    >>> graph.output(cache)
    >>> kept = ap.keep_caches(graph)
    >>> [kept.values[index].name for index in kept.inputs], ap.plan(kept).arena_bytes
    (['key', 'at'], 2176)
    """
    chosen = None if pairs is None else {*pairs.items()}
    graph = _with_sliding(_without_casts(graph, chosen), chosen)
    found = _overwritten(graph) if pairs is None else _named(graph, pairs)
    if not found:
        raise InvalidOption(
            f"graph {quoted(graph.name)} has no cache to keep: no output is written over an input "
            "of its shape and type; its caches are as long as the sizes of their inputs say"
        )
    kept = graph
    for old, new in found.items():
        kept.values[old] = replace(kept.values[old], kind="state")
        kept.inputs.remove(old)
        kept.drop_output(new)
        kept.write_back(new, old)
    return kept


def _without_casts(graph: Graph, pairs: set[tuple[str, str]] | None) -> Graph:
    """Return a copy that hands on caches in the types in which Concat extends them."""
    kept = graph.copy()
    inputs, outputs = set(graph.inputs), set(graph.outputs)
    readers: dict[int | None, list[Node]] = {}
    for node in kept.nodes:
        for at in node.inputs:
            readers.setdefault(at, []).append(node)
    makers = {node.outputs[0]: node for node in kept.nodes if node.op == "Cast" and not node.domain}
    dropped: set[int] = set()
    renamed: dict[int | None, int | None] = {}
    for node in filter(partial(_extends, kept), kept.nodes):
        (narrow, _), (made,) = node.inputs, node.outputs
        ends = [new for new, cast in makers.items() if cast.inputs[0] == made and new in outputs]
        if narrow not in makers or len(ends) != 1 or made is None or made in outputs:
            continue
        old, new = makers[narrow].inputs[0], ends[0]
        if old not in inputs or new is None or new in readers:
            continue
        past, present = kept.values[old], kept.values[new]
        is_named = pairs is None or (past.name, present.name) in pairs
        is_lone = len(readers[old]) == len(readers[narrow]) == 1
        if not is_named or not is_lone or past.dtype != present.dtype:
            continue
        for value in (past, present):
            kept.values[value.index] = replace(value, dtype=kept.values[made].dtype)
        dropped |= {makers[narrow].index, makers[new].index}
        renamed.update({narrow: old, made: new})
    left = [node for node in kept.nodes if node.index not in dropped]
    place = {node.index: at for at, node in enumerate(left)}
    kept.nodes = [
        replace(
            node,
            index=place[node.index],
            inputs=tuple(renamed.get(at, at) for at in node.inputs),
            outputs=tuple(renamed.get(at, at) for at in node.outputs),
            after=tuple(place[at] for at in node.after if at in place),
        )
        for node in left
    ]
    return kept


def _extends(graph: Graph, node: Node) -> bool:
    """Return whether a node appends entries to a value, behind those that the value has."""
    if node.op != "Concat" or node.domain or len(node.inputs) != 2 or node.outputs[0] is None:
        return False
    return bool(node.attributes["axis"] % len(graph.values[node.outputs[0]].shape))


def _with_sliding(graph: Graph, pairs: set[tuple[str, str]] | None) -> Graph:
    """
    Return a copy in which inputs that Concat extends are as long as Concat's outputs.

    Both graphs compute the same if the longer input starts with as many extra entries as are new,
    followed by the old entries.
    """
    kept = graph.copy()
    readers: Counter[int | None] = Counter(at for node in graph.nodes for at in node.inputs)
    inputs, outputs = set(graph.inputs), set(graph.outputs)
    for node in filter(partial(_extends, graph), graph.nodes):
        (old, new), (made,) = node.inputs, node.outputs
        if old not in inputs or new is None or made not in outputs or readers[old] != 1:
            continue
        past, present, fresh = (kept.values[at] for at in (old, made, new))
        if pairs is not None and (past.name, present.name) not in pairs:
            continue
        axis = node.attributes["axis"] % len(present.shape)
        if past.dtype != present.dtype:
            continue
        batch = present.shape[0]
        first, count = (
            kept.constant(f"{present.name}.{name}", (batch,), "int64", np.full(batch, number))
            for name, number in (("moved", fresh.shape[axis]), ("kept", past.shape[axis]))
        )
        kept.values[old] = replace(past, shape=present.shape)
        kept.nodes[node.index] = replace(
            node,
            op="SlideCache",
            domain=TRAINING,
            version=1,
            inputs=(old, first, count, new),
            attributes={"axis": axis},
            effects=Effects(in_place=(InPlace(0, 0),), pure=True),
        )
    return kept


def _named(graph: Graph, pairs: Mapping[str, str]) -> dict[int, int]:
    """Return outputs by replaced input, from names."""
    inputs = {graph.values[index].name: index for index in graph.inputs}
    outputs = {graph.values[index].name: index for index in graph.outputs}
    for what, given, known in (("input", pairs, inputs), ("output", pairs.values(), outputs)):
        for name in given:
            if name not in known:
                has = listed(known)
                raise InvalidOption(f"the graph has no {what} {quoted(name)}; it has {has}")
    found: dict[int, int] = {}
    for past, present in pairs.items():
        old, new = graph.values[inputs[past]], graph.values[outputs[present]]
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise ShapeMismatch(
                f"output {quoted(present)} holds {new.dtype} of shape {new.shape}, and input "
                f"{quoted(past)} {old.dtype} of shape {old.shape}"
            )
        found[old.index] = new.index
    return found


def _overwritten(graph: Graph) -> dict[int, int]:
    """
    Return outputs by the input that is completely overwritten to make the output.

    Elementwise nodes, whose results have pieces, do not count: they compute new content.
    """
    before: dict[int, tuple[int, bool]] = {}
    for node in graph.nodes:
        flows = {flow.output for flow in node.effects.flows}
        pairs = [(pair.input, pair.output) for pair in node.effects.in_place]
        views = [(view.input, view.output) for view in node.effects.views if not view.offset]
        for at, made in [*views, *pairs]:
            source, result = node.inputs[at], node.outputs[made]
            is_written = (at, made) in pairs
            if source is None or result is None or (is_written and made in flows):
                continue
            old, new = graph.values[source], graph.values[result]
            if (old.shape, old.dtype) == (new.shape, new.dtype):
                before.setdefault(result, (source, is_written))
    found: dict[int, int] = {}
    inputs = set(graph.inputs)
    for output in graph.outputs:
        at, writes = output, False
        while at in before:
            at, is_written = before[at]
            writes |= is_written
        if writes and at in inputs and at not in found:
            found[at] = output
    return found
