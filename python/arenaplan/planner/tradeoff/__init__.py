"""Time beside bytes: the least arena of the plans that are fast enough."""

from __future__ import annotations

from arenaplan.planner.tradeoff.choice import Chosen, chosen
from arenaplan.planner.tradeoff.maker import Maker, Point, Timed

__all__ = ["Chosen", "Maker", "Point", "Timed", "chosen"]
