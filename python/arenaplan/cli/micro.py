"""The TensorFlow Lite Micro arena in reports: the bytes a firmware must reserve for a model."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from arenaplan.base.documents import fields_of
from arenaplan.base.errors import PlannerError
from arenaplan.cli.models import build_of, is_tflite, model_word
from arenaplan.cli.printing import command, shown, size
from arenaplan.deploy.export import c_code
from arenaplan.deploy.export.operator_order import better_order, reordered
from arenaplan.deploy.export.tflm import plan_inside, plan_tflm
from arenaplan.planner.plan_options import keeps_order
from arenaplan.tflite.files import own_arena
from arenaplan.tflite.reader.tflite_model import TfliteModel, parse, read_bytes
from arenaplan.tflite.reader.tflite_rows import program_of
from arenaplan.tflite.reader.timeline import timeline_of
from arenaplan.tflite.runtime.arena import ArenaTotal, total
from arenaplan.tflite.runtime.build import Build
from arenaplan.tflite.runtime.greedy import ONLINE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from arenaplan import Graph, Plan
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


def arena_of(graph: Graph, plan: Plan, options: argparse.Namespace) -> dict[str, Any] | None:
    """
    Return the whole arena of a TFLite model for ``plan --json``.

    ``graph`` is the graph as read. ``None`` if the plan is for another runner.
    """
    if plan.target.runtime != "tflm" or not is_tflite(options.model):
        return None
    model, build = parse(read_bytes(options.model)[0]), build_of(options)
    own, narrow = own_arena(model, build), _narrow(build)
    exact = build.is_exact and not own.unknown and not own.modelled
    return {
        **_with_parts(own, build),
        "exact": exact,
        "operators": [
            fields_of(cost, "subgraph position name scratch persistent") for cost in own.operators
        ],
        "unknown": list(own.unknown),
        "measure": command("measure", model_word(options)),
        "modelled": list(own.modelled),
        "inside": _inside(model, build, own, plan),
        "exported": _exported(model, build, own, plan, options),
        "generated": _generated(graph, options),
        "fit": _fit_command(model, own, options),
        "with_32_bits": None if narrow is None else _with_parts(own_arena(model, narrow), narrow),
    }


def _build(build: Build) -> dict[str, Any]:
    return {
        **fields_of(build, "kernels pointer"),
        "exact": build.is_exact,
        "accuracy": build.accuracy,
    }


def _arena(arena: ArenaTotal) -> dict[str, Any]:
    return fields_of(arena, "total head tensors scratch tail startup")


def _inside(model: TfliteModel, build: Build, own: ArenaTotal, plan: Plan) -> dict[str, Any] | None:
    """Return the plan in the file, if the runtime can obey such a plan."""
    if plan_inside(model, build) is None:
        return None
    return {"tensors": own.tensors, "kept": own.tensors < plan.arena_bytes}


def _narrow(build: Build) -> Build | None:
    """Return the same kernels with 32-bit pointers, as in firmware; ``None`` if there are none."""
    return None if build.pointer == 32 or build.profile else replace(build, pointer=32)


def _with_parts(arena: ArenaTotal, build: Build) -> dict[str, Any]:
    return {**_build(build), **_arena(arena), "parts": arena.parts}


def _generated(graph: Graph, options: argparse.Namespace) -> dict[str, Any] | None:
    """Return the model's size as generated code, if every operator has a kernel."""
    if len(read_bytes(options.model)[0]) > _LARGEST_AS_CODE:
        return None
    try:
        files = c_code(graph)
    except PlannerError:
        return None  # The user did not ask for generated code.
    words = ["export", model_word(options), "--to", "c-code", "-o", "FOLDER"]
    return {
        "arena": files.arena_bytes,
        "constants": files.constant_bytes,
        "command": command(*words),
    }


