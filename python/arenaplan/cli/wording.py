"""Messages of errors in the words of the command line."""

from __future__ import annotations

import re
import shlex
from ast import literal_eval
from typing import Final

from arenaplan.cli.voice import voice

_FLAGS: Final = {
    "alignment": "--align",
    "in_place": "--no-in-place",
    "pins": "--pin",
    "spaces": "--budget",
    "extra": "--max-extra",
    "together": "--share",
    "original": "--original",
}
"""Flags of options whose names are others."""

_BINDING: Final = re.compile(r"""\bbind=\{('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"): (…|\(…\))\}""")
_OPTION: Final = re.compile(r"\boption (--)?([a-z][a-z_]*(?:-[a-z]+)*)(?=:| is\b| has\b)")
_KEYWORD: Final = re.compile(r"\b([a-z][a-z_]*)='([^']*)'")


def worded(error: Exception) -> str:
    """Return the message of an error, with options as they are spelled on the command line."""
    return in_words(str(error))


def in_words(message: str) -> str:
    """Return the message of an error of Python in the words of the command line."""
    text = _BINDING.sub(_bound, message)
    text = _OPTION.sub(lambda found: f"option {_flag(found[2])}", text)
    text = _KEYWORD.sub(_spelled, text)
    for name, source in voice.sources.items():
        if re.search(rf"--{re.escape(name)}(?![\w-])", text):
            text += f" (--{name} is from {source})"
    return text


def _bound(found: re.Match[str]) -> str:
    """Return a number or shape for ``bind`` as an option."""
    name, size = literal_eval(found[1]), "1x3x224x224" if found[2] == "(…)" else "1"
    return f"--bind {shlex.quote(name)}={size}"


def _flag(name: str) -> str:
    """Return the flag of an option that Python names."""
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


_KEYWORDS: Final = frozenset(
    ("effort", "inputs", "order", "outputs", "target", "workspace", "optimize")
)


def _spelled(found: re.Match[str]) -> str:
    """Return a keyword argument of Python as a flag."""
    name, value = found[1], found[2]
    return f"--{name} {shlex.quote(value)}" if name in _KEYWORDS else found[0]
