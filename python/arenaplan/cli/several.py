"""One arena for several plans: all shapes of a model, or several models."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

import arenaplan
from arenaplan.base.documents import fields_of
from arenaplan.base.errors import CapacityExceeded, InvalidOption
from arenaplan.cli.micro import SharedTotal, shared_total
from arenaplan.cli.models import check_budget, load_model, plan_options, with_budget
from arenaplan.cli.printing import print_json, proof_of_several, say, shown, size
from arenaplan.cli.sources import delivering, goes_to_stdout, read_model
from arenaplan.cli.watch import ProgressLine, watching
from arenaplan.formats import open_model
from arenaplan.planner.plan_options import PlanOptions
from arenaplan.run.dynamic.shapes import Size, sizes_text

if TYPE_CHECKING:
    from arenaplan.planner import SharedPlan
    from arenaplan.run import LengthCurve, PlanFamily
    from arenaplan.run.dynamic.families import Source

_LISTED = 64
"""Most shapes whose bytes are all listed, since each is planned for that."""

_LOOKED_AT, _MOST = 64, 1 << 20
"""Largest dimension range planned in full, and largest for a curve."""

_NAMED = 4
"""Most shapes in a line of text."""

_MARK = b'{"format":"arenaplan-shared"'
"""First bytes of a file with plans that share an arena."""

_SHOWN = 16
"""Most rows in a printed table."""


def plan_shapes(options: argparse.Namespace, chosen: PlanOptions) -> None:
    """Plan and report every shape that ``--bind`` describes."""
    if _is_curve(options):
        _plan_curve(options, chosen)
        return
    # Plans for only some shapes are useless: Ctrl-C gives up.
    with watching(options, catches=False) as watch:
        try:
            family = arenaplan.plan_family(
                _opened(options),
                dict(options.bind),
                max_shapes=options.max_shapes,
                time_limit=options.time_limit,
                on_progress=watch.count,
                options=chosen,
            )
        except CapacityExceeded as error:
            if isinstance(error.family, arenaplan.run.PlanFamily):
                report(error.family, as_json=options.json, watch=watch)
            raise
        for warning in family.warnings:
            say(f"warning: {warning}")
        with delivering(options, lambda: _document(family, watch)):
            report(family, as_json=options.json and not goes_to_stdout(options), watch=watch)


def _is_curve(options: argparse.Namespace) -> bool:
    """Return whether the only dimension with several numbers has so many that few are planned."""
    counts = [len(sizes) for _, sizes in options.bind if isinstance(sizes, range | list)]
    return len(counts) == 1 and _LOOKED_AT < counts[0] <= _MOST and options.output is None


def _plan_curve(options: argparse.Namespace, chosen: PlanOptions) -> None:
    """Plan a sample of a long range, and report bytes by length."""
    with watching(options, catches=False) as watch:
        curve = arenaplan.run.plan_lengths(
            _opened(options),
            dict(options.bind),
            chosen,
            time_limit=options.time_limit,
            on_progress=watch.count,
        )
        watch.clear()
    if options.json:
        rows = [point._asdict() for point in curve.points]
        longest = None if curve.longest is None else curve.longest._asdict()
        ends = [curve.lengths[0], curve.lengths[-1]]
        facts = {"lengths": len(curve.lengths), "ends": ends, "points": rows}
        print_json({**fields_of(curve, "model name budget"), **facts, "longest": longest})
    else:
        _report_curve(curve)
    if curve.budget is not None and curve.points[-1].arena_bytes > curve.budget:
        fits = "none fits" if curve.longest is None else f"{_text(curve.longest.bind)} does"
        raise CapacityExceeded(
            f"{_text(curve.points[-1].bind)} needs {curve.points[-1].arena_bytes:,} bytes, and "
            f"{curve.budget:,} are there; {fits}"
        )


def _report_curve(curve: LengthCurve) -> None:
    """Print bytes over the length."""
    first, last, count = curve.lengths[0], curve.lengths[-1], len(curve.points)
    print(
        f"{shown(curve.model) or 'model'}: {shown(curve.name)} from {first:,} to {last:,}; "
        f"{count} of {len(curve.lengths):,} lengths are planned"
    )
    shortest = curve.points[0].bind
    print(f"  {'arena':>14}  {'caches':>14}  {'activations':>14}  {'scratch':>12}")
    for point in curve.points:
        bind = {n: v for n, v in point.bind.items() if count == 1 or v != shortest[n]}
        print(
            f"  {point.arena_bytes:>14,}  {point.caches:>14,}  {point.activations:>14,}"
            f"  {point.scratch:>12,}  {_text(bind or shortest)}"
        )
    if curve.budget is not None:
        fits = "none" if curve.longest is None else _text(curve.longest.bind)
        print(f"  the longest that fits {curve.budget:,} bytes: {fits}")


def _opened(options: argparse.Namespace) -> Source:
    """Return the command's model, or a function that builds its graph with caches."""
    if not options.keep_caches:
        model: Source = options.model
        return model
    graph_with = open_model(options.model, signature=options.signature)
    return lambda sizes: arenaplan.keep_caches(graph_with(sizes))


def _document(family: PlanFamily, watch: ProgressLine) -> str:
    """Return the file with graphs and plans for all shapes."""
    tell = partial(watch.count, what="planned by themselves")
    text = family.to_model(tell).to_json()
    watch.clear()
    return text


