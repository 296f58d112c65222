"""Runs a planned graph with NumPy, inside one arena."""

from __future__ import annotations

from arenaplan.run.numpy import kernels as kernels  # The import registers the kernels.
from arenaplan.run.numpy import tflite as tflite  # Likewise.
from arenaplan.run.numpy.executor import PLAN_OPTIONS, Executor
from arenaplan.run.numpy.numpy_backend import BACKEND
from arenaplan.run.numpy.registry import Kernel, Step, kernel, supported_ops

__all__ = [
    "BACKEND",
    "PLAN_OPTIONS",
    "Executor",
    "Kernel",
    "Step",
    "kernel",
    "supported_ops",
]
