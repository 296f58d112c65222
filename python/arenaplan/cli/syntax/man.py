"""The options of ``arenaplan man``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.cli.parser import COMMANDS
from arenaplan.cli.syntax.common import add_command

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "man")
    parser.add_argument(
        "page", nargs="?", choices=tuple(COMMANDS), metavar="NAME", help="command (default: all)"
    )
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="write every page to a folder")
