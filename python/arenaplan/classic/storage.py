"""Run-time memory from storage ids: a buffer per id, a view per value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from arenaplan import _core
from arenaplan._core import StoragePlan
from arenaplan.base.arguments import typed
from arenaplan.base.errors import UndefinedValue, fault
from arenaplan.graph import Graph

ALIGNMENT = 64
"""Address alignment for every buffer, in bytes."""


@dataclass(frozen=True, slots=True)
class StorageEntry:
    """A value's array, and the value's block."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    storage_id: int
    device: str = "arena"

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * _dtype(self.dtype, self.name).itemsize


class StorageOperand(NamedTuple):
    """A node's result, as an operand of a later node."""

    node: int
    """Position of the node that makes the value."""
    output: int
    """Index of the value among the node's results."""
    version: int
    """How often the value was overwritten, this node included."""


class StorageNode(NamedTuple):
    """A node in a graph runtime."""

    op: str
    """``"null"`` for a value without a producer, ``"tvm_op"`` for a function call."""
    name: str
    """The node's name: that of the first result, if there is one."""
    inputs: tuple[StorageOperand, ...]
    """Results from earlier nodes."""
    attributes: Mapping[str, str]
    """Attributes; ``func_name`` is a call's operator."""
    after: tuple[int, ...]
    """Positions of earlier nodes that must run first without being operands."""


