"""Parsers of commands, options that several have, and readers of their values."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from arenaplan.base.errors import InvalidSize
from arenaplan.cli.parser import COMMANDS, Parser, examples
from arenaplan.planner.spaces import parse_size

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[Parser]

_MAX_DIGITS = 19
"""Most digits of a dimension: those of a number of 64 bits."""


_MAX_LISTED = 1 << 20
"""Most numbers that ranges after commas are written out to."""


def add_command(commands: Commands, name: str) -> argparse.ArgumentParser:
    """Add a command."""
    summary = COMMANDS[name]
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[:1].upper()}{summary[1:]}.",
        epilog=examples(name),
    )
    parser.set_defaults(command=name)
    return parser


def add_model_command(commands: Commands, name: str) -> argparse.ArgumentParser:
    """Add a command that reads a model."""
    parser = add_command(commands, name)
    parser.add_argument(
        "model", type=Path, metavar="MODEL", help="model file, such as model.onnx; - is stdin"
    )
    add_bind(
        group(parser, "model"),
        "; with plan and export --to weights also several, such as batch=1..32 or seq=16,32,64",
    )
    add_limits(group(parser, "model"))
    return parser


def add_limits(options: argparse._ArgumentGroup, kind: str = "model") -> None:
    """Add the limits of models, or of files of another kind, that are not trusted."""
    options.add_argument(
        "--max-nodes",
        type=whole(0),
        metavar="NUMBER",
        help=f"refuse {kind}s with more nodes, such as 100000: for {kind}s that are not trusted",
    )
    options.add_argument(
        "--max-bytes",
        type=byte_count,
        metavar="BYTES",
        help=f"refuse {kind} files with more bytes, such as 64MiB",
    )


def add_bind(options: argparse._ArgumentGroup, more: str = "") -> None:
    """Add the option that gives numbers to dimensions."""
    options.add_argument(
        "--bind",
        action="append",
        default=[],
        type=_binding,
        metavar="NAME=NUMBER",
        help="number for a symbolic dimension, such as batch=1, or the shape of an input, such as "
        f"image=1x3x224x224; can be repeated{more}",
    )


def group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """Return the options of a command that the help lists under a title."""
    there = (found for found in parser._action_groups if found.title == title)
    return next(there, None) or parser.add_argument_group(title)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option to print JSON."""
    group(parser, "output").add_argument(
        "--json", action="store_true", help="print JSON and nothing else"
    )


def byte_count(text: str) -> int:
    """Read a number of bytes, such as ``65536`` or ``48KiB``."""
    try:
        return parse_size(text)
    except InvalidSize as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def seconds(text: str) -> float:
    """Read a time, such as ``0.5``."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return found


def whole(least: int, most: int = 2**64 - 1) -> Callable[[str], int]:
    """Return a function that reads a whole number from ``least`` to ``most``."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS + 1):
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number of 64 bits")
        if not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least} to {most:,}")
        return int(text)

    return read


def _binding(text: str) -> tuple[str, int | tuple[int, ...] | range | list[int]]:
    """
    Read ``NAME=NUMBER``, ``NAME=FIRST..LAST``, or several of those after commas.

    ``NAME=2x3`` is the shape of an input.
    """
    name, _, numbers = text.rpartition("=")
    dims = numbers.split("x")
    if name and len(dims) > 1 and all(map(_is_number, dims)):
        return name, tuple(map(int, dims))
    if two := re.fullmatch(r"([^=]+=[\d.,]*\d),([^=]+)", name):
        raise argparse.ArgumentTypeError(
            f"{text!r} binds two dimensions; write --bind {two[1]} --bind {two[2]}={numbers}"
        )
    ranges = [_range(part) for part in numbers.split(",")]
    spans = [span for span in ranges if span is not None]
    if not name or len(spans) < len(ranges):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=NUMBER, such as batch=1, nor NAME=FIRST..LAST, "
            "NAME=NUMBER,NUMBER,… or a shape such as NAME=1x3x224x224"
        )
    if len(spans) == 1:
        return name, (spans[0] if ".." in numbers else spans[0].start)
    if sum(span.stop - span.start for span in spans) > _MAX_LISTED:
        raise argparse.ArgumentTypeError(f"{text!r} lists more than {_MAX_LISTED:,} numbers")
    return name, [number for span in spans for number in span]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def _range(text: str) -> range | None:
    """Read ``NUMBER`` or ``FIRST..LAST``."""
    first, separator, last = text.partition("..")
    ends = (first, last) if separator else (first, first)
    if not all(map(_is_number, ends)):
        return None
    start, stop = map(int, ends)
    return range(start, stop + 1) if start <= stop else None
