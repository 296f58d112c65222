"""Reading the command line, with messages that help."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn


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
