"""
Calls that make each result element from operand elements that they see.

A kernel computes an element from the elements that it sees, in a fixed order. Two calls with the
same parameters therefore make the same bits wherever they see the same elements. Result elements
that see the same elements are a *line*: all channels of a convolution's pixel, or an element by
itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from arenaplan.tflite.proving.elements import DOUBT, Elements, Names, Shape, first_twins
from arenaplan.tflite.proving.facts import Key
from arenaplan.tflite.proving.guess import Index, Indices

CallRule: TypeAlias = Literal["window", "elements"]


@dataclass(frozen=True, kw_only=True)
class ProofCall(ABC):
    """An operator that makes lines of result elements."""

    rule: ClassVar[CallRule]

    key: Key
    """Everything that a kernel can see except elements, shapes, and parameters of lines."""
    shape: Shape
    """The result's shape."""
    lines: Shape
    """Dimensions of the result that count lines."""
    width: int
    """Result elements per line."""
    reads: tuple[int, ...]
    """Positions of the operands that lines see."""
    whole: tuple[int, ...]
    """Of these, the operands of which different lines see different elements."""
    groups: tuple[tuple[bytes, ...], ...] = ((),)
    """Parameters of lines, by the last index of a line; a single entry holds for all lines."""
    is_columnar: bool = False
    """Whether parameters belong to the elements of each line instead."""

    @abstractmethod
    def seen(
        self, operands: Sequence[Elements], places: Sequence[Indices] | None = None
    ) -> Iterator[Elements]:
        """Yield the elements that lines see in turn, one dimension more than the lines have."""

    @abstractmethod
    def guess(self, operands: Sequence[Elements], theirs: Theirs) -> list[Indices] | None:
        """Return, per dimension, a candidate for each line in the original; -1 for none."""

    @abstractmethod
    def told(
        self, where: tuple[int, ...], places: Sequence[Indices], tap: int, said: tuple[str, str]
    ) -> str:
        """Return text about a line that sees another element than the original's."""

    def results(self, old: ProofCall, places: Sequence[Indices]) -> Indices | None:
        """Return the elements of an original line that a line has, if parameters are equal."""
        if len(self.groups) > 1 or len(old.groups) > 1:
            own = places[-1]
            if (own < 0).any() or self.groups != tuple(old.groups[place] for place in own):
                return None
        return np.arange(self.width)

    def kinds(self, known: dict[tuple[bytes, ...], int]) -> Elements:
        """Return a number for each line, equal for equal parameters of lines."""
        own = [known.setdefault(group, len(known)) for group in self.groups]
        return np.broadcast_to(np.array(own, np.int64), self.lines)

    def table(self, operands: Sequence[Elements], known: dict[tuple[bytes, ...], int]) -> Elements:
        """Return a row for each line: the number of its parameters, and the elements seen."""
        own = np.zeros(self.lines, np.int64) if self.is_columnar else self.kinds(known)
        parts = np.concatenate([own[..., None], *self.seen(operands)], axis=-1)
        return parts.reshape(prod(self.lines), -1)


class Theirs(NamedTuple):
    """A call in the original."""

    call: ProofCall
    operands: Sequence[Elements]
    indexes: Sequence[Index]
    """Places of the operands' elements."""
    result: Elements


