"""
Einstein summation, as sums, permuted copies and matrix products.

Operands are combined from left to right. Letters that only one operand has, and the result does
not, are summed first. The remaining pair is a stack of matrix products: kept letters in both
operands are the stack, other letters in both are summed by the product. Operands are copied only if
a product cannot read the order of their letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import NamedTuple, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided

from arenaplan.base.errors import InvalidAttribute, ShapeMismatch
from arenaplan.graph import Choice
from arenaplan.run.numpy.kernels.pieces import in_sequence, present, result
from arenaplan.run.numpy.kernels.widen import heavy_kernel
from arenaplan.run.numpy.registry import Run, Signature, Step, scratch_bytes


class _Memory(Protocol):
    """Gives scratch arrays."""

    def array(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray: ...


class _Counter:
    """Gives arrays that must not be touched, and counts their bytes."""

    def __init__(self) -> None:
        self.bytes = 0

    def array(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        """Return an array without memory."""
        self.bytes += scratch_bytes(shape, dtype)
        return _shadow(shape, dtype)


def _shadow(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return an array with contiguous strides, and the memory of one element."""
    strides, size = [], dtype.itemsize
    for dim in reversed(shape):
        strides.append(size)
        size *= dim
    return as_strided(np.zeros((), dtype), tuple(shape), strides[::-1])


class _Term(NamedTuple):
    """An array whose axes have letters."""

    letters: tuple[str, ...]
    array: np.ndarray

    def ordered(self, letters: Sequence[str]) -> np.ndarray:
        """Return the array with the axes in another order."""
        return self.array.transpose([self.letters.index(letter) for letter in letters])

    def size(self, letters: Sequence[str]) -> int:
        """Return the number of elements along some letters."""
        return prod(self.array.shape[self.letters.index(letter)] for letter in letters)


# -- the equation ------------------------------------------------------------------------------


