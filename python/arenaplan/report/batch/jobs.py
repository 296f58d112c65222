"""Batch jobs: one model and one target each, and the outcome."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from arenaplan.base.errors import PlannerError, UnknownDim, kind_of
from arenaplan.base.limits import UNLIMITED, Limits
from arenaplan.formats import open_model
from arenaplan.graph import Graph
from arenaplan.graph.sizes import Bind
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
        made, graph = max(
            ((plan(graph, **options), graph) for graph in _graphs(job, left_out)),
            key=lambda pair: pair[0].arena_bytes,
        )
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


def _graphs(job: Job, left_out: list[str]) -> Iterator[Graph]:
    """
    Yield the graph of a job, or that of each signature.

    Names of ``bind`` that the model does not have are added to a list. TensorFlow Lite Micro runs
    the first signature alone.
    """
    if isinstance(job.source, Graph):
        yield job.source
        return
    source, bind = Path(job.source), dict(job.bind)
    graph_with = open_model(source, job.limits)
    while True:
        try:
            graph = graph_with(bind or None)
            break
        except UnknownDim as error:
            if not error.names:
                raise
            for name in error.names:
                left_out.append(name)
                del bind[name]
    covers = graph.covers
    if not covers.others or (job.target or graph.target).startswith("tflm"):
        yield graph
        return
    for name in (covers.signature, *covers.others):
        yield open_model(source, job.limits, name)(bind or None)


def failed(job: Job, error: BaseException, left_out: Sequence[str] = ()) -> Outcome:
    """Return the outcome for a job that ended with an error."""
    return Outcome(
        job.name,
        job.target or "",
        error=kind_of(error),
        message=str(error),
        left_out=",".join(left_out),
    )
