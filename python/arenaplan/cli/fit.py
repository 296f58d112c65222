"""``arenaplan fit``: a .tflite model rewritten until the arena fits a budget."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arenaplan.cli.common import (
    add_json,
    add_model_command,
    byte_count,
    group,
    is_tflite,
    print_json,
    say,
    shown,
    size,
    whole,
)
from arenaplan.cli.options import add_time_limit
from arenaplan.cli.outputs import goes_to_stdout, write_result
from arenaplan.cli.watch import watching
from arenaplan.errors import CapacityExceeded, InvalidOption, NotAModel
from arenaplan.fitting import Fit, FitOptions, fit, fits
from arenaplan.importers.tflite.micro.build import KERNEL_SETS
from arenaplan.importers.tflite.model import read_bytes

if TYPE_CHECKING:
    from arenaplan.cli.common import Commands
    from arenaplan.rewrite.regions import Region


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_model_command(commands, "fit", execute)
    group(parser, "output").add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="file to write; - is stdout"
    )
    limits = group(parser, "limits")
    limits.add_argument(
        "--budget",
        type=byte_count,
        metavar="BYTES",
        help="most bytes of the whole arena, such as 62KiB (default: as few as possible)",
    )
    limits.add_argument(
        "--max-macs",
        type=_multiple,
        default=1.05,
        metavar="FACTOR",
        help="most multiply-accumulates, as a multiple of those of the model (default: 1.05)",
    )
    limits.add_argument(
        "--max-ops", type=whole(0), metavar="N", help="most operators of the new model"
    )
    limits.add_argument(
        "--max-slowdown",
        type=_slowdown,
        default=1.1,
        metavar="RATIO",
        help="longest expected time of a run, as a multiple of that of the model, or 'none' "
        "(default: 1.1)",
    )
    add_time_limit(parser)
    runtime = group(parser, "runtime")
    runtime.add_argument(
        "--pointer",
        type=int,
        choices=(32, 64),
        help="bits of a pointer of the machine that runs the model (default: 64 for reference "
        "kernels, else 32)",
    )
    runtime.add_argument(
        "--kernels",
        choices=KERNEL_SETS,
        help="kernels of the runtime: scratch memory is counted for these, and results of "
        "elementwise kernels take the place of an operand where these allow it (default: plans "
        "for all kernels, with the figures of reference kernels)",
    )
    runtime.add_argument(
        "--overlap",
        action="store_true",
        help="let results overwrite operands that are used up on the way; only for firmware with "
        "reference kernels",
    )
    group(parser, "output").add_argument(
        "--pareto",
        action="store_true",
        help="list rewrites that trade bytes for work and operators, and write none",
    )
    add_json(parser)


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    if not is_tflite(options.model):
        raise NotAModel("the model is no .tflite model, which is all that fit rewrites")
    if options.bind:
        raise InvalidOption("--bind: a .tflite model has the shapes that it stores")
    kernels = options.kernels or "reference"
    limits = FitOptions(
        budget=options.budget,
        max_macs=options.max_macs,
        max_operators=options.max_ops,
        max_slowdown=options.max_slowdown,
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
            f"rewrite that was examined can need less than {found.bound:,} bytes"
        )


def _document(found: Fit) -> dict[str, Any]:
    """Return a rewrite as JSON."""
    return {
        "rewritten": found.is_rewritten,
        "total_before": found.before.total,
        "total": found.total,
        "head_before": found.before.head,
        "head": found.after.head,
        "tail_before": found.before.tail,
        "tail": found.after.tail,
        "startup": found.after.startup,
        "bound": found.bound,
        "head_bound": found.head_bound,
        "macs": found.macs,
        "moved_bytes": found.moved,
        "expected_latency": found.latency,
        "operators_before": found.operators[0],
        "operators": found.operators[1],
        "new_operators": list(found.new_operators),
        "floor": found.floor,
        "examined": found.tried,
        "regions": [_region(region) for region in found.regions],
        "file_bytes": len(found.data),
    }


def _region(region: Region) -> dict[str, Any]:
    """Return a region as JSON."""
    return {
        "first": region.first,
        "last": region.last,
        "cuts": list(region.cuts),
        "padded": sorted(region.padded),
        "held": sorted(region.held),
    }


def _report(name: str, found: Fit) -> str:
    """Return the text of a rewrite."""
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
    if split:
        lines.append(f"  operators in strips: {split}")
    if found.new_operators:
        lines.append(
            f"  the resolver must register {', '.join(found.new_operators)} beside the operators "
            "that it has"
        )
    return "\n".join(lines)


def _bound(found: Fit) -> str:
    """Return the text of the bytes that no rewrite of the family needs less than."""
    gap = found.total / found.bound - 1 if found.bound else 0.0
    return f"bound of the {found.tried:,} regions examined: {found.bound:,} bytes (gap {gap:.1%})"


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


def _slowdown(text: str) -> float | None:
    """Read a factor, or ``none``."""
    return None if text == "none" else _multiple(text)


def _multiple(text: str) -> float:
    """Read a factor such as ``1.05``."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not 1.0 <= value <= 100.0:
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to 100")
    return value
