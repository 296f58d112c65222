"""
Einstein summation, as sums, permuted copies and matrix products.

Operands are combined from left to right. Letters that only one operand has, and the result does
not, are summed first. The remaining pair is a stack of matrix products: kept letters in both
operands are the stack, other letters in both are summed by the product.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import NamedTuple

from onnx import FunctionProto

from arenaplan.base.errors import InvalidAttribute, ShapeMismatch
from arenaplan.formats.onnx.operator_body import BodyBuilder


class _Term(NamedTuple):
    """A value whose axes have letters."""

    letters: tuple[str, ...]
    name: str


def einsum(body: BodyBuilder) -> FunctionProto:
    """Sum products over the elements of all operands, by the letters in an equation."""
    op = body.op
    operands = [op.input(at) for at in range(len(op.inputs))]
    found, made = _letters(body, op.text("equation"), [len(each.shape) for each in operands])
    sizes: dict[str, int] = {}
    for letters, operand in zip(found, operands, strict=True):
        for letter, dim in zip(letters, operand.shape, strict=True):
            known = sizes.setdefault(letter, dim)
            if known == 1:
                sizes[letter] = dim
            elif dim not in (1, known):
                text = f"letter {letter!r} stands for {known} and {dim}"
                raise op.error(ShapeMismatch, text)
    shape = [sizes[letter] for letter in made]
    if any(0 in operand.shape for operand in operands):
        zero = body.constant(0, operands[0].dtype)
        return body.function(body("Expand", zero, body.constant(shape)))
    write = _Einsum(body, sizes)
    terms = [write.term(at, found[at], each.shape) for at, each in enumerate(operands)]
    wanted = tuple(letter for letter in made if sizes[letter] != 1)
    total, *rest = terms
    for at, term in enumerate(rest, start=1):
        later = {x for each in terms[at + 1 :] for x in each.letters} | set(wanted)
        total = write.summed(total, later | set(term.letters))
        term = write.summed(term, later | set(total.letters))
        total = write.product(total, term, later, wanted)
    total = write.ordered(write.summed(total, wanted), wanted)
    return body.function(body.reshape(total.name, *shape))


def _letters(
    body: BodyBuilder, equation: str, ranks: Sequence[int]
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return the letters in the operands and in the result; dots become letters, too."""

    def invalid(problem: str) -> Exception:
        return body.op.error(InvalidAttribute, f"equation {equation!r} {problem}")

    def read(term: str, rank: int) -> tuple[str, ...]:
        before, dots, after = term.partition("...")
        if not all(x.isalpha() and x.isascii() for x in before + after):
            raise invalid(f"has {term!r}")
        hidden = rank - len(before) - len(after) if dots else 0
        return (*before, *(f"...{k}" for k in range(hidden)[::-1]), *after)

    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise invalid(f"is for {len(terms)} operands")
    found = [read(term, rank) for term, rank in zip(terms, ranks, strict=True)]
    for letters, rank in zip(found, ranks, strict=True):
        if len(letters) != rank:
            raise invalid(f"for an operand of rank {rank}")
    widest = max(sum(x.startswith("...") for x in letters) for letters in found)
    once = "".join(terms).replace(".", "")
    plain = "..." * ("..." in left) + "".join(x for x in sorted(set(once)) if once.count(x) == 1)
    right = right if arrow else plain
    made = read(right, widest + len(right.replace("...", "")))
    if len(set(made)) < len(made) or not set(made) <= {x for term in found for x in term}:
        raise invalid("has no such result")
    return found, made


class _Einsum:
    """Writes the nodes; ``sizes`` has the dimension of each letter."""

    def __init__(self, body: BodyBuilder, sizes: Mapping[str, int]) -> None:
        self._body, self._sizes = body, sizes

    def _shape(self, letters: Sequence[str]) -> list[int]:
        return [self._sizes[letter] for letter in letters]

    def term(self, position: int, letters: Sequence[str], shape: Sequence[int]) -> _Term:
        """Return an operand; a repeated letter is the diagonal, an axis of 1 has no letter."""
        body, name = self._body, self._body.name(position)
        left = [x for x, dim in zip(letters, shape, strict=True) if dim != 1]
        if len(left) < len(letters):
            name = body.reshape(name, *self._shape(left))
        while repeated := [x for x in left if left.count(x) > 1]:
            letter, size = repeated[0], self._sizes[repeated[0]]
            at = [k for k, x in enumerate(left) if x == letter][:2]
            others = [k for k in range(len(left)) if k not in at]
            name = body("Transpose", name, perm=[*others, *at])
            left = [*(left[k] for k in others), letter]
            name = body.reshape(name, *self._shape(left[:-1]), size * size)
            bounds = ([0], [size * size], [len(left) - 1], [size + 1])
            name = body("Slice", name, *map(body.constant, bounds))
        return _Term(tuple(left), name)

    def summed(self, term: _Term, kept: Collection[str]) -> _Term:
        """Return a term without letters that nothing else has."""
        gone = [k for k, letter in enumerate(term.letters) if letter not in kept]
        if not gone:
            return term
        name = self._body("ReduceSum", term.name, self._body.constant(gone), keepdims=0)
        return _Term(tuple(x for x in term.letters if x in kept), name)

    def ordered(self, term: _Term, letters: Sequence[str]) -> _Term:
        """Return a term with the letters in another order."""
        if tuple(letters) == term.letters:
            return term
        perm = [term.letters.index(letter) for letter in letters]
        return _Term(tuple(letters), self._body("Transpose", term.name, perm=perm))

    def product(self, a: _Term, b: _Term, later: set[str], wanted: Sequence[str]) -> _Term:
        """Return the product of two terms, if possible with the letters in the wanted order."""
        body, order = self._body, [*wanted, *a.letters, *b.letters]
        shared = [x for x in a.letters if x in b.letters]
        stack, rows, columns = (
            sorted(group, key=order.index)
            for group in (
                [x for x in shared if x in later],
                [x for x in a.letters if x not in shared],
                [x for x in b.letters if x not in shared],
            )
        )
        inner = [x for x in shared if x not in later]
        if tuple(wanted) == (*stack, *columns, *rows) and rows and columns:
            return self.product(b, a, later, wanted)
        first, second = (self._shape(group) for group in (rows, columns))
        made = (*stack, *rows, *columns)
        if inner:
            sides = ([stack, rows, inner], [stack, inner, columns])
            names = []
            for term, groups in zip((a, b), sides, strict=True):
                name = self.ordered(term, [x for group in groups for x in group]).name
                lengths = [prod(self._shape(group)) for group in groups]
                names.append(body.reshape(name, *lengths[0 if stack else 1 :]))
            return _Term(made, body.reshape(body("MatMul", *names), *self._shape(made)))
        left = self.ordered(a, [*stack, *rows]).name
        right = self.ordered(b, [*stack, *columns]).name
        if columns:
            left = body.reshape(left, *self._shape(stack), *first, *(1 for _ in columns))
        if rows:
            right = body.reshape(right, *self._shape(stack), *(1 for _ in rows), *second)
        return _Term(made, body("Mul", left, right))
