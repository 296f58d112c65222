"""``arenaplan plan``: how many bytes, is that minimal, and where does everything go."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import arenaplan
from arenaplan.base.documents import fields_of
from arenaplan.base.errors import CapacityExceeded, InvalidOption, PartOfModel, SpacesExceeded
from arenaplan.base.formulas import solved
from arenaplan.cli.micro import arena_of, print_arena
from arenaplan.cli.models import (
    Planned,
    check_budget,
    covers_facts,
    each_signature,
    flow_facts,
    has_ranges,
    is_tflite,
    plan_options,
    seen_by,
    tell_covers,
    tell_flow,
    with_budget,
)
from arenaplan.cli.printing import (
    MOVE_SCOPE,
    gap_text,
    notes_of,
    print_json,
    proof_of,
    shown,
    size,
)
from arenaplan.cli.several import plan_shapes, share
from arenaplan.cli.sources import delivering, goes_to_stdout
from arenaplan.cli.watch import watching
from arenaplan.graph.graph import Graph
from arenaplan.graph.model import Model, flat_sizes
from arenaplan.planner.peak import held_at
from arenaplan.planner.spill import spilled
from arenaplan.report.report_document import SPACE_FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arenaplan import Plan


_MOST_SPILLED = 20


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    if options.with_graph and (options.output is None or options.share is not None):
        raise InvalidOption("option --with-graph: it is for -o, and for plans of one model")
    if options.share is not None:
        share(options)
        return
    if options.others:
        raise InvalidOption("several models need --share, which says when they run")
    chosen = plan_options(options)
    if has_ranges(options):
        plan_shapes(options, replace(chosen, budget=options.budget))
        return
    graphs = each_signature(options)
    if len(graphs) > 1 and options.output is not None:
        raise InvalidOption("option --output: a plan is of one signature, which --signature names")
    chosen = with_budget(chosen, options, graphs[0].target)
    pins = {pattern: space for space, pattern in options.pin}
    planned: list[Planned] = []
    limit = options.time_limit
    try:
        with watching(options) as watch:
            for loaded in graphs:
                graph = seen_by(loaded, chosen, options)
                plan = arenaplan.plan(graph, chosen, time_limit=limit, on_progress=watch)
                planned.append(Planned(graph, plan, watch, loaded))
        largest = max(planned, key=lambda each: each.plan.arena_bytes)
        graph, plan, _, loaded = largest
        try:
            check_budget(options, plan)
        except (CapacityExceeded, PartOfModel) as error:
            error.plan = plan
            raise
    except SpacesExceeded as error:
        if options.json:
            print_json(_no_room(graph, error))
        raise
    except (CapacityExceeded, PartOfModel) as error:
        if error.plan is not None:
            found = Planned(graph, error.plan, watch, loaded)
            report(found, options, as_json=options.json, pins=pins)
        watch.raise_if_stopped()
        raise
    with delivering(options, lambda: _document(graph, plan, options)):
        as_json = options.json and not goes_to_stdout(options)
        report(largest, options, as_json=as_json, pins=pins, signatures=_table(planned))
    watch.raise_if_stopped()


def _table(planned: list[Planned]) -> dict[str, int]:
    """Return each signature's arena bytes, if there are several signatures."""
    plans = [each.plan for each in planned]
    return {p.covers.signature: p.arena_bytes for p in plans} if len(plans) > 1 else {}


def _document(graph: Graph, plan: Plan, options: argparse.Namespace) -> str:
    """Return the plan file, or a model file with plan and graph."""
    if not options.with_graph:
        return plan.to_json()
    sizes = flat_sizes(solved(dict(options.bind)))
    return Model(plan.model, list(sizes), [(list(sizes.values()), graph, plan)]).to_json()


