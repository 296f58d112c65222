"""What the commands share: options and the shape of their output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from arenaplan import load
from arenaplan.graph import Graph

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]


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
        help="number for a symbolic dimension, such as batch=1; can be repeated",
    )
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option to print JSON."""
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")


def load_model(options: argparse.Namespace, path: Path | None = None) -> Graph:
    """Read a model that a command was given, and pass on what the importer had to assume."""
    graph = load(options.model if path is None else path, bind=dict(options.bind))
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


def _binding(text: str) -> tuple[str, int]:
    """Read ``NAME=NUMBER``."""
    name, separator, number = text.rpartition("=")
    if not (separator and name and number.isascii() and number.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=NUMBER, such as batch=1")
    return name, int(number)
