"""``arenaplan measure``: a model's memory in an installed TensorFlow Lite Micro."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from arenaplan.base.errors import NotAModel
from arenaplan.cli.models import is_tflite
from arenaplan.cli.printing import say, shown, size
from arenaplan.cli.sources import goes_to_stdout, write_result
from arenaplan.tflite.reader.tflite_model import parse, read_bytes

_MOST: Final = 20
"""Most operators listed in a report."""


def execute(options: argparse.Namespace) -> None:
    """Run the command."""
    if not is_tflite(options.model):
        raise NotAModel("the model is not a .tflite model; TFLM runs only .tflite models")
    # The interpreter is not needed for any other command.
    from arenaplan.deploy.adapters.tflite_micro import measure, predicted_head

    data, path = read_bytes(options.model)
    name = path.stem if path is not None else "model"
    profile = measure(data, name)
    if options.output is None:
        options.output = Path(f"{name}.profile.json")
    write_result(options.output, f"{profile.to_json()}\n".encode())
    asking = [each for each in profile.operators if each.scratch]
    expected = predicted_head(parse(data), profile)
    if expected != profile.head:
        say(
            f"warning: scratch memory per operator leads to a head of {expected:,} bytes, not of "
            f"{profile.head:,}: a kernel has several buffers whose sizes are not known"
        )
    report = [
        f"{shown(name)} in {profile.runtime}",
        f"  total        {size(profile.smallest_arena)} for kTensorArenaSize",
        f"    head       {profile.head:>12,}",
        f"    persistent {profile.tail:>12,}",
        f"    start-up   {profile.startup:>12,}",
        f"  scratch      {len(asking)} of {len(profile.operators)} operators ask for some",
        *(
            f"    {sum(each.scratch):>14,}  {shown(each.name)}_{each.position}"
            for each in asking[:_MOST]
        ),
    ]
    if options.json:
        if not goes_to_stdout(options):
            print(profile.to_json())
        return
    (say if goes_to_stdout(options) else print)("\n".join(report))
