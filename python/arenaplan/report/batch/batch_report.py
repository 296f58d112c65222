"""Batch reports: a table in a file, and a page for people."""

from __future__ import annotations

import csv
import html
import io
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from statistics import median
from typing import Any

from arenaplan.base.errors import InvalidOption
from arenaplan.base.quoting import printable
from arenaplan.report.batch.jobs import Outcome

_NAMES = [each.name for each in fields(Outcome)]


def table(outcomes: Sequence[Outcome], suffix: str) -> bytes:
    """
    Return a file with a row per outcome: ``.parquet``, ``.csv`` or ``.jsonl``.

    Raises
    ------
    InvalidOption
        If the suffix is unknown.
    ImportError
        If the suffix is ``.parquet`` and the package ``pyarrow`` is not installed.
    """
    return writer_of(suffix)(outcomes)


def writer_of(suffix: str) -> Callable[[Sequence[Outcome]], bytes]:
    """
    Return the function that writes tables, so that a wrong suffix fails early.

    Raises
    ------
    InvalidOption, ImportError
        As :func:`table`.
    """
    if suffix not in _WRITERS:
        raise InvalidOption(f"a report ends in {', '.join(_WRITERS)}, not in {suffix!r}")
    if suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise ImportError("Parquet needs pyarrow: pip install pyarrow") from None
    return _WRITERS[suffix]


def _parquet(outcomes: Sequence[Outcome]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    kinds = {"int | None": pyarrow.int64(), "str": pyarrow.string()}
    schema = pyarrow.schema([(each.name, kinds[str(each.type)]) for each in fields(Outcome)])
    rows = pyarrow.Table.from_pylist([asdict(outcome) for outcome in outcomes], schema)
    sink = io.BytesIO()
    parquet.write_table(rows, sink)
    return sink.getvalue()


def _csv(outcomes: Sequence[Outcome]) -> bytes:
    sink = io.StringIO(newline="")
    rows = csv.DictWriter(sink, _NAMES, lineterminator="\n")
    rows.writeheader()
    rows.writerows(
        {name: _harmless(cell) for name, cell in asdict(each).items()} for each in outcomes
    )
    return sink.getvalue().encode()


def _harmless(cell: object) -> object:
    """Return a cell that neither a terminal nor a spreadsheet takes for a command."""
    if not isinstance(cell, str):
        return cell
    text = printable(cell)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _jsonl(outcomes: Sequence[Outcome]) -> bytes:
    return "".join(json.dumps(asdict(outcome)) + "\n" for outcome in outcomes).encode()


_WRITERS: Mapping[str, Callable[[Sequence[Outcome]], bytes]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".jsonl": _jsonl,
}


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return a batch's figures: counts, errors by name, and arenas by target."""
    planned = [outcome for outcome in outcomes if outcome.is_planned]
    arenas: dict[str, list[int]] = {}
    for outcome in planned:
        arenas.setdefault(outcome.target, []).append(outcome.arena_bytes or 0)
    errors = Counter(outcome.error for outcome in outcomes if not outcome.is_planned)
    return {
        "jobs": len(outcomes),
        "planned": len(planned),
        "optimal": sum(outcome.status == "optimal" for outcome in planned),
        "errors": dict(sorted(errors.items(), key=lambda pair: (-pair[1], pair[0]))),
        "targets": {
            target: {
                "planned": len(sizes),
                "least_bytes": min(sizes),
                "median_bytes": int(median(sizes)),
                "most_bytes": max(sizes),
            }
            for target, sizes in sorted(arenas.items())
        },
    }


def page(outcomes: Sequence[Outcome]) -> str:
    """Return an HTML page: the summary, the largest arenas, and all errors."""
    facts = summary(outcomes)
    largest = sorted(
        (outcome for outcome in outcomes if outcome.is_planned),
        key=lambda outcome: (-(outcome.arena_bytes or 0), outcome.model),
    )
    wrong = [outcome for outcome in outcomes if not outcome.is_planned]
    targets = [[name, *figures.values()] for name, figures in facts["targets"].items()]
    parts = [
        f"<p>{facts['planned']:,} of {facts['jobs']:,} planned, {facts['optimal']:,} optimal.",
        "<h2>Targets</h2>",
        _html_table(["target", "planned", "least", "median", "most bytes"], targets),
        "<h2>Arenas</h2>",
        _html_table(
            ["model", "target", "bytes", "lower bound", "status"],
            [[o.model, o.target, o.arena_bytes, o.lower_bound, o.status] for o in largest],
        ),
        "<h2>Errors</h2>",
        _html_table(
            ["model", "target", "error", "message"],
            [[o.model, o.target, o.error, o.message] for o in wrong],
        ),
    ]
    return _PAGE.format(body="\n".join(parts))


def _html_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return "<p>none"
    cells = "".join(f"<th>{html.escape(name)}" for name in head)
    lines = ["".join(_cell(cell) for cell in row) for row in rows]
    return f"<table><tr>{cells}{''.join(f'<tr>{line}' for line in lines)}</table>"


def _cell(cell: object) -> str:
    if isinstance(cell, int):
        return f'<td class="number">{cell:,}'
    return f"<td>{html.escape(str(cell))}"


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>arenaplan batch</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; }}
table {{ border-collapse: collapse; }}
th, td {{ border-bottom: 1px solid #8886; padding: .2rem .8rem .2rem 0; text-align: left; }}
td.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
</style>
<h1>Batch of plans</h1>
{body}
</html>
"""
