"""
Operators that only move elements.

A move gives the origin of each result element: a position among all operands' elements, one operand
after the other, or a known value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final, NamedTuple

import numpy as np

from arenaplan.tflite.proving.elements import Elements, Shape, value
from arenaplan.tflite.proving.facts import Fact, Operation

_INT16: Final = 7
_FLOATS: Final = (0, 1, 18)
_INT32, _INT64 = 2, 4


class NotAMove(Exception):
    """The reason for which an operator is not known to only move elements."""


class Move(NamedTuple):
    """The origin of each result element of an operator."""

    results: tuple[Elements, ...]
    reads: tuple[int, ...]
    """Positions of the operands whose elements are moved."""

    def applied(self, operands: Sequence[Elements]) -> list[Elements]:
        """Return the result elements, given the elements of the operands in :attr:`reads`."""
        flat = np.concatenate([part.ravel() for part in operands])
        found = []
        for result in self.results:
            moved = result.copy()
            inside = result >= 0
            moved[inside] = flat[result[inside]]
            found.append(moved)
        return found


def move_of(operation: Operation, tensors: Sequence[Fact]) -> Move:
    """
    Return an operator as a move.

    Raises
    ------
    NotAMove
        If the operator computes, or has parameters that are not constant or contradictory.
    """
    rule = None if operation.is_custom else _RULES.get(operation.name)
    if rule is None:
        raise NotAMove("it is no operator that only moves elements")
    call = _Call(operation, tensors)
    move = rule(call)
    for number, result in zip(operation.outputs, move.results, strict=True):
        y = tensors[number]
        if y.is_constant or y.is_variable:
            raise NotAMove(f"{y.text()} is no place for a result")
        if result.shape != y.shape:
            raise NotAMove(f"{y.text()} has shape {y.shape}, and the result has {result.shape}")
        for place in move.reads:
            x = call.input(place)
            if x.encoding != y.encoding:
                raise NotAMove(f"{x.text()} and {y.text()} differ in type, scale or zero point")
    return move


class _Call:
    """An operator and the operands."""

    def __init__(self, operation: Operation, tensors: Sequence[Fact]) -> None:
        self.operation = operation
        self._tensors = tensors

    def input(self, place: int) -> Fact:
        """Return an operand."""
        inputs = self.operation.inputs
        number = inputs[place] if place < len(inputs) else None
        if number is None:
            raise NotAMove(f"it leaves out operand {place}")
        return self._tensors[number]

    def output(self, place: int = 0) -> Fact:
        """Return a result."""
        if place >= len(self.operation.outputs):
            raise NotAMove(f"it has no result {place}")
        return self._tensors[self.operation.outputs[place]]

    def count(self, inputs: int, outputs: int = 1) -> None:
        """Refuse an unexpected number of operands or results."""
        found = len(self.operation.inputs), len(self.operation.outputs)
        if found != (inputs, outputs):
            raise NotAMove(f"it has {found[0]} operands and {found[1]} results")

    def numbers(self, place: int) -> tuple[int, ...]:
        """Return a constant operand with whole numbers."""
        fact = self.input(place)
        if not fact.is_constant or fact.type not in (_INT32, _INT64):
            raise NotAMove(f"{fact.text()} is no constant of whole numbers")
        code = "<i4" if fact.type == _INT32 else "<i8"
        if len(fact.content) != fact.count * fact.item:
            raise NotAMove(f"{fact.text()} has {len(fact.content)} bytes")
        return tuple(int(number) for number in np.frombuffer(fact.content, code))

    def axis(self, number: int, rank: int) -> int:
        """Return a dimension."""
        axis = number + rank if number < 0 else number
        if not 0 <= axis < rank:
            raise NotAMove(f"it has no dimension {number}")
        return axis

    def one(self, numbers: tuple[int, ...]) -> int:
        """Return the only number; refuse several."""
        if len(numbers) != 1:
            raise NotAMove(f"it has {len(numbers)} numbers for one dimension")
        return numbers[0]


def _positions(fact: Fact, first: int = 0) -> Elements:
    return np.arange(first, first + fact.count, dtype=np.int64).reshape(fact.shape)


def _slice(call: _Call) -> Move:
    call.count(3)
    x = call.input(0)
    begin, size = call.numbers(1), call.numbers(2)
    if not len(begin) == len(size) == len(x.shape):
        raise NotAMove("its begin and size have another number of dimensions")
    ends = [d if s == -1 else b + s for b, s, d in zip(begin, size, x.shape, strict=True)]
    for b, e, d in zip(begin, ends, x.shape, strict=True):
        if not 0 <= b <= e <= d:
            raise NotAMove(f"its range from {b} to {e} is not inside of a dimension of {d}")
    ranges = tuple(slice(b, e) for b, e in zip(begin, ends, strict=True))
    return Move((_positions(x)[ranges],), (0,))


def _strided_slice(call: _Call) -> Move:
    call.count(4)
    x, options = call.input(0), call.operation.plain
    begin, end, strides = (call.numbers(place) for place in (1, 2, 3))
    if not len(begin) == len(end) == len(strides) <= len(x.shape):
        raise NotAMove("its begin, end and strides have another number of dimensions")
    from_start, to_end, ellipsis, new, shrink = (options.number(slot) for slot in range(5))
    if ellipsis or new or options.number(5):
        raise NotAMove("it has an ellipsis, a new dimension or ends that are offsets")
    found, dropped = _positions(x), []
    for axis, (b, e, step) in enumerate(zip(begin, end, strides, strict=True)):
        dim = x.shape[axis]
        if step == 0:
            raise NotAMove("it has a stride of 0")
        low, high = (0, dim) if step > 0 else (-1, dim - 1)
        first = b + dim if b < 0 else b
        first = min(max(first, low), high)
        if from_start >> axis & 1:
            first = 0 if step > 0 else dim - 1
        last = min(max(e + dim if e < 0 else e, low), high)
        if to_end >> axis & 1:
            last = dim if step > 0 else -1
        if shrink >> axis & 1:
            if step != 1 or not 0 <= first < dim:
                raise NotAMove(f"it takes element {b} of a dimension of {dim}")
            last = first + 1
            dropped.append(axis)
        found = np.take(found, np.arange(first, last, step), axis)
    if shrink >> len(begin):
        raise NotAMove("it drops a dimension that is not there")
    kept = tuple(dim for axis, dim in enumerate(found.shape) if axis not in dropped)
    return Move((found.reshape(kept),), (0,))


def _concatenation(call: _Call) -> Move:
    count = len(call.operation.inputs)
    call.count(max(1, count))
    options = call.operation.plain
    if options.number(1):
        raise NotAMove("it has an activation function")
    parts, first = [], 0
    axis = call.axis(options.number(0), len(call.input(0).shape))
    for place in range(count):
        x = call.input(place)
        parts.append(_positions(x, first))
        first += x.count
        rest = (x.shape[:axis], x.shape[axis + 1 :])
        if rest != (parts[0].shape[:axis], parts[0].shape[axis + 1 :]):
            raise NotAMove(f"{x.text()} has shape {x.shape}")
    return Move((np.concatenate(parts, axis),), tuple(range(count)))


def _split(call: _Call) -> Move:
    count = len(call.operation.outputs)
    call.count(2, count)
    x = call.input(1)
    axis = call.axis(call.one(call.numbers(0)), len(x.shape))
    if count == 0 or call.operation.plain.number(0) != count or x.shape[axis] % count:
        raise NotAMove(f"{x.shape[axis]} cannot be split into {count}")
    return Move(tuple(np.split(_positions(x), count, axis)), (1,))


def _split_v(call: _Call) -> Move:
    count = len(call.operation.outputs)
    call.count(3, count)
    x, sizes = call.input(0), list(call.numbers(1))
    axis = call.axis(call.one(call.numbers(2)), len(x.shape))
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = x.shape[axis] - sum(size for size in sizes if size != -1)
    if len(sizes) != count or min(sizes, default=-1) < 0 or sum(sizes) != x.shape[axis]:
        raise NotAMove(f"{x.shape[axis]} cannot be split into {sizes}")
    ends = np.cumsum(sizes)[:-1]
    return Move(tuple(np.split(_positions(x), ends, axis)), (0,))


def _pack(call: _Call) -> Move:
    count = len(call.operation.inputs)
    call.count(max(1, count))
    parts, first = [], 0
    for place in range(count):
        x = call.input(place)
        parts.append(_positions(x, first))
        first += x.count
        if x.shape != parts[0].shape:
            raise NotAMove(f"{x.text()} has shape {x.shape}")
    if call.operation.plain.number(0) != count:
        raise NotAMove(f"it packs {count} operands")
    axis = call.axis(call.operation.plain.number(1), len(parts[0].shape) + 1)
    return Move((np.stack(parts, axis),), tuple(range(count)))


def _unpack(call: _Call) -> Move:
    count = len(call.operation.outputs)
    call.count(1, count)
    x = call.input(0)
    axis = call.axis(call.operation.plain.number(1), len(x.shape))
    if call.operation.plain.number(0) != count or x.shape[axis] != count:
        raise NotAMove(f"{x.shape[axis]} cannot be unpacked into {count}")
    parts = np.split(_positions(x), count, axis) if count else []
    return Move(tuple(part.squeeze(axis) for part in parts), (0,))


def _pad(call: _Call) -> Move:
    has_value = call.operation.name == "PADV2"
    call.count(3 if has_value else 2)
    x, y, amounts = call.input(0), call.output(), call.numbers(1)
    if len(amounts) != 2 * len(x.shape) or call.input(1).shape != (len(x.shape), 2):
        raise NotAMove("its amounts have another number of dimensions")
    if min(amounts, default=0) < 0 or sum(amounts) > sum(y.shape):
        raise NotAMove("its amounts do not fit the result")
    pairs = tuple(zip(amounts[::2], amounts[1::2], strict=True))
    fill = _given(call.input(2), y) if has_value else zero_of(y)
    if fill is None:
        raise NotAMove(f"the value for zero of {y.text()} is not known")
    return Move((np.pad(_positions(x), pairs, constant_values=fill),), (0,))


def zero_of(fact: Fact) -> int | None:
    """Return the element that represents zero in a tensor; ``None`` if not known."""
    point = fact.zero_point
    if fact.type in _FLOATS or fact.type in (_INT32, _INT64):
        return value(0) if fact.quantization is None else None
    # Kernels for 16 bits fill in 0, whatever the zero point.
    if point is None or (fact.type == _INT16 and point != 0) or fact.item not in (1, 2):
        return None
    return value(point % (1 << (8 * fact.item)))


def _given(fact: Fact, like: Fact) -> int | None:
    """Return the element in a constant, if the constant has the tensor's type."""
    if not fact.is_constant or fact.type != like.type or len(fact.content) != like.item <= 4:
        return None
    if fact.quantization is not None and fact.quantization != like.quantization:
        return None
    return value(int.from_bytes(fact.content, "little"))


