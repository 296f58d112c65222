"""
A run that trusts neither the plan nor where the kernels write.

The live values in each step are derived here, from the graph and the order alone. After every step
all other bytes are overwritten with a pattern, so that a value whose memory is given away too early
is read as garbage. Before each step the arena is copied, and afterwards compared: a step may write
only its outputs and its workspace. In lockstep the same kernels run with every value in separate
memory, and each step's outputs must agree bit for bit. Whether these kernels compute what single
nodes do is a question for another run: of a plan with ``optimize="none"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.graph import Graph, Node
from arenaplan.planner.bodies import inner_value
from arenaplan.run.numpy.groups import call_homes
from arenaplan.run.numpy.signatures import byte_size
from arenaplan.run.numpy.steps import (
    Program,
    Setup,
    Span,
    aligned_bytes,
    array_at,
    load,
    prepare,
    run_all,
    spans_of,
    used_values,
)

_POISON = np.frombuffer(np.uint32(0x7FF5A5A5).tobytes(), np.uint8)
"""A NaN as float16, float32 and float64, with a payload that no computation makes."""
_UNWRITTEN = 0xEE
"""Fills the other run's memory, so that a byte that no kernel writes differs too."""


def verified_run(
    setup: Setup, inputs: Mapping[int, np.ndarray], loads: Mapping[int, np.ndarray]
) -> None:
    """
    Run every step with all checks; the caller holds the arena's lease.

    Parameters
    ----------
    inputs : mapping of int to array
        All inputs.
    loads : mapping of int to array
        Where to write the inputs that are not in place already.

    Raises
    ------
    ExecutionError
        If a step wrote bytes that are not its own, or the results differ from a run in which values
        share no memory.
    """
    graph, plan = setup.graph, setup.plan
    spans = spans_of(graph, plan)
    scratch: dict[int, list[Span]] = {}
    bases = plan.bases
    for work in plan.workspaces:
        start = bases[work.space] + work.offset
        scratch.setdefault(work.node, []).append(Span(0, start, start + work.bytes))
    kept = bool(plan.options["preserve_inputs"]) or plan.options["inputs"] == "caller"
    live = _live_values(graph, plan.steps, keep_inputs=kept)
    apart = _apart(setup, inputs)
    planned, unplanned = _by_node(setup.program), _by_node(apart.program)

    load(loads, {index: array for index, array in inputs.items() if index in loads})
    alive = next(live)
    for *_, index in plan.steps:
        node = graph.nodes[index]
        _poison_all(setup.memories, [spans[v] for v in alive if v in spans])
        own = [spans[v] for v in _written(node) if v in spans] + scratch.get(index, [])
        before = [memory.copy() for memory in setup.memories]
        run_all(planned.get(index, _NOTHING))
        _check_untouched(setup, node, before, own, alive)
        run_all(unplanned.get(index, _NOTHING))
        for value in _written(node):
            if value != inner_value(node):
                name = graph.values[value].name
                _check_equal(node, name, setup.arrays[value], apart.arrays[value])
        alive = next(live)
    _poison_all(setup.memories, [spans[v] for v in alive if v in spans])
    for value in graph.outputs:
        _check_equal(None, graph.values[value].name, setup.arrays[value], apart.arrays[value])


# -- live values -------------------------------------------------------------------


def _live_values(
    graph: Graph, steps: Sequence[Sequence[int]], *, keep_inputs: bool
) -> Iterator[set[int]]:
    """Yield the values whose bytes matter: before the first step, and after each step."""
    last: dict[int, int] = {}
    for step, nodes in enumerate(steps):
        made: set[int | None] = set()
        for node in map(graph.nodes.__getitem__, nodes):
            for position, value in enumerate(node.inputs):
                # A node does not read from memory a value that a member made beside the node.
                is_read = value not in made and position not in node.effects.ignores
                if value is not None and is_read:
                    last[value] = step
            made.update(node.outputs)
    states = [value.index for value in graph.values if value.kind == "state"]
    last.update(dict.fromkeys([*graph.outputs, *states], len(steps)))
    if keep_inputs:
        last.update(dict.fromkeys(graph.inputs, len(steps)))
    alive = {value for value in (*graph.inputs, *states) if value in last}
    yield alive
    for step, nodes in enumerate(steps):
        stored = graph.nodes[nodes[-1]].outputs
        alive.update(value for value in stored if value in last and value is not None)
        for node in map(graph.nodes.__getitem__, nodes):
            for value in (*node.inputs, *node.outputs):
                if value is not None and last.get(value, -1) <= step:
                    alive.discard(value)
        yield alive


