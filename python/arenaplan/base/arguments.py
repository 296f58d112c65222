"""Wrong arguments: a failure that an argument of a wrong type caused becomes a typed error."""

from __future__ import annotations

import collections.abc
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from numbers import Real
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

from arenaplan.base.errors import InvalidOption, PlannerError

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN: Final = 60
"""Most characters of an argument in a message."""
_ELEMENTS: Final = 1000
"""Most elements of an argument that are looked at."""
_WORD: Final = 1 << 31
"""Numbers from here on may be too large for the core."""


def typed(function: F) -> F:
    """
    Return the function with typed errors for arguments that its annotations do not allow.

    Arguments are looked at only after a failure, so that other calls take no longer.

    Examples
    --------
    >>> @typed
    ... def halves(numbers: collections.abc.Sequence[int]) -> list[int]:
    ...     return [number // 2 for number in numbers]
    >>> halves([4, 8])
    [2, 4]
    >>> try:
    ...     halves(5)
    ... except PlannerError as error:
    ...     print(error)
    argument numbers: 5 is of type 'int'; collections.abc.Sequence[int] is needed
    """

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except (PlannerError, OSError, ImportError):
            raise
        except Exception as error:
            refusal = _refusal(function, arguments, named, isinstance(error, OverflowError))
            if refusal is None:
                raise
            raise refusal from None

    return call  # type: ignore[return-value]


def _refusal(
    function: Callable[..., Any], arguments: Any, named: Mapping[str, Any], overflows: bool
) -> InvalidOption | None:
    """Return the error for the first argument that is not allowed, if any."""
    try:
        given = inspect.signature(function).bind(*arguments, **named).arguments
        hints = typing.get_type_hints(function, localns=_names())
    except (TypeError, NameError):  # A call that Python itself refuses.
        return None
    for name, value in given.items():
        reason = None
        if name in hints and not _fits(value, hints[name]):
            needed = function.__annotations__[name]
            reason = f"is of type {type(value).__name__!r}; {needed} is needed"
        elif overflows and any(not 0 <= number < _WORD for number in _numbers(value)):
            reason = "is negative or too large"
        if reason is not None:
            text = repr(value)
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            return InvalidOption(f"argument {name}: {shown} {reason}")
    return None


def _names() -> dict[str, Any]:
    """Return what annotations may name, imports for types alone included."""
    package = __name__.partition(".")[0]
    own = [module for name, module in sys.modules.items() if name.partition(".")[0] == package]
    names: dict[str, Any] = {}
    for module in (*own, collections.abc, typing):
        names.update(vars(module))
    return {name: _alias(value) for name, value in names.items()}


def _alias(value: Any) -> Any:
    """Return what a name stands for in an annotation; aliases can be texts."""
    try:
        return typing.ForwardRef(value) if isinstance(value, str) and value else value
    except SyntaxError:
        return value


def _fits(value: Any, hint: Any) -> bool:
    """Whether a type allows a value; a type that says nothing about it does."""
    origin, parts = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is int:
        return hasattr(type(value), "__index__")
    abstract = {float: Real, None: NoneType}.get(origin, origin)
    if not isinstance(abstract, type) or hasattr(value, "__array__"):
        return True
    try:
        if not isinstance(value, abstract):
            return False
    except TypeError:  # A protocol.
        return True
    return all(_fits(element, part) for element, part in _elements(value, parts))


def _elements(value: Any, parts: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
    """Yield elements of a container, each with the type that it should have."""
    if isinstance(value, Mapping) and len(parts) == 2:
        for key, _ in zip(value, range(_ELEMENTS), strict=False):
            yield key, parts[0]
            yield value[key], parts[1]
    elif isinstance(value, collections.abc.Collection) and parts:
        several = len(parts) == 1 or parts[-1] is Ellipsis
        kinds = [parts[0]] * _ELEMENTS if several else parts
        yield from zip(value, kinds, strict=False)


def _numbers(value: Any) -> Iterator[int]:
    """Yield whole numbers in an argument."""
    if isinstance(value, int):
        yield value
    elif isinstance(value, (list, tuple)):
        for element in value[:_ELEMENTS]:
            yield from _numbers(element)
