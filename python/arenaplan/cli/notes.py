"""What a target needs or lacks beside the bytes of a plan."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from arenaplan.cli.common import command, is_tflite, model_word, shown
from arenaplan.errors import PlannerError
from arenaplan.export.order import better_order, reordered
from arenaplan.export.tflm import own_head, plan_tflm
from arenaplan.importers.tflite.model import Model, parse, read_bytes
from arenaplan.importers.tflite.scratch import scratch_operators

if TYPE_CHECKING:
    from arenaplan import Plan

_MOST_NAMES: Final = 6
_MOST_OPERATORS: Final = 200
"""Most operators for which another order is looked for, only to mention it."""


def notes_of(plan: Plan, options: argparse.Namespace | None = None) -> list[str]:
    """
    Return what the target needs or lacks beside the arena's bytes, one sentence each.

    Parameters
    ----------
    plan : Plan
        The plan.
    options : argparse.Namespace, optional
        What the command was given; its model tells more of a TFLite model's kernels.
    """
    target = plan.target
    if target.name == "ideal":
        return ["no runtime honors every technique at once: a plan for one needs --target"]
    notes = []
    model = _tflite_model(plan, options)
    if model is not None:
        notes.append(scratch_note(scratch_operators(model)))
    elif target.scratch == "runner":
        notes.append("scratch memory of the runtime's kernels is not in these bytes")
    elif target.name == "numpy" and plan.options["workspace"] == "none":
        notes.append("scratch memory of the kernels is left out (--workspace none)")
    if target.fixed == "runner":
        notes.append("the runtime's own structures are not in these bytes")
    if model is not None and options is not None:
        notes += _notes_on_export(model, plan, options)
    return notes


def scratch_note(operators: Sequence[str]) -> str:
    """Say which kernels of TensorFlow Lite Micro may ask for scratch memory."""
    if operators:
        return (
            f"kernels of {operator_names(operators)} may ask for scratch memory, which is not in "
            "these bytes"
        )
    return (
        "the reference kernels of these operators ask for no scratch memory; optimized ones, such "
        "as CMSIS-NN's, may"
    )


def operator_names(operators: Sequence[str]) -> str:
    """Return the first few names of operators, and how many more there are."""
    names = ", ".join(shown(name, 40) for name in operators[:_MOST_NAMES])
    more = len(operators) - _MOST_NAMES
    return f"{names} and {more} more" if more > 0 else names


def _tflite_model(plan: Plan, options: argparse.Namespace | None) -> Model | None:
    """Return the TFLite model that a command was given, if the plan is for its runtime."""
    if options is None or plan.target.name != "tflm" or not is_tflite(options.model):
        return None
    return parse(read_bytes(options.model)[0])


def _notes_on_export(model: Model, plan: Plan, options: argparse.Namespace) -> list[str]:
    """Say what the model needs as it is, and what an export of it makes of that."""
    notes = []
    words = ["export", model_word(options), "--to", "tflm", "-o", _planned_name(options)]
    scratch = scratch_operators(model)
    own = own_head(model)
    if own > plan.arena_bytes:
        always = ["--always"] if scratch else []
        notes.append(
            f"the runtime's own planner needs {own:,} bytes for tensors; to put offsets into the "
            f"model: {command(*words, *always)}"
        )
    elsewhere = None if scratch or options.order == "given" else _bytes_in_better_order(model)
    if elsewhere is not None and elsewhere < plan.arena_bytes:
        notes.append(
            f"another order of the operators needs {elsewhere:,} bytes; to write it: "
            f"{command(*words)}"
        )
    return notes


def _planned_name(options: argparse.Namespace) -> str:
    """Return a name for the model with a plan inside."""
    source = options.model
    return "planned.tflite" if isinstance(source, bytes) else f"{source.stem}.planned.tflite"


def _bytes_in_better_order(model: Model) -> int | None:
    """Return the bytes of the best plan in an order with a lower peak, if there is one."""
    if sum(len(subgraph.operators) for subgraph in model.subgraphs) > _MOST_OPERATORS:
        return None
    try:
        order = better_order(model)
        return None if order is None else plan_tflm(reordered(model, order)).head_fixed
    except PlannerError:
        return None  # The plan that was asked for is there; this one was not.
