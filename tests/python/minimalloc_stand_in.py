"""
The Python interface of minimalloc over arenaplan, as far as its tests use it.

``install`` makes ``import minimalloc`` find this module. Classes have the names and fields of
minimalloc's bindings; settings of its search are accepted and mean nothing.
"""

from __future__ import annotations

import csv
import dataclasses
import enum
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import arenaplan as ap
from arenaplan import _core


@dataclass(frozen=True)
class Lifespan:
    """Half-open range of steps."""

    lower: int
    upper: int


@dataclass(frozen=True)
class Window:
    """Half-open range of bytes of a buffer."""

    lower: int
    upper: int


@dataclass(frozen=True)
class Gap:
    """Steps in which no byte of a buffer is needed, or only those of a window."""

    lifespan: Lifespan
    window: Window | None = None

    def text(self) -> str:
        """Return the gap as a CSV field has it."""
        window = f"@{self.window.lower}:{self.window.upper}" if self.window else ""
        return f"{self.lifespan.lower}-{self.lifespan.upper}{window}"


@dataclass
class Buffer:
    """A buffer to be placed."""

    id: str
    lifespan: Lifespan
    size: int
    alignment: int = 1
    gaps: Sequence[Gap] = ()
    offset: int | None = None
    hint: int | None = None

    def ours(self) -> ap.Buffer:
        """Return the buffer as arenaplan has it."""
        gaps = []
        for gap in self.gaps:
            steps = (gap.lifespan.lower, gap.lifespan.upper)
            gaps.append((*steps, gap.window.lower, gap.window.upper) if gap.window else steps)
        live = (self.lifespan.lower, self.lifespan.upper)
        return ap.Buffer(self.size, live, self.alignment, self.offset, self.hint, gaps)

    def effective_size(self, other: Buffer) -> int | None:
        """Return the bytes that `other` starts above this buffer at least; None for any number."""
        for distance in reversed(range(self.size)):
            pair = [_at(self, 0), _at(other, distance)]
            try:
                ap.Problem(pair).pack(node_limit=0)
            except ap.errors.PackingError:
                return distance + 1
        return None


def _at(buffer: Buffer, offset: int) -> ap.Buffer:
    """Return a buffer at an offset."""
    return dataclasses.replace(buffer.ours(), alignment=1, offset=offset)


@dataclass
class Solution:
    """Offsets of buffers and, if they are known, the bytes that these need."""

    offsets: Sequence[int] = ()
    height: int = 0


@dataclass
class Problem:
    """Buffers for a memory of `capacity` bytes."""

    buffers: Sequence[Buffer] = ()
    capacity: int = 0

    def ours(self) -> ap.Problem:
        """Return the problem as arenaplan has it."""
        return ap.Problem([buffer.ours() for buffer in self.buffers], capacity=self.capacity)

    def strip_solution(self) -> Solution | None:
        """Move the fixed offsets into a solution, if all buffers have one."""
        offsets = [buffer.offset for buffer in self.buffers if buffer.offset is not None]
        if len(offsets) < len(self.buffers):
            return None
        for buffer in self.buffers:
            buffer.offset = None
        return Solution(offsets)


class SolverParams:
    """Settings of minimalloc's search: any attribute, and none has a meaning here."""


class Solver:
    """A solver of problems."""

    def __init__(self, params: SolverParams | None = None) -> None:
        self.params = params
        self._effort = 0

    def solve(self, problem: Problem) -> Solution | None:
        """Return offsets within the capacity; None if it is proven that there are none."""
        try:
            packing = problem.ours().pack()
        except ap.errors.PackingError:
            # A pinned buffer reaches past the capacity, or two share bytes.
            self._effort = 1
            return None
        assert packing.status != "unknown"
        # A bound decides without a search, which minimalloc counts as one step back at least.
        self._effort = max(1, packing.nodes)
        if packing.status == "infeasible":
            return None
        return Solution(packing.offsets, packing.peak)

    def get_backtracks(self) -> int:
        """Return the effort of the last search."""
        return self._effort

    def compute_irreducible_infeasible_subset(self, problem: Problem) -> list[int]:
        """Return buffers that do not fit, of which any one less does."""
        return problem.ours().infeasible_subset() or []


class ValidationResult(enum.Enum):
    """Findings about a solution."""

    GOOD = enum.auto()
    BAD_SOLUTION = enum.auto()
    BAD_FIXED = enum.auto()
    BAD_OFFSET = enum.auto()
    BAD_OVERLAP = enum.auto()
    BAD_ALIGNMENT = enum.auto()
    BAD_HEIGHT = enum.auto()


