"""``arenaplan plan``: how many bytes, is that minimal, and where does everything go."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import arenaplan
from arenaplan.base.errors import CapacityExceeded, InvalidOption, SpacesExceeded
from arenaplan.classic.incremental import report_incremental
from arenaplan.classic.sharing import report_storage_sharing
from arenaplan.cli.ahead import Ahead, flow_facts, load_ahead, tell_flow
from arenaplan.cli.common import has_ranges, load_model, print_json, say, shown, size
from arenaplan.cli.family import plan_shapes
from arenaplan.cli.micro import arena_of, print_arena
from arenaplan.cli.notes import notes_of
from arenaplan.cli.options import plan_options, seen_by
from arenaplan.cli.outputs import delivering, goes_to_stdout
from arenaplan.cli.proofs import MOVE_SCOPE, gap_text, proof_of
from arenaplan.cli.share import share
from arenaplan.cli.syntax.plan import INCREMENTAL, MATCH_RANGE, NUM_TEMP, SHARING
from arenaplan.cli.watch import watching
from arenaplan.graph import Graph
from arenaplan.graph.model import Model, flat_sizes
from arenaplan.planner.spill import spilled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arenaplan import Plan


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


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    _refuse_unused(options)
    if options.time_limit is not None and _has_no_search(options):
        raise InvalidOption("option --time-limit: it is for the strategy arena")
    if options.with_graph and (options.output is None or _is_shared_or_classic(options)):
        raise InvalidOption("option --with-graph: it is for -o, and for plans of one model")
    if options.share is not None:
        share(options)
        return
    if options.others:
        raise InvalidOption("several models need --share, which says when they run")
    if has_ranges(options):
        plan_shapes(options, plan_options(options))
        return
    if options.strategy != "arena":
        execute_classic(load_model(options), options)
        return
    ahead = load_ahead(options)
    graph = seen_by(ahead.graph, plan_options(options), options)
    try:
        with watching(options) as watch:
            plan = arenaplan.plan(
                graph, plan_options(options), time_limit=options.time_limit, on_progress=watch
            )
    except SpacesExceeded as error:
        if options.json:
            print_json(_no_room(graph, error))
        raise
    except CapacityExceeded as error:
        if error.plan is not None:
            report(graph, error.plan, options, as_json=options.json, ahead=ahead)
        watch.raise_if_stopped()
        raise
    with delivering(options, lambda: _document(graph, plan, options)):
        pins = {pattern: space for space, pattern in options.pin}
        as_json = options.json and not goes_to_stdout(options)
        report(graph, plan, options, as_json=as_json, pins=pins, ahead=ahead)
    watch.raise_if_stopped()


def _document(graph: Graph, plan: Plan, options: argparse.Namespace) -> str:
    """Return the plan file, or the model file with the plan and its graph."""
    if not options.with_graph:
        return plan.to_json()
    sizes = flat_sizes(dict(options.bind))
    return Model(plan.model, list(sizes), [(list(sizes.values()), graph, plan)]).to_json()


def _has_no_search(options: argparse.Namespace) -> bool:
    """Return whether a classic planner was chosen, which searches nothing."""
    return bool(options.strategy != "arena")


def _is_shared_or_classic(options: argparse.Namespace) -> bool:
    """Return whether several models share an arena, or a classic planner was chosen."""
    return options.share is not None or options.strategy != "arena"


def _refuse_unused(options: argparse.Namespace) -> None:
    """Refuse options of strategies that were not chosen."""
    if options.strategy in SHARING:
        return
    for flag in ("match_range", "num_temp", "auto_search", "size_rule"):
        if getattr(options, flag) not in (None, False):
            name = flag.replace("_", "-")
            raise InvalidOption(
                f"option --{name}: strategy {options.strategy} has none, only "
                f"{' and '.join(SHARING)}"
            )


def execute_classic(graph: Graph, options: argparse.Namespace) -> None:
    """Plan with one of the classic planners, and report it."""
    strategy = options.strategy
    for flag in ("inputs", "outputs"):
        if getattr(options, flag) != "inside":
            raise InvalidOption(f"option {flag}: strategy {strategy} has all values inside")
    for flag in ("output", "capacity"):
        if getattr(options, flag) is not None:
            raise InvalidOption(f"option {flag}: strategy {strategy} has no such thing")
    if strategy in INCREMENTAL:
        if options.parallel_safe or options.no_in_place:
            flag = "parallel_safe" if options.parallel_safe else "no_in_place"
            raise InvalidOption(f"option {flag}: strategy {strategy} has no such thing")
        summary = report_incremental(
            graph,
            strategy=strategy,
            mode=INCREMENTAL[strategy],
            alignment=options.align.everywhere or 64,
            preserve_inputs=options.preserve_inputs,
            workspace=options.workspace or "none",
        )
    else:
        mode, size_rule = SHARING[strategy]
        summary = report_storage_sharing(
            graph,
            strategy=strategy,
            mode=mode,
            match_range=MATCH_RANGE if options.match_range is None else options.match_range,
            auto_search=options.auto_search,
            num_temp=NUM_TEMP if options.num_temp is None else options.num_temp,
            size_rule=options.size_rule or size_rule,
            parallel_safe=options.parallel_safe,
        )
    if options.json:
        print_json(summary)
        return
    print(f"{shown(graph.name) or 'model'}: {len(graph.nodes):,} nodes, strategy {strategy}")
    if strategy in INCREMENTAL:
        print(f"  arena        {size(summary['arena_bytes'])}")
        if summary["persistent_bytes"]:
            print(f"  persistent   {size(summary['persistent_bytes'])} of it")
        for note in summary["notes"]:
            print(f"  note         {note}")
        return
    print(f"  blocks       {len(summary['blocks'])}, {size(summary['allocated_bytes'])} in all")
    print(f"  match range  {summary['match_range']}")


def report(
    graph: Graph,
    plan: Plan,
    options: argparse.Namespace,
    *,
    as_json: bool,
    pins: Mapping[str, str] | None = None,
    ahead: Ahead | None = None,
) -> None:
    """Print the report of a plan."""
    summary = summarize(graph, plan, pins)
    if ahead is not None:
        summary.update(ahead.facts())
    arena = arena_of(plan, options)
    limit = plan.spaces[0].capacity if len(plan.spaces) == 1 else None
    if arena is not None and limit is not None and plan.arena_bytes <= limit < arena["total"]:
        say(
            f"warning: {limit:,} bytes are enough for what is planned, and not for the whole arena "
            f"of {arena['total']:,}, which 'arenaplan gate' compares with budgets"
        )
    if as_json:
        print_json(summary if arena is None else {**summary, "runtime": arena})
        return
    print(
        f"{shown(plan.model) or 'model'} for {shown(plan.target.name)}: "
        f"{summary['values']:,} values, {summary['nodes']:,} nodes"
    )
    print(f"  arena        {size(plan.arena_bytes)}, {proof_of(plan)}")
    if ahead is not None:
        ahead.tell()
    tell_flow(graph)
    for note in notes_of(plan, has_arena=arena is not None):
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
            f"  recompute    {len(repeated)} nodes run in {runs} steps, so that their inputs are "
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
        for value in summary["peak_values"]:
            where = f"at {value['offset']:>12,}"
            if len(plan.spaces) > 1:
                where = f"{shown(value['space'], 12):<12} {where}"
            print(f"    {value['bytes']:>14,}  {where}  {shown(value['name'])}")
    if plan.move_cost is not None:
        _report_spaces(summary)


def step_label(graph: Graph, plan: Plan, step: int) -> str:
    """Return the text of the nodes of a step."""
    nodes = [graph.nodes[index] for index in plan.steps[step]]
    ops = "+".join(node.op for node in nodes)
    return f"{shown(ops, 40)} {shown(nodes[-1].name, 40)}"


def summarize(graph: Graph, plan: Plan, pins: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the document of ``plan --json``."""
    placements = plan.placements
    peak_values = []
    for index in plan.live_at(plan.peak_step):
        place = placements[index]
        if place is not None:
            name = graph.values[index].name
            space = plan.space_name(place.space)
            peak_values.append(
                {"name": name, "space": space, "offset": place.offset, "bytes": place.bytes}
            )
    return {
        "model": plan.model,
        "target": plan.target.name,
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
        "workers": plan.options["workers"],
        "parallelism": None if plan.timetable is None else plan.timetable.parallelism,
        "peak_step": plan.peak_step,
        "peak_values": peak_values,
        "alignment": plan.alignment,
        "options": plan.options,
        "digest": plan.digest,
        "spaces": [
            {field: getattr(space, field) for field in _SPACE_FIELDS} for space in plan.spaces
        ],
        "caller_buffers": [
            {"name": buffer.name, "bytes": buffer.bytes} for buffer in plan.caller_buffers
        ],
        **flow_facts(graph),
        **_spills(graph, plan, pins),
    }


