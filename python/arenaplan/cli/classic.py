"""``arenaplan classic``: plans as other projects' planners make them, and improved."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from arenaplan.base.errors import InvalidOption
from arenaplan.classic.incremental import report_incremental
from arenaplan.classic.sharing import report_storage_sharing
from arenaplan.cli.models import covers_facts, load_model, tell_covers
from arenaplan.cli.printing import print_json, shown, size
from arenaplan.cli.syntax import COMMANDS

if TYPE_CHECKING:
    from arenaplan.classic.incremental import IncrementalMode
    from arenaplan.classic.sharing import SharingMode, SizeRule

SHARING: Final[dict[str, tuple[SharingMode, SizeRule]]] = {
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


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    strategy = options.strategy
    _refuse_unused(options)
    if options.align is not None and options.align.spaces:
        raise InvalidOption("option --align: these strategies have one arena")
    graph = load_model(options)
    if strategy in INCREMENTAL:
        summary = report_incremental(
            graph,
            strategy=strategy,
            mode=INCREMENTAL[strategy],
            alignment=options.align.everywhere if options.align else 64,
            preserve_inputs=options.inputs == "keep",
            workspace=options.workspace or "none",
        )
    else:
        mode, size_rule = SHARING[strategy]
        summary = report_storage_sharing(
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
