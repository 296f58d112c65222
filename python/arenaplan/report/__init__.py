"""
Reports of plans, and pictures of them.

:func:`report_of` turns a plan and its graph into one JSON document. The map, the drawing, the trace
and the tables show what is in this document and compute nothing about memory themselves.
"""

from arenaplan.report.notebook import frame_of, html_of, plot
from arenaplan.report.page import map_page
from arenaplan.report.report_document import report_of, report_schema
from arenaplan.report.svg import map_svg
from arenaplan.report.trace import map_trace

__all__ = [
    "frame_of",
    "html_of",
    "map_page",
    "map_svg",
    "map_trace",
    "plot",
    "report_of",
    "report_schema",
]
