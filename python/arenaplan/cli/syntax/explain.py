"""The options of ``arenaplan explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arenaplan.cli.syntax.common import add_json, add_model_command, group, whole
from arenaplan.cli.syntax.options import add_plan_options, add_time_limit

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_model_command(commands, "explain")
    add_plan_options(parser)
    add_time_limit(parser)
    changes = group(parser, "what if")
    changes.add_argument(
        "--top",
        type=whole(1, 1000),
        metavar="N",
        help="plan the model with half the channels or resolution of a layer, smaller elements or "
        "inputs, and list the N changes that save most (default with --by: 10)",
    )
    changes.add_argument(
        "--by",
        choices=("layer", "node"),
        help="name changes by layer or by node (default with --top: layer)",
    )
    add_json(parser)
