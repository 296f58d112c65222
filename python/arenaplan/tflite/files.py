"""
The TFLite importer.

It needs neither TensorFlow nor a FlatBuffers library: a file is read through one
checked cursor (:mod:`~arenaplan.tflite.reader.flatbuffer`) into plain objects
(:mod:`~arenaplan.tflite.reader.tflite_model`), and those into a graph
(:mod:`~arenaplan.tflite.reader.tflite_walk`). The canonical operators are one table
(:data:`~arenaplan.tflite.reader.tflite_operators.OPERATORS`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from arenaplan.graph.sizes import Bind
from arenaplan.tflite.reader.code_walk import CodeWalk
from arenaplan.tflite.reader.entries import covers_of
from arenaplan.tflite.reader.offline import read_offsets
from arenaplan.tflite.reader.runnable import RunnableWalk
from arenaplan.tflite.reader.tflite_model import Model, Source, parse, read_bytes
from arenaplan.tflite.reader.tflite_walk import Walk
from arenaplan.tflite.reader.timeline import graph_of_timeline
from arenaplan.tflite.runtime.aliases import aliased_timeline
from arenaplan.tflite.runtime.arena import ArenaTotal, operator_costs, total, with_scratch
from arenaplan.tflite.runtime.build import KERNEL_SETS, REFERENCE, Build

if TYPE_CHECKING:
    from arenaplan.graph import Graph

__all__ = ["graph_for_tflm", "load_tflite", "open_tflite", "own_arena"]


def load_tflite(source: Source, *, bind: Bind | None = None) -> Graph:
    """
    Read a TFLite model.

    Parameters
    ----------
    source : path or bytes
        The model.
    bind : mapping, optional
        Shapes by tensor, ``{"image": (1, 96, 96, 3)}``, where the file leaves one open and
        stores no number to start with.

    Returns
    -------
    Graph
        The main subgraph, its operators in the order of the file. Tensors with data are
        constants, variables are states; custom operators have the shapes that the file
        declares, and no effects. If operators run other subgraphs, the graph can be planned
        for the targets ``"tflm"`` and ``"numpy"`` only.

    Raises
    ------
    PlannerError
        If the model is malformed or cannot be planned; the message names the place.
    OSError
        If the file cannot be read.
    """
    return open_tflite(source)(bind)


def open_tflite(source: Source) -> Callable[[Bind | None], Graph]:
    """
    Read a TFLite model, and return a function that makes its graph for given shapes.

    Raises
    ------
    PlannerError, OSError
        As :func:`load_tflite`, and so does the function.
    """
    data, path = read_bytes(source)
    model, name = parse(data), "" if path is None else path.stem

    def graph_with(bind: Bind | None) -> Graph:
        graph = Walk(model, name, bind).run()
        graph.target = "tflm"
        graph.covers = covers_of(model)
        graph.add_variant("numpy", lambda: _covered(RunnableWalk(model, name, bind)))
        graph.add_variant("c-code", lambda: _covered(CodeWalk(model, name, bind)))
        graph.add_variant("tflm", lambda: graph_for_tflm(model, name))
        for kernels in KERNEL_SETS:
            build = Build(kernels, shares=True)
            graph.add_variant(f"tflm:{kernels}", partial(graph_for_tflm, model, name, build))
        return graph

    return graph_with


def _covered(walk: RunnableWalk) -> Graph:
    """Return the graph of a walk, which knows the part of the model that it has."""
    graph = walk.run()
    graph.covers = covers_of(walk.model)
    return graph


def graph_for_tflm(model: Model, name: str = "", build: Build = REFERENCE) -> Graph:
    """
    Return the graph that TensorFlow Lite Micro sees.

    Its values are the tensors in the arena, and the scratch memory of kernels.

    Raises
    ------
    PlannerError
        If the model cannot run there.
    """
    timeline = aliased_timeline(model, build)
    boxes = with_scratch(timeline, operator_costs(model, build))
    offsets = read_offsets(model) if timeline.areas else None
    graph = graph_of_timeline(timeline, name, boxes, offsets)
    graph.target = build.target
    graph.covers = covers_of(model)
    return graph


def own_arena(model: Model, build: Build = REFERENCE) -> ArenaTotal:
    """Return the arena that a model needs as it is, with the plan that it brings along, if any."""
    return total(model, read_offsets(model), build=build)
