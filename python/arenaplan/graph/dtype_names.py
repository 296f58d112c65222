"""Element types as callers give them: a name, or a type of NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from arenaplan.base.errors import UnsupportedDtype

if TYPE_CHECKING:
    import numpy as np

DTypeName: TypeAlias = "str | np.dtype[Any] | type"
"""An element type: its name, or a type of NumPy."""


def dtype_name(dtype: DTypeName, name: str) -> str:
    """
    Return the name of an element type, which may be given as a type of NumPy.

    Raises
    ------
    UnsupportedDtype
        If it is no element type.

    Examples
    --------
    >>> import numpy as np
    >>> dtype_name("int4", "x"), dtype_name(np.float32, "x"), dtype_name(np.dtype("<i8"), "x")
    ('int4', 'float32', 'int64')
    """
    if type(dtype) is str:
        return dtype
    import numpy as np  # Not for the help of commands, which imports this module.

    try:
        if dtype is None:
            raise TypeError  # NumPy takes it for float64.
        return np.dtype(dtype).name
    except TypeError:
        raise UnsupportedDtype(
            f"element type {dtype!r} of value {name!r} is none that NumPy has"
        ) from None
