"""Graphs and element types as callers give them: a graph or a file, a name or a type of NumPy."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from arenaplan.base.errors import InvalidOption, UnsupportedDtype

if TYPE_CHECKING:
    import numpy as np

    from arenaplan.graph.graph import Graph
    from arenaplan.graph.sizes import Source

DTypeName: TypeAlias = "str | np.dtype[Any] | type"
"""An element type: its name, or a type of NumPy."""

_LOADERS: list[Callable[[Source], Graph]] = []


def register_loader(load: Callable[[Source], Graph]) -> None:
    """Read model files with ``load``, which is given from above: this wing knows no formats."""
    _LOADERS[:] = [load]


def graph_of(graph: Graph | Source) -> Graph:
    """
    Return a graph that a caller gives, or that of the model file which it names.

    Raises
    ------
    InvalidOption
        If it is neither.
    PlannerError, OSError
        If the file cannot be read as a model.
    """
    from arenaplan.graph.graph import Graph

    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, (str, bytes, os.PathLike)):
        return _LOADERS[-1](graph)
    kind = type(graph).__name__
    raise InvalidOption(f"a graph or the path of a model file is needed, not {kind!r}")


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
