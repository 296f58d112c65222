"""
The work of a node: floating-point operations or bytes moved, whichever takes longer.

This is a roofline model (Williams, Waterman and Patterson 2009): elementwise operators are priced
by their bytes, products by their multiplications. All importers use it, so costs of graphs from
different formats are in the same unit.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final

from arenaplan.graph.ops.operands import Operand, Shape, size

FLOPS_PER_BYTE: Final = 8
"""Floating-point operations in the time in which one byte is moved."""


def roofline(operations: int, moved: Iterable[Operand | None]) -> int:
    """
    Return the work of one run of a node, in floating-point operations.

    Parameters
    ----------
    operations : int
        Multiplications and additions of products; those of other operators take less time than
        their bytes, and may be left out.
    moved : iterable of Operand or None
        The arrays that are read or written, each once.
    """
    bytes_moved = sum(size(operand) for operand in moved if operand is not None)
    return max(operations, FLOPS_PER_BYTE * bytes_moved)


def product_operations(made: Shape, contracted: int) -> int:
    """Return the operations of a product: each element is a sum over ``contracted`` products."""
    return 2 * prod(made) * contracted


def convolution_operations(made: Shape, weights: Shape, features: int = 0) -> int:
    """
    Return the operations of a convolution.

    Parameters
    ----------
    made : tuple of int
        Shape of the result; each of its elements is a sum over one filter.
    weights : tuple of int
        Shape of the filters.
    features : int, default 0
        Dimension of the weights that counts filters.
    """
    return product_operations(made, prod(weights[:features] + weights[features + 1 :]))
