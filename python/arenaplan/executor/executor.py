"""
The executor: one loop over steps that were bound to the arena beforehand.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from arenaplan.errors import (
    ArenaInUse,
    ArenaState,
    CapacityExceeded,
    InputMismatch,
    InvalidBuffer,
    MisalignedBuffer,
)
from arenaplan.executor.steps import (
    Setup,
    arena_arrays,
    arena_workspaces,
    dtype_of,
    load,
    missing_workspaces,
    own_workspaces,
    prepare,
    run_all,
)
from arenaplan.executor.units import find_units
from arenaplan.executor.verify import verified_run
from arenaplan.graph import Graph, Value

if TYPE_CHECKING:
    from arenaplan import Arena, Plan

_UFUNC_BUFFER = 1024
# NumPy's default of 8192 elements makes it copy operands that are broadcast along rows
# shorter than half of that; with 1024 such an addition takes a third of the time.

PLAN_OPTIONS: Mapping[str, Any] = MappingProxyType({"workspace": "auto"})
"""Options of the plans that executors make for themselves."""


class Executor:
    """
    Runs a graph inside one arena.

    Everything is prepared once: arrays on the arena, weights, windows. A run then
    copies the inputs in, calls one prepared function per node, and copies the
    outputs out. It allocates nothing else of note.

    Parameters
    ----------
    graph : Graph
        What to run. All its constants need data.
    plan : Plan, optional
        Where every value goes; made with ``workspace="auto"`` if left out.
    arena : Arena, optional
        Memory that ``plan`` was committed to; committed here if left out. Several spaces
        lie side by side in it, at ``plan.bases``.

    Raises
    ------
    UnsupportedOp, UnsupportedDtype, RankTooLarge
        If a node cannot be run, named in the message.
    PlanMismatch
        If the plan was made for another graph.
    CapacityExceeded, InvalidBuffer, MisalignedBuffer
        If the arena cannot hold the plan.

    Examples
    --------
    >>> import numpy as np
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> x = graph.input("x", (3,))
    >>> (y,) = graph.node("Neg", [x], [("y", (3,), "float32")])
    >>> graph.output(y)
    >>> with ap.Executor(graph) as executor:
    ...     executor.run({"x": np.array([1, 2, 3], np.float32)})
    {'y': array([-1., -2., -3.], dtype=float32)}
    """

    def __init__(
        self, graph: Graph, plan: Plan | None = None, *, arena: Arena | None = None
    ) -> None:
        if plan is None:
            from arenaplan import plan as make_plan

            plan = make_plan(graph, **PLAN_OPTIONS)
        else:
            plan.check(graph)
        self.graph = graph
        self.plan = plan
        self._owns_arena = arena is None
        self.arena: Arena = plan.commit() if arena is None else arena
        memory = _bytes_of(self.arena, plan)
        workspaces = arena_workspaces(plan, memory)
        missing = missing_workspaces(graph, plan, workspaces)
        more, self.scratch_bytes = own_workspaces(missing)
        """Bytes of scratch memory outside the arena, because the plan has none."""
        workspaces.update(more)
        arrays = arena_arrays(graph, plan, memory)
        units = find_units(graph, plan)
        program = prepare(graph, units, arrays, workspaces)
        self._setup: Setup | None = Setup(graph, plan, memory, arrays, workspaces, units, program)

    def __repr__(self) -> str:
        return f"Executor({self.graph!r}, {self.plan.arena_bytes} bytes)"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except ArenaInUse:
            if error is None:  # Its traceback may well be what holds on to the arena.
                raise

    def close(self) -> None:
        """
        Let go of the arena; close it too if it was committed here.

        Raises
        ------
        ArenaInUse
            If it was committed here and a borrowed output is still alive.
        """
        self._setup = None
        if not self._owns_arena:
            return
        try:
            self.arena.close()
        except ArenaInUse:
            gc.collect()  # A kernel may have left views in a cycle.
            self.arena.close()

    def run(
        self, inputs: Mapping[str, ArrayLike], *, borrow: bool = False, verify: bool = False
    ) -> dict[str, np.ndarray]:
        """
        Compute the graph's outputs.

        Parameters
        ----------
        inputs : mapping of str to array_like
            One array per graph input, of exactly its shape and element type.
        borrow : bool, default False
            Return read-only views of the arena, which the next run overwrites,
            instead of copies.
        verify : bool, default False
            Check every step: see :mod:`arenaplan.executor.verify`. Slow.

        Returns
        -------
        dict of str to array
            One array per graph output.

        Raises
        ------
        InputMismatch
            If an input is missing, unknown, or of another shape or type. The arena
            is unchanged then.
        ArenaBusy
            If another run is using the arena.
        KernelError
            If a step failed, with the original exception as cause. The next run is
            not affected.
        VerificationError
            If ``verify`` is set and some bytes are wrong.
        """
        setup = self._setup
        if setup is None:
            raise ArenaState("this executor is closed")
        with self.arena.lease(), quiet_arithmetic():
            given = _checked_inputs(setup, inputs)
            if verify:
                verified_run(setup, given)
            else:
                load(setup, given)
                run_all(setup.program)
            return {
                self.graph.values[index].name: _handed_out(setup.arrays[index], borrow)
                for index in self.graph.outputs
            }


@contextmanager
def quiet_arithmetic() -> Iterator[None]:
    """Set NumPy up for kernels: no warnings, small buffers."""
    with np.errstate(all="ignore"):
        previous = np.setbufsize(_UFUNC_BUFFER)
        try:
            yield
        finally:
            np.setbufsize(previous)


def _handed_out(array: np.ndarray, borrow: bool) -> np.ndarray:
    """Return an output as a copy, or as a view that cannot be written."""
    if not borrow:
        return array.copy()
    view = array.view()
    view.flags.writeable = False
    return view


def _checked_inputs(setup: Setup, inputs: Mapping[str, ArrayLike]) -> dict[int, np.ndarray]:
    """Return the inputs as arrays that share no byte with the arena."""
    declared = [setup.graph.values[index] for index in setup.graph.inputs]
    unknown = sorted(set(inputs).difference(value.name for value in declared))
    if unknown:
        known = ", ".join(repr(value.name) for value in declared) or "none"
        raise InputMismatch(f"no input is called {unknown[0]!r}; the graph has {known}")
    given = {value.index: _checked_input(value, inputs) for value in declared}
    return {
        index: array.copy() if np.may_share_memory(array, setup.memory) else array
        for index, array in given.items()
    }


def _checked_input(value: Value, inputs: Mapping[str, ArrayLike]) -> np.ndarray:
    """Return the array given for an input, which must have its shape and element type."""
    if value.name not in inputs:
        raise InputMismatch(f"input {value.name!r} is missing")
    given = inputs[value.name]
    array = np.asarray(given)
    expected = dtype_of(value)
    if array.dtype != expected:
        literal = not hasattr(given, "dtype")  # Lists and numbers have no type of their own.
        if not (literal and np.can_cast(array.dtype, expected, "same_kind")):
            raise InputMismatch(
                f"input {value.name!r} has element type {array.dtype}, not {expected}"
            )
        array = array.astype(expected)
    if array.shape != value.shape:
        raise InputMismatch(f"input {value.name!r} has shape {array.shape}, not {value.shape}")
    return array


def _bytes_of(arena: Arena, plan: Plan) -> np.ndarray:
    """Return the arena's bytes, which must be able to hold the plan."""
    view = memoryview(arena)
    if view.readonly or not view.c_contiguous:
        raise InvalidBuffer("the arena's memory is read-only or not contiguous")
    needed = max(base + s[1] for base, s in zip(plan.bases, plan.spaces, strict=True))
    if view.nbytes < needed:
        raise CapacityExceeded(f"the arena has {view.nbytes} bytes, and the plan needs {needed}")
    memory: np.ndarray = np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
    memory = memory[:needed]
    alignment = max(space[4] for space in plan.spaces)
    if memory.nbytes and memory.ctypes.data % alignment:
        raise MisalignedBuffer(
            f"the arena does not start at a multiple of {alignment} bytes, as the plan asks"
        )
    return memory
