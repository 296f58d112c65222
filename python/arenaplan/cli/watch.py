"""A line on the terminal that shows how far a search is."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_PERIOD = 0.1
"""Seconds between two changes of the line; shorter calls show none."""


@contextmanager
def watching(options: argparse.Namespace) -> Iterator[_Watch | None]:
    """Yield a progress callback if stderr is a terminal, and leave an empty line."""
    watch = _Watch() if sys.stderr.isatty() and not options.json else None
    try:
        yield watch
    finally:
        if watch is not None:
            watch.clear()


class _Watch:
    """Called with progress, as :func:`arenaplan.pack` and :func:`arenaplan.plan` tell it."""

    def __init__(self) -> None:
        self._shown = time.monotonic()
        self._is_clear = True

    def __call__(self, progress: dict[str, Any]) -> None:
        now = time.monotonic()
        if now - self._shown < _PERIOD or progress["peak"] is None:
            return
        self._shown = now
        self._is_clear = False
        peak, bound = progress["peak"], progress["lower_bound"]
        proven = f", bound {bound:,}, gap {gap(peak, bound):.3%}" if bound else ""
        line = f"{progress['seconds']:7.1f} s  {progress['stage']}: {peak:,} bytes{proven}"
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Leave an empty line."""
        if not self._is_clear:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def gap(peak: int, lower_bound: int) -> float:
    """Return how far a peak is above its bound, as a fraction of it."""
    return (peak - lower_bound) / lower_bound if lower_bound else 0.0
