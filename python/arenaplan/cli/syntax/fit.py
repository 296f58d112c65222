"""The options of ``arenaplan fit``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.base.choices import KERNELS
from arenaplan.cli.syntax.common import add_json, add_model_command, byte_count, group, whole
from arenaplan.cli.syntax.options import add_time_limit

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_model_command(commands, "fit")
    group(parser, "output").add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="file to write; - is stdout"
    )
    limits = group(parser, "limits")
    limits.add_argument(
        "--budget",
        type=byte_count,
        metavar="BYTES",
        help="most bytes of the whole arena, such as 62KiB (default: as few as possible)",
    )
    limits.add_argument(
        "--max-macs",
        type=_multiple,
        default=1.05,
        metavar="FACTOR",
        help="most multiply-accumulates, as a multiple of those of the model (default: 1.05)",
    )
    limits.add_argument(
        "--max-ops", type=whole(0), metavar="N", help="most operators of the new model"
    )
    limits.add_argument(
        "--max-slowdown",
        type=_slowdown,
        default=1.1,
        metavar="RATIO",
        help="longest expected time of a run, as a multiple of that of the model, or 'none' "
        "(default: 1.1)",
    )
    add_time_limit(parser)
    runtime = group(parser, "runtime")
    runtime.add_argument(
        "--pointer",
        type=int,
        choices=(32, 64),
        help="bits of a pointer of the machine that runs the model (default: 64 for reference "
        "kernels, else 32)",
    )
    runtime.add_argument(
        "--kernels",
        choices=KERNELS,
        help="kernels of the runtime: scratch memory is counted for these, and results of "
        "elementwise kernels take the place of an operand where these allow it (default: plans "
        "for all kernels, with the figures of reference kernels)",
    )
    runtime.add_argument(
        "--overlap",
        action="store_true",
        help="let results overwrite operands that are used up on the way; only for firmware with "
        "reference kernels",
    )
    group(parser, "output").add_argument(
        "--pareto",
        action="store_true",
        help="list rewrites that trade bytes for work and operators, and write none",
    )
    add_json(parser)


def _slowdown(text: str) -> float | None:
    """Read a factor, or ``none``."""
    return None if text == "none" else _multiple(text)


def _multiple(text: str) -> float:
    """Read a factor such as ``1.05``."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not 1.0 <= value <= 100.0:
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to 100")
    return value
