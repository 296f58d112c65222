"""
The line budget: code lines of each room and wing, which may only fall.

Usage: python tools/lines.py [--update]

Exits with 1 if a room has more code lines than its budget in ``tools/lines.toml``, is not in that
file, or is in the file and gone. With --update, budgets fall to the numbers of today and new rooms
get theirs; no budget rises. To raise one, edit the file, and say in the commit what the lines earn.

A code line holds a token that is not a comment or a docstring. Not counted are items of Rust under
``#[cfg(test)]``. A room is a folder in the source folder of a crate, a wing one in the Python
package; the files beside them are a room together, ``*``. Stubs (``.pyi``) are not counted.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGETS = ROOT / "tools" / "lines.toml"
CRATES = ("src", "pack/src", "classic/src", "kernels/src", "engine/src", "capi/src", "python/src")
PACKAGE = "python/arenaplan"

_RUST = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<raw>b?c?r(?P<hashes>\#*)".*?"(?P=hashes))
    |(?P<string>b?c?"(?:\\.|[^"\\])*")
    |(?P<char>b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^'\\])')""",
    re.DOTALL | re.VERBOSE,
)
_TEST = re.compile(r"#\[cfg\(test\)\]")


def rust_lines(text: str) -> int:
    """Return the code lines of a Rust file."""
    code = _RUST.sub(lambda match: _blank(match[0], keep=match["comment"] is None), text)
    while test := _TEST.search(code):
        end = _end_of_item(code, test.end())
        code = code[: test.start()] + _blank(code[test.start() : end]) + code[end:]
    return sum(1 for line in code.splitlines() if line.strip())


def _blank(text: str, *, keep: bool = False) -> str:
    """Return text of as many lines, with something in each that is not blank to ``keep`` them."""
    return "\n".join("x" if keep and line.strip() else "" for line in text.split("\n"))


def _end_of_item(code: str, start: int) -> int:
    """Return where the item that begins at ``start`` ends: behind a semicolon or its braces."""
    depth = 0
    for at in range(start, len(code)):
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        if depth == 0 and code[at] in ";}":
            return at + 1
    return len(code)


def python_lines(text: str) -> int:
    """Return the code lines of a Python file."""
    lines: set[int] = set()
    plain = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (*plain, tokenize.ENDMARKER):
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def counted() -> dict[str, int]:
    """Return the code lines of every room and wing."""
    lines: Counter[str] = Counter()
    for folder in (*CRATES, PACKAGE):
        suffix, count = (".py", python_lines) if folder == PACKAGE else (".rs", rust_lines)
        for path in sorted((ROOT / folder).rglob(f"*{suffix}")):
            room, *below = path.relative_to(ROOT / folder).parts
            lines[f"{folder}/{room if below else '*'}"] += count(path.read_text(encoding="utf-8"))
    return dict(lines)


def faults(lines: dict[str, int], budgets: dict[str, int]) -> Iterator[str]:
    """Yield what is wrong with rooms beside their budgets."""
    for room in sorted(lines.keys() | budgets.keys()):
        if room not in budgets:
            yield f"{room} has no budget: run 'python tools/lines.py --update'"
        elif room not in lines:
            yield f"{room} is gone: run 'python tools/lines.py --update'"
        elif lines[room] > budgets[room]:
            yield (
                f"{room} has {lines[room]} code lines, {lines[room] - budgets[room]} above its"
                f" budget of {budgets[room]}: remove lines, or raise the budget in tools/lines.toml"
            )


def lowered(lines: dict[str, int], budgets: dict[str, int]) -> dict[str, int]:
    """Return budgets of the rooms that there are, none higher than before."""
    return {room: min(count, budgets.get(room, count)) for room, count in lines.items()}


def main() -> None:
    """Compare the rooms with their budgets, or lower the budgets."""
    lines = counted()
    budgets = tomllib.loads(BUDGETS.read_text(encoding="utf-8")) if BUDGETS.exists() else {}
    if "--update" in sys.argv[1:]:
        rows = (f'"{room}" = {count}\n' for room, count in sorted(lowered(lines, budgets).items()))
        head = "# Most code lines of each room and wing; `python tools/lines.py` compares.\n"
        BUDGETS.write_text(head + "".join(rows), encoding="utf-8")
    elif found := list(faults(lines, budgets)):
        sys.exit("\n".join(found))
    else:
        print(f"{sum(lines.values())} code lines, {sum(budgets.values())} allowed")


if __name__ == "__main__":
    main()
