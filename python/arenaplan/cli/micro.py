"""The TensorFlow Lite Micro arena in reports: the bytes a firmware must reserve for a model."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from arenaplan.base.errors import PlannerError
from arenaplan.cli.models import build_of, is_tflite, model_word
from arenaplan.cli.printing import command, shown, size
from arenaplan.deploy.export import c_code
from arenaplan.deploy.export.operator_order import better_order, reordered
from arenaplan.deploy.export.tflm import plan_inside, plan_tflm
from arenaplan.formats import load
from arenaplan.planner.plan_options import keeps_order
from arenaplan.tflite.files import own_arena
from arenaplan.tflite.reader.tflite_model import Model, parse, read_bytes
from arenaplan.tflite.reader.tflite_rows import program_of
from arenaplan.tflite.reader.timeline import timeline_of
from arenaplan.tflite.runtime.arena import ArenaTotal, total
from arenaplan.tflite.runtime.build import Build
from arenaplan.tflite.runtime.greedy import ONLINE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from arenaplan import Plan
    from arenaplan.planner import SharedPlan

_MOST_OPERATORS: Final = 200
"""Operator limit for trying another order, which is only a hint."""
_MOST_NAMES: Final = 6
_LARGEST_AS_CODE: Final = 4 << 20
"""Size limit, in bytes, for mentioning the size as generated code, a form for small models."""


class SharedTotal(NamedTuple):
    """Bytes for several models in one TensorFlow Lite Micro arena."""

    total: int
    head: int
    """Tensors and scratch memory. Heads share bytes, because the models never run together."""
    tail: int
    """Structures that each interpreter keeps for itself."""


def arena_of(plan: Plan, options: argparse.Namespace) -> dict[str, Any] | None:
    """
    Return the whole arena of a TFLite model for ``plan --json``.

    ``None`` if the plan is for another runner.
    """
    if plan.target.runtime != "tflm" or not is_tflite(options.model):
        return None
    model, build = parse(read_bytes(options.model)[0]), build_of(options)
    own = own_arena(model, build)
    exact = build.is_exact and not own.unknown and not own.modelled
    return {
        **_build(build),
        "exact": exact,
        **_arena(own),
        "parts": own.parts,
        "operators": [
            {
                "subgraph": cost.subgraph,
                "position": cost.position,
                "name": cost.name,
                "scratch": list(cost.scratch),
                "persistent": cost.persistent,
            }
            for cost in own.operators
        ],
        "unknown": list(own.unknown),
        "measure": command("measure", model_word(options)),
        "modelled": list(own.modelled),
        "inside": _inside(model, build, own, plan),
        "exported": _exported(model, build, own, plan, options),
        "generated": _generated(options),
        "fit": _fit_command(model, own, options),
        "with_32_bits": None if build.pointer == 32 or build.profile else _narrow(model, build),
    }


def _build(build: Build) -> dict[str, Any]:
    return {
        "kernels": build.kernels,
        "pointer": build.pointer,
        "exact": build.is_exact,
        "accuracy": build.accuracy,
    }


def _arena(arena: ArenaTotal) -> dict[str, Any]:
    return {
        "total": arena.total,
        "head": arena.head,
        "tensors": arena.tensors,
        "scratch": arena.scratch,
        "tail": arena.tail,
        "startup": arena.startup,
    }


def _inside(model: Model, build: Build, own: ArenaTotal, plan: Plan) -> dict[str, Any] | None:
    """Return the plan in the file, if the runtime can obey such a plan."""
    if plan_inside(model, build) is None:
        return None
    return {"tensors": own.tensors, "kept": own.tensors < plan.arena_bytes}


def _narrow(model: Model, build: Build) -> dict[str, Any]:
    """Return the arena of the same kernels with 32-bit pointers, as in firmware."""
    narrow = replace(build, pointer=32)
    return {**_build(narrow), **_arena(own_arena(model, narrow))}


def _generated(options: argparse.Namespace) -> dict[str, Any] | None:
    """Return the model's size as generated code, if every operator has a kernel."""
    if len(read_bytes(options.model)[0]) > _LARGEST_AS_CODE:
        return None
    try:
        files = c_code(load(options.model, bind=dict(options.bind), signature=options.signature))
    except PlannerError:
        return None  # The user did not ask for generated code.
    words = ["export", model_word(options), "--to", "c-code", "-o", "FOLDER"]
    return {
        "arena": files.arena_bytes,
        "constants": files.constant_bytes,
        "command": command(*words),
    }


def _exported(
    model: Model, build: Build, own: ArenaTotal, plan: Plan, options: argparse.Namespace
) -> dict[str, Any] | None:
    """Return the exported arena, if an export needs fewer bytes."""
    timeline = timeline_of(model)
    if timeline.areas or own.unknown or plan.status == "infeasible":
        return None
    every = [ONLINE] * timeline.tensors
    for box, place in zip(timeline.boxes, plan.placements, strict=False):
        if place is not None:
            every[box.tensor] = place.offset
    best, is_reordered = total(model, every, build=build), False
    if not keeps_order(options.optimize) and build.profile is None:
        other = _in_better_order(model, build)
        if other is not None and other.head < best.head and other.total < best.total:
            best, is_reordered = other, True
    if best.head >= own.head or best.total >= own.total:
        return None
    return {**_arena(best), "reordered": is_reordered, "command": _export_command(options)}


