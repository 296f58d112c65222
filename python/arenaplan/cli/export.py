"""``arenaplan export``: a plan in the form that a runtime or another tool reads."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import arenaplan
from arenaplan import Target
from arenaplan.base.documents import fields_of
from arenaplan.base.errors import (
    InvalidOption,
    NotAModel,
    TargetMismatch,
    UndefinedValue,
    UnsupportedSubgraph,
)
from arenaplan.cli.micro import operator_names
from arenaplan.cli.models import (
    build_of,
    check_budget,
    is_tflite,
    load_model,
    model_word,
    needed_by,
    plan_options,
    planned,
    seen_by,
)
from arenaplan.cli.printing import command, print_json, proof_of, say, shown, size
from arenaplan.cli.sources import goes_to_stdout, load_plan, write_files, write_result
from arenaplan.deploy.code import cmsis_nn_calls
from arenaplan.deploy.export import (
    EXPORTERS,
    Firmware,
    TflmPlan,
    firmware_of,
    obey,
    plan_in_best_order,
    plan_tflm,
)
from arenaplan.formats import open_model
from arenaplan.graph.graph import Graph
from arenaplan.graph.model import flat_sizes
from arenaplan.planner.plan_options import PlanOptions, keeps_order
from arenaplan.run.dynamic.shapes import MAX_SHAPES, Shapes
from arenaplan.tflite.reader.entries import chosen
from arenaplan.tflite.reader.tflite_model import TfliteModel, parse, read_bytes
from arenaplan.tflite.reader.timeline import unused_bytes
from arenaplan.tflite.runtime.arena import total
from arenaplan.tflite.runtime.build import Build

if TYPE_CHECKING:
    from arenaplan import Plan

_FLAGS = {
    "name": "--name",
    "space": "--space",
    "sections": "--section",
    "always": "--always",
    "stream_input": "--stream-input",
    "kernels": "--kernels",
    "firmware": "--original",
}
"""The flag for each option that some export forms have."""


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    given = _given(options)
    exporter = EXPORTERS[options.to]
    if "name" in exporter.options:
        given.setdefault("name", _name(options))
    if "firmware" in exporter.options and is_tflite(options.model):
        given["firmware"] = _firmware(options)
    if exporter.source == "tflite":
        _export_tflm(options)
        return
    if exporter.source == "unplanned":
        _export_graph(options)
        return
    if exporter.source == "shapes":
        _export_shapes(options)
        return
    graph, plan = _planned(options)
    plan.covers.require_whole(plan.model)
    document = _facts(options, plan)
    check_budget(options, document.get("total_bytes", plan))
    try:
        data = exporter.write(graph, plan, **given)
    except TargetMismatch as error:
        if exporter.reader is None:
            raise
        raise _with_command(error, options, exporter.reader) from None
    _write(options, data)
    if "kernels" in given:
        document |= {"calls": cmsis_nn_calls(graph), "steps": len(plan.steps)}
    whole = f"; {size(document['total_bytes'])} in all" if "total_bytes" in document else ""
    verdict = f"{size(plan.arena_bytes)}, {proof_of(plan)}{whole}"
    if "calls" in document:
        verdict += f"; {document['calls']} of {len(plan.steps)} steps call CMSIS-NN"
    _report(options, document, f"{shown(plan.model) or 'model'} for {plan.target.name}: {verdict}")


def _facts(options: argparse.Namespace, plan: Plan) -> dict[str, Any]:
    """Return the plan's figures; if the runtime needs more bytes, also its total."""
    document: dict[str, Any] = {
        "model": plan.model,
        "target": plan.target.name,
        **fields_of(plan, "arena_bytes status"),
    }
    if plan.target.runtime == "tflm" and is_tflite(options.model):
        document["total_bytes"] = needed_by(options, plan)
    return document


def _export_graph(options: argparse.Namespace) -> None:
    """Write a graph without a plan."""
    _refuse_plan(options)
    graph = seen_by(load_model(options), plan_options(options), options)
    _write(options, EXPORTERS[options.to].write(graph))
    document = {
        "model": graph.name,
        "values": len(graph.values),
        "nodes": len(graph.nodes),
        "digest": graph.digest,
    }
    counts = f"{len(graph.values):,} values, {len(graph.nodes):,} nodes"
    _report(options, document, f"{shown(graph.name) or 'model'}: {counts}")


def _export_shapes(options: argparse.Namespace) -> None:
    """Write an export that serves all shapes."""
    _refuse_plan(options)
    shapes = Shapes(dict(options.bind), MAX_SHAPES)
    graph_with = open_model(options.model, signature=options.signature)
    chosen = plan_options(options)
    bound = map(shapes.bound, shapes)
    graphs = ((flat_sizes(sizes), seen_by(graph_with(sizes), chosen, options)) for sizes in bound)
    data = EXPORTERS[options.to].write(graphs)
    _write(options, data)
    count = "1 shape" if len(shapes) == 1 else f"{len(shapes):,} shapes"
    _report(options, {"shapes": len(shapes), "bytes": len(data)}, f"{size(len(data))} for {count}")


