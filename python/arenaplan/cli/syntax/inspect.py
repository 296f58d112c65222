"""The options of ``arenaplan inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arenaplan.cli.syntax.common import add_json, add_model_command
from arenaplan.cli.syntax.options import add_plan_options, add_time_limit

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_model_command(commands, "inspect")
    add_plan_options(parser)
    add_time_limit(parser)
    add_json(parser)
