"""The options of ``arenaplan prove``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.base.choices import RUNTIMES
from arenaplan.cli.syntax.common import add_command, add_json, add_limits, group, whole

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "prove")
    parser.add_argument(
        "original", type=Path, metavar="ORIGINAL", help="the model before; - is stdin"
    )
    parser.add_argument("rewritten", type=Path, metavar="REWRITTEN", help="the model after")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="proof to write, such as proof.json, for 'arenaplan check'; - is stdout",
    )
    add_limits(group(parser, "model"))
    runs = group(parser, "runs")
    runs.add_argument(
        "--run",
        type=_runtimes,
        default=(),
        metavar="RUNTIMES",
        help=f"also run both models and compare all bits: {', '.join(RUNTIMES)}, or both",
    )
    runs.add_argument(
        "--inputs",
        type=whole(1, 1 << 20),
        default=20,
        metavar="N",
        help="inputs of the runs (default: 20)",
    )
    runs.add_argument(
        "--seed", type=whole(0), default=0, metavar="N", help="seed of the inputs (default: 0)"
    )
    add_json(parser)


def _runtimes(text: str) -> tuple[str, ...]:
    """Read names of runtimes."""
    names = tuple(dict.fromkeys(text.split(",")))
    unknown = [name for name in names if name not in RUNTIMES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no runtime {unknown[0]!r}; there are {RUNTIMES}")
    return names
