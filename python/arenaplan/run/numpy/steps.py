"""
From a graph and memory to functions: everything that is settled before the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import length_hint
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from arenaplan.base.errors import UnsupportedOp, fault
from arenaplan.graph import Graph, Node
from arenaplan.run.numpy.groups import NotAGroup, Unit
from arenaplan.run.numpy.narrow import is_packed, store
from arenaplan.run.numpy.regions import region_of, region_run
from arenaplan.run.numpy.registry import Clock, Run, Step, attributed, find_kernel, padded
from arenaplan.run.numpy.signatures import byte_size, check_array, dtype_of, signature_of
from arenaplan.run.numpy.stages import Former
from arenaplan.run.numpy.staging import staged_run
from arenaplan.run.numpy.streaming import group_run

if TYPE_CHECKING:
    from arenaplan._core import Plan

_ALIGNMENT = 64
_NOTHING = np.empty(0, np.uint8)
_NO_RUNS: Mapping[int, Run] = {}
Workspaces = Mapping[int, Sequence[np.ndarray]]
Given: TypeAlias = Callable[[Mapping[int, np.ndarray]], Mapping[int, Run]]
"""Returns functions by node, given the arrays for all values."""


def no_runs(arrays: Mapping[int, np.ndarray]) -> Mapping[int, Run]:
    """Return no functions: all nodes have kernels."""
    del arrays
    return _NO_RUNS


@dataclass(frozen=True, slots=True)
class Program:
    """A run: functions without arguments, in order."""

    runs: list[Run]
    nodes: list[Node]
    """The node that each function belongs to."""
    clock: Clock = field(default_factory=Clock)
    """The run number, which random operators depend on."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A graph bound to memory."""

    graph: Graph
    plan: Plan
    memories: Sequence[np.ndarray]
    """The arena's bytes, then the bytes of each buffer from the caller."""
    arrays: Mapping[int, np.ndarray]
    """Memory for every value that a run touches."""
    workspaces: Workspaces
    """Scratch memory per node, in the arena or beside the arena."""
    units: Sequence[Unit]
    """The units, in order."""
    program: Program
    given: Given = no_runs
    """Functions that run nodes which have no kernel, on any memory."""


# -- memory -----------------------------------------------------------------------


