"""A command's model, plan options, and limits for the plan."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import arenaplan
from arenaplan import keep_caches, load
from arenaplan.base.errors import (
    CapacityExceeded,
    InvalidOption,
    UnboundDim,
    UnknownShape,
    UnsupportedSubgraph,
)
from arenaplan.cli.printing import say, shown
from arenaplan.cli.sources import read_plan
from arenaplan.cli.syntax import PerSpace
from arenaplan.cli.watch import ProgressLine, watching
from arenaplan.deploy.code.cmsis_calls import BUILDS, calling_cmsis_nn
from arenaplan.formats import open_partial, signatures_for, suffix_of
from arenaplan.formats.partial import NOTHING_KNOWN, decides
from arenaplan.formats.runner_bytes import needed_bytes
from arenaplan.graph.graph import Graph
from arenaplan.planner.bodies import bodies_of, describe
from arenaplan.planner.plan_options import PlanOptions, target_of
from arenaplan.planner.spaces import Space, aligned
from arenaplan.report.report_document import covered_part, covers_document
from arenaplan.run.dynamic.shapes import has_several
from arenaplan.tflite.files import graph_for_tflm
from arenaplan.tflite.reader.code_walk import streamed
from arenaplan.tflite.reader.tflite_model import parse, read_bytes
from arenaplan.tflite.runtime.build import Build
from arenaplan.tflite.runtime.profile import Profile

if TYPE_CHECKING:
    from arenaplan import Plan
    from arenaplan._core import Covers


def each_signature(options: argparse.Namespace) -> list[Graph]:
    """Return the graph of each signature that the target runs; most models have only one."""
    given = getattr(options, "signature", None)
    names = (given,) if given else signatures_for(options.model, options.target)
    return [load_ahead(options, name) for name in names]


def has_ranges(options: argparse.Namespace) -> bool:
    """Return whether a dimension was given several numbers."""
    return any(has_several({name: sizes}) for name, sizes in options.bind)


def load_model(
    options: argparse.Namespace,
    source: Path | bytes | None = None,
    signature: str | None = None,
) -> Graph:
    """Read the command's model, or another model, and pass on the importer's warnings."""
    if has_ranges(options):
        raise InvalidOption("option bind: only 'plan' takes several numbers for a dimension")
    if source is None:
        source = options.model
    signature = signature or getattr(options, "signature", None)
    graph = load(source, bind=dict(options.bind), signature=signature)
    for warning in graph.warnings:
        say(f"warning: {warning}")
    return keep_caches(graph) if getattr(options, "keep_caches", False) else graph


def is_tflite(source: Path | bytes) -> bool:
    """Return whether a model that was given is a TFLite file."""
    return suffix_of(source) == ".tflite"


def is_onnx(options: argparse.Namespace) -> bool:
    """Return whether the command's model is an ONNX file."""
    return suffix_of(options.model) == ".onnx"


def model_word(options: argparse.Namespace) -> str:
    """Return the command's model as a command-line word."""
    return "-" if isinstance(options.model, bytes) else str(options.model)


def plan_options(options: argparse.Namespace) -> PlanOptions:
    """
    Return the :func:`arenaplan.plan` options from the command line.

    The budget is left out: :func:`check_budget` compares the budget with the runner's total.
    """
    align: PerSpace = options.align or PerSpace()
    spaces: list[Space] | None = options.spaces
    if spaces is None and (align.spaces or options.pin):
        raise InvalidOption("--align SPACE=BYTES and --pin need --spaces, which names the memories")
    if spaces is not None and getattr(options, "budget", None) is not None:
        raise InvalidOption("option --budget: the memories of --spaces have sizes of their own")
    return PlanOptions(
        target=options.target,
        alignment=align.everywhere,
        optimize=options.optimize,
        effort=options.effort,
        inputs=options.inputs,
        outputs=options.outputs,
        workspace=options.workspace,
        max_slowdown=options.max_slowdown,
        parallel_safe=getattr(options, "parallel_safe", False),
        workers=options.workers,
        spaces=None if spaces is None else aligned(spaces, align.spaces),
        pins={pattern: space for space, pattern in options.pin} or None,
    )


def with_budget(chosen: PlanOptions, options: argparse.Namespace, default: str) -> PlanOptions:
    """
    Add the command line's budget, if the runner needs only the plan's arena.

    ``default`` is the model format's target.
    """
    if target_of(chosen, default).runtime == "tflm":
        return chosen
    return replace(chosen, budget=options.budget)


def needed_by(options: argparse.Namespace, plan: Plan) -> int:
    """Return the total bytes that the plan's runner needs for the model as given."""
    return needed_bytes(options.model, plan, partial(build_of, options))


def check_budget(options: argparse.Namespace, found: Plan | int) -> None:
    """
    Refuse a plan or a whole arena above the command line's limit.

    Raises
    ------
    CapacityExceeded
        If the whole arena is larger than ``--budget``, or than the only memory of ``--spaces``.
    InvalidOption
        If the size of the whole arena is not known.
    PartOfModel
        If the plan covers only part of the model and the runtime's total is not known.
    """
    limit = options.budget
    if limit is None and options.spaces is not None and len(options.spaces) == 1:
        limit = options.spaces[0].capacity
    if limit is None:
        return
    if not isinstance(found, int) and found.target.runtime != "tflm":
        found.covers.require_whole(found.model)
    needed = found if isinstance(found, int) else needed_by(options, found)
    if needed > limit:
        raise CapacityExceeded(
            f"the whole arena needs {needed:,} bytes{_pointers(options, found)}, "
            f"{needed - limit:,} more than the budget of {limit:,}"
        )


