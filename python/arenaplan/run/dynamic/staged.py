"""An executor for models with data-dependent sizes: planned as far as the sizes are known."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, Unpack

import numpy as np
from numpy.typing import ArrayLike

from arenaplan.base.amounts import whole_number
from arenaplan.base.errors import (
    InvalidOption,
    SizeError,
    UnsupportedModel,
    UnsupportedSubgraph,
    fault,
)
from arenaplan.base.quoting import listed
from arenaplan.formats import load as load_graph
from arenaplan.formats import open_partial
from arenaplan.formats.partial import NOTHING_KNOWN, Decision, Known, Partial, PartialWith
from arenaplan.graph import Graph
from arenaplan.graph.sizes import OpenBind, Source
from arenaplan.planner.plan_options import PlanKeywords, PlanOptions, resolve
from arenaplan.planner.planning import plan as make_plan
from arenaplan.run.dynamic.model_stages import (
    NOTHING_DONE,
    Before,
    StageGraph,
    given_runs,
    places_after,
    stage_graph,
)
from arenaplan.run.numpy import PLAN_OPTIONS
from arenaplan.run.numpy.deciding import decided
from arenaplan.run.numpy.executor import arena_bytes, checked_inputs, quiet_arithmetic, set_up
from arenaplan.run.numpy.steps import Setup, aligned_bytes, load, run_all
from arenaplan.run.numpy.verify import verified_run

if TYPE_CHECKING:
    from arenaplan._core import Plan

_Key: TypeAlias = tuple[object, ...]


class StageReport(NamedTuple):
    """A stage in the latest run."""

    nodes: int
    """Nodes that were placed in the stage."""
    arena_bytes: int
    """Arena bytes for the stage."""
    status: str
    """Status of the stage's plan, which covers these nodes and the earlier content of the arena."""
    decided: tuple[str, ...]
    """Names of the values that the stage made known."""


@dataclass(eq=False)
class _Stage:
    """A planned stage, for the sizes that led there."""

    known: Known
    partial: Partial
    built: StageGraph
    plan: Plan
    before: Before
    results: dict[str, np.ndarray] = field(default_factory=dict)
    """Content of the deciding operators' results, in this run."""
    setup: Setup | None = None
    scratch: int = 0
    children: dict[_Key, _Stage] = field(default_factory=dict)

    @property
    def report(self) -> StageReport:
        """The report for this stage."""
        names = [wanted.value for wanted in self.partial.wanted]
        names += [name for each in self.partial.decisions for name in each.results if name]
        size = arena_bytes(self.plan)
        return StageReport(len(self.built.graph.nodes), size, self.plan.status, tuple(names))


