"""The options of models that share an arena."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_share(parser: argparse.ArgumentParser) -> None:
    """Add the options that make models share an arena."""
    parser.add_argument(
        "others",
        type=Path,
        nargs="*",
        default=[],
        metavar="MODEL",
        help="more models, with --share",
    )
    parser.add_argument(
        "--share",
        choices=("never-together", "concurrent"),
        help="plan all models for one arena: they run one after the other, or at the same time",
    )
