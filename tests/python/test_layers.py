"""The wings of the Python package: few of them, few arrows between them, and no circle."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import arenaplan

PACKAGE = Path(arenaplan.__file__).parent
BINDINGS = PACKAGE.parent / "src"
TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def wings() -> ModuleType:
    """The tool that derives wings and arrows from the code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        return importlib.import_module("wings")


@pytest.fixture(scope="module")
def modules(wings: ModuleType) -> dict[str, set[str]]:
    """By module, those of the package that it imports."""
    found: dict[str, set[str]] = wings.graph_of_modules()
    assert len(found) > 100
    return found


def test_there_are_few_wings_and_arrows(wings: ModuleType, modules: dict[str, set[str]]) -> None:
    arrows = wings.graph_of_wings(modules)
    assert {"base", "graph", "planner", "cli", wings.FACADE} < arrows.keys()
    assert len(arrows) <= wings.MOST_WINGS
    assert sum(map(len, arrows.values())) <= wings.MOST_ARROWS


def test_no_wings_import_each_other_in_a_circle(
    wings: ModuleType, modules: dict[str, set[str]]
) -> None:
    assert wings.circles(wings.graph_of_wings(modules)) == set()


def test_no_modules_import_each_other_in_a_circle(
    wings: ModuleType, modules: dict[str, set[str]]
) -> None:
    assert wings.circles(modules) == set()


def test_a_name_of_a_file_or_a_type_is_there_once() -> None:
    files, types = Counter[str](), Counter[str]()
    for path in PACKAGE.rglob("*.py"):
        files[path.stem] += 1
        types.update(re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.MULTILINE))
    assert len(types) > 400
    assert [name for name, count in files.items() if count > 1] == ["__init__"]
    assert [name for name, count in types.items() if count > 1] == []


IMPORTS = {
    "from arenaplan.graph import effects": {"arenaplan.graph.effects"},
    "def f():\n    import arenaplan.graph.effects": {"arenaplan.graph.effects"},
    "if TYPE_CHECKING:\n    from arenaplan.graph.effects import View": {"arenaplan.graph.effects"},
    "import_module('arenaplan.graph.effects').View": {"arenaplan.graph.effects"},
    "TABLE = {'view': ('arenaplan.graph.effects', 'View')}": {"arenaplan.graph.effects"},
    "import_module(f'arenaplan.graph.{name}')": {
        "arenaplan.graph.effects",
        "arenaplan.graph.values",
    },
    "import_module(f'{__name__}.{name}')": {"arenaplan.base.close"},
    "from arenaplan import _core": set(),
    "import numpy": set(),
}
"""Imports in the module ``arenaplan.base``, and the modules that they may import."""


@pytest.mark.parametrize("text", IMPORTS)
def test_imports_of_every_kind_are_seen(text: str, wings: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "__init__.py"
    path.write_text(text)
    known = {"arenaplan", *(name for names in IMPORTS.values() for name in names)}
    assert wings.imports_of("arenaplan.base", path, known) == IMPORTS[text]


def test_names_in_a_stub_are_imports(wings: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "__init__.py"
    path.write_text("")
    path.with_suffix(".pyi").write_text("from .close import closest")
    found = wings.imports_of("arenaplan.base", path, {"arenaplan", "arenaplan.base.close"})
    assert found == {"arenaplan.base.close"}


def test_an_import_whose_module_is_computed_is_refused(wings: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("import_module('arenaplan.' + name)")
    with pytest.raises(wings.Unreadable):
        wings.imports_of("arenaplan.base.module", path, {"arenaplan"})


def test_circles_are_found(wings: ModuleType) -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}
    assert wings.circles(arrows) == {"b", "c"}
    assert wings.circles({"a": {"b"}, "b": set()}) == set()


def test_names_of_files_occur_once() -> None:
    heads = ("__init__.py", "__main__.py")
    names = Counter(path.name for path in PACKAGE.rglob("*.py") if path.name not in heads)
    assert len(names) > 300
    assert [name for name, count in names.items() if count > 1] == []


def test_folders_are_at_most_three_below_the_package() -> None:
    depths = {len(path.relative_to(PACKAGE).parts) - 1 for path in PACKAGE.rglob("*.py")}
    assert max(depths) == 3


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
    assert {module for _, module in found} <= {"arenaplan.base.errors", "atexit", "numpy"}
    for path in BINDINGS.rglob("*.rs"):
        named = set(re.findall(r'"(arenaplan\.\w[\w.]*)"', path.read_text()))
        assert named <= {"arenaplan.base.errors", "arenaplan._core"}, path
