"""``arenaplan recompute``: plans in which nodes run again, or values leave, to need fewer bytes."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import arenaplan
from arenaplan._core import Transfer
from arenaplan.base.documents import fields_of
from arenaplan.base.errors import InvalidOption
from arenaplan.cli.models import covers_facts, load_ahead, tell_covers
from arenaplan.cli.printing import print_json, say, shown, size
from arenaplan.cli.sources import delivering, goes_to_stdout
from arenaplan.cli.watch import watching
from arenaplan.graph.graph import Graph
from arenaplan.planner.bodies import bodies_of
from arenaplan.planner.kept import kept_labels

if TYPE_CHECKING:
    from arenaplan import Plan
    from arenaplan.planner import RecomputeCurve

_MOST_LINES = 20


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    if options.curve and options.output is not None:
        raise InvalidOption("--output writes one plan, and --curve makes several")
    if options.curve and options.to is not None:
        raise InvalidOption("--to writes one plan, and --curve makes several")
    if options.to is not None and options.output is None:
        options.output = Path("-")
    graph = load_ahead(options)
    if not any(node.cost for node in graph.nodes):
        say("warning: no node has a cost, so extra work counts nothing")
    may_repeat = any(
        node.effects.pure or node.effects.repeats or bodies_of(node) for node in graph.nodes
    )
    if not may_repeat and options.page_to is None:
        say("warning: no node is declared as pure, so none may run again")
    keywords: dict[str, Any] = {"inputs": options.inputs, "outputs": options.outputs}
    keywords["page_to"] = options.page_to
    if options.curve:
        with watching(options) as watch:
            curve = arenaplan.recompute_curve(
                graph, time_limit=options.time_limit, on_progress=watch, **keywords
            )
        if options.json:
            print_json({**curve_document(curve), **covers_facts(graph.covers)})
        else:
            tell_covers(graph.covers)
            print_curve(curve)
        watch.raise_if_stopped()
        return
    wanted = options.budget if options.budget is not None else options.strategy or options.max_extra
    with watching(options) as watch:
        plan = arenaplan.plan(
            graph,
            recompute=wanted,
            time_limit=options.time_limit,
            on_progress=watch,
            **keywords,
        )
    result = policy(graph, plan) if options.to == "jax-policy" else plan.to_json()
    with delivering(options, lambda: result):
        if options.json and not goes_to_stdout(options):
            print_json(_document(graph, plan))
        else:
            _print(graph, plan)
    watch.raise_if_stopped()


def policy(graph: Graph, plan: Plan) -> str:
    """
    Return a ``jax.checkpoint`` policy that saves the same values as a JAX step's plan.

    The importer names values after ``checkpoint_name``, or else the operator, followed by an index.
    """
    operators = {value: node.op for node in graph.nodes for value in node.outputs}
    labels = {}
    for value in graph.values:
        label, _, index = value.name.rpartition(":")
        made_by = operators.get(value.index, label)
        if value.kind == "activation" and index == str(int(value.index)) and label != made_by:
            labels[int(value.index)] = label
    if not labels:
        raise InvalidOption(
            "--to jax-policy: no value of the graph has a name of checkpoint_name; name arrays of "
            "the loss by jax.ad_checkpoint.checkpoint_name, or call "
            "arenaplan.integrations.jax.checkpoint_policy, which names all of them"
        )
    names = "".join(f"    {json.dumps(name)},\n" for name in kept_labels(graph, labels, plan))
    return f"jax.checkpoint_policies.save_only_these_names(\n{names})\n"


def curve_document(curve: RecomputeCurve) -> dict[str, Any]:
    """Return a curve for JSON."""
    return {
        "cost": curve.cost,
        "floor": curve.floor,
        "points": [
            {
                "arena_bytes": point.arena_bytes,
                "extra_cost": point.extra,
                "extra_bound": point.bound,
            }
            for point in curve.points
        ],
    }


def print_curve(curve: RecomputeCurve) -> None:
    """Print a curve as a table."""
    print(f"  {'arena':>18}  {'of plain':>8}  {'extra work':>10}  {'proven least':>12}")
    first = curve.points[0].arena_bytes or 1
    for point in curve.points:
        part = point.arena_bytes / first
        print(
            f"  {point.arena_bytes:>18,}  {part:>8.1%}  {point.extra:>10.2%}  {point.bound:>12.2%}"
        )
    print(
        f"  {curve.floor:>18,}  {curve.floor / first:>8.1%}  floor: no schedule needs fewer bytes"
    )


def again(graph: Graph, plan: Plan) -> list[dict[str, Any]]:
    """Return the nodes that run again with their work and bytes, most expensive first."""
    runs = Counter(it for it in plan.schedule or () if isinstance(it, int))
    sizes = graph.core.sizes
    total = sum(node.cost for node in graph.nodes) or 1
    found = []
    for index, count in runs.items():
        if count > 1:
            node = graph.nodes[index]
            made = sum(sizes[value] for value in node.outputs if value is not None)
            extra = (count - 1) * node.cost / total
            found.append({"node": node.name, "runs": count, "extra_cost": extra, "bytes": made})
    return sorted(found, key=lambda row: (-row["extra_cost"], row["node"]))


def inside(graph: Graph, plan: Plan) -> list[dict[str, Any]]:
    """Return the nodes in whose bodies nodes run again, with work and bytes, by falling work."""
    runs = Counter(it for it in plan.schedule or () if isinstance(it, int))
    total = sum(node.cost for node in graph.nodes) or 1
    again = graph.for_plan(plan)
    rows = [
        {
            "node": graph.nodes[index].name,
            "runs": runs[index],
            "extra_cost": runs[index] * (again.nodes[index].cost - graph.nodes[index].cost) / total,
            "bytes": size,
        }
        for index, size in plan.inner
    ]
    return sorted(rows, key=lambda row: (-row["extra_cost"], row["node"]))


def copied(graph: Graph, plan: Plan) -> list[dict[str, Any]]:
    """Return the values copied to slow memory with their work, most expensive first."""
    if plan.paging is None:
        return []
    copies = Counter(it.value for it in plan.schedule or () if isinstance(it, Transfer))
    total = sum(node.cost for node in graph.nodes) or 1
    sizes = graph.core.sizes
    rows = [
        {
            "value": graph.values[value].name,
            "copies": count,
            "extra_cost": count * sizes[value] * plan.paging.cost / total,
            "bytes": sizes[value],
        }
        for value, count in copies.items()
    ]
    return sorted(rows, key=lambda row: (-row["extra_cost"], row["value"]))


def _schedule(plan: Plan) -> list[int | dict[str, int]] | None:
    """Return the plan's schedule in plan file form."""
    if plan.schedule is None:
        return None
    return [it if isinstance(it, int) else {it.way: it.value} for it in plan.schedule]


