"""
Stages: members of a region that one kernel performs, on some rows of their operands.

A convolution and the elementwise members behind it are one stage: its kernel performs them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from arenaplan.graph import Choice, Graph, Window
from arenaplan.graph.costs import RowCost, RowKernel, Way
from arenaplan.graph.ops import ROWS
from arenaplan.graph.ops.boxes import Box, Uncuttable, whole
from arenaplan.run.numpy.groups import Group, Member, NotAGroup, form, member_of
from arenaplan.run.numpy.hosting import Hosting, hosting_of
from arenaplan.run.numpy.registry import Signature, Tensor, padded
from arenaplan.run.numpy.streaming import hosted_choices
from arenaplan.run.numpy.tiles import (
    best_within,
    kernel_slots,
    made_by,
    operand_boxes,
    part_signature,
)
from arenaplan.run.numpy.timing import nanoseconds

LIMITS = (1 << 18, 1 << 16, 1 << 14)
"""Bytes that the kernels' own workspaces may have, from the fastest to the smallest."""
TRIED = LIMITS[:2]
"""Those that the search for regions tries."""
_CALL, _SLOWER = 2e3, 1.05
"""
Nanoseconds of the rows of a stage beside those of the kernel, and how many times as long the
kernel takes, which finds other bytes in the cache each time; measured on eleven networks.
"""
_STEP = 4
"""Costs are asked for at the powers of this number, in rows."""


# -- members --------------------------------------------------------------------------------


class Read(NamedTuple):
    """A value that a stage reads row by row."""

    value: int
    window: Window
    rows: int
    """Rows of the value."""


@dataclass(frozen=True, eq=False)
class Stage:
    """A member, or one that hosts others."""

    members: tuple[Member, ...]
    """In order; the last one makes the result."""
    hosting: Hosting | None
    """How the first of several members performs the others."""
    value: int
    rows: int
    """Rows of the result."""
    row_bytes: int
    """Bytes of one row in all planes."""
    reads: tuple[Read, ...]

    @property
    def made(self) -> Tensor:
        """Shape and element type of the result."""
        return made_by(self.members[-1])

    works: Works
    """The work of this stage, or of one like it."""

    def work(self, start: int, stop: int) -> Work:
        """
        Return the work of making some rows.

        Raises
        ------
        Uncuttable
            If the kernels cannot make them alone.
        """
        needs = (read.window.needs((start, stop), read.rows) for read in self.reads)
        read = tuple(high - low for low, high in needs)
        key = (stop - start, start == 0, stop == self.rows, *read)
        found = self.works.found.get(key)
        if found is None:
            found = self.works.found[key] = self._work(start, stop)
        return found

    def costs(self) -> Sequence[RowCost]:
        """Return the costs of rows that are not at an edge, for each limit of `TRIED`."""
        if not self.works.costs:
            counts = {_STEP**power for power in range(self.rows.bit_length())}
            counts = {count for count in counts if count < self.rows} | {self.rows}
            self.works.costs = [RowCost(count, self._ways(count)) for count in sorted(counts)]
        return self.works.costs

    def _ways(self, rows: int) -> list[Way]:
        start = (self.rows - rows) // 2
        try:
            work = self._work(start, start + rows)
        except Uncuttable:
            return []
        runs = [work.within(limit) for limit in TRIED]
        return [Way(run.scratch, round(run.nanoseconds)) for run in runs]

    def _work(self, start: int, stop: int) -> Work:
        if self.hosting is None:
            member = self.members[0]
            signature, _ = part(member, start, stop)
            slots = kernel_slots(member, signature) if member.has_scratch else ()
            return Work(slots, lambda chosen: nanoseconds(signature, member.kernel, chosen))
        ways = self._hosted_ways(self.hosting, start, stop)
        return Work((ways,), lambda chosen: chosen[0][1].cost)

    def _hosted_ways(self, hosting: Hosting, start: int, stop: int) -> Sequence[Choice]:
        """Return the ways in which the first member makes some rows for all members."""
        parts = [replace(member, signature=part(member, start, stop)[0]) for member in self.members]
        group = Group(tuple(parts), frozenset(), frozenset())
        return hosted_choices(group, hosting.of_parts(parts))


class Work:
    """The work of a stage for one strip, which depends on the scratch memory that there is."""

    def __init__(
        self,
        slots: Sequence[Sequence[Choice]],
        time: Callable[[list[tuple[Sequence[Choice], Choice]]], float],
    ) -> None:
        self._slots, self._time = slots, time
        self._known: dict[int, StripCost] = {}

    def within(self, limit: int) -> StripCost:
        """
        Return the scratch memory and the time.

        Parameters
        ----------
        limit : int
            Bytes that each of the kernels' own workspaces may have, if they can.
        """
        run = self._known.get(limit)
        if run is None:
            chosen = [(slot, best_within(slot, limit)) for slot in self._slots]
            scratch = sum(padded(choice.bytes) for _, choice in chosen)
            run = self._known[limit] = StripCost(scratch, _CALL + _SLOWER * self._time(chosen))
        return run


class StripCost(NamedTuple):
    """The work of a stage for one strip."""

    scratch: int
    nanoseconds: float


