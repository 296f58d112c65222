"""``arenaplan inspect``: values, nodes, live bytes per step, the peak and its node."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from arenaplan.cli.models import flow_facts, planned, tell_covers, tell_flow
from arenaplan.cli.plan import print_held, step_label
from arenaplan.cli.printing import print_json, shown, size
from arenaplan.graph.graph import Graph
from arenaplan.report import report_of

if TYPE_CHECKING:
    from arenaplan import Plan

_BAR = 40


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    graph, plan, watch, _ = planned(options)
    if options.json:
        print_json({**_document(graph, plan), **flow_facts(graph)})
    else:
        tell_covers(plan.covers)
        tell_flow(graph)
        _print(graph, plan)
    watch.raise_if_stopped()


def _document(graph: Graph, plan: Plan) -> dict[str, Any]:
    """Return the report, with live bytes per memory in each step."""
    document = report_of(plan, graph)
    for step in document["steps"]:
        step["live_bytes_by_space"] = {
            curve["space"]: curve["live"][step["step"]] for curve in document["curves"]
        }
    return document


def _print(graph: Graph, plan: Plan) -> None:
    """Print everything as tables."""
    placements = plan.placements
    target = shown(plan.target.name)
    print(f"values in the arena of {shown(plan.model) or 'the model'} for {target}")
    several = len(plan.spaces) > 1 or bool(plan.caller_buffers)
    header = f"{'space':<12}  " if several else ""
    print(f"  {header}{'bytes':>14}  {'offset':>14}  {'steps':>13}  {'kind':<10}  name")
    for index, place in enumerate(placements):
        if place is None:
            continue
        value = graph.values[index]
        span = f"{place.live.start}..{place.live.end}"
        space = f"{shown(plan.space_name(place.space), 12):<12}  " if several else ""
        print(
            f"  {space}{place.bytes:>14,}  {place.offset:>14,}  {span:>13}  {value.kind:<10}"
            f"  {shown(value.name)}"
        )
    print("steps")
    live_bytes = plan.live_bytes
    highest = max(live_bytes, default=0) or 1
    for step in range(len(plan.steps)):
        bar = "#" * round(_BAR * live_bytes[step] / highest)
        mark = " <- peak" if step == plan.peak_step else ""
        label = step_label(graph, plan, step)
        print(f"  {step:>6}  {live_bytes[step]:>14,}  {bar:<{_BAR}}  {label}{mark}")
    print(f"peak: {size(highest if live_bytes else 0)} live at step {plan.peak_step}, held by")
    print_held(graph, plan)
