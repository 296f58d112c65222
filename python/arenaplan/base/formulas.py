"""Formulas: sizes that follow from others, such as ``past + 1``."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from arenaplan.base.errors import InvalidOption
from arenaplan.base.quoting import quoted

_Size = TypeVar("_Size")

_MOST: Final = 2**63 - 1
_LONGEST: Final = 2000
"""Longest formula, in characters, that is evaluated."""
_FUNCTIONS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "Add": operator.add,
    "CeilDiv": lambda a, b: -(-a // b),
    "CleanDiv": operator.floordiv,
    "FloorDiv": operator.floordiv,
    "Max": max,
    "Min": min,
    "Mod": operator.mod,
    "Mul": operator.mul,
    "Pow": lambda a, b: a**b if 0 <= b < 64 else _MOST + 1,
    "PythonMod": operator.mod,
}
"""Results for two numbers, by class in SymPy or PyTorch."""
_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _parsed(text: str) -> ast.expr | None:
    """Parse an expression; ``None`` if the text is not an expression or too long."""
    if len(text) > _LONGEST:
        return None
    try:
        return ast.parse(text, mode="eval").body
    except (MemoryError, RecursionError, SyntaxError, ValueError):
        return None


def formula_value(text: str, numbers: Mapping[str, object]) -> int | None:
    """
    Evaluate sums, products and quotients over names and numbers.

    ``None`` if the text is not such a formula, a name has no number, or the result is negative.

    Examples
    --------
    >>> from arenaplan.base.formulas import formula_value
    >>> formula_value("past + 2 * rows", {"past": 7, "rows": 1})
    9
    """
    found = evaluated(text, numbers)
    return found if found is not None and found >= 0 else None


def evaluated(text: str, numbers: Mapping[str, object]) -> int | None:
    """
    Evaluate a formula, plain or as PyTorch writes it; ``None`` without a value.

    Examples
    --------
    >>> from arenaplan.base.formulas import evaluated
    >>> evaluated("Add(Symbol('s0', integer=True), Integer(-3))", {"s0": 1})
    -2
    """
    tree = _parsed(text.strip())
    try:
        return None if tree is None else _value(tree, numbers)
    except (ArithmeticError, MemoryError, RecursionError, ValueError):
        return None


def symbol_of(text: str) -> str | None:
    """Return the name that a formula is, if it is only a name."""
    return _symbol(_parsed(text))


def symbols_of(text: str) -> list[str]:
    """Return the names in a formula."""
    tree = _parsed(text)
    parts = [] if tree is None else list(ast.walk(tree))
    functions = {id(part.func) for part in parts if isinstance(part, ast.Call)}
    found = (_symbol(part) for part in parts if id(part) not in functions)
    return [symbol for symbol in found if symbol is not None]


def _symbol(part: ast.AST | None) -> str | None:
    match part:
        case ast.Name(id=symbol):
            return symbol
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str() as symbol)]):
            return symbol
    return None


def is_formula(text: str) -> bool:
    """Return whether a text may be a formula over names and numbers."""
    tree = _parsed(text[:_LONGEST])
    parts = [] if tree is None else list(ast.walk(tree))
    allowed = (ast.BinOp, ast.Constant, ast.Name, ast.Load, *_OPERATIONS)
    has_name = any(isinstance(part, ast.Name) for part in parts)
    return has_name and all(isinstance(part, allowed) for part in parts)


def _value(part: ast.expr, numbers: Mapping[str, object]) -> int | None:
    """Evaluate a part of a formula; formulas are short, so nesting is not deep."""
    symbol = _symbol(part)
    if symbol is not None:
        number = numbers.get(symbol)
        return number if isinstance(number, int) else None
    operate: Callable[[int, int], int] | None = None
    parts: Sequence[ast.expr] = ()
    match part:
        case ast.Constant(value=int() as constant) if type(constant) is int:
            return constant
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            operate, parts = operator.sub, [ast.Constant(0), operand]
        case ast.BinOp(left=left, op=kind, right=right):
            operate, parts = _OPERATIONS.get(type(kind)), [left, right]
        case ast.Call(func=ast.Name(id="Integer"), args=[operand]):
            return _value(operand, numbers)
        case ast.Call(func=ast.Name(id=name), args=operands):
            operate, parts = _FUNCTIONS.get(name), operands
    if operate is None or not parts:
        return None
    total: int | None = None
    for each in parts:
        number = _value(each, numbers)
        if number is None:
            return None
        total = number if total is None else operate(total, number)
        if abs(total) > _MOST:
            return None
    return total


def solved(bind: Mapping[str, _Size | str]) -> dict[str, _Size | int]:
    """
    Return sizes with numbers for equations, which may need each other.

    Raises
    ------
    InvalidOption
        If an equation has no number.

    Examples
    --------
    >>> from arenaplan.base.formulas import solved
    >>> solved({"total": "past + 1", "past": 7})
    {'past': 7, 'total': 8}
    """
    known: dict[str, _Size | int] = {n: v for n, v in bind.items() if not isinstance(v, str)}
    open_ = {name: text for name, text in bind.items() if isinstance(text, str)}
    while open_:
        found = {name: formula_value(text, known) for name, text in open_.items()}
        made = {name: number for name, number in found.items() if number is not None}
        if not made:
            name, text = next(iter(open_.items()))
            raise InvalidOption(
                f"option bind: {quoted(name)} is {quoted(text)}, which is not a sum, difference, "
                "product or quotient (//) of whole numbers and bound names that is 0 or more"
            )
        known.update(made)
        for name in made:
            del open_[name]
    return known