def _letters(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return the letters in the operands and in the result; dots become letters, too."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise InvalidAttribute(f"equation {equation!r} is for {len(terms)} operands")
    found: list[tuple[str, ...]] = []
    widest = 0
    for term, rank in zip(terms, ranks, strict=True):
        before, dots, after = term.partition("...")
        hidden = rank - len(before) - len(after) if dots else 0
        letters = (*_named(before), *(f"...{k}" for k in range(hidden)[::-1]), *_named(after))
        if len(letters) != rank or hidden < 0:
            raise InvalidAttribute(f"equation {equation!r} for an operand of rank {rank}")
        widest = max(widest, hidden)
        found.append(letters)
    hidden_letters = tuple(f"...{k}" for k in range(widest)[::-1])
    if arrow:
        before, dots, after = right.partition("...")
        made = (*_named(before), *(hidden_letters if dots else ()), *_named(after))
    else:
        once = "".join(terms).replace("...", "")
        made = (*hidden_letters, *(x for x in sorted(set(once)) if once.count(x) == 1))
    if len(set(made)) < len(made) or not set(made) <= {x for term in found for x in term}:
        raise InvalidAttribute(f"equation {equation!r} has no such result")
    return found, made


def _named(text: str) -> tuple[str, ...]:
    if not all(x.isalpha() and x.isascii() for x in text):
        raise InvalidAttribute(f"an equation has {text!r}")
    return tuple(text)


def _term(letters: Sequence[str], array: np.ndarray) -> _Term:
    """Return an operand; a repeated letter is the diagonal, an axis of 1 has no letter."""
    strides: dict[str, int] = {}
    dims: dict[str, int] = {}
    for letter, dim, stride in zip(letters, array.shape, array.strides, strict=True):
        if letter in dims and dims[letter] != dim:
            raise ShapeMismatch(f"letter {letter!r} stands for {dims[letter]} and {dim}")
        dims[letter] = dim
        strides[letter] = strides.get(letter, 0) + stride
    kept = tuple(letter for letter, dim in dims.items() if dim != 1)
    view = as_strided(array, [dims[x] for x in kept], [strides[x] for x in kept], writeable=False)
    return _Term(kept, view)


# -- binding to memory -----------------------------------------------------------------------


def _bind(
    equation: str, arrays: Sequence[np.ndarray], output: np.ndarray, memory: _Memory
) -> list[Run]:
    """Return functions that compute ``output``."""
    letters, made = _letters(equation, [array.ndim for array in arrays])
    terms = [_term(names, array) for names, array in zip(letters, arrays, strict=True)]
    target = _term(made, output)
    target = target._replace(array=as_strided(output, target.array.shape, target.array.strides))
    for term in terms:
        for letter in term.letters:
            sizes = {each.size([letter]) for each in (*terms, target) if letter in each.letters}
            if len(sizes) > 1:
                raise ShapeMismatch(f"letter {letter!r} stands for {sorted(sizes)}")
    work: list[Run] = []
    total, *rest = terms
    for position, term in enumerate(rest):
        later = {x for each in rest[position + 1 :] for x in each.letters} | set(target.letters)
        total = _summed(total, later | set(term.letters), memory, work)
        term = _summed(term, later | set(total.letters), memory, work)
        last = target if position == len(rest) - 1 else None
        total = _product(total, term, later, last, memory, work)
    if not rest:
        gone = tuple(k for k, x in enumerate(total.letters) if x not in target.letters)
        kept = [x for x in total.letters if x in target.letters]
        if gone:
            view = target.ordered(kept) if kept else target.array
            work.append(partial(np.add.reduce, total.array, gone, None, view))
            return work
    if total.array is not target.array:
        work.append(partial(np.copyto, target.array, total.ordered(target.letters)))
    return work


def _summed(term: _Term, kept: set[str], memory: _Memory, work: list[Run]) -> _Term:
    """Return a term without letters that nothing else has."""
    gone = tuple(k for k, letter in enumerate(term.letters) if letter not in kept)
    if not gone:
        return term
    letters = tuple(x for x in term.letters if x in kept)
    array = memory.array([term.size([x]) for x in letters], term.array.dtype)
    work.append(partial(np.add.reduce, term.array, gone, None, array))
    return _Term(letters, array)


def _product(
    a: _Term, b: _Term, later: set[str], target: _Term | None, memory: _Memory, work: list[Run]
) -> _Term:
    """Return the product of two terms, in ``target`` if possible."""
    shared = [x for x in a.letters if x in b.letters]
    stack = [x for x in shared if x in later]
    if target is not None:  # Terms in result order save a copy.
        stack.sort(key=target.letters.index)
    summed = [x for x in shared if x not in later]
    rows = [x for x in a.letters if x not in shared]
    columns = [x for x in b.letters if x not in shared]
    if target is not None:
        rows.sort(key=target.letters.index)
        columns.sort(key=target.letters.index)
    made = (*stack, *rows, *columns)
    dtype = a.array.dtype
    if target is not None and target.letters == made:
        output = target
    elif target is not None and target.letters == (*stack, *columns, *rows):
        return _product(b, a, later, target, memory, work)
    else:
        shape = [(a if x in a.letters else b).size([x]) for x in made]
        output = _Term(made, memory.array(shape, dtype))
    count, m, n = a.size(stack), a.size(rows), b.size(columns)
    if not summed:
        left = a.ordered([*stack, *rows])
        left = left.reshape(*left.shape, *(1,) * len(columns)) if columns else left
        right = b.ordered([*stack, *columns])
        middle = (*right.shape[: len(stack)], *(1,) * len(rows), *right.shape[len(stack) :])
        right = as_strided(
            right,
            middle,
            (
                *right.strides[: len(stack)],
                *(0,) * len(rows),
                *right.strides[len(stack) :],
            ),
            writeable=False,
        )
        work.append(partial(np.multiply, left, right, output.array))
        return output
    k = a.size(summed)
    if k == 0:
        work.append(partial(output.array.fill, 0))
        return output
    left = _matrix(a, (stack, rows, summed), memory, work)
    right = _matrix(b, (stack, summed, columns), memory, work)
    into = _merged(output.array, [len(stack), len(rows), len(columns)])
    assert into is not None
    assert (left.shape, right.shape) == ((count, m, k), (count, k, n))
    if count == 1:
        left, right, into = left[0], right[0], into[0]
    work.append(partial(np.matmul, left, right, into))
    return output


def _matrix(
    term: _Term, groups: tuple[Sequence[str], ...], memory: _Memory, work: list[Run]
) -> np.ndarray:
    """Return a matrix stack with these letters, a view or a copy."""
    lengths = [len(group) for group in groups]
    view = term.ordered([x for group in groups for x in group])
    merged = _merged(view, lengths)
    item = term.array.itemsize
    if merged is not None and (item in merged.strides[1:] or 1 in merged.shape[1:]):
        return merged
    copy = memory.array(view.shape, term.array.dtype)
    work.append(partial(np.copyto, copy, view))
    merged = _merged(copy, lengths)
    assert merged is not None
    return merged


def _merged(array: np.ndarray, groups: Sequence[int]) -> np.ndarray | None:
    """Return a view with one axis for each group of axes, or ``None`` if there is none."""
    shape, strides, at = [], [], 0
    for count in groups:
        dims, steps = array.shape[at : at + count], array.strides[at : at + count]
        at += count
        for k in range(count - 1):
            if steps[k] != steps[k + 1] * dims[k + 1]:
                return None
        shape.append(prod(dims))
        strides.append(steps[-1] if count else array.itemsize)
    return as_strided(array, shape, strides, writeable=array.flags.writeable)


def _declare(signature: Signature) -> Sequence[Sequence[Choice]]:
    """Ask for the memory that the same work on arrays without memory asks for."""
    output = signature.outputs[0]
    tensors = [tensor for tensor in signature.inputs if tensor is not None]
    if output is None or any(0 in tensor.shape for tensor in (*tensors, output)):
        return []
    counter = _Counter()
    arrays = [_shadow(tensor.shape, tensor.dtype) for tensor in tensors]
    equation = signature.attributes.get("equation", "")
    _bind(equation, arrays, _shadow(output.shape, output.dtype), counter)
    return [[Choice(counter.bytes, 0.0)]] if counter.bytes else []


@heavy_kernel("Einsum", since=12, workspace=_declare)
def einsum(step: Step) -> Run | None:
    """Sum products over the elements of all operands, by the letters in an equation."""
    output, arrays = result(step), present(step)
    if output.size == 0:
        return None
    if any(array.size == 0 for array in arrays):
        return partial(output.fill, 0)
    memory: _Memory = step.scratch() if step.workspaces else _Counter()
    return in_sequence(*_bind(step.attributes.get("equation", ""), arrays, output, memory))
