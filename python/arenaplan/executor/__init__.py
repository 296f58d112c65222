"""Runs a planned graph with NumPy, inside one arena."""

from __future__ import annotations

from arenaplan.executor import kernels as kernels  # Registers them.
from arenaplan.executor.backend import BACKEND
from arenaplan.executor.executor import PLAN_OPTIONS, Executor
from arenaplan.executor.registry import kernel, supported_ops

workspace_choices = BACKEND.workspaces
staging_choices = BACKEND.staging

__all__ = [
    "BACKEND",
    "PLAN_OPTIONS",
    "Executor",
    "kernel",
    "staging_choices",
    "supported_ops",
    "workspace_choices",
]
