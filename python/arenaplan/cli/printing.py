"""What commands say to people: sizes, names, proofs, notes and errors in words, and colors."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from ast import literal_eval
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

from arenaplan.base.quoting import printable

if TYPE_CHECKING:
    from arenaplan import Plan

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


# -- sizes and names ----------------------------------------------------------------


def command(*words: str) -> str:
    """Return a command line of arenaplan for a shell, to be pasted."""
    return shlex.join(["arenaplan", *words])


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def size(number: int) -> str:
    """Return a number of bytes for people, such as ``7,225,344 bytes (6.89 MiB)``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= scale:
            return f"{number:,} bytes ({number / scale:.2f} {unit})"
    return f"{number:,} bytes"


def shown(name: str, longest: int = 60) -> str:
    """Return a name that fits a line of a table and cannot spoil it."""
    text = printable(name)
    return text if len(text) <= longest else text[: longest - 1] + "…"


# -- proofs and notes ---------------------------------------------------------------

MOVE_SCOPE: Final = "this order, these steps and this sharing of bytes"
"""Scope of the bound of the cost of moving bytes."""

_ORDER: Final = "proven minimal for these steps in this order"


def proof_of(plan: Plan) -> str:
    """Return the text of the proof about the size of a plan."""
    if not plan.covers.is_whole:
        return "for a part of the model: how much the whole needs is not known"
    capacity = plan.spaces[0].capacity if plan.spaces else None
    if plan.status == "infeasible" and capacity is not None:
        bound = f"the budget is {capacity:,}, the lower bound {plan.lower_bound:,}"
        return f"infeasible for these steps{_order_of(plan)}: {bound}"
    if plan.status != "optimal":
        return gap_text(plan.status, plan.arena_bytes, plan.lower_bound)
    if plan.arena_bytes == plan.floor:
        return "proven minimal for these steps in any order"
    if plan.move_cost is not None:
        return "proven minimal for these values in each memory"
    proof = f"{_ORDER}, with these shared bytes" if plan.shares else _ORDER
    if plan.order_search == "complete":
        proof += "; no other order of them has fewer live bytes"
    return proof


def _order_of(plan: Plan) -> str:
    """Return the orders that a proof is about."""
    is_of_all = plan.order_search in ("complete", "beam")  # Else the status would be "unknown".
    return " in any order" if is_of_all else " in this order"


def proof_of_several(status: str, arena_bytes: int, lower_bound: int) -> str:
    """Return the text of the proof about one arena for several plans."""
    if status == "optimal":
        return "proven minimal for these steps in their orders, with these shared bytes"
    return gap_text(status, arena_bytes, lower_bound)


def gap_text(status: str, arena_bytes: int, lower_bound: int) -> str:
    """Return the text of the gap between the size of an arena and its bound."""
    gap = arena_bytes / lower_bound - 1 if lower_bound else 0.0
    return f"{status}, {gap:.2%} above the lower bound"


def notes_of(plan: Plan, *, has_arena: bool = False) -> list[str]:
    """
    Return what the target needs or lacks beside the arena's bytes, one sentence each.

    Parameters
    ----------
    plan : Plan
        The plan.
    has_arena : bool, default False
        Whether the report has the whole arena of the runtime, too.
    """
    target = plan.target
    if target.name == "ideal":
        notes = ["no runtime honors every technique at once: a plan for one needs --target"]
        if plan.skipped:
            notes.append(f"not tried: {', '.join(plan.skipped)}")
        return notes
    if has_arena:
        return []
    notes = [f"not tried: {', '.join(plan.skipped)}"] if plan.skipped else []
    if target.scratch == "runner":
        notes.append("scratch memory of the runtime's kernels is not in these bytes")
    elif target.name == "numpy" and plan.options["workspace"] == "none":
        notes.append("scratch memory of the kernels is left out (--workspace none)")
    if target.fixed == "runner":
        notes.append("the runtime's own structures are not in these bytes")
    return notes


# -- errors of Python in the words of the command line ------------------------------

_FLAGS: Final = {
    "alignment": "--align",
    "capacity": "--budget",
    "pins": "--pin",
    "extra": "--max-extra",
    "together": "--share",
    "original": "--original",
}
"""Flags of options whose names are others."""

_BINDING: Final = re.compile(r"""\bbind=\{('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"): (…|\(…\))\}""")
_OPTION: Final = re.compile(r"\boption (--)?([a-z][a-z_]*(?:-[a-z]+)*)(?=:| is\b| has\b)")
_KEYWORD: Final = re.compile(r"\b([a-z][a-z_]*)='([^']*)'")


def in_words(message: str) -> str:
    """Return the message of an error of Python in the words of the command line."""
    text = _BINDING.sub(_bound, message)
    text = _OPTION.sub(lambda found: f"option {_flag(found[2])}", text)
    text = _KEYWORD.sub(_spelled, text)
    for name, source in voice.sources.items():
        if re.search(rf"--{re.escape(name)}(?![\w-])", text):
            text += f" (--{name} is from {source})"
    return text


def plain(text: str) -> str:
    """Return a sentence in Markdown without links, whose pages a terminal does not have."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def _bound(found: re.Match[str]) -> str:
    """Return a number or shape for ``bind`` as an option."""
    name, size = literal_eval(found[1]), "1x3x224x224" if found[2] == "(…)" else "1"
    return f"--bind {shlex.quote(name)}={size}"


def _flag(name: str) -> str:
    """Return the flag of an option that Python names."""
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


_KEYWORDS: Final = frozenset(("effort", "inputs", "outputs", "target", "workspace", "optimize"))


def _spelled(found: re.Match[str]) -> str:
    """Return a keyword argument of Python as a flag."""
    name, value = found[1], found[2]
    return f"--{name} {shlex.quote(value)}" if name in _KEYWORDS else found[0]
