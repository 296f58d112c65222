"""Models of many shapes, and models whose sizes data decides: plans for each, and executors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from arenaplan.dynamic.executor import DynamicExecutor as DynamicExecutor
    from arenaplan.dynamic.family import PlanFamily as PlanFamily
    from arenaplan.dynamic.family import plan_family as plan_family
    from arenaplan.dynamic.staged import StagedExecutor as StagedExecutor
    from arenaplan.dynamic.staged import StageReport as StageReport

# A command that only plans imports no kernels.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "executor": ["DynamicExecutor"],
        "family": ["PlanFamily", "plan_family"],
        "staged": ["StageReport", "StagedExecutor"],
    },
)