def _pointers(options: argparse.Namespace, found: Plan | int) -> str:
    """Return the pointer size of a TensorFlow Lite Micro total, for messages."""
    if not isinstance(found, int) and found.target.runtime != "tflm":
        return ""
    return f" with {build_of(options).pointer}-bit pointers"


def planned(options: argparse.Namespace, chosen: PlanOptions | None = None) -> Planned:
    """Plan the command's model with its options or the given options."""
    chosen = plan_options(options) if chosen is None else chosen
    loaded = load_ahead(options)
    graph = seen_by(loaded, chosen, options)
    with watching(options) as watch:
        limit = options.time_limit
        plan = arenaplan.plan(graph, chosen, time_limit=limit, on_progress=watch)
    return Planned(graph, plan, watch, loaded)


def seen_by(graph: Graph, chosen: PlanOptions, options: argparse.Namespace) -> Graph:
    """Return the graph that the target sees, whose values and nodes a report names."""
    target = target_of(chosen, graph.target)
    _check_build(target.runtime, options)
    if target.runtime == "tflm" and options.profile is not None:
        model = parse(read_bytes(options.model)[0])
        return graph_for_tflm(model, graph.name, build_of(options, target.name))
    if getattr(options, "stream_input", None) == "rows":
        graph = streamed(graph)
    if getattr(options, "to", None) == "c-code" and options.kernels in BUILDS:
        return calling_cmsis_nn(graph, options.kernels, chosen)
    return graph.for_target(target.name)


def build_of(options: argparse.Namespace, target: str | None = None) -> Build:
    """Return the TensorFlow Lite Micro build for a target and the command line."""
    name = target or options.target or ""
    profile = None
    if options.profile is not None:
        kernels = name.partition(":")[2]
        profile = Profile.from_json(read_plan(options.profile))
        for flag, said, measured in (
            ("target", kernels or None, profile.kernels),
            ("pointer", options.pointer, profile.pointer),
        ):
            if said not in (None, measured):
                raise InvalidOption(
                    f"option --{flag}: the profile was measured with {measured}, not with {said}"
                )
    return Build.of_target(name, options.pointer, profile)


def _check_build(target: str, options: argparse.Namespace) -> None:
    """Refuse options for a runtime that the plan is not for."""
    if target == "tflm" and is_tflite(options.model):
        return
    for flag in ("pointer", "profile"):
        if getattr(options, flag) is not None:
            raise InvalidOption(f"option --{flag}: only target tflm has it, for .tflite models")


class Planned(NamedTuple):
    """A plan, its graph, and the search's watch."""

    graph: Graph
    """The graph that the target sees."""
    plan: Plan
    watch: ProgressLine
    """Whether Ctrl-C ended the search, which is raised after the report."""
    loaded: Graph
    """The graph as read, which has what each target sees."""


def load_ahead(options: argparse.Namespace, signature: str | None = None) -> Graph:
    """Read the command's model as far as sizes are known before a run."""
    try:
        return load_model(options, signature=signature)
    except (UnboundDim, UnknownShape, UnsupportedSubgraph) as error:
        if not is_onnx(options):
            raise
        from arenaplan.run.dynamic.model_stages import (  # Few models need stages.
            NOTHING_DONE,
            stage_graph,
        )

        found = open_partial(options.model, dict(options.bind))(NOTHING_KNOWN)
        if found.is_complete:
            raise error from None
        for warning in found.graph.warnings:
            say(f"warning: {warning}")
        return stage_graph(found, NOTHING_DONE).graph


def covers_facts(covers: Covers) -> dict[str, Any]:
    """Return which part of a model a report covers, for JSON."""
    return {"covers": covers_document(covers)}


def tell_covers(covers: Covers, file: TextIO | None = None) -> None:
    """Print which part of a model a report covers; print nothing if all is covered."""
    if covers.is_whole and not covers.signature:
        return
    alone = "" if covers.is_whole else ": figures are of this part alone"
    print(f"  covers       {shown(covered_part(covers), 200)}{alone}", file=file)
    for sentence in covers.deciders:
        print(f"    {shown(sentence, 160)}", file=file)


def flow_facts(graph: Graph) -> dict[str, Any]:
    """Return a graph's branches and loops for JSON."""
    found = [describe(node) for node in graph.nodes if bodies_of(node)]
    return {"bodies": found} if found else {}


def tell_flow(graph: Graph) -> None:
    """Print a graph's branches, loops and upper bounds for people."""
    for node in graph.nodes:
        if decides(node):
            print(
                f"  bounded      the results of {node.op} {shown(node.name, 40)} have upper bounds"
            )
        bodies = bodies_of(node)
        if not bodies:
            continue
        word = "branches" if node.op.upper() == "IF" else "body"
        nodes = ", ".join(f"{len(body.graph.nodes):,}" for body in bodies)
        size = max(body.nbytes for body in bodies)
        print(
            f"  {word:<12} {node.op} {shown(node.name, 40)}: {nodes} nodes, {size:,} bytes "
            "for values inside, planned by themselves"
        )
