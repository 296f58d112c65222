"""Numbers for the symbolic dimensions of a model, and their combinations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import TypeAlias

from arenaplan.base.choices import MAX_SHAPES as MAX_SHAPES
from arenaplan.base.errors import InvalidOption, UnboundDim, UnknownDim, fault
from arenaplan.base.quoting import listed, quoted
from arenaplan.graph.sizes import whole_number

Size: TypeAlias = "int | tuple[int, ...]"
"""A number for a dimension, or a whole shape for an input."""

RangeBind: TypeAlias = "Mapping[str, Size | Collection[Size]]"
"""Per name: one size, or a range, list or set of them. A tuple is one whole shape."""

Shape: TypeAlias = tuple[Size, ...]
"""One combination: a size for each name."""


class Shapes:
    """
    All combinations of sizes that a model may be run with.

    Parameters
    ----------
    bind : mapping
        Sizes by name.
    limit : int
        Most combinations.

    Raises
    ------
    SizeError
        If there are more.
    InvalidOption
        If there are none.
    """

    def __init__(self, bind: RangeBind, limit: int) -> None:
        count = prod(max(1, _length(choices)) for choices in bind.values())
        if count > limit:
            raise fault(
                "TooManyShapes",
                f"{_sizes_text(bind)} are {count:,} shapes, and each is looked at; at most "
                f"{limit:,} are, unless the limit is raised: give buckets, such as "
                "[16, 32, 64, 128], instead of a range",
            )
        self.choices: dict[str, tuple[Size, ...]] = {
            name: _checked(name, choices) for name, choices in bind.items()
        }
        """By name, the sizes to choose from, largest first."""

    def __len__(self) -> int:
        return prod(map(len, self.choices.values()))

    def __iter__(self) -> Iterator[Shape]:
        """Iterate over the combinations; the first has the largest size of every name."""
        return product(*self.choices.values())

    def find(self, bind: Mapping[str, object]) -> Shape:
        """
        Return the combination that has the given sizes.

        A name with one size only can be left out.

        Raises
        ------
        UnknownDim
            If no name is like that.
        UnboundDim
            If a name is missing.
        SizeError
            If it may not have that size.
        """
        for name in bind:
            if name not in self.choices:
                raise UnknownDim(
                    f"no sizes were given for {quoted(name)}; there are {listed(self.choices)}"
                )
        return tuple(self._find(name, bind) for name in self.choices)

    def _find(self, name: str, bind: Mapping[str, object]) -> Size:
        """Return the size of one name."""
        choices = self.choices[name]
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
        return dict(zip(self.choices, shape, strict=True))

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


def _sizes_text(bind: RangeBind) -> str:
    """Return the combinations that a caller asked for, without a look at each size."""
    return " ".join(f"{name} ({_length(choices):,})" for name, choices in bind.items())


def _length(choices: Size | Collection[Size]) -> int:
    """Return how many sizes there are; ``len`` refuses the largest ranges."""
    if isinstance(choices, range):
        return max(0, -(-(choices.stop - choices.start) // choices.step))
    return len(choices) if isinstance(choices, (list, set, frozenset)) else 1


def _checked(name: str, choices: Size | Collection[Size]) -> tuple[Size, ...]:
    """Return the sizes of one name, each once, largest first."""
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
    """Return one size; refuse values that only look like one."""
    if isinstance(size, (tuple, list)):
        return tuple(whole_number(dim, f"a dimension of {quoted(name)}") for dim in size)
    return whole_number(size, f"the number for {quoted(name)}")
