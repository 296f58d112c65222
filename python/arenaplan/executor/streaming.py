"""
Groups that run piece by piece: each tile of the output goes through all members.

How large tiles are is a choice: larger ones take more scratch memory and fewer calls.
A group with a member that cannot be cut has one tile, which is everything; a
convolution cuts its tiles itself, see :mod:`arenaplan.executor.hosting`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod

import numpy as np

from arenaplan.errors import WorkspaceOverrun
from arenaplan.executor.cuts import GEMM, PRODUCT, Uncuttable, whole
from arenaplan.executor.groups import Group, Member
from arenaplan.executor.hosting import bound_guests, guests_of, host_of
from arenaplan.executor.registry import Box, Run, Scratch, Step, attributed
from arenaplan.executor.tiles import Layout, Tile, bind, cut, kernel_bytes, lay_out, made_by
from arenaplan.graph import Choice

_TARGETS = tuple(1 << shift for shift in (24, 22, 21, 20, 19, 18, 17, 16, 14, 12))
"""Bytes of the widest value of a tile to aim at."""
_LIMITS = (1 << 19, 1 << 17, 1 << 15, 0)
"""Bytes that the kernels' own workspaces may have, from the fastest to the smallest."""
_SLOWER = (1.0, 1.15, 1.5, 2.0)
"""About what such limits cost."""
_MOST_TILES = 1 << 12
_NEGLIGIBLE = 1 << 12
"""Bytes of scratch memory that are not worth saving."""
_CALLS = 2e3
"""Nanoseconds that the calls of one member take."""
_CACHED = 1 << 20
"""Bytes of a tile beyond which members find nothing in cache that the one before left."""
_WARM, _COLD = 0.04, 0.1
"""Nanoseconds per byte of a value, in cache and out of it."""
_REPACKED = 0.4
"""Nanoseconds per element of a right operand, which BLAS fetches and repacks for every tile."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a group's output is cut."""

    axis: int
    """The first dimension that a tile is not a single index of."""
    count: int
    """Indices of that dimension in one tile."""
    limit: int
    """Bytes that the kernels' own workspaces may have, if they can."""
    bytes: int
    """Scratch memory."""
    cost: float
    """About how many nanoseconds a run takes."""

    def boxes(self, shape: Sequence[int]) -> Iterator[Box]:
        """Yield the tiles."""
        inner = whole(shape[self.axis + 1 :])
        for outer in product(*map(range, shape[: self.axis])):
            before = tuple(slice(at, at + 1) for at in outer)
            size = shape[self.axis] if shape else 1
            for start in range(0, size, self.count):
                part = (slice(start, min(start + self.count, size)),) if shape else ()
                yield (*before, *part, *inner)


# -- choosing ------------------------------------------------------------------------------


def group_choices(group: Group) -> tuple[Choice, ...]:
    """Return the sizes of scratch memory that a group can run with; none if it needs none."""
    host = host_of(group)
    if host is not None:
        signature = replace(host.signature, guests=guests_of(group, host))
        assert host.kernel.workspace is not None
        slots = attributed(host.kernel.workspace, signature, signature)
        return tuple(slots[0]) if slots else ()
    choices: list[Choice] = []
    for tiling in sorted(_tilings(group, _layout(group)), key=lambda t: (t.bytes, t.cost)):
        if not choices or tiling.cost < choices[-1].cost:
            choices.append(Choice(tiling.bytes, tiling.cost))
    while len(choices) > 1 and choices[1].bytes <= _NEGLIGIBLE:
        del choices[0]
    return () if choices[-1].bytes == 0 else tuple(choices)


def _layout(group: Group) -> Layout:
    return lay_out(group.members, group.sink.value, group.taken)


