"""
Time of imports and plans beside that of reading a model.

    python benches/planning.py MODEL.onnx ... [--rounds 7]

One line per model: CPU milliseconds of ``onnx.load`` and ``infer_shapes``, of ``ap.load``, of a
plan without scratch memory, and of one with it, each the least of alternating rounds; the last two
columns are import and plan over reading. Every plan with scratch memory is of a graph that was not
planned before, since a backend remembers the steps of a graph.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

import onnx

import arenaplan as ap


def milliseconds(work: Callable[[], object]) -> float:
    """Return the CPU time of one call."""
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1e3


def main() -> None:
    """Print one line per model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print("model                     read  import    bare scratch   bare/read scratch/read")
    for path in options.models:
        least = [inf] * 4
        for _ in range(options.rounds):
            graph = ap.load(path)
            works: list[Callable[[], object]] = [
                lambda path=path: onnx.shape_inference.infer_shapes(onnx.load(path)),
                lambda path=path: ap.load(path),
                lambda graph=graph: ap.plan(graph, workspace="none"),
                lambda graph=graph: ap.plan(graph, workspace="auto"),
            ]
            least = [
                min(known, milliseconds(work)) for known, work in zip(least, works, strict=True)
            ]
        read, imported, bare, scratch = least
        figures = "".join(f"{figure:8.1f}" for figure in least)
        ratios = f"{(imported + bare) / read:11.2f} {(imported + scratch) / read:12.2f}"
        print(f"{path.stem:22}{figures} {ratios}", flush=True)


if __name__ == "__main__":
    main()
