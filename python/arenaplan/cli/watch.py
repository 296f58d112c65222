"""Progress of long searches on stderr; Ctrl-C ends a search with the best answer so far."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from arenaplan.cli.printing import detail, voice

_PERIOD = 0.1
"""Seconds between two messages; shorter calls show none."""


@contextmanager
def watching(options: argparse.Namespace, *, catches: bool = True) -> Iterator[ProgressLine]:
    """
    Yield a progress callback that reports a search and ends the search after Ctrl-C.

    Progress is a line on a terminal, or a JSON document per line with ``--progress json``. The
    first Ctrl-C ends the search with the best answer so far and sets ``was_stopped``; the second
    Ctrl-C gives up. Without ``catches``, Ctrl-C raises as usual.
    """
    watch = ProgressLine(form_of(options))
    is_main = threading.current_thread() is threading.main_thread()
    catches = catches and is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if catches:
        signal.signal(signal.SIGINT, watch.stop)
    started = time.process_time()
    try:
        yield watch
    finally:
        if catches:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        watch.clear()
        detail(f"searched for {time.process_time() - started:.2f} s of processor time")


def form_of(options: argparse.Namespace) -> str:
    """Return the progress form: ``"line"``, ``"json"`` or ``"none"``."""
    if options.progress != "auto":
        return str(options.progress)
    is_line = sys.stderr.isatty() and not options.json and not voice.quiet
    return "line" if is_line else "none"


class ProgressLine:
    """Progress callback for :func:`arenaplan.pack` and :func:`arenaplan.plan`."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._shown = time.monotonic()
        self._is_clear = True
        self.was_stopped = False
        """Whether Ctrl-C has ended the search."""

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Let the next call end the search; the next signal raises."""
        self.was_stopped = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.clear()
        print("ending with the best answer so far; Ctrl-C again gives up", file=sys.stderr)

    def raise_if_stopped(self) -> None:
        """Raise the exception for Ctrl-C, after the answer was given."""
        if self.was_stopped:
            raise KeyboardInterrupt

    def __call__(self, progress: dict[str, Any]) -> bool:
        """Tell the progress; return whether the search goes on."""
        if progress["peak"] is not None and self._is_due():
            (self._line if self._form == "line" else self._document)(progress)
        return not self.was_stopped

    def count(self, done: int, total: int, what: str = "checked") -> bool:
        """Tell how many shapes are done; return whether the search goes on."""
        if self._is_due():
            if self._form == "json":
                print(json.dumps({"stage": what, "done": done, "total": total}), file=sys.stderr)
            else:
                self._is_clear = False
                line = f"\r\x1b[K{done:,} of {total:,} shapes {what}"
                print(line, end="", file=sys.stderr, flush=True)
        return not self.was_stopped

    def _is_due(self) -> bool:
        """Whether another message is due; if so, the clock restarts."""
        now = time.monotonic()
        if self._form == "none" or now - self._shown < _PERIOD:
            return False
        self._shown = now
        return True

    def _line(self, progress: dict[str, Any]) -> None:
        self._is_clear = False
        peak, bound = progress["peak"], progress["lower_bound"]
        proven = f", bound {bound:,}, gap {gap(peak, bound):.3%}" if bound else ""
        line = f"{progress['seconds']:7.1f} s  {progress['stage']}: {peak:,} bytes{proven}"
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def _document(self, progress: dict[str, Any]) -> None:
        peak, bound = progress["peak"], progress["lower_bound"]
        print(json.dumps({**progress, "gap": gap(peak, bound)}), file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Leave an empty line."""
        if not self._is_clear:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._is_clear = True


def gap(peak: int, lower_bound: int) -> float:
    """Return the relative gap between a peak and its bound."""
    return (peak - lower_bound) / lower_bound if lower_bound else 0.0
