"""
Cheap arrays that are kept for the backward pass although the operands are kept, too.

Linearization saves an array for each factor in a derivative: ``1 - y`` beside ``y = tanh(x)``, and
four arrays for a GELU. Readers in the backward pass can compute such an array in their own loop, as
XLA's fusion does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from arenaplan.formats.jaxpr.jaxpr_operators import REDUCTIONS
from arenaplan.formats.jaxpr.jaxpr_program import Equation, JaxprArray, JaxprProgram, Line, joined
from arenaplan.graph.ops import array_bytes

_CHEAP: Final = frozenset(
    [
        *("abs", "add", "add_any", "and", "convert_element_type", "eq", "ge", "gt", "integer_pow"),
        *("le", "lt", "max", "min", "mul", "ne", "neg", "not", "or", "select_n", "sign", "sub"),
    ]
)
"""Primitives with few instructions. Other primitives, such as ``tanh`` or ``div``, run once."""

_LONGEST: Final = 16
"""Most equations before an operator."""

_ROUNDS: Final = 8
"""Most times that arrays at the fullest place are looked at."""


def reduce(program: JaxprProgram) -> None:
    """
    Let reductions compute operands without other readers.

    An operand stays if more bytes would have to live until the reduction instead.
    """
    now = _Round(program, ())
    for line in program.lines:
        operand = line.main.inputs[0] if line.main.primitive in REDUCTIONS else None
        maker = now.makers.get(operand) if isinstance(operand, JaxprArray) else None
        if maker is None or line.before or not isinstance(operand, JaxprArray):
            continue
        is_alone = now.readers[operand] == [line] and operand not in now.results
        if not is_alone or not maker.main.is_elementwise or maker.behind or not maker.main.is_pure:
            continue
        longer = (
            x
            for x in maker.inputs
            if isinstance(x, JaxprArray) and x in now.makers and now.last[x] < now.places[line]
        )
        if sum(map(_bytes, set(longer))) <= _bytes(operand):
            line.before, line.is_formula = maker.equations, True


def sink(program: JaxprProgram, replaced: Collection[JaxprArray]) -> None:
    """
    Let readers after the peak compute cheap arrays, if fewer bytes are then live at the peak.

    Parameters
    ----------
    program : JaxprProgram
        Changed in place.
    replaced : collection of JaxprArray
        Overwritten contents, which must not be read later than now.
    """
    for _ in range(_ROUNDS):
        if not _Round(program, replaced).run():
            return


class _Round:
    """The arrays live at the peak of the program's order."""

    def __init__(self, program: JaxprProgram, replaced: Collection[JaxprArray]) -> None:
        self._replaced = frozenset(replaced)
        self.places = {line: place for place, line in enumerate(program.lines)}
        self.readers = program.readers()
        self.makers = program.makers()
        self.results = {atom for atom in program.outputs if isinstance(atom, JaxprArray)}
        self.last = {x: self._last_use(x) for x in self.makers}
        self._fullest = self._fullest_place()

    def run(self) -> bool:
        """Change readers, and return whether any changed."""
        # The latest first: a chain collapses from the end, by an array per round.
        crossing = sorted(filter(self._crosses, self.makers), key=self._place_of, reverse=True)
        by_missing: dict[frozenset[JaxprArray], list[_Formula]] = {}
        for tensor in crossing:
            formula = self._formula(tensor)
            if formula is not None:
                by_missing.setdefault(formula.missing, []).append(formula)
        moved: set[JaxprArray] = set()
        kept: set[JaxprArray] = set()
        """Leaves of arrays moved in this round."""
        for missing, formulas in sorted(by_missing.items(), key=lambda item: len(item[0])):
            chosen: list[_Formula] = []
            needed = set(kept)
            for formula in formulas:
                if formula.result not in needed and moved.isdisjoint(formula.leaves):
                    chosen.append(formula)
                    needed.update(formula.leaves)
            more = (x for x in missing if x not in kept)
            if sum(_bytes(formula.result) for formula in chosen) > sum(map(_bytes, more)):
                for formula in chosen:
                    self._move(formula)
                moved.update(formula.result for formula in chosen)
                kept = needed
        return bool(moved)

    def _place_of(self, tensor: JaxprArray) -> int:
        """Return the place of the line that makes an array."""
        return self.places[self.makers[tensor]]

    def _last_use(self, tensor: JaxprArray) -> int:
        """Return the place of an array's last reader; for a result, the place after all lines."""
        if tensor in self.results:
            return len(self.places)
        return max((self.places[line] for line in self.readers.get(tensor, ())), default=-1)

    def _fullest_place(self) -> int:
        """Return the place at which most bytes are alive, without inputs."""
        change = [0] * (len(self.places) + 2)
        for tensor, maker in self.makers.items():
            change[self.places[maker]] += _bytes(tensor)
            change[max(self.last[tensor], self.places[maker]) + 1] -= _bytes(tensor)
        best, most, alive = 0, 0, 0
        for place, bytes_more in enumerate(change):
            alive += bytes_more
            if alive > most:
                best, most = place, alive
        return best

    def _crosses(self, tensor: JaxprArray) -> bool:
        """Whether an array is made before the peak and read after the peak."""
        maker = self.makers.get(tensor)
        if maker is None:
            return tensor not in self._replaced
        return self.places[maker] < self._fullest < self.last[tensor]

    def _behind(self, tensor: JaxprArray) -> Iterator[Line]:
        """Yield the readers behind the fullest place."""
        for line in self.readers.get(tensor, ()):
            if self.places[line] > self._fullest:
                yield line

    def _formula(self, tensor: JaxprArray) -> _Formula | None:
        """Return how readers can compute an array; ``None`` if they cannot."""
        maker = self.makers[tensor]
        readers = list(self._behind(tensor))
        if tensor in self.results or not _is_cheap(maker):
            return None
        equations, leaves = self._expanded(maker)
        room = _LONGEST - len(equations)
        can_read = all(_computes(line) and len(line.before) <= room for line in readers)
        if not can_read or not self._replaced.isdisjoint(leaves):
            return None
        missing = frozenset(x for x in leaves if not self._crosses(x))
        return _Formula(tensor, equations, leaves, missing)

    def _expanded(self, maker: Line) -> tuple[list[Equation], list[JaxprArray]]:
        """
        Return the cheap equations for a line's results, and the arrays that the equations read.
        """
        lines = {maker}
        leaves: dict[JaxprArray, None] = {}
        todo = [x for x in maker.inputs if isinstance(x, JaxprArray)]
        while todo:
            tensor = todo.pop()
            made = self.makers.get(tensor)
            is_short = len(lines) < _LONGEST
            if made is not None and not self._crosses(tensor) and is_short and _is_cheap(made):
                if made not in lines:
                    lines.add(made)
                    todo += [x for x in made.inputs if isinstance(x, JaxprArray)]
            else:
                leaves[tensor] = None
        equations: list[Equation] = []
        for line in sorted(lines, key=self.places.__getitem__):
            equations = joined(equations, line.equations)
        return equations, list(leaves)

    def _move(self, formula: _Formula) -> None:
        """Let readers behind the fullest place compute an array."""
        for line in list(self._behind(formula.result)):
            line.before = joined(formula.equations, line.before)
            line.is_formula = True


class _Formula(NamedTuple):
    """A cheap array, in the form that readers can compute."""

    result: JaxprArray
    equations: list[Equation]
    leaves: list[JaxprArray]
    missing: frozenset[JaxprArray]
    """The leaves that are not live at the peak."""


def _is_cheap(line: Line) -> bool:
    """Whether readers can compute a line's result."""
    return (
        not line.behind
        and line.main.primitive in _CHEAP
        and all(x.primitive in _CHEAP or not x.is_elementwise for x in line.before)
        and line.main.is_pure
    )


def _computes(line: Line) -> bool:
    """Whether a line can compute its operands on the way."""
    return not line.behind and (line.main.is_elementwise or line.main.primitive in REDUCTIONS)


def _bytes(tensor: JaxprArray) -> int:
    """Return an array's bytes."""
    return array_bytes(tensor.shape, tensor.dtype)
