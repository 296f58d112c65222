"""Packing buffers without a graph: ``ap.pack`` and ``arenaplan pack``."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

import numpy as np
import pytest

import arenaplan as ap
from arenaplan import _core
from arenaplan.base import errors
from arenaplan.cli import main
from raising import raises

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
        (([1, 2], [(0, 1)]), {}, "InvalidSize"),
        (([-1], [(0, 1)]), {}, "InvalidSize"),
        (([1 << 63], [(0, 1)]), {}, "InvalidSize"),
        (([1], [(1, 1)]), {}, "InvalidLiveRange"),
        (([1], [(0, 1, 2)]), {}, "InvalidLiveRange"),
        (([1], [(0, 1)]), {"alignment": 0}, "InvalidAlignment"),
        (([1], [(0, 1)]), {"alignment": [1, 2]}, "InvalidAlignment"),
        (([1], [(0, 1)]), {"pins": {1: 0}}, "PinConflict"),
        (([1], [(0, 1)]), {"pins": {0: 1}, "alignment": 2}, "PinConflict"),
        (([1, 1], [(0, 1)] * 2), {"pins": [0, 0]}, "PinConflict"),
        (([1], [(0, 1)]), {"capacity": -1}, "InvalidSize"),
        (([1], [(0, 1)]), {"time_limit": -1.0}, ValueError),
        (([1], [(0, 1)]), {"time_limit": float("nan")}, ValueError),
        (([1], [(0, 1)]), {"gaps": {0: [(0, 1, 0)]}}, "InvalidBuffer"),
        (([1], [(0, 1)]), {"gaps": {0: [(0, 1, 0, 2)]}}, "InvalidBuffer"),
        (([1], [(0, 1)]), {"ranges": {0: (4, 2)}}, "InvalidBuffer"),
        (([4], [(0, 1)]), {"ranges": {0: (4, 6)}}, "InvalidBuffer"),
        (([1], [(0, 1)]), {"ranges": {1: (0, 2)}}, "InvalidBuffer"),
        (([1], [(0, 1)]), {"may_overlap": [(0, 1)]}, "InvalidBuffer"),
        (([1], [(0, 1)]), {"apart": [(0, 0)]}, "InvalidBuffer"),
        (([1, 1], [(0, 1)] * 2), {"groups": {0: "a", 1: "a"}}, "InvalidBuffer"),
        (([1], [(0, 1)]), {"reserved": [(2, 1)]}, errors.InvalidOption),
        (([4, 4], [(0, 1)] * 2), {"ranges": {0: (0, 6), 1: (0, 6)}}, "PinConflict"),
        (([1.5], [(0, 1)]), {}, TypeError),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: tuple[list[int], list[tuple[int, int]]],
    options: dict[str, object],
    error: type[Exception],
) -> None:
    with raises(error):
        ap.pack(*arguments, **options)  # type: ignore[arg-type]


def test_arrays_objects_and_csv_say_the_same() -> None:
    text = (
        "id,lower,upper,size,alignment,gaps,space,group,lo,hi,may_overlap,apart\n"
        "a,0,4,8,12,,fast,,16,,b,\n"
        "b,1,5,8,1,2-3@0:4,fast,x,,64,,c\n"
        "c,5,6,4,1,,fast,,,,,\n"
        "d,7,8,8,1,,fast,x,,,,\n"
        "e,0,8,4,1,,slow,,,,,\n"
    )
    buffers = [
        ap.Buffer(8, (0, 4), alignment=12, lo=16, space="fast"),
        ap.Buffer(8, (1, 5), gaps=[(2, 3, 0, 4)], group="x", hi=64, space="fast"),
        ap.Buffer(4, (5, 6), space="fast"),
        ap.Buffer(8, (7, 8), group="x", space="fast"),
        ap.Buffer(4, (0, 8), space="slow"),
    ]
    spaces = [ap.Space("fast"), ap.Space("slow")]
    problem = ap.Problem(buffers, spaces=spaces, may_overlap=[(1, 0)], apart=[(1, 2)])
    packing = problem.pack(node_limit=2000)
    csv = _core.pack_csv(text, [], None, 2000, 0, False, None)
    assert packing.offsets == csv.offsets
    assert packing.spaces == csv.spaces == [(32, 32, "optimal"), (4, 4, "optimal")]
    arrays = ap.pack(
        [8, 8, 4, 8],
        [(0, 4), (1, 5), (5, 6), (7, 8)],
        alignment=[12, 1, 1, 1],
        gaps={1: [(2, 3, 0, 4)]},
        ranges={0: (16, 1 << 62), 1: (0, 64)},
        groups={1: "x", 3: "x"},
        may_overlap=[(0, 1)],
        apart=[(2, 1)],
        node_limit=2000,
    )
    assert arrays.offsets == packing.offsets[:4]
    assert packing.nodes >= 1


def test_separate_buffers_are_in_different_spaces_from_objects_and_csv() -> None:
    text = (
        "id,lower,upper,size,space,spaces,separate\na,0,2,60,,x y,b\nb,3,5,100,,x y,\nc,0,5,4,x,,\n"
    )
    buffers = [
        ap.Buffer(60, (0, 2), spaces=["x", "y"]),
        ap.Buffer(100, (3, 5), spaces=("y", "x")),
        ap.Buffer(4, (0, 5), space="x"),
    ]
    spaces = [ap.Space("x"), ap.Space("y", capacity=64)]
    problem = ap.Problem(buffers, spaces=spaces, separate=[(1, 0)])
    packing = problem.pack()
    assert packing.buffer_spaces == [1, 0, 0]
    assert (packing.peak, packing.lower_bound, packing.status) == (164, 164, "optimal")
    described: list[tuple[str, int | None, int, list[tuple[int, int]]]]
    described = [("arena", None, 1, []), ("y", 64, 1, [])]
    csv = _core.pack_csv(text, described, None, None, 0, False, None)
    assert csv.peak == 164
    assert csv.to_csv().splitlines()[0] == "id,lower,upper,size,offset,space,separate"
    assert [line.split(",")[5] for line in csv.to_csv().splitlines()[1:]] == ["y", "x", "x"]
    assert problem.infeasible_subset("y") is None
    with raises("InvalidBuffer", match="an old offset names none"):
        problem.repack([0, 0, 0])
    # One space, two spaces for three buffers, and both a space and spaces.
    with raises("InvalidBuffer", match="both may be in 'arena' only"):
        ap.Problem([ap.Buffer(8, (0, 1))] * 2, separate=[(0, 1)]).pack()
    three = [ap.Buffer(8, (0, 1), spaces=["x", "y"])] * 3
    with raises("PinConflict", match="buffer 2 has none beside buffers 0, 1"):
        ap.Problem(three, spaces=spaces, separate=[(0, 1), (1, 2), (0, 2)]).pack()
    both = ap.Buffer(8, (0, 1), space="x", spaces=["y"])
    with raises("InvalidBuffer", match="both a space and spaces"):
        ap.Problem([both], spaces=spaces).pack()
    with raises("InvalidBuffer", match="space 'z', which is not there"):
        ap.Problem([ap.Buffer(8, (0, 1), spaces=["x", "z"])], spaces=spaces).pack()


def test_outputs_replace_inputs_where_a_pair_permits_it() -> None:
    sizes, live = [100, 120, 200], [(0, 2), (0, 2), (1, 3)]
    assert ap.pack(sizes, live).peak == 420
    packing = ap.pack(sizes, live, may_overlap=[(0, 2), (2, 1)])
    assert (packing.peak, packing.lower_bound, packing.status) == (220, 220, "optimal")


def test_reserved_bytes_and_hints_are_honored() -> None:
    packing = ap.pack([8, 8], [(0, 2), (0, 2)], reserved=[(4, 12), (20, 24)])
    assert sorted(packing.offsets) == [12, 24]
    assert ap.pack([4, 4], [(0, 2), (1, 3)], hints={0: 4, 1: 0}).offsets == [4, 0]
    assert ap.pack([4, 4], [(0, 2), (1, 3)], hints=[0, 4]).offsets == [0, 4]


def test_steps_may_be_time_stamps() -> None:
    plain = ap.pack([5, 6, 7], [(0, 2), (1, 3), (2, 4)], gaps={0: [(1, 2)]})
    far = 1 << 60
    steps = [(start - 1 + far, end - 1 + far) for start, end in [(0, 2), (1, 3), (2, 4)]]
    stamped = ap.pack([5, 6, 7], steps, gaps={0: [(far, far + 1)]})
    assert stamped.offsets == plain.offsets
    assert ap.pack([5, 6], [(-9, -7), (-8, 3)]).peak == 11


def test_a_changed_problem_moves_what_must() -> None:
    sizes, live = [8, 8, 8], [(0, 2), (1, 4), (3, 5)]
    buffers = [ap.Buffer(*pair) for pair in zip(sizes, live, strict=True)]
    old = ap.Problem(buffers).pack().offsets
    same = ap.Problem(buffers).repack(old)
    assert (same.moved, same.packing.offsets) == ([], old)
    grown = ap.Problem([ap.Buffer(12, (0, 2)), *buffers[1:]]).repack(old)
    assert grown.packing.peak == 20 <= grown.peak_of_staying
    assert grown.moved == [i for i in range(3) if grown.packing.offsets[i] != old[i]]
    with raises("InvalidBuffer"):
        ap.Problem(buffers).repack([0])


def test_the_buffers_that_prove_infeasibility_are_named() -> None:
    buffers = [
        ap.Buffer(60, (0, 2)),
        ap.Buffer(10, (0, 2)),
        ap.Buffer(50, (1, 3)),
        ap.Buffer(90, (5, 6)),
    ]
    assert ap.Problem(buffers, capacity=100).infeasible_subset() == [0, 2]
    assert ap.Problem(buffers, capacity=120).infeasible_subset() is None
    with pytest.raises(errors.InvalidOption, match="no space 'far'"):
        ap.Problem(buffers, capacity=100).infeasible_subset("far")


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
        "buffers", "peak", "lower_bound", "gap", "status", "nodes", "seconds", "stages",
    }  # fmt: skip
    assert (document["buffers"], document["peak"], document["status"]) == (2, 8, "optimal")
    assert output.read_text() == "id,lower,upper,size,offset\na,0,2,4,0\nb,1,3,4,4\n"


def test_exit_codes_tell_what_happened(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id,lower,upper,size\na,0,2,4\n")
    assert main(["pack", str(source)]) == 0
    assert main(["pack", str(source), "--budget", "3"]) == 1
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


def test_a_node_limit_gives_the_same_answer_again(tmp_path: Path) -> None:
    sizes, live, alignments = hard_problem(tmp_path)
    one, two = (ap.pack(sizes, live, alignment=alignments, node_limit=3000) for _ in range(2))
    assert one.offsets == two.offsets


def test_the_command_packs_near_an_old_packing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, again = (tmp_path / name for name in ("old.csv", "new.csv", "again.csv"))
    header = "id,lower,upper,size"
    old.write_text(f"{header},offset\na,0,2,8,0\nb,1,4,8,8\nc,3,5,8,0\n")
    new.write_text(f"{header}\nc,3,5,8\na,0,2,12\nb,1,4,8\nd,6,7,3\n")
    assert main(["pack", str(new), "--after", str(old), "--json", "-o", str(again)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["peak"], document["moved"]) == (20, ["b", "d"])
    assert document["peak_of_staying"] == 20
    assert main(["pack", str(new), "--after", str(again)]) == 0
    assert "0 of 4 buffers" in capsys.readouterr().out
    assert main(["pack", str(new), "--after", str(old), "--node-limit", "5"]) == 2
    # a has grown. If b stays at 8, a is above it, and ends at 28 rather than 20.
    old.write_text(f"{header},offset\nb,0,2,8,8\na,0,2,8,0\n")
    new.write_text(f"{header}\nb,0,2,8\na,0,2,12\n")
    capsys.readouterr()
    assert main(["pack", str(new), "--after", str(old)]) == 0
    assert "costs 8 bytes" in capsys.readouterr().out


def test_buffers_move_down_where_that_is_asked_for(tmp_path: Path) -> None:
    sizes, live, hints = [96, 32], [(0, 1), (1, 2)], {1: 64}
    assert ap.pack(sizes, live, hints=hints).offsets == [0, 64]
    lower = ap.pack(sizes, live, hints=hints, compact=True, time_limit=30.0)
    assert (lower.offsets, lower.peak, lower.status) == ([0, 0], 96, "optimal")
    buffers = [ap.Buffer(96, (0, 1)), ap.Buffer(32, (1, 2), hint=64)]
    assert ap.Problem(buffers).pack(compact=True).offsets == [0, 0]
    table, out = tmp_path / "table.csv", tmp_path / "out.csv"
    table.write_text("id,lower,upper,size,hint\na,0,1,96,-1\nb,1,2,32,64\n")
    for options, offset in (([], 64), (["--compact"], 0)):
        assert main(["pack", str(table), *options, "-o", str(out)]) == 0
        assert out.read_text().endswith(f"b,1,2,32,64,{offset}\n")
    assert main(["pack", str(table), "--compact", "--after", str(out)]) == 2


def test_each_space_of_a_table_has_options_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, out = tmp_path / "table.csv", tmp_path / "out.csv"
    rows = ["a,0,2,40,near", "b,0,2,20,near", "c,0,2,50,far", "d,0,2,8,far", "e,0,2,8,"]
    table.write_text("\n".join(["id,lower,upper,size,space", *rows]) + "\n")

    def pack(*options: str) -> int:
        return main(["pack", str(table), "--json", "-o", str(out), *options])

    def offsets() -> list[int]:
        return [int(line.split(",")[-2]) for line in out.read_text().splitlines()[1:]]

    options = [
        "--budget",
        "40",
        "--spaces",
        "near=80,far=1KiB",
        "--align",
        "far=12",
        "--reserve",
        "near=0..4",
    ]
    assert pack(*options, "--reserve", "16..20") == 0
    assert json.loads(capsys.readouterr().out)["buffers"] == 5
    assert all(at % 12 == 0 for at in offsets()[2:4])
    zones = [(0, 4), (16, 20)], [(16, 20)], [(16, 20)]
    sizes, homes = [40, 20, 50, 8, 8], [0, 0, 1, 1, 2]
    for at, size, home in zip(offsets(), sizes, homes, strict=True):
        assert all(at + size <= low or high <= at for low, high in zones[home])
    out.unlink()
    assert pack("--spaces", "near=59", "--why") == 1
    capsys.readouterr()
    assert not out.exists()
    assert pack("--spaces", "mear=59") == 2
    assert "no line is in space 'mear'" in capsys.readouterr().err
    for wrong in (["--align", "0"], ["--reserve", "4..4"]):
        assert pack(*wrong) == 2
    for wrong in (["--reserve", "4"], ["--reserve", "=1..2"], ["--spaces", "near="]):
        with pytest.raises(SystemExit, match="2"):
            pack(*wrong)


def test_a_space_of_a_problem_has_an_alignment_of_any_number() -> None:
    problem = ap.Problem(
        [ap.Buffer(16, (0, 1)), ap.Buffer(50, (0, 1))], spaces=[ap.Space("s", alignment=48)]
    )
    assert problem.pack().peak == 48 + 50
    with raises("InvalidAlignment"):
        ap.Problem([ap.Buffer(1, (0, 1))], spaces=[ap.Space("s", alignment=0)]).pack()


def test_the_command_names_the_buffers_that_do_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.csv"
    table.write_text("id,lower,upper,size\na,0,2,60\nb,0,2,10\nc,1,3,50\nd,5,6,90\n")
    assert main(["pack", str(table), "--budget", "100", "--why"]) == 1
    assert "for arena: a, c" in capsys.readouterr().out
    assert main(["pack", str(table), "--budget", "100", "--why", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["infeasible_subsets"] == {"arena": ["a", "c"]}
    assert main(["pack", str(table), "--budget", "120", "--why", "--json"]) == 0
    assert "infeasible_subsets" not in json.loads(capsys.readouterr().out)


def test_no_buffer_takes_the_place_of_a_pinned_one_that_lives_in_other_sections() -> None:
    """The search of the fullest sections does not see what is pinned elsewhere."""
    random = Random(15)

    def size() -> int:
        return random.choice([64, 128, 192, 320, 1000, 4096, random.randint(1, 9000)])

    live = []
    sizes = []
    for step in range(1500):
        is_short = random.random() < 0.9
        live.append(
            (step, step + 1 + (random.randint(1, 12) if is_short else random.randint(20, 120)))
        )
        sizes.append(size())
    old = ap.pack(sizes, live, node_limit=300).offsets
    for share in (0.5, 0.8, 0.9, 0.95):
        pins = {index: old[index] for index in range(1500) if random.random() < share}
        grown = [
            size if index in pins else size + random.randint(0, 40)
            for index, size in enumerate(sizes)
        ]
        # The packing is checked before it is returned.
        packing = ap.pack(grown, live, pins=pins, node_limit=2000)
        assert all(packing.offsets[index] == offset for index, offset in pins.items())


def test_few_buffers_of_a_full_section_move_at_the_peak_from_scratch() -> None:
    moved = count = 0
    for seed in range(20):
        random = Random(seed)
        lives = [(random.randrange(10), 11 + random.randrange(10)) for _ in range(60)]
        sizes = [64 << random.randrange(3) for _ in lives]
        gaps = [((live[0] + 1, live[0] + 2),) if random.random() < 0.2 else () for live in lives]
        before = [ap.Buffer(a, b, gaps=c) for a, b, c in zip(sizes, lives, gaps, strict=True)]
        old = ap.Problem(before).pack().offsets
        sizes[7] += 24
        sizes[11] -= 24
        after = [ap.Buffer(a, b, gaps=c) for a, b, c in zip(sizes, lives, gaps, strict=True)]
        again = ap.Problem(after).repack(old)
        assert again.packing.peak <= ap.Problem(after).pack().peak
        offsets = again.packing.offsets
        assert again.moved == [it for it in range(60) if offsets[it] != old[it]]
        for step in range(21):
            held = sorted(
                (offset, offset + it.size)
                for offset, it in zip(offsets, after, strict=True)
                if it.live[0] <= step < it.live[1]
                and not any(start <= step < end for start, end, *_ in it.gaps)
            )
            assert all(low[1] <= high[0] for low, high in itertools.pairwise(held))
        moved += len(again.moved)
        count += 60
    assert moved * 4 <= count