class StagedExecutor:
    """
    Runs an ONNX model whose sizes data decides, inside one arena.

    Nodes whose sizes are known beforehand are planned beforehand. When a run finds out a size,
    by NonZero, NonMaxSuppression, Unique or Compress or by computing a shape, the following nodes
    are planned around the values that are then live, and so on. A stage with sizes that were
    seen before is a look-up.

    Parameters
    ----------
    model : path or bytes
        The model.
    bind : mapping, optional
        Numbers for symbolic dimensions by name, and whole input shapes by name, as for
        :func:`load`. For data-dependent dimensions, the numbers are upper bounds; a value's name
        stands for all the value's data-dependent dimensions. If everything is bounded, the arena
        has room for the largest sizes from the start.
    options : PlanOptions, optional
        Plan options; default is a plan for the target ``"numpy"``.
    keep : int, optional
        Most sizes per stage that stay prepared; all stay if left out.
    **overrides
        Single options by name.

    Raises
    ------
    PlannerError
        If the model is malformed, or cannot be planned for another reason than a size.

    Examples
    --------
    >>> import numpy as np
    >>> from onnx import TensorProto, helper
    >>> x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    >>> y = helper.make_tensor_value_info("y", TensorProto.INT64, [1, "count"])
    >>> node = helper.make_node("NonZero", ["x"], ["y"])
    >>> model = helper.make_model(helper.make_graph([node], "find", [x], [y]))
    >>> import arenaplan as ap
    >>> with ap.Executor(model.SerializeToString()) as executor:
    ...     executor.run({"x": np.array([0, 1, 0, 2], np.float32)})
    {'y': array([[1, 3]])}
    """

    def __init__(
        self,
        model: Source,
        bind: OpenBind | None = None,
        options: PlanOptions | None = None,
        *,
        keep: int | None = None,
        **overrides: Unpack[PlanKeywords],
    ) -> None:
        if keep is not None and whole_number(keep, "keep") < 1:
            raise InvalidOption(f"option keep: at least one size stays prepared, not {keep}")
        self._options = resolve(PLAN_OPTIONS if options is None else options, overrides)
        if "caller" in (self._options.inputs, self._options.outputs) or self._options.spaces:
            raise InvalidOption("sizes that data decides need one arena that has all values inside")
        self._partial_with: PartialWith = open_partial(model, bind)
        self._keep = keep
        self._lock = threading.Lock()
        self._root: _Stage | None = self._prepare(NOTHING_KNOWN, NOTHING_DONE)
        self._bound = self._bounded(model, bind)
        size = arena_bytes(self._root.plan)
        self._memory = aligned_bytes(max(size, 0 if self._bound is None else self._bound))
        self._latest: list[_Stage] = [self._root]

    def __enter__(self) -> StagedExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name = "" if self._root is None else self._root.built.graph.name
        return f"StagedExecutor({name!r}, {self.arena_bytes} bytes)"

    def close(self) -> None:
        """Release the arena and everything prepared."""
        self._root, self._latest = None, []
        self._memory = aligned_bytes(0)

    # -- reports -----------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph with the nodes whose sizes are known beforehand."""
        return self._first.built.graph

    @property
    def plan(self) -> Plan:
        """The plan for the nodes in :attr:`graph`; proves nothing about the other nodes."""
        return self._first.plan

    @property
    def waiting(self) -> tuple[str, ...]:
        """The nodes that are planned when sizes are known."""
        return tuple(self._first.partial.waiting)

    @property
    def deciders(self) -> tuple[str, ...]:
        """The causes of the first unknown sizes, one sentence each."""
        return self._first.partial.deciders

    @property
    def arena_bytes(self) -> int:
        """Current arena bytes; runs with larger sizes make the arena grow."""
        return self._memory.nbytes

    @property
    def bound_bytes(self) -> int | None:
        """Plan bytes for the largest sizes, if ``bind`` bounds all sizes."""
        return self._bound

    @property
    def scratch_bytes(self) -> int:
        """Scratch bytes outside the arena in the latest run."""
        return max((stage.scratch for stage in self._latest), default=0)

    @property
    def stages(self) -> list[StageReport]:
        """The stages in the latest run; before the first run, the planned stage."""
        return [stage.report for stage in self._latest]

    @property
    def _first(self) -> _Stage:
        if self._root is None:
            raise fault("ArenaState", "this executor is closed")
        return self._root

    # -- running -----------------------------------------------------------------------

    def run(
        self, inputs: Mapping[str, ArrayLike], *, verify: bool = False
    ) -> dict[str, np.ndarray]:
        """
        Compute the model's outputs, each with its true size.

        Parameters
        ----------
        inputs : mapping of str to array_like
            An array per graph input, with exactly the input's shape and element type.
        verify : bool, default False
            Check every step in every stage: see :mod:`arenaplan.run.numpy.verify`. Slow.

        Returns
        -------
        dict of str to array
            An array per graph output.

        Raises
        ------
        ExecutionError
            If an input is missing, unknown, or has another shape or type.
        SizeError
            If a size exceeds the bound.
        ArenaError
            If another run is using the arena.
        ExecutionError
            If a step failed.
        ExecutionError
            If ``verify`` is set and some bytes are wrong.
        PlannerError
            If nodes that have become known cannot be planned or run.
        """
        stage = self._first
        if not self._lock.acquire(blocking=False):
            raise fault("ArenaBusy", "another run is using the arena")
        try:
            with quiet_arithmetic():
                return self._run(stage, inputs, verify)
        finally:
            self._lock.release()

    def _run(
        self, stage: _Stage, inputs: Mapping[str, ArrayLike], verify: bool
    ) -> dict[str, np.ndarray]:
        given = checked_inputs(stage.built.graph, inputs)
        self._latest = [stage]
        loads: Mapping[int, np.ndarray] | None = None
        while True:
            setup = self._bind(stage)
            graph = setup.graph
            if loads is None:
                loads = {index: setup.arrays[index] for index in given}
            else:
                given = {index: setup.arrays[index].copy() for index in graph.inputs}
                loads = {}
            if verify:
                verified_run(setup, given, loads)
            else:
                load(loads, {index: given[index] for index in loads})
                run_all(setup.program)
            stage.results.clear()
            if stage.partial.is_complete:
                whole = stage.partial.graph
                names = [whole.values[index].name for index in whole.outputs]
                return {name: setup.arrays[stage.built.kept[name]].copy() for name in names}
            stage = self._next(stage, setup)
            self._latest.append(stage)

    def _next(self, stage: _Stage, setup: Setup) -> _Stage:
        """Return the stage for the sizes that are known now."""
        kept = stage.built.kept
        data = {
            wanted.value: setup.arrays[kept[wanted.value]].copy() for wanted in stage.partial.wanted
        }
        results: dict[str, np.ndarray] = {}
        for each in stage.partial.decisions:
            results.update(_decide(each, kept, setup.arrays))
        key: _Key = (
            *((name, array.tobytes()) for name, array in data.items()),
            *((name, array.shape) for name, array in results.items()),
        )
        child = stage.children.pop(key, None)
        if child is None:
            known = Known(
                {**stage.known.data, **data},
                {**stage.known.shapes, **{name: a.shape for name, a in results.items()}},
            )
            made = frozenset(value.name for value in stage.partial.graph.values)
            places = places_after(stage.built, stage.plan)
            child = self._prepare(known, Before(made, places, frozenset(results)))
        stage.children[key] = child  # Now the latest child.
        for oldest in [] if self._keep is None else list(stage.children)[: -self._keep]:
            del stage.children[oldest]
        child.results.update(results)
        return child

    def _bind(self, stage: _Stage) -> Setup:
        """Return a stage on the arena, which grows if the stage needs more."""
        needed = arena_bytes(stage.plan)
        if needed > self._memory.nbytes:
            grown = aligned_bytes(needed)
            grown[: self._memory.nbytes] = self._memory
            self._memory = grown
        memory = self._memory[:needed]
        setup = stage.setup
        if setup is None or not _is_same(setup.memories[0], memory):
            make = partial(given_runs, stage.built, stage.results)
            setup, stage.scratch = set_up(stage.built.graph, stage.plan, [memory], given=make)
            stage.setup = setup
        return setup

    # -- planning ----------------------------------------------------------------------

    def _prepare(self, known: Known, before: Before) -> _Stage:
        """Plan the nodes that some facts make known."""
        found = self._partial_with(known)
        if found.wanted and all(each.value in known.data for each in found.wanted):
            names = listed(dict.fromkeys(each.node for each in found.wanted))
            raise UnsupportedModel(f"sizes do not follow from the data they depend on: {names}")
        built = stage_graph(found, before)
        options = self._options
        if before.done:
            options = resolve(options, {"inputs": "reuse"})
        plan = make_plan(built.graph, options)
        return _Stage(known, found, built, plan, before)

    def _bounded(self, model: Source, bind: OpenBind | None) -> int | None:
        """Return the bytes for the largest sizes, if all have bounds."""
        if not bind or self._first.partial.is_complete:
            return None
        try:
            return arena_bytes(make_plan(load_graph(model, bind=bind), self._options))
        except (SizeError, UnsupportedSubgraph):
            return None  # Some size has no bound, or several values that are none of the others'.


def _decide(
    decision: Decision, kept: Mapping[str, int], arrays: Mapping[int, np.ndarray]
) -> dict[str, np.ndarray]:
    """Run a deciding operator, and return its results by name."""
    inputs: list[np.ndarray | None] = [
        None if name is None else arrays[kept[name]] for name in decision.inputs
    ]
    for position, load_constant in decision.constants.items():
        inputs[position] = load_constant()
    made = decided(decision.op, decision.node, decision.attributes, inputs)
    return {name: array for name, array in zip(decision.results, made, strict=False) if name}


def _is_same(bound: np.ndarray, memory: np.ndarray) -> bool:
    """Return whether two arrays are the same bytes."""
    return bound.ctypes.data == memory.ctypes.data and bound.nbytes == memory.nbytes