def _document(graph: Graph, plan: Plan) -> dict[str, Any]:
    """Return the ``recompute --json`` document."""
    return {
        "model": plan.model,
        **covers_facts(plan.covers),
        **fields_of(plan, "arena_bytes lower_bound extra_cost extra_bound"),
        "floor": plan.recompute_floor,
        "schedule": _schedule(plan),
        "again": again(graph, plan),
        "inside": inside(graph, plan),
        "spaces": [fields_of(space, "name arena_bytes") for space in plan.spaces],
        "copied": copied(graph, plan),
    }


def _print(graph: Graph, plan: Plan) -> None:
    """Print a plan with the nodes that run again."""
    print(f"{shown(plan.model) or 'model'}: {size(plan.arena_bytes)}")
    tell_covers(plan.covers)
    if plan.schedule is None:
        print("  no node runs again")
        return
    if plan.paging is not None:
        for space in plan.spaces:
            print(f"  {shown(space.name, 12):<12} {size(space.arena_bytes)}")
    print(f"  extra work   {plan.extra_cost:.2%}, of which {plan.extra_bound:.2%} are proven")
    print(f"  floor        {size(plan.recompute_floor or 0)}: no schedule needs fewer bytes")
    rows = again(graph, plan)
    print(f"  run again    {len(rows):,} nodes: extra work, bytes that need not be kept, runs")
    _print_rows(rows, "runs", "node")
    rows = inside(graph, plan)
    if rows:
        print(f"  run inside   {len(rows):,} nodes, whose bodies repeat nodes: work, bytes, runs")
        _print_rows(rows, "runs", "node")
    rows = copied(graph, plan)
    if rows:
        print(f"  copied       {len(rows):,} values: extra work, bytes, copies out and in")
        _print_rows(rows, "copies", "value")


def _print_rows(rows: list[dict[str, Any]], count: str, name: str) -> None:
    """Print nodes or values with their extra work and bytes."""
    for row in rows[:_MOST_LINES]:
        called = shown(row[name], 40)
        print(f"  {row['extra_cost']:>10.3%}  {row['bytes']:>14,}  {row[count]}  {called}")
    if len(rows) > _MOST_LINES:
        print(f"  … and {len(rows) - _MOST_LINES:,} more")
