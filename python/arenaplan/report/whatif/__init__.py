"""
What-if questions: half the channels or resolution of a layer, another element type.

The model file is not changed. The graph gets new shapes, which are carried through operators with
known meaning, and the edited graph is planned like any graph.
"""

from arenaplan.report.whatif.peak_search import WhatIf, WhatIfs, what_if

__all__ = ["WhatIf", "WhatIfs", "what_if"]
