"""Runs a planned graph with NumPy, inside one arena."""

from __future__ import annotations

from arenaplan.executor import kernels as kernels  # Registers them.
from arenaplan.executor.backend import BACKEND
from arenaplan.executor.executor import PLAN_OPTIONS, Executor
from arenaplan.executor.registry import kernel, supported_ops

__all__ = [
    "BACKEND",
    "PLAN_OPTIONS",
    "Executor",
    "kernel",
    "supported_ops",
]
