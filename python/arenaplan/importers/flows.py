"""Pieces in which nodes can work, for importers whose operators say little more than shapes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal, TypeAlias

from arenaplan.graph import Effects, Flow
from arenaplan.importers.common import Shape

Pieces: TypeAlias = Literal["elements", "first", "any", "rows", "planes"]
"""
How an operator makes its first output: ``"elements"``, each from those of the full-size
operands at the same place; ``"first"``, from operand 0 alone; ``"any"`` piece, from all of
the operands; ``"rows"``, from the same rows of operand 0; ``"planes"``, from the same indices
of its first two dimensions, images and channels.
"""


def with_flow(
    effects: Effects, how: Pieces, output: Shape, inputs: Sequence[Shape | None], *, loads: bool
) -> Effects:
    """
    Return the effects of an operator with the known facts about its pieces.

    Parameters
    ----------
    loads : bool
        Whether it copies operand 0 tile by tile before it computes with it.
    """
    count, follows = prod(output), tuple[int, ...]()
    first = inputs[0] if inputs else None
    if how == "elements":
        follows = tuple(at for at, shape in enumerate(inputs) if shape == output)
    elif how == "first":
        follows = (0,) if first == output else ()
    elif how == "rows":
        count = prod(output[:-1])
        if first is not None and prod(first[:-1]) == count and len(first) > 1:
            follows = (0,)
    elif how == "planes":
        if first is None or min(len(first), len(output)) < 3 or 0 in first or 0 in output:
            return effects
        if output[0] != first[0] or output[1] % first[1]:
            return effects
        count, follows = prod(first[:2]), (0,)
    if count < 2 or (how in ("elements", "first") and not follows):
        return effects
    return effects._replace(flows=(Flow(0, count, follows),), loads=(0,) if loads else ())
