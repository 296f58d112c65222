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
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from arenaplan.errors import UnsupportedOp, WorkspaceOverrun
from arenaplan.graph import Choice

Run: TypeAlias = Callable[[], object]
Prepare: TypeAlias = "Callable[[Step], Run | None]"
Declare: TypeAlias = "Callable[[Signature], Sequence[Sequence[Choice]]]"


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

    def input(self, position: int) -> Tensor | None:
        """Return operand ``position``, or ``None`` if it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def constant_data(self, position: int) -> np.ndarray | None:
        """Return the data of input ``position`` if it is a constant, else ``None``."""
        load = self.constant[position] if position < len(self.constant) else None
        return None if load is None else load()


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
    epilogue: tuple[Step, ...] = ()
    """Later steps that work in place on this one's output, for this kernel to do as
    well. Empty unless the kernel was registered with ``epilogue=True``."""

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


class Scratch:
    """Cuts arrays off a workspace, one after another, at multiples of 64 bytes."""

    def __init__(self, memory: np.ndarray, node: str) -> None:
        self._memory = memory
        self._node = node
        self._used = 0

    def array(self, shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        """
        Return the next array of the workspace.

        Raises
        ------
        WorkspaceOverrun
            If less than that was planned.
        """
        dtype = np.dtype(dtype)
        size = scratch_bytes(shape, dtype)
        start, self._used = self._used, self._used + size
        count = prod(shape) * dtype.itemsize
        if start + count > self._memory.nbytes:
            raise WorkspaceOverrun(
                f"node {self._node!r} needs {start + count} bytes of workspace, "
                f"and the plan gives it {self._memory.nbytes}"
            )
        piece: np.ndarray = self._memory[start : start + count].view(dtype)
        return piece.reshape(shape)


def scratch_bytes(shape: Sequence[int], dtype: Any = np.float32) -> int:
    """Return how many bytes :meth:`Scratch.array` takes for such an array."""
    item: int = np.dtype(dtype).itemsize
    return -(-prod(shape) * item // 64) * 64


@dataclass(frozen=True, slots=True)
class Kernel:
    """How one operator is run, and what scratch memory that takes."""

    prepare: Prepare
    workspace: Declare | None = None
    since: int = 1
    """First operator-set version whose meaning this is."""
    epilogue: bool = False
    """Whether it performs :attr:`Step.epilogue`."""


_KERNELS: dict[tuple[str, str], list[Kernel]] = {}


def kernel(
    *ops: str,
    domain: str = "",
    since: int = 1,
    workspace: Declare | None = None,
    epilogue: bool = False,
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
    epilogue : bool, default False
        Whether the kernel can perform later elementwise steps on its output while
        that is still in cache.
    """

    def register(prepare: Prepare) -> Prepare:
        for op in ops:
            versions = _KERNELS.setdefault((domain, op), [])
            versions.append(Kernel(prepare, workspace, since, epilogue))
            versions.sort(key=lambda known: -known.since)
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
            return known
    raise UnsupportedOp(
        f"node {signature.name!r}: no kernel runs operator "
        f"{signature.domain or 'ai.onnx'}::{signature.op} version {signature.version}"
    )


def supported_ops() -> list[str]:
    """Return the names of all operators of the default domain that have a kernel."""
    return sorted(op for domain, op in _KERNELS if not domain)
