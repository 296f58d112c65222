"""``arenaplan classic``: plans as other projects' planners make them, and improved."""

from __future__ import annotations

import argparse
from typing import Any, Final, Literal, TypeAlias

import arenaplan as ap
from arenaplan import Graph
from arenaplan.base.choices import WorkspacePolicy
from arenaplan.base.documents import fields_of
from arenaplan.base.errors import InvalidOption
from arenaplan.cli.models import covers_facts, load_model, tell_covers
from arenaplan.cli.printing import print_json, shown, size
from arenaplan.cli.syntax import COMMANDS

IncrementalMode: TypeAlias = Literal["default", "litert", "tflite-2019"]

SHARING: Final = {
    "storage-sharing": ("default", "bytes"),
    "nnvm": ("nnvm", "elements_x4"),
}
"""Strategies with blocks: rules and size measure."""

INCREMENTAL: Final[dict[str, IncrementalMode]] = {
    "incremental": "default",
    "litert": "litert",
    "tflite-2019": "tflite-2019",
}
"""Strategies that place values one after the other, with their rules."""

_RUNTIME_TEMPORARIES: Final = (
    "without the scratch tensors that kernels of TensorFlow Lite request when they are prepared: "
    "the model does not hold them, and the runtime adds them to its arena"
)


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    strategy = options.strategy
    _refuse_unused(options)
    if options.align is not None and options.align.spaces:
        raise InvalidOption("option --align: these strategies have one arena")
    graph = load_model(options)
    if strategy in INCREMENTAL:
        summary = incremental_document(
            graph,
            strategy=strategy,
            mode=INCREMENTAL[strategy],
            alignment=options.align.everywhere if options.align else 64,
            preserve_inputs=options.inputs == "keep",
            workspace=options.workspace or "none",
        )
    else:
        mode, size_rule = SHARING[strategy]
        summary = sharing_document(
            graph,
            strategy=strategy,
            mode=mode,
            match_range=16 if options.match_range is None else options.match_range,
            auto_search=options.auto_search,
            num_temp=1 if options.num_temp is None else options.num_temp,
            size_rule=options.size_rule or size_rule,
            parallel_safe=options.parallel_safe,
        )
    if options.json:
        print_json({**summary, **covers_facts(graph.covers)})
        return
    print(f"{shown(graph.name) or 'model'}: {len(graph.nodes):,} nodes, strategy {strategy}")
    tell_covers(graph.covers)
    if strategy in INCREMENTAL:
        print(f"  arena        {size(summary['arena_bytes'])}")
        if summary["persistent_bytes"]:
            print(f"  persistent   {size(summary['persistent_bytes'])} of it")
        for note in summary["notes"]:
            print(f"  note         {note}")
        return
    print(f"  blocks       {len(summary['blocks'])}, {size(summary['allocated_bytes'])} in all")
    print(f"  match range  {summary['match_range']}")


def _refuse_unused(options: argparse.Namespace) -> None:
    """Refuse options that belong to the other kind of strategy."""
    kind = "one after the other" if options.strategy in SHARING else "blocks"
    for name, option in COMMANDS["classic"].own.items():
        given = getattr(options, name.replace("-", "_"))
        is_given = given is not None and given is not False and given != option.default
        if option.group == kind and is_given:
            raise InvalidOption(f"option --{name}: strategy {options.strategy} does not have it")


def incremental_document(
    graph: Graph,
    *,
    strategy: str,
    mode: IncrementalMode,
    alignment: int = 64,
    preserve_inputs: bool = False,
    workspace: WorkspacePolicy = "none",
) -> dict[str, Any]:
    """Return the document that ``--json`` prints for a strategy that places values one by one."""
    if workspace != "none":
        graph = graph.for_target("numpy")  # Scratch memory comes from the executor's kernels.
    planner = ap.classic.IncrementalPlanner.from_graph(
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
            name: fields_of(place, "persistent offset bytes")
            for name, place in places.items()
            if place is not None
        },
        "digest": graph.digest,
    }


def sharing_document(
    graph: Graph, *, strategy: str = "storage-sharing", **options: Any
) -> dict[str, Any]:
    """Return the document that ``--json`` prints for a strategy with blocks."""
    result = ap.classic.share_storage(graph, **options)
    return {
        "model": graph.name,
        "strategy": strategy,
        "values": len(graph.values),
        "nodes": len(graph.nodes),
        "blocks": [fields_of(block, "bytes space") for block in result.blocks],
        **fields_of(result, "allocated_bytes not_allocated match_range colors"),
        "storage_ids": {
            value.name: code
            for value, code in zip(graph.values, result.storage_ids, strict=True)
            if code >= 0
        },
        "digest": graph.digest,
    }
