"""``arenaplan check``: is a plan file valid for a model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import arenaplan
from arenaplan.cli.common import add_command, add_json, load_model, print_json, size

if TYPE_CHECKING:
    from arenaplan.cli.common import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "check", "check a plan file against its model", execute)
    parser.add_argument("plan", type=Path, metavar="PLAN", help="plan file, such as plan.json")
    add_json(parser)


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    graph = load_model(options)
    plan = arenaplan.Plan.load(options.plan)
    plan.check(graph)
    if options.json:
        print_json(
            {
                "model": plan.model,
                "valid": True,
                "arena_bytes": plan.arena_bytes,
                "status": plan.status,
                "digest": plan.digest,
            }
        )
    else:
        print(f"valid: {size(plan.arena_bytes)}, {plan.status}")
