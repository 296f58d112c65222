"""
Bytes that XLA's compiler for CPUs needs while an operator runs, beyond operands and results.

Products and convolutions exist for one order of dimensions. An operand in another order is copied
before the operator, and a result after the operator. A matrix may be transposed. Products of 16-bit
floats read and write copies in 32 bits. Random bits by Threefry need three words per element.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from arenaplan.formats.jaxpr.jaxpr_program import Atom, JaxprArray, Line
from arenaplan.graph.ops import Shape, array_bytes

_HALVES: Final = frozenset(["bfloat16", "float16"])


def scratch_of(line: Line) -> int:
    """Return the bytes of the copies that a line needs while the line runs."""
    main, result = line.main, line.main.result
    is_product = main.primitive == "dot_general"
    if main.primitive == "random_bits" and result is not None and _is_threefry(main.inputs[0]):
        return array_bytes((3, *result.shape), "uint32") - array_bytes(result.shape, result.dtype)
    if result is None or not (is_product or main.primitive == "conv_general_dilated"):
        return 0
    *orders, written = _product_orders(line) if is_product else _convolution_orders(line)

    def copied(x: JaxprArray, order: Iterable[int], is_moved: bool) -> int:
        """Return the bytes of an array's copy; 0 without a copy."""
        is_wider = is_product and x.dtype in _HALVES
        is_elsewhere = not _is_kept(order, x.shape) or (is_moved and len(x.shape) > 2)
        dtype = "float32" if is_wider else x.dtype
        return array_bytes(x.shape, dtype) if is_wider or is_elsewhere else 0

    copies = sum(
        copied(x, order, line.through(at))
        for at, (x, order) in enumerate(zip(main.inputs, orders, strict=True))
        if isinstance(x, JaxprArray)
    )
    raw, final = copied(result, written, bool(line.behind)), array_bytes(result.shape, result.dtype)
    return max(copies + raw - final, raw) if raw else copies


def _is_threefry(key: Atom) -> bool:
    """Whether a key is two words, and not the four of a generator of the compiler."""
    return isinstance(key, JaxprArray) and key.shape[-1:] == (8,)


def _product_orders(line: Line) -> list[Sequence[int]]:
    """Return by operand the dimensions in a product's order, and those of the result."""
    (left, right), batches = line.main.params["dimension_numbers"]
    first, second = (() if x is None else x.shape for x in line.main.inputs)
    free = [
        [axis for axis in range(len(shape)) if axis not in (*contracted, *batch)]
        for shape, contracted, batch in zip((first, second), (left, right), batches, strict=True)
    ]
    orders: list[Sequence[int]] = [
        [*batches[0], *free[0], *left],
        [*batches[1], *right, *free[1]],
        [],
    ]
    for at, contracted in enumerate((left, right)):
        if len(free[at]) <= 1 and len(contracted) <= 1:  # A matrix, in either order.
            count = len(batches[at])
            orders[at] = [*batches[at], *sorted(orders[at][count:])]
    return orders


def _convolution_orders(line: Line) -> list[Sequence[int]]:
    """Return by operand, and for the result, the dimensions in a convolution's order."""
    numbers = line.main.params["dimension_numbers"]
    (n, c, *places), (k, d, *taps) = numbers.lhs_spec, numbers.rhs_spec
    m, e, *made = numbers.out_spec
    return [[n, *places, c], [*taps, d, k], [m, *made, e]]


def _is_kept(order: Iterable[int], shape: Shape) -> bool:
    """Whether an array has its elements in an order of dimensions."""
    found = [axis for axis in order if shape[axis] != 1]
    return found == sorted(found)
