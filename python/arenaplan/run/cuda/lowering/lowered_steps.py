"""
One step of a plan as work: a node, or a group of nodes that runs as one.

A value inside a group is computed where the value is read, if the producer is a map. Otherwise the
value is written to memory: to the group's output, if the sizes match and no other value with that
size is still to be read, or else to scratch memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import prod

from arenaplan.base.errors import PlannerError, UnsupportedOp
from arenaplan.graph import Choice, Graph, Node
from arenaplan.run.cuda.device_work import DevicePlace, DeviceSpan, Work, early_writes
from arenaplan.run.cuda.lowering.site import (
    DeviceSite,
    Kind,
    Sources,
    StepMember,
    find_rule,
    map_launch,
)
from arenaplan.run.cuda.text import C_TYPES
from arenaplan.run.numpy.registry import Tensor, attributed
from arenaplan.run.numpy.signatures import signature_of

_EXPANDED = 2
"""Most times that an element of an inner value is computed for a reader that only moves it."""


class StepLowering:
    """
    A step's work, before memory is known.

    Parameters
    ----------
    graph : Graph
        The planned graph.
    nodes : sequence of int
        The nodes that run together, in order.

    Raises
    ------
    UnsupportedOp, UnsupportedDtype
        If a node has no kernel.
    """

    def __init__(self, graph: Graph, nodes: Sequence[int]) -> None:
        self._graph = graph
        self.members = [_member(graph, graph.nodes[node]) for node in nodes]
        for member in self.members:
            _ = member.rule
        self._sources = self._found_sources()
        self._homes: list[int] = []
        self._place_inner_values()

    @property
    def inline(self) -> Mapping[int, StepMember]:
        """The values that are computed where they are read."""
        return self._sources.inline

    @cached_property
    def slots(self) -> tuple[tuple[Choice, ...], ...]:
        """The step's scratch buffers, each with sizes in ascending order."""
        inner = [(Choice(self._sources.tensors[value].bytes, 0.0),) for value in self._homes]
        staged = () if self._staged is None else ((Choice(self._staged, 0.0),),)
        return (*inner, *(choices for _, choices in self._declared), *staged)

    @property
    def staging_slot(self) -> int | None:
        """The scratch buffer for a result that must wait until everything is read."""
        return None if self._staged is None else len(self.slots) - 1

    @cached_property
    def _staged(self) -> int | None:
        """
        Bytes of the result that the plan may place over an operand too early, or ``None``.

        A plan counts on an order: piece by piece in a group, where pieces may be rows or planes,
        and element by element where results are smaller than operands. Threads keep an order
        only where each element is replaced by an element with the same size.
        """
        made = [value for value in self.members[-1].outputs if value is not None]
        if len(made) != 1:
            return None
        tensors, output = self._sources.tensors, DevicePlace("value", made[0])
        size = tensors[made[0]].bytes
        candidates = self._takeable(size)
        if not candidates:
            return None
        works = self.works(
            [
                *(tensors[value].bytes for value in self._homes),
                *(min(slot, key=lambda choice: choice.cost).bytes for _, slot in self._declared),
            ]
        )
        places = {p for work in works for p in (*work.writes, *(r.place for r in work.reads))}
        apart = {place: DeviceSpan(at + 1, 0, 1) for at, place in enumerate(places)}
        for value in candidates:
            taken = {DevicePlace("value", value): DeviceSpan(0, 0, tensors[value].bytes)}
            if early_writes(works, {**apart, **taken, output: DeviceSpan(0, 0, size)}):
                return size
        return None

    def _takeable(self, size: int) -> list[int]:
        """Return operands over which a plan may place a result with ``size`` bytes."""
        inside = {value for member in self.members for value in member.outputs}
        tensors = self._sources.tensors
        values = {v for member in self.members for v in member.inputs if v is not None} - inside
        if len(self.members) == 1:
            member = self.members[0]
            effects = self._graph.nodes[member.index].effects
            values = {
                v for pair in effects.in_place if (v := member.inputs[pair.input]) is not None
            }
            values = {v for v in values if tensors[v].bytes != size}
        else:
            values = {v for v in values if tensors[v].bytes == size}
        return sorted(v for v in values if self._graph.values[v].kind != "constant")

    def works(self, sizes: Sequence[int]) -> list[Work]:
        """Return the work with these scratch buffer sizes, in order."""
        sources = self._sources
        slot_of = {
            member.index: len(self._homes) + at for at, (member, _) in enumerate(self._declared)
        }
        works: list[Work] = []
        for member in self.members:
            made = [value for value in member.outputs if value is not None]
            if all(value in sources.inline for value in made):
                continue
            slot = slot_of.get(member.index)
            scratch = None if slot is None else DevicePlace("scratch", slot)
            site = DeviceSite(member, sources, scratch, 0 if slot is None else sizes[slot])

            def lower(site: DeviceSite, made: Sequence[int] = made) -> list[Work]:
                rule = site.member.rule
                filled = [value for value in made if sources.tensors[value].bytes]
                if rule.work is not None:
                    return rule.work(site) if filled else []
                return [map_launch(sources, site.member, value) for value in filled]

            works += attributed(lower, site, member.signature)
        return works

    # -- values ------------------------------------------------------------------------

    def _found_sources(self) -> Sources:
        tensors: dict[int, Tensor] = {}
        constants = {}
        for member in self.members:
            signature = member.signature
            pairs = [
                *zip(member.inputs, signature.inputs, strict=True),
                *zip(member.outputs, signature.outputs, strict=True),
            ]
            for value, tensor in pairs:
                if value is None or tensor is None:
                    continue
                tensors[value] = tensor
                is_number = prod(tensor.shape) == 1 and tensor.dtype in C_TYPES
                if (
                    is_number
                    and self._graph.values[value].kind == "constant"
                    and self._graph.has_data(value)
                ):
                    constants[value] = self._graph.data(value).reshape(-1)[0]
        whole = {
            member.inputs[at]
            for member in self.members
            for at in member.rule.whole
            if at < len(member.inputs)
        }
        return Sources(tensors, {v: data for v, data in constants.items() if v not in whole})

    def _place_inner_values(self) -> None:
        """Decide which group values are computed where the values are read."""
        sources, last = self._sources, self.members[-1]
        for position, member in enumerate(self.members[:-1]):
            for value in member.outputs:
                if value is None:
                    continue
                if self._is_inline(member, value):
                    sources.inline[value] = member
                elif self._fits_output(position, value):
                    sources.places[value] = sources.place(
                        next(made for made in last.outputs if made is not None)
                    )
                else:
                    sources.places[value] = DevicePlace("scratch", len(self._homes))
                    self._homes.append(value)

    def _readers(self, value: int) -> list[tuple[StepMember, int]]:
        return [
            (member, position)
            for member in self.members
            for position, read in enumerate(member.inputs)
            if read == value
        ]

    def _is_inline(self, member: StepMember, value: int) -> bool:
        readers = self._readers(value)
        size = prod(self._sources.tensors[value].shape)
        kinds = {reader.rule.kind for reader, _ in readers}
        if member.rule.kind is Kind.WORK or len(member.outputs) > 1:
            return False
        if any(position in reader.rule.whole for reader, position in readers):
            return False
        made = [prod(t.shape) for reader, _ in readers for t in reader.signature.outputs if t]
        if member.rule.kind is Kind.WINDOW or len(readers) > 1:
            return kinds == {Kind.POINTWISE} and all(count == size for count in made)
        is_moved = kinds <= {Kind.POINTWISE, Kind.MOVE}
        return not is_moved or all(count <= _EXPANDED * size for count in made)

    def _fits_output(self, position: int, value: int) -> bool:
        """Return whether an inner value can be where the output will be written."""
        tensors = self._sources.tensors
        last = self.members[-1]
        made = [output for output in last.outputs if output is not None]
        if len(made) != 1 or tensors[made[0]].bytes != tensors[value].bytes:
            return False
        if self._sources.places or last.rule.kind is not Kind.POINTWISE:
            return False
        later = self.members[position + 1 :]
        if [reader for reader, _ in self._readers(value)] != [last] and len(later) > 1:
            return False
        inside = {v for member in self.members for v in member.outputs}
        others = {v for member in later for v in member.inputs if v is not None and v not in inside}
        return not any(
            self._graph.values[v].kind != "constant" and tensors[v].bytes == tensors[value].bytes
            for v in others
        )

    @cached_property
    def _declared(self) -> list[tuple[StepMember, tuple[Choice, ...]]]:
        """Return the members that need their own scratch memory, with the sizes."""
        declared = []
        for member in self.members:
            declare = member.rule.scratch
            if declare is None:
                continue
            choices = tuple(sorted(attributed(declare, member.signature, member.signature)))
            if choices:
                declared.append((member, choices))
        if len(declared) > 1:  # Only a single member may offer several sizes.
            declared = [(m, (min(each, key=lambda c: c.cost),)) for m, each in declared]
        return declared


def _member(graph: Graph, node: Node) -> StepMember:
    if node.effects.mutates:
        raise UnsupportedOp(f"node {node.name!r} ({node.op}) changes a state, which devices do not")
    return StepMember(signature_of(graph, node), node.inputs, node.outputs, node.index)


def check_supported(graph: Graph, nodes: Iterable[Node] | None = None) -> None:
    """
    Raise an error that lists all operators without a kernel, if a graph has any.

    Raises
    ------
    UnsupportedOp
        With every operator that has no kernel, and the name of a node for each operator.
    """
    missing: dict[str, str] = {}
    first: PlannerError | None = None
    for node in graph.nodes if nodes is None else nodes:
        try:
            find_rule(_member(graph, node).signature)
        except UnsupportedOp as error:
            first = first or error
            name = f"{node.domain}::{node.op}" if node.domain else node.op
            missing.setdefault(name, node.name)
    if first is None:
        return
    if len(missing) == 1:
        raise first
    rows = ", ".join(f"{op} ({name!r})" for op, name in sorted(missing.items()))
    raise UnsupportedOp(f"no kernel for devices runs these operators (and nodes): {rows}")
