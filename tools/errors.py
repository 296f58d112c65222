"""
Regenerate docs/errors.md: every error with its cause, its cure and its exit code.

Usage: python tools/errors.py [--check]

With --check nothing is written; the exit code is 1 if the page is out of date. Causes are the
docstrings of the classes, cures those of arenaplan.base.cures.
"""

import inspect
import re
import sys
from pathlib import Path

from arenaplan.base import errors
from arenaplan.base.cures import CURES
from arenaplan.cli import exit_code

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"

HEAD = """# Errors: causes and cures

Every error that arenaplan raises on purpose is a class of `arenaplan.base.errors`, derives from
`PlannerError`, and names the value, node or field at fault in its message. The Rust core has a
variant of the same name for each of its errors. The command line prints class and message on
stderr, with `--verbose` also the cure, and exits with the code in the last column. A class catches
those whose "is a" names it.

This page is made by `make errors`.

| error | is a | cause | cure | exit |
| --- | --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page."""
    rows = []
    for name, found in vars(errors).items():
        if not (inspect.isclass(found) and issubclass(found, errors.PlannerError)):
            continue
        parents = ", ".join(f"`{base.__name__}`" for base in found.__bases__)
        summary = inspect.cleandoc(found.__doc__ or "").partition("\n\n")[0]
        cause = re.sub(r":class:`(\w+)`", r"`\1`", " ".join(summary.split())).replace("``", "`")
        code = exit_code(found(""))
        rows.append(f"| `{name}` | {parents} | {cause} | {CURES[name]} | {code} |")
    return HEAD + "\n".join(rows) + "\n"


def main() -> None:
    """Write the page, or compare it."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit("docs/errors.md is out of date: run 'make errors'")


if __name__ == "__main__":
    main()
