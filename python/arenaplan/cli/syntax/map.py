"""The options of ``arenaplan map``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.cli.syntax.common import add_model_command, group
from arenaplan.cli.syntax.options import add_plan_options, add_time_limit
from arenaplan.cli.syntax.share import add_share

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands

_FORMS = ("html", "svg", "perfetto", "json")


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_model_command(commands, "map")
    parser.description = (
        "Draw a plan: addresses over time, one rectangle per value. MODEL is a model, or a file "
        "that 'arenaplan plan -o' wrote, which has operators and shapes if --with-graph was given."
    )
    add_plan_options(parser)
    add_time_limit(parser)
    add_share(parser)
    output = group(parser, "output")
    output.add_argument(
        "--to",
        choices=_FORMS,
        default="html",
        help="a page with search, selection and zoom; a drawing; a trace for ui.perfetto.dev; the "
        "report that they are made from (default: html)",
    )
    output.add_argument(
        "--against",
        type=Path,
        metavar="FILE",
        help="older plan file: show the values that are new, gone, grown or somewhere else",
    )
    output.add_argument(
        "--explain",
        action="store_true",
        help="also show the worth of each technique, which takes a plan for each",
    )
    output.add_argument(
        "--curve",
        action="store_true",
        help="also show the bytes of the arena over the extra work of nodes that run again, for "
        "training steps",
    )
    output.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="file to write, such as map.html; - is stdout",
    )