def _refuse_plan(options: argparse.Namespace) -> None:
    """Refuse plan options."""
    for name in ("plan", "budget"):
        if getattr(options, name) is not None:
            raise InvalidOption(f"option --{name}: --to {options.to} writes no plan")


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Return the given options that the form has; refuse options for other forms."""
    values = {
        "name": options.name,
        "space": options.space,
        "sections": dict(options.section),
        "always": options.always,
        "stream_input": options.stream_input == "rows",
        "kernels": None if options.kernels == "portable" else options.kernels,
        "firmware": options.original,
    }
    given = {name: value for name, value in values.items() if value not in (None, {}, False)}
    for name in given:
        if name not in EXPORTERS[options.to].options:
            forms = ", ".join(form.name for form in EXPORTERS.values() if name in form.options)
            raise InvalidOption(f"option {_FLAGS[name]} is for --to {forms}, not --to {options.to}")
    if given.pop("firmware", None) is not None and not is_tflite(options.model):
        raise InvalidOption("option --original is for .tflite models")
    return given


def _name(options: argparse.Namespace) -> str:
    """
    Return the identifier prefix from the model file, or "" to use the graph's name.

    Frameworks give all graphs the same name: PyTorch always exports a "main_graph".
    """
    model: Path | bytes = options.model
    if isinstance(model, bytes) or model.suffix.lower() == ".json":
        return ""
    return model.stem if options.signature is None else f"{model.stem}.{options.signature}"


def _firmware(options: argparse.Namespace) -> Firmware:
    """Return facts about a TFLite file for the surrounding firmware."""
    model = parse(read_bytes(options.model)[0])
    original = None if options.original is None else parse(read_bytes(options.original)[0])
    return firmware_of(model, build_of(options), original)


def _planned(options: argparse.Namespace) -> tuple[Graph, Plan]:
    """Return a checked plan that the reader can honor, and its graph."""
    reader = EXPORTERS[options.to].reader
    if options.plan is not None:
        if options.kernels != "portable":
            raise InvalidOption("option --kernels: plans are for one kernel set; omit --plan")
        plan = load_plan(options.plan)
        chosen = PlanOptions(target=options.target or plan.target)
        graph = seen_by(load_model(options), chosen, options)
        plan.check(graph)
        return graph, plan
    chosen = plan_options(options)
    if reader is not None and chosen.target is None:
        chosen = replace(chosen, target=reader)
    try:
        graph, plan, watch, _ = planned(options, chosen)
    except (UnsupportedSubgraph, UndefinedValue):
        if options.target is not None or not is_tflite(options.model):
            raise
        # Only the runtime's own clock knows when such a model needs tensors.
        graph, plan, watch, _ = planned(options, replace(chosen, target="tflm"))
    watch.raise_if_stopped()
    return graph, plan


def _with_command(
    error: TargetMismatch, options: argparse.Namespace, target: str
) -> TargetMismatch:
    """Return the error with the command that makes a plan for the reader."""
    words = ["plan", model_word(options), "--target", target, "-o", str(options.plan)]
    for name, number in options.bind:
        sizes = number if isinstance(number, tuple) else (number,)
        words += ["--bind", f"{name}={'x'.join(map(str, sizes))}"]
    return TargetMismatch(f"{error}; make a plan for this reader with: {command(*words)}")


def _export_tflm(options: argparse.Namespace) -> None:
    """Write a plan for TensorFlow Lite Micro."""
    if not is_tflite(options.model):
        raise NotAModel("the model is no .tflite model, which is all that TFLM runs")
    plan_options(options)  # Refuses contradictions.
    if options.spaces is not None and len(options.spaces) != 1:
        raise InvalidOption("--spaces: TensorFlow Lite Micro has one arena for tensors")
    if options.inputs not in (None, "inside", "keep") or options.outputs != "inside":
        raise InvalidOption("TensorFlow Lite Micro has inputs and outputs in its arena")
    is_left_out = options.optimize not in ("all", "all,-order")
    if options.align is not None or is_left_out or options.inputs == "keep":
        say("note: TensorFlow Lite Micro's own rules decide alignment and sharing")
    if options.target is not None and options.target.partition(":")[0] != "tflm":
        raise InvalidOption(f"option --target: --to {options.to} is for tflm")
    data, path = read_bytes(options.model)
    given = None if options.plan is None else load_plan(options.plan)
    target = options.target
    if given is not None and target is None and given.target.runtime == "tflm":
        target = given.target.name
    model = chosen(parse(data), options.signature)
    build = build_of(options, target)
    if options.to == "tflm" and given is None and not keeps_order(options.optimize):
        ordered, result = plan_in_best_order(model, always=options.always, build=build)
    else:
        ordered, result = model, _tflm_plan(model, options, build, given)
    check_budget(options, result.after.total)
    name = path.stem if path is not None else "model"
    _write(options, EXPORTERS[options.to].write(ordered, result, options.name or name))
    document = {
        "model": name,
        "total_before": result.before.total,
        "total_after": result.after.total,
        **fields_of(result.after, "tail startup"),
        **fields_of(build, "kernels pointer"),
        "exact": build.is_exact,
        **fields_of(result, "head_before head_after lower_bound status already_optimal pinned"),
        **fields_of(result, "scratch unknown"),
        "reordered": ordered is not model,
        "kept": result.is_kept,
        "tensors": len(result.offsets),
    }
    verdict = _verdict(name, result)
    if build.is_package:
        narrow = replace(build, pointer=32)
        totals = [
            total(model, build=narrow).total,
            total(ordered, result.offsets, build=narrow).total,
        ]
        document["with_32_bits"] = {"total_before": totals[0], "total_after": totals[1]}
        change = f"{totals[0]:,} -> " if totals[0] != totals[1] else ""
        verdict += f"\n  with 32-bit pointers {change}{size(totals[1])}; {narrow.accuracy}"
    _report(options, document, verdict)
    unused = unused_bytes(model)
    if unused and options.to == "tflm":
        say(
            f"note: {size(unused)} are of tensors that no operator uses, and the runtime gives "
            "them memory; 'arenaplan fit' leaves them out"
        )
    if ordered is not model:
        say(
            "the operators run in another order, which needs fewer bytes (--optimize all,-order "
            "keeps the order)"
        )


def _tflm_plan(
    model: TfliteModel, options: argparse.Namespace, build: Build, plan: arenaplan.Plan | None
) -> TflmPlan:
    """Return the given plan, checked by the runtime's rules, or a new plan."""
    if plan is None:
        # The shim has no planner: the table decides all offsets.
        return plan_tflm(model, always=options.always or options.to == "tflm-shim", build=build)
    seen = PlanOptions(target=options.target or plan.target)
    plan.check(seen_by(load_model(options), seen, options))
    try:
        plan.check_target(Target.known(build.target))
    except TargetMismatch as error:
        raise _with_command(error, options, build.target) from None
    return obey(model, plan, build)


