"""The memory of one operator in the runtime, as a formula says or a profile measured it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """Memory that one operator takes beside its tensors."""

    subgraph: int
    position: int
    name: str
    scratch: tuple[int, ...]
    """Bytes of each scratch buffer, as the kernel asks for them."""
    persistent: int
    """Bytes of the arena's tail for its options, its data and its tables."""
    is_known: bool
    """Whether the kernel is in the table or was measured; another one counts as asking for
    nothing."""
    is_compared: bool = True
    """Whether the kernel's row in the table was compared with the runtime."""
