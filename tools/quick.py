"""
Check what changed since the last commit: lints, types, and the tests that the change can break.

Usage: python tools/quick.py [--list]

Run are, for changed and new files: ruff and mypy; ``cargo check`` and the unit tests of their
crates; the integration tests of the core in changed files; Python tests that changed, or that
import a changed module or helper. With --list, commands are printed and not run. The extension is
not built: after a change of Rust that Python tests need, run ``make develop`` first.
"""

from __future__ import annotations

import ast
import functools
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "python"
CRATES = {
    "src": "arenaplan",
    "pack": "arenaplan-pack",
    "classic": "arenaplan-classic",
    "kernels": "arenaplan-kernels",
    "engine": "arenaplan-engine",
    "capi": "arenaplan-capi",
    "python": "arenaplan-python",
    "tests": "arenaplan",
}
"""By first folder of a Rust file, the crate."""
UNTESTED = "arenaplan-python"
"""The extension, whose tests are those of Python."""


def changed() -> list[str]:
    """Return the files that differ from the last commit, and those that git does not know yet."""
    lists = (
        ["git", "diff", "--name-only", "--diff-filter=d", "HEAD"],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    found = (subprocess.check_output(command, cwd=ROOT, text=True) for command in lists)
    return sorted({name for text in found for name in text.splitlines()})


@functools.cache
def modules_of(path: Path) -> set[str]:
    """Return the modules that a Python file imports, and the names that it takes of them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def module_of(name: str) -> str:
    """Return the module of a Python file of the package or of the tests."""
    parts = PurePosixPath(name).with_suffix("").parts
    parts = parts[1:] if parts[0] == "python" else parts[-1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tests_of(names: Iterable[str]) -> list[str]:
    """Return the test files that changed, or that import what changed."""
    names = {name for name in names if name.startswith(("python/arenaplan/", "tests/python/"))}
    modules = {module_of(name) for name in names if name.endswith(".py")}
    found = []
    for path in sorted(TESTS.glob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name in names or modules & modules_of(path):
            found.append(name)
    return found


def commands(names: list[str]) -> Iterator[list[str]]:
    """Yield the commands that check changed files, the fastest first."""
    python = [name for name in names if name.endswith(".py")]
    rust = [name for name in names if name.endswith(".rs")]
    if python:
        yield ["ruff", "format", "--check", *python]
        yield ["ruff", "check", *python]
        yield ["mypy", *python]
    if rust:
        yield ["cargo", "fmt", "--all", "--check"]
        crates = sorted({CRATES[top] for name in rust if (top := name.split("/")[0]) in CRATES})
        packages = [option for crate in crates for option in ("--package", crate)]
        if packages:
            yield ["cargo", "check", "--locked", *packages]
        tested = [
            option for crate in crates if crate != UNTESTED for option in ("--package", crate)
        ]
        if tested:
            yield ["cargo", "test", "--locked", "--lib", *tested]
        for name in rust:
            if name.startswith("tests/it/"):
                module = PurePosixPath(name).relative_to("tests/it").with_suffix("").parts[0]
                yield ["cargo", "test", "--locked", "--test", "it", f"{module}::"]
    if tests := tests_of(names):
        yield ["python", "-m", "pytest", "-q", "-x", "--numprocesses", "0", *tests]


def main() -> None:
    """Run the commands; end with the code of the first that fails."""
    programs = Path(sys.executable).parent
    for command in commands(changed()):
        print(shlex.join(command), flush=True)
        if "--list" not in sys.argv[1:]:
            own = programs / command[0]
            code = subprocess.call([own if own.exists() else command[0], *command[1:]], cwd=ROOT)
            if code:
                sys.exit(code)


if __name__ == "__main__":
    main()
