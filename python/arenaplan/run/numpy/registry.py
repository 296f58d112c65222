"""
Kernels: the computation of one operator into planned memory.

A kernel is a small function, called once before the first run with the arrays that all runs
will use. The kernel prepares what is possible (reshaped weights, slices, index tables) and
returns a function without arguments that does the work::

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
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from arenaplan.base.errors import PlannerError, UnsupportedOp, fault
from arenaplan.graph import Choice, Node
from arenaplan.graph.ops.boxes import Box
from arenaplan.graph.ops.own_ops import undeclared

_In = TypeVar("_In")
_Out = TypeVar("_Out")

Run: TypeAlias = Callable[[], object]
Prepare: TypeAlias = "Callable[[Step], Run | None]"
Declare: TypeAlias = "Callable[[Signature], Sequence[Sequence[Choice]]]"

MICROSOFT = "com.microsoft"
"""Domain for the operators that ONNX Runtime adds to the standard operators."""
INTERNAL = "arenaplan"
"""Domain for kernels from which others are made; no model can contain such operators."""


class Tensor(NamedTuple):
    """An operand's shape and element type."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Signature:
    """The facts about a node that are known before memory is: enough to declare workspaces."""

    name: str
    op: str
    domain: str
    version: int
    attributes: Mapping[str, Any]
    inputs: tuple[Tensor | None, ...]
    """Operands to read; ``None`` where an optional operand is left out."""
    outputs: tuple[Tensor | None, ...]
    """Operands to write; ``None`` where an optional operand is left out."""
    constant: tuple[Callable[[], np.ndarray] | None, ...]
    """For each input, a function that returns the data of a constant, else ``None``."""

    def input(self, position: int) -> Tensor | None:
        """Return operand ``position``, or ``None`` if left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def operand(self, position: int) -> Tensor:
        """Return operand ``position``, which no node leaves out."""
        tensor = self.inputs[position]
        assert tensor is not None, "the operator needs it"
        return tensor

    def result(self, position: int = 0) -> Tensor:
        """Return output ``position``, which the node makes."""
        tensor = self.outputs[position]
        assert tensor is not None, "the node makes it"
        return tensor

    def constant_data(self, position: int) -> np.ndarray | None:
        """Return the data for input ``position`` if constant, else ``None``."""
        load = self.constant[position] if position < len(self.constant) else None
        return None if load is None else load()


@dataclass(slots=True)
class Clock:
    """The state that changes between runs with the same steps, besides the inputs."""

    seed: int = 0
    """Seed for random operators without a seed."""
    run: int = 0
    """Number of the run."""


@dataclass(frozen=True, slots=True)
class Step:
    """A node together with the memory that the node runs on."""

    signature: Signature
    inputs: tuple[np.ndarray | None, ...]
    """Arrays to read. Constants are read-only."""
    outputs: tuple[np.ndarray | None, ...]
    """Arrays to write. An output may be exactly an input's array where the node's effects permit
    sharing (in place, or a view); otherwise the output shares no byte with an input.
    """
    workspaces: tuple[np.ndarray, ...]
    """Scratch bytes, one ``uint8`` array per declared workspace."""
    guests: Guests | None = None
    """Other members that the kernel performs."""
    kept: dict[str, np.ndarray] = field(default_factory=dict)
    """Results by the kernel for the same constants from earlier preparations of other node parts.
    """
    is_apart: bool = False
    """Whether values inside the node share no memory, for a run that is compared with this run."""
    clock: Clock = field(default_factory=Clock)
    """The clock for all steps of an executor."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The node's attributes."""
        return self.signature.attributes

    def input(self, position: int) -> np.ndarray | None:
        """Return the array for input ``position``, or ``None`` if left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def output(self, position: int) -> np.ndarray | None:
        """Return the array for output ``position``, or ``None`` if left out."""
        return self.outputs[position] if position < len(self.outputs) else None

    def scratch(self, slot: int = 0) -> Scratch:
        """Return an allocator over workspace ``slot``."""
        return Scratch(self.workspaces[slot], self.signature.name)


class Guests(NamedTuple):
    """Elementwise group members that another member's kernel performs, bound to memory."""

    channel_affine: Callable[[], tuple[np.ndarray | None, np.ndarray | None]]
    """Returns a scale and a shift per channel, which the kernel applies to the weights."""
    addend: np.ndarray | None
    """The addend for the result after scale and shift: the result's memory, or apart from it. Only
    kernels for which :attr:`Kernel.adds` holds are asked to add."""
    bounds: tuple[float, float]
    """The bounds for the kernel's results, after scale, shift and addend."""


