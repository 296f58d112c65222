"""``arenaplan completion``: argument completion, generated from the parser."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from arenaplan.cli.parser import make_parser


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    try:
        import shtab
    except ImportError:
        raise ImportError("completion needs shtab: pip install 'shtab>=1.13'") from None

    parser = make_parser()[0]
    _complete_files(parser, shtab.FILE)
    print(shtab.complete(parser, options.shell))


def _complete_files(parser: argparse.ArgumentParser, files: Any) -> None:
    """Complete path arguments with file names."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            action.help = "command"  # Hidden from the help, which lists commands by group.
            for command in action.choices.values():
                _complete_files(command, files)
        elif action.type is Path or "FILE" in str(action.metavar):
            action.complete = files  # type: ignore[attr-defined]
