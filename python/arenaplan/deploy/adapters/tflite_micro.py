"""
Measures a model in the interpreter of the Python package ``tflite-micro``.

The interpreter prints only the sizes of the arena's parts. A kernel's scratch memory is measured
with a model that has only the kernel's operator and all tensors at the same offset: the head's
bytes above the largest tensor are scratch memory. Each interpreter start runs in a new process,
because a kernel that lacks memory may end the process.
"""

from __future__ import annotations

import faulthandler
import os
import re
import struct
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import metadata
from math import prod
from typing import Any, Final, NamedTuple

from arenaplan.base.errors import PlannerError, UnsupportedModel
from arenaplan.deploy.export.rewritten_file import isolated, operands_of, with_metadata
from arenaplan.graph.ops import BITS
from arenaplan.tflite.reader.offline import METADATA_NAME, packed_offsets, read_offsets
from arenaplan.tflite.reader.schema import DTYPES
from arenaplan.tflite.reader.tflite_model import TfliteModel, parse
from arenaplan.tflite.reader.timeline import ALIGNMENT, Timeline, timeline_of
from arenaplan.tflite.runtime.arena import (
    ArenaTotal,
    head_of,
    total,
    with_scratch,
)
from arenaplan.tflite.runtime.greedy import ONLINE
from arenaplan.tflite.runtime.operator_costs import OperatorCost
from arenaplan.tflite.runtime.profile import OperatorProfile, Profile

_FIRST: Final = 1 << 20
_LARGEST: Final = 1 << 30
"""Largest arena that is tried, in bytes."""
_CALLS: Final = frozenset({"CALL_ONCE", "IF", "WHILE"})
"""Operators that cannot stand alone; their kernels request no scratch memory."""


class Allocations(NamedTuple):
    """The arena sizes printed by the interpreter, in bytes."""

    head: int
    tail: int


def measure(data: bytes, name: str = "model") -> Profile:
    """
    Return a model's memory in the installed interpreter.

    Parameters
    ----------
    data : bytes
        A TFLite file. The interpreter obeys a plan in the file.
    name : str, optional
        The model's name in the profile.

    Raises
    ------
    ImportError
        If ``tflite-micro`` is not installed.
    UnsupportedModel
        If the interpreter cannot run the model.
    """
    model = parse(data)
    estimate = total(model, read_offsets(model))
    found = _allocations(data, estimate.total)
    timeline = timeline_of(model)
    costs = tuple(_scratch(model, cost) for cost in estimate.operators)
    return Profile(
        name=name,
        runtime=_runtime(),
        kernels="reference",
        pointer=8 * struct.calcsize("P"),
        head=found.head,
        tail=found.tail,
        startup=_startup(model, timeline, estimate, found),
        smallest_arena=_smallest(data, estimate.total),
        operators=costs,
    )


def predicted_head(model: TfliteModel, profile: Profile) -> int:
    """Return the head that the scratch memory in a profile leads to."""
    timeline = timeline_of(model)
    boxes = with_scratch(timeline, profile.costs_of(model))
    return head_of(timeline, boxes, read_offsets(model))


def _runtime() -> str:
    return f"tflite-micro {metadata.version('tflite-micro')} on {sys.platform}"


def _interpreter() -> Any:
    """Import the interpreter's module."""
    try:
        from tflite_micro import runtime
    except ImportError as error:
        raise ImportError(
            "measuring needs the interpreter of TensorFlow Lite Micro: pip install --pre "
            f"tflite-micro (Linux on x86-64) ({error})"
        ) from None
    return runtime


def _started(data: bytes, size: int) -> tuple[bool, str]:
    """Start the interpreter in another process; return success and the printed text."""
    runtime = _interpreter()
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                faulthandler.disable()
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                started = runtime.Interpreter.from_bytes(data, arena_size=size)
                started.print_allocations()
                sys.stdout.flush()
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        file.seek(0)
        return status == 0, file.read().decode("utf-8", "replace")


def _allocations(data: bytes, estimate: int) -> Allocations:
    """Return the arena's parts, with as much memory as needed."""
    size = max(_FIRST, 2 * estimate)
    while True:
        is_started, said = _started(data, size)
        head = re.search(r"Arena allocation head (\d+) bytes", said)
        tail = re.search(r"Arena allocation tail (\d+) bytes", said)
        if is_started and head and tail:
            return Allocations(int(head[1]), int(tail[1]))
        if size >= _LARGEST:
            reason = next((line for line in said.splitlines() if line.strip()), "no reason given")
            raise UnsupportedModel(f"TensorFlow Lite Micro does not run the model: {reason}")
        size = min(_LARGEST, 16 * size)


def _smallest(data: bytes, estimate: int) -> int:
    """Return the smallest arena, a multiple of 16, in which the interpreter starts."""
    starts: Callable[[int], bool] = lambda blocks: _started(data, blocks * ALIGNMENT)[0]  # noqa: E731
    middle = max(1, estimate // ALIGNMENT)
    step, low, high = 1, 0, middle
    if starts(middle):
        while high - step > 0 and starts(high - step):
            high, step = high - step, 2 * step
        low = max(0, high - step)
    else:
        low, high = middle, middle + step
        while not starts(high):
            low, step = high, 2 * step
            high += step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if starts(middle) else (middle, high)
    return high * ALIGNMENT


def _startup(
    model: TfliteModel, timeline: Timeline, estimate: ArenaTotal, found: Allocations
) -> int:
    """
    Return the smallest arena in which the runtime can prepare and plan.

    All tensors are at the same offset, for the smallest possible head; nothing is computed.
    """
    offsets = [ONLINE] * timeline.tensors
    for box in timeline.boxes:
        offsets[box.tensor] = 0
    try:
        data = with_metadata(model, METADATA_NAME, packed_offsets(offsets, len(model.subgraphs)))
        least = _allocations(data, estimate.total)
        smallest = _smallest(data, estimate.startup)
    except PlannerError:
        return min(estimate.startup, found.head + found.tail)
    if smallest > least.head + least.tail + ALIGNMENT:
        return smallest
    return min(smallest, estimate.startup)


def _scratch(model: TfliteModel, cost: OperatorCost) -> OperatorProfile:
    """Return an operator's scratch memory."""
    profile = partial(OperatorProfile, cost.subgraph, cost.position, cost.name)
    operator = model.subgraphs[cost.subgraph].operators[cost.position]
    if not operator.is_custom and operator.name in _CALLS:
        return profile(cost.scratch)
    tensors = [model.subgraphs[cost.subgraph].tensors[index] for index in operands_of(operator)]
    fixed = [
        0 if not model.is_constant(tensor) and not tensor.is_variable else ONLINE
        for tensor in tensors
    ]
    largest = max(
        (
            -(-prod(tensor.shape or ()) * max(8, BITS.get(DTYPES.get(tensor.type, ""), 0)) // 128)
            * ALIGNMENT
            for tensor, offset in zip(tensors, fixed, strict=True)
            if offset != ONLINE
        ),
        default=0,
    )
    try:
        data = isolated(model, cost.subgraph, cost.position, METADATA_NAME, packed_offsets(fixed))
        measured = _allocations(data, _FIRST).head - largest
    except PlannerError:
        if cost.is_known:
            return profile(cost.scratch)
        raise
    expected = sum(-(-size // ALIGNMENT) * ALIGNMENT for size in cost.scratch)
    # Only the sum of several buffers is measured; the single sizes come from the formula.
    if measured == expected or measured <= 0:
        return profile(cost.scratch if measured == expected else ())
    return profile((measured,))