def _written(node: Node) -> list[int]:
    """Return the values that a node may write."""
    mutated = [node.inputs[position] for position in node.effects.mutates]
    return [value for value in (*node.outputs, *mutated) if value is not None]


def _outside(spans: Iterable[Span], memories: Sequence[np.ndarray]) -> Iterator[Span]:
    """Yield the memory parts that none of ``spans`` covers."""
    covered = sorted([*spans, *(Span(i, m.nbytes, m.nbytes) for i, m in enumerate(memories))])
    memory = end = 0
    for span in covered:
        if span.memory > memory:
            memory, end = span.memory, 0
        if span.start > end:
            yield Span(memory, end, span.start)
        end = max(end, span.stop)


def _poison_all(memories: Sequence[np.ndarray], alive: Iterable[Span]) -> None:
    """Fill all bytes that no live value has."""
    for memory, start, stop in _outside(alive, memories):
        _poison(memories[memory], start, stop)


def _poison(memory: np.ndarray, start: int, stop: int) -> None:
    """Fill a span with the pattern, whose bytes depend only on the address."""
    lanes = _POISON.size
    for lane, byte in enumerate(_POISON):
        memory[start + (lane - start) % lanes : stop : lanes] = byte


# -- comparisons --------------------------------------------------------------------


def _check_untouched(
    setup: Setup,
    node: Node,
    before: Sequence[np.ndarray],
    own: Sequence[Span],
    alive: Iterable[int],
) -> None:
    """Raise if ``node`` changed bytes outside ``own``."""
    for memory, start, stop in _outside(own, setup.memories):
        byte = _first_difference(before[memory][start:stop], setup.memories[memory][start:stop])
        if byte is None:
            continue
        at = start + byte
        spans = spans_of(setup.graph, setup.plan)
        owners = [
            v
            for v in alive
            if v in spans and spans[v].memory == memory and spans[v].start <= at < spans[v].stop
        ]
        whose = (
            f"of value {setup.graph.values[min(owners)].name!r}" if owners else "that nothing owns"
        )
        raise fault(
            "VerificationError",
            f"node {node.name!r} ({node.op}) wrote byte {at} of {_named(setup, memory)}, {whose}",
        )


def _named(setup: Setup, memory: int) -> str:
    """Return a memory's name."""
    if memory == 0:
        return "the arena"
    return f"the caller's buffer for {setup.plan.caller_buffers[memory - 1].name!r}"


def _check_equal(node: Node | None, name: str, planned: np.ndarray, apart: np.ndarray) -> None:
    """Raise if a value differs between the two runs."""
    byte = _first_difference(_bytes(planned), _bytes(apart))
    if byte is not None:
        where = "at the end of the run" if node is None else f"after node {node.name!r} ({node.op})"
        raise fault(
            "VerificationError",
            f"value {name!r} differs {where} from a run in which values share no memory, "
            f"first in byte {byte}",
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
    """Return the same graph and kernels, with every value in separate memory."""
    graph = setup.graph
    values = graph.values
    arrays = {i: graph.data(i) for i in used_values(graph) if values[i].kind == "constant"}
    for index, own in setup.arrays.items():
        value = values[index]
        if value.kind == "constant":
            continue
        memory = aligned_bytes(byte_size(value), own)
        memory[...] = _UNWRITTEN
        arrays[index] = array_at(graph, index, memory)
        if value.kind == "state":
            np.copyto(arrays[index], setup.arrays[index])
    home_of = call_homes(setup.plan)
    for unit in setup.units:
        # A call's result is in one place, though each node may have a place. A node that ends
        # another call's step has a result in memory there, and none here.
        nodes = [node for node in unit.nodes if home_of.get(node, unit.home) == unit.home]
        made = [v for node in nodes for v in _written(graph.nodes[node]) if v in arrays]
        if len(unit.nodes) > 1:
            arrays.update(dict.fromkeys(made, arrays[made[-1]]))
    workspaces = {
        node: [aligned_bytes(slot.nbytes, slot) for slot in slots]
        for node, slots in setup.workspaces.items()
    }
    given = setup.given(arrays)
    program = prepare(
        graph,
        setup.units,
        arrays,
        workspaces,
        setup.program.clock,
        given=given,
        is_apart=True,
    )
    apart = Setup(graph, setup.plan, setup.memories, arrays, workspaces, setup.units, program)
    load(arrays, inputs)
    return apart


def _by_node(program: Program) -> dict[int, Program]:
    """Return each node's functions."""
    programs: dict[int, Program] = {}
    for run, node in zip(program.runs, program.nodes, strict=True):
        part = programs.setdefault(node.index, Program([], []))
        part.runs.append(run)
        part.nodes.append(node)
    return programs
