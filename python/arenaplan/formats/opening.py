"""
Importers: read model files in several formats into a :class:`~arenaplan.graph.Graph`.

An importer translates operators into memory effects (:class:`~arenaplan.graph.Effects`). The
package that parses a format is imported when the first file in the format is read.
"""

from __future__ import annotations

import errno
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

__all__ = ["load", "open_model", "open_partial", "signatures_for", "suffix_of"]


class _Importer(NamedTuple):
    """The function that opens files in a format."""

    module: str
    function: str


_IMPORTERS: Mapping[str, _Importer] = {
    ".json": _Importer("arenaplan.formats.json_document", "open_document"),
    ".onnx": _Importer("arenaplan.formats.onnx", "open_onnx"),
    ".pt2": _Importer("arenaplan.formats.pt2", "open_pt2"),
    ".tflite": _Importer("arenaplan.tflite.files", "open_tflite"),
}


FOREIGN: Final[Mapping[str, str]] = {
    ".pte": "a program of ExecuTorch, planned before: read the program of torch.export (.pt2) that "
    "it was made of, or give a plan to its compiler (docs/integrations.md)",
    **dict.fromkeys(
        (".mlir", ".mlirbc", ".stablehlo"),
        "StableHLO: give the function of JAX that it was made of to from_jaxpr",
    ),
    ".ort": "a model of ONNX Runtime: read the .onnx file that it was made of",
    **dict.fromkeys((".task", ".litertlm"), "a bundle of LiteRT: take the .tflite files out of it"),
    **dict.fromkeys(
        (".keras", ".h5", ".pb"), "a model of TensorFlow: convert it to .tflite or .onnx"
    ),
    **dict.fromkeys((".mlpackage", ".mlmodel"), "a model of Core ML: export the original to .onnx"),
    **dict.fromkeys(
        (".pt", ".pth", ".bin"), "data of torch.save: export the program by torch.export (.pt2)"
    ),
    **dict.fromkeys(
        (".gguf", ".safetensors"), "a file of weights without operators: export the model to .onnx"
    ),
}
"""What files are that are not read, and what to do, by suffix."""

SUFFIXES = tuple(suffix for suffix in _IMPORTERS if suffix != ".json")
"""Suffixes of files that are always models."""

_ONNX_TAGS = frozenset(b"\x08\x12\x1a\x22\x28\x32\x3a\x42\x72\xa2\xca")
"""First bytes that an ONNX model can have: field tags."""


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
        The file, whose suffix tells the format (``.onnx``, ``.pt2``, ``.tflite``, or ``.json`` for
        a graph, a model with plans, or a graph for NNVM's or TVM's runtime); or a file's content,
        whose first bytes tell the format.
    bind : mapping, optional
        Numbers for symbolic dimensions by name, ``{"batch": 1}``, or formulas over other names,
        ``{"total": "past + 1"}``; whole shapes for inputs by name, ``{"image": (1, 3, 224, 224)}``.
    signature : str, optional
        The signature to read from a ``.tflite`` file, by default the first subgraph's. The graph's
        ``covers`` names all others.
    max_nodes : int, optional
        Most nodes in the graph, for untrusted models.
    max_bytes : int, optional
        Most bytes in the file. External weight files do not count.
    parameters : str or iterable of str, optional
        Name patterns such as ``"fc*"`` for float constants that become parameters
        (:meth:`Graph.to_parameter`), so that training of an ONNX model can continue.

    Returns
    -------
    Graph
        The model, with its operators' memory effects. Weights are loaded on an executor's access.

    Raises
    ------
    InvalidOption
        If a pattern matches no such constant, or the format is not ONNX.
    NotAModel
        If the suffix or the content does not match a supported format.
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
        raise InvalidOption(f"option parameters: {parameters!r} is not one or several patterns")
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
    """Turn constants whose names match a pattern into parameters."""
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
"""Element types for parameters."""


