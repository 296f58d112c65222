"""
Importers: model files of several formats, read into a :class:`~arenaplan.graph.Graph`.

An importer translates operators into their effects on memory
(:class:`~arenaplan.graph.Effects`). The package that parses a format is imported
when the first file of that format is read.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from arenaplan.base.close import did_you_mean
from arenaplan.base.errors import InvalidOption, ModelError, NotAModel, UnsupportedModel
from arenaplan.base.formulas import solved
from arenaplan.base.limits import Limits, current, reading
from arenaplan.base.quoting import listed, quoted
from arenaplan.formats.partial import PartialWith
from arenaplan.graph.sizes import Bind, OpenBind, Source

if TYPE_CHECKING:
    from arenaplan.graph import Graph

__all__ = ["load", "open_model", "open_partial", "suffix_of"]


class _Importer(NamedTuple):
    """The function that opens files of a format."""

    module: str
    function: str


_IMPORTERS: Mapping[str, _Importer] = {
    ".json": _Importer("arenaplan.formats.json_document", "open_document"),
    ".onnx": _Importer("arenaplan.formats.onnx", "open_onnx"),
    ".pt2": _Importer("arenaplan.formats.pt2", "open_pt2"),
    ".tflite": _Importer("arenaplan.tflite.files", "open_tflite"),
}


SUFFIXES = tuple(suffix for suffix in _IMPORTERS if suffix != ".json")
"""Those of files that are models and nothing else."""

_ONNX_TAGS = frozenset(b"\x08\x12\x1a\x22\x28\x32\x3a\x42\x72\xa2\xca")
"""First bytes that an ONNX model can have: the tags of its fields."""


def load(
    source: Source,
    *,
    bind: OpenBind | None = None,
    signature: str | None = None,
    max_nodes: int | None = None,
    max_bytes: int | None = None,
    parameters: str | Iterable[str] = (),
) -> Graph:
    """
    Read a model.

    Parameters
    ----------
    source : path or bytes
        The file, whose suffix says which format it has (``.onnx``, ``.pt2``, ``.tflite``, or
        ``.json`` for a graph, a model with its plans, or a graph of NNVM's or TVM's runtime); or
        the content of one, whose first bytes do.
    bind : mapping, optional
        Numbers for symbolic dimensions by name, ``{"batch": 1}``, or equations of other names,
        ``{"total": "past + 1"}``; whole shapes for inputs by name, ``{"image": (1, 3, 224, 224)}``.
    signature : str, optional
        The one of several signatures of a ``.tflite`` file to read, by default that of the first
        subgraph. ``covers`` of the graph names all others.
    max_nodes : int, optional
        Most nodes of the graph, for models that are not trusted.
    max_bytes : int, optional
        Most bytes of the file. Weights in files of their own do not count.
    parameters : str or iterable of str, optional
        Patterns such as ``"fc*"`` for the names of constants with real numbers that become
        parameters (:meth:`Graph.to_parameter`), so that an ONNX model can be trained on.

    Returns
    -------
    Graph
        The model, with the effects of its operators on memory. Weights are loaded
        when an executor asks for them.

    Raises
    ------
    InvalidOption
        If a pattern matches no such constant, or the format is another than ONNX.
    NotAModel
        If the suffix or the content is not that of a format we read.
    ModelError
        If the model has more nodes or bytes than the limits permit.
    PlannerError
        If the model is malformed or cannot be planned; the message names the place.
    OSError
        If the file cannot be read.
    """
    limits = None if max_nodes is max_bytes is None else Limits(max_nodes, max_bytes)
    is_one = isinstance(parameters, str) or not isinstance(parameters, Iterable)
    patterns: tuple[Any, ...] = (parameters,) if is_one else tuple(parameters)
    if not all(isinstance(each, str) for each in patterns):
        raise InvalidOption(f"option parameters: {parameters!r} is no pattern, and not several")
    if patterns and suffix_of(source) != ".onnx":
        raise InvalidOption(
            "option parameters: gradients are those of operators of ONNX, and the model is in a "
            f"{suffix_of(source)} file"
        )
    graph = open_model(source, limits, signature)(bind)
    if patterns:
        _make_parameters(graph, patterns)
    return graph


def _make_parameters(graph: Graph, patterns: Sequence[str]) -> None:
    """Make constants whose names match one of some patterns parameters."""
    constants = {v.name: v for v in graph.values if v.kind == "constant" and v.dtype in _REAL}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in constants):
            near = did_you_mean(pattern, constants) or f"; there are {listed(constants) or 'none'}"
            raise InvalidOption(
                f"option parameters: {quoted(pattern)} matches no constant with real numbers{near}"
            )
    for name, value in constants.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            graph.to_parameter(value.index)


_REAL: Final = frozenset(["float16", "float32", "float64"])
"""Element types of parameters."""


def open_model(
    source: Source, limits: Limits | None = None, signature: str | None = None
) -> Callable[[OpenBind | None], Graph]:
    """
    Read a model once, to make graphs of it for several shapes.

    Parameters
    ----------
    source : path or bytes
        The model, as for :func:`load`.
    limits : Limits, optional
        The most that the file and each graph may have; by default what the block around the
        caller applies.
    signature : str, optional
        The signature to read, as for :func:`load`.

    Returns
    -------
    callable
        A function from the argument ``bind`` of :func:`load` to the graph.

    Raises
    ------
    PlannerError, OSError
        As :func:`load`, and so does the function.
    """
    suffix, limits = suffix_of(source), limits or current()
    if signature is not None and suffix != ".tflite":
        raise InvalidOption(f"option signature: models in {suffix} files have no signatures")
    importer, given = _IMPORTERS[suffix], () if signature is None else (signature,)
    limits.admit(source)
    with _ctrl_c_held_back():
        opener = getattr(importlib.import_module(importer.module), importer.function)
    try:
        with reading(limits):
            graph_with: Callable[[Bind | None], Graph] = opener(source, *given)
    except ModelError as error:
        found = _other_content(source)
        if found is None:
            raise
        name = "the data" if isinstance(source, bytes) else repr(str(source))
        raise NotAModel(f"{name} is {found}") from error

    def limited(bind: OpenBind | None) -> Graph:
        if bind is not None and not isinstance(bind, Mapping):
            raise InvalidOption(f"option bind: {bind!r} has no numbers by name")
        with reading(limits), _without_collection():
            return graph_with(None if bind is None else solved(bind))

    return limited


_OTHERS = {
    b"version https://git-lfs": "a pointer of Git LFS and not the file: 'git lfs pull' fetches it",
    b"<!doctype": "a page in HTML, such as a failed download leaves",
    b"<html": "a page in HTML, such as a failed download leaves",
    b"\x1f\x8b": "compressed with gzip: decompress it first",
}
"""What files that are no models often are, by their first bytes."""


def _other_content(source: Source) -> str | None:
    """Return what a file is that could not be read as a model, if that is known."""
    if isinstance(source, bytes):
        head = source[:64]
    elif not os.path.isfile(source):  # A pipe would be waited for.
        return None
    else:
        with open(source, "rb") as file:
            head = file.read(64)
    head = head.lstrip().lower()
    if not head:
        return "empty"
    return next((text for start, text in _OTHERS.items() if head.startswith(start)), None)


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """
    Raise ``KeyboardInterrupt`` when the block ends, and not in it.

    Extensions such as that of onnx end the process if they are interrupted while they are imported.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt


