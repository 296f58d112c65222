"""The batch journal: outcomes are written as they come, to resume an interrupted batch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, fields
from pathlib import Path

from arenaplan.report.batch.job_runs import run_jobs
from arenaplan.report.batch.jobs import Job, Outcome

_NAMES = [each.name for each in fields(Outcome)]


def run_with_journal(
    jobs: Sequence[Job], path: Path, *, workers: int | None = None, executor: Executor | None = None
) -> Iterator[Outcome]:
    """
    Yield each job's outcome, in order; jobs in the journal are not planned again.

    Outcomes are journaled before they are yielded. The caller removes the journal after writing the
    report.

    Parameters
    ----------
    path : Path
        The journal: a JSON line per outcome. Truncated lines are ignored.

    Raises
    ------
    OSError
        If the journal cannot be read or written.
    """
    known = dict(_read(path)) if path.exists() else {}
    keys = [job.key() for job in jobs]
    rest = run_jobs(
        (job for job, key in zip(jobs, keys, strict=True) if key not in known),
        workers=workers,
        executor=executor,
    )
    with path.open("ab") as journal:
        if journal.tell() and not _ends_a_line(path):
            journal.write(b"\n")
        for key in keys:
            outcome = known.get(key)
            if outcome is None:
                outcome = next(rest)
                line = json.dumps({"key": key, **asdict(outcome)})
                journal.write(line.encode() + b"\n")
                journal.flush()
            yield outcome


def _read(path: Path) -> Iterable[tuple[str, Outcome]]:
    with path.open("rb") as lines:
        for line in lines:
            try:
                found = json.loads(line)
                yield found["key"], Outcome(**{name: found[name] for name in _NAMES})
            except (ValueError, KeyError, TypeError, RecursionError):
                continue  # Truncated when the batch was killed, or from another version.


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"
