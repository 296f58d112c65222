"""
The maps of docs/gallery.md: plans of small networks, drawn by `make site`.

Usage: python tools/gallery.py FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import maps

import arenaplan as ap


def layer(
    graph: ap.Graph, op: str, inputs: list[int], name: str, shape: tuple[int, ...], **facts: Any
) -> int:
    """Append a node with one result of this name, and return the index of the result."""
    (made,) = graph.node(op, inputs, [(name, shape, "float32")], name=name, **facts)
    assert made is not None
    return made


def attention() -> ap.Graph:
    """Return two layers of attention over 64 positions of 64 channels."""
    graph = ap.Graph("attention")
    wide, square, inner = (1, 64, 64), (1, 4, 64, 64), (1, 64, 256)
    add = {"in_place": [(0, 0), (1, 0)]}
    last = graph.input("tokens", wide)
    for n in range(2):
        q, k, v = (layer(graph, "MatMul", [last], f"{part}{n}", wide) for part in "qkv")
        made = layer(graph, "MatMul", [q, k], f"scores{n}", square)
        made = layer(graph, "Softmax", [made], f"softmax{n}", square, in_place=[(0, 0)])
        made = layer(graph, "MatMul", [made, v], f"mixed{n}", wide)
        last = layer(graph, "Add", [made, last], f"sum{n}", wide, **add)
        made = layer(graph, "MatMul", [last], f"wide{n}", inner)
        made = layer(graph, "Gelu", [made], f"gelu{n}", inner, in_place=[(0, 0)])
        made = layer(graph, "MatMul", [made], f"narrow{n}", wide)
        last = layer(graph, "Add", [made, last], f"out{n}", wide, **add)
    graph.output(last)
    return graph


def hourglass() -> ap.Graph:
    """Return a U-Net of three levels, whose skips are concatenated."""
    graph = ap.Graph("hourglass")
    last = graph.input("image", (1, 3, 64, 64))
    skips = []
    side, channels = 64, 8
    for n in range(3):
        last = layer(graph, "Conv", [last], f"down{n}", (1, channels, side, side))
        skips.append((n, last, channels, side))
        side //= 2
        last = layer(graph, "MaxPool", [last], f"pool{n}", (1, channels, side, side))
        channels *= 2
    last = layer(graph, "Conv", [last], "bottom", (1, channels, side, side))
    for n, skip, channels, side in reversed(skips):
        last = layer(graph, "Resize", [last], f"resize{n}", (1, channels * 2, side, side))
        last = layer(graph, "Concat", [last, skip], f"concat{n}", (1, channels * 3, side, side))
        last = layer(graph, "Conv", [last], f"up{n}", (1, channels, side, side))
    graph.output(last)
    return graph


def training() -> ap.Graph:
    """Return a step of training: eight layers forward and back, which may run again."""
    graph = ap.Graph("training step")
    shape = (64, 64)
    values = [graph.input("batch", shape)]
    for n in range(8):
        values.append(layer(graph, "Layer", values[-1:], f"a{n}", shape, pure=True, cost=1))
    last = values[-1]
    for n in reversed(range(8)):
        operands, facts = [last, values[n]], {"in_place": [(0, 0)], "pure": True, "cost": 1}
        last = layer(graph, "Back", operands, f"g{n}", shape, **facts)
    graph.output(last)
    return graph


def drawings() -> dict[str, str]:
    """Return, by file name, the pictures and pages of the gallery."""
    plans: dict[str, tuple[Callable[[], ap.Graph], dict[str, Any]]] = {
        "residual": (maps.network, {"optimize": "views,in-place"}),
        "attention": (attention, {}),
        "hourglass": (hourglass, {}),
        "memories": (hourglass, {"spaces": "sram=192KiB,psram=1MiB"}),
        "training": (training, {}),
        "recompute": (training, {"recompute": "50%"}),
    }
    files = {}
    for name, (make, options) in plans.items():
        graph = make()
        plan = ap.plan(graph, **options)
        report = ap.report.report_of(plan, graph.for_plan(plan))
        files[f"{name}.svg"] = ap.report.map_svg(report)
        files[f"{name}.html"] = ap.report.map_page([report])
    graph = hourglass()
    new, old = ap.plan(graph), ap.plan(graph, alignment=1, optimize="none")
    reports = [ap.report.report_of(plan, graph) for plan in (new, old)]
    labels, changes = ["all techniques", "none"], ap.diff(old, new)
    files["difference.html"] = ap.report.map_page(reports, labels=labels, changes=changes)
    return files


def main() -> None:
    """Write the files of the gallery into a folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in drawings().items():
        (folder / name).write_text(content, "utf-8")


if __name__ == "__main__":
    main()
