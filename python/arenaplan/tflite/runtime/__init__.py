"""
TensorFlow Lite Micro as a program: its memory beside a model's tensors.

:func:`total` repeats the runtime's allocations and returns the smallest sufficient arena.
"""

from __future__ import annotations

from arenaplan.tflite.runtime.arena import ArenaTotal, total
from arenaplan.tflite.runtime.build import Build
from arenaplan.tflite.runtime.operator_costs import OperatorCost

__all__ = ["ArenaTotal", "Build", "OperatorCost", "total"]
