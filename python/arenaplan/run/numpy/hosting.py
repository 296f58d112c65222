"""
Group members that another member's kernel performs.

A convolution adds a residual, and bounds its results, while sums are in registers. Per-channel
scales and shifts take no extra work, since the weights absorb them. A chain of elementwise members
may follow, in the place of the result. Members that make the image are not hosted: windows would
need some elements twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan

import numpy as np

from arenaplan.run.numpy.affine import Vectors, channel_affine, is_channel_affine, then
from arenaplan.run.numpy.chains import Chain
from arenaplan.run.numpy.groups import Group, Member
from arenaplan.run.numpy.registry import Guests, Run, Signature
from arenaplan.run.numpy.tiles import chain_of, chain_operands, made_by


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
    source: int
    """The value that the host makes with all these."""
    after: tuple[Member, ...]
    """Members that change the result in its place, when all of it is made."""

    def of_parts(self, parts: Iterable[Member]) -> Hosting:
        """
        Return the same for members that make parts of their results.

        A part may look like more than it is: one row of a constant like numbers per channel.
        """
        known = {part.value: part for part in parts}
        added, bounded = (
            None if member is None else known[member.value] for member in (self.added, self.bounded)
        )
        return Hosting(
            known[self.host.value],
            tuple((known[member.value], position) for member, position in self.absorbed),
            added,
            bounded,
            self.source,
            tuple(known[member.value] for member in self.after),
        )

    @property
    def chain(self) -> Chain | None:
        """The program of the members that follow."""
        return chain_of(self.after, self.after[-1].value) if self.after else None

    def guests(self, arrays: Mapping[int, np.ndarray]) -> Guests:
        """Return what the host's kernel performs besides its own work, with memory."""
        found = None if self.bounded is None else bounds_of(self.bounded.signature)
        return Guests(self.channel_affine, self._addend(arrays), found or (-inf, inf))

    def channel_affine(self) -> Vectors:
        """Return a scale and a shift per channel, which the host applies to the weights."""
        total: Vectors = (None, None)
        for member, position in self.absorbed:
            total = then(total, channel_affine(member.signature, position))
        return total

    def _addend(self, arrays: Mapping[int, np.ndarray]) -> np.ndarray | None:
        """Return the addend of the result after scale and shift, if any."""
        if self.added is None:
            return None
        inside = self.absorbed[-1][0].value if self.absorbed else self.host.value
        (value,) = (v for _, v in self.added.reads() if v != inside)
        return arrays[value].reshape(made_by(self.host).shape)

    def finish(self, arrays: Mapping[int, np.ndarray], output: np.ndarray) -> list[Run]:
        """Return functions that turn the host's result, in the output, into that of the group."""
        if not self.after:
            return []
        chain = self.chain
        assert chain is not None, "the members behind a host form a chain"
        operands = chain_operands(chain, self.after, {**arrays, self.source: output})
        return [chain.bind(self.after[-1].value, operands, output)]


# -- hosts and guests ------------------------------------------------------------------------


def hosting_of(group: Group) -> Hosting | None:
    """Return how one member performs all others, or ``None`` if no member can."""
    hosts = [member for member in group.members if member.hosts]
    if len(hosts) != 1 or hosts[0].value in group.loaded:
        return None
    (host,) = hosts
    if any(value in group.made for _, value in host.reads()) or host.inputs[0] in group.taken:
        return None
    hosting = _guests_of(group, host)
    if not hosting.after:
        return hosting
    # The result of the host is in the place of the output before the chain begins.
    reads = {value for member in hosting.after for _, value in member.reads()}
    is_alike = made_by(hosting.after[-1]) == made_by(host)
    return hosting if is_alike and hosting.chain and not reads & group.taken else None


def _guests_of(group: Group, host: Member) -> Hosting:
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
    return Hosting(host, tuple(absorbed), added, bounded, source, tuple(after))


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
