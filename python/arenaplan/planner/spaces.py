"""Several memories: capacities, costs, and the spaces that values are pinned to."""

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
"""Default name of the only memory in a plan."""


@dataclass(frozen=True, slots=True, init=False)
class Space:
    """
    A memory that a plan may use.

    Attributes
    ----------
    name : str
        For people, and for pins.
    capacity : int, optional
        Capacity in bytes, a number or ``"64KiB"``; unlimited by default.
    cost : int, optional
        Cost to read or write one byte, in any unit that all spaces share. By default the position
        among the spaces: 0 for the first space, which is the fastest.
    alignment : int, optional
        Power of two that divides every offset in the space; by default the plan's alignment. In a
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
    Return the spaces in a text such as ``sram=64KiB,psram=8MiB@3``.

    The number after ``@`` is the cost to move a byte. A size alone describes the only memory, the
    arena.

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
    Return the values that are pinned to a space, with the space, by index.

    ``pins`` maps name patterns, as in shells (``*``, ``?``, ``[abc]``), to space names; of several
    patterns that fit a value the last counts.

    Raises
    ------
    InvalidOption
        If a pattern fits no value, or a space is unknown.
    """
    position = {space.name: index for index, space in enumerate(spaces)}
    homes: dict[int, int] = {}
    if not isinstance(pins, Mapping):
        raise InvalidOption(f"option pins: {pins!r} must map name patterns to space names")
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
