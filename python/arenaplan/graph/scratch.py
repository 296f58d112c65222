"""The scratch memory that runtimes declare, by target: graphs look it up and know no runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from arenaplan._core import Strips
    from arenaplan.graph.effects import Choice

Scratch: TypeAlias = "Mapping[int, Sequence[Sequence[Choice]]]"
"""By node, the choices of size of each of its scratch buffers."""
Steps: TypeAlias = Sequence[Sequence[int]]
ScratchOf: TypeAlias = (
    "Callable[[Any, Steps | None, Steps, Sequence[Strips]], tuple[Scratch, Scratch]]"
)
"""From a graph, its steps, those whose output overlaps an input, and strips, to the scratch
buffers of all steps and of steps that overlap."""

SCRATCH: dict[str, ScratchOf] = {}
"""By name of a target, the scratch memory of its kernels; filled by
:func:`arenaplan.graph.backend.register`."""
