"""
Sequences and optional values: settled while a model is read.

A sequence is a list of values here, not an operand of nodes. So the length and each read position
must be known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from onnx import GraphProto

from arenaplan.base.errors import (
    InvalidAttribute,
    InvalidOperand,
    ModelError,
    ShapeMismatch,
    UndefinedValue,
    UnsupportedDtype,
)
from arenaplan.base.quoting import quoted
from arenaplan.formats.onnx.frames import (
    Frame,
    ResultPlace,
    inner_frame,
    stored_operand,
    stored_tensors,
)
from arenaplan.formats.onnx.op import Absent, Items, OnnxOperand, Op
from arenaplan.formats.onnx.tensors import StoredTensor
from arenaplan.formats.onnx.walk import OnnxWalk

_MOST_ITEMS: Final = 1 << 14
"""Most elements that a sequence can receive one by one."""


def settle(walk: OnnxWalk, frame: Frame, op: Op, names: Sequence[str]) -> list[OnnxOperand | None]:
    """
    Return the results of an operator on sequences or optional values.

    Raises
    ------
    DataDependent
        If the results depend on an unknown position or length.
    """
    return _RULES[op.type](walk, frame, op, names)


def _items(op: Op, position: int = 0) -> Items:
    """Return an operand that is a sequence."""
    known = op.input(position)
    if not isinstance(known, Items):
        raise op.error(InvalidOperand, f"input {position} is not a sequence")
    return known


def _position(op: Op, at: int, length: int, last: int) -> int:
    """Return a position in a sequence, counted from the front."""
    position = int(op.scalar(at))
    if not -length <= position <= last:
        raise op.error(InvalidOperand, f"position {position} is outside of {length} elements")
    return position + length if position < 0 else position


def _empty(walk: OnnxWalk, frame: Frame, op: Op, names: Sequence[str]) -> list[OnnxOperand | None]:
    return [Items(names[0], ())]


def _construct(
    walk: OnnxWalk, frame: Frame, op: Op, names: Sequence[str]
) -> list[OnnxOperand | None]:
    return [Items(names[0], [op.input(at) for at in range(len(op.inputs))])]


def _insert(walk: OnnxWalk, frame: Frame, op: Op, names: Sequence[str]) -> list[OnnxOperand | None]:
    items = list(_items(op).items)
    if len(items) >= _MOST_ITEMS:
        raise op.error(
            ModelError, f"a sequence has more than {_MOST_ITEMS} elements", kind="BudgetExceeded"
        )
    at = len(items) if op.optional(2) is None else _position(op, 2, len(items), len(items))
    items.insert(at, op.input(1))
    return [Items(names[0], items)]


def _erase(walk: OnnxWalk, frame: Frame, op: Op, names: Sequence[str]) -> list[OnnxOperand | None]:
    items = list(_items(op).items)
    at = -1 if op.optional(1) is None else _position(op, 1, len(items), len(items) - 1)
    if not items:
        raise op.error(InvalidOperand, "the sequence is empty")
    del items[at]
    return [Items(names[0], items)]


def _at(walk: OnnxWalk, frame: Frame, op: Op, names: Sequence[str]) -> list[OnnxOperand | None]:
    items = _items(op).items
    return [items[_position(op, 1, len(items), len(items) - 1)]]


def _length(walk: OnnxWalk, frame: Frame, op: Op, names: Sequence[str]) -> list[OnnxOperand | None]:
    return [OnnxOperand(names[0], (), "int64", np.array(len(_items(op).items)), True)]


def _concat(walk: OnnxWalk, frame: Frame, op: Op, names: Sequence[str]) -> list[OnnxOperand | None]:
    items = _items(op).items
    if not items:
        raise op.error(InvalidOperand, "the sequence is empty")
    is_new = bool(op.integer("new_axis", 0))
    axis = op.axis(op.integer("axis"), len(items[0].shape) + is_new)
    if is_new:
        return [walk.stacked(items, names[0], axis)]
    return [walk.apply("Concat", items, names[0], axis=axis)]


def _split(walk: OnnxWalk, frame: Frame, op: Op, names: Sequence[str]) -> list[OnnxOperand | None]:
    data = op.input(0)
    axis = op.axis(op.integer("axis", 0), len(data.shape))
    length = data.shape[axis]
    op.budget.expand(op.label, length)
    keeps = op.optional(1) is not None or bool(op.integer("keepdims", 1))
    if op.optional(1) is None:
        sizes = [1] * length
    elif op.input(1).shape == ():
        step = int(op.scalar(1))
        if step < 1:
            raise op.error(InvalidOperand, f"it splits into parts of {step}")
        sizes = [min(step, length - start) for start in range(0, length, step)]
    else:
        sizes = list(op.numbers(1))
    if sum(sizes) != length or min(sizes, default=0) < 0:
        raise op.error(ShapeMismatch, f"parts of {sizes} are not the {length} of axis {axis}")
    parts = []
    start = 0
    for number, size in enumerate(sizes):
        name = f"{names[0]}.{number}"
        bounds = [
            OnnxOperand(f"{name}.{what}", (1,), "int64", np.array([bound]), True)
            for what, bound in (("start", start), ("end", start + size), ("axis", axis))
        ]
        part = walk.apply("Slice", [data, *bounds], walk.unique(name))
        if not keeps:
            part = walk.apply("Squeeze", [part, bounds[2]], walk.unique(f"{name}.row"))
        parts.append(part)
        start += size
    return [Items(names[0], parts)]


def _map(walk: OnnxWalk, frame: Frame, op: Op, names: Sequence[str]) -> list[OnnxOperand | None]:
    """Walk the body once for each element."""
    body = op.attributes.get("body")
    if not isinstance(body, GraphProto):
        raise op.error(InvalidAttribute, "attribute 'body' is missing")
    first = _items(op)
    operands = [op.input(at) for at in range(len(op.inputs))]
    for known in operands:
        if isinstance(known, Items) and len(known.items) != len(first.items):
            raise op.error(InvalidOperand, "its sequences have different lengths")
    rows = []
    for number in range(len(first.items)):
        given = [known.items[number] if isinstance(known, Items) else known for known in operands]
        rows.append(walk_body(walk, frame, op, body, f"{number}", given))
    return [
        Items(name, [row[at] for row in rows]) if name else None for at, name in enumerate(names)
    ]


def walk_body(
    walk: OnnxWalk,
    frame: Frame,
    op: Op,
    body: GraphProto,
    label: str,
    given: Sequence[OnnxOperand],
) -> list[OnnxOperand]:
    """
    Walk a subgraph in place of its node; return the results.

    Parameters
    ----------
    label : str
        Part of the value names.
    given : sequence of OnnxOperand
        Operands for the inputs.
    """
    op.budget.expand(op.label)
    if len(body.input) != len(given):
        raise op.error(
            InvalidOperand, f"its body has {len(body.input)} inputs instead of {len(given)}"
        )
    name = op.name or frame.prefix + next(filter(None, op.outputs), op.type)
    inner = inner_frame(frame, body, {}, f"{name[:64]}/{label}/", ResultPlace(frame, (), ()))
    for info, known in zip(body.input, given, strict=True):
        inner.own[info.name] = known
    for stored, proto in stored_tensors(body, walk.common.folder).items():
        (shown,) = walk.names_in(inner, [stored])
        inner.own[stored] = stored_operand(StoredTensor(proto, shown, walk.common.folder))
    with walk.deeper(op):
        walk.visit_frame(inner)
    results = []
    for info in body.output:
        made = walk.lookup(inner.scope, info.name)
        if made is None:
            raise op.error(
                UndefinedValue, f"result {quoted(info.name)} of its subgraph is never produced"
            )
        results.append(made)
    return results


# -- optional values ------------------------------------------------------------------------


def _optional(
    walk: OnnxWalk, frame: Frame, op: Op, names: Sequence[str]
) -> list[OnnxOperand | None]:
    known = op.optional(0)
    return [Absent(names[0]) if known is None else known]


def _has(walk: OnnxWalk, frame: Frame, op: Op, names: Sequence[str]) -> list[OnnxOperand | None]:
    known = op.optional(0)
    is_there = known is not None and not isinstance(known, Absent)
    return [OnnxOperand(names[0], (), "bool", np.array(is_there), True)]


def _get(walk: OnnxWalk, frame: Frame, op: Op, names: Sequence[str]) -> list[OnnxOperand | None]:
    known = op.input(0)
    if isinstance(known, Absent):
        raise op.error(InvalidOperand, f"optional value {quoted(known.name)} is not there")
    return [known]


def refuse_items(op: Op) -> None:
    """
    Raise if an operand is not an array.

    Raises
    ------
    UnsupportedDtype
        If an operand is a sequence, or an absent optional value.
    """
    for known in op.inputs:
        if isinstance(known, (Items, Absent)):
            kind = "a sequence" if isinstance(known, Items) else "an optional value without one"
            raise op.error(UnsupportedDtype, f"its input {quoted(known.name)} is {kind}")


_RULES: Final[
    Mapping[str, Callable[[OnnxWalk, Frame, Op, Sequence[str]], list[OnnxOperand | None]]]
] = {
    "ConcatFromSequence": _concat,
    "Optional": _optional,
    "OptionalGetElement": _get,
    "OptionalHasElement": _has,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SequenceMap": _map,
    "SplitToSequence": _split,
}
