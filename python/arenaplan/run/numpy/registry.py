"""
Kernels: how one operator is computed into memory that was planned for it.

A kernel is a small function that is called once, before the first run, with the
arrays it will work on for ever after. It prepares what it can (reshaped weights,
slices, index tables) and returns a function without arguments that does the work::

    @kernel("Relu")
    def relu(step: Step) -> Run:
        x, y = step.inputs[0], step.outputs[0]
        return partial(np.clip, x, 0, np.inf, out=y)

The returned function must not allocate: scratch memory is declared beforehand
with ``workspace=``, planned like any buffer, and arrives in ``step.workspaces``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from arenaplan.base.errors import PlannerError, UnsupportedOp, fault
from arenaplan.graph import Choice
from arenaplan.graph.ops.boxes import Box
from arenaplan.graph.ops.own_ops import undeclared

_In = TypeVar("_In")
_Out = TypeVar("_Out")

Run: TypeAlias = Callable[[], object]
Prepare: TypeAlias = "Callable[[Step], Run | None]"
Declare: TypeAlias = "Callable[[Signature], Sequence[Sequence[Choice]]]"

MICROSOFT = "com.microsoft"
"""Domain of the operators that ONNX Runtime adds to the standard ones."""
INTERNAL = "arenaplan"
"""Domain of kernels that others are made of, which no model can contain."""


class Tensor(NamedTuple):
    """Shape and element type of an operand."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Signature:
    """All of a node that is known before memory is: enough to declare workspaces."""

    name: str
    op: str
    domain: str
    version: int
    attributes: Mapping[str, Any]
    inputs: tuple[Tensor | None, ...]
    """Operands read; ``None`` where an optional one is left out."""
    outputs: tuple[Tensor | None, ...]
    """Operands written; ``None`` where an optional one is left out."""
    constant: tuple[Callable[[], np.ndarray] | None, ...]
    """Per input, a function that returns its data if it is a constant, else ``None``."""
    guests: Guests | None = None
    """Further work of the kernel, tile by tile. ``None`` unless the kernel was registered with
    ``hosts=True``."""

    def input(self, position: int) -> Tensor | None:
        """Return operand ``position``, or ``None`` if it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def constant_data(self, position: int) -> np.ndarray | None:
        """Return the data of input ``position`` if it is a constant, else ``None``."""
        load = self.constant[position] if position < len(self.constant) else None
        return None if load is None else load()


@dataclass(slots=True)
class Clock:
    """What changes from run to run of the same steps, besides their inputs."""

    seed: int = 0
    """Seed of random operators that have none of their own."""
    run: int = 0
    """Number of the run."""


@dataclass(frozen=True, slots=True)
class Step:
    """A node together with the memory it runs on."""

    signature: Signature
    inputs: tuple[np.ndarray | None, ...]
    """Arrays to read. Constants are read-only."""
    outputs: tuple[np.ndarray | None, ...]
    """Arrays to write. One may be exactly the array of an input where the node's
    effects permit it (in place, or a view); otherwise it shares no byte with one."""
    workspaces: tuple[np.ndarray, ...]
    """Scratch bytes, one ``uint8`` array per declared workspace."""
    guests: BoundGuests | None = None
    """:attr:`Signature.guests` with their memory."""
    kept: dict[str, np.ndarray] = field(default_factory=dict)
    """Results of the kernel for the same constants when it prepared other parts of the node."""
    is_apart: bool = False
    """Whether values inside of the node share no memory, since a run is compared with this one."""
    clock: Clock = field(default_factory=Clock)
    """The clock of all steps of an executor."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The node's attributes."""
        return self.signature.attributes

    def input(self, position: int) -> np.ndarray | None:
        """Return the array of input ``position``, or ``None`` if it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def output(self, position: int) -> np.ndarray | None:
        """Return the array of output ``position``, or ``None`` if it is left out."""
        return self.outputs[position] if position < len(self.outputs) else None

    def scratch(self, slot: int = 0) -> Scratch:
        """Return an allocator over workspace ``slot``."""
        return Scratch(self.workspaces[slot], self.signature.name)


class Guests(Protocol):
    """
    Elementwise members of a group, which the kernel of another member performs.

    They change the tiles that the kernel loads from its input 0, or its results, tile by tile
    while these are in cache. See :mod:`arenaplan.run.numpy.hosting`.
    """

    @property
    def loads(self) -> bool:
        """Whether input 0 has to be loaded by :meth:`BoundGuests.load_part`."""

    @property
    def needs_tile(self) -> bool:
        """Whether results must not be written to the output before they are finished."""

    @property
    def needs_scratch(self) -> bool:
        """Whether finishing a tile takes scratch memory besides the tile."""

    @property
    def finishes(self) -> bool:
        """Whether members work on a tile of results."""

    @property
    def by_planes(self) -> bool:
        """
        Whether the output may share memory with input 0.

        The kernel then makes plane after plane, and reads a plane of input 0 before it writes the
        same plane of the output. Only one whose :attr:`Kernel.by_planes` agrees is asked for that.
        """

    def bytes(self, tile: Box) -> int:
        """Return the scratch memory for finishing a tile, without the tile itself."""

    def load_bytes(self, part: Box) -> int:
        """Return the scratch memory for loading a part of input 0, without the part."""


class BoundGuests(Guests, Protocol):
    """Such members and the memory that they run on."""

    def channel_affine(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return a scale and a shift per channel, which the kernel applies to its weights."""

    def addend(self, tile: Box) -> np.ndarray | None:
        """Return what is added to a tile of results after scale and shift, if anything is.

        It is the tile's memory, or shares no byte with it. Only a kernel that :attr:`Kernel.adds`
        is asked to add.
        """

    def bounds(self) -> tuple[float, float]:
        """Return the bounds of the kernel's results, after scale, shift and addend."""

    def finish(self, tile: Box, source: np.ndarray, scratch: Scratch) -> list[Run]:
        """Return a function that turns a tile of results into one of the group's output."""

    def load_part(self, part: Box, target: np.ndarray, scratch: Scratch) -> list[Run]:
        """Return a function that writes a part of input 0 to ``target``."""


