"""``arenaplan explain``: what makes the peak, and what each technique is worth."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import arenaplan
from arenaplan.cli.common import add_command, add_json, load_model, print_json, shown, size
from arenaplan.cli.options import add_plan_options, plan_options, seen_by
from arenaplan.cli.plan import reasons, step_label, summarize
from arenaplan.errors import InvalidOption
from arenaplan.graph import Graph

if TYPE_CHECKING:
    from arenaplan import Explanation
    from arenaplan.cli.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    summary = "say what makes the peak, and what each technique is worth"
    parser = add_command(commands, "explain", summary, execute)
    add_plan_options(parser)
    add_json(parser)


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    chosen = plan_options(options)
    if chosen.spaces is not None:
        raise InvalidOption("explain compares plans for one arena, and --budget names memories")
    graph = seen_by(load_model(options), chosen)
    explanation = arenaplan.explain(graph, chosen)
    if options.json:
        print_json(_document(graph, explanation))
    else:
        _print(graph, explanation)


def _document(graph: Graph, explanation: Explanation) -> dict[str, Any]:
    """Return everything as one JSON document."""
    plan = explanation.plan
    return {
        **summarize(graph, plan),
        "peak_nodes": [graph.nodes[index].name for index in plan.steps[plan.peak_step]]
        if plan.steps
        else [],
        "without": explanation.without,
        "levels": explanation.levels,
        "switched": explanation.switched,
        "why": reasons(graph, plan),
    }


def _print(graph: Graph, explanation: Explanation) -> None:
    """Print everything as tables."""
    plan = explanation.plan
    used = set(plan.options["optimize"])
    target = shown(plan.target.name)
    print(f"{shown(plan.model) or 'model'} for {target}: {size(plan.arena_bytes)}, {plan.status}")
    if plan.steps:
        where = f"step {plan.peak_step} of {len(plan.steps)}"
        print(f"peak at {where}, {step_label(graph, plan, plan.peak_step)}, held by")
        for index in plan.live_at(plan.peak_step):
            place = plan.placements[index]
            if place is not None:
                print(f"  {place[2]:>14,}  {shown(graph.values[index].name)}")
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
    print(f"floor: {size(plan.floor or 0)} for some step by itself, in any order")


def _change(before: int, after: int) -> str:
    """Say how a size changed."""
    return "" if after == before or not before else f"{after / before - 1:+.1%}"
