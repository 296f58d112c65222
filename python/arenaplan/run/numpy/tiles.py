"""
Tiles: running members of a group on one part of their operands.

Values inside a group live in *registers*: scratch memory for a single tile, or the tile's
part of the output. NumPy copies whole operands that overlap the output in part, so two
arrays in a call are the same memory or share no byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from arenaplan.graph import Choice
from arenaplan.graph.ops.boxes import Box, Uncuttable, box_shape, whole
from arenaplan.run.numpy.chains import Chain, channel_operands
from arenaplan.run.numpy.cuts import cut_operands
from arenaplan.run.numpy.groups import Member
from arenaplan.run.numpy.registry import (
    Run,
    Scratch,
    Signature,
    Step,
    Tensor,
    attributed,
    scratch_bytes,
)

OUT = -1
"""The register that is the tile's part of the output."""


# -- where values are ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layout:
    """Places for the results of members that run in turn."""

    members: tuple[Member, ...]
    """Members that compute: the others are views."""
    output: Tensor
    """The result of the last of them."""
    roots: Mapping[int, int]
    """Per value that is made by showing another one: that one."""
    home: Mapping[int, int]
    """Register of each value."""
    registers: tuple[int, ...]
    """Size of each register in bytes, for all of the output at once."""
    chain: Chain | None
    """A program for all members, if there is one: it needs no scratch memory."""

    def sizes(self, parts: Parts) -> dict[int, int]:
        """Return the size for every register that needs memory for some parts."""
        found = dict.fromkeys(() if self.chain else range(len(self.registers)), 0)
        for member, box, _ in parts:
            register = self.home.get(member.value)
            if register in found:
                size = scratch_bytes(box_shape(box), made_by(member).dtype)
                found[register] = max(found[register], size)
        return found


def lay_out(
    members: Sequence[Member],
    output: int,
    taken: frozenset[int] = frozenset(),
    *,
    scattered: bool = False,
) -> Layout:
    """
    Give every value that members make a register.

    Parameters
    ----------
    members : sequence of Member
        In execution order.
    output : int
        The wanted value.
    taken : set of int
        Values that are in the output's memory.
    scattered : bool, default False
        Whether an output tile is in many places in memory, so that working there is slow.
    """
    tensors = {m.value: made_by(m) for m in members}
    roots: dict[int, int] = {}
    for member in members:
        shown = member.inputs[0] if member.is_free else None
        shown = roots.get(shown, shown) if shown is not None else None
        if shown is not None and member.value != output and shown not in taken:
            roots[member.value] = shown
    work = tuple(member for member in members if member.value not in roots)
    assigner = _Assigner(work, output, taken, tensors, roots, scattered)
    for step, member in enumerate(work):
        assigner.place(member.value, step)
    return Layout(
        work,
        tensors[output],
        roots,
        assigner.home,
        tuple(assigner.registers),
        None if roots else chain_of(work, output),
    )


def chain_of(members: Sequence[Member], output: int) -> Chain | None:
    """Return a program for all members, if the compiled kernel has one."""
    if not members or members[-1].value != output:
        return None
    chain = Chain(made_by(members[-1]).shape)
    for member in members:
        if member.slot or not chain.append(member.value, member.signature, member.inputs):
            return None
    return chain if chain.fits(output) else None


