"""
Chooses regions: the frontier between live bytes, operator bytes, and extra work.

Every splittable run of operators is tried with several strip counts, padding ways and line buffers.
A choice is a path through the operators in order; each step is a whole operator or a region (the
fusion graph of msf-CNN, Huang and Baccelli 2025; operator bytes and single-operator regions are
new). Labels that no other label beats in all costs are kept, so the frontier is exact for the tried
regions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from arenaplan.tflite.rewrite.program import OperatorProgram
from arenaplan.tflite.rewrite.region_costs import Candidate, Lives, TailCosts, candidate
from arenaplan.tflite.rewrite.strip_regions import Scope, SplitRegion, even_cuts, scope_of

_STRIPS: Final = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
_LONGEST: Final = 9
"""Most operators in a region."""
_IDLE: Final = 2
"""Strip counts tried in a row without a lower peak before giving up."""
_GRAINS: Final = 400
"""Units in which the frontier counts extra work, up to the limit."""


class RegionChoice(NamedTuple):
    """Regions, and the total costs of all operators."""

    peak: int
    """Most live bytes in a step."""
    tail: int
    """Bytes the runtime keeps beyond those for the given model."""
    work: int
    """Extra work."""
    operators: int
    """New operators."""
    regions: tuple[SplitRegion, ...]

    @property
    def bytes(self) -> int:
        """Bytes this choice needs, beyond the bytes the runtime keeps anyway."""
        return self.peak + self.tail


@dataclass(frozen=True, slots=True)
class Frontier:
    """Choices not beaten by any other choice."""

    choices: tuple[RegionChoice, ...]
    """Sorted by bytes."""
    bound: int
    """
    Bytes that every choice of examined regions needs, beyond the bytes the runtime keeps anyway.
    """
    tried: int
    """Regions that were examined."""


def frontier(program: OperatorProgram, costs: TailCosts, most_work: int) -> Frontier:
    """
    Return the best region choices.

    Parameters
    ----------
    program : OperatorProgram
        The model.
    costs : TailCosts
        Bytes kept by the runtime.
    most_work : int
        Most extra work.
    """
    lives = Lives(program, overlap=costs.overlap)
    plain = [lives.plain(position) for position in range(len(program.operators))]
    level = max(plain, default=0)
    tried = 0
    known: dict[tuple[int, int], list[Candidate]] = {}
    best = RegionChoice(level, 0, 0, 0, ())
    while True:
        # Operators that need less than the best choice need not be split.
        level = level * 6 // 10
        for scope in _scopes(program, plain, level):
            if (scope.first, scope.last) not in known:
                count, found = _options(lives, costs, scope, plain, most_work)
                known[scope.first, scope.last] = found
                tried += count
        best = _paths(plain, known, most_work, best.bytes)[0]
        if best.peak > level or level == 0:
            break
    lowest = {
        run: [option._replace(peak=option.bound) for option in found]
        for run, found in known.items()
    }
    bound = _paths(plain, lowest, most_work, best.bytes)[0].bytes
    return Frontier(_paths(plain, known, most_work), bound, tried)


def _scopes(program: OperatorProgram, plain: Sequence[int], level: int) -> Iterator[Scope]:
    """Yield operator runs with at least one operator that needs more than some bytes."""
    for first in range(len(program.operators)):
        hot = False
        for last in range(first, min(first + _LONGEST, len(program.operators))):
            if program.operators[last].rule is None:
                break
            hot = hot or plain[last] >= level
            scope = scope_of(program, first, last) if hot else None
            if scope is not None:
                yield scope


def _options(
    lives: Lives, costs: TailCosts, scope: Scope, plain: Sequence[int], most_work: int
) -> tuple[int, list[Candidate]]:
    """Return the number of ways tried to split an operator run, and the useful ways."""
    rows = lives.program.tensors[scope.result].shape[1]
    worst = max(plain[scope.first : scope.last + 1])
    most = max(plain)
    ways = list(_ways(lives.program, scope))
    found: list[Candidate] = []
    tried = idle = 0
    lowest = worst
    for strips in _STRIPS:
        if strips > rows or idle == _IDLE:
            break
        cuts = even_cuts(rows, strips)
        before = lowest
        for padded, held in ways:
            tried += 1
            region = SplitRegion(scope.first, scope.last, cuts, padded, held)
            option = candidate(lives, costs, scope, region, most_work)
            if option is not None:
                lowest = min(lowest, option.peak)
                if option.bound < worst and option.bound + option.tail < most:
                    found.append(option)
        idle = 0 if lowest < before else idle + 1
    return tried, found


def _ways(
    program: OperatorProgram, scope: Scope
) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
    """Yield sets of operators to pad explicitly, each with a set of tensors to hold."""
    padded, held = [], []
    for position in range(scope.first, scope.last + 1):
        operator = program.operators[position]
        if operator.rule is None or operator.rule.window.is_pointwise:
            continue
        window = operator.rule.window
        if window.is_same and window.is_linear and window.kernel > 1:
            padded.append(position)
        if window.kernel > window.stride:
            operands = (operator.inputs[place] for place in operator.rule.images)
            held += [i for i in operands if i is not None and i in scope.inside]
    pads = list(dict.fromkeys(_few(padded)))
    holds = list(dict.fromkeys(_few(held)))
    none, every = frozenset[int](), frozenset(held)
    yield from ((pad, none) for pad in pads)
    yield from ((none, hold) for hold in holds if hold)
    if every:
        yield from ((pad, every) for pad in pads if pad)


def _few(numbers: Sequence[int]) -> Iterator[frozenset[int]]:
    """Yield the empty set, each number alone, and all numbers."""
    yield frozenset()
    yield from (frozenset({number}) for number in numbers)
    yield frozenset(numbers)


def _unbeaten(found: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates for which no other candidate is at least as good in every cost."""
    kept: list[Candidate] = []
    for option in sorted(found, key=lambda o: (o.peak, o.tail, o.work)):
        if all(other.tail > option.tail or other.work > option.work for other in kept):
            kept.append(option)
    return kept


