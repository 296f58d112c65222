"""The options of ``arenaplan measure``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.cli.syntax.common import add_json, add_model_command, group

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_model_command(commands, "measure")
    group(parser, "output").add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="file to write the profile to; - is stdout (default: MODEL.profile.json)",
    )
    add_json(parser)
