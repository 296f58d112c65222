"""The options of ``arenaplan run``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from arenaplan.cli.syntax.common import add_json, add_model_command, group, whole

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_model_command(commands, "run")
    group(parser, "run").add_argument(
        "--plan", type=Path, metavar="FILE", help="plan to obey (default: a new one); - is stdin"
    )
    group(parser, "run").add_argument(
        "--input",
        action="append",
        default=[],
        type=_named_file,
        metavar="NAME=FILE.npy",
        help="array for an input; inputs without one get random numbers; can be repeated",
    )
    group(parser, "run").add_argument(
        "--seed",
        type=whole(0),
        default=0,
        metavar="N",
        help="seed of the random inputs (default: 0)",
    )
    group(parser, "run").add_argument(
        "--verify",
        action="store_true",
        help="poison dead bytes, guard live ones, and compare with a run without an arena; a "
        "TFLite model also with the interpreter of the package tflite-micro, if it is installed; "
        "on a device, compare with NumPy",
    )
    group(parser, "run").add_argument(
        "--threads",
        type=whole(1),
        default=1,
        metavar="N",
        help="threads that divide each long kernel on the cpu; results are the same (default: 1)",
    )
    group(parser, "run").add_argument(
        "--device",
        default="cpu",
        metavar="NAME",
        help="cpu, or cuda or cuda:NUMBER for a CUDA device through CuPy (default: cpu)",
    )
    group(parser, "run").add_argument(
        "--graph",
        action="store_true",
        help="on a device, record the run as a CUDA graph, and replay it for the outputs",
    )
    group(parser, "run").add_argument(
        "--runs",
        type=whole(1),
        default=1,
        metavar="N",
        help="runs in a row, each with other random inputs; states live on (default: 1)",
    )
    add_json(parser)
    group(parser, "output").add_argument(
        "--save-outputs",
        type=Path,
        metavar="DIR",
        help="write each output as DIR/NAME.npy, all of them or none",
    )


def _named_file(text: str) -> tuple[str, Path]:
    """Read ``NAME=FILE``."""
    name, separator, path = text.partition("=")
    if not (separator and name and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE.npy")
    return name, Path(path)
