"""The models of a server: at each shape a graph, a plan, and prepared executors."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from arenaplan._core import Plan
from arenaplan.base.errors import InvalidOption, PlannerError, fault
from arenaplan.base.quoting import quoted
from arenaplan.formats import load as load_model
from arenaplan.graph import Graph, Value
from arenaplan.graph.model import Model
from arenaplan.planner.planning import plan as make_plan
from arenaplan.run.dynamic import PlanFamily, plan_family
from arenaplan.run.dynamic.families import InputShapes, Source
from arenaplan.run.dynamic.shapes import RangeBind
from arenaplan.run.numpy import PLAN_OPTIONS
from arenaplan.run.numpy.executor import (
    arena_bytes,
    check_named,
    checked_inputs,
    quiet_arithmetic,
    set_up,
)
from arenaplan.run.numpy.narrow import loaded
from arenaplan.run.numpy.steps import load, run_all
from arenaplan.run.server.pages import ALIGNMENT
from arenaplan.run.server.saved import Saved, SavedFamily, read_saved

Served: TypeAlias = "Graph | PlanFamily | Source"
"""A model for a server."""
States: TypeAlias = dict[str, np.ndarray]
"""State arrays by name."""


class Resident:
    """A graph that is bound to some memory. One run at a time may use the memory."""

    def __init__(self, graph: Graph, plan: Plan, memory: np.ndarray) -> None:
        setup, _ = set_up(graph, plan, [memory])
        # No more than a run needs: there are many residents.
        self._program, arrays = setup.program, setup.arrays
        self._inputs = {index: arrays[index] for index in graph.inputs}
        self._outputs = [(graph.values[index], arrays[index]) for index in graph.outputs]
        self._states = {v.name: arrays[v.index] for v in states_of(graph) if v.index in arrays}

    def run(self, inputs: Mapping[int, np.ndarray], states: States | None) -> dict[str, np.ndarray]:
        """
        Return copies of the outputs.

        Parameters
        ----------
        inputs : mapping of int to array
            Checked inputs, by value.
        states : dict of str to array, optional
            Content of the states before the run; after a successful run, the new content. Zeros if
            left out.
        """
        for name, array in self._states.items():
            np.copyto(array, 0 if states is None else states[name])
        with quiet_arithmetic():
            load(self._inputs, inputs)
            self._program.clock.run += 1
            run_all(self._program)
        if states is not None:
            for name, array in self._states.items():
                np.copyto(states[name], array)
        return {
            value.name: loaded(array, value.shape, value.dtype) for value, array in self._outputs
        }


class ServedShape:
    """
    A model at one shape.

    Raises
    ------
    InvalidOption
        If a run needs memory outside the arena.
    """

    def __init__(self, name: str, graph: Graph, plan: Plan) -> None:
        self.name, self.graph, self.plan = name, graph, plan
        self.size = arena_bytes(plan)
        """Bytes for a run."""
        self.states = {value.name: value for value in states_of(graph)}
        self.residents: dict[int, Resident] = {}
        """Prepared executors, by the first byte of their memory."""
        if plan.caller_buffers:
            raise InvalidOption(
                "the plan leaves inputs or outputs to the caller; a server copies them"
            )
        if plan.options["workspace"] != "auto" or plan.target.name != "numpy":
            raise InvalidOption(
                'the plan has no scratch memory for NumPy\'s kernels; plan with target="numpy"'
            )
        if plan.alignment > ALIGNMENT:
            raise InvalidOption(f"alignments end at {ALIGNMENT} bytes here")

    def resident(self, start: int, memory: np.ndarray) -> Resident:
        """Return the executor prepared at a place; prepare an executor if there is none."""
        found = self.residents.get(start)
        if found is None:
            found = Resident(self.graph, self.plan, memory[start : start + self.size])
            self.residents[start] = found
        return found


class ReadyRun(NamedTuple):
    """A run that is ready to begin."""

    entry: ServedShape
    inputs: dict[int, np.ndarray]


class ServedModel:
    """A model by name, at the shapes that were asked for."""

    def __init__(
        self, name: str, model: Served, bind: RangeBind | None, saved: Saved | None = None
    ) -> None:
        self.name = name
        self.renew()
        self._entries: dict[InputShapes, ServedShape] = {}
        self._family: PlanFamily | SavedFamily | None = None
        with self.naming():
            self._plan(model, bind, None if saved is None else read_saved(saved))

    def _plan(self, model: Served, bind: RangeBind | None, saved: Model | Plan | None) -> None:
        if bind is not None and isinstance(model, PlanFamily):
            raise InvalidOption("option bind: a family of plans has its sizes already")
        if bind is not None and isinstance(model, Graph):
            raise InvalidOption("option bind: the shapes of a graph are numbers already")
        if saved is not None and isinstance(model, PlanFamily):
            raise InvalidOption("option plans: a family of plans has its plans already")
        if isinstance(saved, Model) and (bind is not None or isinstance(model, Graph)):
            raise InvalidOption("option plans: the model file has the sizes; pass the model itself")
        if isinstance(model, PlanFamily):
            self._family = model
        elif isinstance(saved, Model):
            assert not isinstance(model, Graph)
            self._family = SavedFamily(model, saved)
        elif (
            saved is None and not isinstance(model, Graph) and (bind is not None or callable(model))
        ):
            self._family = plan_family(model, bind or {}, PLAN_OPTIONS)
        else:
            self._plan_one(model, bind, saved)
            return
        self._family.check_inputs()
        planned: Sequence[tuple[Mapping[str, Any], Plan]] = self._family.planned
        sizes, _ = max(planned, key=lambda each: each[1].arena_bytes)
        self.largest = ServedShape(self.name, *self._family.fitted(**sizes))
        self.size = self._family.arena_bytes
        shapes = [self.largest.graph.values[index].shape for index in self.largest.graph.inputs]
        self._entries[tuple(shapes)] = self.largest

    def _plan_one(self, model: Served, bind: RangeBind | None, plan: Plan | None) -> None:
        """Take a model at one shape."""
        assert not isinstance(model, PlanFamily)
        if isinstance(model, Graph):
            graph = model
        else:
            sizes: Any = bind or {}
            graph = model(sizes) if callable(model) else load_model(model, bind=sizes)
        if plan is None:
            plan = make_plan(graph, PLAN_OPTIONS)
        else:
            plan.check(graph)
        self.largest = ServedShape(self.name, graph, plan)
        self.size = self.largest.size

    def renew(self) -> None:
        """Make a new lock: a thread in this process's parent may hold the old lock."""
        self._lock = threading.RLock()

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Let an error name the model."""
        try:
            yield
        except PlannerError as error:
            error.args = (f"model {quoted(self.name)}: {error}",)
            raise

    def close(self) -> None:
        """Forget all prepared executors."""
        for entry in (self.largest, *self._entries.values()):
            entry.residents.clear()

    @property
    def shapes(self) -> int:
        """Number of shapes."""
        return 1 if self._family is None else len(self._family)

    @property
    def alignment(self) -> int:
        """Alignment of a run's memory."""
        return self.largest.plan.alignment

    def find(self, inputs: Mapping[str, ArrayLike]) -> ServedShape | None:
        """
        Return the entry for the input shapes, if the entry exists already.

        Raises
        ------
        ExecutionError
            If the shapes were not planned.
        """
        if self._family is None:
            return self.largest
        return self._entries.get(self._shapes(self._family, inputs))

    def entry(self, inputs: Mapping[str, ArrayLike]) -> ServedShape:
        """Return the entry for the input shapes; raises as :meth:`find`."""
        family = self._family
        if family is None:
            return self.largest
        shapes = self._shapes(family, inputs)
        with self._lock:
            entry = self._entries.get(shapes)
            if entry is None:
                entry = ServedShape(self.name, *family.fitted(**(family.find_inputs(shapes) or {})))
                self._entries[shapes] = entry
            return entry

    def forget(self, entry: ServedShape) -> None:
        """Drop an entry that has no executor any more; without the lock, which imports hold."""
        if entry is not self.largest:
            for shapes, known in list(self._entries.items()):
                if known is entry and not entry.residents:
                    self._entries.pop(shapes, None)

    def work(self, entry: ServedShape, inputs: Mapping[str, ArrayLike]) -> ReadyRun:
        """
        Return a run with these inputs.

        Raises
        ------
        ExecutionError
            If an input is missing, unknown, or has another shape or type.
        """
        return ReadyRun(entry, checked_inputs(entry.graph, inputs))

    def _shapes(
        self, family: PlanFamily | SavedFamily, inputs: Mapping[str, ArrayLike]
    ) -> InputShapes:
        check_named(inputs, next(iter(family.inputs), None))
        for name in family.inputs:
            if name not in inputs:
                raise fault("InputMismatch", f"input {quoted(name)} is missing")
        shapes = tuple([np.shape(inputs[name]) for name in family.inputs])
        if family.find_inputs(shapes) is None:
            given = ", ".join(map("{} {}".format, map(quoted, family.inputs), shapes))
            raise fault("InputMismatch", f"no shape that was planned has the inputs {given}")
        return shapes


def states_of(graph: Graph) -> list[Value]:
    """Return the values in a graph that keep their content between runs."""
    return [value for value in graph.values if value.kind == "state"]
