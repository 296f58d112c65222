"""Dimensions and strides for loops over several operands, as few loops as possible."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple, TypeAlias

from arenaplan.deploy.code.code_site import ROWS

Shape: TypeAlias = "Sequence[int]"


class Loops(NamedTuple):
    """Nested loops."""

    dims: list[int]
    steps: list[list[int]]
    """By operand, the distance between indices."""


def dense_steps(shape: Shape) -> list[int]:
    """Return the strides of a contiguous array."""
    return [prod(shape[at + 1 :]) for at in range(len(shape))]


def collapsed(loops: Loops) -> Loops:
    """Merge loops that are contiguous in all operands."""
    dims: list[int] = []
    steps: list[list[int]] = [[] for _ in loops.steps]
    for at, dim in enumerate(loops.dims):
        if dim == 1:
            continue
        own = [each[at] for each in loops.steps]
        if dims and all(s[-1] == step * dim for s, step in zip(steps, own, strict=True)):
            dims[-1] *= dim
            for s, step in zip(steps, own, strict=True):
                s[-1] = step
            continue
        dims.append(dim)
        for s, step in zip(steps, own, strict=True):
            s.append(step)
    return Loops(dims, steps)


def padded(loops: Loops, count: int) -> Loops | None:
    """Add outer loops with a single round, up to ``count`` loops; None if there are too many."""
    more = count - len(loops.dims)
    if more < 0:
        return None
    return Loops([1] * more + loops.dims, [[0] * more + each for each in loops.steps])


def broadcast(shapes: Sequence[Shape], made: Shape, count: int) -> Loops | None:
    """
    Return loops over broadcast operands; loop 1 is over image rows.

    ``None`` if there would be more than ``count`` loops.
    """
    steps = []
    for shape in shapes:
        wide = [1] * (len(made) - len(shape)) + list(shape)
        if len(wide) != len(made) or any(
            dim not in (1, own) for dim, own in zip(wide, made, strict=True)
        ):
            return None
        dense = dense_steps(wide)
        steps.append([0 if dim == 1 else step for dim, step in zip(wide, dense, strict=True)])
    if len(made) != 4:
        return padded(collapsed(Loops(list(made), steps)), count)
    inner = ROWS + 1
    rest = padded(
        collapsed(Loops(list(made[inner:]), [each[inner:] for each in steps])), count - inner
    )
    if rest is None:
        return None
    return Loops(
        [*made[:inner], *rest.dims],
        [each[:inner] + own for each, own in zip(steps, rest.steps, strict=True)],
    )
