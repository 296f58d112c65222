"""The options of ``arenaplan gate``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.base.errors import (
    InvalidOption,
    InvalidSize,
)
from arenaplan.cli.syntax.common import (
    add_bind,
    add_command,
    add_json,
    add_limits,
    byte_count,
    group,
)
from arenaplan.cli.syntax.options import add_plan_options, add_time_limit

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands
    from arenaplan.report.gating.gating import Growth


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "gate")
    parser.add_argument(
        "models",
        type=Path,
        nargs="+",
        metavar="MODEL",
        help="model files, such as model.onnx; - is stdin",
    )
    add_bind(group(parser, "model"))
    add_limits(group(parser, "model"))
    gates = group(parser, "gate")
    gates.add_argument(
        "--baseline",
        metavar="FILE",
        help="plan or report that was written before: no memory may need more bytes; of several "
        "models a folder with a file MODEL.plan.json of each; - is stdin",
    )
    gates.add_argument(
        "--update",
        action="store_true",
        help="write the plans as the new baseline, if they are within their budgets",
    )
    gates.add_argument(
        "--allow-growth",
        type=_growth,
        metavar="SIZE",
        help="growth over the baseline that passes, per memory: 512, 1KiB or 2%% (default: 0)",
    )
    add_plan_options(parser)
    group(parser, "memory").add_argument(
        "--capacity",
        type=byte_count,
        metavar="BYTES",
        help="most bytes of the only arena, such as 48KiB: a --budget without a name",
    )
    add_time_limit(parser)
    add_json(parser)
    output = group(parser, "output")
    output.add_argument(
        "--markdown", action="store_true", help="print tables for a comment on a pull request"
    )
    output.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit's XML; - is stdout")


def _growth(text: str) -> Growth:
    """Read ``1KiB`` or ``2%``."""
    from arenaplan.report.gating.gating import Growth  # The help needs none of it.

    try:
        return Growth.of(text)
    except (InvalidOption, InvalidSize) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
