"""
Groups that run piece by piece: each tile of the output goes through all members.

The tile size is a choice: larger tiles take more scratch memory and fewer calls. A group
with a member that cannot be cut has a single tile, the whole output. Convolutions cut
tiles themselves, see :mod:`arenaplan.run.numpy.hosting`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from arenaplan.base.errors import fault
from arenaplan.graph import Choice
from arenaplan.graph.ops.boxes import Box, Uncuttable, box_shape, whole
from arenaplan.run.numpy.chained import in_chains
from arenaplan.run.numpy.groups import Group, Member
from arenaplan.run.numpy.hosting import Hosting, hosting_of
from arenaplan.run.numpy.quantizing import quantized_group
from arenaplan.run.numpy.registry import (
    Cut,
    Run,
    Scratch,
    Signature,
    Step,
    attributed,
)
from arenaplan.run.numpy.tiles import (
    Kept,
    Layout,
    Parts,
    Slots,
    Tile,
    best_within,
    bind,
    cut,
    lay_out,
    made_by,
    part_of,
    part_signature,
    part_slots,
    slots_bytes,
)
from arenaplan.run.numpy.timing import nanoseconds

_TARGETS = tuple(1 << shift for shift in (24, 22, 21, 20, 19, 18, 17, 16, 14, 12))
"""Bytes to aim at in a tile's widest value."""
_LIMITS = (1 << 19, 1 << 17, 1 << 15, 0)
"""Bytes that the kernels' own workspaces may have, from the fastest to the smallest."""
_MOST_TILES = 1 << 12
_MOST_BANDS = 64
"""Most row tiles, since kernels are prepared for each; so many tiles are examined one by one."""
_FEW_TILES = 8
"""Tiles that are all looked at."""
_SLOWEST_IMAGES, _SLOWEST, _BEARABLE = 1.4, 3.0, 5e4
"""
A size is not offered if the group takes so many times as long as with the best size, and so many
nanoseconds more. The first factor is for groups with operators on images.
"""
_NEGLIGIBLE = 1 << 12
"""Bytes of scratch memory that are not worth saving."""
_REPACKED = 0.25
"""Nanoseconds per element of an image that weights are multiplied by, which BLAS repacks."""


