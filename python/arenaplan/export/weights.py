"""
Weights as a `safetensors <https://github.com/huggingface/safetensors>`_ file.

A graph file names constants and has no data. The weights file has the data of each constant whose
bytes a node reads, under the name of the value, also of constants that the importer computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

import numpy as np

from arenaplan.errors import UnsupportedDtype, UnsupportedModel
from arenaplan.graph import Graph
from arenaplan.importers.common import quoted

__all__ = ["weights_of"]


def weights_of(graphs: Iterable[Graph]) -> bytes:
    """
    Return the content of a weights file that serves several shapes of one model.

    Parameters
    ----------
    graphs : iterable of Graph
        The graph of each shape, at least one. Constants are loaded, and forgotten with the graph.

    Raises
    ------
    UnsupportedModel
        If a constant has other data in another shape; then each shape needs a file of its own.
    UnsupportedDtype
        If the format has no such element type.
    UndefinedValue
        If a graph was loaded without its weights.
    ImportError
        If the package ``safetensors`` is not there.

    Examples
    --------
    >>> import numpy as np
    >>> import arenaplan as ap
    >>> from arenaplan.export import weights_of
    >>> graph = ap.Graph("layer")
    >>> x = graph.input("x", (4, 64))
    >>> w = graph.constant("w", (64, 16), "float32", np.ones((64, 16), np.float32))
    >>> (y,) = graph.node("MatMul", [x, w], [("y", (4, 16), "float32")])
    >>> graph.output(y)
    >>> from safetensors.numpy import load
    >>> load(weights_of([graph]))["w"].shape
    (64, 16)
    """
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import save
    except ImportError as error:
        raise ImportError(
            "weights are written by the package safetensors: pip install 'arenaplan[weights]'"
        ) from error
    arrays: dict[str, np.ndarray] = {}
    known: dict[str, bytes] = {}
    for graph in graphs:
        for name, array in _read_constants(graph):
            digest = _digest(array)
            if known.setdefault(name, digest) != digest:
                raise UnsupportedModel(
                    f"constant {quoted(name)} depends on the shape of the inputs: write the "
                    "weights of each shape by themselves"
                )
            arrays.setdefault(name, array)
    try:
        return save(arrays)
    except (SafetensorError, KeyError) as error:
        dtypes = ", ".join(sorted({array.dtype.name for array in arrays.values()}))
        raise UnsupportedDtype(f"safetensors cannot hold these types ({dtypes}): {error}") from None


def _read_constants(graph: Graph) -> Iterator[tuple[str, np.ndarray]]:
    """Iterate over the constants whose bytes a node or the caller reads, with their names."""
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
    """Return a digest of the type, shape and elements of an array."""
    digest = blake2b(f"{array.dtype.name} {array.shape}".encode())
    digest.update(array.reshape(-1).view(np.uint8))
    return digest.digest()
