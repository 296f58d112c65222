"""
External data: weight files beside the model.

Models name these files and are untrusted, so a location is checked twice: as text when the model is
read, without opening a file, and against the file system when an executor first loads the weights.
Files outside the model's folder are never read, neither through ``..`` nor through links.
"""

from __future__ import annotations

import io
import mmap
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from arenaplan.base.errors import PlannerError, fault
from arenaplan.base.quoting import quoted
from arenaplan.formats.onnx.lean import LARGE, Content
from arenaplan.graph.sizes import MAX_BYTES

_DRIVE = re.compile(r"[A-Za-z]:")
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")


class FileSpan(NamedTuple):
    """The place of a tensor's bytes."""

    location: str
    """Path relative to the model's folder, with ``/`` as separator."""
    offset: int
    length: int


def read_span(name: str, entries: Iterable[tuple[str, str]], length: int) -> FileSpan:
    """
    Return where tensor ``name`` with ``length`` bytes is stored, without opening a file.

    Raises
    ------
    ModelError
        If no file in the model's folder could hold the tensor.
    """
    fields = dict(entries)
    location = fields.get("location", "")
    offset = _number(name, fields, "offset", 0)
    stored = _number(name, fields, "length", length)
    if offset < 0 or stored < 0 or offset + stored > MAX_BYTES // 2:
        raise fault(
            "ExternalDataRange",
            f"tensor {quoted(name)}: external data at offset {offset} with length {stored} "
            "lies in no file",
        )
    if stored != length:
        raise fault(
            "TensorPayloadMismatch",
            f"tensor {quoted(name)} has {stored} bytes of external data; its shape needs {length}",
        )
    _check_text(name, location)
    return FileSpan(location, offset, length)


def _number(name: str, fields: dict[str, str], key: str, default: int) -> int:
    """Return the number that an entry spells."""
    text = fields.get(key)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text):
        raise fault(
            "ExternalDataRange",
            f"tensor {quoted(name)}: the {key} {quoted(text)} of its external data is not a number",
        )
    return int(text)


def _check_text(name: str, location: str) -> None:
    """Refuse a location outside the model's folder, on any system."""
    parts = location.split("/")
    reason = None
    if not location:
        reason = "is empty"
    elif "\0" in location:
        reason = "contains a zero byte"
    elif "\\" in location:
        reason = "contains a backslash; parts of a path are separated by '/'"
    elif location.startswith("/") or _DRIVE.match(location):
        reason = "is absolute"
    elif ".." in parts:
        reason = "contains '..'"
    elif all(part in ("", ".") for part in parts):
        reason = "names no file"
    if reason is not None:
        raise fault(
            "ExternalDataPath",
            f"tensor {quoted(name)}: the location {quoted(location)} of its external data {reason}",
        )


@dataclass
class Folder:
    """A model's folder, as far as external data is concerned."""

    path: Path | None
    """``None`` if the model was not read from a file."""
    own: Content = b""
    """The content of the model's own file, in which large weights stay."""

    def inside(self, name: str, offset: int, length: int) -> memoryview:
        """
        Return bytes from the model's own file.

        Raises
        ------
        ModelError
            If the file is too short.
        """
        # A file may have been cut since it was mapped; a read beyond its end ends the process.
        size = self.own.size() if isinstance(self.own, mmap.mmap) else len(self.own)
        if not 0 <= offset <= min(size, len(self.own)) - length:
            raise _beyond(name, FileSpan("", offset, length), size)
        return memoryview(self.own)[offset : offset + length]

    def read(self, name: str, span: FileSpan) -> memoryview:
        """
        Return tensor ``name``'s bytes, read-only.

        Large tensors are mapped instead of read, so that weights take memory only while a kernel
        reads them. The file must not change while the weights are in use.

        Raises
        ------
        ModelError
            If the file does not exist, is not a plain file in this folder, or is too short.
        """
        if not span.length:
            return memoryview(b"")
        location = span.location
        if self.path is None:
            raise fault(
                "ExternalDataMissing",
                f"tensor {quoted(name)} is stored in {quoted(location)}, and the model was not "
                "read from a file, so there is no folder to look in",
            )
        path = self.path
        parts = [part for part in location.split("/") if part not in ("", ".")]
        try:
            for part in parts[:-1]:
                path = path / part
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    raise _refused(name, path, "is a link or no folder")
            path = path / parts[-1]
            expected = os.lstat(path)
            _check_file(name, path, expected)
            with open(path, "rb", buffering=0) as file:
                opened = os.fstat(file.fileno())
                if not os.path.samestat(expected, opened):
                    raise _refused(name, path, "was replaced while it was opened")
                return _bytes_of(name, file, span, opened.st_size)
        except FileNotFoundError:
            raise fault(
                "ExternalDataMissing",
                f"tensor {quoted(name)} is stored in {str(path)!r}, which does not exist",
            ) from None
        except (OSError, ValueError) as error:
            raise fault(
                "ExternalDataMissing",
                f"tensor {quoted(name)} is stored in {str(path)!r}, which cannot be read: {error}",
            ) from error


def mapped(file: BinaryIO, start: int, length: int) -> tuple[mmap.mmap, int]:
    """Map a part of a file, read-only; return the map and the part's start in the map."""
    before = start % mmap.ALLOCATIONGRANULARITY
    whole = mmap.mmap(
        file.fileno(), before + length, access=mmap.ACCESS_READ, offset=start - before
    )
    return whole, before


def _bytes_of(name: str, file: io.FileIO, span: FileSpan, size: int) -> memoryview:
    """Return a tensor's bytes."""
    end = span.offset + span.length
    # Bytes that the file does not have are not allocated.
    if end <= size and span.length >= LARGE:
        found, before = mapped(file, span.offset, span.length)
        return memoryview(found)[before:]
    if end <= size:
        memory = memoryview(bytearray(span.length))
        file.seek(span.offset)
        done = 0
        while done < span.length:
            count = file.readinto(memory[done:])
            if not count:
                size = span.offset + done
                break
            done += count
        else:
            return memory.toreadonly()
    raise _beyond(name, span, size)


def _beyond(name: str, span: FileSpan, size: int) -> PlannerError:
    """Return the error for bytes that a file does not have."""
    where = quoted(span.location) if span.location else "the model's file"
    return fault(
        "ExternalDataRange",
        f"tensor {quoted(name)} ends at byte {span.offset + span.length} of {where}, which has "
        f"{size}",
    )


def _check_file(name: str, path: Path, status: os.stat_result) -> None:
    """Refuse everything except a plain file with a single name."""
    if stat.S_ISLNK(status.st_mode):
        raise _refused(name, path, "is a symbolic link")
    if not stat.S_ISREG(status.st_mode):
        raise _refused(name, path, "is not a plain file")
    if status.st_nlink > 1:
        raise _refused(name, path, "has several names (hard links)")


def _refused(name: str, path: Path, reason: str) -> PlannerError:
    """Return the error for a file that external data must not be read from."""
    return fault(
        "ExternalDataPath",
        f"tensor {quoted(name)}: its external data {str(path)!r} {reason}; "
        "copy the file into the model's folder",
    )
