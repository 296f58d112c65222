"""
Regenerate the tables of targets and of measured arenas in README.md.

Usage: python tools/readme.py [--check]

With --check nothing is written; the exit code is 1 if a table is out of date. The
models are the light ones that the onnx package ships for its own tests.
"""

import sys
from pathlib import Path

import onnx

import arenaplan as ap

README = Path(__file__).parents[1] / "README.md"
MODELS = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def targets() -> str:
    """Return the table of all targets, a row each."""
    rows = ["| target | plans for | honors |\n", "| --- | --- | --- |\n"]
    every = max(len(target.techniques) for target in ap.targets())
    for target in ap.targets():
        names = ", ".join(target.techniques)
        honored = "every technique" if len(target.techniques) == every else names
        rows.append(f"| `{target.name}` | {target.summary} | {honored} |\n")
    return "".join(rows)


def measured() -> str:
    """Plan every model and return the table of arenas."""
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


def with_table(text: str, name: str, table: str) -> str:
    """Return the text with a table between the two marks of that name."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return before + begin + table + end + after


def main() -> None:
    """Write the tables, or compare them."""
    text = README.read_text()
    fresh = with_table(with_table(text, "targets", targets()), "measured", measured())
    if "--check" not in sys.argv:
        README.write_text(fresh)
    elif fresh != text:
        sys.exit("a table in README.md is out of date: run 'make readme'")


if __name__ == "__main__":
    main()