def _export_command(options: argparse.Namespace) -> str:
    """Return the command line that writes the model with a plan inside."""
    source = options.model
    name = "planned.tflite" if isinstance(source, bytes) else f"{source.stem}.planned.tflite"
    words = ["export", model_word(options), "--to", "tflm", "-o", name]
    if options.target is not None:
        words += ["--target", options.target]
    if options.pointer is not None:
        words += ["--pointer", str(options.pointer)]
    if options.profile is not None:
        words += ["--profile", str(options.profile)]
    return command(*words)


def _fit_command(model: Model, own: ArenaTotal, options: argparse.Namespace) -> str | None:
    """Return the command line that rewrites the model into strips, if any operator can be."""
    try:
        has_rows = any(operator.rule is not None for operator in program_of(model).operators)
    except PlannerError:
        return None
    if own.unknown or not has_rows:
        return None
    words = ["fit", model_word(options), "-o", "FILE"]
    if options.pointer is not None:
        words += ["--pointer", str(options.pointer)]
    return command(*words)


def _in_better_order(model: Model, build: Build) -> ArenaTotal | None:
    """Return the arena of the best plan in an order with a lower peak, if one exists."""
    if sum(len(subgraph.operators) for subgraph in model.subgraphs) > _MOST_OPERATORS:
        return None
    try:
        order = better_order(model, shares=build.shares)
        if order is None:
            return None
        return plan_tflm(reordered(model, order), always=True, build=build).after
    except PlannerError:
        return None  # The plan that the user asked for exists; only the hint is missing.


def shared_total(
    shared: SharedPlan, sources: Sequence[Path | bytes], options: argparse.Namespace
) -> SharedTotal | None:
    """
    Return the bytes TensorFlow Lite Micro needs for models that share an arena.

    Each interpreter keeps structures at the end of the arena; heads share bytes, because the models
    never run together. ``None`` if the plans are for another runner.
    """
    is_ours = all(plan.target.runtime == "tflm" for plan in shared.plans)
    if not is_ours or not all(map(is_tflite, sources)):
        return None
    build = build_of(options, shared.plans[0].target.name)
    arenas = [own_arena(parse(read_bytes(source)[0]), build) for source in sources]
    kept = sum(arena.tail for arena in arenas)
    if shared.together == "concurrent":
        heads = sum(arena.head for arena in arenas)
        return SharedTotal(sum(arena.total for arena in arenas), heads, kept)
    least = max(max(arena.head + kept, arena.startup + kept - arena.tail) for arena in arenas)
    whole = -(-least // 16) * 16  # Rounded as each model's arena is.
    return SharedTotal(whole, max(arena.head for arena in arenas), kept)


def print_arena(arena: dict[str, Any]) -> None:
    """Print the whole arena of a TFLite model."""
    inside = arena["inside"]
    if inside is not None:
        more = (
            " and export keeps, since parts of tensors share bytes in it" if inside["kept"] else ""
        )
        print(f"  in the file  {size(inside['tensors'])}, a plan that the runtime obeys{more}")
    build = f"{arena['kernels']} kernels and {arena['pointer']}-bit pointers"
    print(f"  total        {size(arena['total'])} for kTensorArenaSize, with {build}")
    scratch = f"scratch memory {arena['scratch']:,}"
    print(f"    head       {arena['head']:>12,}  tensors {arena['tensors']:,}, {scratch}")
    parts = ", ".join(f"{name} {bytes_:,}" for name, bytes_ in arena["parts"].items())
    print(f"    persistent {arena['tail']:>12,}  {parts}".rstrip())
    print(f"    start-up   {arena['startup']:>12,}  least arena while the runtime prepares")
    accuracy = arena["accuracy"]
    if arena["unknown"] or arena["modelled"]:
        accuracy = accuracy.replace("exact:", "exact but for the kernels below:", 1)
    print(f"    figures    {accuracy}")
    if arena["unknown"]:
        names = operator_names(arena["unknown"])
        print(
            f"    unknown    kernels of {names}, which count as asking for nothing; "
            f"to measure them: {arena['measure']}"
        )
    if arena["modelled"]:
        names = operator_names(arena["modelled"])
        print(f"    modelled   kernels of {names}, from their sources; not compared with a runtime")
    narrow = arena["with_32_bits"]
    if narrow is not None:
        print(
            f"  with 32-bit  {size(narrow['total'])}: head {narrow['head']:,}, persistent "
            f"{narrow['tail']:,}, start-up {narrow['startup']:,}"
        )
        print(f"    figures    {narrow['accuracy']}")
    code = arena["generated"]
    if code is not None:
        print(
            f"  as C code    {size(code['arena'])}, without an interpreter, and "
            f"{code['constants']:,} of constants: {code['command']}"
        )
    exported = arena["exported"]
    if exported is not None:
        how = ", in another order of the operators" if exported["reordered"] else ""
        print(
            f"  exported     {size(exported['total'])} with offsets in the model{how}; head "
            f"{exported['head']:,}: {exported['command']}"
        )
    if arena["fit"] is not None:
        print(f"  rewritten    strips can go below the lower bound: {arena['fit']}")


def operator_names(operators: Sequence[str]) -> str:
    """Return the first few operator names and the number of others."""
    names = ", ".join(shown(name, 40) for name in operators[:_MOST_NAMES])
    more = len(operators) - _MOST_NAMES
    return f"{names} and {more} more" if more > 0 else names
