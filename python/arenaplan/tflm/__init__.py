"""
TensorFlow Lite Micro as a program: the memory that it needs beside the tensors of a model.

:func:`total` repeats the allocations of the runtime and returns the least arena that suffices.
"""

from __future__ import annotations

from arenaplan.tflm.arena import ArenaTotal, OperatorCost, total

__all__ = ["ArenaTotal", "OperatorCost", "total"]
