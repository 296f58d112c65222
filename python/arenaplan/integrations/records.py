"""
MXNet record files (RecordIO), read without MXNet.

A file is a row of records. A record is a single part, or several parts if the record's bytes
contain the mark at which parts begin. A part is the mark, 3 bits for the kind of the part and 29
bits for the length, the bytes, and padding to a multiple of 4. For new data ArrayRecord, WebDataset
or Parquet are the better choice.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO, Final, NamedTuple

import numpy as np

from arenaplan.base.errors import ModelError, PlannerError, fault

__all__ = ["ImageHeader", "header", "index", "read", "read_at", "to_array_record"]

_MARK: Final = struct.pack("<I", 0xCED7230A)
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_IMAGE: Final = struct.Struct("<IfQQ")
_CHUNK: Final = 1 << 16


class ImageHeader(NamedTuple):
    """The header of an image record."""

    labels: tuple[float, ...]
    id: int
    id2: int
    content: bytes
    """The encoded image."""


def read(
    path: str | os.PathLike[str], *, skip: Callable[[PlannerError], object] | None = None
) -> Iterator[bytes]:
    """
    Yield a file's records, from the first to the last.

    Parameters
    ----------
    path : path
        The file, such as ``train.rec``.
    skip : callable, optional
        Gets the error of each damaged place, after which reading goes on with the next record; by
        default the error is raised.

    Raises
    ------
    ModelError
        If the file is damaged; the message names the byte. Record bytes have no check sum.
    OSError
        If the file cannot be read.
    """
    with open(os.fspath(path), "rb") as file:
        size, at = os.fstat(file.fileno()).st_size, 0
        while at < size:
            try:
                record, at = _record(file, at, size)
            except ModelError as error:
                if skip is None:
                    raise
                skip(error)
                at = _next(file, at + 4, size)
            else:
                yield record


def read_at(path: str | os.PathLike[str], offset: int) -> bytes:
    """Return the record that begins at a byte, which :func:`index` has; raises as :func:`read`."""
    with open(os.fspath(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not 0 <= offset < size:
            raise fault(
                "RecordCorrupt", f"{os.fspath(path)!r} has {size} bytes, and no byte {offset}"
            )
        return _record(file, offset, size)[0]


def index(path: str | os.PathLike[str]) -> dict[int, int]:
    """
    Return the first bytes of records by key, from an index file such as ``train.idx``.

    Raises
    ------
    ModelError
        If a line is not a key and a byte; the message names the line.
    """
    found: dict[int, int] = {}
    with open(os.fspath(path), "rb") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if len(words) != 2 or not all(word.isdigit() for word in words):
                raise fault(
                    "RecordCorrupt",
                    f"{os.fspath(path)!r}: line {number} is {line[:40]!r}, not a key and a byte",
                )
            found[int(words[0])] = int(words[1])
    return found


def header(record: bytes) -> ImageHeader:
    """
    Return labels, numbers and content of an image record.

    Raises
    ------
    ModelError
        If the record is too short for the header.

    Examples
    --------
    >>> header(struct.pack("<IfQQ2f", 2, 0, 7, 0, 0.5, 1.5) + b"png")
    ImageHeader(labels=(0.5, 1.5), id=7, id2=0, content=b'png')
    """
    if len(record) < _IMAGE.size:
        raise fault("RecordCorrupt", f"a header of an image has 24 bytes, the record {len(record)}")
    count, label, number, second = _IMAGE.unpack_from(record)
    end = _IMAGE.size + 4 * count
    if len(record) < end:
        raise fault(
            "RecordCorrupt", f"byte 0 of the record says {count} labels; it has {len(record)} bytes"
        )
    labels = tuple(np.frombuffer(record, "<f4", count, _IMAGE.size).tolist()) or (label,)
    return ImageHeader(labels, number, second, record[end:])


def to_array_record(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    skip: Callable[[PlannerError], object] | None = None,
) -> int:
    """
    Copy the records of a file to an ArrayRecord file, which is replaced at the end.

    Requires the package ``array_record``. Arguments and errors are those of :func:`read`.

    Returns
    -------
    int
        The number of records.
    """
    from array_record.python.array_record_module import ArrayRecordWriter

    part, count = f"{os.fspath(target)}.part", 0
    try:
        writer = ArrayRecordWriter(part, "group_size:1")
        try:
            for record in read(source, skip=skip):
                writer.write(record)
                count += 1
        finally:
            writer.close()
        os.replace(part, target)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part)
    return count


def _record(file: BinaryIO, start: int, size: int) -> tuple[bytes, int]:
    """Return the record that begins at a byte, and the byte after the record."""
    parts: list[bytes] = []
    at = start
    while True:
        file.seek(at)
        head = file.read(8)
        if head[:4] != _MARK or len(head) < 8:
            raise _damaged(file, start, at, "a part does not begin here")
        (word,) = struct.unpack("<I", head[4:])
        kind, length = word >> 29, word & (1 << 29) - 1
        allowed = (_MIDDLE, _LAST) if parts else (_WHOLE, _FIRST)
        if kind not in allowed:
            raise _damaged(file, start, at + 4, f"a part of kind {kind} cannot follow")
        if length > size - at - 8:
            left = size - at - 8
            raise _damaged(file, start, at + 4, f"a part of {length} bytes has {left} left")
        parts.append(file.read(length))
        at += 8 + length + -length % 4
        if kind in (_WHOLE, _LAST):
            return _MARK.join(parts), at


def _damaged(file: BinaryIO, start: int, at: int, problem: str) -> PlannerError:
    return fault("RecordCorrupt", f"{file.name!r}: record at byte {start}: byte {at}: {problem}")


def _next(file: BinaryIO, at: int, size: int) -> int:
    """Return the next byte, at a multiple of 4, where a record may begin; the size if none does."""
    at += -at % 4
    while at < size:
        file.seek(at)
        chunk = file.read(_CHUNK + 4)
        found = chunk.find(_MARK)
        while 0 <= found < _CHUNK:
            kind = chunk[found + 7] >> 5 if found + 7 < len(chunk) else _MIDDLE
            if found % 4 == 0 and kind in (_WHOLE, _FIRST):
                return at + found
            found = chunk.find(_MARK, found + 1)
        at += _CHUNK
    return size
