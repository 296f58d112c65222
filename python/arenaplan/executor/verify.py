"""
A run that trusts nothing: neither the plan nor the kernels.

What is live at each step is worked out here, from the graph and the order alone.
After every step all other bytes are overwritten with a pattern, so that a value
whose memory is given away too early is read as garbage. Before each step the arena
is copied, and afterwards compared: a step may write its outputs and its workspace
and not one byte beside them. In lockstep the same kernels run with every value in
memory of its own, and each step's outputs must agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from arenaplan.errors import VerificationError
from arenaplan.executor.steps import (
    Program,
    Setup,
    aligned_bytes,
    array_at,
    byte_size,
    load,
    own_workspaces,
    prepare,
    run_all,
    used_values,
)
from arenaplan.graph import Graph, Node

Span = tuple[int, int]

_POISON = np.frombuffer(np.uint32(0x7FF5A5A5).tobytes(), np.uint8)
"""A NaN as float16, float32 and float64, with a payload that no computation makes."""
_UNWRITTEN = 0xEE
"""Fills the other run's memory, so that a byte that no kernel writes differs too."""


def verified_run(setup: Setup, inputs: Mapping[int, np.ndarray]) -> None:
    """
    Run every step with all checks; the caller holds the arena's lease.

    Raises
    ------
    VerificationError
        If a step wrote bytes that are not its own, or its results differ from those
        of a run in which values share no memory.
    """
    graph, plan, memory = setup.graph, setup.plan, setup.memory
    spans = _value_spans(setup)
    scratch: dict[int, list[Span]] = {}
    for node_index, _slot, _choice, space, offset, size in plan.workspaces:
        start = plan.bases[space] + offset
        scratch.setdefault(node_index, []).append((start, start + size))
    live = _live_values(graph, plan.order, keep_inputs=bool(plan.options["preserve_inputs"]))
    apart = _apart(setup, inputs)
    planned, unplanned = _by_node(setup.program), _by_node(apart.program)

    load(setup, inputs)
    alive = next(live)
    for index in plan.order:
        node = graph.nodes[index]
        _poison(memory, _outside((spans[v] for v in alive if v in spans), memory.nbytes))
        own = [spans[v] for v in _written(node) if v in spans] + scratch.get(index, [])
        before = memory.copy()
        run_all(planned.get(index, _NOTHING))
        _check_untouched(setup, node, before, own, alive)
        run_all(unplanned.get(index, _NOTHING))
        for value in _written(node):
            _check_equal(node, graph.values[value].name, setup.arrays[value], apart.arrays[value])
        alive = next(live)
    _poison(memory, _outside((spans[v] for v in alive if v in spans), memory.nbytes))
    for value in graph.outputs:
        _check_equal(None, graph.values[value].name, setup.arrays[value], apart.arrays[value])


# -- what is live -------------------------------------------------------------------


def _value_spans(setup: Setup) -> dict[int, Span]:
    """Return the bytes of every value in the arena."""
    spans = {}
    for index in used_values(setup.graph):
        value = setup.graph.values[index]
        if value.kind == "constant":
            continue
        placement = setup.plan.placements[index]
        if placement is not None:
            start = setup.plan.bases[placement[0]] + placement[1]
            spans[index] = (start, start + byte_size(value))
    return spans


def _live_values(graph: Graph, order: Sequence[int], *, keep_inputs: bool) -> Iterator[set[int]]:
    """Yield the values whose bytes matter: before the first step, and after each one."""
    last: dict[int, int] = {}
    for step, index in enumerate(order):
        node = graph.nodes[index]
        for position, value in enumerate(node.inputs):
            if value is not None and position not in node.effects.ignores:
                last[value] = step
    states = [value.index for value in graph.values if value.kind == "state"]
    last.update(dict.fromkeys([*graph.outputs, *states], len(order)))
    if keep_inputs:
        last.update(dict.fromkeys(graph.inputs, len(order)))
    alive = {value for value in (*graph.inputs, *states) if value in last}
    yield alive
    for step, index in enumerate(order):
        node = graph.nodes[index]
        alive.update(value for value in node.outputs if value in last and value is not None)
        for value in (*node.inputs, *node.outputs):
            if value is not None and last.get(value, -1) <= step:
                alive.discard(value)
        yield alive


