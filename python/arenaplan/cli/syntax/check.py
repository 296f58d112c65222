"""The options of ``arenaplan check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.cli.syntax.common import add_json, add_model_command, group
from arenaplan.cli.syntax.options import add_build

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_model_command(commands, "check")
    parser.add_argument(
        "plan",
        type=Path,
        nargs="*",
        metavar="PLAN",
        help="plan file, such as plan.json (default: the plan inside a .tflite model); "
        "of several shapes a file with their graphs, which needs no MODEL before it; "
        "before it more models, if it is of several that share an arena; after a proof.json of "
        "'arenaplan prove' in the place of MODEL: the original and the rewritten model",
    )
    group(parser, "check").add_argument(
        "--hazards",
        type=Path,
        metavar="FILE",
        help="hazards of the plan, as 'arenaplan export --to hazards' writes them: each pair of "
        "steps that use the same bytes must be ordered, and no edge be superfluous",
    )
    add_build(parser)
    add_json(parser)
