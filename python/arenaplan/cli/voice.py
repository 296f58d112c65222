"""Prose of the commands on stderr: how much of it there is, and its colors."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final, Literal, TextIO

Style = Literal["error", "warning", "good", "bad", "faint"]

_CODES: Final[dict[Style, str]] = {
    "error": "1;31",
    "warning": "33",
    "good": "32",
    "bad": "1;31",
    "faint": "2",
}


class Voice:
    """
    How a command talks to people; one per call of the command line.

    Attributes
    ----------
    quiet : bool
        Nothing but results and errors.
    verbose : bool
        Also where options come from, times, and tracebacks of errors.
    color : str
        ``"auto"``, ``"always"`` or ``"never"``.
    sources : mapping
        The source of each option that is not from the command line, by name of the option.
    """

    __slots__ = ("color", "quiet", "sources", "verbose")

    def __init__(
        self,
        quiet: bool = False,
        verbose: bool = False,
        color: str = "auto",
        sources: Mapping[str, str] | None = None,
    ) -> None:
        self.quiet, self.verbose, self.color = quiet, verbose, color
        self.sources: Mapping[str, str] = {} if sources is None else sources


voice = Voice()
"""The voice of the command that runs."""


def set_voice(new: Voice) -> None:
    """Talk in another way from now on."""
    for name in Voice.__slots__:
        setattr(voice, name, getattr(new, name))


def say(text: str) -> None:
    """Tell a person something that is not the result."""
    if voice.quiet:
        return
    head, separator, rest = text.partition(":")
    if separator and head in ("warning", "note"):
        text = f"{paint(f'{head}:', 'warning', sys.stderr)}{rest}"
    print(text, file=sys.stderr)


def detail(text: str) -> None:
    """Tell something that only ``--verbose`` asks for."""
    if voice.verbose:
        print(paint(text, "faint", sys.stderr), file=sys.stderr)


def paint(text: str, style: Style, stream: TextIO | None) -> str:
    """
    Return text in the color of a style, if the stream shows colors.

    The order of what decides: ``--color always`` or ``never``; the variables ``NO_COLOR`` and
    ``FORCE_COLOR`` if they are not empty; whether the stream is a terminal that has colors.
    """
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if _has_colors(stream) else text


def _has_colors(stream: TextIO | None) -> bool:
    if voice.color != "auto":
        return voice.color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
