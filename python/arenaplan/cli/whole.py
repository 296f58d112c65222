"""The parser with every command, for what is generated from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arenaplan.cli.parser import COMMANDS, Parser

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arenaplan.cli.common import Commands


def whole_parser() -> Parser:
    """Return the parser of the command line with all commands, which imports them all."""
    return _whole()[0]


def whole_commands() -> Mapping[str, Parser]:
    """Return the parser of each command, by name, which imports them all."""
    return _whole()[1].choices


def _whole() -> tuple[Parser, Commands]:
    from arenaplan.cli import add_command_to, make_parser

    parser, commands = make_parser()
    commands.help = "command"  # Left out of the help, which lists commands by group.
    for name in COMMANDS:
        add_command_to(commands, name)
    return parser, commands
