"""
Importers: model files of several formats, read into a :class:`~arenaplan.graph.Graph`.

An importer translates operators into what they do to memory
(:class:`~arenaplan.graph.Effects`). The package that parses a format is imported
when the first file of that format is read.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from arenaplan.errors import NotAModel
from arenaplan.importers.common import Bind

if TYPE_CHECKING:
    from arenaplan.graph import Graph

__all__ = ["load", "open_model"]


class _Importer(NamedTuple):
    """Where the function that opens files of a format is."""

    module: str
    function: str


_IMPORTERS: Mapping[str, _Importer] = {
    ".onnx": _Importer("arenaplan.importers.onnx", "open_onnx"),
    ".pt2": _Importer("arenaplan.importers.pt2", "open_pt2"),
    ".tflite": _Importer("arenaplan.importers.tflite", "open_tflite"),
}


def load(source: str | os.PathLike[str], *, bind: Bind | None = None) -> Graph:
    """
    Read a model file.

    Parameters
    ----------
    source : path
        The file; its suffix says which format it has (``.onnx``, ``.pt2``, ``.tflite``).
    bind : mapping, optional
        Numbers for symbolic dimensions by name, ``{"batch": 1}``, and whole shapes for
        inputs by name, ``{"image": (1, 3, 224, 224)}``.

    Returns
    -------
    Graph
        The model, with the effects of its operators on memory. Weights are loaded
        when an executor asks for them.

    Raises
    ------
    NotAModel
        If the suffix or the content is not that of a format we read.
    PlannerError
        If the model is malformed or cannot be planned; the message names the place.
    OSError
        If the file cannot be read.
    """
    return open_model(source)(bind)


def open_model(source: str | os.PathLike[str]) -> Callable[[Bind | None], Graph]:
    """
    Read a model file once, to make graphs of it for several shapes.

    Parameters
    ----------
    source : path
        The file, as for :func:`load`.

    Returns
    -------
    callable
        A function that takes what :func:`load` takes as ``bind``, and returns the graph.

    Raises
    ------
    PlannerError, OSError
        As :func:`load`, and so does the function.
    """
    suffix = Path(source).suffix.lower()
    importer = _IMPORTERS.get(suffix)
    if importer is None:
        known = ", ".join(sorted(_IMPORTERS))
        raise NotAModel(f"{str(source)!r} has the suffix {suffix!r}; models end in {known}")
    opener = getattr(importlib.import_module(importer.module), importer.function)
    graph_with: Callable[[Bind | None], Graph] = opener(source)
    return graph_with
