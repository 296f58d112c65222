"""
Regenerate docs/commands.md: every command with all options and exit codes, as the parser has them.

Usage: python tools/commands.py [--check]

With --check nothing is written; the exit code is 1 if the page is out of date.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from arenaplan.cli.parser import Parser, make_parser
from arenaplan.cli.syntax import COMMANDS, EXIT_CODES, GROUPS

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"

HEAD = """# Commands

`arenaplan COMMAND --help` lists the options that most users need, `--help-all` every option of a
command. A file that is called `-` is stdin or stdout. Sizes may have units: `48KiB`, `8M`. Results
go to stdout, everything else to stderr; with `--json` stdout has one JSON document.
[Configuration](configuration.md) says which options a file or the environment may set.

This page is made by `make commands`.
"""


def page() -> str:
    """Return the page."""
    parser, commands = make_parser()
    parts = [HEAD, "## Exit codes\n", "| code | meaning |\n| --- | --- |"]
    parts += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    parts.append("\n## Options of every command\n")
    parts += _table(parser, "general")
    for title, names in GROUPS.items():
        parts.append(f"\n## {title[:1].upper()}{title[1:]}")
        for name in names:
            parts += _section(name, commands[name])
    return "\n".join(parts) + "\n"


def _section(name: str, parser: Parser) -> Iterator[str]:
    """Yield the lines about one command."""
    form = parser.format_usage().removeprefix("usage: ").strip()
    yield f"\n### {name}\n\n{parser.description}\n\n```text\n{form}\n```\n"
    yield "\n".join(f"- `arenaplan {line}`" for line in COMMANDS[name].lines) + "\n"
    titles = [group.title or "" for group in parser._action_groups]
    yield from _table(parser, *(title for title in titles if title not in ("options", "general")))


def _table(parser: argparse.ArgumentParser, *titles: str) -> Iterator[str]:
    """Yield the options of some groups as a table."""
    groups = {group.title: group._group_actions for group in parser._action_groups}
    rows = [(title, action) for title in titles for action in groups[title]]
    yield "| option | of | meaning |\n| --- | --- | --- |"
    for title, action in rows:
        if action.help != argparse.SUPPRESS:
            kind = _cell(title.removeprefix("positional "))
            yield f"| {_form(action)} | {kind} | {_cell(_meaning(parser, action))} |"


def _form(action: argparse.Action) -> str:
    """Return an option with its value."""
    names = "|".join(map(str, action.choices or ()))
    value = "" if action.nargs == 0 else str(action.metavar or names)
    flags = [f"{flag} {value}".strip() for flag in action.option_strings[-1:]]
    short = [f"`{flag}`, " for flag in action.option_strings[:-1]]
    return "".join(short) + f"`{_cell(flags[0] if flags else value)}`"


def _meaning(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    needed = action.required and action.option_strings
    return parser._get_formatter()._expand_help(action) + (" (required)" if needed else "")


def _cell(text: str) -> str:
    """Return text that fits a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def main() -> None:
    """Write the page, or compare it."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit("docs/commands.md is out of date: run 'make commands'")


if __name__ == "__main__":
    main()
