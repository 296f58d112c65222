"""
What if a model were another one: half the channels or the resolution of a layer, another type.

The model is not touched. The graph gets other shapes, which are carried through its operators as
far as their meaning is known, and the edited graph is planned as every other graph.
"""

from arenaplan.report.whatif.peak_search import WhatIf, WhatIfs, what_if

__all__ = ["WhatIf", "WhatIfs", "what_if"]