def matched(
    new: ProofCall, operands: Sequence[Elements], theirs: Theirs, operator: int, names: Names
) -> Elements | None:
    """
    Return a call's result elements as elements of the original call's result.

    Parameters
    ----------
    new : ProofCall
        The call.
    operands : sequence of Elements
        The call's operands.
    theirs : Theirs
        The original call.
    operator : int
        The operator, for messages.
    names : Names
        Numbers given so far.

    Returns
    -------
    Elements or None
        ``None`` if the parameters differ, or no operand tells which part the call makes.
    """
    old = theirs.call
    if new.key != old.key or len(new.lines) != len(old.lines):
        return None
    places = new.guess(operands, theirs)
    columns = None if places is None else new.results(old, places)
    blank = blank_elements(new, operands, names)
    has_twins = any(index.has_twins for index in theirs.indexes)
    fresh, others = 0, theirs.result.reshape(*old.lines, old.width)
    if columns is not None:
        others = others[..., columns]
    if places is not None and columns is not None:
        bad, fresh = _compared(new, operands, theirs, places, (operator, names))
        part = others[np.ix_(*(np.maximum(place, 0) for place in places))]
        made = np.where(bad[..., None] < 0, bad[..., None], part)
    elif has_twins and not new.is_columnar:
        fresh = names.doubt(operator, "its parameters or operands are not those of the original")
        made = np.full((*new.lines, new.width), fresh)
    else:
        is_blank = places is None and bool((blank < 0).all())
        return blank if is_blank else None
    if fresh and has_twins:
        # A line's first place may differ from the place that the call computes.
        kinds: dict[tuple[bytes, ...], int] = {}
        rows = old.table(theirs.operands, kinds), new.table(operands, kinds)
        _, found = first_twins(*rows)
        is_found = (found < len(rows[0])) & (rows[1] > DOUBT).all(axis=1)
        known = others.reshape(len(rows[0]), -1)[np.where(is_found, found, 0)]
        made = np.where(is_found[:, None], known, made.reshape(len(found), -1))
    return np.where(blank < 0, blank, made.reshape(new.shape))


def _compared(
    new: ProofCall,
    operands: Sequence[Elements],
    theirs: Theirs,
    places: Sequence[Indices],
    doubts: tuple[int, Names],
) -> tuple[Elements, int]:
    """Return a doubt for each line that sees other elements than the original's, and the first."""
    operator, names = doubts
    bad, fresh = np.zeros(new.lines, np.int64), 0
    at = [np.maximum(place, 0) for place in places]
    pairs = zip(new.seen(operands), theirs.call.seen(theirs.operands, at), strict=True)
    for tap, (seen, wanted) in enumerate(pairs):
        differs = (seen != wanted) | (seen <= DOUBT)
        plain = differs & (seen > DOUBT)
        if not fresh and plain.any():
            where = tuple(int(i) for i in np.argwhere(plain)[0])
            said = names.told(int(seen[where])), names.told(int(wanted[where]))
            fresh = names.doubt(operator, new.told(where, places, tap, said))
        worst = np.where(differs, np.where(seen <= DOUBT, seen, fresh), 0)
        bad = np.minimum(bad, worst.min(axis=-1, initial=0))
    for axis, place in enumerate(places):
        if (place < 0).any():
            fresh = fresh or names.doubt(operator, "it sees no part of the original's operands")
            view, gone = np.moveaxis(bad, axis, 0), np.flatnonzero(place < 0)
            view[gone] = np.where(view[gone] == 0, fresh, view[gone])
    return bad, fresh


def without_twins(call: ProofCall, operands: Sequence[Elements], fresh: Elements) -> Elements:
    """Return new elements, with the same numbers for lines that see the same elements."""
    (found,) = first_twins(call.table(operands, {}))
    made: Elements = fresh.reshape(-1, call.width)[found].reshape(call.shape)
    return made


def blank_elements(call: ProofCall, operands: Sequence[Elements], names: Names) -> Elements:
    """
    Return what a call makes from known values only; 0 for all other elements.

    An element's number follows from the parameters and values, not from the place: all rows made
    from padding are equal.
    """
    found = np.zeros((*call.lines, call.width), np.int64)
    if any((operand >= 0).all() for operand in operands):
        return found.reshape(call.shape)
    is_blank = np.ones(call.lines, bool)
    for seen in call.seen(operands):
        is_blank &= ((seen < 0) & (seen > DOUBT)).all(axis=-1)
    if is_blank.any():
        kinds: dict[tuple[bytes, ...], int] = {}
        own = call.kinds(kinds)[is_blank][:, None]
        parts = [seen[is_blank] for seen in call.seen(operands)]
        rows, group = np.unique(np.concatenate([own, *parts], axis=1), axis=0, return_inverse=True)
        groups = list(kinds)
        made = [
            names.derived((call.key, groups[row[0]], row[1:].tobytes()), call.width) for row in rows
        ]
        found[is_blank] = np.stack(made)[group.ravel()]
    return found.reshape(call.shape)
