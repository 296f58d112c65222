"""Baselines: plans and reports that were written before."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from arenaplan._core import Plan
from arenaplan.base.errors import BaselineError, PlannerError
from arenaplan.formats.json_document import format_of
from arenaplan.graph.model import Model
from arenaplan.planner.changes import PlanLayout

Baseline: TypeAlias = "Plan | Mapping[str, Any] | str | os.PathLike[str] | bytes"
"""A plan, a report, a path to a file with either, or the file's content."""

_MOST: Final = 1 << 30
"""Largest baseline file, in bytes."""


def read_baseline(source: Baseline) -> PlanLayout:
    """
    Return a baseline's layout.

    Files may be plans (``plan -o``), single-shape plans with a graph (``--with-graph``), and
    reports (``map --to json``, ``inspect --json``).

    Raises
    ------
    BaselineError
        If the file is damaged, or not a baseline.
    OSError
        If the file cannot be read.
    """
    if isinstance(source, (Plan, Mapping)):
        return PlanLayout.of(source)
    if not isinstance(source, (str, bytes, os.PathLike)):
        kind = type(source).__name__
        raise BaselineError(f"a plan, a report or the path of a file is needed, not {kind!r}")
    data, name = (source, "baseline") if isinstance(source, bytes) else _content(source)
    try:
        return _parsed(data)
    except (PlannerError, ValueError, RecursionError) as error:
        raise BaselineError(f"{name}: {error}") from None


def _content(path: str | os.PathLike[str]) -> tuple[bytes, str]:
    """Return a file's content and name."""
    with Path(path).open("rb") as file:
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise BaselineError(f"{os.fspath(path)!r} has more than {_MOST:,} bytes")
    return data, repr(os.fspath(path))


def _parsed(data: bytes) -> PlanLayout:
    kind = format_of(data)
    if kind == "arenaplan":
        return PlanLayout.of(Plan.from_json(data))
    if kind == "arenaplan-report":
        return PlanLayout.of(json.loads(data))
    if kind == "arenaplan-model":
        model = Model.from_json(data)
        if len(model) > 1:
            raise BaselineError(f"the file has plans of {len(model):,} shapes; a baseline has one")
        return PlanLayout.of(model.at(**next(iter(model))))
    raise BaselineError("the file is neither a plan nor a report")
