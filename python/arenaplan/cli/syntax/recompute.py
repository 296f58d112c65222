"""The options of ``arenaplan recompute``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.base.errors import InvalidOption
from arenaplan.cli.syntax.common import add_json, add_model_command, byte_count, group
from arenaplan.cli.syntax.options import add_time_limit

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_model_command(commands, "recompute")
    goal = group(parser, "goal").add_mutually_exclusive_group(required=True)
    goal.add_argument(
        "--budget",
        type=byte_count,
        metavar="BYTES",
        help="least extra work in so many bytes, such as 512MiB",
    )
    goal.add_argument(
        "--max-extra",
        type=_percent,
        metavar="PERCENT",
        help="fewest bytes at so much extra work, such as 5%%",
    )
    goal.add_argument("--curve", action="store_true", help="bytes over extra work")
    goal.add_argument(
        "--strategy",
        choices=("sqrt-n", "mxnet-mirror"),
        help="what a strategy of this name makes again, for comparison",
    )
    memory = group(parser, "memory")
    memory.add_argument(
        "--inputs", choices=("inside", "reuse", "caller"), default="inside", help="memory of inputs"
    )
    memory.add_argument(
        "--outputs", choices=("inside", "caller"), default="inside", help="memory of outputs"
    )
    memory.add_argument(
        "--page-to",
        metavar="NAME=BYTES@COST",
        help="slow memory that values may be copied to and back from, such as host=64GiB@480: its "
        "size, and the cost of copying a byte in the units of the nodes' costs",
    )
    group(parser, "output").add_argument(
        "-o", "--output", type=Path, metavar="PLAN", help="plan file to write; - is stdout"
    )
    add_time_limit(parser)
    add_json(parser)


def _percent(text: str) -> str:
    """Read a part of the work, such as ``5%`` or ``5``."""
    from arenaplan.planner.planning import goal_of  # The help needs none of it.

    part = text if text.endswith("%") else f"{text}%"
    try:
        goal_of(part)
    except InvalidOption:
        raise argparse.ArgumentTypeError(f"{text!r} is no part of the work, such as 5%") from None
    return part