class _Assigner:
    """Assigns registers to values, in the order in which they are made."""

    def __init__(
        self,
        work: Sequence[Member],
        output: int,
        taken: frozenset[int],
        tensors: Mapping[int, Tensor],
        roots: Mapping[int, int],
        scattered: bool,
    ) -> None:
        self.work, self.output, self.taken, self.tensors = work, output, taken, tensors
        self.scattered = scattered
        self.reads: dict[int, list[tuple[int, int]]] = {}
        """Per value, the steps and positions at which it is read."""
        for step, member in enumerate(work):
            for position, value in member.reads():
                self.reads.setdefault(roots.get(value, value), []).append((step, position))
        self.home: dict[int, int] = {}
        self.registers: list[int] = []
        self.holds: dict[int, int] = {}
        """Per register, the value that is in it."""

    def place(self, value: int, step: int) -> None:
        """Give the value that is made at ``step`` a register."""
        for register, held in list(self.holds.items()):
            if self._last(held) < step:
                del self.holds[register]
        register = self._choose(value, step)
        self.home[value] = register
        self.holds[register] = value

    def _choose(self, value: int, step: int) -> int:
        if value == self.output or (not self.scattered and self._may_be_output(value, step)):
            return OUT
        size = self.tensors[value].bytes
        for register, held in self.holds.items():
            if register != OUT and self._overwrites(value, held, step):
                return register
        free = [at for at in range(len(self.registers)) if at not in self.holds]
        if not free:
            self.registers.append(size)
            return len(self.registers) - 1
        register = min(free, key=lambda at: (abs(self.registers[at] - size), at))
        self.registers[register] = max(self.registers[register], size)
        return register

    def _last(self, value: int) -> int:
        return max((step for step, _ in self.reads.get(value, ())), default=-1)

    def _positions(self, value: int, step: int) -> set[int]:
        """Return the positions at which a step reads a value."""
        return {position for at, position in self.reads.get(value, ()) if at == step}

    def _overwrites(self, value: int, held: int, step: int) -> bool:
        """Return whether ``step`` is the last reader of ``held`` and may write over ``held``."""
        a, b = self.tensors[value], self.tensors[held]
        return (
            self._last(held) == step
            and (a.bytes, a.dtype) == (b.bytes, b.dtype)
            and self._positions(held, step) <= self.work[step].overwrites
        )

    def _may_be_output(self, value: int, step: int) -> bool:
        made, wanted = self.tensors[value], self.tensors[self.output]
        if (made.bytes, made.dtype) != (wanted.bytes, wanted.dtype):
            return False
        if OUT in self.holds and not self._overwrites(value, self.holds[OUT], step):
            return False
        last = len(self.work) - 1
        if not self._positions(value, last) <= self.work[last].overwrites:
            return False
        for held in self.taken:
            if self._last(held) > step:
                return False
            if self._last(held) == step and not (
                self._positions(held, step) <= self.work[step].overwrites
            ):
                return False
        return True


def made_by(member: Member) -> Tensor:
    """Return a member result's shape and element type."""
    return member.signature.result(member.slot)


# -- parts of members ---------------------------------------------------------------------


Parts = list["tuple[Member, Box, list[Box | None]]"]
"""Per member the part that it makes, and those of its operands that it needs."""


def cut(members: Sequence[Member], output: int, box: Box) -> Parts:
    """
    Return the part of each value that an output part needs.

    Raises
    ------
    Uncuttable
        If a member cannot make a part alone, or has to make two parts.
    """
    inside = {output, *(member.value for member in members)}
    wanted: dict[int, Box] = {output: box}
    parts: Parts = []
    for member in reversed(members):
        own = wanted[member.value]
        operands = operand_boxes(member, own)
        for position, value in member.reads():
            part = operands[position]
            if value in inside:
                needed = whole(_shape_of(member, position)) if part is None else part
                if wanted.setdefault(value, needed) != needed:
                    raise Uncuttable
        parts.append((member, own, operands))
    parts.reverse()
    return parts


def _shape_of(member: Member, position: int) -> tuple[int, ...]:
    """Return the shape of a member's input."""
    return member.signature.operand(position).shape


def operand_boxes(member: Member, box: Box) -> list[Box | None]:
    """Return the input parts that a member needs."""
    if box == whole(made_by(member).shape):
        return [None] * len(member.inputs)
    if member.kernel.cut is None or member.slot:
        raise Uncuttable
    return cut_operands(member.kernel.cut, member.signature, box)


