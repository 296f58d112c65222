"""Exports with several files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from arenaplan import _core
from arenaplan.base.errors import fault


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """
    Write files into a folder, creating the folder if needed; each file is replaced atomically.

    Raises
    ------
    PlanError
        If a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fault(
            "PlanWriteError", f"cannot make folder {str(folder)!r}: {error.strerror}"
        ) from error
    _core.write_files([(folder / name, data) for name, data in files.items()])