def report(family: PlanFamily, *, as_json: bool, watch: ProgressLine) -> None:
    """Print the report about all shapes."""
    summary = summarize(family, watch)
    watch.clear()
    if as_json:
        print_json(summary)
        return
    sizes = " ".join(f"{shown(name)}={sizes_text(each)}" for name, each in family.bind.items())
    target = shown(family.target.name)
    print(f"{shown(family.model) or 'model'} for {target}: {len(family):,} shapes, {sizes}")
    proof = proof_of_several(family.status, family.arena_bytes, family.lower_bound)
    print(f"  arena        {size(family.arena_bytes)} for every shape, {proof}")
    print(f"  lower bound  {size(family.lower_bound)}")
    print(f"  planned      {_planned(family)}")
    if family.left_out:
        example = _text(family.left_out[0])
        print(f"  left out     {len(family.left_out):,} that the model forbids, such as {example}")
    print("  required")
    rows = summary["required"]
    hidden = max(0, len(rows) - _SHOWN)
    for row in rows[: len(rows) - hidden - 1] + rows[-1:]:
        if hidden and row is rows[-1]:
            print(f"    {'…':>14}  {hidden:,} more, see --json")
        print(f"    {row['arena_bytes']:>14,}  {_text(row['bind'])}")


def summarize(family: PlanFamily, watch: ProgressLine | None = None) -> dict[str, Any]:
    """Return the ``plan --json`` document for all shapes."""
    smallest, *others = reversed(list(family))
    listed = [smallest, *others] if len(family) <= _LISTED else [smallest, others[-1]]
    required = []
    for bind in listed:
        required.append(_row(bind, family.at(**bind)))
        if watch is not None:
            watch.count(len(required), len(listed), "planned by themselves")
    return {
        "model": family.model,
        "target": family.target.name,
        "bind": family.bind,
        "shapes": len(family),
        **fields_of(family, "left_out arena_bytes lower_bound gap status"),
        "planned": [_row(bind, plan) for bind, plan in family.planned],
        "required": required,
        **fields_of(family, "alignment options"),
    }


def _planned(family: PlanFamily) -> str:
    """Return the text about planned shapes and the other shapes."""
    planned = [_text(bind) for bind, _ in family.planned]
    text = ", ".join(planned[:_NAMED]) + (", …" if len(planned) > _NAMED else "")
    others = len(family) - len(planned)
    if not others:
        return text
    whose = "its" if len(planned) == 1 else "their"
    which = "the other shape" if others == 1 else f"the other {others:,} shapes"
    return f"{text}; {whose} offsets were checked to serve {which}"


def _text(bind: dict[str, Size]) -> str:
    """Return a shape for people."""
    return " ".join(f"{shown(name)}={sizes_text([size])}" for name, size in bind.items())


def _row(bind: dict[str, Any], plan: arenaplan.Plan) -> dict[str, Any]:
    """Return the figures for one shape's plan."""
    return {"bind": bind, **fields_of(plan, "arena_bytes lower_bound status digest")}


# -- models ------------------------------------------------------------------------


def share(options: argparse.Namespace) -> None:
    """Plan and report models that share an arena."""
    chosen = plan_options(options)
    if chosen.spaces is not None:
        raise InvalidOption("option share: models share one arena, and --spaces names several")
    sources = [options.model, *map(read_model, options.others)]
    graphs = [load_model(options, source) for source in sources]
    defaults = {graph.target for graph in graphs}
    chosen = with_budget(chosen, options, defaults.pop() if len(defaults) == 1 else "nodes")
    with watching(options) as watch:
        shared = arenaplan.plan_together(
            graphs, options.share, chosen, time_limit=options.time_limit, on_progress=watch
        )
    total = shared_total(shared, sources, options)
    if shared.plans and shared.plans[0].target.runtime == "tflm":
        check_budget(options, shared.plans[0] if total is None else total.total)
    with delivering(options, shared.to_json):
        if options.json and not goes_to_stdout(options):
            whole = {} if total is None else {f"{k}_bytes": v for k, v in total._asdict().items()}
            print_json({**describe_shared(shared), **whole})
        else:
            _report_shared(shared, total)
    watch.raise_if_stopped()


def describe_shared(shared: SharedPlan) -> dict[str, Any]:
    """Return the ``plan --share --json`` document."""
    return {
        "share": shared.together,
        **fields_of(shared, "arena_bytes lower_bound status alignment capacity"),
        "models": [
            {
                "model": plan.model,
                "target": plan.target.name,
                "base": base,
                **fields_of(plan, "arena_bytes lower_bound status digest"),
            }
            for base, plan in zip(shared.bases, shared.plans, strict=True)
        ],
    }


def is_shared(text: bytes) -> bool:
    """Return whether a plan file holds plans that share an arena."""
    return text.startswith(_MARK)


def _report_shared(shared: SharedPlan, total: SharedTotal | None) -> None:
    """Print the report about plans that share an arena."""
    proof = proof_of_several(shared.status, shared.arena_bytes, shared.lower_bound)
    targets = ", ".join(sorted({shown(plan.target.name) for plan in shared.plans}))
    print(f"{len(shared.plans)} models for {targets}, {shared.together}")
    print(f"  arena        {size(shared.arena_bytes)}, {proof}")
    if total is not None:
        heads = "share" if shared.together != "concurrent" else "take"
        print(
            f"  total        {size(total.total)} for the runtime's own planner: heads {heads} "
            f"{total.head:,}, tails add {total.tail:,}"
        )
    print(f"  lower bound  {size(shared.lower_bound)}")
    for base, plan in zip(shared.bases, shared.plans, strict=True):
        print(f"  {plan.arena_bytes:>14,}  at {base:>12,}  {shown(plan.model) or 'model'}")
