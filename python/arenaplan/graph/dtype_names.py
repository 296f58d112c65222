"""Element types from callers: a name, or a NumPy type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from arenaplan.base.errors import UnsupportedDtype

if TYPE_CHECKING:
    import numpy as np

DTypeName: TypeAlias = "str | np.dtype[Any] | type"
"""An element type: a name, or a NumPy type."""


def dtype_name(dtype: DTypeName, name: str) -> str:
    """
    Return an element type's name, given as a name or a NumPy type.

    Raises
    ------
    UnsupportedDtype
        If ``dtype`` is not an element type.

    Examples
    --------
    >>> import numpy as np
    >>> dtype_name("int4", "x"), dtype_name(np.float32, "x"), dtype_name(np.dtype("<i8"), "x")
    ('int4', 'float32', 'int64')
    """
    if type(dtype) is str:
        return dtype
    import numpy as np  # Not needed for the help of commands, which import this module.

    try:
        if dtype is None:
            raise TypeError  # NumPy would read None as float64.
        return np.dtype(dtype).name
    except TypeError:
        raise UnsupportedDtype(
            f"value {name!r} has the element type {dtype!r}, which NumPy does not have"
        ) from None