def _verdict(name: str, result: TflmPlan) -> str:
    """Return the text about the gain over the runtime's own planner."""
    is_optimal = result.status == "optimal"
    proof = "proven minimal for these operators in this order" if is_optimal else result.status
    own = f"{size(result.head_before)} for tensors and scratch memory"
    build = f"{result.build.kernels} kernels and {result.build.pointer}-bit pointers"
    whole = f"\n  total {{}} for kTensorArenaSize, with {build}\n  figures {result.build.accuracy}"
    if not result.pinned:
        if result.unknown:
            why = (
                f"kernels of {operator_names(result.unknown)} are not known, and may ask for "
                f"scratch memory; TensorFlow Lite Micro's own planner stays in charge and needs "
                f"{own} of known kernels\n  'arenaplan measure' finds what they ask for; --always "
                f"decides anyway, with {size(result.head_fixed)}"
            )
        elif result.already_optimal:
            why = (
                f"already optimal: TensorFlow Lite Micro's own planner needs {own}, {proof}; it "
                "stays in charge"
            )
        elif result.head_fixed < result.head_before:
            why = (
                f"TensorFlow Lite Micro's own planner stays in charge and needs {own}: fixed "
                f"offsets need {size(result.head_fixed)}, but the whole arena would not be smaller"
            )
        else:
            why = (
                f"TensorFlow Lite Micro's own planner stays in charge and needs {own}; no better "
                f"plan was found, {result.lower_bound:,} is the lower bound"
            )
        return f"{shown(name)}: {why}{whole.format(size(result.after.total))}"
    if result.is_kept:
        proof += ", with the plan that was in the file: no better one was found"
    change = result.head_after / result.head_before - 1 if result.head_before else 0.0
    totals = f"{result.before.total:,} -> {size(result.after.total)}"
    return (
        f"{shown(name)}: arena head {result.head_before:,} -> {result.head_after:,} bytes "
        f"({change:+.1%}), {proof}{whole.format(totals)}"
    )


def _write(options: argparse.Namespace, data: bytes | Mapping[str, bytes]) -> None:
    """Write the result to a file at once, or to stdout; several files to a folder."""
    if isinstance(data, bytes):
        write_result(options.output, data)
        return
    write_files(options.output, data)


def _report(options: argparse.Namespace, document: dict[str, Any], verdict: str) -> None:
    """Print the export report, unless the export itself goes to stdout."""
    if goes_to_stdout(options):
        say(verdict)
    elif options.json:
        print_json({**document, "to": options.to, "output": str(options.output)})
    else:
        print(verdict)
