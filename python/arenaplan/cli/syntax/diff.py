"""The options of ``arenaplan diff``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.cli.syntax.common import add_command, add_json, add_limits, group

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "diff")
    parser.add_argument(
        "before", type=Path, metavar="BEFORE", help="plan file, such as old.json; - is stdin"
    )
    parser.add_argument("after", type=Path, metavar="AFTER", help="plan file, such as new.json")
    add_limits(group(parser, "plans"), "plan")
    parser.add_argument(
        "--fail-on-growth", action="store_true", help="exit with 1 if an arena needs more bytes"
    )
    add_json(parser)
