"""The options of ``arenaplan targets``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arenaplan.cli.syntax.common import add_command, add_json

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "targets")
    add_json(parser)
