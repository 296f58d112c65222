"""``arenaplan map``: a picture of a plan that can be searched."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final, NamedTuple

import arenaplan
from arenaplan import Plan, _core
from arenaplan.base.errors import InvalidOption
from arenaplan.base.formulas import solved
from arenaplan.cli.models import (
    is_tflite,
    load_model,
    needed_by,
    plan_options,
    planned,
    tell_covers,
    tell_flow,
)
from arenaplan.cli.several import is_shared
from arenaplan.cli.sources import is_stream, naming, read_model, read_plan, read_table, write_result
from arenaplan.cli.watch import watching
from arenaplan.formats.json_document import format_or_none, is_model
from arenaplan.graph.graph import Graph
from arenaplan.graph.model import Model, flat_sizes
from arenaplan.planner import SharedPlan
from arenaplan.planner.changes import Diff, diff
from arenaplan.planner.packing import check_limits
from arenaplan.planner.spaces import ARENA
from arenaplan.report import map_page, map_svg, map_trace, report_of
from arenaplan.report.packing_report import report_of_packing

_PLANS = ("arenaplan", "arenaplan-shared", "arenaplan-model")
"""JSON plan formats."""


class _Program(NamedTuple):
    """A plan to draw; its graph, if known; its place in a shared arena."""

    plan: Plan
    graph: Graph | None
    base: int = 0
    total: int | None = None
    """Total bytes for the runtime, if more than the arena."""


_SUFFIXES: Final = {
    "html": (".html", ".htm"),
    "svg": (".svg",),
    "perfetto": (".json",),
    "json": (".json",),
}
_PICTURES: Final = (".png", ".jpg", ".jpeg", ".gif", ".pdf")


def _refuse_suffix(options: argparse.Namespace) -> None:
    """Refuse a file name whose suffix says another form than the one that is written."""
    suffix, own = options.output.suffix.lower(), _SUFFIXES[options.to]
    if suffix not in own and suffix in (*_PICTURES, *sum(_SUFFIXES.values(), ())):
        raise InvalidOption(
            f"option --output: --to {options.to} writes a file {own[0]}, and no {suffix}"
        )


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    _refuse_suffix(options)
    if _is_table(options.model):
        _draw_buffers(options)
        return
    programs = _programs(options)
    if options.against is not None:
        if len(programs) > 1:
            raise InvalidOption("option --against: it compares the plan of one model")
        with naming(options.against):
            old = _from_file(read_plan(options.against), options)
        if len(old) > 1:
            raise InvalidOption("option --against: the file has the plans of several models")
        programs += old
    if options.to in ("svg", "perfetto", "json") and len(programs) > 1:
        raise InvalidOption(f"option --to: {options.to} shows one plan, html several")
    reports = [report_of(each.plan, each.graph, total_bytes=each.total) for each in programs]
    if options.explain or options.curve:
        reports[0] = _with_questions(programs[0], options)
    compared = options.against is not None
    _write(options, reports[0], lambda: _page(programs, reports, compared=compared))


def _write(options: argparse.Namespace, report: dict[str, Any], page: Callable[[], str]) -> None:
    """Write a report in the form that was asked for."""
    if options.to == "html":
        content = page()
    elif options.to == "json":
        content = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    else:
        content = (map_svg if options.to == "svg" else map_trace)(report)
    write_result(options.output, content)


def _is_table(source: Path | bytes) -> bool:
    """Return whether a source is a buffer table."""
    return not isinstance(source, bytes) and source.suffix.lower() == ".csv"


def _draw_buffers(options: argparse.Namespace) -> None:
    """Draw the buffers of a table at their offsets; pack buffers without offsets."""
    if options.others or options.against is not None or options.explain or options.curve:
        raise InvalidOption("a table of buffers is drawn by itself, without models")
    with watching(options, catches=False) as watch:
        packing = _core.pack_csv(
            read_table(options.model),
            [(ARENA, None, 1, [])],
            **check_limits(options.time_limit, None, 0),
            compact=False,
            on_progress=watch,
        )
    report = report_of_packing(packing, options.model.stem)
    _write(options, report, lambda: map_page([report]))


def _page(programs: list[_Program], reports: list[dict[str, Any]], *, compared: bool) -> str:
    """Return a page with all given plans."""
    changes: Diff | None = None
    labels = [report["model"] if len(reports) > 1 else "" for report in reports]
    if compared:
        changes = diff(programs[1].plan, programs[0].plan)
        labels = ["after", "before"]
    bases = [program.base for program in programs]
    return map_page(reports, labels=labels, bases=bases, changes=changes)


def _with_questions(program: _Program, options: argparse.Namespace) -> dict[str, Any]:
    """Return the report with each technique's saving and the recomputation curve."""
    graph = program.graph
    if graph is None or program.base or options.spaces is not None:
        asked = "--explain" if options.explain else "--curve"
        raise InvalidOption(f"option {asked}: it is for the plan of one model in one arena")
    explanation = arenaplan.explain(graph, plan_options(options)) if options.explain else None
    curve = arenaplan.recompute_curve(graph, plan_options(options)) if options.curve else None
    return report_of(program.plan, graph, explanation, curve, program.total)


def _programs(options: argparse.Namespace) -> list[_Program]:
    """Return the plans to draw, from model files or a plan file."""
    if options.share is not None:
        graphs = [
            load_model(options),
            *(load_model(options, read_model(path)) for path in options.others),
        ]
        with watching(options) as watch:
            shared = arenaplan.plan_together(
                graphs,
                options.share,
                plan_options(options),
                time_limit=options.time_limit,
                on_progress=watch,
            )
        watch.raise_if_stopped()
        pairs = zip(graphs, shared.plans, strict=True)
        return _shared(shared, [graph.for_target(plan.target.name) for graph, plan in pairs])
    if options.others:
        raise InvalidOption("several models need --share, which says when they run")
    text = _plan_text(options.model)
    if text is not None:
        return _from_file(text, options)
    graph, plan, watch, _ = planned(options)
    with redirect_stdout(sys.stderr):  # The picture may go to stdout.
        tell_covers(plan.covers)
        tell_flow(graph)
    watch.raise_if_stopped()
    has_more = plan.target.runtime == "tflm" and is_tflite(options.model)
    return [_Program(plan, graph, total=needed_by(options, plan) if has_more else None)]


def _plan_text(source: Path | bytes) -> bytes | None:
    """Return the text of a plan file; None for a model."""
    if isinstance(source, bytes):
        text = source
    elif source.suffix.lower() == ".json" and not is_stream(source):
        text = read_plan(source)
    else:
        return None
    return text if format_or_none(text) in _PLANS else None


def _from_file(text: bytes, options: argparse.Namespace) -> list[_Program]:
    """Return the plans in a file that ``plan -o`` wrote."""
    if is_shared(text):
        return _shared(SharedPlan.from_json(text), None)
    if not is_model(text):
        return [_Program(Plan.from_json(text), None)]
    model = Model.from_json(text)
    sizes = flat_sizes(solved(dict(options.bind))) if options.bind else next(iter(model))
    if len(model) > 1 and not options.bind:
        raise InvalidOption("the file has plans of several shapes: --bind chooses one")
    return [_Program(model.at(**sizes), model.graph(**sizes))]


def _shared(shared: SharedPlan, graphs: Iterable[Graph] | None) -> list[_Program]:
    """Return plans that share an arena."""
    seen: Iterable[Graph | None] = [None] * len(shared.plans) if graphs is None else graphs
    return [
        _Program(plan, graph, base)
        for plan, graph, base in zip(shared.plans, seen, shared.bases, strict=True)
    ]