class Scratch:
    """Cuts consecutive arrays off a workspace, at multiples of 64 bytes."""

    def __init__(self, memory: np.ndarray, node: str) -> None:
        self._memory = memory
        self._node = node
        self._used = 0

    @property
    def left(self) -> int:
        """Remaining bytes."""
        return self._memory.nbytes - self._used

    def rest(self) -> Scratch:
        """Return an allocator over the remaining bytes, without taking bytes from this scratch."""
        return Scratch(self._memory[self._used :], self._node)

    def array(self, shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        """
        Return the next array in the workspace.

        Raises
        ------
        ExecutionError
            If the planned workspace is too small.
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
    """Return the bytes that :meth:`Scratch.array` takes for an array."""
    item: int = np.dtype(dtype).itemsize
    return padded(prod(shape) * item)


def padded(size: int) -> int:
    """Return the bytes that a block of scratch memory takes: arrays begin at multiples of 64."""
    return -(-size // 64) * 64


@dataclass(frozen=True, slots=True)
class Cut:
    """The cut for an operator with a single output; see :mod:`arenaplan.run.numpy.cuts`."""

    operands: Callable[[Signature, Box], Sequence[Box | None]]
    """Returns the part of each input that a part of output 0 needs; ``None`` for the whole input.
    """
    pointwise: bool = False
    """Whether any part can be made, also a part that is not contiguous in memory."""
    attributes: Callable[[Signature, Box], Mapping[str, Any]] | None = None
    """Returns the attributes for a node that makes only a part of output 0, if they differ."""
    time: Callable[[Signature], float] | None = None
    """For operators on images: estimated nanoseconds, if the operator needs no scratch memory.
    Otherwise the scratch choices tell the time.
    """
    by_rows: Cut | None = None
    """Another cut, if rows of all channels are cut in another way."""

    @property
    def slides(self) -> bool:
        """True if a part may also have several channels with only some rows each."""
        return self.pointwise or self.time is not None


@dataclass(frozen=True, slots=True)
class Kernel:
    """An operator's kernel, with scratch memory."""

    prepare: Prepare
    workspace: Declare | None = None
    since: int = 1
    """First operator-set version with this meaning."""
    cut: Cut | None = None
    """The way to run the kernel on operand parts, if possible."""
    hosts: Callable[[Signature], bool] | None = None
    """Tells whether the kernel performs :attr:`Step.guests`."""
    adds: Callable[[Signature], bool] | None = None
    """Tells whether the kernel adds :attr:`Guests.addend` to its results."""
    in_order: bool = False
    """Whether the kernel writes output 0 from the first byte to the last, and each byte after
    reading everything that the node's effects state: the output may then overlap an input as the
    effects permit.
    """

    @property
    def is_pointwise(self) -> bool:
        """True if the kernel can run on any part of the operands."""
        return self.cut is not None and self.cut.pointwise


_KERNELS: dict[tuple[str, str], list[Kernel]] = {}
_ADAPTERS: list[Callable[[Kernel, Signature], Kernel]] = []


def kernel(
    *ops: str,
    domain: str = "",
    since: int = 1,
    workspace: Declare | None = None,
    cut: Cut | None = None,
    hosts: Callable[[Signature], bool] | None = None,
    adds: Callable[[Signature], bool] | None = None,
    in_order: bool = False,
) -> Callable[[Prepare], Prepare]:
    """
    Register the decorated function for some operators.

    Parameters
    ----------
    ops : str
        Operator names.
    since : int, default 1
        First operator set version that the kernel implements. A node gets the newest kernel
        not after the node's version.
    workspace : callable, optional
        Returns, for a :class:`Signature`, a sequence of :class:`Choice` per
        workspace. A choice with fewer bytes costs more time.
    cut : Cut, optional
        How to run the kernel on operand parts, so that the node can run in a group, piece by
        piece.
    hosts : callable, optional
        Tells whether the kernel performs a node's elementwise group members: :class:`Guests`.
    adds : callable, optional
        Tells whether the kernel also performs an addition for a node: :attr:`Guests.addend`.
    in_order : bool, default False
        Whether the output may overlap an input without staging: :attr:`Kernel.in_order`.
    """

    def register(prepare: Prepare) -> Prepare:
        for op in ops:
            versions = _KERNELS.setdefault((domain, op), [])
            versions.append(Kernel(prepare, workspace, since, cut, hosts, adds, in_order))
            versions.sort(key=lambda known: -known.since)
        return prepare

    return register


def set_kernel(op: str, domain: str, kernel: Kernel | None) -> None:
    """Replace all kernels for an operator with the given kernel, or with none."""
    _KERNELS[domain, op] = [] if kernel is None else [kernel]


class _Compiled(NamedTuple):
    """An operator's compiled kernel."""

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
    Register the decorated function in place of some operators' kernels, for some nodes.

    Everything else given to :func:`kernel` for the operators applies here, too.

    Parameters
    ----------
    when : callable
        Tells whether the function runs a node; then the function also runs any part of the node.
    workspace : callable, optional
        As in :func:`kernel`.
    """

    def register(prepare: Prepare) -> Prepare:
        for op in ops:
            _COMPILED[domain, op] = _Compiled(when, prepare, workspace)
        return prepare

    return register


def plain_kernel(node: Signature | Node) -> Kernel:
    """
    Return the kernel that is registered for an operator, for any operands.

    Raises
    ------
    UnsupportedOp
        If no kernel is registered.
    """
    domain = "" if node.domain == "ai.onnx" else node.domain
    for known in _KERNELS.get((domain, node.op), ()):
        if known.since <= max(node.version, 1):
            return known
    raise UnsupportedOp(
        f"node {node.name!r}: no kernel runs operator "
        f"{node.domain or 'ai.onnx'}::{node.op} version {node.version}"
        + undeclared(domain, "kernel")
    )


def find_kernel(signature: Signature) -> Kernel:
    """
    Return the kernel that runs a node.

    Raises
    ------
    UnsupportedOp
        If no kernel runs the node.
    """
    known = adapted = plain_kernel(signature)
    for adapt in _ADAPTERS:
        adapted = adapt(adapted, signature)
    domain = "" if signature.domain == "ai.onnx" else signature.domain
    variant = _COMPILED.get((domain, signature.op))
    if adapted is not known or variant is None or not variant.when(signature):
        return adapted
    prepare = variant.prepare if variant.workspace else _or_plain(variant.prepare, known)
    return replace(known, prepare=prepare, workspace=variant.workspace)


def _or_plain(compiled: Prepare, plain: Kernel) -> Prepare:
    """Return a function that prepares a compiled kernel, or ``plain`` for unaligned arrays."""

    def prepare(step: Step) -> Run | None:
        arrays = (array for array in (*step.inputs, *step.outputs) if array is not None)
        is_aligned = all(array.flags.aligned for array in arrays)
        return compiled(step) if is_aligned else plain.prepare(step)

    return prepare


def adapter(adapt: Callable[[Kernel, Signature], Kernel]) -> Callable[[Kernel, Signature], Kernel]:
    """Register a function that adapts a kernel to a node's element types."""
    _ADAPTERS.append(adapt)
    return adapt


def attributed(function: Callable[[_In], _Out], argument: _In, signature: Signature) -> _Out:
    """Call a part of a kernel, so that NumPy errors name the node."""
    try:
        return function(argument)
    except (PlannerError, MemoryError):
        raise
    except Exception as error:
        where = f"node {signature.name!r} ({signature.op})"
        raise fault("KernelError", f"{where} cannot be prepared: {error}") from error


def supported_ops(domain: str = "") -> list[str]:
    """
    Return the names of all operators in a domain that have a kernel.

    Parameters
    ----------
    domain : str, default ""
        The default is the ONNX domain; others are ``"tflite"`` and ``"tflite.custom"``.
    """
    return sorted(op for (known, op), kernels in _KERNELS.items() if known == domain and kernels)