def report(
    planned: Planned,
    options: argparse.Namespace,
    *,
    as_json: bool,
    pins: Mapping[str, str] | None = None,
    signatures: Mapping[str, int] | None = None,
) -> None:
    """
    Print a plan report.

    ``signatures`` maps the model's signatures to bytes; the report is about the largest.
    """
    graph, plan = planned.graph, planned.plan
    summary = {**summarize(graph, plan, pins), **({"signatures": signatures} if signatures else {})}
    arena = arena_of(planned.loaded, plan, options)
    if as_json:
        print_json(summary if arena is None else {**summary, "runtime": arena})
        return
    print(
        f"{shown(plan.model) or 'model'} for {shown(plan.target.name)}: "
        f"{summary['values']:,} values, {summary['nodes']:,} nodes"
    )
    print(f"  arena        {size(plan.arena_bytes)}, {proof_of(plan)}")
    tell_covers(plan.covers)
    for name, needed in (signatures or {}).items():
        print(f"  signature    {needed:>14,}  {shown(name)}")
    tell_flow(graph)
    notes = notes_of(plan, has_arena=arena is not None)
    if plan.target.name == "ideal" and is_tflite(options.model):
        notes.append("a rewritten model can need fewer bytes than this floor: arenaplan fit")
    for note in notes:
        print(f"  note         {note}")
    if arena is not None:
        print_arena(arena)
    print(f"  lower bound  {size(plan.lower_bound)}")
    if plan.naive_bytes is not None:
        times = plan.naive_bytes / plan.arena_bytes if plan.arena_bytes else 0
        compared = f", {times:.1f} times the arena" if times else ""
        print(f"  naive        {size(plan.naive_bytes)}{compared}")
    if plan.caller_buffers:
        brought = sum(buffer.bytes for buffer in plan.caller_buffers)
        print(f"  caller       brings {len(plan.caller_buffers)} buffers, {size(brought)}")
    if plan.workspaces:
        largest = max(work.bytes for work in plan.workspaces)
        print(f"  workspace    {len(plan.workspaces)} buffers, the largest {size(largest)}")
    fused = sum(len(step) for step in plan.steps if len(step) > 1)
    if fused:
        print(
            f"  steps        {len(plan.steps)}; {fused} of {len(graph.nodes)} nodes run with others"
        )
    repeated = set(plan.repeated)
    if repeated:
        runs = sum(node in repeated for step in plan.steps for node in step)
        print(
            f"  duplicate    {len(repeated)} nodes run in {runs} steps, so that their inputs are "
            "kept and not their outputs"
        )
    if plan.timetable is not None:
        table = plan.timetable
        print(
            f"  workers      {table.workers}; {table.parallelism:.2f} are busy on average if a "
            "node takes as long as it touches bytes"
        )
    if plan.floor is not None:
        print(f"  floor        {size(plan.floor)} for some step by itself, in any order")
    if graph.nodes:
        where = f"step {plan.peak_step} of {len(plan.steps)}"
        print(f"  peak         {where}: {step_label(graph, plan, plan.peak_step)}")
        print_held(graph, plan, indent=4, places=True)
    if plan.move_cost is not None:
        _report_spaces(summary)


def print_held(graph: Graph, plan: Plan, *, indent: int = 2, places: bool = False) -> None:
    """Print the values live at the peak, scratch memory included, and their sum."""
    rows = held_at(plan, plan.peak_step, graph)
    for held in rows:
        where = ""
        if places:
            space = f"{shown(plan.space_name(held.space), 12):<12} " if len(plan.spaces) > 1 else ""
            where = f"{space}at {held.offset:>12,}  "
        shared = "" if held.counted else "  (in the bytes of those above)"
        if 0 < held.counted < held.bytes:
            shared = f"  ({held.bytes - held.counted:,} of them in the bytes of those above)"
        print(f"{'':{indent}}{held.bytes:>14,}  {where}{shown(held.name)}{shared}")
    if len(rows) > 1:
        unit = f", sizes rounded up to {plan.alignment}" if plan.alignment > 1 else ""
        print(f"{'':{indent}}{sum(held.counted for held in rows):>14,}  live at once{unit}")


def step_label(graph: Graph, plan: Plan, step: int) -> str:
    """Return a label for the nodes in a step."""
    nodes = [graph.nodes[index] for index in plan.steps[step]]
    ops = "+".join(node.op for node in nodes)
    return f"{shown(ops, 40)} {shown(nodes[-1].name, 40)}"


