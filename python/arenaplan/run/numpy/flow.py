"""
Bodies of branches and loops, bound to their node's memory.

The values inside a body lie in the node's scratch value; inputs and outputs lie where the node's
operands and results are; see :mod:`arenaplan.planner.bodies`. Everything is bound once, before the
first run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from arenaplan.graph import Choice, Node
from arenaplan.planner.bodies import TAKE, Body, Slot
from arenaplan.run.numpy.groups import find_units
from arenaplan.run.numpy.numpy_backend import missing_workspaces
from arenaplan.run.numpy.registry import Run, Signature, Step
from arenaplan.run.numpy.signatures import byte_size
from arenaplan.run.numpy.steps import (
    aligned_bytes,
    arena_arrays,
    array_at,
    block_bytes,
    own_workspaces,
    prepare,
    run_all,
    used_values,
)

Mover = Callable[[Node, np.ndarray], Run]
"""Returns the function that runs a ``Take`` or ``Emit`` node, given the value's array."""

_UNWRITTEN = 0xEE
_NONE = np.empty(0, np.uint8)


def body_scratch(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Return the scratch memory for the kernels inside a node's bodies."""
    bodies: Sequence[Body] = signature.attributes["bodies"]
    size = max(block_bytes(missing_workspaces(body.graph, body.plan, {})) for body in bodies)
    return [[Choice(size, 0.0)]] if size else []


class BoundBody:
    """
    A body bound to memory.

    Parameters
    ----------
    step : Step
        The node.
    body : Body
        The body.
    results : sequence of array or None
        Memory for the node's results.
    move : callable, optional
        Makes the functions for ``Take`` and ``Emit`` nodes.
    """

    def __init__(
        self,
        step: Step,
        body: Body,
        results: Sequence[np.ndarray | None],
        move: Mover | None = None,
    ) -> None:
        self.counter = np.zeros((), np.int64)
        """The round's number, which the body reads."""
        graph, plan = body.graph, body.plan
        arrays = self._apart(step, body, results) if step.is_apart else None
        if arrays is None:
            memory = step.outputs[-1] if body.nbytes else _NONE
            assert memory is not None
            outside = [
                _bytes_of(self._array(step, results, body.slots[buffer.value]))
                for buffer in plan.caller_buffers
            ]
            arrays = arena_arrays(graph, plan, [memory, *outside])
        sizes = missing_workspaces(graph, plan, {})
        block = step.workspaces[0] if step.workspaces and not step.is_apart else None
        workspaces, _ = own_workspaces(sizes, block=block)
        moves = {}
        for node in body.moves:
            assert move is not None
            value = node.outputs[0] if node.op == TAKE else node.inputs[0]
            assert value is not None
            moves[node.index] = move(node, arrays[value])
        self._program = prepare(
            graph,
            find_units(graph, plan),
            arrays,
            workspaces,
            step.clock,
            given=moves,
            is_apart=step.is_apart,
        )
        if step.is_apart:
            self._add_copies(body, arrays, results)

    def run(self) -> None:
        """Run the body once."""
        run_all(self._program)

    def _array(self, step: Step, results: Sequence[np.ndarray | None], slot: Slot) -> np.ndarray:
        """Return an outside value's memory."""
        found = {"operand": step.inputs, "result": results, "counter": [self.counter]}
        array = found[slot.kind][slot.position]
        assert array is not None
        return array

    def _apart(
        self, step: Step, body: Body, results: Sequence[np.ndarray | None]
    ) -> dict[int, np.ndarray]:
        """Return separate memory for every value; inputs are where the node has them."""
        graph = body.graph
        arrays = {}
        for index in used_values(graph):
            value = graph.values[index]
            if value.kind == "constant":
                arrays[index] = graph.data(index)
            elif value.kind == "input":
                array = self._array(step, results, body.slots[index])
                arrays[index] = array.reshape(value.shape)
            else:
                memory = aligned_bytes(byte_size(value))
                memory[...] = _UNWRITTEN
                arrays[index] = array_at(graph, index, memory)
        return arrays

    def _add_copies(
        self,
        body: Body,
        arrays: Mapping[int, np.ndarray],
        results: Sequence[np.ndarray | None],
    ) -> None:
        """Copy results to the node's memory when all results are there."""
        node = body.graph.nodes[-1]
        for value in body.graph.outputs:
            target = results[body.slots[value].position]
            assert target is not None
            self._program.runs.append(partial(np.copyto, target, arrays[value]))
            self._program.nodes.append(node)


def _bytes_of(array: np.ndarray) -> np.ndarray:
    """Return a contiguous array's memory."""
    return array.reshape(-1).view(np.uint8)
