"""
From a graph and memory to functions: everything that is settled before the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import prod
from operator import length_hint
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from arenaplan.errors import (
    KernelError,
    PlannerError,
    RankTooLarge,
    UnsupportedDtype,
    UnsupportedOp,
)
from arenaplan.executor.registry import Kernel, Run, Signature, Step, Tensor, find_kernel
from arenaplan.graph import Choice, Graph, Node, Value

if TYPE_CHECKING:
    from arenaplan import Plan

_In = TypeVar("_In")
_Out = TypeVar("_Out")

_ALIGNMENT = 64
_MAX_RANK = 64
_DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}

Epilogues = Mapping[int, Sequence[int]]
Workspaces = Mapping[int, Sequence[np.ndarray]]


@dataclass(frozen=True, slots=True)
class Program:
    """What one run does: functions without arguments, in order."""

    runs: list[Run]
    nodes: list[Node]
    """The node that each function belongs to."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A graph bound to memory."""

    graph: Graph
    plan: Plan
    memory: np.ndarray
    """The arena's bytes."""
    arrays: Mapping[int, np.ndarray]
    """Memory of every value that a run touches."""
    workspaces: Workspaces
    """Scratch memory per node, in the arena or beside it."""
    epilogues: Epilogues
    """Nodes that another one performs."""
    program: Program


# -- what is known of a node before memory is -----------------------------------


def dtype_of(value: Value) -> np.dtype[Any]:
    """
    Return NumPy's element type of a value.

    Raises
    ------
    UnsupportedDtype
        If NumPy cannot compute with it.
    """
    try:
        return _DTYPES[value.dtype]
    except KeyError:
        raise UnsupportedDtype(
            f"value {value.name!r} has element type {value.dtype}, which NumPy cannot compute with"
        ) from None


def _check_rank(value: Value) -> None:
    """Raise if a value has more dimensions than an array can have."""
    if len(value.shape) > _MAX_RANK:
        raise RankTooLarge(
            f"value {value.name!r} has {len(value.shape)} dimensions, "
            f"and a NumPy array has at most {_MAX_RANK}"
        )


def signature_of(graph: Graph, node: Node) -> Signature:
    """Return what a kernel may know of a node before memory is."""

    def tensor(index: int | None) -> Tensor | None:
        if index is None:
            return None
        value = graph.values[index]
        _check_rank(value)
        return Tensor(value.shape, dtype_of(value))

    def loader(index: int | None) -> Callable[[], np.ndarray] | None:
        return None if index is None or not graph.has_data(index) else partial(graph.data, index)

    return Signature(
        node.name,
        node.op,
        node.domain,
        node.version,
        node.attributes,
        tuple(map(tensor, node.inputs)),
        tuple(map(tensor, node.outputs)),
        tuple(map(loader, node.inputs)),
    )


def workspace_choices(graph: Graph) -> dict[int, tuple[tuple[Choice, ...], ...]]:
    """
    Return the scratch buffers that each node's kernel can work with.

    Nodes that no kernel runs, or whose kernel needs no scratch memory, are left out.
    """
    choices = {}
    for node in graph.nodes:
        try:
            signature = signature_of(graph, node)
            declared = _declared(find_kernel(signature), signature)
        except (UnsupportedOp, UnsupportedDtype, RankTooLarge):
            continue  # Such a graph can be planned; an executor will refuse it.
        if declared:
            choices[node.index] = declared
    return choices


def _declared(kernel: Kernel, signature: Signature) -> tuple[tuple[Choice, ...], ...]:
    """Return the workspaces that a kernel declares for a node."""
    if kernel.workspace is None:
        return ()
    slots = _attributed(kernel.workspace, signature, signature)
    return tuple(tuple(Choice(*each) for each in slot) for slot in slots)


def _attributed(function: Callable[[_In], _Out], argument: _In, signature: Signature) -> _Out:
    """Call a part of a kernel, so that an error of NumPy's names the node it arose in."""
    try:
        return function(argument)
    except (PlannerError, MemoryError):
        raise
    except Exception as error:
        where = f"node {signature.name!r} ({signature.op})"
        raise KernelError(f"{where} cannot be prepared: {error}") from error


# -- memory -----------------------------------------------------------------------


def aligned_bytes(count: int) -> np.ndarray:
    """Return ``count`` bytes of new memory, aligned as in an arena."""
    memory = np.empty(count + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + count]


def array_at(graph: Graph, index: int, memory: np.ndarray) -> np.ndarray:
    """Return the array of value ``index`` on ``memory``, which has exactly its bytes."""
    value = graph.values[index]
    _check_rank(value)
    return memory.view(dtype_of(value)).reshape(value.shape)


