"""Names that nothing has yet."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain, count


def free_name(name: str, taken: Collection[str]) -> str:
    """
    Return a name that is not taken: the given name, or the name with a number.

    Examples
    --------
    >>> free_name("x", ["y"]), free_name("x", ["x", "x_1"])
    ('x', 'x_2')
    """
    numbered = (f"{name}_{number}" for number in count(1))
    return next(free for free in chain([name], numbered) if free not in taken)
