"""
Weights as a `safetensors <https://github.com/huggingface/safetensors>`_ file.

A graph file names constants without data. The weights file has the data of each constant whose
bytes a node reads, under the value's name, including constants computed by the importer. A constant
whose data depends on the shape, such as a reshape's operand, is stored once per shape:
``NAME@batch=2,seq=16``, with dimension names in alphabetical order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b

import numpy as np

from arenaplan.base.errors import UnsupportedDtype
from arenaplan.graph import Graph

__all__ = ["weights_of"]


def weights_of(shapes: Iterable[tuple[Mapping[str, int], Graph]]) -> bytes:
    """
    Return the content of a weights file for several shapes of a model.

    Parameters
    ----------
    shapes : iterable of (mapping, Graph)
        Dimension sizes, as in a model file, and each shape's graph. Only one graph's constants are
        in memory at a time, and each array is kept once.

    Raises
    ------
    UnsupportedDtype
        If the format has no such element type.
    UndefinedValue
        If a graph was loaded without its weights.
    ImportError
        If the package ``safetensors`` is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import arenaplan as ap
    >>> from arenaplan.deploy.export import weights_of
    >>> def layer(batch):
    ...     graph = ap.Graph("layer")
    ...     x = graph.input("x", (batch, 4))
    ...     w = graph.constant("w", (4, 2), "float32", np.ones((4, 2), np.float32))
    ...     n = graph.constant("n", (), "float32", np.array(batch, np.float32))
    ...     (y,) = graph.node("MatMul", [x, w], [("y", (batch, 2), "float32")])
    ...     (z,) = graph.node("Div", [y, n], [("z", (batch, 2), "float32")])
    ...     graph.output(z)
    ...     return graph
    >>> from safetensors.numpy import load
    >>> sorted(load(weights_of(({"batch": batch}, layer(batch)) for batch in (1, 2))))
    ['n@batch=1', 'n@batch=2', 'w']
    """
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import save
    except ImportError as error:
        raise ImportError(
            "weights are written by the package safetensors: pip install safetensors"
        ) from error
    # By name, the different arrays, and the array for each shape.
    arrays: dict[str, dict[bytes, np.ndarray]] = {}
    by_shape: dict[str, dict[str, bytes]] = {}
    for sizes, graph in shapes:
        text = ",".join(f"{name}={size}" for name, size in sorted(sizes.items()))
        for name, array in _read_constants(graph):
            digest = _digest(array)
            arrays.setdefault(name, {}).setdefault(digest, array)
            by_shape.setdefault(name, {})[text] = digest
    tensors: dict[str, np.ndarray] = {}
    for name, found in arrays.items():
        if len(found) == 1:
            (tensors[name],) = found.values()
        else:
            for text, digest in by_shape[name].items():
                tensors[f"{name}@{text}"] = found[digest]
    try:
        return save(tensors)
    except (SafetensorError, KeyError) as error:
        dtypes = ", ".join(sorted({array.dtype.name for array in tensors.values()}))
        raise UnsupportedDtype(f"safetensors cannot hold these types ({dtypes}): {error}") from None


def _read_constants(graph: Graph) -> Iterator[tuple[str, np.ndarray]]:
    """Iterate over the constants, with names, whose bytes a node or the caller reads."""
    read = set(graph.outputs)
    for node in graph.nodes:
        ignored = set(node.effects.ignores)
        read.update(
            index
            for position, index in enumerate(node.inputs)
            if index is not None and position not in ignored
        )
    for value in graph.values:
        if value.kind == "constant" and value.index in read:
            yield value.name, np.ascontiguousarray(graph.data(value.index)).reshape(value.shape)


def _digest(array: np.ndarray) -> bytes:
    """Return a digest of an array's type, shape and elements."""
    digest = blake2b(f"{array.dtype.name} {array.shape}".encode())
    digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.digest()
