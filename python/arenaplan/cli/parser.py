"""Reading the command line, with messages that help."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from arenaplan.base.close import closest

COMMANDS: Final[Mapping[str, str]] = {
    "plan": "plan a model's arena and prove its size",
    "run": "run a model inside its arena, with NumPy or on a device",
    "check": "check a plan file against its model",
    "inspect": "show values, nodes, live bytes per step, the peak and who makes it",
    "explain": "say what makes the peak, and what each technique is worth",
    "map": "draw a plan: every value by address and time, as a page, a drawing or a trace",
    "recompute": "run nodes again so that the arena fits a budget, with a proven bound",
    "export": "write a plan in another form",
    "fit": "rewrite a .tflite model so that its arena fits a budget",
    "prove": "prove that a rewritten .tflite model computes what its original computes",
    "measure": "measure a .tflite model in an installed tflite-micro, and write its profile",
    "diff": "compare two plan files, value by value",
    "gate": "fail if a model outgrows a budget or its baseline: one command for CI",
    "batch": "plan many models for several targets, in worker processes, and write a report",
    "pack": "pack the buffers of a CSV file",
    "targets": "list the runners that plans can be made for, and what each can do",
    "completion": "print the completion of arguments for a shell",
    "man": "print a manual page, of arenaplan or of one command",
}
"""The summary of each command. A command is the module of this package with its name."""

GROUPS: Final[Mapping[str, Sequence[str]]] = {
    "plan and look": ("plan", "explain", "inspect", "map", "targets"),
    "run and check": ("run", "check", "prove", "measure"),
    "write": ("export", "fit", "recompute"),
    "compare, many models": ("gate", "diff", "batch"),
    "other": ("pack", "completion", "man"),
}
"""The groups of commands in the help."""

EXAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "plan": (
        "plan model.onnx",
        "plan model.tflite --target tflm:cmsis-nn --capacity 256KiB",
        "plan model.onnx --bind batch=1 --budget sram=64KiB,psram=8MiB -o plan.json",
        "plan a.onnx b.onnx --share never-together",
        "plan - --json < model.onnx",
    ),
    "run": ("run model.onnx --verify", "run model.onnx --input x=x.npy --save-outputs out"),
    "check": ("check model.onnx plan.json", "check planned.tflite"),
    "inspect": ("inspect model.onnx", "inspect model.onnx --json > report.json"),
    "explain": ("explain model.onnx", "explain model.tflite --top 10 --by layer"),
    "map": ("map model.onnx -o map.html", "map plan.json --against old.json -o map.html"),
    "recompute": ("recompute step.json --budget 512MiB", "recompute step.json --curve"),
    "export": (
        "export model.tflite --to tflm -o planned.tflite",
        "export model.onnx --to c -o arena.h",
    ),
    "fit": ("fit model.tflite --budget 64KiB -o small.tflite", "fit model.tflite --pareto"),
    "prove": ("prove model.tflite small.tflite -o proof.json",),
    "measure": ("measure model.tflite",),
    "diff": ("diff old.json new.json --fail-on-growth",),
    "gate": (
        "gate model.tflite --budget sram=256KiB",
        "gate model.onnx --baseline base.json --update",
        "gate model.onnx --baseline base.json --markdown --junit gate.xml",
        "gate a.tflite b.tflite --baseline baselines/ --allow-growth 1%",
    ),
    "batch": ("batch models/ --targets tflm,numpy -o report.parquet",),
    "pack": ("pack buffers.csv -o placed.csv", "pack - --time-limit 5 < buffers.csv"),
    "targets": ("targets",),
    "completion": (
        "completion bash > ~/.local/share/bash-completion/completions/arenaplan",
        "completion fish > ~/.config/fish/completions/arenaplan.fish",
    ),
    "man": ("man plan | man -l -", "man --all man1/"),
}
"""Command lines of each command, for its help."""

PROGRESS: Final = ("auto", "json", "none")
COLORS: Final = ("auto", "always", "never")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that asks for the width as `shutil` does, whose import is a tenth of a help."""

    def __init__(self, prog: str, **keywords: Any) -> None:
        keywords.setdefault("width", _columns() - 2)
        super().__init__(prog, **keywords)


