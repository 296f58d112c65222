"""
Constants in a kernel's form, made once for all executors.

A kernel may transform weights: scales are folded in, half precision is widened. The result depends
on constants alone, so every executor of a graph, for every shape and every arena, shares one array.
The array lives as long as a kernel uses the array.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from arenaplan.graph import Graph
from arenaplan.graph.mapped import let_pages_go

Transformed: TypeAlias = tuple[np.ndarray, np.ndarray | None]
"""A large array, and a small array beside the large array."""
Beside = TypeVar("Beside")
"""A small thing that belongs to a transformed constant."""


class _Entry(NamedTuple):
    large: weakref.ref[np.ndarray]
    small: Any
    sources: tuple[np.ndarray, ...]
    """The constants, held so that no other array can have the same addresses."""


class _Lock:
    """The table's lock; a forked process has its own, since a parent thread may hold this lock."""

    def __init__(self) -> None:
        # Reentrant, since the collector may run a preparation inside another preparation.
        self.held = threading.RLock()


_LOCK = _Lock()
_FOUND: dict[Hashable, _Entry] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LOCK.__init__)  # type: ignore[misc]


def shared(
    sources: Sequence[np.ndarray],
    details: Hashable,
    make: Callable[[], tuple[np.ndarray, Beside]],
) -> tuple[np.ndarray, Beside]:
    """
    Return the result of ``make``, or an earlier result for the same constants that is still used.

    Parameters
    ----------
    sources : sequence of array
        Constants that the result depends on, compared by address, and by content where a caller
        could write the constant.
    details : hashable
        Everything else that the result depends on, and the kind of transformation.
    make : callable
        Makes the result: a large array, and something small that belongs to the array.
    """
    key = (details, *map(_identity, sources))
    with _LOCK.held:
        entry = _FOUND.get(key)
        known = None if entry is None else entry.large()
        if entry is not None and known is not None:
            return known, entry.small
        large, small = make()
        # A view of a constant takes no memory. A shared view could die before other views of the
        # same memory.
        if large.base is None and not any(np.may_share_memory(large, each) for each in sources):
            large.flags.writeable = False
            held = weakref.ref(large, lambda ref: _forget(key, ref))
            _FOUND[key] = _Entry(held, small, tuple(map(_origin, sources)))
        return large, small


def shared_bytes() -> int:
    """Return the bytes of all transformed constants in use."""
    arrays = [entry.large() for entry in list(_FOUND.values())]
    return sum(array.nbytes for array in arrays if array is not None)


def _origin(array: np.ndarray) -> np.ndarray:
    """Return the same view of the file that an array was copied from, or the array."""
    base: object = array
    while isinstance(base, np.ndarray):
        origin: np.ndarray | None = getattr(base, "origin", None)
        if origin is not None:
            content = origin.reshape(-1).view(np.uint8)
            offset = _address(array) - _address(base)
            return np.ndarray(array.shape, array.dtype, content, offset, array.strides)
        base = base.base
    return array


def _address(array: np.ndarray) -> int:
    """Return the address of an array's first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def _identity(array: np.ndarray) -> Hashable:
    """Return a key that two arrays share only if they have the same elements."""
    array = _origin(array)
    content = None if _is_fixed(array) else blake2b(array.tobytes()).digest()
    return _address(array), array.shape, array.strides, array.dtype, content


def _is_fixed(array: np.ndarray) -> bool:
    """Return whether nobody can write an array's memory: a caller may keep a writable array."""
    base: object = array
    while isinstance(base, np.ndarray | memoryview):
        if isinstance(base, np.ndarray) and base.flags.writeable:
            return False
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base is None or isinstance(base, bytes) or _map_of(array) is not None


def _map_of(array: np.ndarray) -> mmap.mmap | None:
    """Return the file map that an array shows, if any."""
    base: object = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base if isinstance(base, mmap.mmap) and not array.flags.writeable else None


def let_constants_go(graph: Graph, arrays: dict[int, np.ndarray]) -> None:
    """
    Release the memory of constants in files, until a kernel reads the constants again.

    Prepared kernels have made transformed constants, and read these instead. Copies that can be
    made again are dropped, unless the copies are results.
    """
    shown = [_origin(array) for array in arrays.values()]
    copies = [i for i, a in arrays.items() if _origin(a) is not a and i not in graph.outputs]
    for index in copies:
        del arrays[index]
    maps = {id(found): found for found in map(_map_of, shown) if found is not None}
    for found in maps.values():
        let_pages_go(found)


def _forget(key: Hashable, held: weakref.ref[np.ndarray]) -> None:
    """Drop an entry whose array is gone. Without the lock: the collector calls this anywhere."""
    entry = _FOUND.get(key)
    if entry is not None and entry.large is held:
        _FOUND.pop(key, None)