def part_signature(member: Member, box: Box, operands: Sequence[Box | None]) -> Signature:
    """Return the signature for a member that makes only a part of the result."""
    signature = member.signature
    if box == whole(made_by(member).shape):
        return signature
    inputs = tuple(
        tensor if part is None or tensor is None else Tensor(box_shape(part), tensor.dtype)
        for tensor, part in zip(signature.inputs, operands, strict=True)
    )
    outputs = tuple(
        None if tensor is None else Tensor(box_shape(box), tensor.dtype)
        for tensor in signature.outputs
    )
    attributes = signature.attributes
    if member.kernel.cut is not None and member.kernel.cut.attributes is not None:
        attributes = member.kernel.cut.attributes(signature, box)
    constant = tuple(
        load if part is None or load is None else partial(loaded_part, load, part)
        for load, part in zip(signature.constant, operands, strict=True)
    )
    # Planning asks often: `replace` would take several times as long.
    return Signature(
        signature.name,
        signature.op,
        signature.domain,
        signature.version,
        attributes,
        inputs,
        outputs,
        constant,
    )


def part_of(array: np.ndarray, part: Box) -> np.ndarray:
    """Return a part of an array as a view, also for an array without dimensions."""
    place: tuple[Any, ...] = (*part, ...)
    view: np.ndarray = array[place]
    return view


def loaded_part(load: Callable[[], np.ndarray], part: Box) -> np.ndarray:
    """Return a part of a constant."""
    return part_of(load(), part)


# -- scratch memory of kernels ----------------------------------------------------------------


Slots = Sequence[Sequence[Choice]]
"""A kernel's own workspaces, each with its choices."""


def kernel_slots(member: Member, signature: Signature) -> Slots:
    """Return the workspaces that a kernel needs for itself."""
    declare = member.kernel.workspace
    return [] if declare is None else declare(signature)


def part_slots(parts: Parts) -> list[Slots]:
    """Return the workspaces that a tile's kernels need for themselves."""
    return [
        kernel_slots(member, part_signature(member, box, operands)) if member.has_scratch else []
        for member, box, operands in parts
    ]


def best_within(choices: Sequence[Choice], limit: int) -> Choice:
    """Return the cheapest choice within a limit, or else the smallest choice."""
    within = [choice for choice in choices if choice.bytes <= limit]
    if within:
        return min(within, key=lambda choice: (choice.cost, choice.bytes))
    return min(choices, key=lambda choice: choice.bytes)


def kernel_workspaces(slots: Slots, free: Scratch, limit: int) -> tuple[np.ndarray, ...]:
    """
    Return the workspaces of a kernel, each the best that leaves room for the smallest others.

    The memory may be larger than the choices within the limit, since other kernels need more.
    """
    least = [scratch_bytes((min(c.bytes for c in slot),), np.uint8) for slot in slots]
    found = []
    for at, slot in enumerate(slots):
        size = best_within(slot, min(limit, free.left - sum(least[at + 1 :]))).bytes
        found.append(free.array((size,), np.uint8))
    return tuple(found)


def slots_bytes(kernels: Sequence[Slots], limit: int) -> int:
    """Return the scratch bytes for kernels that run in turn, each with the best choice."""
    sizes = ((best_within(slot, limit).bytes for slot in slots) for slots in kernels)
    return max(
        (sum(scratch_bytes((size,), np.uint8) for size in each) for each in sizes), default=0
    )


# -- binding -----------------------------------------------------------------------------------

Kept = dict["tuple[object, ...]", "dict[str, np.ndarray]"]
"""Per member and parts of its constants, the prepared data of its kernel."""


def _constants(member: Member, operands: Sequence[Box | None]) -> tuple[object, ...]:
    """Return a key for the constant parts that a member needs."""
    found: list[object] = [member.value]
    for part, load in zip(operands, member.signature.constant, strict=True):
        if load is not None:
            found.append(None if part is None else tuple((p.start, p.stop) for p in part))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Tile:
    """An output part, with the memory to make that part."""

    box: Box
    output: np.ndarray
    """The part of the output."""


