"""
Cheap arrays that are kept for the backward pass although their operands are kept as well.

Linearization saves one array for each factor of a derivative: ``1 - y`` beside ``y = tanh(x)``, and
four of them for a GELU. Readers in the backward pass can compute such an array in their own loop,
as fusion in XLA does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from arenaplan.importers.jaxpr.operators import REDUCTIONS
from arenaplan.importers.jaxpr.program import Line, Program, Tensor, joined
from arenaplan.ops import array_bytes

_CHEAP: Final = frozenset(
    [
        *("abs", "add", "add_any", "and", "convert_element_type", "eq", "ge", "gt", "integer_pow"),
        *("le", "lt", "max", "min", "mul", "ne", "neg", "not", "or", "select_n", "sign", "sub"),
    ]
)
"""Primitives of few instructions. Others, such as ``tanh`` or ``div``, run once."""

_LONGEST: Final = 16
"""Most equations before an operator."""

_ROUNDS: Final = 8
"""Most times that arrays at the fullest place are looked at."""


def sink(program: Program, replaced: Collection[Tensor]) -> None:
    """
    Let readers behind the fullest place compute cheap arrays, where this keeps fewer bytes there.

    Parameters
    ----------
    program : Program
        Changed in place.
    replaced : collection of Tensor
        Contents that are overwritten, which nothing may read later than it does.
    """
    for _ in range(_ROUNDS):
        if not _Round(program, replaced).run():
            return


class _Round:
    """One look at the arrays that are alive at the fullest place of the program's order."""

    def __init__(self, program: Program, replaced: Collection[Tensor]) -> None:
        self._replaced = replaced
        self._places = {line: place for place, line in enumerate(program.lines)}
        self._readers = program.readers()
        self._makers = program.makers()
        self._results = {atom for atom in program.outputs if isinstance(atom, Tensor)}
        self._last = {x: self._last_use(x) for x in self._makers}
        self._fullest = self._fullest_place()

    def run(self) -> bool:
        """Change readers, and return whether any changed."""
        candidates = [x for x in self._makers if self._crosses(x) and self._can_sink(x)]
        # The latest first: a chain collapses from its end, by one array each round.
        candidates.sort(key=lambda x: self._places[self._makers[x]], reverse=True)
        by_missing: dict[frozenset[Tensor], list[Tensor]] = {}
        for tensor in candidates:
            by_missing.setdefault(frozenset(self._missing(tensor)), []).append(tensor)
        moved: set[Tensor] = set()
        kept: set[Tensor] = set()
        """Operands of arrays that moved in this round."""
        for missing, tensors in sorted(by_missing.items(), key=lambda item: len(item[0])):
            chosen: list[Tensor] = []
            needed = set(kept)
            for tensor in tensors:
                operands = self._operands(tensor)
                if tensor not in needed and moved.isdisjoint(operands):
                    chosen.append(tensor)
                    needed.update(operands)
            more = (x for x in missing if x not in kept)
            if sum(map(_bytes, chosen)) > sum(map(_bytes, more)):
                for tensor in chosen:
                    self._move(tensor)
                moved.update(chosen)
                kept = needed
        return bool(moved)

    def _last_use(self, tensor: Tensor) -> int:
        """Return the place of the last reader of an array; that behind all for a result."""
        if tensor in self._results:
            return len(self._places)
        return max((self._places[line] for line in self._readers.get(tensor, ())), default=-1)

    def _fullest_place(self) -> int:
        """Return the place at which most bytes are alive, without inputs."""
        change = [0] * (len(self._places) + 2)
        for tensor, maker in self._makers.items():
            change[self._places[maker]] += _bytes(tensor)
            change[max(self._last[tensor], self._places[maker]) + 1] -= _bytes(tensor)
        best, most, alive = 0, 0, 0
        for place, bytes_more in enumerate(change):
            alive += bytes_more
            if alive > most:
                best, most = place, alive
        return best

    def _crosses(self, tensor: Tensor) -> bool:
        """Whether an array is made before the fullest place and read behind it."""
        maker = self._makers.get(tensor)
        if maker is None:
            return tensor not in self._replaced
        return self._places[maker] < self._fullest < self._last[tensor]

    def _behind(self, tensor: Tensor) -> Iterator[Line]:
        """Yield the readers behind the fullest place."""
        for line in self._readers.get(tensor, ()):
            if self._places[line] > self._fullest:
                yield line

    def _can_sink(self, tensor: Tensor) -> bool:
        """Whether all readers behind the fullest place can compute a cheap array."""
        maker = self._makers[tensor]
        is_cheap = all(x.primitive in _CHEAP or not x.is_elementwise for x in maker.equations)
        return (
            maker.main.primitive in _CHEAP
            and is_cheap
            and tensor not in self._results
            and not maker.behind
            and maker.main.is_pure
            and not any(x in self._replaced for x in self._operands(tensor))
            and all(
                (line.main.is_elementwise or line.main.primitive in REDUCTIONS)
                and not line.behind
                and len(line.before) + len(maker.equations) <= _LONGEST
                for line in self._behind(tensor)
            )
        )

    def _operands(self, tensor: Tensor) -> list[Tensor]:
        """Return the arrays that an array is computed from."""
        return [x for x in self._makers[tensor].inputs if isinstance(x, Tensor)]

    def _missing(self, tensor: Tensor) -> Iterator[Tensor]:
        """Yield the operands that would have to be kept for it."""
        return (x for x in self._operands(tensor) if not self._crosses(x))

    def _move(self, tensor: Tensor) -> None:
        """Let readers behind the fullest place compute an array."""
        equations = self._makers[tensor].equations
        for line in list(self._behind(tensor)):
            line.before = joined(equations, line.before)
            line.is_formula = True


def _bytes(tensor: Tensor) -> int:
    """Return the bytes of an array."""
    return array_bytes(tensor.shape, tensor.dtype)