def _reshaped(call: _Call) -> Move:
    x, y = call.input(0), call.output()
    shape = _asked_shape(call, x)
    if shape != y.shape or prod(shape) != x.count:
        raise NotAMove(f"{x.text()} of shape {x.shape} does not become {y.text()}")
    return Move((_positions(x).reshape(shape),), (0,))


def _asked_shape(call: _Call, x: Fact) -> Shape:
    """Return the shape that a reshaping operator asks for."""
    name, options = call.operation.name, call.operation.plain
    if name == "EXPAND_DIMS":
        call.count(2)
        axis = call.axis(call.one(call.numbers(1)), len(x.shape) + 1)
        return (*x.shape[:axis], 1, *x.shape[axis:])
    asked = options.fields[0] if options.fields else None
    if name == "SQUEEZE":
        call.count(1)
        dims = asked if isinstance(asked, tuple) else ()
        axes = {call.axis(dim, len(x.shape)) for dim in dims}
        axes = axes or {axis for axis, dim in enumerate(x.shape) if dim == 1}
        if any(x.shape[axis] != 1 for axis in axes):
            raise NotAMove("it drops a dimension that is not 1")
        return tuple(dim for axis, dim in enumerate(x.shape) if axis not in axes)
    if len(call.operation.inputs) > 1:
        call.count(2)
        asked = call.numbers(1)
    if not isinstance(asked, tuple):
        raise NotAMove("it names no shape")
    if asked.count(-1) != 1:
        return asked
    rest = prod(dim for dim in asked if dim != -1)
    if rest < 1:
        raise NotAMove(f"it asks for shape {asked}")
    return tuple(x.count // rest if dim == -1 else dim for dim in asked)


def _transpose(call: _Call) -> Move:
    call.count(2)
    x, order = call.input(0), call.numbers(1)
    if sorted(order) != list(range(len(x.shape))):
        raise NotAMove(f"its order {order} is none of {len(x.shape)} dimensions")
    return Move((_positions(x).transpose(order),), (0,))


_RULES: Final[Mapping[str, Callable[[_Call], Move]]] = {
    "CONCATENATION": _concatenation,
    "EXPAND_DIMS": _reshaped,
    "PACK": _pack,
    "PAD": _pad,
    "PADV2": _pad,
    "RESHAPE": _reshaped,
    "SLICE": _slice,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "SQUEEZE": _reshaped,
    "STRIDED_SLICE": _strided_slice,
    "TRANSPOSE": _transpose,
    "UNPACK": _unpack,
}