def _spills(graph: Graph, plan: Plan, pins: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the move cost and the values in slow memory, where a plan chose."""
    if plan.move_cost is None:
        return {}
    cost, bound = plan.move_cost.cost, plan.move_cost.lower_bound
    status = "optimal" if cost == bound else "feasible"
    return {
        "move_cost": {"cost": cost, "lower_bound": bound, "status": status},
        "spilled": [asdict(value) for value in spilled(graph, plan, pins)],
    }


def _report_spaces(summary: dict[str, Any]) -> None:
    """Print the content of each memory, and the values in slow memory with reasons."""
    for space in summary["spaces"]:
        capacity = space["capacity"]
        of = "" if capacity is None else f" of {capacity:,}"
        if space["status"] == "optimal":
            proof = "proven minimal for the values in it"
        else:
            proof = gap_text(space["status"], space["arena_bytes"], space["lower_bound"])
        print(f"  space        {shown(space['name'])}: {space['arena_bytes']:,}{of} bytes, {proof}")
    moved = summary["move_cost"]
    if moved["status"] == "optimal":
        proof = f"proven minimal for {MOVE_SCOPE}"
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
    """Return why values do not fit, as ``plan --json`` prints it."""
    return {
        "model": graph.name,
        "status": "infeasible" if error.proven else "unknown",
        "reason": str(error),
        "step": error.step,
        "node": error.node,
        "values": [{"name": name, "bytes": size} for name, size in error.values],
    }
