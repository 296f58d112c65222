"""The options of :func:`arenaplan.plan`, on the command line."""

from __future__ import annotations

import argparse

from arenaplan.base.errors import InvalidOption
from arenaplan.cli.common import is_tflite
from arenaplan.cli.inputs import read_plan
from arenaplan.cli.syntax.options import PerSpace
from arenaplan.graph import Graph
from arenaplan.planner.plan_options import (
    PlanOptions,
    target_of,
)
from arenaplan.planner.spaces import Space, aligned
from arenaplan.tflite.files import graph_for_tflm
from arenaplan.tflite.reader.tflite_model import parse, read_bytes
from arenaplan.tflite.runtime.build import Build
from arenaplan.tflite.runtime.profile import Profile


def plan_options(options: argparse.Namespace) -> PlanOptions:
    """Return the options of :func:`arenaplan.plan` that the command line stands for."""
    align: PerSpace = options.align
    spaces: list[Space] | None = options.budget
    if spaces is None and (align.spaces or options.pin):
        raise InvalidOption("--align SPACE=BYTES and --pin need a --budget that names the spaces")
    return PlanOptions(
        target=options.target,
        alignment=align.everywhere,
        optimize=options.optimize,
        order=options.order,
        effort=options.effort,
        in_place=not options.no_in_place,
        preserve_inputs=options.preserve_inputs,
        inputs=options.inputs,
        outputs=options.outputs,
        workspace=options.workspace,
        max_slowdown=options.max_slowdown,
        capacity=getattr(options, "capacity", None),
        parallel_safe=getattr(options, "parallel_safe", False),
        workers=options.workers,
        spaces=None if spaces is None else aligned(spaces, align.spaces),
        pins={pattern: space for space, pattern in options.pin} or None,
    )


def seen_by(graph: Graph, chosen: PlanOptions, options: argparse.Namespace) -> Graph:
    """Return the graph that the target sees, whose values and nodes a report names."""
    target = target_of(chosen, graph.target)
    _check_build(target.runtime, options)
    if target.runtime == "tflm" and options.profile is not None:
        model = parse(read_bytes(options.model)[0])
        return graph_for_tflm(model, graph.name, build_of(options, target.name))
    return graph.for_target(target.name)


def build_of(options: argparse.Namespace, target: str | None = None) -> Build:
    """Return the build of TensorFlow Lite Micro that a target and the command line describe."""
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
    """Refuse options of a runtime that the plan is not for."""
    if target == "tflm" and is_tflite(options.model):
        return
    for flag in ("pointer", "profile"):
        if getattr(options, flag) is not None:
            raise InvalidOption(f"option --{flag}: only target tflm has it, for .tflite models")
