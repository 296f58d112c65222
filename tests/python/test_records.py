"""Record files: what MXNet writes is read, and damage is an error that names the byte."""

from __future__ import annotations

import os
import random
import struct
import subprocess
from pathlib import Path

import pytest

from arenaplan.base.errors import PlannerError
from arenaplan.integrations import records
from raising import raises
from record_mutations import MARK, RECORDS, mutant, outcome, written


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "a.rec"
    file.write_bytes(written(RECORDS))
    return file


def test_records_of_one_and_of_several_parts_are_read(path: Path) -> None:
    assert list(records.read(path)) == RECORDS
    path.write_bytes(b"")
    assert list(records.read(path)) == []


def test_an_index_leads_to_records(path: Path) -> None:
    starts = [len(written(RECORDS[:count])) for count in range(len(RECORDS))]
    place = path.with_suffix(".idx")
    place.write_text("".join(f"{10 * key}\t{at}\n" for key, at in enumerate(starts)))
    found = records.index(place)
    assert found == {10 * key: at for key, at in enumerate(starts)}
    assert [records.read_at(path, at) for at in found.values()] == RECORDS
    place.write_text("0\t0\n1 2 3\n")
    with raises("RecordCorrupt", match="line 2"):
        records.index(place)
    for offset in (-1, len(path.read_bytes())):
        with raises("RecordCorrupt", match=f"no byte {offset}"):
            records.read_at(path, offset)


def test_headers_of_images() -> None:
    one = struct.pack("<IfQQ", 0, 3.5, 7, 9) + b"jpeg"
    assert records.header(one) == records.ImageHeader((3.5,), 7, 9, b"jpeg")
    three = struct.pack("<IfQQ3f", 3, 0, 7, 9, 1, 2, 3) + b"jpeg"
    assert records.header(three) == records.ImageHeader((1, 2, 3), 7, 9, b"jpeg")
    for cut in (*range(24), 28, 35):
        with raises("RecordCorrupt"):
            records.header(three[:cut])


@pytest.mark.parametrize(
    ("change", "byte"),
    [
        (lambda data: b"\0" + data[1:], 0),
        (lambda data: data[:4] + struct.pack("<I", 3 << 29) + data[8:], 4),
        (lambda data: data[:4] + struct.pack("<I", 7 << 29) + data[8:], 4),
        (lambda data: data[:12] + struct.pack("<I", (1 << 29) - 1) + data[16:], 12),
        (lambda data: data[:20], None),
        (lambda data: data[:18], 12),
        (lambda data: data + b"abcd", len(written(RECORDS))),
    ],
)
def test_damage_is_an_error_with_the_byte(path: Path, change: object, byte: int | None) -> None:
    assert callable(change)
    path.write_bytes(change(written(RECORDS)))
    if byte is None:
        assert list(records.read(path)) == RECORDS[:2]
        return
    with raises("RecordCorrupt", match=rf"byte {byte}\b"):
        list(records.read(path))


def test_records_behind_damage_are_read(path: Path) -> None:
    rng = random.Random(0)
    contents = [rng.randbytes(rng.randrange(40)) + rng.choice((b"", MARK)) for _ in range(300)]
    whole = written(contents)
    starts = [len(written(contents[:count])) for count in range(len(contents) + 1)]
    for _ in range(60):
        bad = rng.randrange(len(contents))
        data = bytearray(whole)
        data[starts[bad]] ^= 0xFF
        path.write_bytes(bytes(data))
        errors: list[PlannerError] = []
        found = list(records.read(path, skip=errors.append))
        assert found == contents[:bad] + contents[bad + 1 :]
        assert f"byte {starts[bad]}:" in str(errors[0])


@pytest.mark.parametrize("part", range(4))
def test_any_change_is_read_or_refused(part: int, path: Path) -> None:
    ends = {outcome(mutant(seed), path) for seed in range(500 * part, 500 * (part + 1))}
    assert ends == {"damaged", "whole"}


SCRIPT = """
import sys, mxnet as mx
source, target = sys.argv[1:]
reader, writer = mx.recordio.MXRecordIO(source, "r"), mx.recordio.MXRecordIO(target, "w")
while (item := reader.read()) is not None:
    writer.write(item)
image = mx.recordio.pack(mx.recordio.IRHeader(0, [1.0, 2.0, 3.0], 7, 9), b"jpeg")
writer.write(image)
writer.close()
"""


def test_mxnet_reads_and_writes_the_same_bytes(path: Path) -> None:
    python = os.environ.get("ARENAPLAN_MXNET")
    if not python:
        pytest.skip("no ARENAPLAN_MXNET: a Python that has mxnet 1.9.1 and numpy 1.23.5")
    contents = RECORDS[1:] + [random.Random(2).randbytes(n) + MARK for n in range(200)]
    path.write_bytes(written(contents))
    target = path.with_name("b.rec")
    subprocess.run([python, "-c", SCRIPT, str(path), str(target)], check=True)
    *found, image = records.read(target)
    assert found == contents
    assert records.header(image) == records.ImageHeader((1, 2, 3), 7, 9, b"jpeg")
    assert target.read_bytes().startswith(path.read_bytes())


def test_records_become_an_array_record_file(path: Path) -> None:
    module = pytest.importorskip("array_record.python.array_record_module")
    target = path.with_suffix(".array_record")
    assert records.to_array_record(path, target) == len(RECORDS)
    reader = module.ArrayRecordReader(str(target))
    assert list(reader.read_all()) == RECORDS
    path.write_bytes(path.read_bytes()[:-4])
    with raises("RecordCorrupt"):
        records.to_array_record(path, target.with_name("cut"))
    assert not target.with_name("cut").exists()
    assert records.to_array_record(path, target, skip=lambda error: None) == len(RECORDS) - 1
