"""Results of a command: files, stdout, and the report that must not mix with them."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from arenaplan import _core
from arenaplan.cli.common import say


def goes_to_stdout(options: argparse.Namespace) -> bool:
    """Return whether ``-o -`` sends the result to stdout, and the report to stderr."""
    return str(options.output) == "-"


@contextlib.contextmanager
def delivering(
    options: argparse.Namespace, content: Callable[[], bytes | str] | None
) -> Iterator[None]:
    """
    Write a result, if there is one, where ``-o`` says, if it does; then report it.

    The report is printed inside: to stdout, unless that is the place of the result.
    """
    if options.output is not None and content is not None:
        write_result(options.output, content())
    if goes_to_stdout(options):
        with contextlib.redirect_stdout(sys.stderr):
            yield
    else:
        yield


def write_result(output: Path, content: bytes | str) -> None:
    """Write a result to a file at once, or to stdout if its name is ``-``."""
    data = content.encode() if isinstance(content, str) else content
    sys.stdout.flush()
    if str(output) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    _core.write_files([(output, data)])
    say(f"wrote {output}")
