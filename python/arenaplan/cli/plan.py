"""``arenaplan plan``: how many bytes, is that minimal, and where does everything go."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import arenaplan
from arenaplan.cli.common import add_command, add_json, load_model, print_json, say, shown, size
from arenaplan.errors import CapacityExceeded, InvalidOption
from arenaplan.graph import Graph
from arenaplan.incremental import IncrementalMode, report_incremental
from arenaplan.sharing import SharingMode, SizeRule, report_storage_sharing

if TYPE_CHECKING:
    from arenaplan import Plan
    from arenaplan.cli.common import Commands

_SHARING: dict[str, tuple[SharingMode, SizeRule]] = {
    "storage-sharing": ("default", "bytes"),
    "nnvm": ("nnvm", "elements_x4"),
}
"""Strategies with blocks: whose rules, and what counts as a size."""

_INCREMENTAL: dict[str, IncrementalMode] = {
    "incremental": "default",
    "litert": "litert",
    "tflite-2019": "tflite-2019",
}
"""Strategies that place values one after the other: whose rules."""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "plan", "plan a model's arena and prove its size", execute)
    add_plan_options(parser)
    parser.add_argument(
        "--capacity", type=int, metavar="BYTES", help="most bytes the arena may have"
    )
    parser.add_argument(
        "--strategy",
        choices=("arena", *_SHARING, *_INCREMENTAL),
        default="arena",
        help="offsets in one arena; blocks that values share, as ours or as NNVM; "
        "or values one after the other, as ours or as TensorFlow Lite (default: arena)",
    )
    for flag, name, default in (("--match-range", "N", 16), ("--num-temp", "N", 1)):
        parser.add_argument(
            flag, type=int, metavar=name, default=default, help=f"storage sharing ({default})"
        )
    parser.add_argument("--auto-search", action="store_true", help="storage sharing: try ranges")
    parser.add_argument(
        "--size-rule",
        choices=("bytes", "elements_x4"),
        help="storage sharing (bytes; nnvm: elements_x4)",
    )
    parser.add_argument(
        "--parallel-safe", action="store_true", help="be safe in every order of the nodes"
    )
    add_json(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the plan as JSON")


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of :func:`arenaplan.plan`."""
    parser.add_argument(
        "--align", type=int, default=64, metavar="BYTES", help="divides every offset (default: 64)"
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


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    graph = load_model(options)
    if options.strategy != "arena":
        execute_classic(graph, options)
        return
    try:
        plan = arenaplan.plan(
            graph,
            alignment=options.align,
            in_place=not options.no_in_place,
            preserve_inputs=options.preserve_inputs,
            workspace=options.workspace,
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


def execute_classic(graph: Graph, options: argparse.Namespace) -> None:
    """Plan with one of the classic planners, and report it."""
    strategy = options.strategy
    for flag in ("output", "capacity"):
        if getattr(options, flag) is not None:
            raise InvalidOption(f"option {flag}: strategy {strategy} has no such thing")
    if strategy in _INCREMENTAL:
        if options.parallel_safe or options.no_in_place:
            flag = "parallel_safe" if options.parallel_safe else "no_in_place"
            raise InvalidOption(f"option {flag}: strategy {strategy} has no such thing")
        summary = report_incremental(
            graph,
            strategy=strategy,
            mode=_INCREMENTAL[strategy],
            alignment=options.align,
            preserve_inputs=options.preserve_inputs,
            workspace=options.workspace,
        )
    else:
        mode, size_rule = _SHARING[strategy]
        summary = report_storage_sharing(
            graph,
            strategy=strategy,
            mode=mode,
            match_range=options.match_range,
            auto_search=options.auto_search,
            num_temp=options.num_temp,
            size_rule=options.size_rule or size_rule,
            parallel_safe=options.parallel_safe,
        )
    if options.json:
        print_json(summary)
        return
    print(f"{shown(graph.name) or 'model'}: {len(graph.nodes):,} nodes, strategy {strategy}")
    if strategy in _INCREMENTAL:
        print(f"  arena        {size(summary['arena_bytes'])}")
        if summary["persistent_bytes"]:
            print(f"  persistent   {size(summary['persistent_bytes'])} of it")
        return
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
            print(f"    {value['bytes']:>14,}  at {value['offset']:>12,}  {shown(value['name'])}")


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
        "peak_step": plan.peak_step,
        "peak_values": peak_values,
        "alignment": plan.alignment,
        "options": plan.options,
        "digest": plan.digest,
    }


def _proof(plan: Plan) -> str:
    """Say what is proven about a plan's size."""
    if plan.status == "optimal":
        return "proven minimal for this order"
    return f"{plan.status}, {plan.gap:.2%} above the lower bound"
