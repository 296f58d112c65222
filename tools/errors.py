"""
Regenerate docs/errors.md: every kind of error with its cause, its cure and its exit code.

Usage: python tools/errors.py [--check]

With --check nothing is written; the exit code is 1 if the page is out of date. The file
python/arenaplan/base/errors.toml has the kinds.
"""

import sys
from pathlib import Path

from arenaplan.base import errors
from arenaplan.cli import exit_code

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"

HEAD = """# Errors: causes and cures

Every error that arenaplan raises on purpose derives from `ap.PlannerError` and names the value,
node or field at fault in its message. `error.kind` is the name in the first column; a class of
`ap.errors` stands for the kinds that callers treat alike, and `error.cure` is the cure. The Rust
core has a variant named like the kind. The command line prints kind, message and cure on stderr,
and exits with the code in the last column.

This page is made by `make errors`.

| kind | class | cause | cure | exit |
| --- | --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page."""
    rows = []
    for name, kind in errors.kinds().items():
        code = exit_code(kind.of("", kind=name))
        rows.append(f"| `{name}` | `{kind.of.__name__}` | {kind.cause} | {kind.cure} | {code} |")
    return HEAD + "\n".join(rows) + "\n"


def main() -> None:
    """Write the page, or compare it."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit("docs/errors.md is out of date: run 'make errors'")


if __name__ == "__main__":
    main()