class StoragePool:
    """
    Buffers and views for a graph planned with storage ids.

    Sizes are not needed: a buffer is as large as the largest value in it.

    Parameters
    ----------
    entries : iterable of StorageEntry
        Every value, with a storage id of 0 or more.
    inputs, outputs : iterable of str
        Names of values that the caller supplies and receives.
    reuse : StoragePool, optional
        A pool whose buffers are reused where large enough, so that two pools need no more bytes
        than the larger pool. Values from both pools must not be live together.

    Raises
    ------
    ArenaError
        If a value has no storage id, or an id is on two devices.

    Examples
    --------
    >>> from arenaplan.classic import StorageEntry, StoragePool
    >>> pool = StoragePool(
    ...     [StorageEntry("a", (2, 3), "float32", 0), StorageEntry("b", (4,), "int8", 0)]
    ... )
    >>> pool.nbytes, pool["a"].shape
    (24, (2, 3))
    """

    @typed
    def __init__(
        self,
        entries: Iterable[StorageEntry],
        inputs: Iterable[str] = (),
        outputs: Iterable[str] = (),
        *,
        reuse: StoragePool | None = None,
    ) -> None:
        entries = tuple(entries)
        devices = sorted({entry.device for entry in entries})
        rows = [
            (it.name, it.shape, _dtype(it.dtype, it.name).name, it.storage_id, number)
            for it in entries
            for number in (devices.index(it.device),)
        ]
        layout = _core.StorageLayout(rows, list(inputs), list(outputs))
        self._set_up(layout, dict(enumerate(devices)), reuse)

    def _set_up(
        self, layout: _core.StorageLayout, devices: Mapping[int, str], reuse: StoragePool | None
    ) -> None:
        """Allocate the blocks in ``layout``; ``devices`` names devices by number."""
        self._layout = layout
        self.entries = tuple(
            StorageEntry(name, tuple(shape), dtype, number, devices[device])
            for name, shape, dtype, number, device in layout.entries
        )
        self.inputs = tuple(layout.inputs)
        self.outputs = tuple(layout.outputs)
        self.nodes = tuple(
            StorageNode(
                op, name, tuple(StorageOperand(*it) for it in read), attributes, tuple(after)
            )
            for op, name, read, attributes, after in layout.nodes
        )
        """Nodes in execution order; a value without a producer has a node, too."""
        numbers = {name: number for number, name in devices.items()}
        free, known = [], []
        if reuse is not None:
            for key, buffer in reuse.buffers.items():
                number = numbers.get(reuse.devices[key])
                if number is not None:
                    free.append(buffer)
                    known.append((buffer.nbytes, number))
        self.devices: dict[int, str] = {}
        """Device of every storage id."""
        self.buffers: dict[int, np.ndarray] = {}
        """A byte array per storage id."""
        for number, device, memory in layout.allocate(known):
            self.devices[number] = devices[device]
            self.buffers[number] = (
                free[memory]
                if isinstance(memory, int)
                else np.frombuffer(memoryview(memory), np.uint8)
            )
        self._own = {entry.name: self._view(entry) for entry in self.entries}
        self._wired = dict(self._own)

    # -- sources -------------------------------------------------------------

    @classmethod
    def from_plan(
        cls, graph: Graph, plan: StoragePlan, *, reuse: StoragePool | None = None
    ) -> StoragePool:
        """
        Return the pool for ``graph`` under ``plan``.

        Values without a block in the plan, such as graph inputs, get separate buffers. The pool's
        inputs are all values without a producer: graph inputs, constants and states.
        """
        layout = _core.StorageLayout.from_plan(graph.core, plan)
        rows = zip(layout.entries, graph.values, strict=True)
        devices = {row[4]: value.space or "arena" for row, value in rows}
        return cls._of(layout, devices, reuse)

    @classmethod
    def from_json(cls, text: str, *, reuse: StoragePool | None = None) -> StoragePool:
        """
        Return the pool for a graph in the JSON form of the NNVM and TVM graph runtimes.

        The JSON has nodes, storage ids, shapes and types, but no sizes. A node's results are named
        ``node``, ``node:1`` and so on, unless the node has an attribute ``output_names``. Devices
        are named by number.
        """
        layout = _core.StorageLayout.from_json(text)
        return cls._of(layout, {row[4]: str(row[4]) for row in layout.entries}, reuse)

    @classmethod
    def _of(
        cls, layout: _core.StorageLayout, devices: Mapping[int, str], reuse: StoragePool | None
    ) -> StoragePool:
        pool = cls.__new__(cls)
        pool._set_up(layout, devices, reuse)
        return pool

    def to_json(self) -> str:
        """
        Return the JSON form that :meth:`from_json` and graph runtimes read.

        A node that no operator makes has op ``"null"``; other nodes are ``"tvm_op"``, with the
        operator as the attribute ``func_name``. Operands are ``[node, output, version]``.

        Examples
        --------
        >>> import json
        >>> import arenaplan as ap
        >>> graph = ap.Graph()
        >>> x = graph.input("x", (4,))
        >>> (y,) = graph.node("Relu", [x], [("y", (4,), "float32")])
        >>> graph.output(y)
        >>> pool = ap.classic.StoragePool.from_plan(graph, ap.classic.share_storage(graph))
        >>> [node["inputs"] for node in json.loads(pool.to_json())["nodes"]]
        [[], [[0, 0, 0]]]
        """
        return self._layout.to_json()

    # -- values --------------------------------------------------------------

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the array that nodes work on."""
        try:
            return self._wired[name]
        except KeyError:
            raise UndefinedValue(f"the pool has no value {name!r}") from None

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def nbytes(self) -> int:
        """Total bytes in all buffers."""
        return sum(buffer.nbytes for buffer in self.buffers.values())

    @property
    def num_outputs(self) -> int:
        """Number of values that the caller receives."""
        return len(self.outputs)

    def set_input(self, name: str, array: np.ndarray) -> None:
        """
        Copy ``array`` into an input.

        Raises
        ------
        UndefinedValue
            If there is no such input.
        ArenaError
            If the shape or type differs.
        """
        self._check(name, array)
        np.copyto(self._wired[name], array, casting="no")

    def set_input_zero_copy(self, name: str, array: np.ndarray) -> None:
        """
        Make nodes read an input from ``array`` without a copy.

        Only node inputs are rewired: :meth:`get_input` still returns the pool's array.

        Raises
        ------
        ArenaError
            If shape or type differ, or ``array`` is not contiguous and 64-byte aligned.
        """
        self._check(name, array)
        if not array.flags.c_contiguous:
            raise fault("StorageError", f"input {name!r}: the array is not contiguous")
        if array.ctypes.data % ALIGNMENT:
            raise fault(
                "StorageError",
                f"input {name!r}: the array is not aligned to {ALIGNMENT} bytes",
            )
        self._wired[name] = array

    def get_input(self, name: str) -> np.ndarray:
        """Return the pool's array for an input."""
        if name not in self.inputs:
            raise UndefinedValue(f"the pool has no input {name!r}")
        return self._own[name]

    def get_output(self, index: int) -> np.ndarray:
        """Return the array for output number ``index``."""
        if not 0 <= index < len(self.outputs):
            raise UndefinedValue(f"there is no output {index}, but {len(self.outputs)} outputs")
        return self._wired[self.outputs[index]]

    # -- parameters ----------------------------------------------------------

    def load_params(self, blob: bytes) -> None:
        """
        Copy the arrays in a parameter blob into the inputs with the same names.

        No input changes unless all arrays fit.
        """
        params = load_params(blob)
        for name, array in params.items():
            self._check(name, array)
        for name, array in params.items():
            np.copyto(self._wired[name], array, casting="no")

    def share_params(self, other: StoragePool, names: Iterable[str]) -> None:
        """
        Use arrays from ``other`` for some inputs, instead of the pool's own.

        Raises
        ------
        ArenaError
            If any shape or type differs; no array is shared then.
        """
        shared = {}
        for name in names:
            other.get_input(name)
            self._check(name, other[name])
            shared[name] = other[name]
        self._own.update(shared)
        self._wired.update(shared)
        used = {entry.storage_id for entry in self.entries if entry.name not in shared}
        self.buffers = {key: buffer for key, buffer in self.buffers.items() if key in used}

    # -- helpers -------------------------------------------------------------

    def _check(self, name: str, array: np.ndarray) -> None:
        """Refuse an array whose type or shape differs from the input ``name``."""
        if not array.dtype.isnative:
            raise fault(
                "StorageError",
                f"input {name!r}: the array has the byte order of other machines",
            )
        self._layout.check_input(name, array.dtype.name, array.shape)

    def _view(self, entry: StorageEntry) -> np.ndarray:
        buffer = self.buffers[entry.storage_id]
        dtype = _dtype(entry.dtype, entry.name)
        return buffer[: entry.nbytes].view(dtype).reshape(entry.shape)


