"""Sizes as numbers, symbols, or small symbolic expressions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from arenaplan.base.errors import UnboundDim, UnknownDim, fault
from arenaplan.base.formulas import parsed
from arenaplan.base.quoting import listed, quoted
from arenaplan.formats.pt2.pt2_program import Size
from arenaplan.graph.ops import Shape
from arenaplan.graph.sizes import Bind, whole_number

_LONGEST: Final = 2000
"""Longest expression, in characters, that is evaluated."""

_LARGEST: Final = 1 << 63
"""Bound for sizes and intermediate results."""

_FUNCTIONS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "Add": lambda a, b: a + b,
    "CeilDiv": lambda a, b: -(-a // b),
    "CleanDiv": lambda a, b: a // b,
    "FloorDiv": lambda a, b: a // b,
    "Max": max,
    "Min": min,
    "Mod": lambda a, b: a % b,
    "Mul": lambda a, b: a * b,
    "Pow": lambda a, b: a**b,
    "PythonMod": lambda a, b: a % b,
}
"""Results for two numbers, by class in SymPy or PyTorch."""

_DIVISIONS: Final = frozenset({"CeilDiv", "CleanDiv", "FloorDiv", "Mod", "PythonMod"})

_OPERATORS: Final[Mapping[type[ast.operator], str]] = {
    ast.Add: "Add",
    ast.FloorDiv: "FloorDiv",
    ast.Mod: "Mod",
    ast.Mult: "Mul",
}


class SymbolDims:
    """
    Numbers for a model's symbols.

    Expressions are PyTorch's, ``Add(Symbol('s0', integer=True), Integer(1))``, or plain, ``s0 +
    1``.

    Parameters
    ----------
    bind : mapping or None
        Numbers from the caller: by symbol, and whole shapes by input.
    declared : mapping
        Input sizes in the program, by name.
    """

    def __init__(self, bind: Bind | None, declared: Mapping[str, Sequence[Size]]) -> None:
        self._numbers: dict[str, int] = {}
        symbols = sorted(
            {
                symbol
                for sizes in declared.values()
                for size in sizes
                if isinstance(size, str)
                for symbol in _symbols(size)
            }
        )
        for name, value in (bind or {}).items():
            if isinstance(value, Sequence) and not isinstance(value, str):
                self._bind_shape(name, value, declared)
            elif name not in symbols:
                known = f"it has {listed(symbols)}" if symbols else "all are numbers"
                raise UnknownDim(
                    f"the model has no symbolic dimension {quoted(name)}; {known}", names=[name]
                )
            else:
                self._set(name, whole_number(value, f"the number bound to {quoted(name)}"))

    def _bind_shape(
        self, name: str, shape: Sequence[int], declared: Mapping[str, Sequence[Size]]
    ) -> None:
        """Record the numbers in an input's shape."""
        sizes = declared.get(name)
        if sizes is None:
            raise UnknownDim(
                f"the model has no input {quoted(name)}; it has {listed(declared)}", names=[name]
            )
        if len(sizes) != len(shape):
            raise fault(
                "DimConflict",
                f"input {quoted(name)} has {len(sizes)} dimensions, not {len(shape)}",
            )
        for size, value in zip(sizes, shape, strict=True):
            number = whole_number(value, f"a dimension bound for input {quoted(name)}")
            tree = parsed(size, _LONGEST) if isinstance(size, str) else None
            symbol = _symbol(tree)
            if symbol is not None:
                self._set(symbol, number)
            elif isinstance(size, int) and size != number:
                raise fault(
                    "DimConflict",
                    f"a dimension of input {quoted(name)} is {size}, and was bound to {number}",
                )

    def _set(self, symbol: str, number: int) -> None:
        """Record a symbol's number; a second, different number is an error."""
        if self._numbers.setdefault(symbol, number) != number:
            raise fault(
                "DimConflict",
                f"dimension {quoted(symbol)} was bound to {self._numbers[symbol]} and to {number}",
            )

    def shape(self, name: str, sizes: Sequence[Size]) -> Shape:
        """
        Return sizes as numbers.

        Raises
        ------
        UnboundDim
            If a symbol has no number, or a size is no number for any symbols.
        """
        return tuple(self._number(name, size) for size in sizes)

    def _number(self, name: str, size: Size) -> int:
        """Return a size as a number."""
        if isinstance(size, int):
            number = size
        else:
            tree = parsed(size, _LONGEST)
            if tree is None:
                raise UnboundDim(f"a dimension of tensor {quoted(name)} is {quoted(size)}")
            number = self._value(name, size, tree)
        if number < 0:
            raise fault("InvalidDim", f"tensor {quoted(name)} has the negative dimension {number}")
        return number

    def _value(self, name: str, size: str, node: ast.expr) -> int:
        """Return a subexpression's value; expressions are short, so nesting is not deep."""
        symbol = _symbol(node)
        if symbol is not None:
            if symbol in self._numbers:
                return self._numbers[symbol]
            raise UnboundDim(
                f"dimension {quoted(symbol)} of tensor {quoted(name)} has no number; "
                f"pass bind={{{symbol!r}: …}}",
                dimension=symbol,
            )
        number: int | None = None
        match node:
            case ast.Constant(value=int() as constant) if not isinstance(constant, bool):
                number = constant
            case ast.UnaryOp(op=ast.USub(), operand=part):
                number = -self._value(name, size, part)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                number = self._value(name, size, left) - self._value(name, size, right)
            case ast.BinOp(left=left, op=operator, right=right):
                number = self._apply(_OPERATORS.get(type(operator)), name, size, [left, right])
            case ast.Call(func=ast.Name(id="Integer"), args=[part]):
                number = self._value(name, size, part)
            case ast.Call(func=ast.Name(id=function), args=parts):
                number = self._apply(function, name, size, parts)
        if number is None or abs(number) > _LARGEST:
            raise UnboundDim(
                f"a dimension of tensor {quoted(name)} is {quoted(size)}, which is not a size made "
                "of symbols by adding, multiplying, dividing and comparing"
            )
        return number

    def _apply(
        self, function: str | None, name: str, size: str, parts: Sequence[ast.expr]
    ) -> int | None:
        """Return a function's result for the arguments, pair by pair; ``None`` if unknown."""
        apply = _FUNCTIONS.get(function or "")
        if apply is None or not parts:
            return None
        number, *others = (self._value(name, size, part) for part in parts)
        for other in others:
            if function in _DIVISIONS and not other:
                return None
            if function == "Pow" and not 0 <= other < 64:
                return None
            number = apply(number, other)
        return number


def _symbol(node: ast.expr | None) -> str | None:
    """Return a subexpression's symbol, if a symbol."""
    match node:
        case ast.Name(id=symbol):
            return symbol
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str() as symbol)]):
            return symbol
    return None


def _symbols(size: str) -> list[str]:
    """Return an expression's symbols."""
    tree = parsed(size, _LONGEST)
    if tree is None:
        return []
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = (
        _symbol(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.expr) and id(node) not in functions
    )
    return [symbol for symbol in found if symbol is not None]
