"""Gates as tables for people, as Markdown, and as JUnit's XML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from xml.etree import ElementTree

from arenaplan.base.arguments import typed
from arenaplan.base.quoting import printable
from arenaplan.report.gating.verdicts import Gate, GateRow, GrowthCause

_MOST: Final = 20
"""Most causes in a table."""


def table(gate: Gate) -> list[str]:
    """Return the lines below a gate's verdict."""
    lines = []
    if gate.rows:
        header = f"  {'rule':<9} {'memory':<12} {'bytes':>14} {'limit':>14} {'headroom':>14}"
        lines.append(header)
        lines += [
            f"  {row.rule:<9} {printable(row.space)[:12]:<12} {row.bytes:>14,} {row.limit:>14,} "
            f"{row.headroom:>+14,}  {'ok' if row.passed else 'FAIL'}"
            for row in gate.rows
        ]
    lines += [f"  {line}" for line in _growth(gate)]
    return lines


def _growth(gate: Gate) -> Iterator[str]:
    """Yield the lines about growth over the baseline."""
    grew = [row for row in gate.rows if row.baseline is not None and row.bytes > row.baseline]
    if gate.causes:
        yield "who causes the growth, of the values at the peak"
        for cause in gate.causes[:_MOST]:
            yield f"  {_sizes(cause):>30}  {cause.kind:<20}  {printable(cause.name)[:60]}"
        if len(gate.causes) > _MOST:
            yield f"  and {len(gate.causes) - _MOST:,} more"
    elif grew:
        yield "no value at the peak is new or larger: the values leave gaps between them"
    if gate.others:
        yield f"{gate.others:,} values are elsewhere, or live at other steps, than in the baseline"


def _sizes(cause: GrowthCause) -> str:
    """Return a value's bytes before and after."""
    if cause.before is None or cause.before == cause.after:
        return f"{cause.after:,}"
    return f"{cause.before:,} -> {cause.after:,}"


@typed
def markdown(gates: Sequence[Gate]) -> str:
    """Return a section per gate, in GitHub Markdown."""
    return "\n".join(_section(gate) for gate in gates)


def _section(gate: Gate) -> str:
    mark = "✅" if gate.passed else "❌"
    name = _cell(gate.model or "model")
    lines = [f"### {mark} {name} for {_cell(gate.target)}", ""]
    if gate.problem is not None:
        lines += [_cell(gate.problem), ""]
    if gate.rows:
        lines += ["| memory | rule | bytes | limit | headroom | |", "|---|---|---:|---:|---:|---|"]
        lines += [_row(row) for row in gate.rows]
        lines.append("")
    if gate.causes:
        lines += ["| grown by | | before | after |", "|---|---|---:|---:|"]
        for cause in gate.causes[:_MOST]:
            before = "" if cause.before is None else f"{cause.before:,}"
            lines.append(f"| `{_code(cause.name)}` | {cause.kind} | {before} | {cause.after:,} |")
        if len(gate.causes) > _MOST:
            lines.append(f"| and {len(gate.causes) - _MOST:,} more | | | |")
        lines.append("")
    return "\n".join(lines)


def _row(row: GateRow) -> str:
    mark = "ok" if row.passed else "**too large**"
    return (
        f"| {_cell(row.space)} | {row.rule} | {row.bytes:,} | {row.limit:,} | {row.headroom:+,} "
        f"| {mark} |"
    )


def _cell(text: str) -> str:
    """Escape text for a table cell: no markup and no mentions."""
    return "".join(f"\\{c}" if c in "\\`*_[]|~" else _entity(c) for c in printable(text))


def _entity(char: str) -> str:
    return {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;", "#": "&#35;"}.get(char, char)


def _code(text: str) -> str:
    """Return text for a code span in a cell."""
    return printable(text).replace("`", "'").replace("|", "\\|")


_COUNTS: Final = ("tests", "failures", "errors")


@typed
def junit(gates: Sequence[Gate]) -> str:
    """Return an XML document with a suite per gate and a test case per rule."""
    suites = ElementTree.Element("testsuites", name="arenaplan gate")
    totals = dict.fromkeys(_COUNTS, 0)
    for gate in gates:
        suite = ElementTree.SubElement(suites, "testsuite", name=printable(gate.model or "model"))
        cases: list[tuple[str, str | None]] = [("plan", gate.problem)]
        for row in gate.rows:
            sentence = None
            if not row.passed:
                sentence = f"{row.bytes:,} bytes, {-row.headroom:,} more than {row.limit:,}"
            cases.append((f"{row.rule} {row.space}", sentence))
        for name, problem in cases:
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=printable(f"{gate.model or 'model'} for {gate.target}"),
                name=printable(name),
            )
            if problem is not None:
                kind = "error" if gate.is_error else "failure"
                failure = ElementTree.SubElement(case, kind, message=printable(problem, "\n"))
                failure.text = printable("\n".join([problem, *table(gate)]), "\n")
        failed = sum(problem is not None for _, problem in cases)
        counts = (len(cases), 0 if gate.is_error else failed, failed if gate.is_error else 0)
        for name, count in zip(_COUNTS, counts, strict=True):
            suite.set(name, str(count))
            totals[name] += count
    for name, count in totals.items():
        suites.set(name, str(count))
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'
