"""``arenaplan inspect``: values, nodes, live bytes per step, the peak and its node."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import arenaplan
from arenaplan.cli.ahead import flow_facts, load_ahead, tell_flow
from arenaplan.cli.common import add_json, add_model_command, print_json, shown, size
from arenaplan.cli.options import add_plan_options, plan_options, seen_by
from arenaplan.cli.plan import reasons, step_label
from arenaplan.graph import Graph

if TYPE_CHECKING:
    from arenaplan import Plan
    from arenaplan.cli.common import Commands

_BAR = 40


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_model_command(commands, "inspect", execute)
    add_plan_options(parser)
    add_json(parser)


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    chosen = plan_options(options)
    ahead = load_ahead(options)
    graph = seen_by(ahead.graph, chosen, options)
    plan = arenaplan.plan(graph, chosen)
    if options.json:
        print_json({**_document(graph, plan), **flow_facts(graph), **ahead.facts()})
    else:
        ahead.tell()
        tell_flow(graph)
        _print(graph, plan)


def _document(graph: Graph, plan: Plan) -> dict[str, Any]:
    """Return everything as one JSON document."""
    placements, live_bytes = plan.placements, plan.live_bytes
    by_space = {space.name: plan.live_bytes_in(i) for i, space in enumerate(plan.spaces)}
    values = []
    for value in graph.values:
        place = placements[value.index]
        values.append(
            {
                "name": value.name,
                "kind": value.kind,
                "dtype": value.dtype,
                "shape": list(value.shape),
                "bytes": place.bytes if place else None,
                "space": plan.space_name(place.space) if place else None,
                "offset": place.offset if place else None,
                "live": [place.live.start, place.live.end] if place else None,
            }
        )
    steps_ = [
        {
            "step": step,
            "node": graph.nodes[nodes[-1]].name,
            "op": graph.nodes[nodes[-1]].op,
            "fused": [graph.nodes[index].name for index in nodes[:-1]],
            "live_bytes": live_bytes[step],
            "live_bytes_by_space": {name: live[step] for name, live in by_space.items()},
        }
        for step, nodes in enumerate(plan.steps)
    ]
    return {
        "model": plan.model,
        "target": plan.target.name,
        "arena_bytes": plan.arena_bytes,
        "peak_step": plan.peak_step,
        "peak_values": [graph.values[index].name for index in plan.live_at(plan.peak_step)],
        "values": values,
        "steps": steps_,
        "why": reasons(graph, plan),
    }


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
    for index in plan.live_at(plan.peak_step):
        place = placements[index]
        if place is not None:
            print(f"  {place.bytes:>14,}  {shown(graph.values[index].name)}")
