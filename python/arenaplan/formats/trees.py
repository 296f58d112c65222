"""
Trees of arrays: which training step results replace which arguments.

Arguments and results are trees, and leaf positions say little. A donated argument is replaced by a
result with the same structure and types.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from arenaplan.base.errors import InvalidOption

_Place = TypeVar("_Place")
Donate: TypeAlias = "Collection[int] | Mapping[int, int] | None"
"""
Donated arguments, optionally with replacing results; ``None`` for the arguments named by the step
itself.
"""


class DonatedPair(NamedTuple):
    """A donated argument and the new content."""

    into: int
    """Position among the program's inputs."""
    result: int
    """Position among the program's outputs."""


class Subtree(NamedTuple):
    """A part of a tree of arrays, from the whole tree to a leaf."""

    kind: Hashable
    """The structure, and the leaves' shapes and types."""
    first: int
    """Position of the first leaf among all leaves."""
    leaves: int
    """Number of leaves."""
    parts: tuple[Subtree, ...]
    """The children."""


def subtree(
    tree: Any,
    flatten: Callable[..., tuple[list[Any], Any]],
    types: Callable[[list[Any]], Hashable],
    first: int = 0,
) -> Subtree:
    """
    Describe a tree and its parts.

    Parameters
    ----------
    tree : object
        The tree.
    flatten : callable
        The framework's function from a tree to its leaves and its structure.
    types : callable
        From leaves to their shapes and types.
    first : int, default 0
        Position of its first leaf.
    """
    leaves, structure = flatten(tree)
    kind = structure, types(leaves)
    inside, _ = flatten(tree, is_leaf=lambda part: part is not tree)
    if len(inside) == 1 and inside[0] is tree:
        return Subtree(kind, first, 1, ())
    parts, at = [], first
    for child in inside:
        parts.append(subtree(child, flatten, types, at))
        at += parts[-1].leaves
    return Subtree(kind, first, at - first, tuple(parts))


def pairs_of_trees(donated: Iterable[Subtree], results: Subtree) -> Iterator[DonatedPair]:
    """
    Yield pairs of donated leaf and replacing result leaf.

    A donated tree is replaced by the first unused result tree with the same structure and types. If
    there is none, the tree's parts are matched one by one.
    """
    taken: set[int] = set()
    for tree in donated:
        yield from _replaced(tree, results, taken)


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


def _replaced(tree: Subtree, results: Subtree, taken: set[int]) -> Iterator[DonatedPair]:
    """Yield the leaf pairs of a donated tree."""
    for found in _walk(results):
        leaves = range(found.first, found.first + found.leaves)
        if found.leaves and found.kind == tree.kind and taken.isdisjoint(leaves):
            taken.update(leaves)
            yield from (DonatedPair(tree.first + at, leaf) for at, leaf in enumerate(leaves))
            return
    for part in tree.parts:
        yield from _replaced(part, results, taken)


def _walk(tree: Subtree) -> Iterator[Subtree]:
    """Yield a tree and its parts, outer parts first."""
    yield tree
    for part in tree.parts:
        yield from _walk(part)


class DonatedPairs(NamedTuple):
    """A step's donations."""

    pairs: list[DonatedPair]
    donated: list[int]
    """Positions of all donated inputs."""


def donated_pairs(
    arguments: Subtree, results: Subtree, donate: Collection[int] | Mapping[int, int]
) -> DonatedPairs:
    """
    Return pairs of argument leaf and replacing result leaf.

    Parameters
    ----------
    arguments, results : Subtree
        The argument tuple, and the step's result.
    donate : collection of int or mapping
        Positions of donated arguments; a mapping names the replacing results.

    Raises
    ------
    InvalidOption
        If a position is not a whole number.
    IndexError
        If the argument or result does not exist.
    ValueError
        If a named result's structure or types differ from the argument's.
    """
    chosen = [donated_at(arguments.parts, at, "argument") for at in donate]
    if isinstance(donate, Mapping):
        pairs: list[DonatedPair] = []
        for tree, at in zip(chosen, donate.values(), strict=True):
            found = donated_at(results.parts, at, "result")
            if found.kind != tree.kind:
                raise ValueError(f"result {at} has not the structure and types of its argument")
            pairs += pairs_of_trees([tree], found)
    else:
        pairs = list(pairs_of_trees(chosen, results))
    return DonatedPairs(pairs, [tree.first + at for tree in chosen for at in range(tree.leaves)])


def donated_at(places: Sequence[_Place], at: int, what: str) -> _Place:
    """Return the argument or result at a position that a caller named."""
    if isinstance(at, bool) or not isinstance(at, int):
        raise InvalidOption(f"donate: {what} {at!r} is not a whole number")
    if not 0 <= at < len(places):
        raise IndexError(f"donate: there is no {what} {at}; there are {len(places)}")
    return places[at]
