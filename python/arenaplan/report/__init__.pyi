from .batch import Outcome, plan_many
from .gating import Gate, GateRow, GrowthCause, gate, junit, markdown
from .notebook import plot
from .page import map_page
from .report_document import report_of, report_schema
from .svg import map_svg
from .trace import map_trace
from .whatif import WhatIf, WhatIfs, what_if

__all__ = [
    "Gate",
    "GateRow",
    "GrowthCause",
    "Outcome",
    "WhatIf",
    "WhatIfs",
    "gate",
    "junit",
    "map_page",
    "map_svg",
    "map_trace",
    "markdown",
    "plan_many",
    "plot",
    "report_of",
    "report_schema",
    "what_if",
]
