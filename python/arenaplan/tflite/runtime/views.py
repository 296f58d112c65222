"""
Memory of a TFLite model's steps, with the copies made by TensorFlow Lite Micro kernels.

An operator may copy bytes onto themselves if the kernel is in :data:`IDEMPOTENT`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from math import prod
from typing import Final

from arenaplan.base.errors import UnsupportedModel
from arenaplan.graph.ops import BITS
from arenaplan.tflite.reader.operand_facts import OperandFacts
from arenaplan.tflite.reader.tflite_model import TfliteModel, TfliteOperator
from arenaplan.tflite.reader.timeline import timeline_of
from arenaplan.tflite.rewrite.tensor_groups import (
    UNIT,
    GroupLayout,
    GroupRead,
    Lead,
    OperandCopy,
    Use,
)
from arenaplan.tflite.runtime.aliases import ROWS, row_of

IDEMPOTENT: Final[Mapping[str, str]] = {
    **{name: ROWS[name].reason for name in ("CONCATENATION", "SLICE")},
    "RESHAPE": "copies nothing if both addresses are equal",
}
"""
Operators whose kernel may find part of the source at the result's place, and why.

All TensorFlow Lite Micro kernel sets use the reference SLICE and CONCATENATION. The RESHAPE for
Xtensa compares addresses like the reference kernel.
"""


SEQUENTIAL: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D"),
        "loops over result pixels in the order of memory; writes an element after its window is "
        "read",
    ),
    **dict.fromkeys(
        ("ADD", "MUL", "SUB", "RELU", "RELU6"), "reads element i of all operands, then writes it"
    ),
}
"""
Operators whose reference kernel may write over an operand, at a distance, and why.

Kernels in other sets may not, because they compute several pixels at a time or read ahead.
"""


def layout_of(model: TfliteModel, *, shares: bool = False, overlap: bool = False) -> GroupLayout:
    """
    Return the memory of a main subgraph's steps.

    Tensors in other subgraphs are left out: the runtime places these around the main subgraph's.

    Parameters
    ----------
    model : TfliteModel
        The model.
    shares : bool, default False
        Whether elementwise results may be at an operand's address.
    overlap : bool, default False
        Whether kernels may write over operands; see :data:`SEQUENTIAL`.

    Raises
    ------
    UnsupportedModel
        If a tensor's memory is never written, or an accelerator places tensors.
    """
    timeline = timeline_of(model)
    if timeline.areas:
        raise UnsupportedModel("memory of an accelerator is placed by its compiler")
    main = model.subgraphs[0]
    boxes = [0] * len(main.tensors)
    for box in timeline.boxes:
        # The main subgraph's tensors come first.
        if box.tensor < len(boxes):
            boxes[box.tensor] = box.size
    facts = OperandFacts(model)
    inputs = tuple(dict.fromkeys(i for i in main.inputs if boxes[i]))
    uses = [Use((), inputs)]
    for operator in main.operators:
        use = _use(operator, facts, boxes, overlap=overlap)
        uses.append(use if shares or overlap else replace(use, leads=()))
    unread = [t for t in range(len(boxes)) if boxes[t] and not _is_made(t, uses)]
    if unread:
        raise UnsupportedModel(f"nothing writes tensor {unread[0]}, which has memory")
    results = tuple(GroupRead(t, 0, boxes[t]) for t in dict.fromkeys(main.outputs) if boxes[t])
    uses.append(Use(results, ()))
    return GroupLayout(tuple(boxes), tuple(uses))


def _is_made(tensor: int, uses: list[Use]) -> bool:
    """Return whether a step writes a tensor."""
    return any(tensor in use.writes for use in uses)


def _use(operator: TfliteOperator, facts: OperandFacts, boxes: list[int], *, overlap: bool) -> Use:
    """Return an operator's memory."""
    writes = tuple(dict.fromkeys(i for i in operator.outputs if i is not None and boxes[i]))
    copies: list[OperandCopy] = []
    parts: dict[int, tuple[int, int]] = {}
    is_idempotent = not operator.is_custom and operator.name in IDEMPOTENT
    if is_idempotent:
        for view in facts.effects(operator).views:
            source, target = operator.inputs[view.input], operator.outputs[view.output]
            if source is None or target is None or not boxes[source] or not boxes[target]:
                continue
            is_joined = view.of == "output"
            part, whole = (source, target) if is_joined else (target, source)
            size, end = facts.bytes(part), facts.bytes(whole)
            if not is_joined:
                stop = view.offset + size
                parts[source] = (view.offset // UNIT * UNIT, stop + -stop % UNIT)
            if view.offset + size == end:
                size += -size % UNIT  # Both are rounded up by as much.
            if view.offset % UNIT == 0 and size % UNIT == 0:
                at = (0, view.offset) if is_joined else (view.offset, 0)
                copies.append(OperandCopy(source, target, *at, size))
    reads = [
        GroupRead(index, *parts.get(index, (0, boxes[index])))
        for index in dict.fromkeys(chain(operator.inputs, operator.intermediates))
        if index is not None and boxes[index]
    ]
    leads: list[Lead] = []
    row = row_of(operator, "reference")
    is_sequential = overlap and not operator.is_custom and operator.name in SEQUENTIAL
    if row is not None and row.way == "element by element" and not is_sequential:
        leads += _exact_leads(operator, facts, boxes)
    if is_sequential:
        effects = facts.effects(operator)
        pairs = [(p.input, p.output, 0) for p in effects.in_place]
        pairs += [(o.input, o.output, o.distance) for o in effects.overlaps]
        for place, result, distance in pairs:
            source, target = operator.inputs[place], operator.outputs[result]
            if source is not None and target is not None and boxes[source] and boxes[target]:
                apart = min(distance + -distance % UNIT, boxes[target])
                leads.append(Lead(source, target, apart))
    return Use(tuple(reads), writes, tuple(copies), is_idempotent, tuple(leads))


def _exact_leads(operator: TfliteOperator, facts: OperandFacts, boxes: list[int]) -> Iterator[Lead]:
    """Yield the operands at whose address an operator may write the result."""
    target = operator.outputs[0] if len(operator.outputs) == 1 else None
    if target is None or not boxes[target]:
        return
    new = facts.of(target)
    for source in dict.fromkeys(operator.inputs):
        if source is None or not boxes[source]:
            continue
        old = facts.of(source)
        if prod(old.shape) != prod(new.shape):
            continue
        wide, narrow = BITS[old.dtype], BITS[new.dtype]
        if narrow == wide or (narrow < wide and narrow == 8):
            yield Lead(source, target, 0, is_exact=True)
