"""
A node's work: floating-point operations or bytes moved, whichever takes longer.

The roofline model (Williams, Waterman and Patterson 2009) prices elementwise operators by bytes,
and products by multiplications. All importers use the model, so costs from different formats have
the same unit.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final

from arenaplan.graph.ops.operands import Operand, Shape, size

FLOPS_PER_BYTE: Final = 8
"""Floating-point operations in the time to move a byte."""


def roofline(operations: int, moved: Iterable[Operand | None]) -> int:
    """
    Return a node's work per run, in floating-point operations.

    Parameters
    ----------
    operations : int
        Multiplications and additions of products; other operators' take less time than their bytes,
        and may be left out.
    moved : iterable of Operand or None
        The arrays read or written, each once.
    """
    bytes_moved = sum(size(operand) for operand in moved if operand is not None)
    return max(operations, FLOPS_PER_BYTE * bytes_moved)


def product_operations(made: Shape, contracted: int) -> int:
    """Return a product's operations: each element is a sum over ``contracted`` products."""
    return 2 * prod(made) * contracted


def convolution_operations(made: Shape, weights: Shape, features: int = 0) -> int:
    """
    Return a convolution's operations.

    Parameters
    ----------
    made : tuple of int
        The result's shape; each element is a sum over one filter.
    weights : tuple of int
        The filters' shape.
    features : int, default 0
        The weights' dimension that counts filters.
    """
    return product_operations(made, prod(weights[:features] + weights[features + 1 :]))
