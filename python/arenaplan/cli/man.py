"""``arenaplan man``: manual pages, generated from the parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from arenaplan import __version__, _core
from arenaplan.base.errors import InvalidOption
from arenaplan.cli.commands import whole_parser
from arenaplan.cli.common import say
from arenaplan.cli.parser import COMMANDS, EXAMPLES, GROUPS

_CODES: Final = (
    ("0", "everything is well"),
    ("1", "a check failed: a plan, a proof, a budget or a baseline does not hold"),
    ("2", "usage, or input that cannot be read"),
    ("3", "content that is not supported"),
    ("4", "a bug of arenaplan"),
    ("130", "interrupted"),
)

_VARIABLES: Final = (
    ("ARENAPLAN_CONFIG", "configuration file, or none"),
    ("ARENAPLAN_TARGET, ARENAPLAN_BUDGET, ...", "options, see the page on configuration"),
    ("NO_COLOR, FORCE_COLOR", "no colors, or colors without a terminal"),
)


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    if options.all is None:
        print(page(options.page), end="")
        return
    if options.page is not None:
        raise InvalidOption("option --all: it writes every page, and one was named")
    names = [None, *COMMANDS]
    options.all.mkdir(parents=True, exist_ok=True)
    files = [(options.all / f"{_title(name)}.1", page(name).encode()) for name in names]
    _core.write_files(files)
    say(f"wrote {len(files)} pages to {options.all}")


def page(name: str | None) -> str:
    """
    Return a manual page in the form of man(7).

    Examples
    --------
    >>> page("plan").splitlines()[0].split()[:3]
    ['.TH', 'ARENAPLAN-PLAN', '1']
    """
    parser = whole_parser()
    subparsers = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    chosen = parser if name is None else subparsers.choices[name]
    summary = parser.description if name is None else COMMANDS[name]
    lines = [
        f'.TH {_title(name).upper()} 1 "" "arenaplan {__version__}" "User Commands"',
        ".SH NAME",
        f"{_roff(_title(name))} \\- {_roff(str(summary))}",
        ".SH SYNOPSIS",
        f".B {_roff(chosen.prog if name is not None else 'arenaplan')}",
        *(_synopsis(chosen) if name is not None else ["[OPTION]... COMMAND ..."]),
        ".SH DESCRIPTION",
        _roff(chosen.description or ""),
    ]
    for group in chosen._action_groups:
        rows = [row for action in group._group_actions for row in _option(chosen, action)]
        if rows:
            lines += [f".SH {_roff((group.title or 'options').upper())}", *rows]
    if name is None:
        for title, names in GROUPS.items():
            lines.append(f".SH {_roff(title.upper())}")
            for each in names:
                lines += [".TP", f".BR arenaplan\\-{each} (1)", _roff(COMMANDS[each])]
    else:
        lines += [".SH EXAMPLES", ".nf"]
        lines += [_roff(f"arenaplan {line}") for line in EXAMPLES[name]]
        lines.append(".fi")
    lines += [".SH EXIT STATUS", *_table(_CODES), ".SH ENVIRONMENT", *_table(_VARIABLES)]
    return "\n".join(lines) + "\n"


def _title(name: str | None) -> str:
    return "arenaplan" if name is None else f"arenaplan-{name}"


def _synopsis(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield "[\\fIOPTION\\fR]..."
    for action in parser._actions:
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction):
            name = f"\\fI{_roff(str(action.metavar or action.dest))}\\fR"
            dots = "..." if action.nargs in ("*", "+") else ""
            yield f"[{name}]{dots}" if action.nargs in ("*", "?") else f"{name}{dots}"


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> Iterator[str]:
    """Yield the entry of an option or an argument."""
    if action.help is argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction):
        return
    value = ""
    if action.nargs != 0:
        named = action.metavar or "|".join(map(str, action.choices or ())) or action.dest.upper()
        value = f"\\fI{_roff(str(named))}\\fR"
    yield ".TP"
    if action.option_strings:
        names = ", ".join(f"\\fB{_roff(flag)}\\fR" for flag in action.option_strings)
        yield f"{names} {value}".rstrip()
    else:
        yield value
    yield _roff(parser._get_formatter()._expand_help(action) if action.help else "")


def _table(rows: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for name, text in rows:
        yield from (".TP", f"\\fB{_roff(name)}\\fR", _roff(text))


def _roff(text: str) -> str:
    """Return text whose characters mean only themselves."""
    flat = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{flat}" if flat.startswith((".", "'")) else flat
