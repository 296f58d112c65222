"""The archive that ``torch.export.save`` writes: a zip with the graph as JSON."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any, Final, TypeAlias

from arenaplan.base.errors import NotAModel, fault
from arenaplan.base.model_files import opened

Source: TypeAlias = "str | os.PathLike[str] | bytes"

MAX_GRAPH: Final = 1 << 28
"""Largest graph description, in bytes; weights are elsewhere."""

_MAX_RATIO: Final = 200
"""Largest compression ratio for JSON; files that shrink more are meant to exhaust memory."""


def read_graph(source: Source) -> tuple[dict[str, Any], Path | None]:
    """
    Return a model's graph description, and the path.

    Raises
    ------
    NotAModel
        If the file is not an archive of an exported program.
    ModelError
        If the file unpacks to far more than its size justifies.
    OSError
        If the file cannot be read.
    """
    if isinstance(source, bytes):
        return _read(io.BytesIO(source), "the data"), None
    path = Path(source)
    with opened(path) as file:
        return _read(file, repr(str(path))), path


def _read(file: Any, what: str) -> dict[str, Any]:
    """Return the JSON document ``models/model.json`` from an archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = [
                info
                for info in archive.infolist()
                if info.filename.endswith("models/model.json")
                or info.filename in ("model.json", "serialized_exported_program.json")
            ]
            if len(names) != 1:
                raise NotAModel(f"{what} is not an exported program: {len(names)} graphs, not 1")
            text = _unpack(archive, names[0], what)
        document = json.loads(text)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise NotAModel(f"{what} is not an archive: {error}") from error
    except RuntimeError as error:  # Encrypted, or nested deeper than JSON is read.
        raise NotAModel(f"{what} cannot be read: {error}") from error
    except ValueError as error:
        raise NotAModel(f"the graph in {what} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise NotAModel(f"the graph in {what} is not a JSON object")
    return document


def _unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo, what: str) -> bytes:
    """Return a file from an archive, with the size that the archive claims."""
    if info.file_size > MAX_GRAPH:
        raise fault("ModelTooLarge", f"the graph in {what} has {info.file_size} bytes")
    if info.file_size > _MAX_RATIO * max(1, info.compress_size):
        raise fault(
            "BudgetExceeded",
            f"the graph in {what} unpacks from {info.compress_size} to {info.file_size} bytes",
        )
    with archive.open(info) as file:
        return file.read(MAX_GRAPH)
