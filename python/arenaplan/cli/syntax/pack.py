"""The options of ``arenaplan pack``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.cli.syntax.common import add_command, add_json, byte_count, group, seconds, whole
from arenaplan.cli.syntax.options import PerSpace, per_space

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "pack")
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE.csv",
        help="- is stdin; columns id,lower,upper,size and optionally alignment,hint,gaps,offset,"
        "space,spaces,group,lo,hi,may_overlap,apart,separate",
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


def _reserved(text: str) -> tuple[str | None, tuple[int, int]]:
    """Read ``0..4KiB`` or ``sram=0..4KiB``."""
    name, separator, zone = text.rpartition("=")
    start, dots, end = zone.partition("..")
    if bool(separator) != bool(name) or not dots:
        raise argparse.ArgumentTypeError(f"{text!r} is not START..END or SPACE=START..END")
    return name or None, (byte_count(start), byte_count(end))