class Scratch:
    """Cuts arrays off a workspace, one after another, at multiples of 64 bytes."""

    def __init__(self, memory: np.ndarray, node: str) -> None:
        self._memory = memory
        self._node = node
        self._used = 0

    @property
    def left(self) -> int:
        """Bytes that are left."""
        return self._memory.nbytes - self._used

    def rest(self) -> Scratch:
        """Return an allocator over the remaining bytes, which leaves this one as it is."""
        return Scratch(self._memory[self._used :], self._node)

    def array(self, shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        """
        Return the next array of the workspace.

        Raises
        ------
        ExecutionError
            If less than that was planned.
        """
        dtype = np.dtype(dtype)
        size = scratch_bytes(shape, dtype)
        start, self._used = self._used, self._used + size
        count = prod(shape) * dtype.itemsize
        if start + count > self._memory.nbytes:
            raise fault(
                "WorkspaceOverrun",
                f"node {self._node!r} needs {start + count} bytes of workspace, "
                f"and the plan gives it {self._memory.nbytes}",
            )
        piece: np.ndarray = self._memory[start : start + count].view(dtype)
        return piece.reshape(shape)


def scratch_bytes(shape: Sequence[int], dtype: Any = np.float32) -> int:
    """Return how many bytes :meth:`Scratch.array` takes for such an array."""
    item: int = np.dtype(dtype).itemsize
    return -(-prod(shape) * item // 64) * 64


@dataclass(frozen=True, slots=True)
class Cut:
    """The cut of an operator that has one output; see :mod:`arenaplan.run.numpy.cuts`."""

    operands: Callable[[Signature, Box], Sequence[Box | None]]
    """Returns the part of each input that a part of output 0 needs; ``None`` for all of it."""
    pointwise: bool = False
    """Whether any part can be made, also one that is not contiguous in memory."""
    attributes: Callable[[Signature, Box], Mapping[str, Any]] | None = None
    """Returns the attributes of a node that makes a part of output 0 only, if others."""
    time: Callable[[Signature], float] | None = None
    """For operators on images: about how many nanoseconds one takes that needs no scratch
    memory. If it does, its choices tell."""
    by_rows: Cut | None = None
    """Another cut, if rows of all channels are cut in another way."""

    @property
    def slides(self) -> bool:
        """Whether parts of several channels and some rows of each can be made, too."""
        return self.pointwise or self.time is not None


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel of one operator, and its scratch memory."""

    prepare: Prepare
    workspace: Declare | None = None
    since: int = 1
    """First operator-set version whose meaning this is."""
    cut: Cut | None = None
    """The way to run it on a part of its operands, if that is possible."""
    hosts: bool = False
    """Whether it performs :attr:`Step.guests`."""
    adds: Callable[[Signature], bool] | None = None
    """Tells whether it adds :meth:`BoundGuests.addend` to its results."""
    by_planes: Callable[[Signature], bool] | None = None
    """Tells whether it can work on :attr:`Guests.by_planes`."""
    in_order: bool = False
    """Whether it writes output 0 from the first byte to the last, and each byte after it has read
    all that its node's effects say: the output may then overlap an input as these permit."""

    @property
    def is_pointwise(self) -> bool:
        """Whether it can be run on any part of its operands."""
        return self.cut is not None and self.cut.pointwise


_KERNELS: dict[tuple[str, str], list[Kernel]] = {}
_ADAPTERS: list[Callable[[Kernel, Signature], Kernel]] = []


def kernel(
    *ops: str,
    domain: str = "",
    since: int = 1,
    workspace: Declare | None = None,
    cut: Cut | None = None,
    hosts: bool = False,
    adds: Callable[[Signature], bool] | None = None,
    by_planes: Callable[[Signature], bool] | None = None,
    in_order: bool = False,
) -> Callable[[Prepare], Prepare]:
    """
    Register the decorated function for some operators.

    Parameters
    ----------
    ops : str
        Operator names.
    since : int, default 1
        First version of the operator set that it implements; the newest one not
        after a node's version is taken.
    workspace : callable, optional
        Returns, for a :class:`Signature`, one sequence of :class:`Choice` per
        workspace of the node. A choice with fewer bytes costs more time.
    cut : Cut, optional
        How to run it on parts of its operands, so that its node can run as one with
        others, piece by piece.
    hosts : bool, default False
        Whether the kernel performs elementwise members of a group: :class:`Guests`.
    adds : callable, optional
        Tells whether it performs an addition for a node, too: :meth:`BoundGuests.addend`.
    by_planes : callable, optional
        Tells whether it can write the planes of its output over those of its input, one by one.
    in_order : bool, default False
        Whether the output may overlap an input without staging: :attr:`Kernel.in_order`.
    """

    def register(prepare: Prepare) -> Prepare:
        for op in ops:
            versions = _KERNELS.setdefault((domain, op), [])
            versions.append(
                Kernel(prepare, workspace, since, cut, hosts, adds, by_planes, in_order)
            )
            versions.sort(key=lambda known: -known.since)
        return prepare

    return register


def set_kernel(op: str, domain: str, kernel: Kernel | None) -> None:
    """Give an operator a kernel in the place of all that it has, or none."""
    _KERNELS[domain, op] = [] if kernel is None else [kernel]


class _Compiled(NamedTuple):
    """The compiled kernel of an operator."""

    when: Callable[[Signature], bool]
    prepare: Prepare
    workspace: Declare | None


_COMPILED: dict[tuple[str, str], _Compiled] = {}


def compiled_kernel(
    *ops: str,
    domain: str = "",
    when: Callable[[Signature], bool],
    workspace: Declare | None = None,
) -> Callable[[Prepare], Prepare]:
    """
    Register the decorated function in place of the kernel of some operators, for some nodes.

    All else that :func:`kernel` says of the operators holds for it, too.

    Parameters
    ----------
    when : callable
        Tells whether it runs a node; if it does, it runs any part of the node.
    workspace : callable, optional
        As in :func:`kernel`.
    """

    def register(prepare: Prepare) -> Prepare:
        for op in ops:
            _COMPILED[domain, op] = _Compiled(when, prepare, workspace)
        return prepare

    return register


def find_kernel(signature: Signature) -> Kernel:
    """
    Return the kernel that runs a node.

    Raises
    ------
    UnsupportedOp
        If there is none.
    """
    domain = "" if signature.domain == "ai.onnx" else signature.domain
    for known in _KERNELS.get((domain, signature.op), ()):
        if known.since <= max(signature.version, 1):
            adapted = known
            for adapt in _ADAPTERS:
                adapted = adapt(adapted, signature)
            variant = _COMPILED.get((domain, signature.op))
            if adapted is not known or variant is None or not variant.when(signature):
                return adapted
            prepare = variant.prepare if variant.workspace else _or_plain(variant.prepare, known)
            return replace(known, prepare=prepare, workspace=variant.workspace)
    raise UnsupportedOp(
        f"node {signature.name!r}: no kernel runs operator "
        f"{signature.domain or 'ai.onnx'}::{signature.op} version {signature.version}"
        + undeclared(domain, "kernel")
    )


def _or_plain(compiled: Prepare, plain: Kernel) -> Prepare:
    """Return a function that prepares a compiled kernel, or the plain one for unaligned arrays."""

    def prepare(step: Step) -> Run | None:
        arrays = (array for array in (*step.inputs, *step.outputs) if array is not None)
        is_aligned = all(array.flags.aligned for array in arrays)
        return compiled(step) if is_aligned else plain.prepare(step)

    return prepare


def adapter(adapt: Callable[[Kernel, Signature], Kernel]) -> Callable[[Kernel, Signature], Kernel]:
    """Register a function that returns, for the element types of a node, a kernel of a kernel."""
    _ADAPTERS.append(adapt)
    return adapt


def attributed(function: Callable[[_In], _Out], argument: _In, signature: Signature) -> _Out:
    """Call a part of a kernel, so that an error of NumPy's names the node it arose in."""
    try:
        return function(argument)
    except (PlannerError, MemoryError):
        raise
    except Exception as error:
        where = f"node {signature.name!r} ({signature.op})"
        raise fault("KernelError", f"{where} cannot be prepared: {error}") from error


def supported_ops(domain: str = "") -> list[str]:
    """
    Return the names of all operators of a domain that have a kernel.

    Parameters
    ----------
    domain : str, default ""
        The default domain is that of ONNX; ``"tflite"`` and ``"tflite.custom"`` are others.
    """
    return sorted(op for (known, op), kernels in _KERNELS.items() if known == domain and kernels)
