"""The options of ``arenaplan pack``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.cli.syntax.common import add_command, add_json, byte_count, group, seconds, whole

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
        "space,group,lo,hi,may_overlap,apart",
    )
    group(parser, "memory").add_argument(
        "--capacity",
        type=byte_count,
        metavar="BYTES",
        help="stop as soon as each space fits this, such as 48KiB",
    )
    search = group(parser, "search")
    limit = search.add_mutually_exclusive_group()
    limit.add_argument("--time-limit", type=seconds, metavar="SECONDS", help="stop after some time")
    limit.add_argument(
        "--node-limit", type=whole(0), metavar="N", help="stop after N search nodes (reproducible)"
    )
    group(parser, "memory").add_argument(
        "--align",
        type=byte_count,
        default=1,
        metavar="BYTES",
        help="divides every offset (default: 1)",
    )
    search.add_argument(
        "--seed", type=whole(0), default=0, metavar="N", help="of all random choices (default: 0)"
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
