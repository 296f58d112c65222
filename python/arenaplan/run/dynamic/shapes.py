"""Numbers for a model's symbolic dimensions, and combinations of numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import TypeAlias

from arenaplan.base.amounts import elements_of
from arenaplan.base.choices import MAX_SHAPES as MAX_SHAPES
from arenaplan.base.errors import InvalidOption, UnboundDim, UnknownDim, fault
from arenaplan.base.formulas import solved
from arenaplan.base.quoting import listed, quoted
from arenaplan.graph.sizes import whole_number

Size: TypeAlias = "int | tuple[int, ...]"
"""A number for a dimension, or a whole shape for an input."""

RangeBind: TypeAlias = (
    "Mapping[str, Size | str | Collection[Size]] | Sequence[Mapping[str, Size | str]]"
)
"""By name: one size, a range, list or set of sizes, or an equation over other names, such as
``"past + 1"``. A tuple is one whole shape. Or a list of combinations.
"""

Shape: TypeAlias = tuple[Size, ...]
"""One combination: a size for each name."""


def has_several(bind: RangeBind | None) -> bool:
    """Return whether sizes are given for several graphs: a range, list or set, or combinations."""
    if isinstance(bind, Mapping):
        return any(isinstance(sizes, range | list | set | frozenset) for sizes in bind.values())
    return bind is not None


class Shapes:
    """
    All size combinations that a model may be run with.

    Parameters
    ----------
    bind : mapping or sequence of mapping
        Sizes by name, or the combinations themselves.
    limit : int
        Most combinations.

    Raises
    ------
    SizeError
        If there are more combinations.
    InvalidOption
        If there are no combinations, an equation has no number, or combinations have different
        names.
    """

    def __init__(self, bind: RangeBind, limit: int) -> None:
        combinations = [bind] if isinstance(bind, Mapping) else elements_of(bind, "option bind")
        listed_: dict[Shape, None] = {}
        names: tuple[str, ...] | None = None
        count = 0
        for each in combinations:
            free = {name: sizes for name, sizes in each.items() if not isinstance(sizes, str)}
            count += prod(max(1, _length(choices)) for choices in free.values())
            if count > limit:
                raise fault(
                    "TooManyShapes",
                    f"{_sizes_text(free)} are {count:,} shapes, and each is looked at; at most "
                    f"{limit:,} are, unless the limit is raised: give buckets, such as "
                    "[16, 32, 64, 128], instead of a range, or equations of names that depend on "
                    'each other, such as total="past + 1"',
                )
            names = names or tuple(each)
            if set(names) != set(each):
                raise InvalidOption(
                    f"option bind: one combination has {listed(names)}, another {listed(each)}"
                )
            checked = {name: _checked(name, choices) for name, choices in free.items()}
            for sizes in product(*checked.values()):
                found = solved({**each, **dict(zip(checked, sizes, strict=True))})
                listed_[tuple(_size(name, found[name]) for name in names)] = None
        if names is None:
            raise InvalidOption("option bind: the list of combinations is empty")
        self._names = names
        self._equations: dict[str, str] = {}
        self._shapes: Sequence[Shape] = tuple(listed_)
        if isinstance(bind, Mapping):
            self._equations = {name: each for name, each in bind.items() if isinstance(each, str)}
        else:
            self._shapes = sorted(listed_, key=lambda each: list(map(_magnitude, each)))[::-1]

    @property
    def choices(self) -> dict[str, tuple[Size, ...]]:
        """By name, the sizes to choose from, largest first."""
        columns = zip(*self._shapes, strict=True)
        return {
            name: tuple(sorted(set(sizes), key=_magnitude, reverse=True))
            for name, sizes in zip(self._names, columns, strict=True)
        }

    def __len__(self) -> int:
        return len(self._shapes)

    def __iter__(self) -> Iterator[Shape]:
        """Iterate over the combinations; the first has the largest size for every name."""
        return iter(self._shapes)

    def leave_out(self, shapes: Collection[Shape]) -> None:
        """Forget combinations that the model forbids."""
        self._shapes = [shape for shape in self._shapes if shape not in shapes]

    def find(self, bind: Mapping[str, object]) -> Shape:
        """
        Return the combination that has the given sizes.

        A name with a single size, or with an equation, can be left out.

        Raises
        ------
        UnknownDim
            If a name is unknown.
        UnboundDim
            If a name is missing.
        SizeError
            If a name may not have the given size.
        """
        choices = self.choices
        for name in bind:
            if name not in choices:
                raise UnknownDim(
                    f"no sizes were given for {quoted(name)}; there are {listed(choices)}"
                )
        given = {
            name: self._find(name, bind, sizes)
            for name, sizes in choices.items()
            if name in bind or name not in self._equations
        }
        found = solved({**self._equations, **given})
        shape = tuple(_size(name, found[name]) for name in self._names)
        if shape not in self._shapes:
            raise fault(
                "ShapeNotPlanned", f"{self.text(shape)} is not one of the shapes that were planned"
            )
        return shape

    def _find(self, name: str, bind: Mapping[str, object], choices: Sequence[Size]) -> Size:
        """Return the size for one name."""
        if name not in bind:
            if len(choices) == 1:
                return choices[0]
            raise UnboundDim(f"dimension {quoted(name)} has several sizes: say which")
        size = _size(name, bind[name])
        if size not in choices:
            raise fault(
                "ShapeNotPlanned",
                f"{name}={size} is not one of the sizes that were planned: {sizes_text(choices)}",
            )
        return size

    def bound(self, shape: Shape) -> dict[str, Size]:
        """Return a combination in the form of an importer's ``bind``."""
        return dict(zip(self._names, shape, strict=True))

    def text(self, shape: Shape) -> str:
        """Return a combination for people, such as ``batch=8 seq=16``."""
        return " ".join(
            f"{name}={'x'.join(map(str, size)) if isinstance(size, tuple) else size}"
            for name, size in self.bound(shape).items()
        )

    def __str__(self) -> str:
        return " ".join(f"{name}={sizes_text(sizes)}" for name, sizes in self.choices.items())


