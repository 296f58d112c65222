"""Batch jobs: one model and one target each, and the outcome."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from arenaplan.base.errors import PlannerError, UnknownDim, kind_of
from arenaplan.base.limits import UNLIMITED, Limits
from arenaplan.base.model_files import read_once
from arenaplan.formats import open_model, signatures_for
from arenaplan.graph import Graph
from arenaplan.graph.sizes import Bind, OpenBind
from arenaplan.planner.planning import plan


@dataclass(frozen=True)
class Job:
    """A model to plan for one target."""

    source: str | Graph
    """The file's path, or the graph itself."""
    target: str | None = None
    """The target's name; by default the file format's target."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Other :func:`arenaplan.plan` options."""
    bind: Bind = field(default_factory=dict)
    """
    Numbers for symbolic dimensions, and input shapes; names unknown to the model are left out.
    """
    limits: Limits = UNLIMITED
    """Limits for a model file."""

    @property
    def name(self) -> str:
        """The path, or the graph's name."""
        return self.source.name if isinstance(self.source, Graph) else self.source

    def key(self) -> str:
        """
        Return a text that identifies the job and the file's content.

        The file's size and modification time stand for the content.
        """
        if isinstance(self.source, Graph):
            content: object = sha256(self.source.to_json().encode()).hexdigest()
        else:
            try:
                facts = os.stat(self.source)
                content = (self.source, facts.st_size, facts.st_mtime_ns)
            except OSError:
                content = self.source
        rest = (self.target, sorted(self.options.items()), sorted(self.bind.items()), self.limits)
        return sha256(repr((content, rest)).encode()).hexdigest()


@dataclass(frozen=True)
class Outcome:
    """A job's outcome: a plan in figures, or an error."""

    model: str
    """The model's path, or the graph's name."""
    target: str
    """The target's name; empty if the model could not be read far enough to know."""
    arena_bytes: int | None = None
    """Bytes in the arena, or in all memories together."""
    lower_bound: int | None = None
    """Bytes that no plan with this order and these techniques goes below."""
    status: str = ""
    """
    Plan status: ``optimal`` or ``feasible``, ``unknown`` for part of a model; empty without a plan.
    """
    nodes: int | None = None
    values: int | None = None
    error: str = ""
    """The error's name; empty without an error."""
    message: str = ""
    """The error's message."""
    left_out: str = ""
    """Names in ``bind`` that the model does not have, with commas between."""
    covers: str = ""
    """The part of the model that the figures cover; empty for the whole model."""

    @property
    def is_planned(self) -> bool:
        """Whether there is a plan."""
        return not self.error


def run_job(job: Job) -> Outcome:
    """Plan one model; an error becomes an outcome."""
    target = job.target or ""
    left_out: list[str] = []
    try:
        options = {**job.options, **({"target": target} if target else {})}
        with read_once():
            graphs = _graphs(job, left_out)
        planned = ((plan(graph, **options), graph) for graph in graphs)
        made, graph = max(planned, key=lambda pair: pair[0].arena_bytes)
    except (PlannerError, OSError, MemoryError, RecursionError, ImportError) as error:
        return failed(job, error, left_out)
    return Outcome(
        model=job.name,
        target=made.target.name,
        arena_bytes=made.arena_bytes,
        lower_bound=made.lower_bound,
        status=made.status,
        nodes=len(graph.nodes),
        values=len(graph.values),
        left_out=",".join(left_out),
        covers="" if made.covers.is_whole else str(made.covers),
    )


def _graphs(job: Job, left_out: list[str]) -> list[Graph]:
    """
    Return the graph of a job, or that of each signature.

    Names of ``bind`` that the model, or a signature, does not have are added to a list.
    """
    if isinstance(job.source, Graph):
        return [job.source]
    source = Path(job.source)
    return [
        _bound(open_model(source, job.limits, name), job.bind, left_out)
        for name in signatures_for(source, job.target, job.limits)
    ]


def _bound(
    graph_with: Callable[[OpenBind | None], Graph], bind: OpenBind, left_out: list[str]
) -> Graph:
    """Return the graph for the names in ``bind`` that the model has; add all others to a list."""
    known = dict(bind)
    while True:
        try:
            return graph_with(known or None)
        except UnknownDim as error:
            if not error.names:
                raise
            left_out += [name for name in error.names if name not in left_out]
            known = {name: size for name, size in known.items() if name not in error.names}


def failed(job: Job, error: BaseException, left_out: Sequence[str] = ()) -> Outcome:
    """Return the outcome for a job that ended with an error."""
    return Outcome(
        job.name,
        job.target or "",
        error=kind_of(error),
        message=str(error),
        left_out=",".join(left_out),
    )
