"""
Reorders a TFLite model's operators to need fewer bytes.

A subgraph's operators are a vector of offsets to tables behind the vector. Another order changes
only these offsets in the file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from arenaplan.base.errors import InternalError, PlannerError
from arenaplan.planner.plan_options import Effort, PlanOptions
from arenaplan.planner.planning import plan
from arenaplan.tflite.files import load_tflite
from arenaplan.tflite.reader.schema import ModelField, SubgraphField
from arenaplan.tflite.reader.tflite_model import TfliteModel, parse
from arenaplan.tflite.reader.timeline import ALIGNMENT


def better_order(
    model: TfliteModel, effort: Effort = "default", *, shares: bool = False
) -> list[int] | None:
    """
    Return the main subgraph's operator positions in an order with a lower peak.

    ``None`` if the model's order is as good as any order found, or the model has several subgraphs,
    which share an arena. ``shares`` says whether kernels other than reshapes share bytes.
    """
    if len(model.subgraphs) != 1:
        return None
    techniques = "views,in-place,elision" if shares else "views"
    options = PlanOptions(target="nodes", alignment=ALIGNMENT, workspace="none", effort=effort)
    try:
        graph = load_tflite(model.data)
        if len(graph.nodes) != len(model.subgraphs[0].operators):
            return None
        given = plan(graph, options, optimize=techniques)
        found = plan(graph, options, optimize=f"{techniques},order")
    except PlannerError:
        return None  # A model that only the runtime understands keeps its order.
    return found.order if found.arena_bytes < given.arena_bytes else None


def reordered(model: TfliteModel, order: Sequence[int]) -> TfliteModel:
    """
    Return the model with the main subgraph's operators in another order.

    Raises
    ------
    InternalError
        If the new file does not have these operators.
    """
    main = model.root.tables(ModelField.SUBGRAPHS, "subgraph")[0]
    targets = main.targets(SubgraphField.OPERATORS, "operator")
    vector = main.target(SubgraphField.OPERATORS)
    if vector is None or sorted(order) != list(range(len(targets))):
        raise InternalError("the order does not name every operator once")
    data = bytearray(model.data)
    for slot, position in enumerate(order):
        at = vector + 4 + 4 * slot
        if targets[position] <= at:
            # Offsets point forward, so such a file is valid only in the existing order.
            return model
        struct.pack_into("<I", data, at, targets[position] - at)
    written = parse(bytes(data))
    old, new = (each.subgraphs[0] for each in (model, written))
    same = new.operators == tuple(old.operators[position] for position in order)
    if not same or new.tensors != old.tensors or written.subgraphs[1:] != model.subgraphs[1:]:
        raise InternalError("the file in another order does not say what the model said")
    return written
