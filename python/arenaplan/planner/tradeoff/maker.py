"""Plans of one graph with the scratch memory of a backend's kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from arenaplan import _core
from arenaplan._core import Plan, Strips
from arenaplan.base.progress import Watch
from arenaplan.graph import Graph
from arenaplan.graph.backend import Backend


class Point(NamedTuple):
    """Bytes and seconds of a plan that was tried."""

    bytes: int
    """Bytes of the arena."""
    seconds: float
    """Estimated seconds of one run."""


class Timed(NamedTuple):
    """A plan, and how long its steps take."""

    plan: Plan
    steps: Sequence[float]
    """Estimated seconds of each step."""
    draft: Plan
    """The plan without workspaces that it was made from."""

    @property
    def seconds(self) -> float:
        """Estimated seconds of one run."""
        return sum(self.steps)

    @property
    def point(self) -> Point:
        """Bytes and seconds."""
        return Point(self.plan.arena_bytes, self.seconds)


class Maker:
    """
    Makes plans of one graph with workspaces.

    The scratch memory of a fused group is known only once the group and its overlaps are known. So
    a plan without workspaces, a *draft*, comes first.
    """

    def __init__(
        self,
        graph: Graph,
        options: dict[str, object],
        honored: Sequence[str],
        memories: tuple[Any, Any],
        backend: Backend,
        watch: Watch,
        costs: list[int] | None = None,
    ) -> None:
        self.costs = costs
        self.graph = graph
        self.options = options
        self.memories = memories
        self.backend = backend
        self.watch = watch
        self.sizes: list[int] = graph.core.sizes
        self.honored = list(honored)
        """The techniques that the target honors."""
        wanted = options["optimize"]
        self.names = self.honored if wanted is None else str(wanted).split(",")
        self.names = [name for name in self.names if name in self.honored]

    def draft(
        self,
        names: Iterable[str],
        steps: list[list[int]] | None = None,
        strips: Sequence[Strips] = (),
    ) -> Plan:
        """Return a plan without workspaces that uses some techniques."""
        bare = {
            **self.options,
            "optimize": ",".join(names) or "none",
            "workspace": "none",
        }
        if self.options["workers"] == 1:
            bare["max_slowdown"] = None
        return _core.plan(
            self.graph.core,
            bare,
            steps,
            *self.memories,
            on_progress=self.watch.tell,
            time_limit=self.watch.seconds_left,
            strips=strips,
            costs=self.costs,
        )

    def finish(
        self,
        draft: Plan,
        steps: list[list[int]] | None = None,
        overlapping: list[int] | None = None,
        room: int = 0,
        optimize: str | None = None,
        strips: Sequence[Strips] = (),
    ) -> Timed:
        """
        Return the plan of a draft with workspaces.

        Parameters
        ----------
        steps : list of list of int, optional
            The steps to run; the steps of the draft if left out.
        overlapping : list of int, optional
            The last nodes of the steps whose output may overlap an input.
        room : int, default 0
            Bytes up to which workspaces may raise the peak.
        optimize : str, optional
            Other techniques than those of the options.
        strips : sequence of Strips
            How steps run strip by strip, for those that do.
        """
        overlapped = draft.overlapped if overlapping is None else overlapping
        wanted = steps or draft.steps
        core = self.graph.core_for("auto", wanted, overlapped, self.backend.name, strips)
        plan = _core.plan(
            core,
            self.options if optimize is None else {**self.options, "optimize": optimize},
            steps,
            *self.memories,
            draft,
            self.watch.tell,
            room,
            overlapping,
            self.watch.seconds_left,
            strips,
            self.costs,
        )
        return Timed(plan, self.backend.seconds(self.graph, plan), draft)
