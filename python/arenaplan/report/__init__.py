"""
Reports of plans, and pictures of them.

:func:`report_of` turns a plan and its graph into one JSON document. The map, the drawing, the trace
and the tables show what is in this document and compute nothing about memory themselves.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
