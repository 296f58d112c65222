"""From plan steps to device work."""

from __future__ import annotations

from arenaplan.run.cuda.lowering import lowered_moves as lowered_moves
from arenaplan.run.cuda.lowering import lowered_pointwise as lowered_pointwise
from arenaplan.run.cuda.lowering import lowered_products as lowered_products
from arenaplan.run.cuda.lowering import lowered_rows as lowered_rows
from arenaplan.run.cuda.lowering import lowered_windows as lowered_windows
from arenaplan.run.cuda.lowering.lowered_steps import StepLowering, check_supported
from arenaplan.run.cuda.lowering.site import supported_ops

__all__ = ["StepLowering", "check_supported", "supported_ops"]
