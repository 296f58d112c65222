"""
Symbol files: NNVM's JSON form, plus constant data and facts about variables.

``nodes`` are in :meth:`arenaplan.train.Symbol.vertices` order; ``inputs`` are ``[node, output,
version]``, ``null`` for an omitted operand. Equal symbols give equal text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from arenaplan.base.errors import PlannerError, fault
from arenaplan.train.symbols.composer import find_schema
from arenaplan.train.symbols.vertex import Entry, Vertex, checked_names, topological

_FORMAT = "arenaplan.symbol.1"
_KINDS = ("input", "state", "constant")


def write(heads: Sequence[Entry]) -> str:
    """Return a symbol as JSON text."""
    vertices = topological(head.vertex for head in heads)
    number = {vertex: at for at, vertex in enumerate(vertices)}
    starts = [0]
    for vertex in vertices:
        starts.append(starts[-1] + vertex.outputs)

    def entry(each: Entry | None) -> list[int] | None:
        return None if each is None else [number[each.vertex], each.output, each.version]

    document = {
        "format": _FORMAT,
        "nodes": [_row(vertex, [entry(each) for each in vertex.inputs]) for vertex in vertices],
        "arg_nodes": [at for at, vertex in enumerate(vertices) if vertex.is_variable],
        "node_row_ptr": starts,
        "heads": [entry(each) for each in heads],
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _row(vertex: Vertex, inputs: list[Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": vertex.name, "inputs": inputs}
    if vertex.labels:
        row["attrs"] = vertex.labels
    if vertex.schema is not None:
        row["op"] = vertex.schema.table_name
        row["outputs"] = vertex.outputs
        if vertex.attributes:
            row["attributes"] = {key: _value(each) for key, each in vertex.attributes.items()}
        return row
    row.update(op="null", kind=vertex.kind)
    if vertex.shape is not None:
        row["shape"] = list(vertex.shape)
    if vertex.dtype is not None:
        row["dtype"] = vertex.dtype
    if vertex.version:
        row["version"] = vertex.version
    if vertex.data is not None:
        row["data"] = _value(vertex.data)
    return row


def _value(value: Any) -> Any:
    """Return an attribute for JSON."""
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.name, "shape": value.shape, "data": value.ravel().tolist()}
    if isinstance(value, np.generic):
        return value.item()
    return [_value(each) for each in value] if isinstance(value, (list, tuple)) else value


def read(text: str | bytes) -> list[Entry]:
    """Return the outputs that a text holds: see :meth:`arenaplan.train.Symbol.from_json`."""
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or not str(document["format"]).startswith("arenaplan.s"):
            raise fault("GraphCorrupt", "the text is not a symbol")
        if document["format"] != _FORMAT:
            raise fault(
                "GraphVersion",
                f"the symbol has format {document['format']!r}, not {_FORMAT!r}",
            )
        vertices: list[Vertex] = []
        for row in document["nodes"]:
            vertices.append(_vertex(row, vertices))
        checked_names(vertices)
        heads = [_entry(each, vertices) for each in document["heads"]]
    except PlannerError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise fault("GraphCorrupt", f"the text is not a symbol: {error}") from error
    return [head for head in heads if head is not None]


def _entry(row: Any, vertices: list[Vertex]) -> Entry | None:
    if row is None:
        return None
    number, index, *version = row
    if not 0 <= number < len(vertices) or not 0 <= index < vertices[number].outputs:
        raise fault("GraphCorrupt", f"entry {row} names no output of an earlier node")
    return Entry(vertices[number], int(index), int(version[0]) if version else 0)


def _vertex(row: dict[str, Any], earlier: list[Vertex]) -> Vertex:
    labels = {str(key): str(text) for key, text in row.get("attrs", {}).items()}
    if row["op"] != "null":
        inputs = [_entry(each, earlier) for each in row["inputs"]]
        attributes = {key: _attribute(each) for key, each in row.get("attributes", {}).items()}
        outputs = int(row.get("outputs", 1))
        return Vertex(row["name"], find_schema(row["op"]), inputs, outputs, attributes, labels)
    kind = row.get("kind", "input")
    if kind not in _KINDS:
        raise fault("GraphCorrupt", f"node {row['name']!r} has kind {kind!r}")
    shape = row.get("shape")
    data = row.get("data")
    return Vertex(
        row["name"],
        labels=labels,
        kind=kind,
        shape=None if shape is None else tuple(shape),
        dtype=row.get("dtype"),
        data=None if data is None else _attribute(data),
        version=int(row.get("version", 0)),
    )


def _attribute(value: Any) -> Any:
    if isinstance(value, dict):
        return np.array(value["data"], value["dtype"]).reshape(value["shape"])
    return tuple(value) if isinstance(value, list) else value
