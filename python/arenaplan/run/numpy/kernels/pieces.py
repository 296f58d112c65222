"""
Common parts of kernels: operands, copies into place, and blockwise work.

Three things make a kernel more than a NumPy call. The output may be an input's memory (``out=``
then works only on equal element types), scratch memory is small and planned, and operands that once
were attributes (axes, pads, sizes) are known at preparation or only at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from arenaplan.base.errors import InternalError, InvalidAttribute, InvalidOperand, ShapeMismatch
from arenaplan.graph import Choice
from arenaplan.run.numpy.registry import Run, Signature, Step, scratch_bytes

BLOCK = 1 << 16
"""Elements that chains of calls work on at a time: fewer take more calls, more miss the cache."""
_BLOCK_COST = 7000
"""Elements that take as long as the calls of one more block: measured with QLinearAdd."""
_NEGLIGIBLE = 25
"""Operands are so many times as large as scratch memory that is not worth saving."""
_WORTHWHILE = 0.98
"""More scratch memory is offered if a run takes at most this much of the time."""
HIDDEN_COPY = 1 << 14
"""Elements that NumPy may copy internally when converting in place."""


# -- operands ------------------------------------------------------------------


def operand(step: Step, position: int) -> np.ndarray:
    """Return a required input's array."""
    array = step.input(position)
    if array is None:
        raise _missing(step, f"input {position}")
    return array


def result(step: Step, position: int = 0) -> np.ndarray:
    """Return a required output's array."""
    array = step.output(position)
    if array is None:
        raise _missing(step, f"output {position}")
    return array


def present(step: Step) -> list[np.ndarray]:
    """Return the arrays of the present inputs."""
    return [array for array in step.inputs if array is not None]


def _missing(step: Step, what: str) -> InvalidOperand:
    return InvalidOperand(f"node {step.signature.name!r} ({step.signature.op}) lacks its {what}")


def invalid(step: Step, problem: str) -> InvalidAttribute:
    """Return the error for an attribute, or an operand used as one, that makes no sense."""
    return InvalidAttribute(f"node {step.signature.name!r} ({step.signature.op}): {problem}")


def numbers(step: Step, name: str, position: int) -> list[Any] | None:
    """
    Return a list that is an attribute in old operator sets and an input in newer sets.

    ``None`` means an omitted list. Inputs are read now: see :func:`when_known`.
    """
    array = step.input(position)
    if array is not None:
        return list(array.reshape(-1).tolist())
    values = step.attributes.get(name)
    if values is None:
        return None
    return list(values) if isinstance(values, Sequence) else [values]


def when_known(
    step: Step, positions: Sequence[int], prepare: Callable[[], Run | None]
) -> Run | None:
    """Prepare now if the inputs at ``positions`` never change, and else anew on each run."""
    load = step.signature.constant
    if all(at >= len(load) or step.input(at) is None or load[at] for at in positions):
        return prepare()

    def run() -> None:
        work = prepare()
        if work is not None:
            work()

    return run


def normalized_axis(step: Step, axis: int, rank: int) -> int:
    """Return ``axis`` counted from the front."""
    if not -rank <= axis < max(rank, 1):
        raise invalid(step, f"axis {axis} of an operand with {rank} dimensions")
    return axis + rank if axis < 0 else axis


def check_shape(step: Step, shape: Sequence[int], position: int = 0) -> None:
    """
    Raise unless a run's operands ask for the output's planned shape.

    A model may declare a shape for a result that depends on data.
    """
    planned = result(step, position).shape
    if tuple(shape) != planned:
        raise ShapeMismatch(
            f"node {step.signature.name!r} ({step.signature.op}) makes shape {tuple(shape)} of "
            f"its operands, and its output was planned with shape {planned}"
        )


def worthwhile(ways: Iterable[Choice]) -> tuple[Choice, ...]:
    """Return, by ascending bytes, the ways that each save enough time over the way before."""
    found: list[Choice] = []
    for way in sorted(ways, key=lambda way: (way.bytes, way.cost)):
        if not found or way.cost < found[-1].cost * _WORTHWHILE:
            found.append(way)
    return tuple(found)


