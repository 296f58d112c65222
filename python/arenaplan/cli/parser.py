"""Reading the command line, with messages that help."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

COMMANDS = {
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
}
"""The summary of each command. A command is the module of this package with its name."""


class Parser(argparse.ArgumentParser):
    """A parser that names the options close to a wrong one."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.set_defaults(parser=self)

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """End the program over arguments that the command does not have."""
        options = [text.partition("=")[0] for text in unknown if text.startswith("-")]
        known = [name for name in self._option_string_actions if name.startswith("--")]
        near = [match for name in options for match in get_close_matches(name, known, n=1)]
        hint = f"; did you mean {' and '.join(near)}?" if near else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


def parse(parser: Parser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; wrong ones end the program with the usage of their command."""
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        options.parser.refuse(unknown)
    return options
