"""Memory at run time from storage ids: one buffer per id, one view per value."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from arenaplan._core import StoragePlan
from arenaplan.errors import StorageError, UndefinedValue
from arenaplan.graph import Graph

ALIGNMENT = 64
"""Alignment of the address of every buffer, in bytes."""

_BLOB_MAGIC = 0xF7E58D4F05049CB7
_ARRAY_MAGIC = 0xDD5E40F096B4A13F
_TYPE_CODES = {"i": 0, "u": 1, "f": 2}
_MOST_DIMENSIONS = 64


@dataclass(frozen=True, slots=True)
class StorageEntry:
    """One value: its array, and the block that it is in."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    storage_id: int
    device: str = "arena"

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * _dtype(self.dtype, self.name).itemsize


class StoragePool:
    """
    Buffers and views of a graph that was planned with storage ids.

    Sizes are not needed: a buffer is as large as its largest value.

    Parameters
    ----------
    entries : iterable of StorageEntry
        Every value, with a storage id of 0 or more.
    inputs, outputs : iterable of str
        Names of the values that the caller supplies and receives.
    reuse : StoragePool, optional
        A pool whose buffers are used where they are large enough, so that the two
        together need no more than the larger one; their values must not be live together.

    Raises
    ------
    StorageError
        If a value has no storage id, or one id is on two devices.

    Examples
    --------
    >>> import arenaplan as ap
    >>> pool = ap.StoragePool(
    ...     [ap.StorageEntry("a", (2, 3), "float32", 0), ap.StorageEntry("b", (4,), "int8", 0)]
    ... )
    >>> pool.nbytes, pool["a"].shape
    (24, (2, 3))
    """

    def __init__(
        self,
        entries: Iterable[StorageEntry],
        inputs: Iterable[str] = (),
        outputs: Iterable[str] = (),
        *,
        reuse: StoragePool | None = None,
    ) -> None:
        self.entries = tuple(entries)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._by_name = {entry.name: entry for entry in self.entries}
        if len(self._by_name) != len(self.entries):
            raise StorageError("two values have the same name")
        for name in (*self.inputs, *self.outputs):
            self._entry(name)
        sizes, devices = _blocks(self.entries)
        self.devices = devices
        """Device of every storage id."""
        self.buffers = _allocate(sizes, devices, reuse)
        """One array of bytes per storage id."""
        self._own = {entry.name: self._view(entry) for entry in self.entries}
        self._wired = dict(self._own)

    # -- sources -------------------------------------------------------------

    @classmethod
    def from_plan(
        cls, graph: Graph, plan: StoragePlan, *, reuse: StoragePool | None = None
    ) -> StoragePool:
        """
        Return the pool of ``graph`` under ``plan``.

        Values that the plan leaves to others, such as graph inputs, get buffers of their own.
        """
        ids = plan.storage_ids
        fresh = max(ids, default=-1) + 1
        entries = []
        for value, storage_id in zip(graph.values, ids, strict=True):
            if storage_id < 0:
                storage_id, fresh = fresh, fresh + 1
            space = value.space or "arena"
            entries.append(StorageEntry(value.name, value.shape, value.dtype, storage_id, space))
        names = [value.name for value in graph.values]
        inputs = [names[index] for index in graph.inputs]
        outputs = [names[index] for index in graph.outputs]
        return cls(entries, inputs, outputs, reuse=reuse)

    @classmethod
    def from_json(cls, text: str, *, reuse: StoragePool | None = None) -> StoragePool:
        """
        Return the pool of a graph in the JSON form of NNVM's graph runtime.

        It holds storage ids, shapes and types, but no sizes. A result of a node with several
        is called ``node:1`` and so on, the first one ``node``.
        """
        try:
            document = json.loads(text)
            nodes, attributes = document["nodes"], document["attrs"]
            rows = document["node_row_ptr"]
            ids, shapes, types = (attributes[key][1] for key in ("storage_id", "shape", "dltype"))
            devices = attributes.get("device_index", [None, [0] * len(ids)])[1]
            names = []
            for index, node in enumerate(nodes):
                count = rows[index + 1] - rows[index]
                names += [
                    f"{node['name']}:{slot}" if slot else node["name"] for slot in range(count)
                ]
            columns = zip(names, shapes, types, ids, devices, strict=True)
            entries = [
                StorageEntry(
                    str(name), tuple(int(d) for d in shape), str(dtype), int(id_), str(device)
                )
                for name, shape, dtype, id_, device in columns
            ]
            inputs = [names[rows[node]] for node in document["arg_nodes"]]
            outputs = [names[rows[head[0]] + head[1]] for head in document["heads"]]
        except (KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
            raise StorageError(f"not the JSON form of a planned graph: {error!r}") from error
        return cls(entries, inputs, outputs, reuse=reuse)

    def to_json(self) -> str:
        """Return the JSON form that :meth:`from_json` reads, without nodes' operands."""
        names = [entry.name for entry in self.entries]
        devices = sorted({entry.device for entry in self.entries})
        by_name = {name: index for index, name in enumerate(names)}
        document = {
            "nodes": [{"op": "null", "name": name, "inputs": []} for name in names],
            "arg_nodes": [by_name[name] for name in self.inputs],
            "node_row_ptr": list(range(len(names) + 1)),
            "heads": [[by_name[name], 0, 0] for name in self.outputs],
            "attrs": {
                "storage_id": ["list_int", [entry.storage_id for entry in self.entries]],
                "shape": ["list_shape", [list(entry.shape) for entry in self.entries]],
                "dltype": ["list_str", [entry.dtype for entry in self.entries]],
                "device_index": [
                    "list_int",
                    [devices.index(entry.device) for entry in self.entries],
                ],
            },
        }
        return json.dumps(document, indent=1)

    # -- values --------------------------------------------------------------

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the array that nodes work on."""
        self._entry(name)
        return self._wired[name]

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
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
        StorageError
            If the shape or type differs.
        """
        target = self._wired[self._input(name).name]
        _check_array(array, target, f"input {name!r}")
        np.copyto(target, array, casting="no")

    def set_input_zero_copy(self, name: str, array: np.ndarray) -> None:
        """
        Make nodes read an input from ``array`` itself.

        Only the inputs of nodes are rewired: :meth:`get_input` still returns the pool's array.

        Raises
        ------
        StorageError
            If shape or type differ, or ``array`` is not contiguous at a multiple of 64.
        """
        entry = self._input(name)
        _check_array(array, self._own[name], f"input {name!r}")
        if not array.flags.c_contiguous:
            raise StorageError(f"input {name!r}: the array is not contiguous")
        if array.ctypes.data % ALIGNMENT:
            raise StorageError(f"input {name!r}: the array is not aligned to {ALIGNMENT} bytes")
        self._wired[entry.name] = array

    def get_input(self, name: str) -> np.ndarray:
        """Return the pool's array of an input."""
        return self._own[self._input(name).name]

    def get_output(self, index: int) -> np.ndarray:
        """Return the array of output number ``index``."""
        if not 0 <= index < len(self.outputs):
            raise UndefinedValue(f"there is no output {index}, but {len(self.outputs)} outputs")
        return self._wired[self.outputs[index]]

    # -- parameters ----------------------------------------------------------

    def load_params(self, blob: bytes) -> None:
        """
        Copy the arrays of a parameter blob into the inputs of the same names.

        Nothing is changed unless all of them fit.
        """
        params = load_params(blob)
        for name, array in params.items():
            _check_array(array, self._wired[self._input(name).name], f"parameter {name!r}")
        for name, array in params.items():
            self.set_input(name, array)

    def share_params(self, other: StoragePool, names: Iterable[str]) -> None:
        """
        Use the arrays of ``other`` for some inputs, instead of the pool's own.

        Raises
        ------
        StorageError
            If the shape or type of one differs; nothing is shared then.
        """
        shared = {}
        for name in names:
            array = other[other._input(name).name]
            _check_array(array, self._own[self._input(name).name], f"parameter {name!r}")
            shared[name] = array
        self._own.update(shared)
        self._wired.update(shared)
        used = {entry.storage_id for entry in self.entries if entry.name not in shared}
        self.buffers = {key: buffer for key, buffer in self.buffers.items() if key in used}

    # -- helpers -------------------------------------------------------------

    def _entry(self, name: str) -> StorageEntry:
        try:
            return self._by_name[name]
        except KeyError:
            raise UndefinedValue(f"the pool has no value {name!r}") from None

    def _input(self, name: str) -> StorageEntry:
        if name not in self.inputs:
            raise UndefinedValue(f"the pool has no input {name!r}")
        return self._by_name[name]

    def _view(self, entry: StorageEntry) -> np.ndarray:
        buffer = self.buffers[entry.storage_id]
        dtype = _dtype(entry.dtype, entry.name)
        return buffer[: entry.nbytes].view(dtype).reshape(entry.shape)


def save_params(params: Mapping[str, np.ndarray]) -> bytes:
    """
    Return a parameter blob: names and arrays, in NNVM's form.

    Examples
    --------
    >>> import numpy as np
    >>> blob = save_params({"w": np.arange(3, dtype="float32")})
    >>> load_params(blob)["w"]
    array([0., 1., 2.], dtype=float32)
    """
    parts = [struct.pack("<QQQ", _BLOB_MAGIC, 0, len(params))]
    for name in params:
        data = name.encode()
        parts += [struct.pack("<Q", len(data)), data]
    parts.append(struct.pack("<Q", len(params)))
    for name, value in params.items():
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        code = _TYPE_CODES.get(array.dtype.kind)
        if code is None:
            raise StorageError(f"parameter {name!r} has type {array.dtype}, which has no code")
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        head = struct.pack(
            "<QQiiiBBH", _ARRAY_MAGIC, 0, 1, 0, array.ndim, code, array.itemsize * 8, 1
        )
        shape = struct.pack(f"<{array.ndim}q", *array.shape)
        parts += [head, shape, struct.pack("<q", array.nbytes), little.tobytes()]
    return b"".join(parts)


def load_params(blob: bytes) -> dict[str, np.ndarray]:
    """
    Return the arrays of a parameter blob, by name.

    Raises
    ------
    StorageError
        If the blob is cut short, or is none.
    """
    reader = _Reader(blob)
    magic, _, count = reader.unpack("<QQQ")
    if magic != _BLOB_MAGIC:
        raise StorageError("not a parameter blob")
    names = []
    # Every name takes at least the eight bytes of its length.
    for _ in range(reader.checked_count(count, 8)):
        (length,) = reader.unpack("<Q")
        try:
            names.append(reader.take(length).decode())
        except UnicodeDecodeError as error:
            raise StorageError("a parameter's name is not UTF-8") from error
    (arrays,) = reader.unpack("<Q")
    if arrays != count or len(set(names)) != len(names):
        raise StorageError(f"{count} names, some of them equal, for {arrays} parameters")
    return {name: _read_array(reader, name) for name in names}


class _Reader:
    """Bytes that are read one after the other, never past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self._at:
            raise StorageError("the parameter blob is cut short")
        self._at += count
        return bytes(self._data[self._at - count : self._at])

    def unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def checked_count(self, count: int, each: int) -> int:
        if count * each > len(self._data) - self._at:
            raise StorageError("the parameter blob is cut short")
        return count


def _read_array(reader: _Reader, name: str) -> np.ndarray:
    """Return the next array of a blob."""
    magic, _, _, _, ndim, code, bits, lanes = reader.unpack("<QQiiiBBH")
    if magic != _ARRAY_MAGIC or not 0 <= ndim <= _MOST_DIMENSIONS or lanes != 1:
        raise StorageError(f"parameter {name!r} is no array")
    kinds = {number: kind for kind, number in _TYPE_CODES.items()}
    try:
        dtype = np.dtype(f"<{kinds[code]}{bits // 8}")
    except (KeyError, TypeError) as error:
        raise StorageError(f"parameter {name!r} has an unknown type") from error
    shape = reader.unpack(f"<{ndim}q")
    (nbytes,) = reader.unpack("<q")
    if bits % 8 or any(dim < 0 for dim in shape) or math.prod(shape) * dtype.itemsize != nbytes:
        raise StorageError(f"parameter {name!r} of shape {shape} does not have {nbytes} bytes")
    return np.frombuffer(reader.take(nbytes), dtype).reshape(shape)


def _dtype(name: str, value: str) -> np.dtype[Any]:
    """Return the type called ``name``."""
    try:
        return np.dtype(name)
    except TypeError:
        raise StorageError(f"value {value!r} has type {name!r}, which NumPy lacks") from None


def _blocks(entries: Iterable[StorageEntry]) -> tuple[dict[int, int], dict[int, str]]:
    """Return size and device of every storage id."""
    sizes: dict[int, int] = {}
    devices: dict[int, str] = {}
    for entry in entries:
        if entry.storage_id < 0:
            raise StorageError(f"value {entry.name!r} has no storage: {entry.storage_id}")
        if any(dim < 0 for dim in entry.shape):
            raise StorageError(f"value {entry.name!r} has the shape {entry.shape}")
        if devices.setdefault(entry.storage_id, entry.device) != entry.device:
            raise StorageError(f"storage {entry.storage_id} is on two devices")
        sizes[entry.storage_id] = max(sizes.get(entry.storage_id, 0), entry.nbytes)
    return sizes, devices


def _allocate(
    sizes: Mapping[int, int], devices: Mapping[int, str], reuse: StoragePool | None
) -> dict[int, np.ndarray]:
    """Return a buffer for every id, the largest first, from ``reuse`` where one is large enough."""
    free = []
    if reuse is not None:
        free = [(reuse.devices[key], buffer) for key, buffer in reuse.buffers.items()]
    buffers = {}
    for key in sorted(sizes, key=lambda key: (-sizes[key], key)):
        fitting = [
            position
            for position, (device, buffer) in enumerate(free)
            if device == devices[key] and buffer.nbytes >= sizes[key]
        ]
        if fitting:
            best = min(fitting, key=lambda position: free[position][1].nbytes)
            buffers[key] = free.pop(best)[1]
        else:
            buffers[key] = _aligned(sizes[key])
    return buffers


def _aligned(nbytes: int) -> np.ndarray:
    """Return zeroed bytes at a multiple of the alignment."""
    try:
        raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as error:
        raise StorageError(f"a block of {nbytes} bytes could not be allocated") from error
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def _check_array(array: np.ndarray, target: np.ndarray, what: str) -> None:
    """Refuse an array of another shape or type."""
    if array.shape != target.shape or array.dtype != target.dtype:
        raise StorageError(
            f"{what} is {target.dtype}{list(target.shape)}, "
            f"given was {array.dtype}{list(array.shape)}"
        )
