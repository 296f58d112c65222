"""``arenaplan plan A B --share``: several models in one arena."""

from __future__ import annotations

import argparse
from typing import Any

import arenaplan
from arenaplan.base.errors import InvalidOption
from arenaplan.cli.common import load_model, print_json, shown, size
from arenaplan.cli.options import plan_options
from arenaplan.cli.outputs import delivering, goes_to_stdout
from arenaplan.cli.proofs import proof_of_several
from arenaplan.cli.watch import watching
from arenaplan.planner import SharedPlan

_MARK = b'{"format":"arenaplan-shared"'


def share(options: argparse.Namespace) -> None:
    """Plan and report models that share an arena."""
    if options.strategy != "arena":
        raise InvalidOption("option share: storage sharing has blocks, no arena to share")
    chosen = plan_options(options)
    if chosen.spaces is not None:
        raise InvalidOption("option share: models share one arena, and --budget names several")
    graphs = [load_model(options), *(load_model(options, path) for path in options.others)]
    with watching(options) as watch:
        shared = arenaplan.plan_together(
            graphs, options.share, chosen, time_limit=options.time_limit, on_progress=watch
        )
    with delivering(options, shared.to_json):
        if options.json and not goes_to_stdout(options):
            print_json(describe_shared(shared))
        else:
            _report(shared)
    watch.raise_if_stopped()


def describe_shared(shared: SharedPlan) -> dict[str, Any]:
    """Return the document of ``plan --share --json``."""
    return {
        "share": shared.together,
        "arena_bytes": shared.arena_bytes,
        "lower_bound": shared.lower_bound,
        "status": shared.status,
        "alignment": shared.alignment,
        "capacity": shared.capacity,
        "models": [
            {
                "model": plan.model,
                "target": plan.target.name,
                "base": base,
                "arena_bytes": plan.arena_bytes,
                "lower_bound": plan.lower_bound,
                "status": plan.status,
                "digest": plan.digest,
            }
            for base, plan in zip(shared.bases, shared.plans, strict=True)
        ],
    }


def is_shared(text: bytes) -> bool:
    """Return whether a plan file holds plans that share an arena."""
    return text.startswith(_MARK)


def _report(shared: SharedPlan) -> None:
    """Print the report of plans that share an arena."""
    proof = proof_of_several(shared.status, shared.arena_bytes, shared.lower_bound)
    targets = ", ".join(sorted({shown(plan.target.name) for plan in shared.plans}))
    print(f"{len(shared.plans)} models for {targets}, {shared.together}")
    print(f"  arena        {size(shared.arena_bytes)}, {proof}")
    print(f"  lower bound  {size(shared.lower_bound)}")
    for base, plan in zip(shared.bases, shared.plans, strict=True):
        print(f"  {plan.arena_bytes:>14,}  at {base:>12,}  {shown(plan.model) or 'model'}")
