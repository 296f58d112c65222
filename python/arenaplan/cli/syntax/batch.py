"""The options of ``arenaplan batch``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.cli.syntax.common import (
    add_bind,
    add_command,
    add_json,
    add_limits,
    group,
    seconds,
    whole,
)
from arenaplan.planner.plan_options import option_choices, option_help, targets

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "batch")
    parser.add_argument(
        "sources",
        type=Path,
        nargs="+",
        metavar="MODEL",
        help="model files, and folders, which are searched for them",
    )
    model = group(parser, "model")
    add_bind(model)
    add_limits(model)
    model.add_argument(
        "--targets",
        type=_targets,
        default=[None],
        metavar="NAME,NAME",
        help="runners to plan for (see 'arenaplan targets'); by default the one of each format",
    )
    search = group(parser, "search")
    search.add_argument("--optimize", default="all", help=option_help("optimize"))
    search.add_argument("--effort", choices=option_choices("effort"), default="default")
    search.add_argument(
        "--time-limit", type=seconds, metavar="SECONDS", help="of each search, where it is long"
    )
    where = group(parser, "workers").add_mutually_exclusive_group()
    where.add_argument(
        "--workers",
        type=whole(1, 4096),
        metavar="N",
        help="processes (default: as many as processors)",
    )
    where.add_argument(
        "--executor",
        metavar="ADDRESS",
        help="cluster that runs the jobs: dask://HOST:PORT or ray://HOST:PORT",
    )
    add_json(parser)
    output = group(parser, "output")
    output.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="report with a row per model and target: .parquet, .csv or .jsonl; outcomes are kept "
        "in FILE.journal until it is written, so that a batch that was interrupted goes on",
    )
    output.add_argument("--page", type=Path, metavar="FILE.html", help="write a page for people")


def _targets(text: str) -> list[str]:
    known = [target.name for target in targets()]
    chosen = text.split(",")
    for name in chosen:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
    return chosen
