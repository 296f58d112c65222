"""Gates: whether a plan keeps within its budgets, and has not grown since its baseline."""

from arenaplan.gating.baseline import read_baseline
from arenaplan.gating.gate import Gate, GateRow, GrowthCause, gate, judged
from arenaplan.gating.tables import junit, markdown, table

__all__ = [
    "Gate",
    "GateRow",
    "GrowthCause",
    "gate",
    "judged",
    "junit",
    "markdown",
    "read_baseline",
    "table",
]
