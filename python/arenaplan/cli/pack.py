"""``arenaplan pack``: offsets for the buffers of a CSV file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arenaplan import _core
from arenaplan.cli.common import add_json, print_json, say, size
from arenaplan.cli.watch import gap, watching
from arenaplan.errors import CapacityExceeded
from arenaplan.packing import check_capacity, check_limits

if TYPE_CHECKING:
    from arenaplan import Packing
    from arenaplan.cli.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    summary = "pack the buffers of a CSV file"
    parser = commands.add_parser("pack", help=summary, description=summary)
    parser.set_defaults(execute=execute)
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE.csv",
        help="columns id,lower,upper,size and optionally alignment,hint,gaps,offset",
    )
    parser.add_argument(
        "--capacity", type=int, metavar="BYTES", help="stop as soon as everything fits"
    )
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--time-limit", type=float, metavar="SECONDS", help="stop after some time")
    limit.add_argument(
        "--node-limit", type=int, metavar="N", help="stop after N search nodes (reproducible)"
    )
    parser.add_argument(
        "--align", type=int, default=1, metavar="BYTES", help="divides every offset (default: 1)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (default: 0)")
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="for --time-limit (default: 1)"
    )
    add_json(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT.csv", help="write the buffers with offsets"
    )


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    limits = check_limits(options.time_limit, options.node_limit, options.seed, options.threads)
    text = options.file.read_text(encoding="utf-8")
    with watching(options) as watch:
        packing = _core.pack_csv(
            text, options.align, check_capacity(options.capacity), **limits, on_progress=watch
        )
    if options.output is not None:
        options.output.write_text(packing.to_csv(), encoding="utf-8")
        say(f"wrote {options.output}")
    report(packing, as_json=options.json)
    if packing.interrupted:
        raise KeyboardInterrupt
    if packing.status in ("infeasible", "unknown"):
        proof = "cannot" if packing.status == "infeasible" else "were not found to"
        raise CapacityExceeded(f"the buffers {proof} fit {options.capacity:,} bytes")


def report(packing: Packing, *, as_json: bool) -> None:
    """Print what a packing says."""
    if as_json:
        print_json(summarize(packing))
        return
    proof = "proven minimal" if packing.status == "optimal" else packing.status
    print(f"{len(packing):,} buffers")
    print(f"  peak         {size(packing.peak)}, {proof}")
    print(f"  lower bound  {size(packing.lower_bound)}")
    print(f"  seconds      {packing.seconds:.3f}")


def summarize(packing: Packing) -> dict[str, Any]:
    """Return what a packing says, as ``pack --json`` prints it."""
    return {
        "buffers": len(packing),
        "peak": packing.peak,
        "lower_bound": packing.lower_bound,
        "gap": gap(packing.peak, packing.lower_bound),
        "status": packing.status,
        "seconds": packing.seconds,
        "stages": packing.stages,
    }
