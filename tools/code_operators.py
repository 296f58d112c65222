"""
Regenerate the list of operators of generated code in docs/code.md.

Usage: python tools/code_operators.py [--check]

With --check nothing is written; the exit code is 1 if the list is out of date.
"""

import sys
from pathlib import Path
from textwrap import fill

from arenaplan.deploy.code.code_steps import DOMAINS

PAGE = Path(__file__).parents[1] / "docs" / "code.md"
MARK = "<!-- code operators -->\n"


def main() -> None:
    """Write the list, or compare it."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, after = text.split(MARK)
    lists = [
        fill(f"{kind}: {', '.join(f'`{name}`' for name in sorted(DOMAINS[domain]))}.", 130)
        for kind, domain in (("TFLite", "tflite"), ("ONNX", ""))
    ]
    fresh = f"{before}{MARK}\n{lists[0]}\n\n{lists[1]}\n\n{MARK}{after}"
    if "--check" in sys.argv[1:]:
        sys.exit(f"{PAGE.name} is out of date: run {sys.argv[0]}" if fresh != text else 0)
    PAGE.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