def byte_size(value: Value) -> int:
    """Return the size of a value in bytes."""
    return prod(value.shape) * dtype_of(value).itemsize


def used_values(graph: Graph) -> list[int]:
    """Return the indices of the values that a run touches, in order."""
    used = {*graph.inputs, *graph.outputs}
    for node in graph.nodes:
        used.update(index for index in (*node.inputs, *node.outputs) if index is not None)
    return sorted(used)


def arena_arrays(graph: Graph, plan: Plan, memory: np.ndarray) -> dict[int, np.ndarray]:
    """Return the array of every value that a run touches, on the arena's bytes."""
    arrays = {}
    for index in used_values(graph):
        value = graph.values[index]
        if value.kind == "constant":
            arrays[index] = graph.data(index)
            continue
        placement = plan.placements[index]
        start = 0 if placement is None else plan.bases[placement[0]] + placement[1]
        size = byte_size(value)
        arrays[index] = array_at(graph, index, memory[start : start + size])
    return arrays


def arena_workspaces(plan: Plan, memory: np.ndarray) -> dict[int, list[np.ndarray]]:
    """Return the planned scratch memory per node, on the arena's bytes."""
    workspaces: dict[int, list[np.ndarray]] = {}
    for node, _slot, _choice, space, offset, size in sorted(plan.workspaces):
        start = plan.bases[space] + offset
        workspaces.setdefault(node, []).append(memory[start : start + size])
    return workspaces


def own_workspaces(
    sizes: Mapping[int, Sequence[int]],
) -> tuple[dict[int, list[np.ndarray]], int]:
    """
    Return new scratch memory of the given sizes per node, and how much that is together.

    Steps run one at a time, so that all of them share one block.
    """
    ends = {
        node: list(accumulate(-(-size // _ALIGNMENT) * _ALIGNMENT for size in slots))
        for node, slots in sizes.items()
    }
    block = aligned_bytes(max((end[-1] for end in ends.values()), default=0))
    arrays = {
        node: [
            block[start : start + size]
            for start, size in zip([0, *ends[node]], slots, strict=False)
        ]
        for node, slots in sizes.items()
    }
    return arrays, block.nbytes


def missing_workspaces(graph: Graph, planned: Workspaces) -> dict[int, list[int]]:
    """Return the sizes of the workspaces of nodes that have none planned, at least cost."""
    return {
        node: [min(slot, key=lambda choice: (choice.cost, choice.bytes)).bytes for slot in slots]
        for node, slots in workspace_choices(graph).items()
        if node not in planned
    }


# -- steps ------------------------------------------------------------------------


def prepare(
    graph: Graph,
    order: Sequence[int],
    arrays: Mapping[int, np.ndarray],
    workspaces: Workspaces,
    epilogues: Epilogues,
) -> Program:
    """
    Bind every kernel to its memory.

    Parameters
    ----------
    order : sequence of int
        Indices of the nodes, in execution order.
    arrays : mapping of int to array
        Memory of every value that a run touches.
    workspaces : mapping of int to sequence of array
        Scratch memory per node.
    epilogues : mapping of int to sequence of int
        Nodes that another one performs, see :func:`arenaplan.executor.epilogue.find_epilogues`.

    Raises
    ------
    UnsupportedOp
        If no kernel runs a node.
    """
    absorbed = {node for nodes in epilogues.values() for node in nodes}

    def step_of(index: int, epilogue: tuple[Step, ...] = ()) -> Step:
        node = graph.nodes[index]
        return Step(
            signature_of(graph, node),
            tuple(None if value is None else arrays[value] for value in node.inputs),
            tuple(None if value is None else arrays[value] for value in node.outputs),
            tuple(workspaces.get(index, ())),
            epilogue,
        )

    program = Program([], [])
    for index in order:
        if index in absorbed:
            continue
        step = step_of(index, tuple(map(step_of, epilogues.get(index, ()))))
        run = _attributed(find_kernel(step.signature).prepare, step, step.signature)
        if run is not None:
            program.runs.append(run)
            program.nodes.append(graph.nodes[index])
    return program


# -- running ------------------------------------------------------------------------


def load(setup: Setup, inputs: Mapping[int, np.ndarray]) -> None:
    """Write the inputs into the arena."""
    for index, array in inputs.items():
        np.copyto(setup.arrays[index], array)


def run_all(program: Program) -> None:
    """
    Do every step.

    Raises
    ------
    KernelError
        If one fails.
    """
    remaining = iter(program.runs)
    try:
        for run in remaining:
            run()
    except Exception as error:
        node = program.nodes[len(program.nodes) - length_hint(remaining) - 1]
        raise KernelError(f"node {node.name!r} ({node.op}) failed: {error}") from error