@contextmanager
def _without_collection() -> Iterator[None]:
    """Pause the collector of garbage, which a walk makes none of."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def open_partial(source: Source, bind: OpenBind | None = None) -> PartialWith:
    """
    Read a model whose sizes data decides, to make graphs of it as far as sizes are known.

    Parameters
    ----------
    source : path or bytes
        The model, as for :func:`load`.
    bind : mapping, optional
        Numbers for symbolic dimensions by name, as for :func:`load`.

    Returns
    -------
    callable
        A function from known facts to the graph that follows from them.

    Raises
    ------
    UnsupportedModel
        If the format has no such models.
    PlannerError, OSError
        As :func:`load`, and so does the function.
    """
    suffix = suffix_of(source)
    if suffix != ".onnx":
        raise UnsupportedModel(
            f"sizes that data decides are found out for models in files ending in .onnx, not "
            f"{suffix}"
        )
    current().admit(source)
    opener = importlib.import_module("arenaplan.formats.onnx.onnx_stages").open_partial
    partial_with: PartialWith = opener(source, None if bind is None else solved(bind))
    return partial_with


def suffix_of(source: Source) -> str:
    """
    Return the suffix of model files that have the format of ``source``.

    Raises
    ------
    NotAModel
        If the suffix or the first bytes are not those of a format we read.

    Examples
    --------
    >>> from arenaplan.formats import suffix_of
    >>> suffix_of("model.ONNX"), suffix_of(bytes([28, 0, 0, 0]) + b"TFL3")
    ('.onnx', '.tflite')
    """
    if not isinstance(source, (bytes, str, os.PathLike)):
        kind = type(source).__name__
        raise InvalidOption(f"the path or the content of a model file is needed, not {kind!r}")
    if not isinstance(source, bytes):
        suffix = Path(source).suffix.lower()
        if suffix not in _IMPORTERS:
            known = ", ".join(sorted(_IMPORTERS))
            raise NotAModel(f"{str(source)!r} has the suffix {suffix!r}; models end in {known}")
        return suffix
    if source[4:8] == b"TFL3":
        return ".tflite"
    if source.startswith(b"PK\x03\x04"):
        return ".pt2"
    if source[:64].lstrip(b" \t\r\n").startswith(b"{"):
        return ".json"
    if source[:1] and source[0] in _ONNX_TAGS:
        return ".onnx"
    raise NotAModel("the data is no model: it begins like no ONNX, TFLite, .pt2 or JSON file")
