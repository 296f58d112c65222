"""Progress callbacks, and how callbacks end a search."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, TypeAlias

from arenaplan.base.errors import InvalidOption

_MOST_SECONDS = 1e9
"""Longer limits are none."""

Progress: TypeAlias = Callable[[dict[str, Any]], object]
"""Called with progress; ``False`` ends the search."""


class Watch:
    """Progress and end of a search that calls the core several times."""

    def __init__(self, on_progress: Progress | None, time_limit: float | None = None) -> None:
        if on_progress is not None and not callable(on_progress):
            raise InvalidOption(f"option on_progress: {on_progress!r} is not a function")
        self._on_progress = on_progress
        self._deadline = None if time_limit is None else monotonic() + time_limit
        self._is_over = False

    @property
    def tell(self) -> Progress | None:
        """The progress callback for the core."""
        return None if self._on_progress is None else self._tell

    def _tell(self, progress: dict[str, Any]) -> bool:
        if self._on_progress is None or self._is_over:
            return True  # Later calls get no time and end at once.
        self._is_over = self._on_progress(progress) is False
        return not self._is_over

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the search has to end; ``None`` without a limit."""
        if self._is_over:
            return 0.0
        return None if self._deadline is None else max(self._deadline - monotonic(), 0.0)

    @property
    def was_ended(self) -> bool:
        """Whether the callback has ended any part of the search."""
        return self._is_over

    @property
    def is_over(self) -> bool:
        """Whether the search has to end now."""
        return self.seconds_left == 0.0


def checked_seconds(time_limit: float | None) -> float | None:
    """Return a time limit, or raise an error if invalid."""
    if time_limit is None:
        return None
    if not isinstance(time_limit, (int, float)) or not time_limit >= 0:
        raise InvalidOption(f"option time_limit: {time_limit!r} is not a number of seconds")
    return min(float(time_limit), _MOST_SECONDS)