class Works:
    """The work of all stages of one kind, for all numbers of rows that were asked for."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, ...], Work] = {}
        """By rows made, by the edges that they touch, and by rows read, which are fewer where a
        window reaches beyond an edge."""
        self.costs: Sequence[RowCost] = ()
        """Of rows that are not at an edge; empty before they are known."""


def part(member: Member, start: int, stop: int) -> tuple[Signature, list[Box | None]]:
    """
    Return the facts about a member that makes some rows, and the parts of its operands.

    Raises
    ------
    Uncuttable
        If it cannot.
    """
    made = made_by(member)
    signature = member.signature
    if (start, stop) == (0, made.shape[ROWS]):
        for window in member.windows:
            image = signature.inputs[window.input]
            if image is not None and window.needs((start, stop), image.shape[ROWS]) != (
                0,
                image.shape[ROWS],
            ):
                raise Uncuttable  # Kernels take all rows, and the last ones are never made.
        return signature, [None] * len(signature.inputs)
    box = (*whole(made.shape[:ROWS]), slice(start, stop), *whole(made.shape[ROWS + 1 :]))
    operands = operand_boxes(member, box)
    if len(operands) != len(signature.inputs):
        raise Uncuttable  # The node has operands that its operator does not.
    for position, tensor in enumerate(signature.inputs):
        if tensor is not None and operands[position] == whole(tensor.shape):
            operands[position] = None
    return part_signature(member, box, operands), operands


# -- stages ---------------------------------------------------------------------------------


class Former:
    """Makes stages of the nodes of a graph, and remembers what it made."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._alike: dict[object, Works] = {}
        self.member = cache(self._member)
        """Returns a node as a member, if it can make some rows by itself."""
        self.in_place = cache(self._in_place)
        """Returns the operand in whose rows a node may make its own, if it alone reads it."""
        self.stage = cache(self._stage)
        """Returns the stage of some nodes, of which the first hosts the others."""
        self.readers: dict[int, list[int]] = {}
        """Per value the nodes that name it; one that names it twice comes twice."""
        for node in graph.nodes:
            for value in node.inputs:
                if value is not None:
                    self.readers.setdefault(value, []).append(node.index)

    def _member(self, index: int) -> Member | None:
        graph, node = self.graph, self.graph.nodes[index]
        if not node.effects.windows or node.effects.mutates or node.effects.ignores or node.after:
            return None
        try:
            member = member_of(graph, node)
        except NotAGroup:
            return None
        cut = member.kernel.cut
        if cut is None or member.slot or made_by(member).bytes == 0:
            return None
        if cut.by_rows is not None:
            member = replace(member, kernel=replace(member.kernel, cut=cut.by_rows))
        return member

    def _in_place(self, node: int) -> int | None:
        member = self.member(node)
        if member is None:
            return None
        made = made_by(member)
        for window in member.windows:
            value = member.inputs[window.input]
            if (
                window.is_pointwise
                and window.input in member.overwrites
                and value is not None
                and len(self.readers[value]) == 1
                and value not in self.graph.outputs
                and member.signature.inputs[window.input] == made
                and self.graph.values[value].kind == "activation"
            ):
                return value
        return None

    def stages(self, nodes: Sequence[int]) -> list[Stage] | None:
        """Return the stages of nodes in this order, if all of them can make some rows."""
        found: list[Stage] = []
        at = 0
        while at < len(nodes):
            stop = at + 1
            first = self.member(nodes[at])
            if first is None:
                return None
            while first.hosts and stop < len(nodes) and self._follows(nodes, stop):
                stop += 1
            stage = None
            while stage is None and stop > at:
                stage = self.stage(tuple(nodes[at:stop]))
                stop -= stage is None
            if stage is None:
                return None
            found.append(stage)
            at = stop
        return found

    def _follows(self, nodes: Sequence[int], at: int) -> bool:
        member = self.member(nodes[at])
        taken = self.in_place(nodes[at])
        before = self.graph.nodes[nodes[at - 1]].outputs[0]
        return member is not None and member.kernel.is_pointwise and taken == before is not None

    def kernels(self, nodes: Iterable[int]) -> list[RowKernel]:
        """Return the stages for nodes, with costs."""
        able = [node for node in nodes if self.member(node) is not None]
        found = []
        at = 0
        for stage in self.stages(able) or ():
            own = able[at : at + len(stage.members)]
            at += len(own)
            found.append(RowKernel(own, self.in_place(own[0]), stage.costs()))
        return found

    def _stage(self, nodes: tuple[int, ...]) -> Stage | None:
        members = [self.member(node) for node in nodes]
        known = [member for member in members if member is not None]
        if len(known) < len(members):
            return None
        hosting = None
        if len(known) > 1:
            group = form(self.graph, known)
            group = replace(group, taken=frozenset())
            hosting = hosting_of(group)
            if hosting is None or hosting.host is not group.members[0] or group.loaded:
                return None
        made = made_by(known[-1])
        inside = {member.value for member in known}
        reads = tuple(
            Read(value, window, member.signature.inputs[window.input].shape[ROWS])  # type: ignore[union-attr]
            for member in known
            for window in member.windows
            if (value := member.inputs[window.input]) is not None and value not in inside
        )
        seen: dict[int, Window] = {}
        for read in reads:
            if seen.setdefault(read.value, read.window)[3:] != read.window[3:]:
                return None  # A stage has one array of each operand.
        rows = made.shape[ROWS]
        kind = _kind(known)
        works = self._alike.get(kind)
        if works is None:
            try:
                for member in known:
                    part(member, 0, min(1, rows))
            except Uncuttable:
                return None
            works = self._alike[kind] = Works()
        return Stage(tuple(known), hosting, known[-1].value, rows, made.bytes // rows, reads, works)


def _kind(members: Sequence[Member]) -> object:
    """Return a key of members whose kernels take the same time."""
    position: dict[int, int] = {}
    rows = []
    for member in members:
        signature = member.signature
        for value in (*member.inputs, member.value):
            if value is not None:
                position.setdefault(value, len(position))
        rows.append(
            (
                signature.op,
                signature.domain,
                signature.version,
                repr(sorted(signature.attributes.items())),
                signature.inputs,
                signature.outputs,
                tuple(load is None for load in signature.constant),
                tuple(None if v is None else position[v] for v in member.inputs),
            )
        )
    return tuple(rows)
