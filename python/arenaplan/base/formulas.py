"""Formulas: sizes that follow from others, such as ``past + 1``."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from arenaplan.base.errors import InvalidOption
from arenaplan.base.quoting import quoted

_Size = TypeVar("_Size")

_MOST: Final = 2**63 - 1
_LONGEST: Final = 256
_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def parsed(text: str, longest: int) -> ast.expr | None:
    """Parse an expression; ``None`` if the text is not an expression or too long."""
    if len(text) > longest:
        return None
    try:
        return ast.parse(text, mode="eval").body
    except (MemoryError, RecursionError, SyntaxError, ValueError):
        return None


def formula_value(text: str, numbers: Mapping[str, object]) -> int | None:
    """
    Evaluate sums, products and floor quotients over names and numbers.

    ``None`` if the text is not such a formula, a name has no number, or the result is negative.

    Examples
    --------
    >>> from arenaplan.base.formulas import formula_value
    >>> formula_value("past + 2 * rows", {"past": 7, "rows": 1})
    9
    """
    tree = parsed(text.strip(), _LONGEST)
    try:
        found = None if tree is None else _value(tree, numbers)
    except (ArithmeticError, MemoryError, RecursionError, ValueError):
        return None
    return found if found is not None and 0 <= found <= _MOST else None


def is_formula(text: str) -> bool:
    """Return whether a text may be a formula over names and numbers."""
    tree = parsed(text[:_LONGEST], _LONGEST)
    parts = [] if tree is None else list(ast.walk(tree))
    allowed = (ast.BinOp, ast.Constant, ast.Name, ast.Load, *_OPERATIONS)
    has_name = any(isinstance(part, ast.Name) for part in parts)
    return has_name and all(isinstance(part, allowed) for part in parts)


def _value(part: ast.expr, numbers: Mapping[str, object]) -> int | None:
    """Evaluate a part of a formula."""
    if isinstance(part, ast.Constant):
        return part.value if type(part.value) is int else None
    if isinstance(part, ast.Name):
        number = numbers.get(part.id)
        return number if isinstance(number, int) else None
    if not isinstance(part, ast.BinOp):
        return None
    operate = _OPERATIONS.get(type(part.op))
    first, second = _value(part.left, numbers), _value(part.right, numbers)
    return None if operate is None or first is None or second is None else operate(first, second)


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
