"""What the commands share: options and the shape of their output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from arenaplan import load
from arenaplan.errors import InvalidOption
from arenaplan.graph import Graph

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

_MAX_DIGITS = 19
"""Most digits of a dimension: those of a number of 64 bits."""

_MAX_LISTED = 1 << 20
"""Most numbers that ranges after commas are written out to."""


def add_command(
    commands: Commands, name: str, summary: str, execute: Callable[[argparse.Namespace], None]
) -> argparse.ArgumentParser:
    """Add a command that reads a model."""
    parser = commands.add_parser(name, help=summary, description=summary)
    parser.set_defaults(execute=execute)
    parser.add_argument("model", type=Path, metavar="MODEL", help="model file, such as model.onnx")
    parser.add_argument(
        "--bind",
        action="append",
        default=[],
        type=_binding,
        metavar="NAME=NUMBER",
        help="number for a symbolic dimension, such as batch=1; can be repeated; with plan also "
        "several, such as batch=1..32 or seq=16,32,64",
    )
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option to print JSON."""
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")


def has_ranges(options: argparse.Namespace) -> bool:
    """Return whether a dimension was given several numbers."""
    return any(not isinstance(sizes, int) for _, sizes in options.bind)


def load_model(options: argparse.Namespace) -> Graph:
    """Read the model that a command was given, and pass on what the importer had to assume."""
    if has_ranges(options):
        raise InvalidOption("option bind: only 'plan' takes several numbers for a dimension")
    graph = load(options.model, bind=dict(options.bind))
    for warning in graph.warnings:
        say(f"warning: {warning}")
    return graph


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def say(text: str) -> None:
    """Tell a person something that is not the result."""
    print(text, file=sys.stderr)


def size(number: int) -> str:
    """Return a number of bytes for people, such as ``7,225,344 bytes (6.89 MiB)``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= scale:
            return f"{number:,} bytes ({number / scale:.2f} {unit})"
    return f"{number:,} bytes"


def shown(name: str, longest: int = 60) -> str:
    """Return a name that fits a line of a table and cannot spoil it."""
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _binding(text: str) -> tuple[str, int | range | list[int]]:
    """Read ``NAME=NUMBER``, ``NAME=FIRST..LAST``, or several of those after commas."""
    name, _, numbers = text.rpartition("=")
    ranges = [_range(part) for part in numbers.split(",")]
    spans = [span for span in ranges if span is not None]
    if not name or len(spans) < len(ranges):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=NUMBER, such as batch=1, nor NAME=FIRST..LAST or "
            "NAME=NUMBER,NUMBER,…"
        )
    if len(spans) == 1:
        return name, (spans[0] if ".." in numbers else spans[0].start)
    if sum(span.stop - span.start for span in spans) > _MAX_LISTED:
        raise argparse.ArgumentTypeError(f"{text!r} lists more than {_MAX_LISTED:,} numbers")
    return name, [number for span in spans for number in span]


def _range(text: str) -> range | None:
    """Read ``NUMBER`` or ``FIRST..LAST``."""
    first, separator, last = text.partition("..")
    ends = (first, last) if separator else (first, first)
    if not all(end.isascii() and end.isdigit() and len(end) <= _MAX_DIGITS for end in ends):
        return None
    start, stop = map(int, ends)
    return range(start, stop + 1) if start <= stop else None