def summarize(graph: Graph, plan: Plan, pins: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the ``plan --json`` document."""
    placements = plan.placements
    peak_values = [
        {
            "name": held.name,
            "kind": "scratch" if held.is_scratch else "value",
            "space": plan.space_name(held.space),
            **fields_of(held, "offset bytes counted"),
        }
        for held in held_at(plan, plan.peak_step, graph)
    ]
    return {
        "model": plan.model,
        "target": plan.target.name,
        **covers_facts(plan.covers),
        "values": sum(place is not None for place in placements),
        "nodes": len(graph.nodes),
        **fields_of(plan, "naive_bytes lower_bound arena_bytes gap status"),
        "steps": len(plan.steps),
        "order": plan.order_search,
        **fields_of(plan, "skipped floor"),
        "workers": plan.options["workers"],
        "parallelism": None if plan.timetable is None else plan.timetable.parallelism,
        "peak_step": plan.peak_step,
        "peak_values": peak_values,
        "peak_bytes": plan.live_bytes[plan.peak_step] if plan.steps else 0,
        **fields_of(plan, "alignment options digest"),
        "spaces": [
            {
                **fields_of(space, SPACE_FIELDS),
                **({} if plan.covers.is_whole else {"status": "unknown"}),
            }
            for space in plan.spaces
        ],
        "caller_buffers": [fields_of(buffer, "name bytes") for buffer in plan.caller_buffers],
        **flow_facts(graph),
        **_spills(graph, plan, pins),
    }


def _spills(graph: Graph, plan: Plan, pins: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the move cost and the values in slow memory, where a plan chose."""
    if plan.move_cost is None:
        return {}
    cost, bound = plan.move_cost.cost, plan.move_cost.lower_bound
    status = "optimal" if cost == bound else "feasible"
    if not plan.covers.is_whole:
        status = "unknown"
    return {
        "move_cost": {"cost": cost, "lower_bound": bound, "status": status},
        "spilled": [asdict(value) for value in spilled(graph, plan, pins)],
    }


def _report_spaces(summary: dict[str, Any]) -> None:
    """Print each memory's content, and why values are in slow memory."""
    for space in summary["spaces"]:
        capacity = space["capacity"]
        of = "" if capacity is None else f" of {capacity:,}"
        if space["status"] == "optimal":
            proof = "proven minimal for the values in it"
        elif not summary["covers"]["whole"]:
            proof = "for a part of the model"
        else:
            proof = gap_text(space["status"], space["arena_bytes"], space["lower_bound"])
        print(f"  space        {shown(space['name'])}: {space['arena_bytes']:,}{of} bytes, {proof}")
    moved = summary["move_cost"]
    if moved["status"] == "optimal":
        proof = f"proven minimal for {MOVE_SCOPE}"
    elif not summary["covers"]["whole"]:
        proof = "for a part of the model"
    else:
        proof = f"at least {moved['lower_bound']:,} for {MOVE_SCOPE}"
    print(f"  move cost    {moved['cost']:,} for the bytes that nodes read and write, {proof}")
    values = summary["spilled"]
    print(f"  spilled      {len(values)} values to slower memory")
    for value in values[:_MOST_SPILLED]:
        print(
            f"    {value['size']:>14,}  to {shown(value['space'], 12):<12}"
            f"  {value['moved']:,} bytes moved, cost {value['cost']:,}: {value['reason']}"
            f"  {shown(value['name'])}"
        )
    if len(values) > _MOST_SPILLED:
        print(f"    and {len(values) - _MOST_SPILLED:,} more; --json lists all")


def _no_room(graph: Graph, error: SpacesExceeded) -> dict[str, Any]:
    """Return why values do not fit, for ``plan --json``."""
    return {
        "model": graph.name,
        "status": "infeasible" if error.proven else "unknown",
        "reason": str(error),
        "step": error.step,
        "node": error.node,
        "values": [{"name": name, "bytes": size} for name, size in error.values],
    }
