"""Gates: whether a plan keeps within its budgets, and has not grown since its baseline."""

from arenaplan.report.gating.baseline import read_baseline
from arenaplan.report.gating.gating import gate, judged
from arenaplan.report.gating.tables import junit, markdown, table
from arenaplan.report.gating.verdicts import Gate, GateRow, GrowthCause

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
