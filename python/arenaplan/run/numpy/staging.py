"""
Steps whose output overlaps an input.

The output is made tile by tile, in order. Each tile waits in scratch memory until the whole tile is
made, and is then copied in place: only bytes that no later tile needs are overwritten. So tiles are
runs of whole pieces; the node's effects state the distance between output and input.
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
from arenaplan.run.numpy.registry import Run, Scratch, scratch_bytes
from arenaplan.run.numpy.streaming import (
    Division,
    Tiling,
    fastest,
    is_empty,
    layout_of,
    offered,
    run_in_turn,
    tilings,
)
from arenaplan.run.numpy.tiles import Tile, bind, made_by, part_of

_COPIED, _TILE = 0.04, 1.5e3
"""Nanoseconds to copy a tile byte, and per call."""


def staged_ways(group: Group) -> tuple[Choice, ...]:
    """
    Return the scratch memory sizes with which a group's output can overlap an input.

    Costs are nanoseconds. The largest size is at least as large as the output; it is the only size
    if the group cannot be cut into pieces.
    """
    if is_empty(group):
        return (Choice(0, 0.0),)
    group = _alone(group)
    return offered(group, list(_tilings(group)))


def staged_run(group: Group, arrays: Mapping[int, np.ndarray], workspace: np.ndarray) -> Run | None:
    """
    Return a function that runs a group with an overlap; ``None`` if the output is empty.

    Parameters
    ----------
    arrays : mapping of int to array
        Memory for every value that is read or made.
    workspace : array
        Scratch memory with a size from :func:`staged_ways`.

    Raises
    ------
    ExecutionError
        If the scratch memory is too small.
    """
    if is_empty(group):
        return None
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
        runs.append(partial(np.copyto, part_of(output, box), staged))
    return partial(run_in_turn, runs)


def _alone(group: Group) -> Group:
    """Return the group whose tiles are staged: no value is in another value's place."""
    return in_chains(replace(group, taken=frozenset()))


def _tilings(group: Group) -> Iterator[Tiling]:
    """Yield ways to cut a group's output into runs of whole pieces."""
    output = made_by(group.sink)
    pieces = 0
    for member in group.members:
        if member.value not in group.loaded:
            pieces = gcd(pieces, member.pieces)
    for tiling in tilings(group):
        division = tiling.division
        if _is_of_pieces(division, output.shape, pieces):
            first = division.box(output.shape, 0)
            staged = scratch_bytes(box_shape(first), output.dtype)
            cost = tiling.cost + _COPIED * output.bytes + _TILE * division.tiles(output.shape)
            yield replace(tiling, bytes=tiling.bytes + staged, cost=cost)


def _is_of_pieces(division: Division, shape: tuple[int, ...], pieces: int) -> bool:
    """Return whether tiles are contiguous, one after the other, and made of whole pieces."""
    if division.tiles(shape) == 1:
        return True
    if division.single < division.axis or pieces < 1:
        return False
    piece, inner = prod(shape) // pieces, prod(shape[division.axis + 1 :])
    outer = prod(shape[: division.axis])
    whole_rows = outer == 1 or inner * shape[division.axis] % piece == 0
    return whole_rows and inner * division.length % piece == 0
