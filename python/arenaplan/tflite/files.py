"""
The TFLite importer.

Neither TensorFlow nor a FlatBuffers library is needed: a checked cursor
(:mod:`~arenaplan.tflite.reader.flatbuffer`) reads a file into plain objects
(:mod:`~arenaplan.tflite.reader.tflite_model`), which become a graph
(:mod:`~arenaplan.tflite.reader.tflite_walk`). The canonical operators are in a table
(:data:`~arenaplan.tflite.reader.tflite_operators.OPERATORS`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from arenaplan.graph.sizes import Bind
from arenaplan.tflite.reader.code_walk import CodeWalk
from arenaplan.tflite.reader.composites import decomposed
from arenaplan.tflite.reader.entries import chosen, covers_of, entries_of
from arenaplan.tflite.reader.offline import read_offsets
from arenaplan.tflite.reader.runnable import RunnableWalk
from arenaplan.tflite.reader.tflite_model import Source, TfliteModel, parse, read_bytes
from arenaplan.tflite.reader.tflite_walk import TfliteWalk
from arenaplan.tflite.reader.timeline import graph_of_timeline
from arenaplan.tflite.runtime.aliases import aliased_timeline
from arenaplan.tflite.runtime.arena import ArenaTotal, operator_costs, total, with_scratch
from arenaplan.tflite.runtime.build import KERNEL_SETS, REFERENCE, Build

if TYPE_CHECKING:
    from arenaplan.graph import Graph

__all__ = ["graph_for_tflm", "load_tflite", "open_tflite", "own_arena", "signatures_of"]


def load_tflite(source: Source, *, bind: Bind | None = None, signature: str | None = None) -> Graph:
    """
    Read a TFLite model.

    Parameters
    ----------
    source : path or bytes
        The model.
    bind : mapping, optional
        Shapes by tensor, ``{"image": (1, 96, 96, 3)}``, where the file leaves a dimension open and
        stores no initial size.
    signature : str, optional
        The signature whose subgraph is read; by default the first subgraph.

    Returns
    -------
    Graph
        The subgraph, with operators in file order. Tensors with data are constants, and variables
        are states. Custom operators have the shapes declared in the file, and no effects. If
        operators run other subgraphs, the graph can be planned only for the targets ``"tflm"`` and
        ``"numpy"``. The default target for a model with several signatures is ``"litert"``, because
        TensorFlow Lite Micro runs only the first subgraph.

    Raises
    ------
    PlannerError
        If the model is malformed or cannot be planned; the message names the place.
    OSError
        If the file cannot be read.
    """
    return open_tflite(source, signature)(bind)


def open_tflite(source: Source, signature: str | None = None) -> Callable[[Bind | None], Graph]:
    """
    Read a TFLite model; return a function from shapes to a graph.

    With several signatures, the graph's name is the file's name followed by the signature's.

    Raises
    ------
    PlannerError, OSError
        As :func:`load_tflite`, here and in the returned function.
    """
    data, path = read_bytes(source)
    model, name = chosen(parse(data), signature), "" if path is None else path.stem
    covers = covers_of(model, signature)
    if covers.signature:
        name = f"{name}.{covers.signature}"

    def covered(graph: Graph) -> Graph:
        graph.covers = covers
        return graph

    def tflm(build: Build = REFERENCE) -> Graph:
        return covered(graph_for_tflm(model, name, build))

    def graph_with(bind: Bind | None) -> Graph:
        whole = decomposed(model)

        def code(*, streams: bool) -> Graph:
            seen = covered(CodeWalk(whole, name, bind, streams=streams).run())
            seen.target = "c-code"
            return seen

        graph = covered(TfliteWalk(whole, name, bind).run())
        graph.target = "litert" if covers.signature else "tflm"
        graph.add_variant("numpy", lambda: covered(RunnableWalk(whole, name, bind).run()))
        graph.add_variant("cupy", lambda: graph.for_target("numpy"))
        graph.add_variant("c-code", lambda: code(streams=False))
        graph.add_variant("c-code-rows", lambda: code(streams=True))
        graph.add_variant("tflm", tflm)
        for kernels in KERNEL_SETS:
            graph.add_variant(f"tflm:{kernels}", partial(tflm, Build(kernels, shares=True)))
        return graph

    return graph_with


def signatures_of(source: Source) -> tuple[str, ...]:
    """
    Return the names of a file's entry points.

    Raises
    ------
    PlannerError, OSError
        If the model is malformed, or the file cannot be read.
    """
    return tuple(entries_of(parse(read_bytes(source)[0])))


def graph_for_tflm(model: TfliteModel, name: str = "", build: Build = REFERENCE) -> Graph:
    """
    Return the graph as seen by TensorFlow Lite Micro.

    The values are the tensors in the arena and the kernels' scratch memory.

    Raises
    ------
    PlannerError
        If the runtime cannot run the model.
    """
    timeline = aliased_timeline(model, build)
    boxes = with_scratch(timeline, operator_costs(model, build))
    offsets = read_offsets(model) if timeline.areas else None
    graph = graph_of_timeline(timeline, name, boxes, offsets)
    graph.target = build.target
    graph.covers = covers_of(model, None)
    return graph


def own_arena(model: TfliteModel, build: Build = REFERENCE) -> ArenaTotal:
    """Return the arena that an unchanged model needs, with the plan in the file, if any."""
    return total(model, read_offsets(model), build=build)
