"""
The executor: one loop over steps that were bound to the arena beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import Context
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import ArrayLike

from arenaplan._core import Arena, Plan, ThreadTeam
from arenaplan.base.amounts import whole_number
from arenaplan.base.arguments import typed
from arenaplan.base.errors import CapacityExceeded, InvalidOption, fault
from arenaplan.graph import Graph, Value
from arenaplan.planner.plan_options import PlanOptions
from arenaplan.planner.planning import plan as make_plan
from arenaplan.run.executor_types import ExecutorType
from arenaplan.run.numpy.buffers import bring
from arenaplan.run.numpy.constants import let_constants_go
from arenaplan.run.numpy.groups import find_units
from arenaplan.run.numpy.narrow import is_packed, loaded
from arenaplan.run.numpy.numpy_backend import missing_workspaces
from arenaplan.run.numpy.parallel import Workers
from arenaplan.run.numpy.signatures import dtype_of
from arenaplan.run.numpy.steps import (
    Given,
    Setup,
    arena_arrays,
    arena_workspaces,
    load,
    no_runs,
    own_workspaces,
    prepare,
    run_all,
)
from arenaplan.run.numpy.tenant import Tenant, arena_of
from arenaplan.run.numpy.verify import verified_run

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from arenaplan.graph.sizes import Source
    from arenaplan.run.cuda.device import Device
    from arenaplan.run.dynamic.families import PlanFamily
    from arenaplan.run.dynamic.shapes import RangeBind

_UFUNC_BUFFER = 1024
# NumPy's default of 8192 elements makes it copy operands that are broadcast along rows
# shorter than half of that; with 1024 such an addition takes a third of the time.

_TARGET: Final = "numpy"

PLAN_OPTIONS: Final = PlanOptions(target=_TARGET)
"""Options of the plans that executors make for themselves."""


class Executor(Tenant, metaclass=ExecutorType):
    """
    Runs a graph inside one arena.

    Everything is prepared once: arrays on the arena, weights, windows. A run then copies the
    inputs in, calls a prepared function per node, and copies the outputs out. Apart from the
    output copies, a run allocates next to nothing.

    Parameters
    ----------
    graph : Graph, path, bytes, PlanFamily or callable
        The model to run, or a file as for :func:`arenaplan.load`. All constants need data. A
        model of several shapes gives a :class:`arenaplan.run.DynamicExecutor`, a model whose
        sizes data decides an :class:`arenaplan.run.StagedExecutor`; both run in one arena, too.
    plan : Plan, optional
        Where every value goes; made for the target ``"numpy"`` if left out.
    bind : mapping, optional
        Sizes of a file's symbolic dimensions by name: numbers, or ranges and lists of numbers for
        a model of several shapes, as for :func:`arenaplan.plan_family`.
    arena : Arena or buffer, optional
        Memory to run in; committed here if left out. The caller may pass any writable buffer at a
        multiple of the plan's alignment, such as an array, an ``mmap`` or shared memory. The
        executor uses the buffer in place, and :meth:`close` lets the buffer go. Several spaces
        lie side by side in the arena, at ``plan.bases``.
    buffers : mapping of str to array, optional
        Arrays for inputs and outputs that the plan leaves to the caller, by name. Inputs are
        read in place and never written; outputs are written in place. Missing arrays are
        allocated here.
    workers : int, default 1
        Number of threads that run steps at the same time, as far as the plan's hazards allow. The
        results for a given plan are the same for any number, bit for bit. A plan that is made here
        depends on the number: nodes that run together in only some plans may round differently.
        Give both executors the same plan for equal bits.
    threads : int, default 1
        Number of threads that divide each long compiled kernel (convolutions, products with
        constants, chains, norms, softmax, pooling); plan and result bits stay the same.
        Only a single kernel is divided at a time, also with several workers.
    seed : int, default 0
        Seed for random operators without a seed in the model. The random numbers depend only on
        seed, node name and run number.
    device : str or Device, default "cpu"
        ``"cuda"`` or ``"cuda:1"`` for a CUDA device: see
        :class:`arenaplan.run.cuda.device_executor.DeviceExecutor`, the class made then.
    capture : bool, default False
        Record a device run's launches, and replay the launches in later runs.

    Raises
    ------
    UnsupportedOp, UnsupportedDtype, SizeError
        If a node cannot be run, named in the message.
    PlanError
        If the plan was made for another graph.
    CapacityExceeded, ArenaError
        If the arena cannot hold the plan, or a buffer is too small for a value.

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

    kind = "cpu"

    @typed
    def __init__(
        self,
        graph: Graph | Source | PlanFamily | Callable[..., Graph],
        plan: Plan | None = None,
        *,
        bind: RangeBind | None = None,
        arena: Buffer | np.ndarray | None = None,
        buffers: Mapping[str, np.ndarray] | None = None,
        workers: int = 1,
        threads: int = 1,
        seed: int = 0,
        device: str | Device = "cpu",
        capture: bool = False,
    ) -> None:
        assert isinstance(graph, Graph), "the type of this class reads files"
        assert bind is None, "the type of this class binds sizes"
        if capture:
            raise InvalidOption(f"option capture: there is nothing to record on {device}")
        workers, threads = whole_number(workers, "workers"), whole_number(threads, "threads")
        for count, name in ((workers, "workers"), (threads, "threads")):
            if count < 1:
                raise InvalidOption(f"option {name}: {count} is no number of {name}")
        if not isinstance(plan, Plan | None):
            raise InvalidOption(f"option plan: {plan!r} is no Plan; Plan.load reads a file")
        graph = graph.for_target(_TARGET)
        if plan is None:
            plan = make_plan(graph, PLAN_OPTIONS, workers=workers)
        else:
            plan.check(graph)
            graph = graph.for_plan(plan)
        self.graph: Graph = graph
        self.plan = plan
        self._owns_arena = not isinstance(arena, Arena)
        self.arena: Arena = arena_of(plan, arena)
        memory = _bytes_of(self.arena, plan)
        self._brought = bring(graph, plan, buffers or {}, memory)
        memories = [memory, *(buffer.memory for buffer in self._brought)]
        with ThreadTeam(threads) if threads > 1 else nullcontext() as team:
            setup, self.scratch_bytes = set_up(graph, plan, memories, workers)
            """Bytes of scratch memory outside the arena: what the plan has none of, and that of
            threads."""
        if team is not None:
            self.scratch_bytes += team.scratch_bytes
        self.clock = setup.program.clock
        self.clock.seed = whole_number(seed, "seed")
        self._setup: Setup | None = setup
        arrays = setup.arrays
        self._workers: Workers | None = None
        if workers > 1:
            self._workers = Workers(
                graph, plan, setup.units, setup.program, workers, quiet_arithmetic
            )
        self._given = {buffer.value: buffer.array for buffer in self._brought if buffer.is_given}
        own = {buffer.value: buffer.array for buffer in self._brought if not buffer.is_given}
        self._loads = {
            index: own.get(index, arrays[index])
            for index in graph.inputs
            if index not in self._given
        }
        values = [graph.values[index] for index in self._loads]
        self._declared = [(v.name, v.index, dtype_of(v), v.shape) for v in values]
        self._outputs = [graph.values[index] for index in graph.outputs]
        self._context = quiet_context()
        if self._owns_arena:
            self.reset()

    def __repr__(self) -> str:
        return f"Executor({self.graph!r}, {self.plan.arena_bytes} bytes)"

    def _let_go(self) -> None:
        self._setup = None
        if self._workers is not None:
            self._workers.close()
            self._workers = None
        self._brought, self._given, self._loads = [], {}, {}

    def reset(self) -> None:
        """
        Set all model states to their initial content.

        A new executor begins with a reset, unless given an :class:`Arena`, which may hold states
        already.

        Raises
        ------
        ArenaError
            If a run is using the arena.
        ArenaError
            If the executor is closed.
        """
        arrays = self._open().arrays
        with self.arena.lease():
            for value in self.graph.values:
                if value.kind == "state" and value.index in arrays:
                    first = self.graph.initial(value.index)
                    np.copyto(arrays[value.index], 0 if first is None else first)

    def states(self, *, borrow: bool = False) -> dict[str, np.ndarray]:
        """
        Return copies of all model states, by name.

        Parameters
        ----------
        borrow : bool, default False
            Return read-only arena views instead, which the next run overwrites.

        Raises
        ------
        ArenaError
            If a run is using the arena.
        ArenaError
            If the executor is closed.
        """
        with self.arena.lease():
            return {name: _shown(array, borrow) for name, array in self._states().items()}

    @typed
    def restore(
        self,
        states: Mapping[str, ArrayLike],
        *,
        runs: int | None = None,
        seed: int | None = None,
    ) -> None:
        """
        Set the content of the named model states; after an error, no state has changed.

        Parameters
        ----------
        states : mapping of str to array_like
            Arrays with exactly the states' shapes and element types.
        runs : int, optional
            Number of earlier runs, which random operators depend on.
        seed : int, optional
            Seed for random operators from now on.

        Raises
        ------
        ExecutionError
            If a state does not exist, or has another shape or type.
        ArenaError
            If a run is using the arena.
        ArenaError
            If the executor is closed.
        """
        with self.arena.lease():
            own = self._states()
            for name, given in states.items():
                array = np.asarray(given)
                if name not in own:
                    known = ", ".join(map(repr, own)) or "none"
                    raise fault(
                        "InputMismatch", f"no state is called {name!r}; the graph has {known}"
                    )
                if (array.shape, array.dtype) != (own[name].shape, own[name].dtype):
                    raise fault(
                        "InputMismatch",
                        f"state {name!r} holds {own[name].dtype} of shape {own[name].shape}, not "
                        f"{array.dtype} of shape {array.shape}",
                    )
            for name, given in states.items():
                np.copyto(own[name], given)
            if runs is not None:
                self.clock.run = whole_number(runs, "runs")
            if seed is not None:
                self.clock.seed = whole_number(seed, "seed")

    @property
    def runs(self) -> int:
        """Number of runs so far; a run that failed does not count."""
        return self.clock.run

    @property
    def seed(self) -> int:
        """Seed for random operators without a seed in the model."""
        return self.clock.seed

    def _states(self) -> dict[str, np.ndarray]:
        """Return the arrays for all states that a run touches, by name."""
        arrays = self._open().arrays
        return {
            value.name: arrays[value.index]
            for value in self.graph.values
            if value.kind == "state" and value.index in arrays
        }

    def _open(self) -> Setup:
        """Return the set-up of an executor that is not closed."""
        if self._setup is None:
            raise fault("ArenaState", "this executor is closed")
        return self._setup

    def run(
        self, inputs: Mapping[str, ArrayLike], *, borrow: bool = False, verify: bool = False
    ) -> dict[str, np.ndarray]:
        """
        Compute the graph's outputs.

        Parameters
        ----------
        inputs : mapping of str to array_like
            An array per graph input, with exactly the input's shape and element type; inputs
            that have a buffer may be left out.
        borrow : bool, default False
            Return read-only arena views, which the next run overwrites, instead of copies.
        verify : bool, default False
            Check every step: see :mod:`arenaplan.run.numpy.verify`. Slow.

        Returns
        -------
        dict of str to array
            An array per graph output; for outputs that have a buffer, the buffer.

        Raises
        ------
        ExecutionError
            If an input is missing, unknown, or has another shape or type. The arena is then
            unchanged.
        ArenaError
            If another run is using the arena.
        ExecutionError
            If a step failed, with the original exception as cause. The next run is
            not affected.
        ExecutionError
            If ``verify`` is set and some bytes are wrong.
        """
        setup = self._open()
        with self.arena.lease():
            given = self._unshared(
                self._as_declared(inputs) or checked_inputs(setup.graph, inputs, self._given)
            )
            self.clock.run += 1
            try:
                self._compute(setup, given, verify=verify)
            except BaseException:
                self.clock.run -= 1
                raise
            return {
                value.name: self._given[value.index]
                if value.index in self._given
                else handed_out(value, setup.arrays[value.index], borrow)
                for value in self._outputs
            }

    def _compute(self, setup: Setup, given: dict[int, np.ndarray], *, verify: bool) -> None:
        """Copy inputs to the arena, and do every step."""
        if verify:
            with quiet_arithmetic():
                verified_run(setup, {**given, **self._inputs_given()}, self._loads)
            return
        load(self._loads, given)
        if self._workers is None:
            self._context.run(run_all, setup.program)
        else:
            self._context.run(self._workers.run)

    def _as_declared(self, inputs: Mapping[str, ArrayLike]) -> dict[int, np.ndarray] | None:
        """Return the inputs if all arrays match the declarations exactly, else ``None``."""
        if not isinstance(inputs, Mapping) or len(inputs) != len(self._declared):
            return None
        found: dict[int, np.ndarray] = {}
        for name, index, dtype, shape in self._declared:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
                return None
            found[index] = array
        return found

    def _unshared(self, given: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Return the inputs, with copies for arrays that may share memory with the run."""
        memories = self._open().memories
        for index, array in given.items():
            if any(np.may_share_memory(array, memory) for memory in memories):
                given[index] = array.copy()
        return given

    def _inputs_given(self) -> dict[int, np.ndarray]:
        """Return the inputs that lie in the caller's buffers."""
        return {index: self._given[index] for index in self.graph.inputs if index in self._given}


def quiet_context() -> Context:
    """
    Return a context with the NumPy settings that :func:`quiet_arithmetic` makes.

    NumPy keeps the settings in a context variable, so a single set-up is enough.
    """
    context = Context()
    context.run(np.seterr, all="ignore")
    context.run(np.setbufsize, _UFUNC_BUFFER)
    return context


@contextmanager
def quiet_arithmetic() -> Iterator[None]:
    """Set NumPy up for kernels: no warnings, small buffers."""
    # The end of the context restores the buffers, too.
    with np.errstate(all="ignore"):
        np.setbufsize(_UFUNC_BUFFER)
        yield


def handed_out(value: Value, array: np.ndarray, borrow: bool) -> np.ndarray:
    """Return an output as a copy, or as a read-only view."""
    if is_packed(value.dtype):
        return loaded(array, value.shape, value.dtype)
    return _shown(array, borrow)


def _shown(array: np.ndarray, borrow: bool) -> np.ndarray:
    """Return a copy, or with ``borrow`` a read-only view."""
    if not borrow:
        return array.copy()
    view = array.view()
    view.flags.writeable = False
    return view


def set_up(
    graph: Graph,
    plan: Plan,
    memories: Sequence[np.ndarray],
    workers: int = 1,
    given: Given = no_runs,
) -> tuple[Setup, int]:
    """
    Bind a graph to memory, and return the bytes of scratch memory outside ``memories``.

    Parameters
    ----------
    memories : sequence of array
        The arena's bytes, then each buffer that the caller brings.
    workers : int, default 1
        Number of threads that will run steps at the same time.
    given : callable, optional
        Makes functions that run nodes without a kernel.

    Raises
    ------
    UnsupportedOp, UnsupportedDtype, SizeError
        If a node cannot be run.
    """
    workspaces = arena_workspaces(plan, memories[0])
    missing = missing_workspaces(graph, plan, workspaces)
    more, outside = own_workspaces(missing, shared=workers == 1)
    for node, slots in more.items():
        workspaces.setdefault(node, []).extend(slots)
    arrays = arena_arrays(graph, plan, memories)
    units = find_units(graph, plan)
    program = prepare(graph, units, arrays, workspaces, given=given(arrays))
    let_constants_go(graph, arrays)
    return Setup(graph, plan, memories, arrays, workspaces, units, program, given), outside


def arena_bytes(plan: Plan) -> int:
    """Return the arena bytes for all plan spaces side by side."""
    return max(base + s.arena_bytes for base, s in zip(plan.bases, plan.spaces, strict=True))


def check_named(inputs: object, name: str | None) -> None:
    """
    Refuse inputs that are not given by name.

    Raises
    ------
    ExecutionError
        If the inputs are not a mapping; the message has the first name.
    """
    if not isinstance(inputs, Mapping):
        needed = "{}" if name is None else f"{{{name!r}: array}}"
        kind = type(inputs).__name__
        raise fault("InputMismatch", f"inputs are given by name: pass {needed}, not {kind!r}")


def checked_inputs(
    graph: Graph, inputs: Mapping[str, ArrayLike], brought: Mapping[int, np.ndarray] | None = None
) -> dict[int, np.ndarray]:
    """
    Return the run inputs that the caller did not bring as buffers.

    Raises
    ------
    ExecutionError
        If an input is missing, unknown, or has another shape or type.
    """
    check_named(inputs, graph.values[graph.inputs[0]].name if graph.inputs else None)
    brought = brought or {}
    declared = [graph.values[index] for index in graph.inputs]
    for value in declared:
        buffer = brought.get(value.index)
        if buffer is not None and inputs.get(value.name, buffer) is not buffer:
            raise fault(
                "InputMismatch",
                f"input {value.name!r} has a buffer that the executor was given: write there",
            )
    unknown = sorted(set(inputs).difference(value.name for value in declared))
    if unknown:
        known = ", ".join(repr(value.name) for value in declared) or "none"
        raise fault("InputMismatch", f"no input is called {unknown[0]!r}; the graph has {known}")
    wanted = [value for value in declared if value.index not in brought]
    return {value.index: _checked_input(value, inputs) for value in wanted}


def _checked_input(value: Value, inputs: Mapping[str, ArrayLike]) -> np.ndarray:
    """Return the array for an input, after a check of shape and element type."""
    if value.name not in inputs:
        raise fault("InputMismatch", f"input {value.name!r} is missing")
    given = inputs[value.name]
    try:
        array = np.asarray(given)
    except ValueError as error:  # Lists of several lengths.
        raise fault("InputMismatch", f"input {value.name!r} is no array: {error}") from None
    expected = dtype_of(value)
    if array.dtype != expected:
        literal = not hasattr(given, "dtype")  # Lists and numbers have no type of their own.
        if not (literal and np.can_cast(array.dtype, expected, "same_kind")):
            raise fault(
                "InputMismatch",
                f"input {value.name!r} has element type {array.dtype}, not {expected}",
            )
        array = array.astype(expected)
    if array.shape != value.shape:
        raise fault(
            "InputMismatch", f"input {value.name!r} has shape {array.shape}, not {value.shape}"
        )
    return array


def _bytes_of(arena: Arena, plan: Plan) -> np.ndarray:
    """Return the arena's bytes, which must be able to hold the plan."""
    view = memoryview(arena)
    if view.readonly or not view.c_contiguous:
        raise fault("InvalidBuffer", "the arena's memory is read-only or not contiguous")
    needed = arena_bytes(plan)
    if view.nbytes < needed:
        raise CapacityExceeded(f"the arena has {view.nbytes} bytes, and the plan needs {needed}")
    memory: np.ndarray = np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
    memory = memory[:needed]
    alignment = max(space.alignment for space in plan.spaces)
    if memory.nbytes and memory.ctypes.data % alignment:
        raise fault(
            "MisalignedBuffer",
            f"the arena does not start at a multiple of {alignment} bytes, as the plan asks",
        )
    return memory
