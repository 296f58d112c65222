"""Model files: opened without waiting, and read once in a block."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from arenaplan.base.errors import NotAModel, fault

_KEPT: ContextVar[dict[Path, bytes] | None] = ContextVar("arenaplan_kept", default=None)


@contextmanager
def opened(path: Path, most: int | None = None) -> Iterator[BinaryIO]:
    """
    Open a model file, without waiting for example for a pipe's writer.

    Raises
    ------
    NotAModel, ModelError
        If the path is not a plain file, or the file has more than ``most`` bytes.
    OSError
        If the file cannot be opened.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise NotAModel(f"{str(path)!r} is not a plain file")
        if most is not None and status.st_size > most:
            raise fault(
                "ModelTooLarge",
                f"{str(path)!r} has {status.st_size} bytes; the format allows {most}",
            )
        yield file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


@contextmanager
def read_once() -> Iterator[None]:
    """Read each file once in a block, so that all figures are of one content."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def read_file(path: Path, most: int) -> bytes:
    """Return a model file's content, for the errors of :func:`opened`."""
    kept = _KEPT.get()
    if kept is not None and path in kept:
        return kept[path]
    with opened(path, most) as file:
        content = file.read()
    if kept is not None:
        kept[path] = content
    return content
