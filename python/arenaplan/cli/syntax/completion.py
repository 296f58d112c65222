"""The options of ``arenaplan completion``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arenaplan.cli.syntax.common import add_command

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands

SHELLS = ("bash", "zsh", "fish")


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "completion")
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"{', '.join(SHELLS)}")
