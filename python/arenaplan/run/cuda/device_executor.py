"""
The executor for devices: work that was bound to the arena of a device beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike

from arenaplan.base.amounts import whole_number
from arenaplan.base.errors import (
    CapacityExceeded,
    InternalError,
    InvalidOption,
    fault,
)
from arenaplan.base.quoting import listed
from arenaplan.graph import Graph
from arenaplan.planner.plan_options import PlanOptions
from arenaplan.planner.planning import plan as make_plan
from arenaplan.run.cuda.device import Device, Memory, Run, Stream
from arenaplan.run.cuda.device_program import (
    ALIGNMENT,
    ARENA,
    CONSTANTS,
    OUTSIDE,
    DeviceProgram,
    DeviceStep,
    device_program,
)
from arenaplan.run.cuda.device_work import (
    DeviceCopy,
    DevicePlace,
    DeviceProduct,
    DeviceSpan,
    HostCall,
    Launch,
    Matrix,
    Work,
)
from arenaplan.run.cuda.host_calls import HostCalls
from arenaplan.run.numpy.executor import Executor, checked_inputs, handed_out
from arenaplan.run.numpy.registry import Clock
from arenaplan.run.numpy.signatures import dtype_of
from arenaplan.run.numpy.steps import array_at, load

if TYPE_CHECKING:
    from arenaplan._core import Plan

PLAN_OPTIONS: Final = PlanOptions(target="cupy")
"""Options of the plans that executors for devices make for themselves."""

_BYTE: Final = np.dtype(np.uint8)
_CLOSE: Final = {("f", 8): 1e-4, ("f", 4): 1e-4, ("f", 2): 1e-2, ("i", 1): 0.1, ("u", 1): 0.1}
"""Largest difference from NumPy's results that a verified run may have, relative to the largest
element of a result, by kind and bytes of an element. The coarsest type of a graph counts, since a
sum in another order may round to another step."""


class DeviceExecutor(Executor):
    """
    Runs a graph inside a single device arena.

    Made by ``Executor(graph, device="cuda")``. Constants are copied to the device once. A run
    copies the inputs through staging memory into the arena, puts the prepared launches into
    streams in order, and copies the outputs back. A node without a kernel for devices runs on the
    host, on copies of its operands and results: :attr:`host_nodes`.

    Parameters
    ----------
    graph : Graph or path or bytes
        The model to run. All constants need data.
    plan : Plan, optional
        A plan for the target ``"cupy"``; made here if left out.
    device : str or Device, default "cuda"
        The device: ``"cuda"``, ``"cuda:1"``, or an open device.
    arena : object, optional
        Memory on the device that the caller owns, with ``__dlpack__`` or
        ``__cuda_array_interface__``; allocated here if left out.
    workers : int, default 1
        Most streams that run steps at the same time, as far as the plan's hazards allow.
    seed : int, default 0
        Seed of random operators that have none of their own.
    capture : bool, default False
        Record all launches in a CUDA graph at the second run, and replay the graph from then on.

    Raises
    ------
    ExecutionError
        If the device does not exist, or software for the device is not installed.
    UnsupportedOp, UnsupportedDtype
        If neither the device nor the host can run a node; the message lists all such operators.
    InvalidOption
        If ``capture`` is set and some nodes run on the host.
    TargetMismatch, PlanError
        If the plan was made for another target or graph.
    CapacityExceeded, ArenaError
        If the caller's memory cannot hold the plan.
    """

    kind = "cuda"

    def __init__(
        self,
        graph: Graph,
        plan: Plan | None = None,
        *,
        device: str | Device = "cuda",
        arena: Any = None,
        buffers: Mapping[str, np.ndarray] | None = None,
        workers: int = 1,
        seed: int = 0,
        capture: bool = False,
    ) -> None:
        streams = whole_number(workers, "workers")
        if streams < 1:
            raise InvalidOption(f"option workers: {streams} is no number of workers")
        if buffers:
            raise InvalidOption("option buffers: a plan for a device leaves no value to the caller")
        self.device = open_device(device) if isinstance(device, str) else device
        graph = graph.for_target("cupy")
        if plan is None:
            plan = make_plan(graph, PLAN_OPTIONS, workers=streams)
        else:
            plan.check(graph)
        self.graph: Graph = graph
        self.plan = plan
        self.program: DeviceProgram = device_program(graph, plan, streams)
        """The work of a run, before it was bound to the device."""
        if capture and self.program.host_calls:
            nodes = listed(graph.nodes[call.node].name for call in self.program.host_calls)
            raise InvalidOption(
                f"option capture: nodes {nodes} run on the host, which no recording holds"
            )
        own = self.device.product_bytes if self.program.multiplies else 0
        self.scratch_bytes = self.program.outside_bytes + own * self.program.schedule.streams
        self._owns_arena = False
        self._busy = Lock()
        self.clock = Clock(whole_number(seed, "seed"))
        self._bound: _Bound | None = _Bound(self, arena)
        self._captures = capture
        self._replay: Run | None = None

    def __repr__(self) -> str:
        return f"Executor({self.graph!r}, {self.plan.arena_bytes} bytes on {self.device.name})"

    @property
    def replays(self) -> bool:
        """True if the next run is a single call that repeats a recording."""
        return self._replay is not None

    @property
    def resident_bytes(self) -> int:
        """Bytes that constants take on the device."""
        return self.program.constant_bytes

    def reset(self) -> None:
        """Do nothing: graphs with states do not run on devices."""

    @property
    def host_nodes(self) -> tuple[str, ...]:
        """Nodes that run on the host, since no kernel for devices does."""
        return tuple(self.graph.nodes[call.node].name for call in self.program.host_calls)

    @property
    def host_bytes(self) -> int:
        """Bytes of the copies and of the scratch memory that nodes on the host have there."""
        return 0 if self._bound is None else self._bound.calls.bytes

    def _let_go(self) -> None:
        self._bound = self._replay = None

    def run(
        self, inputs: Mapping[str, ArrayLike], *, borrow: bool = False, verify: bool = False
    ) -> dict[str, np.ndarray]:
        """
        Compute the graph's outputs.

        Parameters
        ----------
        inputs : mapping of str to array_like
            A host array per graph input, with exactly the input's shape and element type.
        borrow : bool, default False
            Return read-only views on staging memory, which the next run overwrites.
        verify : bool, default False
            Run the graph with NumPy, too, and compare the outputs.

        Returns
        -------
        dict of str to array
            A host array per graph output.

        Raises
        ------
        ExecutionError
            If an input is missing, unknown, or has another shape or type.
        ArenaError
            If another run is using the arena.
        ExecutionError
            If the device refused a step.
        ExecutionError
            If ``verify`` is set and an output differs.
        """
        bound = self._bound
        if bound is None:
            raise fault("ArenaState", "this executor is closed")
        given = checked_inputs(self.graph, inputs)
        if not self._busy.acquire(blocking=False):
            raise fault("ArenaBusy", "another run is using the arena")
        try:
            load(bound.staged, {at: array for at, array in given.items() if at in bound.staged})
            is_warm = self.runs > 0
            if self._captures and self._replay is None and is_warm:
                self._replay = self.device.capture(bound.streams[0], bound.enqueue)
            self.clock.run += 1
            try:
                with self.device.active(), self.device.watched() as taken:
                    (self._replay or bound.enqueue)()
                    bound.streams[0].synchronize()
                if is_warm and taken():
                    raise InternalError("a warm run took memory from the device's allocator")
            except BaseException:
                self.clock.run -= 1
                raise
            results = {
                self.graph.values[index].name: self._result(bound, index, borrow)
                for index in self.graph.outputs
            }
        finally:
            self._busy.release()
        if verify:
            self._compare(inputs, results)
        return results

    def _result(self, bound: _Bound, index: int, borrow: bool) -> np.ndarray:
        array = bound.fetched[index] if index in bound.fetched else self.graph.data(index)
        return handed_out(self.graph.values[index], array, borrow)

    def _compare(self, inputs: Mapping[str, ArrayLike], results: Mapping[str, np.ndarray]) -> None:
        with Executor(self.graph, seed=self.seed) as reference:
            reference.restore({}, runs=self.runs - 1)
            expected = reference.run(inputs)
        types = {dtype_of(v) for v in self.graph.values if v.kind != "constant"}
        close = max((_CLOSE.get((each.kind, each.itemsize), 0.0) for each in types), default=0.0)
        for name, array in expected.items():
            found = results[name]
            if array.dtype.kind not in "fc":
                is_equal = bool((array == found).all())
            else:
                largest = np.abs(array[np.isfinite(array)]).max(initial=1.0)
                is_equal = np.allclose(found, array, rtol=0, atol=close * largest, equal_nan=True)
            if not is_equal:
                raise fault(
                    "VerificationError",
                    f"output {name!r} differs from NumPy's on {self.device.name}",
                )


class _Bound:
    """A program bound to a device's memory and streams."""

    def __init__(self, executor: DeviceExecutor, arena: object | None) -> None:
        device, graph, program = executor.device, executor.graph, executor.program
        self._graph = graph
        self._program = program
        own = device.allocate(program.arena_bytes) if arena is None else device.adopt(arena)
        _check_arena(own, program.arena_bytes)
        self._memories: dict[int, Memory] = {
            ARENA: own,
            CONSTANTS: device.allocate(program.constant_bytes),
            OUTSIDE: device.allocate(program.outside_bytes),
        }
        self._functions = device.compile(program.kernels)
        self.streams = [
            device.stream(products=program.multiplies) for _ in range(program.schedule.streams)
        ]
        first = self.streams[0]
        self.calls = HostCalls(device, graph, program.host_calls, executor.clock)
        self._load_constants(device, first)
        self.staged, uploads = self._staging(device, graph.inputs)
        self.fetched, downloads = self._staging(device, graph.outputs)
        runs: list[tuple[str, Run]] = [
            ("inputs", first.upload(array, self._array(program.values[index], _BYTE)))
            for index, array in uploads.items()
        ]
        others = self.streams[1:]
        if others:
            started = device.event()
            runs.append(("streams", first.record(started)))
            runs += [("streams", stream.wait(started)) for stream in others]
        runs += self._steps(device)
        for stream in others:
            ended = device.event()
            runs += [("streams", stream.record(ended)), ("streams", first.wait(ended))]
        runs += [
            ("outputs", first.download(self._array(program.values[index], _BYTE), array))
            for index, array in downloads.items()
        ]
        self._runs = runs

    def enqueue(self) -> None:
        """
        Put a run's work into the streams.

        Raises
        ------
        ExecutionError
            If the device refuses some work.
        """
        for name, run in self._runs:
            try:
                run()
            except Exception as error:
                raise fault("KernelError", f"{name} failed: {error}") from error

    def _load_constants(self, device: Device, stream: Stream) -> None:
        """Copy the constants to the device, through a single staging block."""
        staging = device.staging(self._program.constant_bytes)
        for index, (_, start, stop) in self._program.constants.items():
            if start < stop:
                data = np.ascontiguousarray(self._graph.data(index))
                staging[start:stop] = data.reshape(-1).view(np.uint8)
        if self._program.constant_bytes:
            whole = DeviceSpan(CONSTANTS, 0, self._program.constant_bytes)
            stream.upload(staging, self._array(whole, _BYTE))()
            stream.synchronize()

    def _staging(
        self, device: Device, values: Sequence[int]
    ) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
        """Return staging arrays for some values, and the bytes for each value that has any."""
        arrays, flat = {}, {}
        for index in dict.fromkeys(values):
            if index not in self._program.values:
                continue
            _, start, stop = self._program.values[index]
            memory = device.staging(stop - start)
            arrays[index] = array_at(self._graph, index, memory)
            if start < stop:
                flat[index] = memory
        return arrays, flat

    def _steps(self, device: Device) -> list[tuple[str, Run]]:
        """Return named functions that put the steps into streams."""
        plan = self._program.schedule
        events = {step: device.event() for step in plan.recorded}
        runs = []
        for position, step in enumerate(self._program.steps):
            if not step.works:
                continue
            stream = self.streams[plan.stream[position]]
            node = self._graph.nodes[step.node]
            name = f"node {node.name!r} ({node.op})"
            runs += [(name, stream.wait(events[other])) for other in plan.waits[position]]
            runs += [(name, self._prepared(stream, step, work)) for work in step.works]
            if position in events:
                runs.append((name, stream.record(events[position])))
        return runs

    def _prepared(self, stream: Stream, step: DeviceStep, work: Work) -> Run:
        """Return a function that puts a piece of work into a stream."""
        if isinstance(work, Launch):
            function = self._functions[work.kernel.name]
            arrays = [self._array(step.spans[place], _BYTE) for place in work.arguments]
            return stream.launch(function, work.grid, arrays, work.scalars)
        if isinstance(work, DeviceCopy):
            return stream.copy(
                self._array(step.spans[work.source], _BYTE),
                self._array(step.spans[work.target], _BYTE),
            )
        if isinstance(work, HostCall):

            def memory(place: DevicePlace, size: int) -> Any:
                memory, start, _ = step.spans[place]
                return self._array(DeviceSpan(memory, start, start + size), _BYTE)

            return self.calls.bind(stream, work, memory)
        return self._product(stream, step, work)

    def _product(self, stream: Stream, step: DeviceStep, work: DeviceProduct) -> Run:
        def operand(matrix: Matrix) -> Any:
            memory, start, stop = step.spans[matrix.place]
            first = start + matrix.offset * work.dtype.itemsize
            return self._array(DeviceSpan(memory, first, stop), work.dtype)

        return stream.product(work, operand(work.a), operand(work.b), operand(work.c))

    def _array(self, span: DeviceSpan, dtype: np.dtype[Any]) -> Any:
        count = (span.stop - span.start) // dtype.itemsize
        return self._memories[span.memory].view(span.start, (count,), dtype)


def _check_arena(memory: Memory, needed: int) -> None:
    if memory.bytes < needed:
        raise CapacityExceeded(f"the arena has {memory.bytes} bytes, and the plan needs {needed}")
    if needed and memory.address % ALIGNMENT:
        raise fault(
            "MisalignedBuffer",
            f"the arena does not start at a multiple of {ALIGNMENT} bytes, as the plan asks",
        )


def open_device(name: str) -> Device:
    """
    Return the device with a name: ``"cuda"``, or ``"cuda:1"`` for the second device.

    Raises
    ------
    InvalidOption
        If no device has such a name.
    ExecutionError
        If the device does not exist, or software for the device is not installed.
    """
    kind, separator, number = name.partition(":")
    is_number = number.isascii() and number.isdigit()
    if kind != "cuda" or (separator and not is_number):
        raise InvalidOption(f"option device: {name!r} is not cpu, cuda or cuda:NUMBER")
    from arenaplan.run.cuda.cuda import CudaDevice

    return CudaDevice(int(number) if separator else 0)
