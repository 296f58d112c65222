"""JSON files: graphs, models with plans, and NNVM and TVM runtime graphs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from arenaplan import _core
from arenaplan.base.arguments import typed
from arenaplan.base.errors import NotAModel, UnknownDim, fault
from arenaplan.base.quoting import listed
from arenaplan.graph import MAX_FILE, Graph
from arenaplan.graph.model import Model, flat_sizes
from arenaplan.graph.sizes import Bind, Source

_GRAPH, _MODEL = "arenaplan-graph", "arenaplan-model"
_PLANS = {"arenaplan": "plan", "arenaplan-shared": "plan of several models"}


def open_document(source: Source) -> Callable[[Bind | None], Graph]:
    """Open a JSON file; see :func:`arenaplan.formats.open_model`."""
    data, name = read_document(source)
    kind = format_of(data)
    if kind == _MODEL:
        model = Model.from_json(data)
        return lambda bind: model.graph(**flat_sizes(bind or {}))
    if kind == _GRAPH:
        core = _core.Graph.from_json(data)
        return lambda bind: _without_bind(bind, lambda: Graph.of_core(core))
    if kind == "runtime":
        return lambda bind: _without_bind(bind, lambda: from_runtime_json(data, name=name))
    if kind in _PLANS:
        raise NotAModel(
            f"the file is a {_PLANS[kind]} without its graph: pass the model; 'plan --with-graph' "
            "writes both into one file"
        )
    raise NotAModel(
        "the JSON file is no graph: it has no 'format' of ours, nor 'nodes' and 'heads'"
    )


@typed
def from_runtime_json(
    text: str | bytes, *, parameters: Iterable[str] = (), name: str = ""
) -> Graph:
    """
    Return the graph in the JSON form of the NNVM and TVM graph runtimes.

    Operands, shapes, types and devices come from the file. A node overwrites an operand if the node
    raises the operand's version, and makes a result in place if the result is in an operand's
    block. The file has no other effects.

    Parameters
    ----------
    text : str or bytes
        The file.
    parameters : iterable of str
        Names of inputs that are weights, as from
        :func:`arenaplan.classic.load_params`: these become constants outside the arena.
    name : str
        The model's name.

    Raises
    ------
    ArenaError
        If the text is not such a graph.
    GraphError, SizeError
        If the values and nodes are not a valid graph.

    Examples
    --------
    >>> import arenaplan as ap
    >>> graph = ap.Graph()
    >>> x, w = graph.input("x", (64,)), graph.constant("w", (64,))
    >>> (y,) = graph.node("Add", [x, w], [("y", (64,), "float32")])
    >>> graph.output(y)
    >>> text = ap.classic.StoragePool.from_plan(graph, ap.classic.share_storage(graph)).to_json()
    >>> again = ap.formats.from_runtime_json(text, parameters=["w"])
    >>> again.nodes[0].op, ap.plan(again).arena_bytes
    ('Add', 512)
    """
    decoded = text if isinstance(text, str) else text.decode("utf-8", "replace")
    layout = _core.StorageLayout.from_json(decoded)
    graph = Graph.of_core(layout.to_graph(name, list(parameters)))
    calls = [row for row in layout.nodes if row[0] != "null"]
    for node, (_, _, _, attributes, _) in zip(graph.nodes, calls, strict=True):
        node.attributes = attributes
    return graph


def read_document(source: Source) -> tuple[bytes, str]:
    """
    Return a JSON file's content, and a name for the model.

    Raises
    ------
    ModelError
        If the file has more than 1 GiB.
    """
    if isinstance(source, bytes):
        data, name = source, ""
    else:
        path = Path(os.fspath(source))
        with path.open("rb") as file:
            data, name = file.read(MAX_FILE + 1), path.name.partition(".")[0]
    if len(data) > MAX_FILE:
        raise fault("FileTooLarge", f"the file has more than {MAX_FILE:,} bytes")
    return data, name


def format_of(data: bytes) -> str | None:
    """
    Return the format named in JSON text: ``"runtime"`` for NNVM and TVM graphs.

    Examples
    --------
    >>> from arenaplan.formats.json_document import format_of
    >>> format_of(b'{"format": "arenaplan-graph"}'), format_of(b'{"nodes": [], "heads": []}')
    ('arenaplan-graph', 'runtime')
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotAModel(f"the file is no JSON: {error}") from None
    if not isinstance(document, dict):
        return None
    name = document.get("format")
    if isinstance(name, str):
        return name
    return "runtime" if {"nodes", "heads"} <= document.keys() else None


def is_model(data: bytes) -> bool:
    """Return whether JSON text is a file with graphs and plans."""
    return f'"{_MODEL}"'.encode() in data and format_or_none(data) == _MODEL


def format_or_none(data: bytes) -> str | None:
    """Return a file's format; ``None`` if not JSON."""
    try:
        return format_of(data)
    except NotAModel:
        return None


def _without_bind(bind: Bind | None, make: Callable[[], Graph]) -> Graph:
    """Return a graph whose shapes are all numbers."""
    if bind:
        raise UnknownDim(
            f"the graph has no symbolic dimensions, and {listed(bind)} were bound", names=list(bind)
        )
    return make()
