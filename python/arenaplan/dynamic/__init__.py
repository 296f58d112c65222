"""Models of many shapes, and models whose sizes data decides: plans for each, and executors."""

from __future__ import annotations

from arenaplan.dynamic.executor import DynamicExecutor
from arenaplan.dynamic.family import PlanFamily, plan_family
from arenaplan.dynamic.staged import StagedExecutor, StageReport

__all__ = ["DynamicExecutor", "PlanFamily", "StageReport", "StagedExecutor", "plan_family"]