def _paths(
    plain: Sequence[int],
    known: dict[tuple[int, int], list[Candidate]],
    most_work: int,
    most_bytes: int | None = None,
) -> tuple[RegionChoice, ...]:
    """Return the unbeaten paths through all operators, optionally with a byte limit."""
    by_first: dict[int, list[Candidate]] = {}
    for (first, _), found in known.items():
        by_first.setdefault(first, []).extend(_unbeaten(found))
    grain = max(1, -(-most_work // _GRAINS))
    labels: list[list[RegionChoice]] = [[] for _ in range(len(plain) + 1)]
    labels[0] = [RegionChoice(0, 0, 0, 0, ())]
    whole = max(plain, default=0)  # More bytes than without regions is useless.
    most = whole if most_bytes is None else most_bytes
    for position, live in enumerate(plain):
        here = _best(labels[position], grain)
        labels[position] = []
        options = by_first.get(position, ())
        for label in here:
            kept = max(label.peak, live)
            if kept + label.tail <= most:
                labels[position + 1].append(RegionChoice(kept, *label[1:]))
            for option in options:
                peak = max(label.peak, option.peak)
                if label.work + option.work <= most_work and (
                    peak + label.tail + option.tail <= most
                ):
                    labels[option.region.last + 1].append(
                        RegionChoice(
                            peak,
                            label.tail + option.tail,
                            label.work + option.work,
                            label.operators + option.operators,
                            (*label.regions, option.region),
                        )
                    )
    return tuple(sorted(_best(labels[-1], 1), key=lambda c: (c.bytes, c.work)))


def _best(labels: Iterable[RegionChoice], grain: int) -> list[RegionChoice]:
    """Return labels that no other beats; work is compared in grains."""
    kept: list[RegionChoice] = []
    stairs: list[tuple[int, int]] = []
    for label in sorted(labels, key=lambda c: (c.peak, c.tail, c.work)):
        work = -(-label.work // grain)
        if any(tail <= label.tail and other <= work for tail, other in stairs):
            continue
        stairs = [(t, w) for t, w in stairs if not (label.tail <= t and work <= w)]
        stairs.append((label.tail, work))
        kept.append(label)
    return kept
