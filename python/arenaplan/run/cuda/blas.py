"""
Products of row-major matrices for libraries that count in columns.

A row-major matrix has the same memory as its transpose in column-major order, and ``c = a @ b`` is
``cᵀ = bᵀ @ aᵀ``: the operands change places and nothing is copied.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from arenaplan.run.cuda.device_work import DeviceProduct, Matrix


class BlasOperand(NamedTuple):
    """An operand of a column-major product."""

    operand: Literal["a", "b"]
    """The operand in the row-major product."""
    transposed: bool
    leading: int
    """Elements from one column in memory to the next."""
    distance: int
    """Elements from one matrix to the next."""


class ColumnMajor(NamedTuple):
    """The arguments to ``gemmStridedBatched``, as named in BLAS: m, n, k and the operands."""

    rows: int
    columns: int
    inner: int
    first: BlasOperand
    second: BlasOperand
    leading: int
    """Elements from one result column to the next."""
    distance: int


def column_major(product: DeviceProduct) -> ColumnMajor:
    """
    Return the column-major product that writes the same memory.

    Examples
    --------
    >>> import numpy as np
    >>> from arenaplan.run.cuda.device_work import Matrix, DevicePlace, DeviceProduct
    >>> place = DevicePlace("value", 0)
    >>> a, b, c = (Matrix(place, 0, row, False, 0) for row in (3, 4, 4))
    >>> column_major(DeviceProduct(np.dtype("float32"), 2, 4, 3, a, b, c))[:3]
    (4, 2, 3)
    """

    def operand(name: Literal["a", "b"], matrix: Matrix) -> BlasOperand:
        return BlasOperand(name, matrix.transposed, max(matrix.row, 1), matrix.distance)

    return ColumnMajor(
        product.columns,
        product.rows,
        product.inner,
        operand("b", product.b),
        operand("a", product.a),
        max(product.c.row, 1),
        product.c.distance,
    )
