"""
Group members that another member's kernel performs.

A convolution cuts the work into tiles. Epilogue members (:attr:`Hosting.after`) work on a finished
tile that is still in cache. Per-channel scales and shifts take no extra work, since the weights
absorb them. Members that make the image are not hosted: windows would need some elements twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from math import inf, isnan, prod

import numpy as np

from arenaplan.graph.ops.boxes import Box, Uncuttable, box_shape
from arenaplan.run.numpy.affine import Vectors, channel_affine, is_channel_affine, then
from arenaplan.run.numpy.groups import Group, Member
from arenaplan.run.numpy.registry import Run, Scratch, Signature
from arenaplan.run.numpy.tiles import (
    OUT,
    Layout,
    Tile,
    bind,
    cut,
    lay_out,
    made_by,
    part_slots,
    slots_bytes,
)

_KERNEL_LIMITS = (1 << 14, 1 << 17)
"""Bytes for the kernels' own workspaces, if the kernels can work with so few: for the smallest
tiles and for the largest tiles.
"""


@dataclass(frozen=True, slots=True)
class Hosting:
    """The members that a host member performs."""

    host: Member
    absorbed: tuple[tuple[Member, int], ...]
    """Scales and shifts of the host's output, with the operand position of this output."""
    added: Member | None
    """The member that adds another operand to the result, which the host performs as well."""
    bounded: Member | None
    """The member that bounds the result by constants, which the host performs as well."""
    after: tuple[Member, ...]
    """Members that work on the host's output (epilogue)."""
    results: Layout
    by_planes: bool = field(default=False, kw_only=True)
    """Whether the output may share memory with the host's input 0, where each input plane is read
    before the output plane is written.
    """

    @property
    def finishes(self) -> bool:
        """True if members work on result tiles."""
        return bool(self.after)

    @property
    def needs_tile(self) -> bool:
        """True if only finished results may be written to the output."""
        source = self.results.source
        return source is not None and self.results.home[source] != OUT

    @property
    def needs_scratch(self) -> bool:
        """True if finishing a tile takes scratch memory besides the tile."""
        return self.results.has_registers or any(member.has_scratch for member in self.after)

    def bytes(self, tile: Box) -> int:
        """Return the scratch memory for finishing a tile, without the tile itself."""
        members, layout = self.after, self.results
        total = layout.register_bytes(prod(box_shape(tile)))
        if any(member.has_scratch for member in members):
            parts = cut(members, members[-1].value, tile, layout.source)
            total += slots_bytes(part_slots(parts), _kernel_limit(tile))
        return total


def _kernel_limit(box: Box) -> int:
    """Return the bytes for the kernels' own use, a byte per tile element."""
    least, most = _KERNEL_LIMITS
    return min(max(prod(box_shape(box)), least), most)


# -- hosts and guests ------------------------------------------------------------------------


def hosting_of(group: Group) -> Hosting | None:
    """Return how one member performs all others, or ``None`` if no member can."""
    hosts = [member for member in group.members if member.hosts]
    if len(hosts) != 1 or hosts[0].value in group.loaded:
        return None
    (host,) = hosts
    if any(value in group.made for _, value in host.reads()) or host.inputs[0] in group.taken:
        return None
    hosting = guests_of(group, host)
    output, members = hosting.results.output, hosting.after
    if output.shape != made_by(host).shape or not _overwrites(hosting, group.taken):
        return None
    if not all(_is_pointwise(member, hosting.results) for member in members):
        return None
    try:
        corner = tuple(slice(0, min(1, size)) for size in output.shape)
        if members:
            cut(members, members[-1].value, corner, hosting.results.source)
    except Uncuttable:
        return None
    return hosting


def planes_hosting_of(group: Group) -> Hosting | None:
    """
    Return how one member performs all others plane by plane, or ``None`` if no member can.

    The output may then take the image's place, since no other member reads the image.
    """
    hosting = hosting_of(group)
    if hosting is None:
        return None
    host, by_planes = hosting.host, hosting.host.kernel.by_planes
    if by_planes is None or not by_planes(host.signature):
        return None
    made = made_by(host)
    if hosting.added is not None or hosting.needs_tile or hosting.needs_scratch:
        return None
    for member in group.members:
        if member.pieces % prod(made.shape[:2]):
            return None
        for position, value in member.reads():
            is_image = member is host and position == 0
            is_inside = value in group.made or member.signature.constant[position] is not None
            if not (is_image or is_inside):
                return None
    return replace(hosting, by_planes=True)


def _overwrites(hosting: Hosting, taken: frozenset[int]) -> bool:
    """Return whether the last member may write over values that the member reads."""
    if not hosting.after:
        return True
    last = hosting.after[-1]
    return all(at in last.overwrites for at, value in last.reads() if value in taken)


def _is_pointwise(member: Member, layout: Layout) -> bool:
    """Return whether a member can work on parts that are not contiguous."""
    if member.value in layout.roots:
        return member.signature.input(0) == made_by(member)
    return member.kernel.is_pointwise


