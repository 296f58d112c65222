"""Planning as in TensorFlow Lite: values are placed one by one, largest first."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from arenaplan import _core
from arenaplan.base.choices import WorkspacePolicy
from arenaplan.graph import Graph

_RUNTIME_TEMPORARIES = (
    "without the scratch tensors that kernels of TensorFlow Lite request when they are prepared: "
    "the model does not hold them, and the runtime adds them to its arena"
)

IncrementalMode: TypeAlias = Literal["default", "litert", "tflite-2019"]


def report_incremental(
    graph: Graph,
    *,
    strategy: str,
    mode: IncrementalMode,
    alignment: int = 64,
    preserve_inputs: bool = False,
    workspace: WorkspacePolicy = "none",
) -> dict[str, Any]:
    """Return the ``arenaplan plan --strategy litert --json`` document, or that of another mode."""
    if workspace != "none":
        graph = graph.for_target("numpy")  # Scratch memory comes from the executor's kernels.
    planner = _core.IncrementalPlanner.from_graph(
        graph.core if workspace == "none" else graph.core_for(workspace),
        mode=mode,
        alignment=alignment,
        preserve_inputs=preserve_inputs,
    )
    planner.execute(0, len(graph.nodes))
    arenas = planner.arena_bytes
    notes = [] if mode == "default" else [_RUNTIME_TEMPORARIES]
    places = {value.name: planner.place(value.index) for value in graph.values}
    return {
        "model": graph.name,
        "strategy": strategy,
        "values": len(graph.values),
        "nodes": len(graph.nodes),
        "arena_bytes": arenas.temporary + arenas.persistent,
        "persistent_bytes": arenas.persistent,
        "alignment": alignment,
        "notes": notes,
        "offsets": {
            name: {"persistent": place.persistent, "offset": place.offset, "bytes": place.bytes}
            for name, place in places.items()
            if place is not None
        },
        "digest": graph.digest,
    }
