"""
Regenerate the table of measured arenas in README.md.

Usage: python tools/readme.py [--check]

With --check nothing is written; the exit code is 1 if the table is out of date. The
models are the light ones that the onnx package ships for its own tests.
"""

import sys
from pathlib import Path

import onnx

import arenaplan as ap

README = Path(__file__).parents[1] / "README.md"
MODELS = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"


def table() -> str:
    """Plan every model and return the rows."""
    rows = [
        "| model | naive | views only | and in place | every technique | status |\n",
        "| --- | ---: | ---: | ---: | ---: | --- |\n",
    ]
    for path in sorted(MODELS.glob("light_*.onnx")):
        graph = ap.load(path)
        plans = [
            ap.plan(graph, optimize=names, target="ideal")
            for names in ("views", "views,in-place", "all")
        ]
        sizes = " | ".join(f"{plan.arena_bytes:,}" for plan in plans)
        rows.append(f"| {path.stem} | {plans[0].naive_bytes:,} | {sizes} | {plans[-1].status} |\n")
    return "".join(rows)


def main() -> None:
    """Write the table, or compare it."""
    text = README.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    fresh = before + BEGIN + table() + END + after
    if "--check" not in sys.argv:
        README.write_text(fresh)
    elif fresh != text:
        sys.exit("the table in README.md is out of date: run 'make readme'")


if __name__ == "__main__":
    main()
