"""``arenaplan batch``: one report for many models and several targets."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from arenaplan import _core
from arenaplan.base.errors import InvalidOption, fault
from arenaplan.cli.models import has_ranges
from arenaplan.cli.printing import in_words, print_json, say, shown, size
from arenaplan.cli.sources import limits_of
from arenaplan.cli.watch import form_of
from arenaplan.formats import SUFFIXES
from arenaplan.report.batch.batch_report import page, summary, writer_of
from arenaplan.report.batch.clusters import executor_at
from arenaplan.report.batch.job_runs import run_jobs
from arenaplan.report.batch.jobs import Job, Outcome
from arenaplan.report.batch.journal import run_with_journal


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    if has_ranges(options):
        raise InvalidOption("option bind: a batch takes one number for a dimension")
    write = None if options.output is None else writer_of(options.output.suffix)
    chosen: dict[str, Any] = {"optimize": options.optimize, "effort": options.effort}
    if options.time_limit is not None:
        chosen["time_limit"] = options.time_limit
    jobs = [
        Job(source, target, chosen, dict(options.bind), limits_of(options))
        for source in _files(options.sources)
        for target in options.targets or (None,)
    ]
    journal = None if options.output is None else Path(f"{options.output}.journal")
    outcomes: list[Outcome] = []
    address = options.executor
    with nullcontext() if address is None else executor_at(address) as executor:
        how: dict[str, Any] = {"workers": options.processes, "executor": executor}
        rows = run_jobs(jobs, **how) if journal is None else run_with_journal(jobs, journal, **how)
        for outcome in rows:
            outcomes.append(outcome)
            _tell(outcomes, len(jobs), form_of(options))
    files = []
    if write is not None:
        files.append((options.output, write(outcomes)))
    if options.page is not None:
        files.append((options.page, page(outcomes).encode()))
    if files:
        _core.write_files(files)
    for path, _ in files:
        say(f"wrote {path}")
    if journal is not None:
        journal.unlink(missing_ok=True)
    for name, _ in options.bind:
        without = sum(name in outcome.left_out.split(",") for outcome in outcomes)
        if without:
            say(f"--bind {name}: {without:,} of {len(outcomes):,} have no dimension of this name")
    facts = summary(outcomes)
    if options.json:
        print_json(facts)
    else:
        _print(facts, outcomes)
    if facts["planned"] < facts["jobs"]:
        missing = facts["jobs"] - facts["planned"]
        raise fault("BatchIncomplete", f"{missing:,} of {facts['jobs']:,} could not be planned")


def _files(sources: Sequence[Path]) -> list[str]:
    """Return the model files; a folder's files are sorted by name."""
    found: dict[str, None] = {}
    for source in sources:
        if not source.is_dir():
            found[os.fspath(source)] = None
            continue
        inside = sorted(
            path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()
        )
        if not inside:
            raise InvalidOption(f"folder {str(source)!r} has no file of {', '.join(SUFFIXES)}")
        found.update(dict.fromkeys(map(os.fspath, inside)))
    return list(found)


def _tell(outcomes: Sequence[Outcome], jobs: int, form: str) -> None:
    """Show progress, as a line or as a document per job."""
    if form == "none":
        return
    wrong = sum(not outcome.is_planned for outcome in outcomes)
    if form == "json":
        document = {"stage": "batch", "done": len(outcomes), "total": jobs, "errors": wrong}
        print(json.dumps(document), file=sys.stderr, flush=True)
    else:
        end = "\n" if len(outcomes) == jobs else ""
        print(
            f"\r{len(outcomes):,} of {jobs:,} planned, {wrong:,} with errors",
            end=end,
            file=sys.stderr,
            flush=True,
        )


def _print(facts: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    print(f"{facts['planned']:,} of {facts['jobs']:,} planned, {facts['optimal']:,} proven optimal")
    for name, figures in facts["targets"].items():
        print(
            f"  {name}: {figures['planned']:,} plans, median {size(figures['median_bytes'])}, "
            f"largest {size(figures['most_bytes'])}"
        )
    for name, count in facts["errors"].items():
        first = next(outcome for outcome in outcomes if outcome.error == name)
        message = shown(in_words(first.message), 90)
        print(f"  {name}: {count:,}, such as {shown(first.model)}: {message}")
