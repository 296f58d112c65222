"""
TensorFlow Lite Micro as a program: the memory that it needs beside the tensors of a model.

:func:`total` repeats the allocations of the runtime and returns the least arena that suffices.
"""

from __future__ import annotations

from arenaplan.tflite.runtime.arena import ArenaTotal, total
from arenaplan.tflite.runtime.build import Build
from arenaplan.tflite.runtime.operator_costs import OperatorCost

__all__ = ["ArenaTotal", "Build", "OperatorCost", "total"]