def _columns() -> int:
    """Return the columns of the terminal: those that COLUMNS names, or 80 if there is none."""
    named = os.environ.get("COLUMNS", "")
    if named.isdecimal() and int(named):
        return int(named)
    try:
        return os.get_terminal_size().columns or 80
    except (OSError, ValueError):  # Stdout is a file or a pipe, or closed.
        return 80


class Parser(argparse.ArgumentParser):
    """A parser that names the options close to a wrong one."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        keywords.setdefault("formatter_class", _Formatter)
        super().__init__(*arguments, **keywords)
        self.set_defaults(parser=self)

    def error(self, message: str) -> NoReturn:
        """End the program with a message, the form of a call, and where its options are listed."""
        operands = self._get_positional_actions()
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, operands, [], prefix="")
        form = formatter.format_help().strip()
        if self.usage is None:
            form = form.replace(self.prog, f"{self.prog} [OPTION]…", 1)
        self.exit(
            2,
            f"usage: {form}\n{self.prog}: error: {message}\n"
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
        """Name the choice that is close to a wrong one."""
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


def add_general(parser: argparse.ArgumentParser, *, is_root: bool = False) -> None:
    """Add the options that every command has, before or behind its name."""
    general = parser.add_argument_group("general")

    def default(value: object) -> Any:
        return value if is_root else argparse.SUPPRESS

    general.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        default=default(False),
        help="print results and errors, and no notes, warnings or progress",
    )
    general.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        default=default(False),
        help="also print where options come from, times, and tracebacks of errors",
    )
    general.add_argument(
        "--color",
        choices=COLORS,
        default=default("auto"),
        help="colors: on terminals unless NO_COLOR is set, always, or never (default: auto)",
    )
    general.add_argument(
        "--progress",
        choices=PROGRESS,
        default=default("auto"),
        help="progress of long searches on stderr: a line on terminals, a JSON document per line, "
        "or none (default: auto)",
    )
    general.add_argument(
        "--config",
        metavar="FILE",
        default=default(None),
        help="configuration file, or none (default: arenaplan.toml or pyproject.toml of this "
        "folder or one above it)",
    )


_WITH_VALUE: Final = frozenset(("--color", "--config", "--progress"))
"""General options whose value may be the next word."""


def command_at(arguments: Sequence[str]) -> int | None:
    """Return the position of the name of the command."""
    is_value = False
    for position, word in enumerate(arguments):
        if not (is_value or word.startswith("-")):
            return position
        is_value = word in _WITH_VALUE and not is_value
    return None


def overview() -> str:
    """Return the commands in their groups, for the help."""
    width = max(map(len, COMMANDS))
    lines = []
    for title, names in GROUPS.items():
        lines.append(f"{title}:")
        lines += [f"  {name:<{width}}  {COMMANDS[name]}" for name in names]
        lines.append("")
    return "\n".join([*lines, "arenaplan COMMAND --help has the options of a command."])


def examples(name: str) -> str:
    """Return the examples of a command, for its help."""
    return "\n".join(["examples:", *(f"  arenaplan {line}" for line in EXAMPLES[name])])


def parse(
    parser: Parser,
    arguments: Sequence[str] | None,
    every_command: Callable[[], Mapping[str, Parser]] = dict,
) -> argparse.Namespace:
    """
    Return the options; wrong ones end the program with the usage of their command.

    Parameters
    ----------
    every_command : callable
        Returns the parser of each command, by name, which takes a while; called for arguments that
        no option takes, to say which commands have such an option.
    """
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        options.parser.refuse(unknown, every_command())
    return options