def bind(
    layout: Layout,
    members: Sequence[Member],
    tile: Tile,
    arrays: Mapping[int, np.ndarray],
    scratch: Scratch,
    limit: int,
    kept: Kept | None = None,
) -> list[Run]:
    """
    Return a function that makes a tile of a group's output.

    Parameters
    ----------
    members : sequence of Member
        The members that the layout is for.
    arrays : mapping of int to array
        Memory for every outside value.
    scratch : Scratch
        Memory for registers and kernels, which the next tile may use as well.
    limit : int
        Bytes that each of a kernel's own workspaces may have, if possible.
    kept : dict, optional
        Data that kernels prepare from constants, for other tiles.
    """
    all_parts = cut(members, layout.members[-1].value, tile.box)
    parts = {member.value: (box, operands) for member, box, operands in all_parts}
    if layout.chain is not None:
        loads = chain_operands(layout.chain, layout.members, arrays, parts)
        return [layout.chain.bind(layout.members[-1].value, loads, tile.output)]
    scratch = scratch.rest()
    memory = {
        register: scratch.array((size,), np.uint8)
        for register, size in layout.sizes(all_parts).items()
    }
    found: dict[int, np.ndarray] = {}
    runs: list[Run] = []
    for member in layout.members:
        box, operands = parts[member.value]
        inputs: list[np.ndarray | None] = [None] * len(member.inputs)
        for position, value in member.reads():
            part = operands[position]
            root = layout.roots.get(value, value)
            shape = _shape_of(member, position)
            if root in found:
                shape = shape if part is None else box_shape(part)
                inputs[position] = _in_shape(found[root], shape)
            else:
                array = _in_shape(arrays[root], shape)
                inputs[position] = array if part is None else part_of(array, part)
        made = made_by(member)
        register = layout.home[member.value]
        shape = box_shape(box)
        if register == OUT:
            array = _in_shape(tile.output, shape)
        else:
            size = prod(shape) * made.dtype.itemsize
            array = memory[register][:size].view(made.dtype).reshape(shape)
        found[member.value] = array
        signature = part_signature(member, box, operands)
        before = {} if kept is None else kept.setdefault(_constants(member, operands), {})
        run = prepared(member, signature, inputs, array, scratch, limit, before)
        if run is not None:
            runs.append(run)
    return runs


def chain_operands(
    chain: Chain,
    members: Sequence[Member],
    arrays: Mapping[int, np.ndarray],
    parts: Mapping[int, tuple[Box, list[Box | None]]] | None = None,
) -> dict[object, np.ndarray]:
    """
    Return the operands of a program for members.

    Parameters
    ----------
    parts : mapping, optional
        Per result the part that is made, and those of its operands that it needs.
    """
    found: dict[object, np.ndarray] = {}
    for member in members:
        shape = made_by(member).shape
        box, boxes = (parts or {}).get(member.value, (whole(shape), [None] * len(member.inputs)))
        vectors = channel_operands(member.value, member.signature, len(shape))
        found |= {key: vector[box[1]] for key, vector in vectors.items()}
        for position, value in member.reads():
            if value in chain.loads:
                array, part = _in_shape(arrays[value], _shape_of(member, position)), boxes[position]
                found[value] = array if part is None else part_of(array, part)
    return found


def _in_shape(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return array if array.shape == shape else array.reshape(shape)


def prepared(
    member: Member,
    signature: Signature,
    inputs: Sequence[np.ndarray | None],
    output: np.ndarray,
    scratch: Scratch,
    limit: int,
    kept: dict[str, np.ndarray],
) -> Run | None:
    """Return a function that runs a member's kernel on operand parts."""
    workspaces = kernel_workspaces(kernel_slots(member, signature), scratch.rest(), limit)
    outputs = tuple(output if at == member.slot else None for at in range(len(signature.outputs)))
    step = Step(signature, tuple(inputs), outputs, workspaces, kept=kept)
    return attributed(member.kernel.prepare, step, signature)
