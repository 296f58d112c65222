"""The floors of the Python package: imports go down only, those inside of functions included."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import arenaplan

PACKAGE = Path(arenaplan.__file__).parent
BINDINGS = PACKAGE.parent / "src"

FLOORS = (
    ("_core", "base"),
    ("graph",),
    ("classic", "planner"),
    ("tflite",),
    ("deploy", "formats"),
    ("report", "run"),
    ("train",),
    ("",),
    ("cli",),
    ("__main__",),
)
"""Wings of the package, the lowest floor first; the empty name is the package itself."""
INSIDE = {
    "classic": ("planner",),
    "formats": ("deploy",),
    "deploy": ("formats",),
    "report": ("run",),
    "run": ("report",),
}
"""Wings of one floor that do not import each other either."""
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = ("arenaplan", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """Return the part of a module's name that floors have."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all that runs: everything but what is there for type checkers."""
    for child in ast.iter_child_nodes(node):
        if not is_for_types(child):
            yield child
            yield from statements(child)


def imports(path: Path, known: set[str]) -> set[str]:
    """Return the modules of the package that a file imports, anywhere in it."""
    found = set()
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
    return {name for name in found if name.split(".")[0] == "arenaplan"}


@pytest.fixture(scope="module")
def arrows() -> dict[str, set[str]]:
    """By module, those of the package that it imports."""
    known = {name_of(path) for path in modules()} | {"arenaplan._core"}
    found = {name_of(path): imports(path, known) - {name_of(path)} for path in modules()}
    assert len(found) > 100
    return found


def test_every_room_of_the_package_has_a_floor() -> None:
    assert {room_of(name_of(path)) for path in modules()} <= set(FLOOR)


def test_imports_go_down(arrows: dict[str, set[str]]) -> None:
    upward = {
        (module, other)
        for module, others in arrows.items()
        for other in others
        if room_of(module) != room_of(other)
        and FLOOR[room_of(other)] >= FLOOR[room_of(module)]
        and not (FLOOR[room_of(other)] == FLOOR[room_of(module)] and _may(module, other))
    }
    assert upward == set()


def _may(module: str, other: str) -> bool:
    """Whether rooms of one floor may import each other."""
    return room_of(other) not in INSIDE.get(room_of(module), ())


def test_no_modules_import_each_other_in_a_circle(arrows: dict[str, set[str]]) -> None:
    remaining = {module: others & set(arrows) for module, others in arrows.items()}
    while leaves := {module for module, others in remaining.items() if not others}:
        remaining = {
            module: others - leaves for module, others in remaining.items() if module not in leaves
        }
    assert remaining == {}


def test_canonical_operators_import_no_numpy() -> None:
    found = {path.name: path.read_text() for path in (PACKAGE / "graph" / "ops").glob("*.py")}
    assert len(found) > 5
    assert [name for name, text in found.items() if re.search(r"(import|from) numpy", text)] == []


def test_the_extension_imports_nothing_of_the_package_but_its_errors() -> None:
    pattern = re.compile(r'(?:\.import|import_bound|PyModule::import\w*)\(\s*(?:py,\s*)?"([^"]+)"')
    found = {
        (path.name, module)
        for path in BINDINGS.rglob("*.rs")
        for module in pattern.findall(path.read_text())
    }
    assert ("error.rs", "arenaplan.base.errors") in found  # The pattern finds what there is.
    assert {module for _, module in found} <= {"arenaplan.base.errors", "numpy"}
    for path in BINDINGS.rglob("*.rs"):
        named = set(re.findall(r'"(arenaplan\.\w[\w.]*)"', path.read_text()))
        assert named <= {"arenaplan.base.errors", "arenaplan._core"}, path
