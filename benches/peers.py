"""
ONNX Runtime's arena beside ours, for the same files.

Its profiler says, after every kernel, how many bytes its arena has given out. What was there
before the first kernel, the weights, does not count. The first run allocates as it goes; later
ones follow the pattern that the first one left. Of those, with basic and with all of its
optimizations, the smallest figure is taken, and only bytes that were asked for: what its
allocator adds by rounding is left out, and so are buffers that a kernel frees before it
ends. It leaves inputs out and keeps outputs in, as our plans do here. Run it with::

    python benches/peers.py [MODEL ...]

A model is the name of one of the onnx package's light models, all of which are measured if
none is named, or a file. Exits with 1 if one of our arenas is larger.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

LEVELS = ("ORT_ENABLE_BASIC", "ORT_ENABLE_ALL")
RUNS = 2
"""The second one follows the pattern of the first."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))
    import arenaplan as ap
    import light_models

    print(f"{'model':<24}{'ONNX Runtime':>14}{'its arena holds':>17}{'arenaplan':>14}{'ratio':>8}")
    larger = 0
    for name in options.models or light_models.NAMES:
        is_light = name in light_models.NAMES
        model = light_models.path(name) if is_light else Path(name)
        graph = ap.load(model)
        ours = ap.plan(graph, inputs="caller", target="ideal").arena_bytes
        feeds = feeds_of(graph)
        theirs, held = min(measure(model, level, feeds) for level in LEVELS)
        larger += ours > theirs
        print(f"{Path(name).stem:<24}{theirs:>14,}{held:>17,}{ours:>14,}{ours / theirs:>8.3f}")
    return 1 if larger else 0


def feeds_of(graph: Any) -> dict[str, Any]:
    """Return an array of zeros for every input."""
    import numpy as np

    values = (graph.values[index] for index in graph.inputs)
    return {value.name: np.zeros(value.shape, value.dtype) for value in values}


def measure(model: Path, level: str, feeds: dict[str, Any]) -> tuple[int, int]:
    """Return the bytes that ONNX Runtime needs of its arena, and those that it holds."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder, "profile"))
        session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        for _ in range(RUNS):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text())
    kernels = [
        event["args"]
        for event in sorted(events, key=lambda event: event["ts"])
        if event["cat"] == "Node" and event["name"].endswith("_kernel_time")
    ]
    per_run = len(kernels) // RUNS
    in_use = [int(kernel["mem_bytes_requested_in_use"]) for kernel in kernels]
    weights = in_use[0] - int(kernels[0]["mem_requested_in_use_delta"])
    peaks = [max(in_use[run * per_run : (run + 1) * per_run]) for run in range(RUNS)]
    held = max(int(kernel["mem_arena_held"]) for kernel in kernels)
    return min(peaks) - weights, held - weights


if __name__ == "__main__":
    sys.exit(main())
