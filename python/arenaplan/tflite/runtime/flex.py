"""Number maps in FlexBuffers, the option format of custom operators."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

_MAP: Final = 9
_INT, _UINT, _FLOAT, _BOOL = 1, 2, 3, 26
_WIDTHS: Final = {1: "b", 2: "h", 4: "i", 8: "q"}
_FLOATS: Final = {2: "e", 4: "f", 8: "d"}


def numbers(content: bytes) -> Mapping[str, float]:
    """
    Return the numbers and flags in a map; empty if the bytes are no map.

    Examples
    --------
    >>> numbers(bytes.fromhex("6e00 0103 010101 0304 022401"))
    {'n': 3}
    >>> numbers(b"")
    {}
    """
    try:
        return _numbers(content)
    except (struct.error, IndexError, ValueError, KeyError):
        return {}


def _numbers(content: bytes) -> dict[str, float]:
    """Read the root, whose width and type are at the end."""
    width, kind = content[-1], content[-2] >> 2
    if kind != _MAP:
        return {}
    at = len(content) - 2 - width
    values = at - _read(content, at, width, "u")
    width = 1 << (content[-2] & 3)
    count = _read(content, values - width, width, "u")
    keys_at = values - 3 * width
    keys = keys_at - _read(content, keys_at, width, "u")
    key_width = _read(content, values - 2 * width, width, "u")
    found: dict[str, float] = {}
    for index in range(count):
        place = keys + index * key_width
        name = place - _read(content, place, key_width, "u")
        end = content.index(b"\0", name) if name >= 0 else -1
        packed = content[values + count * width + index] >> 2
        code = {_INT: "i", _UINT: "u", _BOOL: "u", _FLOAT: "f"}.get(packed)
        if end >= name and code is not None:
            text = content[name:end].decode("utf-8", "replace")
            found[text] = _read(content, values + index * width, width, code)
    return found


def _read(content: bytes, at: int, width: int, code: str) -> int:
    """Read a number with ``width`` bytes."""
    if at < 0:
        raise ValueError(at)
    letter = _FLOATS[width] if code == "f" else _WIDTHS[width]
    if code == "u":
        letter = letter.upper()
    (number,) = struct.unpack_from(f"<{letter}", content, at)
    return int(number) if code != "f" else number
