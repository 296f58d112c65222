"""Models with smaller inputs, imported again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arenaplan.formats import open_model, suffix_of
from arenaplan.graph import Graph
from arenaplan.graph.sizes import Source
from arenaplan.report.whatif.axes import CannotEdit

Shapes = Mapping[str, tuple[int, ...]]


def half_batch(graph: Graph) -> Shapes:
    """Return input shapes with half the first dimension, if equal for all inputs."""
    shapes = {graph.values[index].name: graph.values[index].shape for index in graph.inputs}
    sizes = {shape[0] for shape in shapes.values() if shape}
    if len(sizes) != 1 or sizes <= {0, 1} or not all(shapes.values()):
        return {}
    return {name: ((shape[0] + 1) // 2, *shape[1:]) for name, shape in shapes.items()}


def half_images(graph: Graph) -> Shapes:
    """Return input shapes with half the rows and columns, if there are images (N, C, …)."""
    shapes = {graph.values[index].name: graph.values[index].shape for index in graph.inputs}
    return {
        name: (*shape[:2], *((size + 1) // 2 for size in shape[2:]))
        for name, shape in shapes.items()
        if len(shape) == 4 and min(shape[2:]) >= 2
    }


def imported(source: Source, bind: Mapping[str, Any], shapes: Shapes) -> Graph:
    """
    Import an ONNX model with other input shapes.

    All other shapes are inferred anew.

    Raises
    ------
    CannotEdit
        If the model is in another format.
    PlannerError, OSError
        If the model is not valid for such inputs, for example because a shape is fixed.
    """
    data = source if isinstance(source, bytes) else Path(os.fspath(source)).read_bytes()
    if suffix_of(source) != ".onnx":
        raise CannotEdit("only ONNX models are imported again with other inputs")
    import onnx

    model = onnx.ModelProto.FromString(data)
    for value in model.graph.input:
        for dimension, size in zip(
            value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False
        ):
            dimension.dim_value = size
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return open_model(model.SerializeToString())(dict(bind))