def open_model(
    source: Source, limits: Limits | None = None, signature: str | None = None
) -> Callable[[OpenBind | None], Graph]:
    """
    Read a model once, to build graphs for several shapes.

    Parameters
    ----------
    source : path or bytes
        The model, as for :func:`load`.
    limits : Limits, optional
        Limits for the file and each graph; by default the limits set around the caller.
    signature : str, optional
        The signature to read, as for :func:`load`.

    Returns
    -------
    callable
        A function from the argument ``bind`` of :func:`load` to the graph.

    Raises
    ------
    PlannerError, OSError
        As :func:`load`, here and in the returned function.
    """
    suffix, limits = suffix_of(source), limits or current()
    if signature is not None and suffix != ".tflite":
        raise InvalidOption(f"option signature: models in {suffix} files have no signatures")
    importer, given = _IMPORTERS[suffix], () if signature is None else (signature,)
    limits.admit(source)
    with _ctrl_c_held_back():
        opener = getattr(importlib.import_module(importer.module), importer.function)
    with _known_content(source), reading(limits):
        graph_with: Callable[[Bind | None], Graph] = opener(source, *given)

    def limited(bind: OpenBind | None) -> Graph:
        if bind is not None and not isinstance(bind, Mapping):
            raise InvalidOption(f"option bind: {bind!r} has no numbers by name")
        with reading(limits), _without_collection():
            return graph_with(None if bind is None else solved(bind))

    return limited


def signatures_for(
    source: Source, target: str | None, limits: Limits | None = None
) -> Sequence[str | None]:
    """
    Return the signatures of a model that a target's runtime runs, each to be read by its name.

    ``(None,)`` for a file with one entry point, and for TensorFlow Lite Micro, which runs the first
    signature alone and whose total covers the whole file.

    Parameters
    ----------
    source : path or bytes
        The model, as for :func:`load`.
    target : str, optional
        The target's name; by default that of the file format.
    limits : Limits, optional
        Limits for the file, as for :func:`open_model`.

    Raises
    ------
    PlannerError, OSError
        As :func:`load`.
    """
    if suffix_of(source) != ".tflite" or (target or "").partition(":")[0] == "tflm":
        return (None,)
    (limits or current()).admit(source)
    signatures_of = importlib.import_module("arenaplan.tflite.files").signatures_of
    with _known_content(source):
        names: Sequence[str] = signatures_of(source)
    return names if len(names) > 1 else (None,)


_OTHERS = {
    b"version https://git-lfs": "a pointer of Git LFS and not the file: 'git lfs pull' fetches it",
    b"<!doctype": "a page in HTML, such as a failed download leaves",
    b"<html": "a page in HTML, such as a failed download leaves",
    b"\x1f\x8b": "compressed with gzip: decompress it first",
}
"""Common contents of files that are not models, by first bytes."""


@contextmanager
def _known_content(source: Source) -> Iterator[None]:
    """Name the kind of a file that is not a model, if known."""
    try:
        yield
    except ModelError as error:
        found = _other_content(source)
        if found is None:
            raise
        name = "the data" if isinstance(source, bytes) else repr(str(source))
        raise NotAModel(f"{name} is {found}") from error


def _other_content(source: Source) -> str | None:
    """Return the kind of a file that is not a model, if known."""
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
    Delay ``KeyboardInterrupt`` until the block ends.

    Extensions such as onnx's end the process if interrupted during import.
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
    """Pause garbage collection, because a walk makes no garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def open_partial(source: Source, bind: OpenBind | None = None) -> PartialWith:
    """
    Read a model with data-dependent sizes, to build graphs as far as sizes are known.

    Parameters
    ----------
    source : path or bytes
        The model, as for :func:`load`.
    bind : mapping, optional
        Numbers for symbolic dimensions by name, as for :func:`load`.

    Returns
    -------
    callable
        A function from known facts to the resulting graph.

    Raises
    ------
    UnsupportedModel
        If the format does not support such models.
    PlannerError, OSError
        As :func:`load`, here and in the returned function.
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
    Return the model file suffix for the format of ``source``.

    Raises
    ------
    NotAModel
        If the suffix or the first bytes do not match a supported format.

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
        if suffix not in _IMPORTERS and Path(source).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(source))
        if suffix not in _IMPORTERS:
            if suffix in FOREIGN:
                raise NotAModel(f"{str(source)!r} is {FOREIGN[suffix]}")
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
    raise NotAModel("the data is not a model: it is not an ONNX, TFLite, .pt2 or JSON file")
