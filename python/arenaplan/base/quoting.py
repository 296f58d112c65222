"""Names in messages and tables: quoted, shortened, printable, and limited in number."""

from __future__ import annotations

from collections.abc import Iterable


def quoted(name: str, limit: int = 80) -> str:
    """Return ``name`` in quotes, shortened and with unprintable characters escaped."""
    return repr(name) if len(name) <= limit else f"{name[:limit]!r}…"


def printable(text: str, kept: str = "") -> str:
    """Return text without characters that spoil a line, apart from those that are ``kept``."""
    return "".join(c if c.isprintable() or c in kept else "\N{REPLACEMENT CHARACTER}" for c in text)


def listed(names: Iterable[str], limit: int = 10) -> str:
    """Quote the first few ``names`` and count the others."""
    names = list(names)
    text = ", ".join(quoted(name) for name in names[:limit])
    return text if len(names) <= limit else f"{text} and {len(names) - limit} more"
