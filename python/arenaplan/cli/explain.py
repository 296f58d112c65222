"""``arenaplan explain``: the peak, its values, and what each technique saves."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import arenaplan
from arenaplan.base.errors import InvalidOption
from arenaplan.cli.models import load_ahead, plan_options, seen_by, tell_covers, tell_flow
from arenaplan.cli.plan import print_held, step_label, summarize
from arenaplan.cli.printing import print_json, proof_of, shown, size
from arenaplan.cli.recompute import curve_document, print_curve
from arenaplan.cli.watch import watching
from arenaplan.graph.graph import Graph
from arenaplan.planner.planning import Point
from arenaplan.report import report_of

if TYPE_CHECKING:
    from arenaplan.planner import Explanation
    from arenaplan.report import WhatIfs


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    chosen = plan_options(options)
    if chosen.spaces is not None:
        raise InvalidOption("explain compares plans for one arena, and --spaces names memories")
    graph = seen_by(load_ahead(options), chosen, options)
    with watching(options) as watch:
        limit = options.time_limit
        explanation = arenaplan.explain(graph, chosen, time_limit=limit, on_progress=watch)
        changes = None
        if options.top is not None or options.by is not None:
            changes = arenaplan.report.what_if(
                options.model,
                chosen,
                bind=dict(options.bind),
                top=options.top or 10,
                by=options.by or "layer",
                time_limit=limit,
                on_progress=watch,
            )
    # Extra work means something only where nodes have costs and may run again.
    may_repeat = any(node.cost and node.effects.pure for node in graph.nodes)
    curve = arenaplan.recompute_curve(graph, chosen) if may_repeat else None
    if options.json:
        extra = {} if curve is None else {"recompute": curve_document(curve)}
        if changes is not None:
            extra["what_if"] = _changes_document(changes)
        print_json({**_document(graph, explanation), **extra})
        return
    _print(graph, explanation)
    if changes is not None:
        _print_changes(changes)
    if curve is not None:
        print("with nodes that run again; arenaplan recompute names them for one budget")
        print_curve(curve)
    watch.raise_if_stopped()


def _changes_document(changes: WhatIfs) -> dict[str, Any]:
    """Return model changes for JSON."""
    return {
        "arena_bytes": changes.plan.arena_bytes,
        "compared_bytes": changes.compared.arena_bytes,
        "rows": [row._asdict() for row in changes.rows],
        "skipped": [{"change": change, "why": why} for change, why in changes.skipped],
    }


def _print_changes(changes: WhatIfs) -> None:
    """Print model changes as a table."""
    now, compared = changes.plan.arena_bytes, changes.compared.arena_bytes
    is_bare = changes.compared is not changes.plan
    scratch = f", without scratch memory ({now:,} with it)" if is_bare else ""
    print(f"what if: plans of the changed model in place of {compared:,} bytes{scratch}")
    for row in changes.rows:
        count = f" ({row.values:,} values smaller)" if row.by == "graph" else ""
        print(
            f"  {row.arena_bytes:>14,}  {-row.saved:>7.1%}  {shown(row.subject)}: "
            f"{shown(row.change, 40)}{count}"
        )
    if changes.skipped:
        change, why = changes.skipped[0]
        more = len(changes.skipped) - 1
        others = f"; and {more:,} more, see --json" if more else ""
        print(f"  not planned    {shown(change)}: {shown(why, 80)}{others}")


def _document(graph: Graph, explanation: Explanation) -> dict[str, Any]:
    """Return everything as one JSON document."""
    plan = explanation.plan
    found = report_of(plan, graph, explanation)
    return {
        **summarize(graph, plan),
        "peak_nodes": [graph.nodes[index].name for index in plan.steps[plan.peak_step]]
        if plan.steps
        else [],
        **found["techniques"],
        "why": found["why"],
    }


def _print(graph: Graph, explanation: Explanation) -> None:
    """Print everything as tables."""
    plan = explanation.plan
    used = set(plan.options["optimize"])
    target = shown(plan.target.name)
    print(
        f"{shown(plan.model) or 'model'} for {target}: {size(plan.arena_bytes)}, {proof_of(plan)}"
    )
    tell_covers(plan.covers)
    tell_flow(graph)
    if plan.steps:
        where = f"step {plan.peak_step} of {len(plan.steps)}"
        print(f"peak at {where}, {step_label(graph, plan, plan.peak_step)}, held by")
        print_held(graph, plan)
    print("one technique after another")
    before = explanation.without
    _print_point("none", before, before)
    for name, point in explanation.levels.items():
        _print_point(name, point, before)
        before = point
    made = _made(explanation)
    print("each technique by itself")
    for name, point in explanation.switched.items():
        _print_point(f"{'without' if name in used else 'with'} {name}", point, made)
    if len(explanation.points) > 1:
        print("plans that were tried and that no other plan beats")
        for point in explanation.points:
            _print_point("chosen" if point.bytes == made.bytes else "", point, made)
    print(f"floor: {size(plan.floor or 0)} for some step by itself, in any order")


def _made(explanation: Explanation) -> Point:
    """Return the plan's bytes and time."""
    estimate = explanation.plan.estimate
    seconds = None if estimate is None else estimate.seconds
    return Point(explanation.plan.arena_bytes, seconds)


def _print_point(label: str, point: Point, base: Point) -> None:
    """Print a line with bytes, their change, and the estimated run time, if known."""
    time = "" if point.seconds is None else f"  {1e3 * point.seconds:>10.3f} ms"
    if point.seconds and base.seconds and point is not base:
        time += f"  {point.seconds / base.seconds:>6.2f} x"
    change = _change(base.bytes, point.bytes)
    print(f"  {point.bytes:>14,}  {label:<18} {change:<8}{time}".rstrip())


def _change(before: int, after: int) -> str:
    """Say how a size changed."""
    return "" if after == before or not before else f"{after / before - 1:+.1%}"
