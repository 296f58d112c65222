"""
Regenerate the tables and the picture of docs/comparison.md.

Usage: python tools/figures.py [--check] [MODEL ...]

With --check nothing is written; the exit code is 1 if a row differs. With names of models, only
their rows are compared. Models are the light ones of the onnx package and networks of
`benches/time_models.py`; ONNX Runtime is measured by `benches/peers.py`, and its column belongs to
the version that the page names. Ten seconds of CPU time.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import onnx

import arenaplan as ap

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "comparison.md"
PICTURE = ROOT / "docs" / "comparison.svg"
sys.path.insert(0, str(ROOT / "benches"))

import time_models  # noqa: E402

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
OWN = (
    "bert_6", "vit_s", "llama_mini", "convnext_small", "residual_small", "inverted_small",
    "dense_small", "unet_small", "branches_small",
)  # fmt: skip


class Planned(NamedTuple):
    """Bytes of one model by planner; graph inputs and outputs are inside."""

    naive: int
    nnvm: int
    tflite_2019: int
    tflite: int
    same: int
    nodes: int
    every: int


class Measured(NamedTuple):
    """Bytes of one model without its inputs."""

    onnx_runtime: int
    held: int
    nodes: int
    every: int


PLANNED = (
    "no reuse", "NNVM, TVM", "TFLite 2019", "TFLite today",
    "views and in place", "one node per step", "every technique",
)  # fmt: skip
MEASURED = ("ONNX Runtime", "held by its arena", "one node per step", "every technique")


def models() -> list[str]:
    """Return the names of all models."""
    return [*sorted(path.stem for path in LIGHT.glob("light_*.onnx")), *OWN]


def file_of(name: str, folder: Path) -> Path:
    """Return the file of a model, which is written to ``folder`` if there is none."""
    path = LIGHT / f"{name}.onnx"
    if name in OWN:
        path = folder / f"{name}.onnx"
        onnx.save_model(time_models.MODELS[name](), path)
    return path


def incremental(graph: ap.Graph, mode: Any) -> int:
    """Return the arena of TensorFlow Lite's planner, which may write over inputs here."""
    planner = ap.classic.IncrementalPlanner.from_graph(graph.core, mode=mode, preserve_inputs=False)
    planner.execute(0, len(graph.nodes))
    return planner.arena_bytes.temporary + planner.arena_bytes.persistent


def planned(path: Path) -> Planned:
    """Plan one model with every planner."""
    graph = ap.load(path)
    same = ap.plan(graph, target="nodes", optimize="views,in-place")
    assert same.naive_bytes is not None
    return Planned(
        same.naive_bytes,
        ap.classic.share_storage(graph, mode="nnvm", size_rule="elements_x4").allocated_bytes,
        incremental(graph, "tflite-2019"),
        incremental(graph, "litert"),
        same.arena_bytes,
        ap.plan(graph, target="nodes").arena_bytes,
        ap.plan(graph, target="ideal").arena_bytes,
    )


def measured(path: Path) -> Measured:
    """Run one model in ONNX Runtime, and plan it with inputs in memory of the caller."""
    import peers

    graph = ap.load(path)
    feeds = peers.feeds_of(graph)
    theirs, held = min(peers.measure(path, level, feeds) for level in peers.LEVELS)
    nodes, every = (
        ap.plan(graph, target=target, inputs="caller").arena_bytes for target in ("nodes", "ideal")
    )
    return Measured(theirs, held, nodes, every)


def means(rows: list[Any], base: str) -> list[float]:
    """Return the geometric mean of each column in relation to the column ``base``."""
    at = rows[0]._fields.index(base)
    return [
        math.exp(math.fsum(math.log(row[column] / row[at]) for row in rows) / len(rows))
        for column in range(len(rows[0]))
    ]


def table(head: tuple[str, ...], rows: dict[str, Any], base: str) -> Iterator[str]:
    """Yield the lines of a table, with geometric means below."""
    yield f"| model | {' | '.join(head)} |"
    yield f"| --- |{' ---: |' * len(head)}"
    for name, row in rows.items():
        yield line(name, row)
    mean = " | ".join(f"{mean:.2f}" for mean in means(list(rows.values()), base))
    yield f"| geometric mean of ratios | {mean} |"


def line(name: str, row: Any) -> str:
    """Return the row of a model."""
    return f"| {name} | {' | '.join(f'{size:,}' for size in row)} |"


def bars(labels: tuple[str, ...], sizes: list[float]) -> str:
    """Return a drawing of ratios as bars."""
    left, unit, step = 150, 420 / max(sizes), 26
    height = step * len(sizes) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {height}" width="640" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="12" role="img">',
        "<title>Bytes in relation to one node per step, geometric mean</title>",
        f'<rect width="640" height="{height}" fill="#ffffff"/>',
    ]
    for row, (label, size) in enumerate(zip(labels, sizes, strict=True)):
        top = 10 + row * step
        ours = label in PLANNED[-3:]
        lines += [
            f'<text x="{left - 8}" y="{top + 14}" text-anchor="end" fill="#222222">{label}</text>',
            f'<rect x="{left}" y="{top}" width="{size * unit:.1f}" height="{step - 7}" '
            f'fill="{"#3f51b5" if ours else "#9e9e9e"}"/>',
            f'<text x="{left + size * unit + 6:.1f}" y="{top + 14}" fill="#222222">'
            f"{size:.2f}</text>",
        ]
    return "\n".join([*lines, "</svg>", ""])


def put(page: str, name: str, lines: list[str]) -> str:
    """Return a page with other lines between its marks ``name``."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    before, rest = page.split(begin)
    return before + begin + "".join(f"{line}\n" for line in lines) + end + rest.split(end)[1]


def check(names: list[str], *, runtime: bool) -> list[str]:
    """Return the rows of models that are not on the page."""
    lines = set(PAGE.read_text("utf-8").splitlines())
    fresh = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = file_of(name, Path(folder))
            fresh += [line(name, planned(path))]
            fresh += [line(name, measured(path))] if runtime else []
    return [row for row in fresh if row not in lines]


def main() -> None:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    if options.check or options.models:
        wrong = check(options.models or models(), runtime=True)
        sys.exit("\n".join(["other rows than on the page:", *wrong]) if wrong else 0)
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        paths = {name: file_of(name, Path(folder)) for name in models()}
        by_planner = {name: planned(path) for name, path in paths.items()}
        by_runtime = {name: measured(path) for name, path in paths.items()}
    page = PAGE.read_text("utf-8")
    page = put(page, "planned", list(table(PLANNED, by_planner, "nodes")))
    page = put(page, "measured", list(table(MEASURED, by_runtime, "nodes")))
    version = f"ONNX Runtime {onnxruntime.__version__}, onnx {onnx.__version__}."
    PAGE.write_text(put(page, "versions", [version]), "utf-8")
    sizes = means(list(by_planner.values()), "nodes")
    PICTURE.write_text(bars(PLANNED[1:], sizes[1:]), "utf-8")


if __name__ == "__main__":
    main()
