"""``arenaplan targets``: the runners that plans can be made for."""

from __future__ import annotations

import argparse
from typing import Any

from arenaplan import Target, targets
from arenaplan.base.documents import fields_of
from arenaplan.cli.printing import print_json

_DEFAULTS = {
    "numpy": ".onnx",
    "tflm": ".tflite",
    "executorch": ".pt2",
    "nodes": "graphs built by hand",
}
"""The model formats that are planned for a target by default."""


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    rows = [_row(target) for target in targets()]
    if options.json:
        print_json({"targets": rows})
        return
    for row in rows:
        default = f" (default for {row['default_for']})" if row["default_for"] else ""
        print(f"{row['name']}: {row['summary']}{default}")
        print(f"  techniques   {', '.join(row['techniques'])}")
        print(f"  runs         one {row['granularity']} at a time")
        print(f"  alignment    {row['alignment']} bytes{_unit(row['offset_unit'])}")
        print(f"  spaces       {'several' if row['several_spaces'] else 'one'}")
        whose = "the arena or the caller" if row["caller_memory"] else "the arena"
        print(f"  in and out   {whose}")
        scratch, structures = _PROVIDERS[row["scratch"]], _FIXED[row["fixed"]]
        if row["name"] == "tflm":
            scratch = "placed by the runtime around tensors; in the arena, by formula or measured"
            structures = "kept by the runtime; in the total of the report"
        print(f"  scratch      {scratch}")
        print(f"  structures   {structures}")


_PROVIDERS = {
    "graph": "declared by the kernels before planning, and placed",
    "runner": "placed by the runtime, in no figure",
    "nobody": "left out",
}

_FIXED = {
    "graph": "declared before planning, and placed",
    "runner": "kept by the runtime, in no figure",
    "nobody": "none",
}


def _row(target: Target) -> dict[str, Any]:
    """Return everything about a target."""
    return {
        **fields_of(target, "name summary techniques granularity alignment offset_unit"),
        **fields_of(target, "several_spaces caller_memory early_writes strip_axis scratch fixed"),
        "default_for": _DEFAULTS.get(target.name),
    }


def _unit(unit: int) -> str:
    """Return the text for an alignment unit."""
    return f", or a multiple of {unit}" if unit > 1 else ""
