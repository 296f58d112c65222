"""minimalloc's interface over arenaplan, by itself and under minimalloc's own tests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import minimalloc_stand_in as mm

FETCHED = Path(__file__).parents[2] / "target" / "minimalloc"

# Tests of the inside of minimalloc, and of promises that are not made here.
OTHER_PROMISES = {
    "test_preordering_comparator": "an order in its search",
    "test_counts_backtracks_correctly": "steps back of its search",
    "test_optimization_reduces_backtracks": "steps back of its search, by switch",
    "test_to_csv_with_solution": "an offset of 21 for an alignment of 2 is refused",
    "test_to_csv_old_format": "a column 'end' is read, and not written",
}

RUN = """
import sys
import minimalloc_stand_in, pytest
minimalloc_stand_in.install()
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_problems_are_solved_and_refused() -> None:
    problem = mm.Problem(
        [mm.Buffer("a", mm.Lifespan(0, 2), 2), mm.Buffer("b", mm.Lifespan(1, 3), 2)]
    )
    solver = mm.Solver()
    assert solver.solve(problem) is None
    assert solver.compute_irreducible_infeasible_subset(problem) in ([0], [1])
    problem.capacity = 4
    solution = solver.solve(problem)
    assert solution is not None
    assert sorted(solution.offsets) == [0, 2]
    assert mm.validate(problem, solution) is mm.ValidationResult.GOOD
    assert mm.validate(problem, mm.Solution([0, 1], 3)) is mm.ValidationResult.BAD_FIXED


def test_faults_of_solutions_are_told_apart() -> None:
    def verdict(*offsets: int, height: int = 4) -> mm.ValidationResult:
        first = mm.Buffer("a", mm.Lifespan(0, 2), 2, alignment=2)
        problem = mm.Problem([first, mm.Buffer("b", mm.Lifespan(1, 3), 2)], capacity=4)
        return mm.validate(problem, mm.Solution(offsets, height))

    assert verdict(2, 0) is mm.ValidationResult.GOOD
    assert verdict(2, 0, height=5) is mm.ValidationResult.BAD_HEIGHT
    assert verdict(1, 0) is mm.ValidationResult.BAD_ALIGNMENT
    assert verdict(2, 1) is mm.ValidationResult.BAD_OVERLAP
    assert verdict(0, 3) is mm.ValidationResult.BAD_OFFSET
    assert verdict(0) is mm.ValidationResult.BAD_SOLUTION


def test_a_buffer_may_reach_into_the_gap_of_the_one_below() -> None:
    lower, upper = mm.Lifespan(0, 5), mm.Lifespan(5, 10)
    below = mm.Buffer("a", mm.Lifespan(0, 10), 3, gaps=[mm.Gap(upper, mm.Window(0, 1))])
    above = mm.Buffer("b", mm.Lifespan(0, 10), 3, gaps=[mm.Gap(lower, mm.Window(1, 3))])
    assert below.effective_size(above) == 2
    assert above.effective_size(below) == 3
    assert below.effective_size(mm.Buffer("c", mm.Lifespan(10, 11), 9)) is None


def test_documents_are_read_and_written_again() -> None:
    text = "id,lower,upper,size,alignment,hint,gaps\na,5,10,16,4,0,\nb,6,12,18,1,-1,7-8 9-10@1:17\n"
    problem = mm.from_csv(text)
    assert problem is not None
    assert [buffer.hint for buffer in problem.buffers] == [0, None]
    assert problem.buffers[1].gaps[1] == mm.Gap(mm.Lifespan(9, 10), mm.Window(1, 17))
    assert mm.to_csv(problem) == text
    assert mm.from_csv(text.replace("9-10@", "9@")) is None


@pytest.mark.skipif(not FETCHED.is_dir(), reason="not fetched: tools/minimalloc_tests.py")
def test_the_tests_of_minimalloc_pass() -> None:
    others = " or ".join(OTHER_PROMISES)
    command = [sys.executable, "-c", RUN, "-q", "-c", "/dev/null", "--rootdir", str(FETCHED)]
    command += ["-p", "no:cacheprovider", "-k", f"not ({others})", str(FETCHED)]
    files = ("solver", "validator", "converter", "minimalloc", "utils")
    command[-1:] = [str(FETCHED / f"test_{name}.py") for name in files]
    ended = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    passed = re.search(r"(\d+) passed", ended.stdout)
    assert passed is not None
    assert int(passed[1]) > 7_000
