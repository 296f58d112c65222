"""``arenaplan prove``: does a rewritten .tflite model compute the same bits as the original."""

from __future__ import annotations

import argparse
from typing import Any

from arenaplan.base.documents import fields_of
from arenaplan.base.errors import InvalidOption
from arenaplan.base.limits import applied
from arenaplan.cli.printing import print_json, say, shown, size
from arenaplan.cli.sources import goes_to_stdout, limits_of, read_model, write_result
from arenaplan.deploy.adapters.differential import RuntimeComparison, compared
from arenaplan.tflite.proving import Proof, prove

PACKAGES = {"tflm": "tflite-micro", "litert": "ai-edge-litert"}
"""Packages by runtime."""


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    if options.json and options.output is not None and goes_to_stdout(options):
        raise InvalidOption("--json and -o - both ask for stdout")
    with applied(limits_of(options)):
        original, rewritten = read_model(options.original), read_model(options.rewritten)
        proof = prove(original, rewritten, ignored_metadata=options.ignore_metadata)
    runs = []
    if options.run:
        runs = compared(
            original, rewritten, proof, options.run, inputs=options.samples, seed=options.seed
        )
    if options.output is not None:
        write_result(options.output, proof.to_json())
    for run in runs:
        if run.status != "equal":
            say(f"warning: {told(run)}")
    if options.json:
        told_runs = [fields_of(run, "runtime status inputs distinct tensors") for run in runs]
        print_json({**summary(proof), "runs": told_runs})
        return
    tell = say if options.output is not None and goes_to_stdout(options) else print
    tell(report(proof))
    for run in runs:
        if run.status == "equal":
            tell(f"  {told(run)}")


def summary(proof: Proof) -> dict[str, Any]:
    """Return the document for a valid proof."""
    document = proof.document
    plan = document["plan"]
    return {
        "valid": True,
        "original": document["original"]["sha256"],
        "rewritten": document["rewritten"]["sha256"],
        "exactness": document["exactness"],
        "operators": proof.rules,
        "plan": plan and {key: plan[key] for key in ("head", "planned", "online", "kernels")},
    }


def report(proof: Proof) -> str:
    """Return the text for a valid proof."""
    rules = ", ".join(f"{count} {rule}" for rule, count in proof.rules.items())
    lines = [f"proven: {sum(proof.rules.values())} operators ({rules})"]
    ignored = proof.document.get("ignored_metadata")
    if ignored:
        lines.append(f"  metadata that may differ: {', '.join(map(shown, ignored))}")
    plan = proof.plan
    if plan is None:
        lines.append("  no plan in the file")
    else:
        lines.append(
            f"  plan replayed: {plan.planned} tensors in {size(plan.head)}, {plan.online} left to "
            f"the runtime, {len(plan.aliases)} copies onto themselves"
        )
        if plan.overlaps:
            lines.append(f"  {len(plan.overlaps)} results lie over operands, for reference kernels")
    if proof.document["exactness"] != "bits":
        lines.append("  equal bits where kernels add floats in an order of their own per element")
    return "\n".join(lines)


def told(run: RuntimeComparison) -> str:
    """Return text for a run."""
    if run.status == "not installed":
        package = PACKAGES[run.runtime]
        return f"{run.runtime} did not run: the package {package} is not installed"
    if run.status != "equal":
        return f"{run.runtime} did not run: it refuses the original: {shown(run.note, 100)}"
    inside = f", and {run.tensors} tensors inside" if run.tensors else ""
    return (
        f"{run.runtime}: equal bits for {run.inputs} inputs ({run.distinct} different outputs)"
        f"{inside}"
    )
