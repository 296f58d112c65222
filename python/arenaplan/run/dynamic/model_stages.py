"""
The stages of a run whose sizes become known on the way, with each stage's memory.

A stage is a separate graph: the nodes that have become known, with the values that earlier stages
left as inputs. These inputs are pinned in place, and the planner places everything else around
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from arenaplan._core import Covers
from arenaplan.formats.partial import Partial
from arenaplan.graph import Graph, Node, Value
from arenaplan.graph.effects import NO_EFFECTS, View
from arenaplan.graph.values import ConstantData
from arenaplan.planner.bodies import DOMAIN
from arenaplan.run.numpy.registry import Run

if TYPE_CHECKING:
    from arenaplan._core import Plan

ALIAS: Final = "Alias"
"""Operator that shows a value in bytes that several values have in common."""
DECIDED: Final = "Decided"
"""Operator that writes results which were computed before there was memory for the results."""
_ALIGNMENT = 64


class LeftBytes(NamedTuple):
    """Bytes of a value that an earlier stage left in the arena."""

    start: int
    stop: int


class StageGraph(NamedTuple):
    """A stage's graph."""

    graph: Graph
    kept: Mapping[str, int]
    """Values that are left to the caller or to later stages, by name."""
    decided: Mapping[int, tuple[str, ...]]
    """Nodes that have run already, with the names of their results."""


class Before(NamedTuple):
    """The results of earlier stages."""

    done: frozenset[str]
    """Values that were computed."""
    live: Mapping[str, LeftBytes]
    """Values that are left, and where."""
    decided: frozenset[str]
    """Values whose content is outside the arena."""


NOTHING_DONE: Final = Before(frozenset(), {}, frozenset())


def stage_graph(found: Partial, before: Before) -> StageGraph:
    """Return the graph of the nodes that have become known."""
    whole = found.graph
    values = whole.values
    nodes = [
        node
        for node in whole.nodes
        if any(v is not None and values[v].name not in before.done for v in node.outputs)
    ]
    outputs = [values[index].name for index in whole.outputs]
    kept = dict.fromkeys([*outputs, *sorted(found.awaited)])
    if before.done:
        nodes = _needed(whole, nodes, kept, before)
    made = {values[v].name for node in nodes for v in node.outputs if v is not None}
    read = {values[v].name for node in nodes for v in node.inputs if v is not None}
    by_name = {value.name: value for value in values}
    graph = Graph(whole.name)
    graph.target = whole.target
    if found.waiting:
        graph.covers = Covers(list(found.waiting), list(found.deciders), "", [])
    index: dict[str, int] = {}
    if not before.done:
        for at in whole.inputs:
            index[values[at].name] = _input(graph, values[at])
    brought = [name for name in {**dict.fromkeys(sorted(read)), **kept} if name not in made]
    _bring(graph, index, [by_name[name] for name in brought if name in before.live], before.live)
    for name in brought:
        if name not in index:
            value = by_name[name]
            data: ConstantData | None = found.told.get(name)
            if whole.has_data(value.index):
                data = partial(whole.data, value.index)
            index[name] = graph.constant(name, value.shape, value.dtype, data)
    decided = {}
    for node in nodes:
        for v in node.outputs:
            if v is not None:
                made_value = values[v]
                index[made_value.name] = graph.value(
                    made_value.name, made_value.shape, made_value.dtype
                )
        results = tuple("" if v is None else values[v].name for v in node.outputs)
        is_decided = any(name in before.decided for name in results)
        added = graph.append(
            DECIDED if is_decided else node.op,
            () if is_decided else tuple(_named(values, index, v) for v in node.inputs),
            tuple(_named(values, index, v) for v in node.outputs),
            name=node.name,
            effects=NO_EFFECTS if is_decided else node.effects,
            attributes=node.attributes,
            domain=DOMAIN if is_decided else node.domain,
            version=node.version,
        )
        if is_decided:
            decided[added.index] = results
    for name in kept:
        graph.output(index[name])
    return StageGraph(graph, {name: index[name] for name in kept}, decided)


