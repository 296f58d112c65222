"""C text for numbers, arrays and structures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

Field: TypeAlias = "int | float | str | Sequence[int] | Mapping[str, Field]"
"""A structure field's initial value; text is an expression."""

_PER_LINE, _SHORT_PER_LINE = 6, 12
"""Numbers of 32 or 64 bits in a line, and of 8 or 16 bits."""
_BLOCK: Final = 96 << 10
"""Numbers that become text at once; lines do not cross blocks."""
_TYPES: Final = {
    "bool": "uint8_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "float32": "float",
}
_ARENA_TYPES: Final = {
    "int16": "int16_a",
    "uint16": "uint16_a",
    "int32": "int32_a",
    "int64": "int64_a",
    "float32": "real_a",
}


def c_type(dtype: np.dtype[Any] | str) -> str | None:
    """Return the type for constants and the caller's arrays; ``None`` if C has no such type."""
    return _TYPES.get(str(dtype))


def arena_type(dtype: np.dtype[Any] | str) -> str | None:
    """Return the type for access to arena bytes."""
    return _ARENA_TYPES.get(str(dtype)) or c_type(dtype)


def real(number: float) -> str:
    """Return a ``float32`` number, exactly."""
    value = np.float32(number)
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = f"{float(value):.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def integer(number: int) -> str:
    """Return a whole number; the smallest number of a type has no literal."""
    if number == -(1 << 31):
        return "INT32_MIN"
    if number == -(1 << 63):
        return "INT64_MIN"
    return str(number) if abs(number) < 1 << 31 else f"INT64_C({number})"


def array(c_type_: str, name: str, data: np.ndarray) -> str:
    """Return a constant array's definition."""
    flat = data.reshape(-1)
    flat = flat.view(np.uint8) if flat.dtype.kind == "b" else flat
    parts = [_numbers(flat[at : at + _BLOCK]) for at in range(0, flat.size, _BLOCK)]
    body = "".join(parts) or "  0\n"
    return f"static const {c_type_} {name}[{max(flat.size, 1)}] = {{\n{body}}};"


def _numbers(flat: np.ndarray) -> str:
    """Return lines with numbers."""
    literal: Callable[[Any], str] = real if flat.dtype.kind == "f" else integer
    if flat.dtype.kind == "f":
        form = "%#.9gf" if np.isfinite(flat).all() else ""
    else:
        form = "%d" if flat.min() > -(1 << 31) and flat.max() < 1 << 31 else ""
    numbers = flat.tolist() if form else map(literal, flat.tolist())
    count = _PER_LINE if flat.dtype.itemsize > 2 else _SHORT_PER_LINE
    whole, rest = divmod(flat.size, count)
    line = f"  {', '.join([form or '%s'] * count)},\n"
    last = f"  {', '.join([form or '%s'] * rest)},\n" if rest else ""
    return (line * whole + last) % tuple(numbers)


def initializer(fields: Mapping[str, Field], indent: str = "  ") -> Iterator[str]:
    """Yield the lines for a structure's fields."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield f"{indent}.{name} = {{"
            yield from initializer(value, f"{indent}  ")
            yield f"{indent}}},"
        else:
            yield f"{indent}.{name} = {_value(value)},"


def _value(value: Any) -> str:
    """Return a field's initial value."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return real(value)
    if isinstance(value, int):
        return integer(value)
    return f"{{{', '.join(integer(number) for number in value)}}}"


def comment(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines as a comment, with no text that could end the comment."""
    plain = [_plain(line) for line in lines]
    for at, line in enumerate(plain):
        begin, end = "/* " if at == 0 else "   ", " */" if at == len(plain) - 1 else ""
        yield f"{begin}{line}{end}".rstrip()


def _plain(text: str) -> str:
    """Return text that neither ends nor begins a comment, nor continues a line."""
    plain = "".join(c if " " <= c <= "~" and c != "\\" else "_" for c in text)
    return plain.replace("*/", "*_").replace("/*", "_*").replace("??", "?_")


def remark(text: str) -> str:
    """Return text as a single-line comment."""
    return next(comment([text[:160]]))
