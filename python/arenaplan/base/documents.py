"""Parts of JSON documents."""

from __future__ import annotations

from typing import Any


def fields_of(source: object, names: str) -> dict[str, Any]:
    """
    Return some attributes of an object by name, for a document.

    Examples
    --------
    >>> fields_of(1 + 2j, "real imag")
    {'real': 1.0, 'imag': 2.0}
    """
    return {name: getattr(source, name) for name in names.split()}
