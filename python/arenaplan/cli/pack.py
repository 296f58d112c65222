"""``arenaplan pack``: offsets for the buffers of a CSV file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arenaplan import _core
from arenaplan.cli.common import (
    add_command,
    add_json,
    byte_count,
    group,
    print_json,
    seconds,
    size,
    whole,
)
from arenaplan.cli.inputs import read_table
from arenaplan.cli.options import PerSpace, per_space
from arenaplan.cli.outputs import delivering, goes_to_stdout
from arenaplan.cli.watch import gap, watching
from arenaplan.errors import CapacityExceeded, InvalidOption
from arenaplan.packing import check_limits, describe
from arenaplan.spaces import ARENA, Space

if TYPE_CHECKING:
    from arenaplan import Packing
    from arenaplan.cli.common import Commands
    from arenaplan.packing import Described


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "pack", execute)
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE.csv",
        help="- is stdin; columns id,lower,upper,size and optionally alignment,hint,gaps,offset,"
        "space,group,lo,hi,may_overlap,apart",
    )
    group(parser, "memory").add_argument(
        "--capacity",
        type=per_space,
        default=PerSpace(),
        metavar="BYTES",
        help="stop as soon as each space fits this, such as 48KiB; SPACE=BYTES for one, such as "
        "sram=48KiB,dram=1MiB",
    )
    search = group(parser, "search")
    limit = search.add_mutually_exclusive_group()
    limit.add_argument("--time-limit", type=seconds, metavar="SECONDS", help="stop after some time")
    limit.add_argument(
        "--node-limit", type=whole(0), metavar="N", help="stop after N search nodes (reproducible)"
    )
    group(parser, "memory").add_argument(
        "--align",
        type=per_space,
        default=PerSpace(),
        metavar="BYTES",
        help="divides every offset (default: 1); SPACE=BYTES for one space",
    )
    group(parser, "memory").add_argument(
        "--reserve",
        type=_reserved,
        action="append",
        default=[],
        metavar="START..END",
        help="bytes that no buffer gets, such as 0..4KiB; SPACE=START..END of one space; can be "
        "repeated",
    )
    search.add_argument(
        "--seed", type=whole(0), default=0, metavar="N", help="of all random choices (default: 0)"
    )
    search.add_argument(
        "--compact",
        action="store_true",
        help="move buffers to lower offsets at last, at the peak that was found",
    )
    parser.add_argument(
        "--after",
        type=Path,
        metavar="OLD.csv",
        help="a packing of an earlier problem: few buffers leave its offsets, at the same peak",
    )
    parser.add_argument(
        "--why",
        action="store_true",
        help="if the buffers cannot fit, name those that prove it: without any one, the others fit",
    )
    add_json(parser)
    group(parser, "output").add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="OUT.csv",
        help="write the buffers with offsets, if they fit; - is stdout",
    )


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    limits = check_limits(options.time_limit, options.node_limit, options.seed)
    spaces = _spaces(options)
    text = read_table(options.file)
    extra: dict[str, Any] = {}
    if options.after is not None:
        if options.time_limit is not None or options.node_limit is not None:
            raise InvalidOption("option after: such a search has limits of its own")
        if options.compact:
            raise InvalidOption("option after: buffers that stay are not moved down")
        old = read_table(options.after)
        again = _core.pack_csv_again(text, old, spaces, options.seed)
        packing, extra["moved"], extra["peak_of_staying"] = again
    else:
        # A packing says itself that it was ended.
        with watching(options, catches=False) as watch:
            packing = _core.pack_csv(
                text, spaces, **limits, compact=options.compact, on_progress=watch
            )
    # A file with offsets past the capacity would look like an answer.
    fits = packing.status not in ("infeasible", "unknown")
    if options.why and packing.status == "infeasible":
        proofs = _core.pack_csv_blame(text, spaces)
        extra["infeasible_subsets"] = dict(proofs)
    with delivering(options, packing.to_csv if fits else None):
        report(packing, extra, as_json=options.json and not goes_to_stdout(options))
    if packing.interrupted:
        raise KeyboardInterrupt
    if not fits:
        proof = "cannot" if packing.status == "infeasible" else "were not found to"
        raise CapacityExceeded(f"the buffers {proof} fit {_capacities(options.capacity)}")


def _reserved(text: str) -> tuple[str | None, tuple[int, int]]:
    """Read ``0..4KiB`` or ``sram=0..4KiB``."""
    name, separator, zone = text.rpartition("=")
    start, dots, end = zone.partition("..")
    if bool(separator) != bool(name) or not dots:
        raise argparse.ArgumentTypeError(f"{text!r} is not START..END or SPACE=START..END")
    return name or None, (byte_count(start), byte_count(end))


def _spaces(options: argparse.Namespace) -> list[Described]:
    """Return what all spaces are like, and those that options name."""
    every = [zone for name, zone in options.reserve if name is None]
    names = [*options.capacity.spaces, *options.align.spaces]
    names += [name for name, _ in options.reserve if name is not None]
    capacity, align = options.capacity, options.align
    template = Space(ARENA, capacity.everywhere, alignment=align.everywhere)
    named = [
        describe(
            Space(
                name,
                capacity.spaces.get(name, capacity.everywhere),
                alignment=align.spaces.get(name, align.everywhere),
            ),
            every + [zone for of, zone in options.reserve if of == name],
        )
        for name in dict.fromkeys(names)
    ]
    return [describe(template, every), *named]


def _capacities(capacity: PerSpace) -> str:
    """Return the capacities of an option in words."""
    parts = [] if capacity.everywhere is None else [f"{capacity.everywhere:,} bytes"]
    parts += [f"{size:,} bytes of {name}" for name, size in capacity.spaces.items()]
    return ", ".join(parts)


def report(packing: Packing, extra: dict[str, Any], *, as_json: bool) -> None:
    """Print the report of a packing."""
    if as_json:
        print_json({**summarize(packing), **extra})
        return
    proof = "proven minimal" if packing.status == "optimal" else packing.status
    print(f"{len(packing):,} buffers")
    print(f"  peak         {size(packing.peak)}, {proof}")
    print(f"  lower bound  {size(packing.lower_bound)}")
    if "moved" in extra:
        print(f"  moved        {len(extra['moved']):,} of {len(packing):,} buffers")
        more = max(0, extra["peak_of_staying"] - packing.peak)
        print(f"  staying      costs {more:,} bytes, if only those move that must")
    for name, subset in extra.get("infeasible_subsets", {}).items():
        print(f"  too large    for {name}: {', '.join(subset)}")
    print(f"  seconds      {packing.seconds:.3f}")


def summarize(packing: Packing) -> dict[str, Any]:
    """Return the document of ``pack --json``."""
    return {
        "buffers": len(packing),
        "peak": packing.peak,
        "lower_bound": packing.lower_bound,
        "gap": gap(packing.peak, packing.lower_bound),
        "status": packing.status,
        "nodes": packing.nodes,
        "seconds": packing.seconds,
        "stages": packing.stages,
    }