def negligible(signature: Signature) -> int:
    """
    Return how many bytes of scratch memory are not worth saving.

    Such bytes raise the peak by little, compared to the operands at the peak.
    """
    operands = (signature.inputs[0], signature.outputs[0])
    total = sum(tensor.bytes for tensor in operands if tensor is not None)
    return min(total // _NEGLIGIBLE, 1 << 18)


# -- copies --------------------------------------------------------------------


def address(array: np.ndarray) -> int:
    """Return where the array's first element is."""
    return int(array.__array_interface__["data"][0])


def box_of(array: np.ndarray, spans: Iterable[slice]) -> np.ndarray:
    """Return a part as a view; that of a scalar is one, too."""
    index: list[Any] = [*spans, ...]
    part: np.ndarray = array[tuple(index)]
    return part


def in_sequence(*work: Run | None) -> Run | None:
    """Return one function that does all ``work`` in turn."""
    todo = [run for run in work if run is not None]
    if len(todo) < 2:
        return todo[0] if todo else None

    def run() -> None:
        for each in todo:
            each()

    return run


def copy(source: np.ndarray, target: np.ndarray) -> Run | None:
    """Return a function that copies ``source`` to ``target``; ``None`` if both are the same."""
    if isinstance(target, np.generic):  # As array[()] is; array[...] is a view.
        raise InternalError("a number that is no view has no place in an arena")
    if target.size == 0 or _same_elements(source, target):
        return None
    return partial(np.copyto, target, source)


def _same_elements(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether both arrays show the same memory in the same way."""
    return (
        address(a) == address(b)
        and a.dtype == b.dtype
        and a.shape == b.shape
        and all(n == 1 or s == t for n, s, t in zip(a.shape, a.strides, b.strides, strict=True))
    )


def select(
    mask: np.ndarray, a: np.ndarray, b: np.ndarray, y: np.ndarray, difference: np.ndarray
) -> None:
    """
    Write ``a`` where ``mask`` is true and ``b`` elsewhere: all integers, the bits of elements.

    On random masks such arithmetic is ten times as fast as a conditional copy. ``difference`` is
    scratch memory, and may be that of ``a``.
    """
    np.bitwise_xor(a, b, out=difference)
    np.multiply(difference, mask, out=difference)
    np.bitwise_xor(difference, b, out=y)


def saturate(real: np.ndarray, y: np.ndarray) -> None:
    """
    Write rounded numbers, which are changed, to integers: the nearest representable integers.

    NaN becomes the least integer, as in compiled chains and in ONNX Runtime.
    """
    limits = np.iinfo(y.dtype)
    np.fmax(real, limits.min, out=real)
    np.minimum(real, limits.max, out=real)
    np.copyto(y, real, casting="unsafe")


# -- blocks ---------------------------------------------------------------------


class Blocks:
    """
    Scratch arrays for elementwise work on one output block at a time.

    Parameters
    ----------
    dtypes : str or None
        Element type of each array; ``None`` for the type of the node's first output.
    when : callable, optional
        Whether a node needs the arrays at all; by default all nodes do.
    is_wide : bool, default False
        Whether the arrays are several times as wide as the output, so that smaller blocks are
        offered.
    """

    def __init__(
        self,
        *dtypes: str | None,
        when: Callable[[Signature], bool] = lambda _: True,
        is_wide: bool = False,
    ) -> None:
        self._dtypes = dtypes
        self._when = when
        self._is_wide = is_wide
        self._shifts = (0, 2, 4, 6) if is_wide else (0, 2, 4)

    def declare(self, signature: Signature) -> list[list[Choice]]:
        """Return a node's workspace: whole blocks, or smaller blocks at a price."""
        output = signature.outputs[0]
        if output is None or prod(output.shape) == 0 or not self._when(signature):
            return []
        count = prod(output.shape)
        types = [np.dtype(name or output.dtype) for name in self._dtypes]
        sizes = sorted({min(count, BLOCK >> shift) for shift in self._shifts}, reverse=True)
        cost: tuple[float, ...] = (1.0, 1.1, 1.45)  # Measured with Erf.
        if self._is_wide:
            block = _BLOCK_COST
            cost = tuple((-(-count // size) * block + count) / (block + count) for size in sizes)
        return [
            [
                Choice(sum(scratch_bytes((size,), dtype) for dtype in types), cost[index])
                for index, size in enumerate(sizes)
            ]
        ]

    def arrays(self, step: Step) -> list[np.ndarray]:
        """Return the arrays, all with the same length, in the planned workspace."""
        if result(step).size == 0:
            return []
        types = [np.dtype(name or result(step).dtype) for name in self._dtypes]
        # Arrays start at multiples of 64 bytes, and so does the end of a block with 64 elements.
        available = step.workspaces[0].nbytes
        length = available // sum(dtype.itemsize for dtype in types)
        if length < result(step).size:
            length = max(length // 64 * 64, 1)
        length = min(length, result(step).size)
        scratch = step.scratch()
        return [scratch.array((length,), dtype) for dtype in types]


def blockwise(
    body: Callable[..., Any],
    inputs: Sequence[np.ndarray],
    output: np.ndarray,
    scratch: Sequence[np.ndarray] = (),
) -> Run | None:
    """
    Return a function that runs an elementwise function over the whole output.

    ``body(*inputs, output, *scratch)`` gets arrays with one shape, or with shapes that broadcast to
    the output's. There is a single call, unless scratch arrays are shorter than the output, or the
    output takes over the memory of an input with another type: NumPy would copy such an operand as
    a whole, while blocks with the right size need no copy.
    """
    if output.size == 0:
        return None
    operands = [a.reshape(output.shape) if a.size == output.size else a for a in inputs]
    if output.flags.c_contiguous and all(
        a.size == 1 or (a.size == output.size and a.flags.c_contiguous) for a in operands
    ):
        operands = [a.reshape(-1) if a.size == output.size else a.reshape(()) for a in operands]
        output = output.reshape(-1)
    limit, growth = _block_rule(operands, output, scratch)
    if limit >= output.size and not growth:
        whole = [s[: output.size].reshape(output.shape) for s in scratch]
        return partial(body, *operands, output, *whole)
    calls = [
        _cut(operands, output, scratch, box)
        for start, stop in _spans(output, limit, growth)
        for box in boxes(output.shape, start, stop)
    ]

    def run() -> None:
        for arguments in calls:
            body(*arguments)

    return run


def _block_rule(
    operands: Sequence[np.ndarray], output: np.ndarray, scratch: Sequence[np.ndarray]
) -> tuple[int, int]:
    """Return the most elements in a block, and the largest ratio of a block's end to its start."""
    limit = min((s.size for s in scratch), default=output.size)
    growth = 0
    for a in operands:
        if a.dtype != output.dtype and address(a) == address(output):
            growth = max(growth, a.itemsize // output.itemsize)
    return (min(limit, HIDDEN_COPY), 0) if growth == 1 else (limit, growth)


def _spans(output: np.ndarray, limit: int, growth: int) -> Iterator[tuple[int, int]]:
    """
    Yield element ranges, in memory order.

    With ``growth`` *g*, the output's elements are *g* times smaller than the elements of the input
    whose memory is taken over. Output elements ``[n, g·n)`` then lie where the input's first *n*
    elements were, which no longer matter, and clear of the elements they are computed from.
    """
    inner = prod(output.shape[1:])
    if inner < limit:
        limit = limit // inner * inner  # Whole rows make for fewer boxes.
    start = 0
    while start < output.size:
        reach = start + limit
        if growth:
            reach = min(reach, max(start * growth, 1))
        stop = min(reach, output.size)
        yield start, stop
        start = stop


def boxes(shape: Sequence[int], start: int, stop: int) -> Iterator[tuple[slice, ...]]:
    """Yield slices that together select elements ``[start, stop)`` in a C-ordered array."""
    inner = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    while start < stop:
        axis = next(k for k, size in enumerate(inner) if start % size == 0 and start + size <= stop)
        index = [start // size % dim for size, dim in zip(inner, shape, strict=True)]
        count = min(shape[axis] - index[axis], (stop - start) // inner[axis])
        yield (
            *(slice(i, i + 1) for i in index[:axis]),
            slice(index[axis], index[axis] + count),
            *(slice(None) for _ in shape[axis + 1 :]),
        )
        start += count * inner[axis]


def _cut(
    operands: Sequence[np.ndarray],
    output: np.ndarray,
    scratch: Sequence[np.ndarray],
    box: tuple[slice, ...],
) -> list[np.ndarray]:
    """Return for every array the part that belongs to the output's ``box``."""
    piece = output[box]
    parts = [a if a.ndim == 0 else np.broadcast_to(a, output.shape)[box] for a in operands]
    return [*parts, piece, *(s[: piece.size].reshape(piece.shape) for s in scratch)]
