"""The bytes that a plan's runner needs in one arena: more than the plan's, for some runtimes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from arenaplan._core import Plan
from arenaplan.base.errors import InvalidOption
from arenaplan.formats.opening import suffix_of
from arenaplan.graph.sizes import Source
from arenaplan.tflite.files import own_arena
from arenaplan.tflite.reader.tflite_model import parse, read_bytes
from arenaplan.tflite.runtime.build import Build


def needed_bytes(
    source: Source | None, plan: Plan, build: Callable[[str], Build] | None = None
) -> int:
    """
    Return the bytes that a plan's runner needs in one arena, for budgets.

    Parameters
    ----------
    source : path or bytes, optional
        The model file, which decides the bytes TensorFlow Lite Micro needs besides tensors.
    plan : Plan
        The plan.
    build : callable, optional
        Returns the runtime build for a target name; by default the usual build.

    Raises
    ------
    InvalidOption
        If the plan is for TensorFlow Lite Micro and ``source`` is not a file for the runtime.
    """
    if plan.target.runtime != "tflm":
        return plan.arena_bytes
    data = source if isinstance(source, bytes | None) else Path(os.fspath(source))
    if data is None or suffix_of(data) != ".tflite":
        raise InvalidOption(
            "option budget: for target tflm the whole arena counts, which only a .tflite file "
            "tells; give the file, or a budget for another target"
        )
    name = plan.target.name
    of_target = Build.of_target(name) if build is None else build(name)
    return own_arena(parse(read_bytes(data)[0]), of_target).total