def guests_of(group: Group, host: Member) -> Hosting:
    """Return the members that the host performs, before memory is known."""
    after = [member for member in group.members if member is not host]
    output = group.sink.value
    while after and after[-1].is_free and after[-1].inputs[0] in group.made:
        output = after.pop().inputs[0] or 0  # The same bytes with another shape.
    absorbed, source = _absorbed(output, host, after)
    after = [member for member in after if all(member is not known for known, _ in absorbed)]
    added = _added(output, source, host, after)
    if added is not None:
        after.remove(added)
        source = added.value
    bounded = _bounded(output, source, after)
    if bounded is not None:
        after.remove(bounded)
        source = bounded.value
    results = lay_out(after, output, group.taken, (source, made_by(host)))
    return Hosting(host, tuple(absorbed), added, bounded, tuple(after), results)


def _absorbed(
    output: int, host: Member, after: Sequence[Member]
) -> tuple[list[tuple[Member, int]], int]:
    """Return the scales and shifts that weights can absorb, and the resulting value."""
    value = host.value
    absorbed: list[tuple[Member, int]] = []
    weights = [at for at, _ in host.reads() if at]
    if not all(host.signature.constant[at] for at in weights):
        return absorbed, value
    while value != output:
        readers = [(m, at) for m in after for at, read in m.reads() if read == value]
        if len(readers) != 1 or not is_channel_affine(readers[0][0].signature, readers[0][1]):
            break
        absorbed.append(readers[0])
        value = readers[0][0].value
    return absorbed, value


def _added(output: int, source: int, host: Member, after: Sequence[Member]) -> Member | None:
    """Return the next member if that adds an outside operand and the host can add."""
    readers = [(member, at) for member in after for at, read in member.reads() if read == source]
    adds = host.kernel.adds
    if source == output or len(readers) != 1 or adds is None:
        return None
    ((member, _),) = readers
    signature, made = member.signature, made_by(member)
    others = {value for _, value in member.reads()} - {source}
    is_addition = signature.op in ("Add", "Sum") and signature.domain in ("", "ai.onnx")
    is_plain = made == made_by(host) and all(tensor == made for tensor in signature.inputs)
    is_outside = all(value != each.value for value in others for each in after)
    is_pair = len(member.inputs) == 2 and len(others) == 1
    found = is_addition and is_plain and is_outside and is_pair and adds(host.signature)
    return member if found else None


def _bounded(output: int, source: int, after: Sequence[Member]) -> Member | None:
    """Return the member that bounds a value by constants, if nothing else reads the value."""
    readers = [member for member in after for _, read in member.reads() if read == source]
    if source == output or len(readers) != 1:
        return None
    (member,) = readers
    is_first = member.inputs[0] == source and made_by(member).dtype == np.float32
    return member if is_first and bounds_of(member.signature) is not None else None


def bounds_of(signature: Signature) -> tuple[float, float] | None:
    """Return the constant bounds for a Relu or Clip node's result, or ``None``."""
    if signature.op == "Relu":
        return (0.0, inf)
    if signature.op != "Clip" or any(
        signature.input(at) is not None and signature.constant[at] is None for at in (1, 2)
    ):
        return None
    low, high = signature.constant_data(1), signature.constant_data(2)
    if any(bound is not None and bound.size != 1 for bound in (low, high)):
        return None  # Bounds with several numbers, which the operator does not allow.
    attributes = signature.attributes
    found = (
        float(attributes.get("min", -inf) if low is None else low.reshape(())),
        float(attributes.get("max", inf) if high is None else high.reshape(())),
    )
    return None if any(map(isnan, found)) else found


# -- with memory ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BoundHosting(Hosting):
    """The members that a host member performs, bound to memory."""

    arrays: Mapping[int, np.ndarray]
    output: np.ndarray

    def channel_affine(self) -> Vectors:
        """Return a scale and a shift per channel, which the host applies to the weights."""
        total: Vectors = (None, None)
        for member, position in self.absorbed:
            total = then(total, channel_affine(member.signature, position))
        return total

    def addend(self, tile: Box) -> np.ndarray | None:
        """Return the addend for a result tile after scale and shift, if any."""
        if self.added is None:
            return None
        inside = self.made_before()
        (value,) = (v for _, v in self.added.reads() if v != inside)
        return self.arrays[value].reshape(self.results.output.shape)[tile]

    def made_before(self) -> int:
        """Return the value that the addend is added to."""
        return self.absorbed[-1][0].value if self.absorbed else self.host.value

    def bounds(self) -> tuple[float, float]:
        """Return the bounds for the host's results, after scale, shift and addend."""
        found = None if self.bounded is None else bounds_of(self.bounded.signature)
        return (-inf, inf) if found is None else found

    def finish(self, tile: Box, source: np.ndarray, scratch: Scratch) -> list[Run]:
        """Return functions that turn a result tile into a tile of the group's output."""
        part = self.output[tile]
        if self.after:
            return bind(
                self.results,
                self.after,
                Tile(tile, part, source),
                self.arrays,
                scratch,
                _kernel_limit(tile),
            )
        if np.may_share_memory(part, source):
            return []
        return [partial(np.copyto, part, source)]


def bound(hosting: Hosting, sink: int, arrays: Mapping[int, np.ndarray]) -> BoundHosting:
    """Return the members that the host performs, with memory; ``sink`` is the last result."""
    free = {each.name: getattr(hosting, each.name) for each in fields(hosting)}
    output = arrays[sink].reshape(hosting.results.output.shape)
    return BoundHosting(**free, arrays=arrays, output=output)
