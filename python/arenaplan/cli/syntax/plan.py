"""The options of ``arenaplan plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.base.choices import MAX_SHAPES
from arenaplan.cli.syntax.common import add_json, add_model_command, byte_count, group, whole
from arenaplan.cli.syntax.options import add_plan_options, add_time_limit
from arenaplan.cli.syntax.share import add_share

if TYPE_CHECKING:
    from arenaplan.classic.incremental import IncrementalMode
    from arenaplan.classic.sharing import SharingMode, SizeRule
    from arenaplan.cli.syntax.common import Commands

SHARING: dict[str, tuple[SharingMode, SizeRule]] = {
    "storage-sharing": ("default", "bytes"),
    "nnvm": ("nnvm", "elements_x4"),
}
"""Strategies with blocks: their rules, and their measure of size."""


INCREMENTAL: dict[str, IncrementalMode] = {
    "incremental": "default",
    "litert": "litert",
    "tflite-2019": "tflite-2019",
}
"""Strategies that place values one after the other, with their rules."""

MATCH_RANGE, NUM_TEMP = 16, 1
"""Defaults of storage sharing."""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_model_command(commands, "plan")
    add_plan_options(parser)
    add_share(parser)
    classic, techniques = group(parser, "classic strategies"), group(parser, "techniques")
    group(parser, "memory").add_argument(
        "--capacity",
        type=byte_count,
        metavar="BYTES",
        help="most bytes the arena may have, such as 48KiB",
    )
    add_time_limit(parser)
    classic.add_argument(
        "--strategy",
        choices=("arena", *SHARING, *INCREMENTAL),
        default="arena",
        help="offsets in one arena; blocks that values share, as ours or as NNVM; "
        "or values one after the other, as ours or as TensorFlow Lite (default: arena)",
    )
    for flag, name, default in (
        ("--match-range", "N", MATCH_RANGE),
        ("--num-temp", "N", NUM_TEMP),
    ):
        classic.add_argument(
            flag, type=whole(0), metavar=name, help=f"storage sharing (default: {default})"
        )
    classic.add_argument("--auto-search", action="store_true", help="storage sharing: try ranges")
    classic.add_argument(
        "--size-rule",
        choices=("bytes", "elements_x4"),
        help="storage sharing (bytes; nnvm: elements_x4)",
    )
    techniques.add_argument(
        "--parallel-safe", action="store_true", help="be safe in every order of the nodes"
    )
    group(parser, "model").add_argument(
        "--max-shapes",
        type=whole(1),
        default=MAX_SHAPES,
        metavar="N",
        help=f"most shapes that --bind may describe (default: {MAX_SHAPES:,})",
    )
    add_json(parser)
    group(parser, "output").add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write the plan as JSON, of several shapes with their graphs; - is stdout",
    )
    group(parser, "output").add_argument(
        "--with-graph",
        action="store_true",
        help="write the graph into the file of one plan, too, so that the file needs no model",
    )
