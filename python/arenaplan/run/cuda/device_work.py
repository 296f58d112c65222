"""Work of a device: launches of generated kernels, matrix products, copies, calls on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from arenaplan.run.cuda.text import DeviceKernel
from arenaplan.run.numpy.registry import Signature


class DevicePlace(NamedTuple):
    """Memory that work reads or writes, before its address is known."""

    kind: Literal["value", "scratch", "staged"]
    number: int
    """Index of a value of the graph, of a scratch buffer of the step, or of a result that
    waits to be copied to its place."""


class DeviceSpan(NamedTuple):
    """Bytes of one memory."""

    memory: int
    """A number for each memory."""
    start: int
    stop: int

    def meets(self, other: DeviceSpan) -> bool:
        """Whether two spans have a byte in common."""
        return self.memory == other.memory and self.start < other.stop and other.start < self.stop


class DeviceRead(NamedTuple):
    """An operand that work reads."""

    place: DevicePlace
    is_aligned: bool
    """Whether each element is read only by the thread that writes the element of the same position
    afterwards, so that an output of the same element size may have the same address."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of a kernel."""

    kernel: DeviceKernel
    arguments: tuple[DevicePlace, ...]
    """The memory of each parameter that is a pointer."""
    scalars: tuple[int, ...]
    """The parameters that follow, of 64 bits each."""
    grid: int
    """Number of blocks."""
    reads: tuple[DeviceRead, ...]
    writes: tuple[DevicePlace, ...]
    position: int = 0
    """Position of the operand that is copied, where the node only copies."""


class Matrix(NamedTuple):
    """Matrices in row-major order at equal distances."""

    place: DevicePlace
    offset: int
    """First element."""
    row: int
    """Elements from one row to the next."""
    transposed: bool
    """Whether rows in memory are columns of the operand."""
    distance: int
    """Elements from one matrix to the next; 0 if all are the same one."""


@dataclass(frozen=True, slots=True)
class DeviceProduct:
    """The products ``c = alpha · a @ b + beta · c`` of some matrices."""

    dtype: np.dtype[Any]
    rows: int
    columns: int
    inner: int
    a: Matrix
    b: Matrix
    c: Matrix
    count: int = 1
    alpha: float = 1.0
    beta: float = 0.0

    @property
    def reads(self) -> tuple[DeviceRead, ...]:
        """The operands."""
        return DeviceRead(self.a.place, False), DeviceRead(self.b.place, False)

    @property
    def writes(self) -> tuple[DevicePlace, ...]:
        """The result."""
        return (self.c.place,)


@dataclass(frozen=True, slots=True)
class DeviceCopy:
    """A copy of bytes."""

    source: DevicePlace
    target: DevicePlace
    bytes: int

    @property
    def reads(self) -> tuple[DeviceRead, ...]:
        """The source."""
        return (DeviceRead(self.source, False),)

    @property
    def writes(self) -> tuple[DevicePlace, ...]:
        """The target."""
        return (self.target,)


@dataclass(frozen=True, slots=True, eq=False)
class HostCall:
    """A node that NumPy's kernel runs on the host, on copies of operands and results."""

    signature: Signature
    node: int
    """Index of the node."""
    operands: tuple[DevicePlace | None, ...]
    """The operands on the device; ``None`` where one is constant, or left out."""
    results: tuple[DevicePlace | None, ...]

    @property
    def reads(self) -> tuple[DeviceRead, ...]:
        """The operands that are copied to the host, all before the first result is copied back."""
        places = dict.fromkeys(place for place in self.operands if place is not None)
        return tuple(DeviceRead(place, False) for place in places)

    @property
    def writes(self) -> tuple[DevicePlace, ...]:
        """The results that are copied to the device."""
        return tuple(place for place in self.results if place is not None)


Work: TypeAlias = Launch | DeviceProduct | DeviceCopy | HostCall


def early_writes(
    works: Sequence[Work], spans: Mapping[DevicePlace, DeviceSpan]
) -> list[DevicePlace]:
    """Return the places that are written while bytes of an operand there are still to be read."""
    found: dict[DevicePlace, None] = {}
    written: list[DevicePlace] = []
    for work in works:
        for read in work.reads:
            span = spans[read.place]
            for place in written if read.place not in written else ():
                if spans[place].meets(span):
                    found[place] = None
            for place in () if isinstance(work, HostCall) else work.writes:
                is_safe = read.is_aligned and spans[place].start == span.start
                if spans[place].meets(span) and not is_safe:
                    found[place] = None
        written += work.writes
    return list(found)


def moved(work: Work, old: DevicePlace, new: DevicePlace) -> Work:
    """Return work that reads and writes another place."""

    def place(each: DevicePlace) -> DevicePlace:
        return new if each == old else each

    if isinstance(work, Launch):
        return replace(
            work,
            arguments=tuple(map(place, work.arguments)),
            reads=tuple(DeviceRead(place(read.place), read.is_aligned) for read in work.reads),
            writes=tuple(map(place, work.writes)),
        )
    if isinstance(work, DeviceProduct):
        a, b, c = (m._replace(place=place(m.place)) for m in (work.a, work.b, work.c))
        return replace(work, a=a, b=b, c=c)
    if isinstance(work, HostCall):
        operands, results = (
            tuple(None if each is None else place(each) for each in places)
            for places in (work.operands, work.results)
        )
        return replace(work, operands=operands, results=results)
    return replace(work, source=place(work.source), target=place(work.target))
