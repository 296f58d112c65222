"""Reading the command line, with messages that help."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from arenaplan import __version__
from arenaplan.base.close import closest
from arenaplan.cli.syntax import COMMANDS, GENERAL, GROUPS, Command


class _HelpAll(argparse.Action):
    """Prints the help with the options that few users need, and ends the program."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
        assert isinstance(parser, Parser)
        parser.rare = frozenset()
        parser.print_help()
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser that suggests options similar to a wrong option."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        keywords.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*arguments, **keywords)
        self.rare: frozenset[str] = frozenset()
        """Options that ``--help`` leaves out."""
        self.set_defaults(parser=self)

    def format_usage(self) -> str:
        """Return the usage line, in which one word stands for all options."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._get_positional_actions(), [], prefix="")
        form = formatter.format_help().strip()
        if self.usage is None:
            form = form.replace(self.prog, f"{self.prog} [OPTION]…", 1)
        return f"usage: {form}\n"

    def format_help(self) -> str:
        """Return the help, without the options that are left out."""
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_arguments(list(self._listed(group._group_actions)))
            formatter.end_section()
        formatter.add_text(self.epilog)
        more = f"\n{self.prog} --help-all lists {len(self.rare)} more options\n"
        return f"{self.format_usage()}\n{formatter.format_help()}{more if self.rare else ''}"

    def _listed(self, actions: Iterable[argparse.Action]) -> Iterable[argparse.Action]:
        rare = {f"--{name}" for name in self.rare}
        return (action for action in actions if not rare.intersection(action.option_strings))

    def error(self, message: str) -> NoReturn:
        """Exit with a message, the usage line, and where to find the option list."""
        self.exit(
            2,
            f"{self.format_usage()}{self.prog}: error: {message}\n"
            f"({self.prog} --help lists the options)\n",
        )

    def has(self, option: str) -> bool:
        """Return whether the command has a long option."""
        return option.startswith("--") and option in self._option_string_actions

    def refuse(self, unknown: Sequence[str], commands: Mapping[str, Parser]) -> NoReturn:
        """End the program over arguments that the command does not have, though others may."""
        options = [text.partition("=")[0] for text in unknown if text.startswith("-")]
        known = [name for name in self._option_string_actions if name.startswith("--")]
        owners = _owners(options, commands)
        near = [
            found
            for name in options
            if name not in owners and (found := closest(name, known)) is not None
        ]
        hints = [f"{name} is an option of {', '.join(of)}" for name, of in owners.items()]
        hints += [f"did you mean {' and '.join(near)}?"] if near else []
        self.error("; ".join([f"unrecognized arguments: {' '.join(unknown)}", *hints]))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Suggest a choice similar to a wrong choice."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        near = closest(str(value), choices)
        hint = "" if near is None else f"did you mean {near!r}? "
        raise argparse.ArgumentError(
            action, f"invalid choice: {value!r}; {hint}choose from {', '.join(choices)}"
        )


def _owners(options: Sequence[str], commands: Mapping[str, Parser]) -> dict[str, list[str]]:
    """Return the commands that have an option, for each option that a command has."""
    owners = {
        option: [name for name, command in commands.items() if command.has(option)]
        for option in options
    }
    return {option: names for option, names in owners.items() if names}


def make_parser(names: Iterable[str] = COMMANDS) -> tuple[Parser, Mapping[str, Parser]]:
    """Return the parser for the given commands, and the command parsers by name."""
    parser = Parser(
        prog="arenaplan",
        usage="arenaplan [OPTION]… COMMAND …",
        description="Plan where every tensor of a neural network lives in one arena.",
        epilog=_overview(),
    )
    _add_general(parser, is_root=True)
    parser.add_argument("--version", action="version", version=f"arenaplan {__version__}")
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", prog="arenaplan", help=argparse.SUPPRESS
    )
    for name in names:
        _add_command(commands, name, COMMANDS[name])
    return parser, commands.choices


def _add_command(commands: argparse._SubParsersAction[Parser], name: str, command: Command) -> None:
    """Add a command with its operands and options."""
    summary = command.summary
    lines = ["examples:", *(f"  arenaplan {line}" for line in command.lines)]
    parser = commands.add_parser(
        name,
        help=summary,
        description=command.description or f"{summary[:1].upper()}{summary[1:]}.",
        epilog="\n".join(lines),
    )
    parser.set_defaults(command=name)
    for operand in command.operands:
        action = parser.add_argument(
            operand.name,
            metavar=operand.metavar,
            help=operand.help,
            choices=operand.choices or None,
            type=str if operand.choices else Path,
            nargs=operand.nargs,
        )
        if operand.nargs == "*":
            action.default, action.required = [], False
    required, either = command.required.split(), command.either.split()
    exclusive = None
    for option in command.names:
        row = command.option(option)
        place: argparse._ActionsContainer = _group(parser, row.group)
        if option in either:
            exclusive = exclusive or place.add_mutually_exclusive_group(required=option in required)
            place = exclusive
        action = row.add_to(place, option)
        action.required = option in required and option not in either
    parser.add_argument(
        "--help-all", action=_HelpAll, nargs=0, help="show this help with every option"
    )
    _add_general(parser)
    parser.rare = command.rare | GENERAL.keys()


def _group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """Return the command's option group with the given title in the help."""
    there = (found for found in parser._action_groups if found.title == title)
    return next(there, None) or parser.add_argument_group(title)


def _add_general(parser: argparse.ArgumentParser, *, is_root: bool = False) -> None:
    """Add the options that every command has, before or after its name."""
    group = parser.add_argument_group("general")
    for name, option in GENERAL.items():
        action = option.add_to(group, name)
        if not is_root:
            action.default = argparse.SUPPRESS


_WITH_VALUE: Final = frozenset(
    f"--{name}" for name, option in GENERAL.items() if option.value or option.choices
)
"""General options whose value may be the next word."""


def command_at(arguments: Sequence[str]) -> int | None:
    """Return the index of the command's name."""
    is_value = False
    for position, word in enumerate(arguments):
        if not (is_value or word.startswith("-")):
            return position
        is_value = word in _WITH_VALUE and not is_value
    return None


def _overview() -> str:
    """Return the commands by group, for the help."""
    width = max(map(len, COMMANDS))
    lines = []
    for title, names in GROUPS.items():
        lines.append(f"{title}:")
        lines += [f"  {name:<{width}}  {COMMANDS[name].summary}" for name in names]
        lines.append("")
    return "\n".join([*lines, "arenaplan COMMAND --help has the options of a command."])


def parse(
    parser: Parser,
    arguments: Sequence[str] | None,
    every_command: Callable[[], Mapping[str, Parser]] = dict,
) -> argparse.Namespace:
    """
    Parse the options; a wrong option exits with the command's usage line.

    Parameters
    ----------
    every_command : callable
        Returns every command's parser by name, which takes a while. Called for unknown options
        only, to say which commands have such an option.
    """
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        options.parser.refuse(unknown, every_command())
    return options
