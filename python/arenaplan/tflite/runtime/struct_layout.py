"""
Sizes of C structures, for 32-bit and 64-bit pointers.

A layout is a text with a letter per field, such as ``"p 3i b"``: ``p`` is a pointer or ``size_t``,
``i`` 32 bits, ``h`` 16 bits, ``b`` 8 bits, ``d`` 64 bits aligned to 8 bytes. A number in front
repeats a field, brackets enclose a nested structure, and fields after ``?``, such as ``"?2i"``,
exist only if the runtime is compiled with compression.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

_TOKENS: Final = re.compile(r"\[|\]|(\??)(\d*)([pihbd])")
_WIDTHS: Final = {"i": 4, "h": 2, "b": 1, "d": 8}


class Struct(NamedTuple):
    """A structure's size and alignment, in bytes."""

    size: int
    alignment: int


@cache
def struct(layout: str, pointer: int = 64, *, compression: bool = False) -> Struct:
    """
    Return a structure's size by the rules of C.

    Parameters
    ----------
    layout : str
        The fields.
    pointer : {32, 64}
        Pointer size in bits.
    compression : bool, default False
        Whether fields after ``?`` exist.

    Examples
    --------
    >>> struct("p i b", 64), struct("p i b", 32)
    (Struct(size=16, alignment=8), Struct(size=12, alignment=4))
    """
    open_structs = [Struct(0, 1)]
    for token in _TOKENS.finditer(layout):
        text = token.group()
        if token[1] and not compression:
            continue
        if text == "[":
            open_structs.append(Struct(0, 1))
        else:
            if text == "]":
                width, alignment = _closed(open_structs.pop())
                count = 1
            else:
                count = int(token[2] or 1)
                width = alignment = pointer // 8 if token[3] == "p" else _WIDTHS[token[3]]
            size, strictest = open_structs[-1]
            size += -size % alignment + width * count
            open_structs[-1] = Struct(size, max(strictest, alignment))
    return _closed(open_structs[0])


def _closed(open_struct: Struct) -> Struct:
    """Return a structure padded to a multiple of its alignment."""
    size, alignment = open_struct
    return Struct(size + -size % alignment, alignment)
