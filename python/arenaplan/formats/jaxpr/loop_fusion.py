"""Elementwise formulas that run as one loop: arrays inside need no bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from heapq import heappop, heappush
from typing import Final

from arenaplan.formats.jaxpr.jaxpr_program import Equation, JaxprArray, JaxprProgram, Line, joined
from arenaplan.graph.ops import array_bytes

_NEGLIGIBLE: Final = 64
"""Operands so many times smaller than the result of a formula do not count."""


def update(program: JaxprProgram, updated: Collection[JaxprArray]) -> None:
    """
    Join elementwise formulas for new contents, as far as joining needs no more bytes.

    An equation joins if the arrays needed instead of the result are not larger, not counting arrays
    that live anyway: inputs, constants, and program results.
    """
    formulas = _Formulas(program)
    for result in updated:
        last = formulas.makers.get(result)
        if last is not None and not last.name and _can_join(last, result):
            formulas.join(last, formulas.costly, "update")
    formulas.drop()


def fuse(
    program: JaxprProgram,
    updated: Collection[JaxprArray] = (),
    replaced: Collection[JaxprArray] = (),
) -> None:
    """
    Join elementwise formulas, as far as joining needs no more bytes at any place.

    Parameters
    ----------
    program : JaxprProgram
        Changed in place.
    updated : collection of JaxprArray
        New contents, whose lines may move behind readers of old contents, and join by
        :func:`update`.
    replaced : collection of JaxprArray
        Overwritten contents, which must not be read later than now.
    """
    formulas = _Formulas(program)
    others, late = set(updated), frozenset(replaced)
    for last in reversed(program.lines):
        result = last.main.result
        if result is None or result in others or last in formulas.gone:
            continue
        if _can_join(last, result):
            formulas.join(last, lambda members: formulas.late(members, late))
    formulas.drop()


class _Formulas:
    """The elementwise formulas in a program."""

    def __init__(self, program: JaxprProgram) -> None:
        self._program = program
        self._places = {line: place for place, line in enumerate(program.lines)}
        self.makers = program.makers()
        self._readers = program.readers()
        self._results = {atom for atom in program.outputs if isinstance(atom, JaxprArray)}
        self.gone: set[Line] = set()
        """Lines that are parts of others."""

    def join(self, last: Line, refused: Callable[[list[Line]], set[Line]], name: str = "") -> None:
        """Join a line with the lines that only this line depends on, except refused lines."""
        barred: set[Line] = set()
        members = self._cone(last, barred)
        while more := refused(members):
            barred |= more
            members = self._cone(last, barred)
        if len(members) == 1:
            return
        before: list[Equation] = []
        for line in members:
            before = joined(before, [*line.before, line.main] if line is not last else line.before)
        last.before, last.is_formula, last.name = before, True, name
        self.gone.update(members[:-1])
        for x in _read(last):
            others = (line for line in self._readers[x] if line not in self.gone)
            self._readers[x] = list(dict.fromkeys([*others, last]))

    def drop(self) -> None:
        """Remove the lines that are parts of others."""
        self._program.lines = [line for line in self._program.lines if line not in self.gone]

    def _cone(self, last: Line, barred: Collection[Line]) -> list[Line]:
        """Return the lines that only ``last`` depends on, including ``last``, in order."""
        like = last.main.result
        assert like is not None
        found: list[Line] = []
        members, todo = {last}, [(-self._places[last], last)]
        moved: set[JaxprArray] = set()
        """Arrays that members read at other element positions."""
        while todo:
            # The last line first, so that all readers of the result are already known.
            _, line = heappop(todo)
            if line in found[-1:]:
                continue
            if line is not last:
                out = line.main.result
                if out is None or out in moved or not members.issuperset(self._readers[out]):
                    continue
                members.add(line)
            found.append(line)
            direct = set(line.main.inputs)
            moved.update(x for x in _read(line) if x not in direct)
            for atom in direct:
                if not isinstance(atom, JaxprArray) or atom in self._results:
                    continue
                maker = self.makers.get(atom)
                if maker and maker not in barred and not maker.name and _can_join(maker, like):
                    heappush(todo, (-self._places[maker], maker))
        return found[::-1]

    def costly(self, members: list[Line]) -> set[Line]:
        """Return the lines that need more additional bytes than they make."""
        leaves: dict[JaxprArray, frozenset[JaxprArray]] = {}
        found = set()
        for line in members:
            out = line.main.result
            assert out is not None
            own = frozenset(x for y in _read(line) for x in leaves.get(y, [y]))
            lives = (x for x in own if x.kind == "activation" and x not in self._results)
            if line is not members[-1] and _bytes(lives) > _bytes([out]):
                found.add(line)
                own = frozenset([out])
            leaves[out] = own
        return found

    def late(self, members: list[Line], replaced: frozenset[JaxprArray]) -> set[Line]:
        """
        Return lines that make more bytes live if they run where the last line runs.

        Where other lines run between members, operands that would be dead must not have more bytes
        than the arrays inside of the formula. At the last place, all such operands and the result
        must not have more bytes than live at some place since.
        """
        *others, last = members
        found = {line for line in others if not replaced.isdisjoint(_read(line))}
        if found or not others:
            return found
        inside = {out: self._places[line] for line in others for out in _made(line)}
        result, end = _bytes(_made(last)), self._places[last]
        ends = {
            x: max(map(self._places.__getitem__, self._readers[x]))
            for line in members
            for x in _read(line)
        }
        longer = {
            x: its_end
            for x, its_end in ends.items()
            if x.kind == "activation"
            and x not in inside
            and x not in self._results
            and its_end < end
            and _bytes([x]) > result // _NEGLIGIBLE
        }
        most, before = 0, self._places[members[0]]
        for line in members:
            here = self._places[line]
            between = (self._program.lines[place] for place in range(before + 1, here))
            if any(other not in self.gone for other in between):
                kept = {x for x, place in inside.items() if place < here <= ends[x]}
                if _bytes(x for x, its_end in longer.items() if its_end < here) > _bytes(kept):
                    return {self.makers[x] for x in kept}
                most = 0
            alive = [x for x, place in inside.items() if place <= here <= ends[x]]
            alive += (x for x, its_end in longer.items() if its_end >= here)
            most, before = max(most, _bytes(alive) + result * (line is last)), here
        return {members[0]} if _bytes(longer) + result > most else set()


def _can_join(line: Line, like: JaxprArray) -> bool:
    """Whether a line is elementwise, with the shape of ``like``."""
    result = line.main.result
    return (
        line.main.is_elementwise
        and not line.behind
        and result is not None
        and result.shape == like.shape
        and line.main.is_pure
    )


def _read(line: Line) -> list[JaxprArray]:
    """Return the arrays that a line reads."""
    return [x for x in line.inputs if isinstance(x, JaxprArray)]


def _made(line: Line) -> list[JaxprArray]:
    """Return the arrays that a line makes."""
    return [x for x in line.outputs if x is not None]


def _bytes(tensors: Iterable[JaxprArray]) -> int:
    """Return the total bytes of arrays."""
    return sum(array_bytes(tensor.shape, tensor.dtype) for tensor in tensors)
