"""An operator's memory in the runtime, from a formula or a measured profile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """An operator's memory beside the tensors."""

    subgraph: int
    position: int
    name: str
    scratch: tuple[int, ...]
    """Bytes in each scratch buffer, as requested by the kernel."""
    persistent: int
    """Bytes in the arena's tail for options, data and tables."""
    is_known: bool
    """Whether the kernel is in the table or was measured; unknown kernels count as 0 bytes."""
    is_compared: bool = True
    """Whether the kernel's row in the table was compared with the runtime."""
