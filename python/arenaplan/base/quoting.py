"""Names fit for a message: quoted, shortened, and a few of many."""

from __future__ import annotations

from collections.abc import Iterable


def quoted(name: str, limit: int = 80) -> str:
    """Return ``name`` in quotes, shortened and with unprintable characters escaped."""
    return repr(name) if len(name) <= limit else f"{name[:limit]!r}…"


def listed(names: Iterable[str], limit: int = 10) -> str:
    """Return the first few of ``names`` in quotes, and how many more there are."""
    names = list(names)
    text = ", ".join(quoted(name) for name in names[:limit])
    return text if len(names) <= limit else f"{text} and {len(names) - limit} more"