class Division(NamedTuple):
    """How a group's output is divided into tiles."""

    axis: int
    """The dimension that is cut into ranges."""
    length: int
    """Indices of that dimension per tile."""
    single: int
    """Dimensions before this one have one index in a tile, others up to ``axis`` all."""

    @property
    def is_band(self) -> bool:
        """True if tiles are not contiguous in memory."""
        return self.single < self.axis

    def tiles(self, shape: Sequence[int]) -> int:
        """Return the number of tiles."""
        size = shape[self.axis] if shape else 1
        return prod(shape[: self.single]) * -(-size // self.length)

    def shares(self, shape: Sequence[int]) -> float:
        """Return the number of tiles, with smaller last tiles as fractions."""
        size = shape[self.axis] if shape else 1
        return prod(shape[: self.single]) * size / max(self.length, 1)

    def box(self, shape: Sequence[int], index: int) -> Box:
        """Return the tile at an index."""
        if not shape:
            return ()
        size = shape[self.axis]
        index, start = divmod(index, -(-size // self.length))
        outer = []
        for dim in reversed(shape[: self.single]):
            index, at = divmod(index, dim)
            outer.append(slice(at, at + 1))
        part = slice(start * self.length, min((start + 1) * self.length, size))
        between = whole(shape[self.single : self.axis])
        return (*reversed(outer), *between, part, *whole(shape[self.axis + 1 :]))


@dataclass(frozen=True, slots=True)
class Tiling:
    """A way to run a group."""

    division: Division
    limit: int
    """Bytes for the kernels' own workspaces, if the kernels can work with so few."""
    bytes: int
    """Scratch memory."""
    cost: float
    """About how many nanoseconds a run takes."""


# -- choosing ------------------------------------------------------------------------------


def group_choices(group: Group) -> tuple[Choice, ...]:
    """Return the scratch sizes that a group can run with, or nothing if none is needed."""
    return needed(group_ways(group))


def group_ways(group: Group) -> tuple[Choice, ...]:
    """Return the scratch sizes that a group can run with; costs are in nanoseconds."""
    if is_empty(group):
        return (Choice(0, 0.0),)
    quantized = quantized_group(group)
    if quantized is not None:
        return quantized.choices()
    hosting = hosting_of(group)
    if hosting is None:
        return offered(group, list(tilings(in_chains(group))))
    return hosted_choices(group, hosting)


def hosted_choices(group: Group, hosting: Hosting) -> tuple[Choice, ...]:
    """Return the scratch sizes with which a member performs all other members."""
    host = hosting.host
    assert host.kernel.workspace is not None
    slots = attributed(host.kernel.workspace, host.signature, host.signature)
    besides = sum(
        nanoseconds(member.signature, member.kernel)
        for member in group.members
        if member is not host and not member.is_view and member.value not in group.loaded
    )
    if not slots:
        return (Choice(0, besides + nanoseconds(host.signature, host.kernel)),)
    return tuple(Choice(choice.bytes, choice.cost + besides) for choice in slots[0])


def needed(ways: Sequence[Choice]) -> tuple[Choice, ...]:
    """Return the scratch sizes to declare, or nothing if none is needed."""
    return () if ways[-1].bytes == 0 else tuple(ways)


def is_empty(group: Group) -> bool:
    """Return whether a group makes no element."""
    return made_by(group.sink).bytes == 0


def offered(group: Group, ways: Sequence[Tiling]) -> tuple[Choice, ...]:
    """Return the scratch sizes for some tilings, without tilings that are too slow."""
    slowest = _SLOWEST_IMAGES if _by_planes(group) else _SLOWEST
    worst = slowest * min(tiling.cost for tiling in ways) + _BEARABLE
    choices: list[Choice] = []
    for tiling in sorted(ways, key=lambda t: (t.bytes, t.cost)):
        if tiling.cost <= worst and (not choices or tiling.cost < choices[-1].cost):
            choices.append(Choice(tiling.bytes, tiling.cost))
    while len(choices) > 1 and choices[1].bytes <= _NEGLIGIBLE:
        del choices[0]
    return tuple(choices)


def fastest(ways: Iterable[Tiling], workspace: np.ndarray) -> Tiling | None:
    """Return the fastest way that fits the scratch memory, or ``None``."""
    fitting = (tiling for tiling in ways if tiling.bytes <= workspace.nbytes)
    return min(fitting, key=lambda tiling: (tiling.cost, tiling.bytes), default=None)


def layout_of(group: Group, division: Division) -> Layout:
    """Return the layout for the members' results."""
    # Even from a value with as many bytes as the output, a tile may need more than the tile makes.
    apart = division.is_band or bool(group.loaded)
    return lay_out(group.members, group.sink.value, group.taken, scattered=apart)


def tilings(group: Group) -> Iterator[Tiling]:
    """Yield ways to cut a group's output."""
    shape, widest = made_by(group.sink).shape, max(made_by(m).bytes for m in group.members)
    axes = [] if _is_whole(group) else _axes(group, shape)
    shares = [max(1, prod(shape) * target // max(widest, 1)) for target in _TARGETS]
    bands = dict.fromkeys(_bands(shape, shares) if axes and _slides(group) else ())
    few = bands and any(_mixes_inside(group, member) for member in group.members)
    blocks = (_largest(shape, axes, share) for share in (shares[:1] if few else shares))
    divisions = dict.fromkeys(blocks)
    if axes and any(map(_is_split, group.members)):
        divisions |= dict.fromkeys(_even(shape, axes[-1]))
    divisions |= bands
    for division in divisions:
        try:
            samples = _samples(group, division)
        except Uncuttable:
            continue
        layout = layout_of(group, division)
        kernels = [part_slots(parts) for parts in samples]
        usual = len(samples) // 2 if division.is_band else 0
        work = _work(layout, samples[usual], kernels[usual])
        for limit in _LIMITS if any(kernels[0]) else _LIMITS[:1]:
            yield _tiling(layout, division, samples, kernels, work, limit)


def _is_whole(group: Group) -> bool:
    """
    Return whether a member needs another member's whole result, beyond its windows' reach.

    Loaded values are made again for each tile, as far as the tile reads them.
    """
    made = group.made - group.loaded
    return any(
        value in made
        and position not in member.follows
        and not (member.kernel.hosts and position == 0)
        for member in group.members
        for position, value in member.reads()
    )


def _mixes_inside(group: Group, member: Member) -> bool:
    """Whether a convolution makes each channel of all channels of an image that is made inside."""
    is_inside = member.kernel.hosts is not None and member.inputs[0] in group.made
    return is_inside and int(member.signature.attributes.get("group", 1)) == 1


def _axes(group: Group, shape: Sequence[int]) -> list[int]:
    """Return the dimensions that can be cut."""
    found = []
    by_planes = _by_planes(group)
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if axis > 1 and by_planes:
            break  # Windows need more than a piece of the inputs that their rows follow.
        single = tuple(slice(0, 1) for _ in range(axis + 1))
        try:
            cut(group.members, group.sink.value, (*single, *whole(shape[axis + 1 :])))
        except Uncuttable:
            break
        found.append(axis)
    return found


def _largest(shape: Sequence[int], axes: Sequence[int], elements: int) -> Division:
    """Return the largest tiles of up to so many elements, or else the smallest there are."""
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
    return Division(*best, best[0])


def _slides(group: Group) -> bool:
    """Whether all members can work on some rows of all channels, which are not contiguous."""
    cuts = _cuts(group)
    return all(cut is not None and cut.slides for cut in cuts) and not all(
        cut is not None and cut.pointwise for cut in cuts
    )


def _by_planes(group: Group) -> bool:
    """Whether some member works on images."""
    return any(cut is not None and cut.time is not None for cut in _cuts(group))


def _cuts(group: Group) -> list[Cut | None]:
    return [member.kernel.cut for member in group.members]


def _is_split(member: Member) -> bool:
    """Whether a member shows the same elements in other dimensions."""
    return member.is_view and member.signature.input(0) != made_by(member)


def _even(shape: Sequence[int], axis: int) -> Iterator[Division]:
    """Yield tiles with equally many indices along a dimension."""
    for count in range(1, shape[axis]):
        if shape[axis] % count == 0 and prod(shape[:axis]) * shape[axis] // count <= _MOST_TILES:
            yield Division(axis, count, axis)


def _bands(shape: Sequence[int], shares: Sequence[int]) -> Iterator[Division]:
    """Yield tiles with some rows of all channels."""
    if len(shape) < 3 or shape[2] < 2 or shape[0] > _MOST_BANDS:
        return
    row = max(prod(shape[1:]) // shape[2], 1)
    for share in shares:
        count = min(shape[2], max(1, share // row, -(-shape[2] * shape[0] // _MOST_BANDS)))
        yield Division(2, -(-shape[2] // -(-shape[2] // count)), 1)


def _has_groups(member: Member) -> bool:
    """Whether a member makes several channels in each of several groups: a tile may span two."""
    shape = made_by(member).shape
    groups = member.signature.attributes.get("group", 1)
    # An operator without groups may have any attribute with that name.
    return len(shape) > 1 and type(groups) is int and 1 < groups < shape[1]


def _samples(group: Group, division: Division) -> list[Parts]:
    """
    Return the parts for some tiles, including the largest.

    Raises
    ------
    Uncuttable
        If some tile cannot be made by itself.
    """
    shape = made_by(group.sink).shape
    count = division.tiles(shape)
    wanted = sorted({0, count - 1})  # The last tile may be smaller, and need other sizes.
    if division.is_band:  # Tiles at the edges need less: rows beyond need not be made.
        wanted = [*range(count)] if count <= _FEW_TILES else [0, 1, count // 2, count - 1]
    samples = [cut(group.members, group.sink.value, division.box(shape, at)) for at in wanted]
    if division.is_band and _overtakes(group, samples):
        raise Uncuttable
    is_aligned = all(map(_is_aligned, samples[0]))
    if len(wanted) < count and (not is_aligned or any(map(_has_groups, group.members))):
        if not is_aligned and count > _MOST_BANDS:
            raise Uncuttable
        for at in range(count):
            cut(group.members, group.sink.value, division.box(shape, at))
    return samples


def _is_aligned(part: tuple[Member, Box, list[Box | None]]) -> bool:
    """Return whether all consecutive parts of a view are boxes in both shapes."""
    member, box, _ = part
    shown = member.signature.input(0)
    if shown is None or not _is_split(member):
        return True
    run = prod(box_shape(box))
    return _divides(run, shown.shape) and _divides(run, made_by(member).shape)


def _divides(run: int, shape: Sequence[int]) -> bool:
    """Return whether consecutive runs with ``run`` elements are boxes in an array."""
    inner = 1
    for size in reversed(shape):
        outer = inner * size
        if run % inner == 0 and outer % run == 0:
            return True
        inner = outer
    return False


def _overtakes(group: Group, samples: Sequence[Parts]) -> bool:
    """Return whether a tile reads beyond its own area in a value that shares the output's place."""
    for parts in samples:
        tile = parts[-1][1]
        for member, _, operands in parts:
            for position, value in member.reads():
                if value in group.taken and operands[position] != tile:
                    return True
    return False


class _Work(NamedTuple):
    """A member's call for a tile."""

    member: Member
    signature: Signature
    slots: Slots


def _work(layout: Layout, parts: Parts, kernels: Sequence[Slots]) -> list[_Work]:
    """Return the members' calls for a tile, without views."""
    return [
        _Work(member, part_signature(member, box, operands), slots)
        for (member, box, operands), slots in zip(parts, kernels, strict=True)
        if member.value not in layout.roots
    ]


def _tiling(
    layout: Layout,
    division: Division,
    samples: Sequence[Parts],
    kernels: Sequence[Sequence[Slots]],
    work: Sequence[_Work],
    limit: int,
) -> Tiling:
    scratch = max(slots_bytes(slots, limit) for slots in kernels)
    sizes = [layout.sizes(parts) for parts in samples]
    registers = sum(max(size[register] for size in sizes) for register in sizes[0])
    time = sum(_time(each, limit) for each in work)
    return Tiling(division, limit, registers + scratch, division.shares(layout.output.shape) * time)


def _time(work: _Work, limit: int) -> float:
    """Return the estimated nanoseconds that a member takes for a tile."""
    signature = work.signature
    chosen = [(slot, best_within(slot, limit)) for slot in work.slots]
    time = nanoseconds(signature, work.member.kernel, chosen)
    image, weights = signature.input(0), signature.input(1)
    if not work.member.kernel.hosts or image is None or weights is None or weights.shape[1] < 2:
        return time
    # BLAS repacks the operand that weights multiply, even if the weights are few.
    return time + _REPACKED * prod(image.shape)


# -- running --------------------------------------------------------------------------------


def group_run(group: Group, arrays: Mapping[int, np.ndarray], workspace: np.ndarray) -> Run | None:
    """
    Return a function that runs a group, or ``None`` if the group makes no element.

    Parameters
    ----------
    arrays : mapping of int to array
        Memory for every value that is read or made.
    workspace : array
        Scratch memory with a size that :func:`group_choices` returns.

    Raises
    ------
    ExecutionError
        If the workspace is too small.
    """
    if is_empty(group):
        return None
    output = arrays[group.sink.value]
    quantized = quantized_group(group)
    if quantized is not None:
        return partial(run_in_turn, quantized.runs(arrays, output, workspace))
    hosting = hosting_of(group)
    if hosting is not None:
        return hosted_run(group, hosting, arrays, workspace, {})
    group = in_chains(group)
    tiling = fastest(tilings(group), workspace)
    if tiling is None:
        raise fault(
            "WorkspaceOverrun",
            f"node {group.sink.signature.name!r} and what runs as one with it need more workspace "
            f"than the {workspace.nbytes} bytes that the plan gives them",
        )
    scratch = Scratch(workspace, group.sink.signature.name)
    kept: Kept = {}
    runs: list[Run] = []
    layout = layout_of(group, tiling.division)
    for index in range(tiling.division.tiles(output.shape)):
        box = tiling.division.box(output.shape, index)
        tile = Tile(box, part_of(output, box))
        runs += bind(layout, group.members, tile, arrays, scratch, tiling.limit, kept)
    return partial(run_in_turn, runs)


def run_in_turn(runs: Sequence[Run]) -> None:
    """Call the functions in order."""
    for run in runs:
        run()


def hosted_run(
    group: Group,
    hosting: Hosting,
    arrays: Mapping[int, np.ndarray],
    workspace: np.ndarray,
    kept: dict[str, np.ndarray],
) -> Run:
    """
    Return a function that runs a group by a member's kernel.

    Parameters
    ----------
    kept : dict
        Data that the kernel prepares from constants, shared by parts in the same group.
    """
    host = hosting.host
    inputs = tuple(
        None if value is None or value in group.made else arrays[value] for value in host.inputs
    )
    output = arrays[group.sink.value].reshape(made_by(host).shape)
    step = Step(host.signature, inputs, (output,), (workspace,), hosting.guests(arrays), kept)
    run = attributed(host.kernel.prepare, step, host.signature)
    assert run is not None, "a group makes something"
    after = hosting.finish(arrays, output)
    return partial(run_in_turn, [run, *after]) if after else run