def _exported(
    model: TfliteModel, build: Build, own: ArenaTotal, plan: Plan, options: argparse.Namespace
) -> dict[str, Any] | None:
    """Return the exported arena, if an export needs fewer bytes."""
    timeline = timeline_of(model)
    if timeline.areas or own.unknown or plan.status == "infeasible":
        return None
    every = [ONLINE] * timeline.tensors
    for box, place in zip(timeline.boxes, plan.placements, strict=False):
        if place is not None:
            every[box.tensor] = place.offset
    best, ordered = total(model, every, build=build), model
    if not keeps_order(options.optimize) and build.profile is None:
        found = _in_better_order(model, build)
        other = None if found is None else total(*found, build=build)
        if found and other and other.head < best.head and other.total < best.total:
            best, (ordered, every) = other, found
    if best.head >= own.head or best.total >= own.total:
        return None
    narrow = _narrow(build)
    return {
        **_arena(best),
        "with_32_bits": None if narrow is None else _arena(total(ordered, every, build=narrow)),
        "reordered": ordered is not model,
        "command": _export_command(options),
    }


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


def _fit_command(model: TfliteModel, own: ArenaTotal, options: argparse.Namespace) -> str | None:
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


def _in_better_order(model: TfliteModel, build: Build) -> tuple[TfliteModel, list[int]] | None:
    """Return the model in an order with a lower peak and the best plan's offsets, if any."""
    if sum(len(subgraph.operators) for subgraph in model.subgraphs) > _MOST_OPERATORS:
        return None
    try:
        order = better_order(model, shares=build.shares)
        if order is None:
            return None
        ordered = reordered(model, order)
        return ordered, list(plan_tflm(ordered, always=True, build=build).offsets)
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
    narrow = arena["with_32_bits"]
    _print_total(narrow or arena)
    if arena["unknown"]:
        names = operator_names(arena["unknown"])
        print(
            f"    unknown    kernels of {names}, which count as asking for nothing; "
            f"to measure them: {arena['measure']}"
        )
    if arena["modelled"]:
        names = operator_names(arena["modelled"])
        print(f"    modelled   kernels of {names}, from their sources; not compared with a runtime")
    if narrow is not None:
        print(
            f"  with {arena['pointer']}-bit  {size(arena['total'])}: head {arena['head']:,}, "
            f"persistent {arena['tail']:,}, start-up {arena['startup']:,}"
        )
        accuracy = arena["accuracy"]
        if arena["unknown"] or arena["modelled"]:
            accuracy = accuracy.replace("exact:", "exact but for the kernels above:", 1)
        print(f"    figures    {accuracy}")
    code = arena["generated"]
    if code is not None:
        print(
            f"  as C code    {size(code['arena'])}, without an interpreter, and "
            f"{code['constants']:,} of constants: {code['command']}"
        )
    exported = arena["exported"]
    if exported is not None:
        least = exported["with_32_bits"] or exported
        how = ", in another order of the operators" if exported["reordered"] else ""
        print(
            f"  exported     {size(least['total'])} with offsets in the model{how}; head "
            f"{least['head']:,}: {exported['command']}"
        )
    if arena["fit"] is not None:
        print(f"  rewritten    strips can go below the lower bound: {arena['fit']}")


def _print_total(build: dict[str, Any]) -> None:
    """Print a build's arena: its total, and its two ends, which can be regions by themselves."""
    kernels = f"{build['kernels']} kernels and {build['pointer']}-bit pointers"
    print(f"  total        {size(build['total'])} for kTensorArenaSize, with {kernels}")
    scratch = f"scratch memory {build['scratch']:,}"
    print(f"    head       {build['head']:>12,}  tensors {build['tensors']:,}, {scratch}")
    parts = ", ".join(f"{name} {bytes_:,}" for name, bytes_ in build["parts"].items())
    print(f"    persistent {build['tail']:>12,}  {parts}".rstrip())
    print(f"    start-up   {build['startup']:>12,}  least arena while the runtime prepares")
    print(f"    figures    {build['accuracy']}")


def operator_names(operators: Sequence[str]) -> str:
    """Return the first few operator names and the number of others."""
    names = ", ".join(shown(name, 40) for name in operators[:_MOST_NAMES])
    more = len(operators) - _MOST_NAMES
    return f"{names} and {more} more" if more > 0 else names
