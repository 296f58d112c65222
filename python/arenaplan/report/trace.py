"""The report as a trace for Perfetto and chrome://tracing: steps, values in lanes, counters."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from arenaplan.base.arguments import typed
from arenaplan.report.report_document import checked_report

_STEP: Final = 1000
"""Microseconds that a step takes in the trace, where no timetable says more."""


@typed
def map_trace(report: Mapping[str, Any]) -> str:
    """
    Return a plan as JSON trace events, for https://ui.perfetto.dev.

    Steps take a millisecond each, or the time in the plan's timetable. Each arena is a process,
    with values as slices in as few lanes as possible, and the report's curves as counters.

    Parameters
    ----------
    report : report
        A report from :func:`report_of`.

    Examples
    --------
    >>> import json
    >>> import arenaplan as ap
    >>> graph = ap.Graph("one")
    >>> x = graph.input("x", (64,))
    >>> (y,) = graph.node("Neg", [x], [("y", (64,), "float32")])
    >>> graph.output(y)
    >>> trace = json.loads(ap.report.map_trace(ap.report.report_of(ap.plan(graph), graph)))
    >>> sorted({event["name"] for event in trace["traceEvents"] if event["ph"] == "X"})
    ['Neg Neg_0', 'x', 'y']
    """
    report = checked_report(report)
    events = [*_steps(report)]
    arenas = [space for space in report["spaces"] if not space["caller"]]
    for process, (space, curve) in enumerate(zip(arenas, report["curves"], strict=True), start=2):
        events += _arena(report, space, curve, process)
    document = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {name: report[name] for name in ("model", "target", "digest", "status")},
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def _steps(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the steps: a process with a thread per worker."""
    yield _named("process_name", 1, 0, f"steps of {report['model'] or 'the model'}")
    table = report["timetable"]
    free: list[int] = []
    for step in report["steps"]:
        start, time = _STEP * step["step"], _STEP
        worker = 0
        if table is not None:
            start, time = table["starts"][step["step"]], table["costs"][step["step"]]
            worker = next((at for at, end in enumerate(free) if end <= start), len(free))
            free[worker : worker + 1] = [start + time]
        operators = " + ".join([*step["ops"], step["op"] or ""])
        facts = {name: step[name] for name in ("layer", "source", "live_bytes")}
        name = f"{operators} {step['node']}".strip()
        yield _slice(name, 1, worker, start, time, {"step": step["step"], **facts})


def _arena(
    report: Mapping[str, Any],
    space: Mapping[str, Any],
    curve: Mapping[str, Sequence[int]],
    process: int,
) -> Iterator[dict[str, Any]]:
    """Yield an arena's values and counters."""
    yield _named("process_name", process, 0, f"memory {space['name']}")
    rows = [
        row
        for row in (*report["values"], *report["workspaces"])
        if row["space"] == space["name"] and row["live"] is not None
    ]
    rows.sort(key=lambda row: (row["live"][0], row["offset"]))
    # As few lanes as possible: the free lane with the lowest number.
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    lanes = 0
    for row in rows:
        start, stop = row["live"]
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            heapq.heappush(free, lanes)
            lanes += 1
        lane = heapq.heappop(free)
        heapq.heappush(busy, (stop, lane))
        facts = {name: row[name] for name in ("bytes", "offset")}
        facts["kind"] = row.get("kind", "workspace")
        yield _slice(row["name"], process, lane + 1, _STEP * start, _STEP * (stop - start), facts)
    names = {"live": "live bytes", "top": "highest address", "own": "bytes of the step itself"}
    for key, name in names.items():
        before = None
        for step, number in enumerate([*curve[key], 0]):
            if number != before:
                yield {
                    "name": name,
                    "ph": "C",
                    "pid": process,
                    "ts": _STEP * step,
                    "args": {"bytes": number},
                }
            before = number


def _slice(
    name: str, process: int, thread: int, start: int, time: int, facts: dict[str, Any]
) -> dict[str, Any]:
    """Return the event for a span of time."""
    place = {"pid": process, "tid": thread, "ts": start, "dur": time}
    return {"name": name, "ph": "X", **place, "args": facts}


def _named(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    """Return the event that names a process."""
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
