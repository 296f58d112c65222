"""Gates as data: rules, causes of growth, and the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from arenaplan._core import Plan
from arenaplan.base.html_tables import html_table

Cause: TypeAlias = Literal["new", "grown", "moved here", "live at the peak now"]


@dataclass(frozen=True, slots=True)
class GateRow:
    """A memory's bytes and limit."""

    rule: Literal["budget", "baseline"]
    space: str
    """The memory's name."""
    bytes: int
    """Bytes the plan needs; for a TensorFlow Lite Micro budget, ``kTensorArenaSize``."""
    limit: int
    """Most bytes that pass."""
    baseline: int | None = None
    """Bytes in the baseline, for the rule ``"baseline"``."""

    @property
    def passed(self) -> bool:
        """Whether the bytes are within the limit."""
        return self.bytes <= self.limit

    @property
    def headroom(self) -> int:
        """Bytes that are left; negative if the limit is exceeded."""
        return self.limit - self.bytes


@dataclass(frozen=True, slots=True)
class GrowthCause:
    """A value at the peak of an arena that grew, and the value's part in the growth."""

    space: str
    name: str
    kind: Cause
    before: int | None
    """Bytes in the baseline; ``None`` if the value is new."""
    after: int
    """Bytes now."""


@dataclass(frozen=True, slots=True)
class Gate:
    """
    Whether a plan passes, and why not.

    ``bool(gate)`` is :attr:`passed`.
    """

    model: str
    target: str
    plan: Plan | None
    """The plan; ``None`` if none was found that fits the memories."""
    rows: tuple[GateRow, ...]
    """A row per budget and per memory in the baseline."""
    causes: tuple[GrowthCause, ...] = ()
    """The values that make memories larger than in the baseline, the largest growth first."""
    problem: str | None = None
    """Why there is no plan, or why the plan covers only part of the model."""
    others: int = 0
    """Values that have other places than in the baseline, and are no causes."""
    is_error: bool = False
    """Whether the model or the baseline could not be read, so that there is no judgment."""

    @property
    def passed(self) -> bool:
        """Whether there is a rule, and every rule holds."""
        return self.problem is None and bool(self.rows) and all(row.passed for row in self.rows)

    def __bool__(self) -> bool:
        return self.passed

    def _repr_html_(self) -> str:
        rows = [
            (row.rule, row.space, row.bytes, row.limit, "ok" if row.passed else "FAIL")
            for row in self.rows
        ]
        verdict = "ok" if self.passed else "FAIL"
        problem = "" if self.problem is None else f": {self.problem}"
        caption = f"{verdict}: {self.model or 'model'} for {self.target}{problem}"
        return html_table(caption, ["rule", "memory", "bytes", "limit", ""], rows)

    def failures(self) -> list[str]:
        """Return a sentence per rule that does not hold."""
        found = [] if self.problem is None else [self.problem]
        for row in self.rows:
            if not row.passed and row.rule == "budget":
                found.append(
                    f"{row.space} needs {row.bytes:,} bytes, {-row.headroom:,} more than its "
                    f"budget of {row.limit:,}"
                )
            elif not row.passed:
                found.append(f"{row.space} grew from {row.baseline or 0:,} to {row.bytes:,} bytes")
        return found

    def document(self) -> dict[str, Any]:
        """Return the ``arenaplan gate --json`` document."""
        return {
            "model": self.model,
            "target": self.target,
            "passed": self.passed,
            "problem": self.problem,
            "rows": [{**asdict(row), "passed": row.passed} for row in self.rows],
            "causes": [asdict(cause) for cause in self.causes],
            "digest": None if self.plan is None else self.plan.digest,
        }
