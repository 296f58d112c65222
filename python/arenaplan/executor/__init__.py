"""Runs a planned graph with NumPy, inside one arena."""

from __future__ import annotations

from arenaplan.executor import kernels as kernels  # Registers them.
from arenaplan.executor.executor import PLAN_OPTIONS, Executor
from arenaplan.executor.registry import kernel, supported_ops
from arenaplan.executor.steps import staging_choices, workspace_choices

__all__ = [
    "PLAN_OPTIONS",
    "Executor",
    "kernel",
    "staging_choices",
    "supported_ops",
    "workspace_choices",
]
