"""
Draw the picture of docs/maps.md again: the plan of a small residual network.

Usage: python tools/maps.py [--check]

With --check nothing is written; the exit code is 1 if the picture is out of date.
"""

import sys
from pathlib import Path

import arenaplan as ap

PICTURE = Path(__file__).parents[1] / "docs" / "maps.svg"


def network() -> ap.Graph:
    """Return two residual blocks and a classifier."""
    graph = ap.Graph("residual")
    last = graph.input("image", (1, 3, 32, 32))

    def node(
        op: str, inputs: list[int], name: str, shape: tuple[int, ...], **effects: object
    ) -> int:
        (made,) = graph.node(op, inputs, [(name, shape, "float32")], name=name, **effects)  # type: ignore[arg-type]
        assert made is not None
        return made

    last = node("Conv", [last], "stem", (1, 16, 32, 32), workspaces=[[(27 * 4 * 256, 0.0)]])
    for block, (channels, side) in enumerate([(16, 32), (32, 16)]):
        shape = (1, channels, side, side)
        skip = last if block == 0 else node("Conv", [last], "project", shape)
        inner = node("Conv", [last], f"conv{block}a", shape)
        inner = node("Relu", [inner], f"relu{block}a", shape, in_place=[(0, 0)])
        inner = node("Conv", [inner], f"conv{block}b", shape)
        last = node("Add", [inner, skip], f"add{block}", shape, in_place=[(0, 0), (1, 0)])
    last = node("GlobalAveragePool", [last], "pool", (1, 32))
    graph.output(node("Gemm", [last], "logits", (1, 10)))
    return graph


def main() -> None:
    """Write the picture, or compare it."""
    graph = network()
    plan = ap.plan(graph, optimize="views,in-place")
    fresh = ap.report.map_svg(ap.report.report_of(plan, graph))
    if "--check" not in sys.argv:
        PICTURE.write_text(fresh, encoding="utf-8")
    elif PICTURE.read_text(encoding="utf-8") != fresh:
        sys.exit("docs/maps.svg is out of date: run 'make maps'")


if __name__ == "__main__":
    main()
