"""
Plan reports, and pictures of plans.

:func:`report_of` turns a plan and its graph into a JSON document. The map, the drawing, the trace
and the tables show this document and compute nothing about memory.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
