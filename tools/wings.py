"""
The wings of the Python package: the arrows between them, derived from the code.

Usage: python tools/wings.py [--check]

Writes the table of wings in docs/design/rooms.md; with --check, the exit code is 1 if the table is
out of date.
Counted are imports of modules, in functions, for types and in stubs, and modules that are imported
by a name in a string. A name that is put together at run time may only be of the package itself.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "arenaplan"
DESIGN = ROOT / "docs" / "design" / "rooms.md"
MARK = "<!-- wings -->"
CORE = "arenaplan._core"
"""The extension, which every module may import."""
FACADE = "ap"
"""The package itself: the names that programs use, and the entries of its registries."""

MOST_WINGS, MOST_ARROWS = 13, 54


class Unreadable(Exception):
    """An import whose module cannot be read from the code."""


def sources() -> dict[str, Path]:
    """Return every module of the package, with stubs in the place of lazy names."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("arenaplan", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def wing_of(module: str) -> str:
    """Return the wing of a module; ``python -m arenaplan`` is the command line."""
    parts = module.split(".")
    wing = parts[1] if len(parts) > 1 else FACADE
    return "cli" if wing == "__main__" else wing


def imports_of(module: str, path: Path, known: Iterable[str]) -> set[str]:
    """Return the modules of the package that a module imports, anywhere in it or in its stub."""
    known = set(known)
    found: set[str] = set()
    texts = [path, *(stub for stub in (path.with_suffix(".pyi"),) if stub.exists())]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for text in texts:
        for node in ast.walk(ast.parse(text.read_text(encoding="utf-8"))):
            found.update(_imported(node, package, known))
    return {_known(name, known) for name in found if name.split(".")[0] == "arenaplan"} - {
        module,
        "",
    }


def _imported(node: ast.AST, package: str, known: set[str]) -> Iterator[str]:
    """Yield what a node of the syntax tree imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            yield inner if inner in known or inner == CORE else base
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        if name in ("import_module", "__import__"):
            yield from _named(node.args[0], package, known)
    elif (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and "." in node.value
        and node.value in known
    ):
        yield node.value  # In a table of modules that are imported later.


def _named(argument: ast.expr, package: str, known: set[str]) -> Iterator[str]:
    """Yield the modules that the argument of ``import_module`` may name."""
    text = ast.unparse(argument)
    if isinstance(argument, ast.Constant):
        yield str(argument.value)
    elif text.startswith(("f'{__name__}.", 'f"{__name__}.')):
        yield from (name for name in known if name.rpartition(".")[0] == package)
    elif isinstance(argument, ast.JoinedStr) and isinstance(argument.values[0], ast.Constant):
        prefix = str(argument.values[0].value).rpartition(".")[0]
        yield from (name for name in known if name.rpartition(".")[0] == prefix)
    elif not isinstance(argument, (ast.Name, ast.Attribute)):
        raise Unreadable(f"import_module({text})")


def _known(name: str, known: set[str]) -> str:
    """Return the module of a dotted name; an empty one for the extension."""
    if name.startswith(CORE):
        return ""
    while name not in known:
        name = name.rpartition(".")[0]
    return name


@functools.cache
def graph_of_modules() -> dict[str, set[str]]:
    """Return by module those that it imports."""
    known = sources()
    return {module: imports_of(module, path, known) for module, path in known.items()}


def graph_of_wings(modules: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return by wing those that it imports."""
    wings: dict[str, set[str]] = {wing_of(module): set() for module in modules}
    for module, others in modules.items():
        wings[wing_of(module)].update(wing_of(other) for other in others)
    return {wing: others - {wing} for wing, others in wings.items()}


def circles(arrows: Mapping[str, set[str]]) -> set[str]:
    """Return all that lie on circles, or between two of them."""
    remaining = {name: set(others) for name, others in arrows.items()}
    while True:
        ends = {name for name, others in remaining.items() if not others & remaining.keys()}
        read = {other for others in remaining.values() for other in others}
        ends |= remaining.keys() - read
        if not ends:
            return set(remaining)
        remaining = {name: others - ends for name, others in remaining.items() if name not in ends}


def levels(wings: Mapping[str, set[str]]) -> dict[str, int]:
    """Return by wing the length of the longest way down; wings must have no circle."""
    found: dict[str, int] = {}
    while len(found) < len(wings):
        for wing, others in wings.items():
            if wing not in found and others <= found.keys():
                found[wing] = max((found[other] + 1 for other in others), default=0)
    return found


def summary(wing: str) -> str:
    """Return the first line of a wing's docstring."""
    path = PACKAGE / "__init__.py" if wing == FACADE else PACKAGE / wing / "__init__.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).rstrip(".")


def table() -> str:
    """Return the table of wings, the lowest first."""
    wings = graph_of_wings(graph_of_modules())
    level = levels(wings)
    rows = ["| wing | level | content | imports |", "| --- | ---: | --- | --- |"]
    for wing in sorted(wings, key=lambda wing: (level[wing], wing)):
        imported = " ".join(f"`{other}`" for other in sorted(wings[wing])) or "none"
        rows.append(f"| `{wing}` | {level[wing]} | {summary(wing)} | {imported} |")
    arrows = sum(map(len, wings.values()))
    return (
        "\n".join(rows)
        + f"\n\n{len(wings)} wings, {max(level.values()) + 1} levels, {arrows} arrows."
    )


def main() -> None:
    """Write the table into the page of rooms, or compare it."""
    before, _, rest = DESIGN.read_text(encoding="utf-8").partition(MARK)
    _, _, after = rest.partition(MARK)
    text = f"{before}{MARK}\n\n{table()}\n\n{MARK}{after}"
    if "--check" not in sys.argv[1:]:
        DESIGN.write_text(text, encoding="utf-8")
    elif DESIGN.read_text(encoding="utf-8") != text:
        sys.exit("the table of wings in docs/design/rooms.md is out of date: run 'make wings'")


if __name__ == "__main__":
    main()
