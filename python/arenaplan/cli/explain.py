"""``arenaplan explain``: the peak, its values, and the worth of each technique."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import arenaplan
from arenaplan.base.errors import InvalidOption
from arenaplan.cli.models import Ahead, load_ahead, plan_options, seen_by, tell_flow
from arenaplan.cli.plan import step_label, summarize
from arenaplan.cli.recompute import curve_document, print_curve
from arenaplan.cli.text import print_json, proof_of, shown, size
from arenaplan.cli.watch import watching
from arenaplan.graph.graph import Graph
from arenaplan.report import report_of

if TYPE_CHECKING:
    from arenaplan.planner import Explanation
    from arenaplan.planner.planning import TimedExplanation
    from arenaplan.planner.tradeoff import Point
    from arenaplan.report import WhatIfs


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    chosen = plan_options(options)
    if chosen.spaces is not None:
        raise InvalidOption("explain compares plans for one arena, and --spaces names memories")
    ahead = load_ahead(options)
    graph = seen_by(ahead.graph, chosen, options)
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
        print_json({**_document(graph, explanation), **extra, **ahead.facts()})
        return
    _print(graph, explanation, ahead)
    if changes is not None:
        _print_changes(changes)
    if curve is not None:
        print("with nodes that run again; arenaplan recompute names them for one budget")
        print_curve(curve)
    watch.raise_if_stopped()


def _changes_document(changes: WhatIfs) -> dict[str, Any]:
    """Return changes of the model as JSON has them."""
    return {
        "arena_bytes": changes.plan.arena_bytes,
        "rows": [row._asdict() for row in changes.rows],
        "skipped": [{"change": change, "why": why} for change, why in changes.skipped],
    }


def _print_changes(changes: WhatIfs) -> None:
    """Print changes of the model as a table."""
    now = changes.plan.arena_bytes
    scratch = ", without scratch memory" if changes.plan.options["workspace"] == "none" else ""
    print(f"what if: plans of the changed model in place of {now:,} bytes{scratch}")
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


def _print(graph: Graph, explanation: Explanation, ahead: Ahead) -> None:
    """Print everything as tables."""
    plan = explanation.plan
    used = set(plan.options["optimize"])
    target = shown(plan.target.name)
    print(
        f"{shown(plan.model) or 'model'} for {target}: {size(plan.arena_bytes)}, {proof_of(plan)}"
    )
    ahead.tell()
    tell_flow(graph)
    if plan.steps:
        where = f"step {plan.peak_step} of {len(plan.steps)}"
        print(f"peak at {where}, {step_label(graph, plan, plan.peak_step)}, held by")
        placements = plan.placements
        for index in plan.live_at(plan.peak_step):
            place = placements[index]
            if place is not None:
                print(f"  {place.bytes:>14,}  {shown(graph.values[index].name)}")
    print("one technique after another")
    print(f"  {explanation.without:>14,}  none")
    before = explanation.without
    for name, bytes_ in explanation.levels.items():
        print(f"  {bytes_:>14,}  {name:<10} {_change(before, bytes_)}")
        before = bytes_
    print("each one by itself")
    for name, bytes_ in explanation.switched.items():
        if name in used:
            print(f"  {bytes_:>14,}  without {name:<10} {_change(plan.arena_bytes, bytes_)}")
        else:
            print(f"  {bytes_:>14,}  with {name:<13} {_change(plan.arena_bytes, bytes_)}")
    if explanation.timed is not None:
        _print_timed(explanation.timed, used)
    print(f"floor: {size(plan.floor or 0)} for some step by itself, in any order")


def _print_timed(timed: TimedExplanation, used: set[str]) -> None:
    """Print bytes with scratch memory beside estimated times."""
    print(f"with scratch memory, and the time of a run as estimated for {timed.backend}")
    _print_point("none", timed.without, timed.without)
    for name, point in timed.levels.items():
        _print_point(f"and {name}", point, timed.without)
    for name, point in timed.switched.items():
        _print_point(f"{'without' if name in used else 'with'} {name}", point, timed.chosen)
    print("plans tried that no other one beats")
    for point in timed.found:
        _print_point("chosen" if point == timed.chosen else "", point, timed.without)


def _print_point(label: str, point: Point, base: Point) -> None:
    """Print a line with bytes, milliseconds, and how both changed."""
    slower = f"{point.seconds / base.seconds:.2f} x" if base.seconds else ""
    text = f"{point.bytes:>14,}  {1e3 * point.seconds:>10.3f} ms  {slower:>8}  {label:<18}"
    print(f"  {text} {_change(base.bytes, point.bytes)}".rstrip())


def _change(before: int, after: int) -> str:
    """Say how a size changed."""
    return "" if after == before or not before else f"{after / before - 1:+.1%}"
