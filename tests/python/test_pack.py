"""Packing buffers without a graph: ``ap.pack`` and ``arenaplan pack``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import arenaplan as ap
from arenaplan import errors
from arenaplan.cli import main

ABOVE_LOAD = [(4, 0, 3), (2, 0, 1), (1, 1, 2), (3, 2, 5), (2, 3, 4), (3, 4, 6)]


def hard_csv(path: Path, buffers: int = 600) -> Path:
    """Write a problem whose bound cannot be reached, which takes very long to prove."""
    random = np.random.default_rng(3)
    start = random.integers(0, 200, buffers)
    length = random.integers(20, 120, buffers)
    size = random.integers(1000, 9000, buffers)
    rows = [
        f"{i},{start[i]},{start[i] + length[i]},{size[i]},{1 << random.integers(8, 13)}"
        for i in range(buffers)
    ]
    path.write_text("\n".join(["id,lower,upper,size,alignment", *rows]) + "\n")
    return path


def hard_problem(path: Path) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """Return the sizes, live ranges and alignments of such a problem."""
    rows = hard_csv(path / "hard.csv").read_text().split()[1:]
    table = [[int(field) for field in row.split(",")] for row in rows]
    return [row[3] for row in table], [(row[1], row[2]) for row in table], [row[4] for row in table]


def test_arrays_and_lists_give_the_same_packing() -> None:
    sizes, live = [100, 60, 100], [(0, 2), (1, 3), (2, 4)]
    plain = ap.pack(sizes, live)
    assert (plain.offsets, plain.peak, plain.lower_bound, plain.status) == (
        [0, 100, 0],
        160,
        160,
        "optimal",
    )
    assert ap.pack(np.array(sizes), np.array(live)).offsets == plain.offsets


def test_alignments_and_pins_are_honored() -> None:
    packing = ap.pack([5, 6, 7], [(0, 2)] * 3, alignment=[4, 8, 1], pins={2: 9})
    assert packing.offsets[2] == 9
    assert packing.offsets[0] % 4 == packing.offsets[1] % 8 == 0
    assert ap.pack([5, 6, 7], [(0, 2)] * 3, pins=[None, None, 9]).offsets[2] == 9


def test_a_capacity_that_nothing_fits_is_proven_infeasible() -> None:
    packing = ap.pack([8, 8], [(0, 2), (1, 3)], capacity=15)
    assert (packing.status, packing.peak) == ("infeasible", 16)


def test_progress_ends_with_the_result() -> None:
    seen: list[dict[str, object]] = []
    sizes = [size for size, _, _ in ABOVE_LOAD]
    live = [(start, end) for _, start, end in ABOVE_LOAD]
    packing = ap.pack(sizes, live, on_progress=seen.append)
    assert seen == packing.stages
    assert seen[-1]["peak"] == packing.peak


def test_an_error_in_the_callback_comes_through() -> None:
    def fail(_: object) -> None:
        raise RuntimeError("stop it")

    with pytest.raises(RuntimeError, match="stop it"):
        ap.pack([1], [(0, 1)], on_progress=fail)


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (([1, 2], [(0, 1)]), {}, errors.InvalidSize),
        (([-1], [(0, 1)]), {}, errors.InvalidSize),
        (([1 << 63], [(0, 1)]), {}, errors.InvalidSize),
        (([1], [(1, 1)]), {}, errors.InvalidLiveRange),
        (([1], [(0, 1 << 32)]), {}, errors.InvalidLiveRange),
        (([1], [(0, 1, 2)]), {}, errors.InvalidLiveRange),
        (([1], [(0, 1)]), {"alignment": 3}, errors.InvalidAlignment),
        (([1], [(0, 1)]), {"alignment": [1, 2]}, errors.InvalidAlignment),
        (([1], [(0, 1)]), {"pins": {1: 0}}, errors.PinConflict),
        (([1], [(0, 1)]), {"pins": {0: 1}, "alignment": 2}, errors.PinConflict),
        (([1, 1], [(0, 1)] * 2), {"pins": [0, 0]}, errors.PinConflict),
        (([1], [(0, 1)]), {"capacity": -1}, errors.InvalidSize),
        (([1], [(0, 1)]), {"time_limit": -1.0}, ValueError),
        (([1], [(0, 1)]), {"time_limit": float("nan")}, ValueError),
        (([1], [(0, 1)]), {"threads": 0}, ValueError),
        (([1.5], [(0, 1)]), {}, TypeError),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: tuple[list[int], list[tuple[int, int]]],
    options: dict[str, object],
    error: type[Exception],
) -> None:
    with pytest.raises(error):
        ap.pack(*arguments, **options)  # type: ignore[arg-type]


def test_other_threads_run_meanwhile(tmp_path: Path) -> None:
    sizes, live, alignments = hard_problem(tmp_path)
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.wait(0.01):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    ap.pack(sizes, live, alignment=alignments, time_limit=0.5)
    done.set()
    thread.join()
    assert len(ticks) > 10


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("id,start,end,size\na,0,1,4\nb,1,2,4\n")
    assert main(["pack", str(source), "--json", "-o", str(output)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {
        "buffers", "peak", "lower_bound", "gap", "status", "seconds", "stages",
    }  # fmt: skip
    assert (document["buffers"], document["peak"], document["status"]) == (2, 8, "optimal")
    assert output.read_text() == "id,lower,upper,size,offset\na,0,2,4,0\nb,1,3,4,4\n"


def test_exit_codes_tell_what_happened(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id,lower,upper,size\na,0,2,4\n")
    assert main(["pack", str(source)]) == 0
    assert main(["pack", str(source), "--capacity", "3"]) == 1
    assert main(["pack", str(tmp_path / "none.csv")]) == 2
    source.write_text("id,lower,upper,size\na,0,2,4x\n")
    assert main(["pack", str(source)]) == 2


def test_interrupting_the_command_prints_the_best_answer(tmp_path: Path) -> None:
    source, pipe = hard_csv(tmp_path / "hard.csv"), tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "arenaplan", "pack", str(pipe), "--time-limit", "60"]
    process = subprocess.Popen(
        [*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
    )
    pipe.write_bytes(source.read_bytes())  # Waits until the command has started and reads.
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out)["buffers"] == 600


def test_a_time_limit_is_kept(tmp_path: Path) -> None:
    sizes, live, alignments = hard_problem(tmp_path)
    started = time.monotonic()
    packing = ap.pack(sizes, live, alignment=alignments, time_limit=0.3)
    assert packing.status in ("feasible", "optimal")
    assert time.monotonic() - started < 0.3 + 0.5  # generous: the machine may be busy


def test_a_node_limit_gives_the_same_answer_with_any_number_of_threads(tmp_path: Path) -> None:
    sizes, live, alignments = hard_problem(tmp_path)
    one = ap.pack(sizes, live, alignment=alignments, node_limit=3000, threads=1)
    two = ap.pack(sizes, live, alignment=alignments, node_limit=3000, threads=2)
    assert one.offsets == two.offsets