def _tilings(group: Group, layout: Layout) -> Iterator[Tiling]:
    """Yield ways to cut a group's output."""
    shape, widest = layout.output.shape, max(made_by(m).bytes for m in group.members)
    seen = set()
    axes = [] if _is_whole(group) else _axes(group, shape)
    for target in _TARGETS:
        share = max(1, prod(shape) * target // max(widest, 1))
        axis, count = _largest(shape, axes, share)
        if (axis, count) in seen:
            continue
        seen.add((axis, count))
        for limit, slower in zip(_LIMITS, _SLOWER, strict=True):
            yield _tiling(group, layout, axis, count, limit, slower)


def _is_whole(group: Group) -> bool:
    """Whether some member needs all of what another one makes."""
    made = group.made
    return any(
        value in made and position not in member.follows
        for member in group.members
        for position, value in member.reads()
    )


def _axes(group: Group, shape: Sequence[int]) -> list[int]:
    """Return the dimensions that can be cut."""
    found = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        single = tuple(slice(0, 1) for _ in range(axis + 1))
        try:
            cut(group.members, group.sink.value, (*single, *whole(shape[axis + 1 :])))
        except Uncuttable:
            break
        found.append(axis)
    return found


def _largest(shape: Sequence[int], axes: Sequence[int], elements: int) -> tuple[int, int]:
    """Return the largest tile of up to so many elements, or else the smallest there is."""
    best = (0, shape[0] if shape else 1)
    for axis in axes:
        outer, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
        if outer > _MOST_TILES:
            break
        fewest = -(-shape[axis] * outer // _MOST_TILES)
        count = min(shape[axis], max(1, fewest, elements // inner))
        best = axis, -(-shape[axis] // -(-shape[axis] // count))
        if inner <= elements:
            break
    return best


def _tiling(
    group: Group, layout: Layout, axis: int, count: int, limit: int, slower: float
) -> Tiling:
    shape = layout.output.shape
    draft = Tiling(axis, count, limit, 0, 0)
    box = next(draft.boxes(shape))
    elements = prod(part.stop - part.start for part in box)
    tiles = -(-prod(shape) // elements)
    parts = cut(group.members, group.sink.value, box)
    scratch = kernel_bytes(parts, limit)
    touched = sum(made_by(member).bytes for member in layout.members)
    in_tile = sum(made_by(member).bytes * elements // prod(shape) for member in layout.members)
    time = touched * (_WARM if in_tile <= _CACHED else _COLD) * (slower if scratch else 1)
    time += tiles * (_CALLS * len(layout.members) + _REPACKED * _right_operands(layout.members))
    return Tiling(axis, count, limit, layout.register_bytes(elements) + scratch, time)


def _right_operands(members: Sequence[Member]) -> int:
    """Return the elements of the matrices that members multiply by."""
    products = (m for m in members if m.kernel.cut in (GEMM, PRODUCT))
    right = (member.signature.input(1) for member in products)
    return sum(prod(tensor.shape[-2:]) for tensor in right if tensor is not None)


# -- running --------------------------------------------------------------------------------


def group_run(group: Group, arrays: Mapping[int, np.ndarray], workspace: np.ndarray) -> Run:
    """
    Return what runs a group.

    Parameters
    ----------
    arrays : mapping of int to array
        Memory of every value that is read or made.
    workspace : array
        Scratch memory of one of the sizes that :func:`group_choices` returns.

    Raises
    ------
    WorkspaceOverrun
        If that is too small.
    """
    host = host_of(group)
    if host is not None:
        return _hosted(group, host, arrays, workspace)
    layout, output = _layout(group), arrays[group.sink.value]
    fitting = (t for t in _tilings(group, layout) if t.bytes <= workspace.nbytes)
    tiling = min(fitting, key=lambda t: (t.cost, t.bytes), default=None)
    if tiling is None:
        raise WorkspaceOverrun(
            f"node {group.sink.signature.name!r} and what runs as one with it need more workspace "
            f"than the {workspace.nbytes} bytes that the plan gives them"
        )
    scratch = Scratch(workspace, group.sink.signature.name)
    runs: list[Run] = []
    for box in tiling.boxes(layout.output.shape):
        tile = Tile(box, output[box])
        runs += bind(layout, group.members, tile, arrays, scratch, tiling.limit)
    return partial(_run_all, runs)


def _run_all(runs: Sequence[Run]) -> None:
    for run in runs:
        run()


def _hosted(
    group: Group, host: Member, arrays: Mapping[int, np.ndarray], workspace: np.ndarray
) -> Run:
    """Return what runs a group by the kernel of one of its members."""
    guests = bound_guests(group, host, arrays)
    inputs = tuple(
        None if value is None or value in group.made else arrays[value] for value in host.inputs
    )
    signature = replace(host.signature, guests=guests)
    step = Step(signature, inputs, (guests.output,), (workspace,), guests)
    run = attributed(host.kernel.prepare, step, signature)
    assert run is not None, "a group makes something"
    return run
