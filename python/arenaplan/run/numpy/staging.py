"""
Steps whose output overlaps an input.

The output is made tile by tile, in order. Each tile waits in scratch memory until all of it
is made, and is then copied to its place: only bytes that no later tile needs are overwritten. So
tiles are runs of whole pieces, of which the node's effects say how far apart the two must be.

Some kernels need no tiles: a depthwise convolution copies each plane into a frame of zeros before
it writes the same plane of its output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import gcd, prod

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.graph import Choice
from arenaplan.graph.ops.boxes import box_shape
from arenaplan.run.numpy.chained import in_chains
from arenaplan.run.numpy.groups import Group
from arenaplan.run.numpy.hosting import planes_host_of
from arenaplan.run.numpy.registry import Run, Scratch, scratch_bytes
from arenaplan.run.numpy.streaming import (
    Division,
    Tiling,
    fastest,
    hosted_choices,
    hosted_run,
    is_empty,
    layout_of,
    offered,
    run_in_turn,
    tilings,
)
from arenaplan.run.numpy.tiles import Tile, bind, made_by

_COPIED, _TILE = 0.04, 1.5e3
"""Nanoseconds in which a byte of a tile is copied, and those of the call."""


def staged_ways(group: Group) -> tuple[Choice, ...]:
    """
    Return the sizes of scratch memory with which a group's output can overlap an input.

    Costs are nanoseconds. The largest size is as large as the output, at least; it is the only
    size if the group cannot be cut into pieces.
    """
    if is_empty(group):
        return (Choice(0, 0.0),)
    free = _free(group)
    host = planes_host_of(free)
    if host is not None:
        return hosted_choices(free, host, by_planes=True)
    group = _alone(group)
    return offered(group, list(_tilings(group)))


def staged_run(group: Group, arrays: Mapping[int, np.ndarray], workspace: np.ndarray) -> Run | None:
    """
    Return a function that runs a group with an overlap; ``None`` if it makes no element.

    Parameters
    ----------
    arrays : mapping of int to array
        Memory of every value that is read or made.
    workspace : array
        Scratch memory of one of the sizes that :func:`staged_ways` returns.

    Raises
    ------
    ExecutionError
        If that is too small.
    """
    if is_empty(group):
        return None
    free = _free(group)
    host = planes_host_of(free)
    if host is not None:
        return hosted_run(free, host, arrays, workspace, {}, by_planes=True)
    group = _alone(group)
    tiling = fastest(_tilings(group), workspace)
    name = group.sink.signature.name
    if tiling is None:
        raise fault(
            "WorkspaceOverrun",
            f"node {name!r} needs more workspace to overlap an input than the "
            f"{workspace.nbytes} bytes that the plan gives it",
        )
    layout, output = layout_of(group, tiling.division), arrays[group.sink.value]
    runs: list[Run] = []
    for index in range(tiling.division.tiles(output.shape)):
        box = tiling.division.box(output.shape, index)
        scratch = Scratch(workspace, name)
        staged = scratch.array(box_shape(box), output.dtype)
        runs += bind(layout, group.members, Tile(box, staged), arrays, scratch.rest(), tiling.limit)
        runs.append(partial(np.copyto, output[box], staged))
    return partial(run_in_turn, runs)


def _free(group: Group) -> Group:
    """Return a group of which no value is in the place of the output."""
    return replace(group, taken=frozenset())


def _alone(group: Group) -> Group:
    """Return the group whose tiles are staged: no value is in the place of one."""
    return in_chains(_free(group))


def _tilings(group: Group) -> Iterator[Tiling]:
    """Yield ways to cut a group's output into runs of whole pieces."""
    output = made_by(group.sink)
    pieces = 0
    for member in group.members:
        if member.value not in group.loaded:
            pieces = gcd(pieces, member.pieces)
    for tiling in tilings(group):
        division = tiling.division
        if not tiling.ahead and _is_of_pieces(division, output.shape, pieces):
            first = division.box(output.shape, 0)
            staged = scratch_bytes(box_shape(first), output.dtype)
            cost = tiling.cost + _COPIED * output.bytes + _TILE * division.tiles(output.shape)
            yield replace(tiling, bytes=tiling.bytes + staged, cost=cost)


def _is_of_pieces(division: Division, shape: tuple[int, ...], pieces: int) -> bool:
    """Whether tiles are contiguous in memory, one after the other, and of whole pieces."""
    if division.tiles(shape) == 1:
        return True
    if division.single < division.axis or pieces < 1:
        return False
    piece, inner = prod(shape) // pieces, prod(shape[division.axis + 1 :])
    outer = prod(shape[: division.axis])
    whole_rows = outer == 1 or inner * shape[division.axis] % piece == 0
    return whole_rows and inner * division.length % piece == 0