def validate(problem: Problem, solution: Solution) -> ValidationResult:
    """Return the first fault of a solution: the refusal of buffers pinned to its offsets."""
    if len(solution.offsets) != len(problem.buffers):
        return ValidationResult.BAD_SOLUTION
    if any(it.offset not in (None, at) for it, at in _pairs(problem, solution)):
        return ValidationResult.BAD_FIXED
    for buffer, offset in _pairs(problem, solution):
        buffer.offset = offset
    try:
        packing = problem.ours().pack(node_limit=0)
    except ap.errors.PackingError as error:
        if "same byte" in str(error):
            return ValidationResult.BAD_OVERLAP
        if "multiple" in str(error):
            return ValidationResult.BAD_ALIGNMENT
        return ValidationResult.BAD_OFFSET
    if packing.peak != solution.height:
        return ValidationResult.BAD_HEIGHT
    return ValidationResult.GOOD


def _pairs(problem: Problem, solution: Solution) -> Iterator[tuple[Buffer, int]]:
    """Return each buffer with its offset."""
    return zip(problem.buffers, solution.offsets, strict=True)


_NAMES = {"begin": "lower", "start": "lower", "buffer": "id", "buffer_id": "id"}


def from_csv(text: str) -> Problem | None:
    """Return the problem of a CSV document that arenaplan reads; None if it refuses it."""
    try:
        _core.pack_csv(text, [], None, 0, 0, False, None)
    except ap.errors.PackingError:
        return None
    head, *rows = csv.reader(io.StringIO(text))
    names = [_NAMES.get(name, name) for name in head]
    return Problem([_buffer(dict(zip(names, row, strict=True))) for row in rows])


def from_csv_file(path: Path) -> Problem | None:
    """Return the problem of a CSV file."""
    return from_csv(path.read_text())


def _buffer(row: dict[str, str]) -> Buffer:
    """Return the buffer of a row."""
    is_inclusive = "end" in row
    upper = int(row["end"]) + 1 if is_inclusive else int(row["upper"])
    return Buffer(
        row["id"],
        Lifespan(int(row["lower"]), upper),
        int(row["size"]),
        int(row.get("alignment", 1)),
        tuple(_gap(text, is_inclusive) for text in row.get("gaps", "").split()),
        _number(row.get("offset")),
        _number(row.get("hint")),
    )


def _number(text: str | None) -> int | None:
    """Return a number of bytes; None for -1, which says that there is none."""
    return None if text in (None, "", "-1") else int(text)


def _gap(text: str, is_inclusive: bool) -> Gap:
    """Return the gap of a CSV field."""
    steps, _, window = text.partition("@")
    lower, upper = map(int, steps.split("-"))
    bytes_ = Window(*map(int, window.split(":"))) if window else None
    return Gap(Lifespan(lower, upper + is_inclusive), bytes_)


def to_csv(problem: Problem, solution: Solution | None = None) -> str:
    """Return a problem as arenaplan writes it, with the columns that say something."""
    columns: dict[str, list[object]] = {
        "id": [it.id for it in problem.buffers],
        "lower": [it.lifespan.lower for it in problem.buffers],
        "upper": [it.lifespan.upper for it in problem.buffers],
        "size": [it.size for it in problem.buffers],
    }
    if any(it.alignment != 1 for it in problem.buffers):
        columns["alignment"] = [it.alignment for it in problem.buffers]
    if any(it.hint is not None for it in problem.buffers):
        columns["hint"] = [-1 if it.hint is None else it.hint for it in problem.buffers]
    if any(it.gaps for it in problem.buffers):
        columns["gaps"] = [" ".join(gap.text() for gap in it.gaps) for it in problem.buffers]
    if solution is not None:
        columns["offset"] = list(solution.offsets)
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    text = "".join(",".join(map(str, row)) + "\n" for row in rows)
    written = _core.pack_csv(text, [], None, 0, 0, False, None).to_csv()
    if solution is not None:
        return written
    # Offsets are the last column, which a problem has not.
    return "".join(line.rpartition(",")[0] + "\n" for line in written.splitlines())


def to_csv_file(path: Path, problem: Problem, solution: Solution | None = None) -> None:
    """Write a problem."""
    path.write_text(to_csv(problem, solution))


def install() -> None:
    """Let ``import minimalloc`` find this module."""
    sys.modules["minimalloc"] = sys.modules[__name__]
