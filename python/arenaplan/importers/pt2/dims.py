"""Sizes that are numbers, symbols, or small expressions of symbols."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, Final

from arenaplan.errors import DimConflict, InvalidDim, NotAModel, UnboundDim, UnknownDim
from arenaplan.importers.common import Bind, Shape, listed, quoted, whole_number

_LONGEST: Final = 400
"""Longest expression, in characters, that is evaluated."""


class Dims:
    """
    Numbers for the symbols of a model.

    Parameters
    ----------
    bind : mapping or None
        What the caller says: numbers by symbol, and whole shapes by input.
    declared : mapping
        Sizes of the inputs as the file describes them, by name.
    """

    def __init__(self, bind: Bind | None, declared: Mapping[str, list[Any]]) -> None:
        self._numbers: dict[str, int] = {}
        symbols = {str(s) for sizes in declared.values() for s in map(_expression, sizes) if s}
        for name, value in (bind or {}).items():
            if isinstance(value, Sequence) and not isinstance(value, str):
                self._bind_shape(name, value, declared)
            elif name not in symbols:
                known = f"it has {listed(sorted(symbols))}" if symbols else "all are numbers"
                raise UnknownDim(f"the model has no symbolic dimension {quoted(name)}; {known}")
            else:
                self._set(name, whole_number(value, f"the number bound to {quoted(name)}"))

    def _bind_shape(
        self, name: str, shape: Sequence[int], declared: Mapping[str, list[Any]]
    ) -> None:
        """Take over the numbers of an input's shape."""
        sizes = declared.get(name)
        if sizes is None:
            raise UnknownDim(f"the model has no input {quoted(name)}; it has {listed(declared)}")
        if len(sizes) != len(shape):
            raise DimConflict(f"input {quoted(name)} has {len(sizes)} dimensions, not {len(shape)}")
        for size, value in zip(sizes, shape, strict=True):
            number = whole_number(value, f"a dimension bound for input {quoted(name)}")
            symbol = _expression(size)
            if symbol is not None and symbol.isidentifier():
                self._set(symbol, number)
            elif symbol is None and self._number(name, size) != number:
                raise DimConflict(
                    f"a dimension of input {quoted(name)} is {size.get('as_int')}, and was bound "
                    f"to {number}"
                )

    def _set(self, symbol: str, number: int) -> None:
        """Note the number of a symbol, which can have one only."""
        if self._numbers.setdefault(symbol, number) != number:
            raise DimConflict(
                f"dimension {quoted(symbol)} was bound to {self._numbers[symbol]} and to {number}"
            )

    def shape(self, name: str, sizes: object) -> Shape:
        """
        Return sizes as numbers.

        Raises
        ------
        UnboundDim
            If a symbol has no number.
        """
        if not isinstance(sizes, list):
            raise NotAModel(f"tensor {quoted(name)} has no sizes")
        return tuple(self._number(name, size) for size in sizes)

    def _number(self, name: str, size: object) -> int:
        """Return one size as a number."""
        expression = _expression(size)
        if expression is None:
            number = size.get("as_int") if isinstance(size, dict) else None
            if not isinstance(number, int) or isinstance(number, bool):
                raise NotAModel(f"a dimension of tensor {quoted(name)} is no number")
        else:
            number = self._evaluate(name, expression)
        if number < 0:
            raise InvalidDim(f"tensor {quoted(name)} has the negative dimension {number}")
        return number

    def _evaluate(self, name: str, expression: str) -> int:
        """Evaluate an expression of symbols: sums, products, and quotients rounded down."""
        if len(expression) > _LONGEST:
            raise UnboundDim(f"a dimension of tensor {quoted(name)} is {quoted(expression)}")
        try:
            tree = ast.parse(expression, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise UnboundDim(
                f"a dimension of tensor {quoted(name)} is {quoted(expression)}, which is no number"
            ) from error
        return self._value(name, expression, tree.body)

    def _value(self, name: str, expression: str, node: ast.expr) -> int:
        """Return the value of a part of an expression; it is short, and so not nested deeply."""
        match node:
            case ast.Constant(value=int() as number) if not isinstance(number, bool):
                return number
            case ast.Name(id=symbol) if symbol in self._numbers:
                return self._numbers[symbol]
            case ast.Name(id=symbol):
                raise UnboundDim(
                    f"dimension {quoted(symbol)} of tensor {quoted(name)} has no number; "
                    f"pass bind={{{symbol!r}: …}}"
                )
            case ast.UnaryOp(op=ast.USub(), operand=part):
                return -self._value(name, expression, part)
            case ast.BinOp(left=left, op=operator, right=right):
                a, b = (self._value(name, expression, part) for part in (left, right))
                if isinstance(operator, ast.Add):
                    return a + b
                if isinstance(operator, ast.Sub):
                    return a - b
                if isinstance(operator, ast.Mult):
                    return a * b
                if isinstance(operator, ast.FloorDiv) and b:
                    return a // b
        raise UnboundDim(
            f"a dimension of tensor {quoted(name)} is {quoted(expression)}, which is not a sum, "
            "product or quotient of symbols"
        )


def _expression(size: object) -> str | None:
    """Return the expression that a size is; ``None`` if it is a number."""
    if isinstance(size, dict) and isinstance(size.get("as_expr"), dict):
        text = size["as_expr"].get("expr_str")
        if isinstance(text, str):
            return text
    return None