def aligned_bytes(count: int, like: np.ndarray | None = None) -> np.ndarray:
    """
    Return ``count`` bytes of new memory, aligned as in an arena.

    Parameters
    ----------
    like : array, optional
        Begin as far behind a multiple of the alignment as this array: the last bit in some
        products depends on that distance.
    """
    behind = 0 if like is None else like.ctypes.data % _ALIGNMENT
    memory = np.empty(count + 2 * _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT + behind
    return memory[start : start + count]


def array_at(graph: Graph, index: int, memory: np.ndarray) -> np.ndarray:
    """
    Return the array for value ``index`` on ``memory``, which has exactly the value's bytes.

    For elements smaller than a byte, return an array with the packed bytes.
    """
    value = graph.values[index]
    check_array(value)
    if is_packed(value.dtype):
        return memory
    return memory.view(dtype_of(value)).reshape(value.shape)


def used_values(graph: Graph) -> list[int]:
    """Return the indices of the values that a run touches, in order."""
    used = {*graph.inputs, *graph.outputs}
    for node in graph.nodes:
        used.update(index for index in (*node.inputs, *node.outputs) if index is not None)
    return sorted(used)


class Span(NamedTuple):
    """A byte range in a memory."""

    memory: int
    """0 for the arena, then one number for each buffer that the caller brings."""
    start: int
    stop: int


def spans_of(graph: Graph, plan: Plan) -> dict[int, Span]:
    """Return the byte range of every value that a run touches and that has a place."""
    bases, placements = plan.bases, plan.placements
    spans = {}
    for index in used_values(graph):
        place = placements[index]
        if place is None:
            continue
        if place.space < len(bases):
            memory, start = 0, bases[place.space] + place.offset
        else:
            memory, start = 1 + place.space - len(bases), place.offset
        spans[index] = Span(memory, start, start + byte_size(graph.values[index]))
    return spans


def arena_arrays(graph: Graph, plan: Plan, memories: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
    """Return the array for every value that a run touches, on the value's memory."""
    arrays = {}
    inner = inner_values(graph, plan.steps)
    spans = spans_of(graph, plan)
    for index in used_values(graph):
        value = graph.values[index]
        if value.kind == "constant":
            arrays[index] = graph.data(index)
            continue
        if index in inner:
            continue
        memory, start, stop = spans.get(index, (0, 0, byte_size(value)))
        arrays[index] = array_at(graph, index, memories[memory][start:stop])
    return arrays


def inner_values(graph: Graph, steps: Iterable[Sequence[int]]) -> set[int]:
    """Return the values that never leave the node groups where they are made."""
    steps = list(steps)
    inner = (node for nodes in steps for node in nodes[:-1])
    found = {v for node in inner for v in graph.nodes[node].outputs if v is not None}
    return found.difference(*(graph.nodes[nodes[-1]].outputs for nodes in steps))


def arena_workspaces(plan: Plan, memory: np.ndarray) -> dict[int, list[np.ndarray]]:
    """Return the planned scratch memory per node, on the arena's bytes."""
    workspaces: dict[int, list[np.ndarray]] = {}
    bases = plan.bases
    for work in plan.workspaces:
        start = bases[work.space] + work.offset
        workspaces.setdefault(work.node, []).append(memory[start : start + work.bytes])
    return workspaces


def own_workspaces(
    sizes: Mapping[int, Sequence[int]],
    *,
    shared: bool = True,
    block: np.ndarray | None = None,
) -> tuple[dict[int, list[np.ndarray]], int]:
    """
    Return new scratch memory with the given sizes per node, and the total bytes.

    Steps that run one at a time have a ``shared`` block; other steps have a block each.

    Parameters
    ----------
    block : array, optional
        The shared block, with at least :func:`block_bytes` bytes.
    """
    if not shared:
        alone = [own_workspaces({node: slots}) for node, slots in sizes.items()]
        arrays = {node: slots for own, _ in alone for node, slots in own.items()}
        return arrays, sum(size for _, size in alone)
    ends = {node: list(accumulate(map(padded, slots))) for node, slots in sizes.items()}
    if block is None:
        block = aligned_bytes(block_bytes(sizes))
    arrays = {
        node: [
            block[start : start + size]
            for start, size in zip([0, *ends[node]], slots, strict=False)
        ]
        for node, slots in sizes.items()
    }
    return arrays, block.nbytes


def block_bytes(sizes: Mapping[int, Sequence[int]]) -> int:
    """Return the bytes for a scratch block that steps use in turn."""
    needs = [sum(map(padded, slots)) for slots in sizes.values()]
    return max(needs, default=0)


# -- steps ------------------------------------------------------------------------


def prepare(
    graph: Graph,
    units: Sequence[Unit],
    arrays: Mapping[int, np.ndarray],
    workspaces: Workspaces,
    clock: Clock | None = None,
    *,
    given: Mapping[int, Run] = _NO_RUNS,
    is_apart: bool = False,
) -> Program:
    """
    Bind every kernel to memory.

    Parameters
    ----------
    units : sequence of Unit
        The units to run, in order.
    arrays : mapping of int to array
        Memory for every value that a run touches.
    workspaces : mapping of int to sequence of array
        Scratch memory per node.
    clock : Clock, optional
        The clock that other functions for the same graph use.
    given : mapping of int to callable
        Functions that run nodes without a kernel.
    is_apart : bool, default False
        Whether values share no memory, including values inside nodes.

    Raises
    ------
    UnsupportedOp
        If no kernel runs a node, or no kernels run a step strip by strip.
    """
    program = Program([], [], clock or Clock())
    former = Former(graph)
    for unit in units:
        own = tuple(workspaces.get(unit.home, ()))
        run: Run | None
        if unit.home in given:
            run = given[unit.home]
        elif unit.strips is not None:
            lines, scratch = (*own, _NOTHING, _NOTHING)[:2]
            try:
                region = region_of(former, unit.nodes, unit.strips)
            except NotAGroup as error:  # Plans for other runners may have such steps.
                raise UnsupportedOp(
                    f"node {graph.nodes[unit.home].name!r} ends a step that no kernels run strip "
                    f"by strip: {error}"
                ) from error
            run = region_run(region, arrays, lines, scratch)
        elif unit.group is None:
            run = _node_run(
                graph, graph.nodes[unit.home], arrays, own, program.clock, is_apart=is_apart
            )
        else:
            bound = staged_run if unit.staged else group_run
            run = bound(unit.group, arrays, own[0] if own else _NOTHING)
        if run is not None:
            program.runs.append(run)
            program.nodes.append(graph.nodes[unit.home])
    return program


def _node_run(
    graph: Graph,
    node: Node,
    arrays: Mapping[int, np.ndarray],
    workspaces: tuple[np.ndarray, ...],
    clock: Clock,
    *,
    is_apart: bool,
) -> Run | None:
    """Return a function that runs a node alone."""

    def array(index: int | None) -> np.ndarray | None:
        if index is None or index in arrays:
            return None if index is None else arrays[index]
        # The value never leaves a group, and this node needs only the value's shape.
        value = graph.values[index]
        return np.broadcast_to(np.zeros((), dtype_of(value)), value.shape)

    step = Step(
        signature_of(graph, node),
        tuple(map(array, node.inputs)),
        tuple(map(array, node.outputs)),
        workspaces,
        is_apart=is_apart,
        clock=clock,
    )
    return attributed(find_kernel(step.signature).prepare, step, step.signature)


# -- running ------------------------------------------------------------------------


def load(arrays: Mapping[int, np.ndarray], inputs: Mapping[int, np.ndarray]) -> None:
    """Write the inputs to the arrays that steps read."""
    for index, array in inputs.items():
        target = arrays[index]
        if target.dtype == array.dtype:
            np.copyto(target, array)
        else:  # Only elements smaller than a byte have memory with another type.
            store(array, target, array.dtype.name)


def run_all(program: Program) -> None:
    """
    Do every step.

    Raises
    ------
    ExecutionError
        If a step fails.
    """
    remaining = iter(program.runs)
    try:
        for run in remaining:
            run()
    except Exception as error:
        node = program.nodes[len(program.nodes) - length_hint(remaining) - 1]
        raise fault("KernelError", f"node {node.name!r} ({node.op}) failed: {error}") from error
