"""``arenaplan plan``: how many bytes, is that minimal, and where does everything go."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import arenaplan
from arenaplan.cli.common import add_command, add_json, load_model, print_json, say, shown, size
from arenaplan.errors import CapacityExceeded, InvalidOption
from arenaplan.graph import Graph
from arenaplan.sharing import report_storage_sharing

if TYPE_CHECKING:
    from arenaplan import Plan
    from arenaplan.cli.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "plan", "plan a model's arena and prove its size", execute)
    add_plan_options(parser)
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


def add_plan_options(parser: argparse.ArgumentParser, optimize: str = "all") -> None:
    """Add the options of :func:`arenaplan.plan`; ``optimize`` is what is done by default."""
    parser.add_argument(
        "--align", type=int, default=64, metavar="BYTES", help="divides every offset (default: 64)"
    )
    parser.add_argument(
        "--optimize",
        default=optimize,
        metavar="all|none|NAME,NAME",
        help="what may be done to need fewer bytes: views, in-place, elision, fusion, order, "
        f"streaming (default: {optimize})",
    )
    parser.add_argument(
        "--order",
        choices=("given", "search"),
        default="search",
        help="keep the model's order of operators, or look for a better one (default: search)",
    )
    parser.add_argument(
        "--effort",
        choices=("fast", "default", "max"),
        default="default",
        help="how long to look for a better choice",
    )
    parser.add_argument(
        "--no-in-place", action="store_true", help="never let an output take over an input's bytes"
    )
    parser.add_argument(
        "--preserve-inputs", action="store_true", help="keep the inputs' bytes until the end"
    )
    parser.add_argument(
        "--workspace",
        choices=("none", "auto"),
        default="none",
        help="count activations only, or add what the NumPy kernels need (default: none)",
    )


def plan_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of :func:`arenaplan.plan` that :func:`add_plan_options` reads."""
    techniques = (
        arenaplan.techniques() if options.optimize == "all" else options.optimize.split(",")
    )
    if options.order == "given":
        techniques = [name for name in techniques if name != "order"]
    return {
        "alignment": options.align,
        "optimize": techniques or ["none"],
        "effort": options.effort,
        "in_place": not options.no_in_place,
        "preserve_inputs": options.preserve_inputs,
        "workspace": options.workspace,
    }


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    graph = load_model(options)
    if options.strategy == "storage-sharing":
        share_blocks(graph, options)
        return
    try:
        plan = arenaplan.plan(
            graph,
            **plan_arguments(options),
            capacity=options.capacity,
            parallel_safe=options.parallel_safe,
        )
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
    fused = sum(len(step) for step in plan.steps if len(step) > 1)
    if fused:
        print(
            f"  steps        {len(plan.steps)}; {fused} of {len(graph.nodes)} nodes run with others"
        )
    if plan.floor is not None:
        print(f"  floor        {size(plan.floor)} for some step by itself, in any order")
    if graph.nodes:
        where = f"step {plan.peak_step} of {len(plan.steps)}"
        print(f"  peak         {where}: {step_label(graph, plan, plan.peak_step)}")
        for value in summary["peak_values"]:
            print(f"    {value['bytes']:>14,}  at {value['offset']:>12,}  {shown(value['name'])}")


def step_label(graph: Graph, plan: Plan, step: int) -> str:
    """Return what a step runs, for people."""
    nodes = [graph.nodes[index] for index in plan.steps[step]]
    ops = "+".join(node.op for node in nodes)
    return f"{shown(ops, 40)} {shown(nodes[-1].name, 40)}"


def reasons(graph: Graph, plan: Plan) -> list[dict[str, Any]]:
    """Return, per value that shares bytes with another, which one and why."""
    by_node = {step[-1]: step for step in plan.steps}
    why = []
    for node, read, written, rule in plan.shares:
        step = plan.step_operands(node)
        source, result = step[0][read], step[1][written]
        if source is None or result is None:
            continue
        place = plan.placements[result]
        why.append(
            {
                "value": graph.values[result].name,
                "rule": rule,
                "partner": graph.values[source].name,
                "bytes": place[2] if place else 0,
                "nodes": [graph.nodes[index].name for index in by_node[node]],
            }
        )
    return why


def summarize(graph: Graph, plan: Plan) -> dict[str, Any]:
    """Return what a plan says, as ``plan --json`` prints it."""
    placements = plan.placements
    peak_values = []
    for index in plan.live_at(plan.peak_step):
        place = placements[index]
        if place is not None:
            name = graph.values[index].name
            peak_values.append({"name": name, "offset": place[1], "bytes": place[2]})
    return {
        "model": plan.model,
        "values": sum(place is not None for place in placements),
        "nodes": len(graph.nodes),
        "naive_bytes": plan.naive_bytes,
        "lower_bound": plan.lower_bound,
        "arena_bytes": plan.arena_bytes,
        "gap": plan.gap,
        "status": plan.status,
        "steps": len(plan.steps),
        "order": plan.order_search,
        "floor": plan.floor,
        "peak_step": plan.peak_step,
        "peak_values": peak_values,
        "alignment": plan.alignment,
        "options": plan.options,
        "digest": plan.digest,
    }


def _proof(plan: Plan) -> str:
    """Say what is proven about a plan's size."""
    if plan.status == "optimal" and plan.arena_bytes == plan.floor:
        return "proven minimal for these steps in any order"
    if plan.status == "optimal" and plan.order_search == "complete":
        return "proven minimal for this order, and the order for these steps"
    if plan.status == "optimal":
        return "proven minimal for this order"
    return f"{plan.status}, {plan.gap:.2%} above the lower bound"
