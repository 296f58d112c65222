"""
Donation: which training step results replace which arguments in place.

Results are found by tree structure (:mod:`arenaplan.formats.trees`), because positions shift and
equal results are a single variable. :func:`write_back` then changes a program until each new
content can be written over the old content, adding copies where the old content is needed after
replacement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from arenaplan.formats.jaxpr.emit import effects_of
from arenaplan.formats.jaxpr.jaxpr_program import (
    Atom,
    Equation,
    JaxprArray,
    JaxprProgram,
    Line,
    Number,
)
from arenaplan.formats.trees import DonatedPair
from arenaplan.graph.ops import array_bytes


def pairs_of_types(
    donated: Iterable[int], inputs: list[Any], outputs: list[Any]
) -> list[DonatedPair]:
    """
    Return JAX's pairs for a compiled function: results in order, first fit by type.

    Parameters
    ----------
    donated : iterable of int
        Positions of donated inputs.
    inputs, outputs : list of (shape, dtype)
        All input and output types.
    """
    free: dict[Any, list[int]] = {}
    for position in donated:
        free.setdefault(inputs[position], []).append(position)
    return [
        DonatedPair(free[kind].pop(0), position)
        for position, kind in enumerate(outputs)
        if free.get(kind)
    ]


class WriteBack(NamedTuple):
    """A state, and the array that replaces the content, made by a line in the program."""

    into: JaxprArray
    value: JaxprArray


def write_back(program: JaxprProgram, pairs: Iterable[DonatedPair]) -> list[WriteBack]:
    """
    Bind new contents to the bytes of old contents.

    Parameters
    ----------
    program : JaxprProgram
        Changed in place: copies are added, and lines are reordered so that each line that replaces
        a content follows all readers of the content.
    pairs : iterable of DonatedPair
        Each input and each output at most once.

    Returns
    -------
    list of WriteBack
        Without unchanged inputs.
    """
    return _Binder(program).run(list(pairs))


class _Binder:
    """A run of :func:`write_back`."""

    def __init__(self, program: JaxprProgram) -> None:
        self._program = program
        self._readers = program.readers()
        self._makers = program.makers()
        self._behind: dict[Line, list[Line]] = {}
        """Lines that replace a content, by lines that read this content."""
        self._bound: dict[JaxprArray, Line] = {}
        """The line that replaces each state's content."""
        self._values: set[JaxprArray] = set()
        """The new contents."""

    def run(self, pairs: list[DonatedPair]) -> list[WriteBack]:
        """Bind all pairs, the largest arrays first: theirs are the copies to avoid."""
        inputs, outputs = self._program.inputs, self._program.outputs
        changed = [pair for pair in pairs if inputs[pair.into] is not outputs[pair.result]]
        olds = {inputs[pair.into] for pair in changed}
        news = {pair.result for pair in pairs}
        for position, atom in enumerate(outputs):
            if atom in olds and position not in news:
                outputs[position] = self._copy(atom)
        found = []
        for pair in sorted(changed, key=self._size, reverse=True):
            into = inputs[pair.into]
            if into is not None:
                value = self._bind(into, outputs[pair.result])
                outputs[pair.result] = value
                found.append(WriteBack(into, value))
        self._arrange()
        return found

    def _size(self, pair: DonatedPair) -> int:
        into = self._program.inputs[pair.into]
        return 0 if into is None else array_bytes(into.shape, into.dtype)

    def _bind(self, into: JaxprArray, result: Atom) -> JaxprArray:
        """Return the array that replaces ``into``'s content: the result or a copy."""
        for _ in range(3):
            if isinstance(result, JaxprArray) and self._is_bound(into, result):
                return result
            result = self._copy(result)
        raise AssertionError("nothing depends on a copy of a copy")

    def _is_bound(self, into: JaxprArray, value: JaxprArray) -> bool:
        """Bind a result to an input's bytes, if the result's line can write there."""
        maker = self._makers.get(value)
        if maker is None or value in self._values:
            return False
        readers = self._readers.get(into, [])
        if maker in readers and not _takes_over(maker, into, value):
            return False
        before = [line for line in readers if line is not maker]
        if not self._below(maker).isdisjoint(before):
            return False
        for line in before:
            self._behind.setdefault(line, []).append(maker)
        self._bound[into] = maker
        self._values.add(value)
        return True

    def _below(self, line: Line) -> set[Line]:
        """Return the lines that must run after a line, by operands or by replaced contents."""
        found: set[Line] = set()
        todo = [line]
        while todo:
            for after in self._after(todo.pop()):
                if after not in found:
                    found.add(after)
                    todo.append(after)
        return found

    def _after(self, line: Line) -> Iterator[Line]:
        """Yield the lines that must run after a line because of results and operands."""
        for out in line.outputs:
            if out is not None:
                yield from self._readers.get(out, ())
        yield from self._behind.get(line, ())

    def _copy(self, atom: Atom) -> JaxprArray:
        """Append a line that copies an array or a number, and return the copy."""
        assert atom is not None
        made = JaxprArray(atom.shape, atom.dtype)
        if isinstance(atom, Number):
            main = Equation("broadcast_in_dim", [atom], [made], {"shape": atom.shape}, None)
        else:
            main = Equation("copy", [atom], [made], {}, None)
        line = Line(main)
        self._program.lines.append(line)
        self._makers[made] = line
        if isinstance(atom, JaxprArray):
            self._readers.setdefault(atom, []).append(line)
            if atom in self._bound:
                self._behind[line] = [self._bound[atom]]
        return made

    def _arrange(self) -> None:
        """Reorder lines as contents require, keeping the old order where possible."""
        lines = self._program.lines
        places = {line: place for place, line in enumerate(lines)}
        waits = dict.fromkeys(lines, 0)
        for line in lines:
            for after in self._after(line):
                waits[after] += 1
        ready = [places[line] for line, count in waits.items() if count == 0]
        heapify(ready)
        ordered = []
        while ready:
            line = lines[heappop(ready)]
            ordered.append(line)
            for after in self._after(line):
                waits[after] -= 1
                if waits[after] == 0:
                    heappush(ready, places[after])
        self._program.lines = ordered


def _takes_over(line: Line, into: JaxprArray, value: JaxprArray) -> bool:
    """Whether a line that reads ``into`` may write ``value`` over it."""
    allowed = {(pair.input, pair.output) for pair in effects_of(line).in_place}
    output = line.outputs.index(value)
    read = [position for position, atom in enumerate(line.inputs) if atom is into]
    return bool(read) and all((position, output) in allowed for position in read)