def _needed(whole: Graph, nodes: list[Node], kept: Iterable[str], before: Before) -> list[Node]:
    """
    Return the nodes without which some value is missing.

    A branch that has run as a body may stand in the node's place once the condition is known; the
    results are there already then.
    """
    values = whole.values
    missing = {name for name in kept if name not in before.live}
    chosen = []
    for node in reversed(nodes):
        made = {values[v].name for v in node.outputs if v is not None}
        if made & missing:
            chosen.append(node)
            if made & before.decided:
                continue  # The results are there, and only have to be written.
            read = (values[v].name for v in node.inputs if v is not None)
            missing.update(name for name in read if name not in before.live)
    return chosen[::-1]


def _named(values: list[Value], index: Mapping[str, int], value: int | None) -> int | None:
    return None if value is None else index[values[value].name]


def _input(graph: Graph, value: Value) -> int:
    return graph.input(value.name, value.shape, value.dtype)


def _bring(
    graph: Graph, index: dict[str, int], values: Iterable[Value], live: Mapping[str, LeftBytes]
) -> None:
    """
    Declare the values that earlier stages left, in place.

    Values that share bytes, or whose first byte is not aligned, are shown in one input.
    """
    placed = sorted(values, key=lambda value: live[value.name])
    at = 0
    while at < len(placed):
        first, end = live[placed[at].name]
        start = _aligned(first)
        stop = at + 1
        while stop < len(placed) and _aligned(live[placed[stop].name].start) < end:
            end = max(end, live[placed[stop].name].stop)
            stop += 1
        cluster = placed[at:stop]
        at = stop
        if len(cluster) == 1 and first == start:
            index[cluster[0].name] = made = _input(graph, cluster[0])
            if end > start:
                graph.pin(made, start)
            continue
        block = graph.input(f"bytes {start} to {end}", (end - start,), "uint8")
        graph.pin(block, start)
        for value in cluster:
            offset = live[value.name].start - start
            index[value.name] = made = graph.value(value.name, value.shape, value.dtype)
            graph.append(
                ALIAS,
                (block,),
                (made,),
                name=f"{ALIAS} {value.name}",
                effects=NO_EFFECTS._replace(views=(View(0, 0, offset),)),
                attributes={"offset": offset},
                domain=DOMAIN,
            )


def _aligned(offset: int) -> int:
    return offset // _ALIGNMENT * _ALIGNMENT


def given_runs(
    stage: StageGraph, results: Mapping[str, np.ndarray], arrays: Mapping[int, np.ndarray]
) -> Mapping[int, Run]:
    """
    Return functions for a stage's nodes without kernels.

    Parameters
    ----------
    results : mapping of str to array
        Content of the deciding operators' results, which changes from run to run.
    arrays : mapping of int to array
        Memory of all values.
    """
    runs: dict[int, Run] = {}
    for node in stage.graph.nodes:
        if node.index in stage.decided:
            targets = {
                name: arrays[value]
                for name, value in zip(stage.decided[node.index], node.outputs, strict=True)
                if value is not None
            }
            runs[node.index] = partial(_write, targets, results)
        elif node.op == ALIAS and node.domain == DOMAIN:
            (block,), (shown,) = node.inputs, node.outputs
            assert block is not None
            assert shown is not None
            target = arrays[shown]
            offset = node.attributes["offset"]
            source = arrays[block][offset : offset + target.nbytes]
            runs[node.index] = partial(_show, target.reshape(-1).view(np.uint8), source)
    return runs


def _write(targets: Mapping[str, np.ndarray], results: Mapping[str, np.ndarray]) -> None:
    for name, target in targets.items():
        np.copyto(target, results[name])


def _show(target: np.ndarray, source: np.ndarray) -> None:
    if target.ctypes.data != source.ctypes.data:
        np.copyto(target, source)


def places_after(stage: StageGraph, plan: Plan) -> dict[str, LeftBytes]:
    """Return where a stage leaves values."""
    found = {}
    for name, value in stage.kept.items():
        place = plan.placements[value]
        if place is not None:
            start = plan.bases[place.space] + place.offset
            found[name] = LeftBytes(start, start + place.bytes)
        elif stage.graph.values[value].kind != "constant":
            found[name] = LeftBytes(0, 0)
    return found
