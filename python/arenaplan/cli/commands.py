"""The parser of the command line: its commands are added one by one, or all at once."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from arenaplan import __version__
from arenaplan.cli.parser import COMMANDS, Parser, add_general, overview

if TYPE_CHECKING:
    from arenaplan.cli.syntax.common import Commands


def make_parser() -> tuple[Parser, Commands]:
    """Return the parser, and the place where commands are added."""
    parser = Parser(
        prog="arenaplan",
        usage="arenaplan [OPTION]… COMMAND …",
        description="Plan where every tensor of a neural network lives in one arena.",
        epilog=overview(),
    )
    add_general(parser, is_root=True)
    parser.add_argument("--version", action="version", version=f"arenaplan {__version__}")
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", prog="arenaplan", help=argparse.SUPPRESS
    )
    return parser, commands


def add_command_to(commands: Commands, name: str) -> None:
    """Add a command with its options."""
    import_module(f"arenaplan.cli.syntax.{name}").add_to(commands)
    add_general(commands.choices[name])


def whole_parser() -> Parser:
    """Return the parser of the command line with all commands, which imports them all."""
    return _whole()[0]


def whole_commands() -> Mapping[str, Parser]:
    """Return the parser of each command, by name, which imports them all."""
    return _whole()[1].choices


def _whole() -> tuple[Parser, Commands]:
    parser, commands = make_parser()
    commands.help = "command"  # Left out of the help, which lists commands by group.
    for name in COMMANDS:
        add_command_to(commands, name)
    return parser, commands
