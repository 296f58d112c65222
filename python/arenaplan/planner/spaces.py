"""Several memories: their capacities and costs, and the homes of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from arenaplan.base.amounts import parse_size
from arenaplan.base.close import did_you_mean
from arenaplan.base.errors import InvalidOption

if TYPE_CHECKING:
    from arenaplan.graph import Graph

ARENA: Final = "arena"
"""Name of the memory of a plan that has one, unless it is given another name."""


@dataclass(frozen=True, slots=True, init=False)
class Space:
    """
    One memory that a plan may use.

    Attributes
    ----------
    name : str
        For people, and for pins.
    capacity : int, optional
        Bytes that it holds, given as a number or as ``"64KiB"``; unlimited if left out.
    cost : int, optional
        Cost of reading or writing one byte, in any unit that all spaces share. By
        default the position among the spaces: 0 for the first one, which is the fastest.
    alignment : int, optional
        Power of two that divides every offset in it; by default that of the plan. In a
        :class:`Problem`, any number.

    Examples
    --------
    >>> Space("sram", capacity="64KiB")
    Space(name='sram', capacity=65536, cost=None, alignment=None)
    """

    name: str
    capacity: int | None
    cost: int | None
    alignment: int | None

    def __init__(
        self,
        name: str,
        capacity: int | str | None = None,
        cost: int | None = None,
        alignment: int | None = None,
    ) -> None:
        size = parse_size(capacity) if isinstance(capacity, str) else capacity
        facts = {"name": name, "capacity": size, "cost": cost, "alignment": alignment}
        for field, value in facts.items():
            object.__setattr__(self, field, value)


def parse_spaces(text: str) -> list[Space]:
    """
    Return the spaces that a text such as ``sram=64KiB,psram=8MiB@3`` stands for.

    After ``@`` comes the cost of moving a byte. A size alone is that of the only memory, the arena.

    >>> parse_spaces("sram=64K,psram=8M@3")[1]
    Space(name='psram', capacity=8388608, cost=3, alignment=None)
    >>> parse_spaces("64KiB")
    [Space(name='arena', capacity=65536, cost=None, alignment=None)]
    """
    if "=" not in text and "," not in text:
        return [Space(ARENA, parse_size(text))]
    spaces = []
    for part in text.split(","):
        name, separator, rest = part.strip().partition("=")
        capacity, at, cost = rest.partition("@")
        digits = cost.isascii() and cost.isdigit() and len(cost) <= 18
        if not (separator and name) or (at and not digits):
            raise InvalidOption(f"option spaces: {part!r} is not NAME=SIZE or NAME=SIZE@COST")
        spaces.append(Space(name, parse_size(capacity), int(cost) if at else None))
    return spaces


def aligned(spaces: Iterable[Space], alignments: Mapping[str, int]) -> list[Space]:
    """Return ``spaces`` with the alignments given by name."""
    spaces = list(spaces)
    unknown = sorted(set(alignments) - {space.name for space in spaces})
    if unknown:
        known = ", ".join(repr(space.name) for space in spaces) or "none"
        raise InvalidOption(f"option alignment: there is no space {unknown[0]!r}, only {known}")
    return [replace(s, alignment=alignments.get(s.name, s.alignment)) for s in spaces]


def homes_of(
    graph: Graph, spaces: Sequence[Space], pins: Mapping[str, str]
) -> list[tuple[int, int]]:
    """
    Return which values may be in which space only, by index.

    ``pins`` maps patterns of names, as shells know them (``*``, ``?``, ``[abc]``), to names
    of spaces; of several that fit a value the last one counts.

    Raises
    ------
    InvalidOption
        If a pattern fits no value, or a space is not there.
    """
    position = {space.name: index for index, space in enumerate(spaces)}
    homes: dict[int, int] = {}
    if not isinstance(pins, Mapping):
        raise InvalidOption(f"option pins: {pins!r} is no mapping of patterns to names of spaces")
    for pattern, name in pins.items():
        if name not in position:
            known = ", ".join(map(repr, position)) or "none"
            raise InvalidOption(f"option pins: there is no space {name!r}, only {known}")
        found = [
            value.index
            for value in graph.values
            if value.kind != "constant"
            and (value.name == pattern or fnmatchcase(value.name, pattern))
        ]
        if not found:
            names = (value.name for value in graph.values if value.kind != "constant")
            raise InvalidOption(
                f"option pins: no value that has a place is called {pattern!r}"
                f"{did_you_mean(pattern, names)}"
            )
        homes.update(dict.fromkeys(found, position[name]))
    return sorted(homes.items())
