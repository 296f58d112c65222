"""``arenaplan batch``: many models, for several targets, in one report."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arenaplan import _core
from arenaplan.batch.clusters import executor_at
from arenaplan.batch.jobs import Job, Outcome
from arenaplan.batch.journal import run_with_journal
from arenaplan.batch.report import page, summary, writer_of
from arenaplan.batch.run import run_jobs
from arenaplan.cli.common import (
    add_bind,
    add_command,
    add_json,
    group,
    has_ranges,
    print_json,
    say,
    seconds,
    shown,
    size,
    whole,
)
from arenaplan.cli.watch import form_of
from arenaplan.cli.wording import in_words
from arenaplan.errors import BatchIncomplete, InvalidOption
from arenaplan.importers import SUFFIXES
from arenaplan.options import option_choices, option_help, targets

if TYPE_CHECKING:
    from arenaplan.cli.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "batch", execute)
    parser.add_argument(
        "sources",
        type=Path,
        nargs="+",
        metavar="MODEL",
        help="model files, and folders, which are searched for them",
    )
    model = group(parser, "model")
    add_bind(model)
    model.add_argument(
        "--targets",
        type=_targets,
        default=[None],
        metavar="NAME,NAME",
        help="runners to plan for (see 'arenaplan targets'); by default the one of each format",
    )
    search = group(parser, "search")
    search.add_argument("--optimize", default="all", help=option_help("optimize"))
    search.add_argument("--effort", choices=option_choices("effort"), default="default")
    search.add_argument(
        "--time-limit", type=seconds, metavar="SECONDS", help="of each search, where it is long"
    )
    where = group(parser, "workers").add_mutually_exclusive_group()
    where.add_argument(
        "--workers",
        type=whole(1, 4096),
        metavar="N",
        help="processes (default: as many as processors)",
    )
    where.add_argument(
        "--executor",
        metavar="ADDRESS",
        help="cluster that runs the jobs: dask://HOST:PORT or ray://HOST:PORT",
    )
    add_json(parser)
    output = group(parser, "output")
    output.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="report with a row per model and target: .parquet, .csv or .jsonl; outcomes are kept "
        "in FILE.journal until it is written, so that a batch that was interrupted goes on",
    )
    output.add_argument("--page", type=Path, metavar="FILE.html", help="write a page for people")


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    if has_ranges(options):
        raise InvalidOption("option bind: a batch takes one number for a dimension")
    write = None if options.output is None else writer_of(options.output.suffix)
    chosen: dict[str, Any] = {"optimize": options.optimize, "effort": options.effort}
    if options.time_limit is not None:
        chosen["time_limit"] = options.time_limit
    jobs = [
        Job(source, target, chosen, dict(options.bind))
        for source in _files(options.sources)
        for target in options.targets
    ]
    journal = None if options.output is None else Path(f"{options.output}.journal")
    outcomes: list[Outcome] = []
    address = options.executor
    with nullcontext() if address is None else executor_at(address) as executor:
        how: dict[str, Any] = {"workers": options.workers, "executor": executor}
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
        raise BatchIncomplete(f"{missing:,} of {facts['jobs']:,} could not be planned")


def _targets(text: str) -> list[str]:
    known = [target.name for target in targets()]
    chosen = text.split(",")
    for name in chosen:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
    return chosen


def _files(sources: Sequence[Path]) -> list[str]:
    """Return the model files, those in folders sorted by name."""
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
