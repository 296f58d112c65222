"""
Memory for inputs and outputs that a plan leaves to the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.graph import Graph, Value
from arenaplan.run.numpy.narrow import is_packed
from arenaplan.run.numpy.signatures import byte_size, dtype_of
from arenaplan.run.numpy.steps import aligned_bytes, array_at

if TYPE_CHECKING:
    from arenaplan._core import Plan


class ValueBuffer(NamedTuple):
    """Memory for one value."""

    value: int
    """Index of the value."""
    array: np.ndarray
    """The value's array."""
    memory: np.ndarray
    """The array's bytes, as seen by a run: input bytes cannot be written."""
    is_given: bool
    """Whether the array is the caller's, and was not allocated here."""


def bring(
    graph: Graph, plan: Plan, given: Mapping[str, np.ndarray], arena: np.ndarray
) -> list[ValueBuffer]:
    """
    Return a buffer for every value that ``plan`` leaves to the caller.

    Parameters
    ----------
    given : mapping of str to array
        Arrays by name; missing arrays are allocated.
    arena : array
        Bytes that no buffer may share.

    Raises
    ------
    ArenaError
        If an array does not fit the value, or an output shares bytes with others.
    """
    known = [brought.name for brought in plan.caller_buffers]
    unknown = sorted(set(given).difference(known))
    if unknown:
        names = ", ".join(map(repr, known)) or "none"
        raise fault(
            "InvalidBuffer",
            f"the plan leaves no value {unknown[0]!r} to the caller, only {names}",
        )
    buffers = []
    for brought in plan.caller_buffers:
        index, name = brought.value, brought.name
        value = graph.values[index]
        if name in given:
            array = _checked(value, given[name])
        else:
            array = array_at(graph, index, aligned_bytes(byte_size(value)))
        memory = array.reshape(-1).view(np.uint8)
        if _is_only_read(value, plan):
            memory.flags.writeable = False
        elif not memory.flags.writeable:
            raise fault(
                "InvalidBuffer", f"the buffer for {name!r} is read-only, and a run writes it"
            )
        buffers.append(ValueBuffer(index, array, memory, name in given))
    _check_apart(graph, buffers, arena)
    return buffers


def _is_only_read(value: Value, plan: Plan) -> bool:
    return value.kind == "input" and plan.options["inputs"] == "caller"


def _checked(value: Value, array: np.ndarray) -> np.ndarray:
    """Return an array that can be a value's memory."""
    wanted = dtype_of(value)
    if is_packed(value.dtype):
        raise fault(
            "InvalidBuffer",
            f"value {value.name!r} has elements of type {value.dtype}, which no array has packed",
        )
    if not isinstance(array, np.ndarray):
        raise fault("InvalidBuffer", f"the buffer for {value.name!r} is no array")
    if array.dtype != wanted or array.shape != value.shape:
        raise fault(
            "InvalidBuffer",
            f"the buffer for {value.name!r} is {array.dtype} {array.shape}, "
            f"not {wanted} {value.shape}",
        )
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise fault("InvalidBuffer", f"the buffer for {value.name!r} is not contiguous and aligned")
    return array


def _check_apart(graph: Graph, buffers: Sequence[ValueBuffer], arena: np.ndarray) -> None:
    """Refuse memory that a run writes if the memory contains anything else."""
    for position, buffer in enumerate(buffers):
        later = buffers[position + 1 :]
        others = [arena, *(other.memory for other in later if _one_writes(buffer, other))]
        if any(np.may_share_memory(buffer.memory, other) for other in others):
            name = graph.values[buffer.value].name
            raise fault(
                "InvalidBuffer",
                f"the buffer for {name!r} shares bytes with other memory of a run",
            )


def _one_writes(a: ValueBuffer, b: ValueBuffer) -> bool:
    return a.memory.flags.writeable or b.memory.flags.writeable
