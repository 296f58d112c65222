"""The parser with every command, for what is generated from it."""

from __future__ import annotations

from arenaplan.cli.parser import COMMANDS, Parser


def whole_parser() -> Parser:
    """Return the parser of the command line with all commands, which imports them all."""
    from arenaplan.cli import add_command_to, make_parser

    parser, commands = make_parser()
    commands.help = "command"  # Left out of the help, which lists commands by group.
    for name in COMMANDS:
        add_command_to(commands, name)
    return parser
