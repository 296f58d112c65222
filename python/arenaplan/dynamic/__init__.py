"""Models with symbolic dimensions: one arena for all shapes, and a plan for each."""

from __future__ import annotations

from arenaplan.dynamic.executor import DynamicExecutor
from arenaplan.dynamic.family import PlanFamily, plan_family

__all__ = ["DynamicExecutor", "PlanFamily", "plan_family"]
