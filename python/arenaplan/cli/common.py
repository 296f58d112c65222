"""Common parts of the commands: options and the shape of their output."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from arenaplan import load
from arenaplan.base.errors import InvalidOption
from arenaplan.cli.inputs import read_model
from arenaplan.cli.parser import Parser
from arenaplan.cli.voice import say as say
from arenaplan.formats import suffix_of
from arenaplan.graph import Graph

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[Parser]


def has_ranges(options: argparse.Namespace) -> bool:
    """Return whether a dimension was given several numbers."""
    return any(not isinstance(sizes, int | tuple) for _, sizes in options.bind)


def load_model(options: argparse.Namespace, path: Path | None = None) -> Graph:
    """Read the model of a command, and pass on the importer's warnings."""
    if has_ranges(options):
        raise InvalidOption("option bind: only 'plan' takes several numbers for a dimension")
    source = options.model if path is None else read_model(path)
    graph = load(source, bind=dict(options.bind))
    for warning in graph.warnings:
        say(f"warning: {warning}")
    return graph


def is_tflite(source: Path | bytes) -> bool:
    """Return whether a model that was given is a TFLite file."""
    if isinstance(source, bytes):
        return suffix_of(source) == ".tflite"
    return source.suffix.lower() == ".tflite"


def is_onnx(options: argparse.Namespace) -> bool:
    """Return whether the model of a command is an ONNX file."""
    source = options.model
    return (suffix_of(source) if isinstance(source, bytes) else source.suffix.lower()) == ".onnx"


def model_word(options: argparse.Namespace) -> str:
    """Return the model of a command as a word of a command line."""
    return "-" if isinstance(options.model, bytes) else str(options.model)


def command(*words: str) -> str:
    """Return a command line of arenaplan for a shell, to be pasted."""
    return shlex.join(["arenaplan", *words])


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


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
