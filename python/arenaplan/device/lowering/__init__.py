"""From the steps of a plan to work for a device."""

from __future__ import annotations

from arenaplan.device.lowering import moves as moves
from arenaplan.device.lowering import pointwise as pointwise
from arenaplan.device.lowering import products as products
from arenaplan.device.lowering import rows as rows
from arenaplan.device.lowering import windows as windows
from arenaplan.device.lowering.site import supported_ops
from arenaplan.device.lowering.steps import StepLowering, check_supported

__all__ = ["StepLowering", "check_supported", "supported_ops"]
