"""``arenaplan fit``: a .tflite model rewritten until the arena fits a budget."""

from __future__ import annotations

import argparse
from math import inf
from typing import TYPE_CHECKING, Any

from arenaplan.base.documents import fields_of
from arenaplan.base.errors import CapacityExceeded, InvalidOption, NotAModel
from arenaplan.cli.models import is_tflite, load_model
from arenaplan.cli.printing import print_json, say, shown, size
from arenaplan.cli.sources import goes_to_stdout, write_files, write_result
from arenaplan.cli.watch import watching
from arenaplan.deploy.code import calling_cmsis_nn, generated
from arenaplan.deploy.fitting import Fit, FitOptions, fit, fits
from arenaplan.planner.planning import plan as make_plan
from arenaplan.tflite.reader.tflite_model import read_bytes

if TYPE_CHECKING:
    from arenaplan.tflite.rewrite.strip_regions import SplitRegion


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    if not is_tflite(options.model):
        raise NotAModel("the model is not a .tflite model; fit rewrites only .tflite models")
    if options.bind:
        raise InvalidOption("--bind: a .tflite model has the shapes that it stores")
    if options.to == "c-code":
        _fit_code(options)
        return
    kernels = options.kernels or "reference"
    limits = FitOptions(
        budget=options.budget,
        max_macs=options.max_macs,
        max_operators=options.max_ops,
        max_slowdown=None if options.max_slowdown == inf else options.max_slowdown,
        pointer=options.pointer or (64 if kernels == "reference" else 32),
        kernels=kernels,
        shares=options.kernels is not None,
        overlap=options.overlap,
    )
    data, path = read_bytes(options.model)
    name = "model" if path is None else path.stem
    if options.pareto:
        if options.output is not None or options.budget is not None:
            raise InvalidOption("--pareto writes no file and has no budget")
        with watching(options) as watch:
            points = fits(data, limits, time_limit=options.time_limit, on_progress=watch)
        _print_all(options, name, points)
        watch.raise_if_stopped()
        return
    with watching(options) as watch:
        found = fit(data, limits, time_limit=options.time_limit, on_progress=watch)
    if found.unproven:
        say(f"warning: {found.unproven} smaller rewrites were left out: they are not proven")
    is_met = options.budget is None or found.fits(options.budget)
    if is_met and options.output is not None:
        write_result(options.output, found.data)
    if options.json and not (is_met and goes_to_stdout(options)):
        print_json({"model": name, "budget": options.budget, **_document(found)})
    elif is_met:
        tell = say if goes_to_stdout(options) else print
        tell(_report(name, found))
    watch.raise_if_stopped()
    if not is_met:
        raise CapacityExceeded(
            f"{shown(name)}: the smallest arena that was reached has {size(found.total)}, the "
            f"budget {options.budget:,}; its floor is tensor {shown(found.floor)!r}, and no "
            f"rewrite that was examined in this order of the operators can need less than "
            f"{found.bound:,} bytes"
        )


def _fit_code(options: argparse.Namespace) -> None:
    """Write a model as a C function whose arena fits the budget."""
    for name in ("pareto", "overlap", "pointer"):
        if getattr(options, name):
            raise InvalidOption(f"option --{name}: --to c-code has kernels of its own")
    graph = load_model(options)
    if options.kernels:
        graph = calling_cmsis_nn(graph, options.kernels)
    with watching(options) as watch:
        plan = make_plan(graph, target=options.to, time_limit=options.time_limit, on_progress=watch)
    name = "model" if isinstance(options.model, bytes) else options.model.stem
    files = generated(graph, plan, name=name)
    is_met = options.budget is None or files.arena_bytes <= options.budget
    if is_met and options.output is not None:
        write_files(options.output, files.files())
    document = {
        "model": name,
        "budget": options.budget,
        "total": files.arena_bytes,
        "bound": plan.lower_bound,
        "constants": files.constant_bytes,
        "strips": len(plan.strips),
        "calls": files.calls,
    }
    bound = f"{plan.lower_bound:,} is the lower bound"
    if options.json:
        print_json(document)
    elif is_met:
        print(
            f"{shown(name)}: {size(files.arena_bytes)} that are written, {bound}; "
            f"{size(files.constant_bytes)} of constants"
        )
    watch.raise_if_stopped()
    if not is_met:
        raise CapacityExceeded(
            f"{shown(name)}: the arena of generated code has {size(files.arena_bytes)}, the budget "
            f"{options.budget:,}; {bound} for these steps"
        )


def _document(found: Fit) -> dict[str, Any]:
    """Return a rewrite as JSON."""
    return {
        "rewritten": found.is_rewritten,
        "total_before": found.before.total,
        "head_before": found.before.head,
        "tail_before": found.before.tail,
        **fields_of(found.after, "head tail startup"),
        **fields_of(found, "total bound head_bound macs floor reordered unproven new_operators"),
        "moved_bytes": found.moved,
        "expected_latency": found.latency,
        "operators_before": found.operators[0],
        "operators": found.operators[1],
        "examined": found.tried,
        "regions": [_region(region) for region in found.regions],
        "file_bytes": len(found.data),
    }


def _region(region: SplitRegion) -> dict[str, Any]:
    """Return a region as JSON."""
    return {
        **fields_of(region, "first last cuts"),
        "padded": sorted(region.padded),
        "held": sorted(region.held),
    }


def _report(name: str, found: Fit) -> str:
    """Return the text of a rewrite report."""
    before, after = found.before, found.after
    if not found.is_rewritten:
        return (
            f"{shown(name)}: no rewrite that was examined needs less than the model itself: "
            f"{size(before.total)}\n  {_bound(found)}\n  floor: tensor {shown(found.floor)!r}"
        )
    change = after.total / before.total - 1
    split = ", ".join(
        f"{r.first}" + (f" to {r.last}" if r.last > r.first else "") + f" in {len(r.cuts) + 1}"
        for r in found.regions
    )
    lines = [
        f"{shown(name)}: arena {before.total:,} -> {size(after.total)} ({change:+.1%})",
        f"  head {before.head:,} -> {after.head:,}, tail {before.tail:,} -> {after.tail:,}",
        f"  multiply-accumulates x{found.macs:.3f}, operators {found.operators[0]} -> "
        f"{found.operators[1]}, expected time x{found.latency:.2f}",
        f"  {_bound(found)}",
        f"  floor: tensor {shown(found.floor)!r}",
    ]
    if found.reordered:
        lines.append("  the operators run in another order, which needs fewer bytes")
    if split:
        lines.append(f"  operators in strips: {split}")
    if found.new_operators:
        lines.append(
            f"  the resolver must register {', '.join(found.new_operators)} beside the operators "
            "that it has"
        )
    return "\n".join(lines)


def _bound(found: Fit) -> str:
    """Return the text about the lower bound for all rewrites in the family."""
    gap = found.total / found.bound - 1 if found.bound else 0.0
    return (
        f"bound of the {found.tried:,} regions examined in this order: {found.bound:,} bytes "
        f"(gap {gap:.1%})"
    )


def _print_all(options: argparse.Namespace, name: str, found: list[Fit]) -> None:
    """Print rewrites from the fewest bytes to the most."""
    if options.json:
        print_json({"model": name, "points": [_document(point) for point in found]})
        return
    print(f"{'total':>12} {'head':>12} {'MACs':>8} {'operators':>9} {'time':>6}")
    for point in found:
        print(
            f"{point.total:>12,} {point.after.head:>12,} {point.macs:>8.4f} "
            f"{point.operators[1]:>9} {point.latency:>6.3f}"
        )
