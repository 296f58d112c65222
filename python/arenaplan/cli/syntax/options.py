"""The options of :func:`arenaplan.plan`, on the command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from arenaplan.base.choices import KERNELS
from arenaplan.base.errors import InvalidOption, InvalidSize
from arenaplan.cli.syntax.common import byte_count, group, seconds, whole
from arenaplan.planner.plan_options import (
    PlanOptions,
    option_choices,
    option_help,
    targets,
)
from arenaplan.planner.spaces import Space, parse_spaces


@dataclass(frozen=True, slots=True)
class PerSpace:
    """Numbers of bytes: of every space, and of named ones."""

    everywhere: int | None = None
    spaces: dict[str, int] = field(default_factory=dict)


def add_plan_options(parser: argparse.ArgumentParser, optimize: str = "all") -> None:
    """Add the options of :func:`arenaplan.plan`; ``optimize`` are the techniques by default."""
    techniques, memory = group(parser, "techniques"), group(parser, "memory")
    add_build(parser)
    memory.add_argument(
        "--align",
        type=per_space,
        default=PerSpace(),
        metavar="BYTES",
        help=f"{option_help('alignment')}; SPACE=BYTES for one space, such as sram=16",
    )
    memory.add_argument(
        "--budget",
        type=_spaces,
        default=None,
        metavar="SPACES",
        help=f"{option_help('spaces')}; NAME=SIZE@COST says what it costs to move a byte "
        "(default: the position, from 0)",
    )
    memory.add_argument(
        "--pin",
        type=_pin,
        action="append",
        default=[],
        metavar="SPACE=PATTERN",
        help=f"{option_help('pins')}: 'psram=logits*'; can be repeated",
    )
    techniques.add_argument(
        "--optimize",
        default=optimize,
        metavar="all|none|NAME,NAME",
        help=f"{option_help('optimize')} (default: {optimize})",
    )
    techniques.add_argument(
        "--no-in-place", action="store_true", help="leave out in-place, whatever else is done"
    )
    techniques.add_argument(
        "--workers",
        type=whole(1),
        default=1,
        metavar="K",
        help=f"{option_help('workers').replace('max_slowdown', '--max-slowdown')} (default: 1)",
    )
    memory.add_argument(
        "--preserve-inputs", action="store_true", help=option_help("preserve_inputs")
    )
    techniques.add_argument(
        "--max-slowdown",
        type=_slowdown,
        default=PlanOptions().max_slowdown,
        metavar="RATIO",
        help=option_help("max_slowdown").replace("None or infinity", "none")
        + f" (default: {PlanOptions().max_slowdown})",
    )
    for name in ("order", "effort", "inputs", "outputs", "workspace"):
        default = getattr(PlanOptions(), name)
        group(parser, "search" if name in ("order", "effort") else "memory").add_argument(
            f"--{name}",
            choices=option_choices(name),
            default=default,
            help=option_help(name) + ("" if default is None else f" (default: {default})"),
        )


def add_time_limit(parser: argparse.ArgumentParser) -> None:
    """Add the option that bounds a search."""
    group(parser, "search").add_argument(
        "--time-limit",
        type=seconds,
        metavar="SECONDS",
        help="end with the best plan so far; equal commands may then give different plans",
    )


def add_build(parser: argparse.ArgumentParser) -> None:
    """Add the target and the options of its runtime."""
    known = [target.name for target in targets()]
    known += [f"tflm:{kernels}" for kernels in KERNELS]
    model = group(parser, "model")
    model.add_argument(
        "--target",
        choices=known,
        metavar="NAME",
        help=f"{option_help('target')}; one of {', '.join(known)} (see 'arenaplan targets')",
    )
    model.add_argument(
        "--pointer",
        type=int,
        choices=(32, 64),
        help="tflm: bits of a pointer in the runtime (default: 64 for reference kernels, as in the "
        "Python package tflite-micro, otherwise 32)",
    )
    model.add_argument(
        "--profile",
        type=Path,
        metavar="FILE",
        help="tflm: memory of this model as 'arenaplan measure' wrote it, in place of formulas",
    )


def _slowdown(text: str) -> float:
    """Read a ratio of 1 or more, or ``none``."""
    try:
        ratio = inf if text == "none" else float(text)
    except ValueError:
        ratio = 0.0
    if not ratio >= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a ratio of 1 or more, nor none")
    return ratio


def per_space(text: str) -> PerSpace:
    """Read ``64``, ``sram=16`` or ``64,sram=16``."""
    everywhere: int | None = None
    spaces: dict[str, int] = {}
    for part in text.split(","):
        name, separator, number = part.strip().rpartition("=")
        if bool(separator) != bool(name):
            raise argparse.ArgumentTypeError(f"{part!r} is not BYTES or SPACE=BYTES")
        if separator:
            spaces[name] = byte_count(number)
        else:
            everywhere = byte_count(number)
    return PerSpace(everywhere, spaces)


def _spaces(text: str) -> list[Space]:
    """Read ``sram=64KiB,psram=8MiB``."""
    try:
        return parse_spaces(text)
    except (InvalidOption, InvalidSize) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _pin(text: str) -> tuple[str, str]:
    """Read ``SPACE=PATTERN``."""
    space, separator, pattern = text.partition("=")
    if not (separator and space and pattern):
        raise argparse.ArgumentTypeError(f"{text!r} is not SPACE=PATTERN, such as psram=logits*")
    return space, pattern
