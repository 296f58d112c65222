"""Suggestions for misspelled names in messages."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

_MOST: Final = 20_000
"""Most names that are compared, which takes tenths of a second."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """
    Return the closest known name, if any name is close.

    Examples
    --------
    >>> closest("logit", ["input", "logits"]), closest("x", ["input", "logits"])
    ('logits', None)
    """
    from difflib import get_close_matches  # Only for errors.

    return next(iter(get_close_matches(name, list(islice(known, _MOST)), n=1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """
    Return a suggestion to end a message about a wrong name; empty if no name is close.

    Examples
    --------
    >>> did_you_mean("logit", ["input", "logits"])
    "; did you mean 'logits'?"
    """
    found = closest(name, known)
    return "" if found is None else f"; did you mean {found!r}?"
