"""Gates: whether a plan keeps within budgets and has not grown since a baseline."""

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
