"""``arenaplan plan``: how many bytes, is that minimal, and where does everything go."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import arenaplan
from arenaplan.cli.common import add_command, add_json, load_model, print_json, say, shown, size
from arenaplan.cli.options import add_plan_options, plan_options
from arenaplan.cli.share import add_share, share
from arenaplan.errors import CapacityExceeded, InvalidOption, SpacesExceeded
from arenaplan.graph import Graph
from arenaplan.sharing import report_storage_sharing
from arenaplan.spill import spilled

if TYPE_CHECKING:
    from arenaplan import Plan
    from arenaplan.cli.common import Commands


_SPACE_FIELDS = (
    "name",
    "arena_bytes",
    "lower_bound",
    "status",
    "alignment",
    "capacity",
    "cost",
)
_MOST_SPILLED = 20


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "plan", "plan a model's arena and prove its size", execute)
    add_plan_options(parser)
    add_share(parser)
    parser.add_argument(
        "--capacity", type=int, metavar="BYTES", help="most bytes the arena may have"
    )
    parser.add_argument(
        "--strategy",
        choices=("arena", "storage-sharing"),
        default="arena",
        help="offsets in one arena, or blocks that values share (default: arena)",
    )
    for flag, name, default in (("--match-range", "N", 16), ("--num-temp", "N", 1)):
        parser.add_argument(
            flag, type=int, metavar=name, default=default, help=f"storage sharing ({default})"
        )
    parser.add_argument("--auto-search", action="store_true", help="storage sharing: try ranges")
    parser.add_argument(
        "--size-rule", choices=("bytes", "elements_x4"), default="bytes", help="storage sharing"
    )
    parser.add_argument(
        "--parallel-safe", action="store_true", help="be safe in every order of the nodes"
    )
    add_json(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the plan as JSON")


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    if options.share is not None:
        share(options)
        return
    if options.others:
        raise InvalidOption("several models need --share, which says when they run")
    graph = load_model(options)
    if options.strategy == "storage-sharing":
        share_blocks(graph, options)
        return
    try:
        plan = arenaplan.plan(
            graph,
            capacity=options.capacity,
            parallel_safe=options.parallel_safe,
            **plan_options(options),
        )
    except SpacesExceeded as error:
        if options.json:
            print_json(_no_room(graph, error))
        raise
    except CapacityExceeded as error:
        if error.plan is not None:
            report(graph, error.plan, as_json=options.json)
        raise
    if options.output is not None:
        plan.save(options.output)
        say(f"wrote {options.output}")
    report(graph, plan, as_json=options.json)


def share_blocks(graph: Graph, options: argparse.Namespace) -> None:
    """Plan and report blocks that values share."""
    if options.output is not None:
        raise InvalidOption("option output: storage sharing writes its report with --json")
    summary = report_storage_sharing(
        graph,
        match_range=options.match_range,
        auto_search=options.auto_search,
        num_temp=options.num_temp,
        size_rule=options.size_rule,
        parallel_safe=options.parallel_safe,
    )
    if options.json:
        print_json(summary)
        return
    print(f"{shown(graph.name) or 'model'}: {len(graph.nodes):,} nodes")
    print(f"  blocks       {len(summary['blocks'])}, {size(summary['allocated_bytes'])} in all")
    print(f"  match range  {summary['match_range']}")


def report(graph: Graph, plan: Plan, *, as_json: bool) -> None:
    """Print what a plan says."""
    summary = summarize(graph, plan)
    if as_json:
        print_json(summary)
        return
    print(
        f"{shown(plan.model) or 'model'}: {summary['values']:,} values, {summary['nodes']:,} nodes"
    )
    print(f"  arena        {size(plan.arena_bytes)}, {_proof(plan)}")
    print(f"  lower bound  {size(plan.lower_bound)}")
    if plan.naive_bytes is not None:
        ratio = plan.naive_bytes / plan.arena_bytes if plan.arena_bytes else 1.0
        print(f"  naive        {size(plan.naive_bytes)}, {ratio:.1f} times the arena")
    if plan.workspaces:
        largest = max(work[5] for work in plan.workspaces)
        print(f"  workspace    {len(plan.workspaces)} buffers, the largest {size(largest)}")
    if graph.nodes:
        node = graph.nodes[plan.order[plan.peak_step]]
        where = f"step {plan.peak_step} of {len(plan.order)}"
        print(f"  peak         {where}: {shown(node.op)} {shown(node.name)}")
        for value in summary["peak_values"]:
            where = f"at {value['offset']:>12,}"
            if len(plan.spaces) > 1:
                where = f"{shown(value['space'], 12):<12} {where}"
            print(f"    {value['bytes']:>14,}  {where}  {shown(value['name'])}")
    if plan.move_cost is not None:
        _report_spaces(summary)


def summarize(graph: Graph, plan: Plan) -> dict[str, Any]:
    """Return what a plan says, as ``plan --json`` prints it."""
    placements = plan.placements
    peak_values = []
    for index in plan.live_at(plan.peak_step):
        place = placements[index]
        if place is not None:
            name = graph.values[index].name
            space = plan.spaces[place[0]][0]
            peak_values.append(
                {"name": name, "space": space, "offset": place[1], "bytes": place[2]}
            )
    return {
        "model": plan.model,
        "values": sum(place is not None for place in placements),
        "nodes": len(graph.nodes),
        "naive_bytes": plan.naive_bytes,
        "lower_bound": plan.lower_bound,
        "arena_bytes": plan.arena_bytes,
        "gap": plan.gap,
        "status": plan.status,
        "peak_step": plan.peak_step,
        "peak_values": peak_values,
        "alignment": plan.alignment,
        "options": plan.options,
        "digest": plan.digest,
        "spaces": [dict(zip(_SPACE_FIELDS, space, strict=True)) for space in plan.spaces],
        **_spills(graph, plan),
    }


def _spills(graph: Graph, plan: Plan) -> dict[str, Any]:
    """Return what moving bytes costs and which values are in slow memory, where a plan chose."""
    if plan.move_cost is None:
        return {}
    cost, bound = plan.move_cost
    status = "optimal" if cost == bound else "feasible"
    return {
        "move_cost": {"cost": cost, "lower_bound": bound, "status": status},
        "spilled": [asdict(value) for value in spilled(graph, plan)],
    }


def _report_spaces(summary: dict[str, Any]) -> None:
    """Print what is in each memory, and what is in slow memory and why."""
    for space in summary["spaces"]:
        capacity = space["capacity"]
        of = "" if capacity is None else f" of {capacity:,}"
        if space["status"] == "optimal":
            proof = "proven minimal for what is in it"
        else:
            proof = _gap(space["status"], space["arena_bytes"], space["lower_bound"])
        print(f"  space        {shown(space['name'])}: {space['arena_bytes']:,}{of} bytes, {proof}")
    moved = summary["move_cost"]
    if moved["status"] == "optimal":
        proof = "proven minimal for this order"
    else:
        proof = f"no plan costs less than {moved['lower_bound']:,}"
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
    """Return why values do not fit, as ``plan --json`` prints it."""
    return {
        "model": graph.name,
        "status": "infeasible" if error.proven else "unknown",
        "reason": str(error),
        "step": error.step,
        "node": error.node,
        "values": [{"name": name, "bytes": size} for name, size in error.values],
    }


def _proof(plan: Plan) -> str:
    """Say what is proven about a plan's size."""
    if plan.status == "optimal":
        what = "this order" if plan.move_cost is None else "what is where"
        return f"proven minimal for {what}"
    return _gap(plan.status, plan.arena_bytes, plan.lower_bound)


def _gap(status: str, arena_bytes: int, lower_bound: int) -> str:
    """Say how far the size of an arena is from what is proven."""
    gap = arena_bytes / lower_bound - 1 if lower_bound else 0.0
    return f"{status}, {gap:.2%} above the lower bound"