@typed
def runtime_json(graph: Graph, plan: StoragePlan) -> str:
    """
    Return a planned graph in the JSON form of the NNVM and TVM graph runtimes.

    As :meth:`StoragePool.to_json`, plus node attributes that are text, numbers, or number lists; no
    memory is allocated.

    Examples
    --------
    >>> import json
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> x = graph.input("x", (4,))
    >>> (y,) = graph.node("Sum", [x], [("y", (1,), "float32")], attributes={"axis": (0,)})
    >>> graph.output(y)
    >>> document = json.loads(ap.classic.runtime_json(graph, ap.classic.share_storage(graph)))
    >>> attributes = document["nodes"][1]["attrs"]
    >>> attributes["func_name"], attributes["axis"]
    ('Sum', '(0,)')
    """
    layout = _core.StorageLayout.from_plan(graph.core, plan)
    attributes = []
    for node in graph.nodes:
        written = [index for index in node.outputs if index is not None]
        name = graph.values[written[0]].name if written else node.name
        texts = {key: _attribute(value) for key, value in node.attributes.items()}
        kept = {key: text for key, text in texts.items() if text is not None}
        if kept:
            attributes.append((name, kept))
    return layout.with_attributes(attributes).to_json()


def _attribute(value: object) -> str | None:
    """Return an attribute's text; ``None`` if the runtimes cannot express the attribute."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, (tuple, list)) and all(isinstance(it, (int, float)) for it in value):
        return repr(tuple(value))
    return None


@typed
def save_params(params: Mapping[str, np.ndarray]) -> bytes:
    """
    Return a parameter blob: names and arrays, in NNVM's form.

    Raises
    ------
    ArenaError
        If an array has a type that has no code in this form.

    Examples
    --------
    >>> import numpy as np
    >>> blob = save_params({"w": np.arange(3, dtype="float32")})
    >>> load_params(blob)["w"]
    array([0., 1., 2.], dtype=float32)
    """
    rows = []
    for name, value in params.items():
        array = np.asarray(value)
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        rows.append((name, array.dtype.name, array.shape, little.tobytes()))
    return _core.save_params(rows)


@typed
def load_params(blob: bytes) -> dict[str, np.ndarray]:
    """
    Return the arrays in a parameter blob, by name.

    Raises
    ------
    ArenaError
        If the blob is truncated or not a parameter blob.
    """
    params = {}
    for name, dtype, shape, data in _core.load_params(bytes(blob)):
        little = _dtype(dtype, name).newbyteorder("<")
        try:
            params[name] = np.frombuffer(data, little).reshape(shape)
        except ValueError as error:
            raise fault(
                "StorageError", f"parameter {name!r} is no array of NumPy: {error}"
            ) from error
    return params


def _dtype(name: str, value: str) -> np.dtype[Any]:
    """Return the type called ``name``."""
    try:
        return np.dtype(name)
    except TypeError:
        raise fault(
            "StorageError", f"value {value!r} has type {name!r}, which NumPy lacks"
        ) from None
