"""
Bytes of quantized models beside those of the models that they were made from.

``python benches/quantized.py FLOAT.onnx QUANTIZED.onnx ...``: pairs of files.
"""

from __future__ import annotations

import sys

import arenaplan as ap


def needed(path: str) -> tuple[int, int, int]:
    """Return bytes of values alone, those with the caller's inputs outside, and with scratch."""
    graph = ap.load(path)
    ideal = ap.plan(graph, target="ideal")
    inside = ap.plan(graph, target="ideal", inputs="caller", outputs="caller")
    return ideal.arena_bytes, inside.arena_bytes, ap.plan(graph).arena_bytes


def main(paths: list[str]) -> None:
    """Print a row per pair of files."""
    print("| model | values | of float | inputs outside | of float | with scratch | of float |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for wide, narrow in zip(paths[::2], paths[1::2], strict=True):
        before, after = needed(wide), needed(narrow)
        cells = [
            f"{now:,} | {now / max(was, 1):.3f}" for was, now in zip(before, after, strict=True)
        ]
        print(f"| {narrow.rsplit('/', 1)[-1]} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
