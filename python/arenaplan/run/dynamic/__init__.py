"""Models of many shapes, and models whose sizes data decides: plans for each, and executors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from arenaplan.run.dynamic.decoding import Decoder as Decoder
    from arenaplan.run.dynamic.dynamic_executor import DynamicExecutor as DynamicExecutor
    from arenaplan.run.dynamic.families import PlanFamily as PlanFamily
    from arenaplan.run.dynamic.families import plan_family as plan_family
    from arenaplan.run.dynamic.lengths import LengthCurve as LengthCurve
    from arenaplan.run.dynamic.lengths import LengthPoint as LengthPoint
    from arenaplan.run.dynamic.lengths import plan_lengths as plan_lengths
    from arenaplan.run.dynamic.staged import StagedExecutor as StagedExecutor
    from arenaplan.run.dynamic.staged import StageReport as StageReport

# A command that only plans imports no kernels.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "decoding": ["Decoder"],
        "dynamic_executor": ["DynamicExecutor"],
        "families": ["PlanFamily", "plan_family"],
        "lengths": ["LengthCurve", "LengthPoint", "plan_lengths"],
        "staged": ["StageReport", "StagedExecutor"],
    },
)
