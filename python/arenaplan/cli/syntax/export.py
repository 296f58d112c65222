"""The options of ``arenaplan export``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.base.choices import FORMS
from arenaplan.cli.syntax.common import add_json, add_model_command, byte_count, group
from arenaplan.cli.syntax.options import add_plan_options, add_time_limit

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_model_command(commands, "export")
    forms = "; ".join(f"{name}: {text}" for name, text in FORMS.items())
    group(parser, "form").add_argument("--to", required=True, choices=FORMS, help=forms)
    group(parser, "output").add_argument(
        "-o",
        "--output",
        required=True,
        type=Path,
        metavar="FILE",
        help="file to write; - is stdout",
    )
    group(parser, "form").add_argument(
        "--plan", type=Path, metavar="FILE", help="plan to export (default: a new one)"
    )
    add_plan_options(parser)
    add_time_limit(parser)
    group(parser, "memory").add_argument(
        "--capacity",
        type=byte_count,
        metavar="BYTES",
        help="most bytes the arena may have, such as 48KiB; more than that is not written",
    )
    group(parser, "form").add_argument(
        "--always",
        action="store_true",
        help="tflm: decide offsets even if the runtime's own planner needs no more bytes, or a "
        "kernel is not known",
    )
    group(parser, "form").add_argument(
        "--original",
        type=Path,
        metavar="FILE",
        help="c: .tflite model that the firmware runs already, to list the operators that its "
        "resolver must register in addition",
    )
    group(parser, "form").add_argument(
        "--section",
        action="append",
        default=[],
        type=_section,
        metavar="SPACE=SECTION",
        help="c: linker section for the arena of a space, such as arena=.sram; can be repeated",
    )
    group(parser, "form").add_argument(
        "--space", metavar="NAME", help="csv: which space to write, if the plan has several"
    )
    add_json(parser)


def _section(text: str) -> tuple[str, str]:
    """Read ``SPACE=SECTION``."""
    space, separator, section = text.partition("=")
    if not (separator and space and section):
        raise argparse.ArgumentTypeError(f"{text!r} is not SPACE=SECTION, such as arena=.sram")
    return space, section
