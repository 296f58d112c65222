"""The options of a command from all sources: command line, environment, configuration file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from arenaplan.cli.config import environment, find_config, merged, words_for
from arenaplan.cli.parser import COMMANDS, Parser, parse
from arenaplan.cli.voice import Voice, detail, set_voice

_WITHOUT = frozenset(("completion", "man", "targets"))
"""Commands that must work wherever a shell stands."""


def with_settings(
    parser: Parser, arguments: Sequence[str], position: int, options: argparse.Namespace
) -> argparse.Namespace:
    """
    Return options with those of the environment and of the configuration file.

    Parameters
    ----------
    parser : Parser
        The parser of the command line.
    arguments : sequence of str
        The words of the command line.
    position : int
        The position of the command among them.
    options : argparse.Namespace
        The options of these words alone.

    Returns
    -------
    argparse.Namespace
        The options. ``with_model`` is a function that returns them for the file of a model, for
        commands with several.
    """
    chosen: Parser = options.parser
    command = arguments[position]
    config = None if command in _WITHOUT else find_config(options.config)

    def with_model(model: Path | None) -> argparse.Namespace:
        layers = merged({} if config is None else config.settings(model), environment())
        words, sources = words_for(command, chosen, layers, options)
        # Before the flags of the command line, which therefore count more.
        full = [*arguments[: position + 1], *words, *arguments[position + 1 :]]
        found = parse(parser, full)
        found.with_model = with_model
        set_voice(Voice(found.quiet, found.verbose, found.color, sources))
        for name, source in sources.items():
            detail(f"--{name} from {source}")
        return found

    assert command in COMMANDS
    model = getattr(options, "model", None)
    return with_model(model if isinstance(model, Path) else None)
