"""
Record files that are changed at random: records are read as they are, or refused with the byte.

``python record_mutations.py`` tries many seeds.
"""

from __future__ import annotations

import random
import re
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import seeds
from arenaplan.base.errors import PlannerError
from arenaplan.integrations import records
from raising import raises

MARK = struct.pack("<I", 0xCED7230A)
RECORDS = [
    b"",
    b"one",
    b"four",
    MARK,
    MARK * 3,
    b"ab" + MARK,
    b"abcd" + MARK + b"ef",
    MARK + b"x" * 5 + MARK + b"yyy" + MARK,
    bytes(range(256)) * 9,
]


def written(contents: list[bytes]) -> bytes:
    """Return a record file, with parts cut at marks that are at a multiple of 4."""
    made = b""
    for content in contents:
        cuts = [at for at in range(0, len(content) - 3, 4) if content[at : at + 4] == MARK]
        starts, ends = [0, *(at + 4 for at in cuts)], [*cuts, len(content)]
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            kind = 0 if not cuts else 1 if number == 0 else 3 if number == len(cuts) else 2
            part = content[start:end]
            made += MARK + struct.pack("<I", kind << 29 | len(part)) + part
            made += b"\0" * (-len(part) % 4)
    return made


def mutant(seed: int) -> bytes:
    """Return a file with up to three changes: a byte, the end cut off, or a piece copied."""
    rng = random.Random(seed)
    contents = [rng.choice(RECORDS) for _ in range(rng.randrange(12))]
    data = bytearray(written(contents) or b"x")
    for _ in range(rng.randrange(1, 4)):
        at, kind = rng.randrange(len(data)), rng.randrange(3)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at + 1 :]
        else:
            start = rng.randrange(len(data))
            data[at:at] = data[start : start + rng.randrange(80)]
    return bytes(data)


def outcome(data: bytes, path: Path) -> str:
    """Read a file, with and without the damaged places; return how it ended."""
    path.write_bytes(data)
    errors: list[PlannerError] = []
    kept = list(records.read(path, skip=errors.append))
    assert sum(map(len, kept)) <= len(data)
    for error in errors:
        assert error.kind == "RecordCorrupt"
        assert "byte " in str(error)
    for record in kept:
        assert all(part in data for part in record.split(MARK)), "bytes of the file"
    if not errors:
        assert list(records.read(path)) == kept
        return "whole"
    with raises("RecordCorrupt", match=re.escape(str(errors[0]).partition("\n")[0])):
        list(records.read(path))
    return "damaged"


def _attempt(seed: int) -> tuple[str, Callable[[], str]]:
    path = Path(tempfile.gettempdir()) / f"records-{seed}.rec"

    def run() -> str:
        try:
            return outcome(mutant(seed), path)
        finally:
            path.unlink()

    return "records", run


if __name__ == "__main__":
    sys.exit(seeds.main("files", 4 << 30, _attempt))
