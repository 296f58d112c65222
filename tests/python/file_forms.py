"""One small file of every form that commands read, and changes of single fields of them."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import arenaplan as ap
from models import model, node

DOORBELL = Path(__file__).parents[2] / "docs" / "tutorials" / "models" / "doorbell.tflite"


def windows() -> bytes:
    """Return a model whose plan runs strip by strip if time does not count."""
    rng = np.random.default_rng(0)
    weights = {f"w{at}": rng.standard_normal((4, 4, 3, 3)).astype(np.float32) for at in range(3)}
    nodes, last = [], "x"
    for at in range(3):
        made = "y" if at == 2 else f"b{at}"
        nodes.append(node("Conv", f"{last} w{at}", f"a{at}", pads=[1, 1, 1, 1]))
        nodes.append(node("Relu", f"a{at}", made))
        last = made
    return model(nodes, {"x": (1, 4, 64, 64)}, "y", weights).SerializeToString()


def products() -> bytes:
    """Return a model with a batch that has a name."""
    weights = {"w": np.ones((8, 16), np.float32)}
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "y")]
    return model(nodes, {"x": ("batch", 8)}, "y", weights).SerializeToString()


def steps() -> ap.Graph:
    """Return a graph in which nodes may run again."""
    graph = ap.Graph("steps")
    x = graph.input("x", (16, 16))
    made = [x]
    for at in range(4):
        (value,) = graph.node("Exp", made[-1:], [(f"v{at}", (16, 16), "float32")], pure=True)
        made.append(value)
    for at in range(3, -1, -1):
        last = made[-1]
        (value,) = graph.node("Add", [last, made[at]], [(f"w{at}", (16, 16), "float32")])
        made.append(value)
    graph.output(made[-1])
    return graph


def sealed(document: dict[str, Any]) -> bytes:
    """Return a document as a file whose checksums fit, those of the documents inside as well."""
    for part in ("graphs", "plans"):
        rows = document.get(part)
        for row in rows if isinstance(rows, list) else ():
            for inside in ("document", "plan"):
                if isinstance(row, dict) and isinstance(row.get(inside), dict):
                    row[inside] = json.loads(sealed(row[inside]))
    if "checksum" in document:
        del document["checksum"]
        body = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
        document["checksum"] = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


EDGES: tuple[Any, ...] = (
    0,
    1,
    -1,
    2**31 - 1,
    2**32 - 1,
    2**32,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    1.5,
    "",
    "x",
    None,
    True,
    [],
    {},
)
"""Contents that fields are given in turn."""


def changed(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """
    Yield a document once for each of its fields and each other content, and without the field.

    Of a list the first and the last element are changed: the others are like these.
    """
    for path in _paths(document):
        for edge in (*EDGES, ...):
            other = copy.deepcopy(document)
            place: Any = other
            for key in path[:-1]:
                place = place[key]
            if edge is ...:
                del place[path[-1]]
            elif place[path[-1]] == edge and type(place[path[-1]]) is type(edge):
                continue
            else:
                place[path[-1]] = edge
            yield f"{'.'.join(map(str, path))} = {'nothing' if edge is ... else edge!r}", other


def _paths(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(part, dict):
        for key, inner in part.items():
            yield from _paths(inner, (*path, key))
    elif isinstance(part, list):
        for at in sorted({0, len(part) - 1} & set(range(len(part)))):
            yield from _paths(part[at], (*path, at))
