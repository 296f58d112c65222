"""``arenaplan check``: is a plan file valid for a model, or a proof for two."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import arenaplan
from arenaplan.base.documents import fields_of
from arenaplan.base.errors import (
    InvalidOption,
    PlanError,
    PlanOverlap,
    UnsupportedDtype,
    UnsupportedModel,
    fault,
)
from arenaplan.base.formulas import solved
from arenaplan.cli.models import (
    covers_facts,
    is_tflite,
    load_ahead,
    load_model,
    seen_by,
    tell_covers,
)
from arenaplan.cli.printing import print_json, say, shown, size
from arenaplan.cli.prove import report, summary
from arenaplan.cli.several import describe_shared, is_shared
from arenaplan.cli.sources import naming, read_model, read_plan
from arenaplan.deploy.export.tflm import check_offsets
from arenaplan.formats import open_model, suffix_of
from arenaplan.formats.json_document import format_of, format_or_none, is_model, read_document
from arenaplan.graph.graph import Graph
from arenaplan.graph.model import Model, nested_sizes
from arenaplan.planner.plan_options import PlanOptions
from arenaplan.tflite.proving import check_proof, replay_plan
from arenaplan.tflite.reader.offline import read_offsets
from arenaplan.tflite.reader.tflite_model import TfliteModel as LiteModel
from arenaplan.tflite.reader.tflite_model import parse, read_bytes
from arenaplan.tflite.reader.timeline import timeline_of
from arenaplan.tflite.runtime.aliases import aliased_timeline
from arenaplan.tflite.runtime.build import KERNEL_SETS, Build
from arenaplan.tflite.runtime.greedy import ONLINE, head_bytes


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    if options.hazards is not None and len(options.plan) != 1:
        raise InvalidOption("option --hazards: it is for the plan of one model")
    kind = _document_kind(options)
    if kind == "proof":
        _check_proof(options)
        return
    if not options.plan:
        if kind == "model":
            _check_model(options)
        else:
            _check_inside(options)
        return
    *others, file = options.plan
    # A pipe can be read only once.
    text = read_plan(file)
    if not others and is_model(text):
        _check_shapes(options, text)
        return
    if others or is_shared(text):
        _check_shared(options, others, text)
        return
    with naming(file):
        plan = arenaplan.Plan.from_json(text)
    chosen = PlanOptions(target=options.target or plan.target)
    graph = seen_by(load_ahead(options), chosen, options)
    verdict = plan.check(graph)
    hazards = None
    if options.hazards is not None:
        with naming(options.hazards):
            hazards = arenaplan.planner.Hazards.from_json(read_plan(options.hazards))
        plan.check_hazards(graph, hazards)
    if options.json:
        print_json(
            {
                **({} if hazards is None else {"hazards": len(hazards)}),
                "model": plan.model,
                "target": plan.target.name,
                "valid": True,
                **fields_of(plan, "arena_bytes status"),
                **covers_facts(plan.covers),
                "digest": plan.digest,
                "proofs": fields_of(
                    verdict, "lower_bound status order floor move_cost repetitions"
                ),
                "chose_spaces": verdict.chose_spaces,
            }
        )
    else:
        judged = _judged(plan.status, verdict.status)
        print(f"valid for {shown(plan.target.name)}: {size(plan.arena_bytes)}, {judged}")
        tell_covers(plan.covers)
        if verdict.repetitions is not None:
            print(f"repetitions: floor and bound of the extra work are {verdict.repetitions}")
        if hazards is not None:
            print(f"hazards: {len(hazards):,} edges between {hazards.steps:,} steps, all needed")


def _document_kind(options: argparse.Namespace) -> str | None:
    """Return which JSON file replaces the model: ``"proof"``, ``"model"`` or none."""
    source = options.model
    if isinstance(source, Path) and source.suffix.lower() != ".json":
        return None
    if isinstance(source, bytes) and suffix_of(source) != ".json":
        return None
    data, _ = read_document(source)
    if is_model(data):
        return "model"
    # A proof is followed by two model files.
    kind = format_or_none(data) if len(options.plan) == 2 else format_of(data)
    return None if kind in ("arenaplan-graph", "runtime") else "proof"


def _check_model(options: argparse.Namespace) -> None:
    """Check plans that are stored together with their graphs."""
    _report_model(options, Model.from_json(read_document(options.model)[0]))


def _check_shapes(options: argparse.Namespace, text: bytes) -> None:
    """Check the plans of all shapes against their model."""
    model = Model.from_json(text)
    graph_with = open_model(options.model, signature=options.signature)
    has_attributes = True
    for sizes in model:
        bound = {**solved(dict(options.bind)), **nested_sizes(sizes)}
        plan = model.at(**sizes)
        chosen = PlanOptions(target=options.target or plan.target)
        graph = seen_by(graph_with(bound), chosen, options)
        try:
            plan.check(graph)
            has_attributes = _check_operators(model.graph(**sizes), graph) and has_attributes
        except PlanError as error:
            error.args = (f"with {_sizes_text(sizes)}: {error}",)
            raise
    if not has_attributes:
        say("note: the file has no attributes of operators; kernels must get them elsewhere")
    _report_model(options, model)


def _check_operators(found: Graph, expected: Graph) -> bool:
    """
    Return whether the file's graph has attributes; refuse those of another model.

    Digests ignore operators and attributes, because plans do not depend on either; kernels do.
    """
    rows = [(node.op, node.domain, node.version, node.attributes) for node in found.nodes]
    is_older = not any(version or attributes for _, _, version, attributes in rows)
    # Compare only attributes that files can store.
    for row, node in zip(rows, Graph.of_core(expected.core).nodes, strict=True):
        given = (node.op, node.domain, node.version, node.attributes)
        if row != given if not is_older else row[0] != given[0]:
            raise fault(
                "PlanMismatch",
                f"node {node.name!r} is {_operator_text(*row)} in the file, and "
                f"{_operator_text(*given)} in the model",
            )
    return not is_older


def _operator_text(op: str, domain: str, version: int, attributes: Mapping[str, object]) -> str:
    """Return an operator for people."""
    listed = ", ".join(f"{name}={value!r}" for name, value in attributes.items())
    prefix = f"{domain}." if domain else ""
    return shown(f"{prefix}{op}-{version}({listed})", 200)


def _report_model(options: argparse.Namespace, model: Model) -> None:
    """Report a model whose plans are all valid."""
    if options.json:
        shapes = [{"bind": sizes, "arena_bytes": model.required_bytes(**sizes)} for sizes in model]
        document = {"model": model.name, "valid": True, "arena_bytes": model.arena_bytes}
        print_json({**document, "shapes": shapes})
        return
    count = "1 shape" if len(model) == 1 else f"{len(model):,} shapes"
    print(f"valid: {count}, {size(model.arena_bytes)} for every shape")


def _sizes_text(sizes: dict[str, int]) -> str:
    """Return a shape for people."""
    return " ".join(f"{shown(name)}={number}" for name, number in sizes.items()) or "its only shape"


def _check_proof(options: argparse.Namespace) -> None:
    """Check a rewrite proof against both models."""
    if len(options.plan) != 2:
        raise InvalidOption(
            "a proof is checked against two models: arenaplan check PROOF.json ORIGINAL REWRITTEN; "
            "a plan file comes after its model"
        )
    original, rewritten = map(read_model, options.plan)
    proof = check_proof(read_plan(options.model), original, rewritten)
    if options.json:
        print_json(summary(proof))
    else:
        print(report(proof))


def _check_shared(options: argparse.Namespace, others: list[Path], text: bytes) -> None:
    """Check the plans of models that share an arena."""
    graphs = [load_model(options), *(load_model(options, read_model(path)) for path in others)]
    with naming(options.plan[-1]):
        shared = arenaplan.planner.SharedPlan.from_json(text)
    verdict = shared.check(graphs)
    if options.json:
        proofs = fields_of(verdict, "lower_bound status")
        print_json({"valid": True, **describe_shared(shared), "proofs": proofs})
    else:
        print(f"valid: {size(shared.arena_bytes)}, {_judged(shared.status, verdict.status)}")


def _judged(status: str, proof: str) -> str:
    """Return the status text with the checker's proof.

    Other statuses claim nothing that needs a proof.
    """
    return f"{status} ({proof})" if status in ("optimal", "infeasible") else status


def _check_inside(options: argparse.Namespace) -> None:
    """Check the plan that a TFLite model brings along for TensorFlow Lite Micro."""
    if not is_tflite(options.model):
        raise InvalidOption("the model brings no plan; pass a plan file")
    data, path = read_bytes(options.model)
    model = parse(data)
    offsets = read_offsets(model)
    if offsets is None:
        raise InvalidOption("the model brings no plan; pass a plan file")
    timeline = timeline_of(model)
    try:
        kernels = _kernels_that_share(model, offsets)
    except PlanOverlap as error:
        # Slices overlap their source, and strips their result, by intention; see 'fit'.
        if timeline.areas:
            raise
        try:
            kernels = replay_plan(data).kernels
            if kernels == "known":
                kernels = ", ".join(KERNEL_SETS)
        except (UnsupportedModel, UnsupportedDtype):
            raise error from None
    planned = [(box, offsets[box.tensor]) for box in timeline.boxes]
    pinned = [(box, offset) for box, offset in planned if offset != ONLINE]
    head = head_bytes([box for box, _ in pinned], [offset for _, offset in pinned])
    if options.json:
        document = {"valid": True, "planned": len(pinned), "tensors": len(planned), "head": head}
        name = "model" if path is None else path.stem
        print_json({"model": name, **document, "kernels": kernels})
    else:
        whose = "" if kernels == "any" else f" for {kernels} kernels only"
        print(f"valid{whose}: {len(pinned)} of {len(planned)} tensors planned, in {size(head)}")


def _kernels_that_share(model: LiteModel, offsets: Sequence[int]) -> str:
    """Return which kernel sets allow the bytes that a plan shares."""
    try:
        check_offsets(timeline_of(model), offsets)
    except PlanOverlap:
        allowing = [kernels for kernels in KERNEL_SETS if _do_share(model, kernels, offsets)]
        if "reference" not in allowing:
            raise
        return ", ".join(allowing)
    return "any"


def _do_share(model: LiteModel, kernels: str, offsets: Sequence[int]) -> bool:
    """Whether a kernel set allows the shared bytes of a plan."""
    try:
        check_offsets(aliased_timeline(model, Build(kernels, shares=True)), offsets)
    except PlanOverlap:
        return False
    return True