def _written(node: Node) -> list[int]:
    """Return the values that a node may write."""
    mutated = [node.inputs[position] for position in node.effects.mutates]
    return [value for value in (*node.outputs, *mutated) if value is not None]


def _outside(spans: Iterable[Span], size: int) -> Iterator[Span]:
    """Yield the parts of ``[0, size)`` that none of ``spans`` covers."""
    end = 0
    for start, stop in sorted(spans):
        if start > end:
            yield end, start
        end = max(end, stop)
    if end < size:
        yield end, size


def _poison(memory: np.ndarray, spans: Iterable[Span]) -> None:
    """Fill ``spans`` with the pattern, whose bytes depend on their address only."""
    lanes = _POISON.size
    for start, stop in spans:
        for lane, byte in enumerate(_POISON):
            memory[start + (lane - start) % lanes : stop : lanes] = byte


# -- what is compared ---------------------------------------------------------------


def _check_untouched(
    setup: Setup, node: Node, before: np.ndarray, own: Sequence[Span], alive: Iterable[int]
) -> None:
    """Raise if ``node`` changed bytes outside of ``own``."""
    for start, stop in _outside(own, before.nbytes):
        byte = _first_difference(before[start:stop], setup.memory[start:stop])
        if byte is None:
            continue
        at = start + byte
        spans = _value_spans(setup)
        owners = [v for v in alive if v in spans and spans[v][0] <= at < spans[v][1]]
        whose = (
            f"of value {setup.graph.values[min(owners)].name!r}" if owners else "that nothing owns"
        )
        raise VerificationError(
            f"node {node.name!r} ({node.op}) wrote byte {at} of the arena, {whose}"
        )


def _check_equal(node: Node | None, name: str, planned: np.ndarray, apart: np.ndarray) -> None:
    """Raise if a value differs between the two runs."""
    byte = _first_difference(_bytes(planned), _bytes(apart))
    if byte is not None:
        where = "at the end of the run" if node is None else f"after node {node.name!r} ({node.op})"
        raise VerificationError(
            f"value {name!r} differs {where} from a run in which values share no memory, "
            f"first in byte {byte}"
        )


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _first_difference(a: np.ndarray, b: np.ndarray) -> int | None:
    """Return the first position at which two byte arrays differ."""
    if np.array_equal(a, b):
        return None
    return int(np.argmax(a != b))


# -- the run in which values share no memory ------------------------------------------

_NOTHING = Program([], [])


def _apart(setup: Setup, inputs: Mapping[int, np.ndarray]) -> Setup:
    """Return the same graph and kernels, with every value in memory of its own."""
    graph = setup.graph
    arrays = {}
    for index in used_values(graph):
        value = graph.values[index]
        if value.kind == "constant":
            arrays[index] = setup.arrays[index]
            continue
        memory = aligned_bytes(byte_size(value))
        memory[...] = _UNWRITTEN
        arrays[index] = array_at(graph, index, memory)
        if value.kind == "state":
            np.copyto(arrays[index], setup.arrays[index])
    for host, chain in setup.epilogues.items():
        # What a kernel does in one go, it does in one array.
        shared = graph.nodes[host].outputs[0]
        for node in chain:
            result = graph.nodes[node].outputs[0]
            if shared is not None and result is not None:
                arrays[result] = arrays[shared]
    sizes = {node: [slot.nbytes for slot in slots] for node, slots in setup.workspaces.items()}
    workspaces, _ = own_workspaces(sizes)
    program = prepare(graph, setup.plan.order, arrays, workspaces, setup.epilogues)
    apart = Setup(graph, setup.plan, setup.memory, arrays, workspaces, setup.epilogues, program)
    load(apart, inputs)
    return apart


def _by_node(program: Program) -> dict[int, Program]:
    """Return the functions of each node."""
    programs: dict[int, Program] = {}
    for run, node in zip(program.runs, program.nodes, strict=True):
        part = programs.setdefault(node.index, Program([], []))
        part.runs.append(run)
        part.nodes.append(node)
    return programs
