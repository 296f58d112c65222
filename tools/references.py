"""
References in comments, docstrings and documents: each must name something that exists.

Usage: python tools/references.py

Exits with 1 and a list of dead references. Resolved are, in documents, in comments of Rust and in
comments and docstrings of Python:

- paths in backticks: from the root, from the folder of the text or a folder above it, from the
  source folder of a crate, or from the Python package;
- dotted names in backticks that begin with ``arenaplan.``, those after ``:mod:``, ``:func:`` and
  their like among them.

Links of documents are followed by ``tests/python/test_links.py``, links of Rust by rustdoc.
"""

from __future__ import annotations

import ast
import importlib
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python"
FOLDERS = (
    *("src", "pack", "classic", "kernels", "engine", "capi", "python", "fuzz", "tests"),
    *("benches", "tools", "examples", "docs"),
)
CRATES = ("", "pack", "classic", "kernels", "engine", "capi", "python")
BASES = [ROOT, PACKAGE, PACKAGE / "arenaplan", ROOT / "tests" / "python", ROOT / "capi"]
BASES += [ROOT / crate / "src" for crate in CRATES] + [ROOT / "pack" / "src" / "solve"]
"""Folders that a path in a text may begin in."""
HISTORY = ROOT / "benches" / "log"
"""Reports of past measurements, which name the files of their day."""
ELSEWHERE = (
    *("target/", "dist/", "fuzz/corpus/"),
    *("models/model.json", "orttraining/", "src/storage/pooled_storage_manager.h"),
)
"""Beginnings of paths that exist after a build, or in files and sources of other projects."""
DOMAIN = "arenaplan.training"
"""The name under which ONNX graphs have operators of our own."""

_PATH = re.compile(
    r"`([\w-][\w.-]*(?:/[\w.*-]+)*(?:/|\.(?:pyi?|rs|js|hpp)))`"  # a folder, or a source file
    r"|`([\w-][\w.-]*(?:/[\w.*-]+)+)`"  # two or more parts
)
_NAME = re.compile(r"`[~!]{0,2}(arenaplan(?:\.\w+)+)(?:\([^`]*\))?`")
_FILE = re.compile(r"arenaplan\.(?:h|hpp|toml|py)")
_RUST = re.compile(r"^\s*//[/!]?(.*)$|\s//\s(.*)$", re.MULTILINE)
_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)


class Dead(NamedTuple):
    """A reference that leads nowhere."""

    file: Path
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: `{self.name}` does not exist"


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments, docstrings or prose of a file, with their first lines."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        # Code keeps its lines, and none of its words.
        yield 1, _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
    elif path.suffix == ".rs":
        for match in _RUST.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, (match[1] or match[2] or "")
    else:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                yield node.lineno, str(node.value.value)


@cache
def _file_names() -> frozenset[str]:
    """Return the names of all files and folders that belong to the project."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    return frozenset(FOLDERS) | {path.name for path in found if "target" not in path.parts}


def path_exists(name: str, file: Path) -> bool:
    """Whether a path names a file or folder, as a text in ``file`` may write it."""
    if name.startswith(ELSEWHERE):
        return True
    if "/" not in name.rstrip("/"):
        return name.rstrip("/") in _file_names()
    above = [parent for parent in file.parents if parent == ROOT or ROOT in parent.parents]
    bases = [base for base in (*above, *BASES) if (base / name.split("/")[0]).is_dir()]
    if not bases and not Path(name).suffix and not name.endswith("/"):
        return True  # Two words with a stroke between them.
    return any(any(base.glob(name.rstrip("/") + end)) for base in bases for end in ("", ".*"))


@cache
def name_exists(name: str) -> bool:
    """Whether a dotted name of the package is a module, or something in a module."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        module = PACKAGE.joinpath(*parts[:count])
        if module.is_dir() or any(
            module.with_suffix(suffix).exists() for suffix in (".py", ".pyi")
        ):
            return _has(importlib.import_module(".".join(parts[:count])), parts[count:])
    return False


def _has(found: object, names: list[str]) -> bool:
    """Whether an object has an attribute, that one has the next one, and so on."""
    for name in names:
        if name in getattr(found, "__annotations__", {}):
            return True
        try:
            found = getattr(found, name)
        except (AttributeError, ImportError):
            return False
    return True


def _resolved(name: str, path: Path, *, is_path: bool) -> bool:
    """Whether a reference in a file leads somewhere."""
    if is_path:
        return path_exists(name, path)
    return name == DOMAIN or _FILE.fullmatch(name) is not None or name_exists(name)


def dead_references(path: Path) -> Iterator[Dead]:
    """Yield the references of a file that lead nowhere."""
    shown = path.relative_to(ROOT) if ROOT in path.parents else path
    for first, text in texts(path):
        for pattern in (_PATH, _NAME):
            for match in pattern.finditer(text):
                name = next(filter(None, match.groups()))
                if not _resolved(name, path, is_path=pattern is _PATH):
                    yield Dead(shown, first + text.count("\n", 0, match.start()), name)


def files() -> list[Path]:
    """Return the files whose references are resolved."""
    kinds = ("*.md", "*.py", "*.rs")
    found = [path for name in FOLDERS for kind in kinds for path in (ROOT / name).rglob(kind)]
    found += [*ROOT.glob("*.md")]
    skipped = {"target", "node_modules", "__pycache__"}
    return sorted(
        path
        for path in found
        if not skipped & set(path.relative_to(ROOT).parts) and HISTORY not in path.parents
    )


def main() -> None:
    """Print the dead references, and exit with 1 if there are any."""
    found = files()
    dead = [reference for path in found for reference in dead_references(path)]
    if dead:
        sys.exit("\n".join(map(str, dead)) + f"\n{len(dead)} dead references")
    print(f"references of {len(found)} files are resolved")


if __name__ == "__main__":
    main()