def sizes_text(choices: Sequence[Size]) -> str:
    """Return sizes for people, such as ``1..32`` or ``16,32,64``."""
    sizes = sorted(choices) if all(isinstance(size, int) for size in choices) else list(choices)
    first, last = sizes[0], sizes[-1]
    if isinstance(first, int) and isinstance(last, int) and last - first == len(sizes) - 1 > 1:
        return f"{first}..{last}"
    shown = ["x".join(map(str, s)) if isinstance(s, tuple) else str(s) for s in sizes[:16]]
    return ",".join(shown) + (",…" if len(sizes) > len(shown) else "")


def _sizes_text(bind: Mapping[str, Size | Collection[Size]]) -> str:
    """Return the combinations that a caller asked for, without a look at each size."""
    return " ".join(f"{name} ({_length(choices):,})" for name, choices in bind.items())


def _length(choices: Size | Collection[Size]) -> int:
    """Return how many sizes there are; ``len`` refuses the largest ranges."""
    if isinstance(choices, range):
        return max(0, -(-(choices.stop - choices.start) // choices.step))
    return len(choices) if isinstance(choices, (list, set, frozenset)) else 1


def _checked(name: str, choices: Size | Collection[Size]) -> tuple[Size, ...]:
    """Return the sizes for one name, without duplicates, largest first."""
    if not isinstance(choices, (range, list, set, frozenset)):
        return (_size(name, choices),)
    sizes = {_size(name, size) for size in choices}
    if not sizes:
        raise InvalidOption(f"no size is given for {quoted(name)}: the range or list is empty")
    return tuple(sorted(sizes, key=_magnitude, reverse=True))


def _magnitude(size: Size) -> tuple[int, Sequence[int]]:
    """Return the sort key of sizes."""
    return (prod(size), size) if isinstance(size, tuple) else (size, ())


def _size(name: str, size: object) -> Size:
    """Return a size; refuse values that only look like a size."""
    if isinstance(size, (tuple, list)):
        return tuple(whole_number(dim, f"a dimension of {quoted(name)}") for dim in size)
    return whole_number(size, f"the number for {quoted(name)}")
