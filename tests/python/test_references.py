"""References of comments, docstrings and documents: dead ones are found, and there are none."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def references() -> ModuleType:
    """The tool that resolves references."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        return importlib.import_module("references")


DEAD = {
    "page.md": [
        ("# A page\n\nSee `src/planner/gone.rs`.", 3, "src/planner/gone.rs"),
        ("`gone_module.py` is not a file", 1, "gone_module.py"),
        ("the room `src/gone`", 1, "src/gone"),
        ("the folder `gone_folder/`", 1, "gone_folder/"),
        ("`arenaplan.graph.gone.Graph`", 1, "arenaplan.graph.gone.Graph"),
    ],
    "module.py": [
        (
            '"""Head.\n\nSee :mod:`arenaplan.formats.onnx.gone`."""',
            3,
            "arenaplan.formats.onnx.gone",
        ),
        ("x = 1  # as in `graph/gone.py`", 1, "graph/gone.py"),
        ('def f():\n    """Return :class:`arenaplan.Gone`."""', 2, "arenaplan.Gone"),
    ],
    "room.rs": [
        ("//! See `check/gone.rs`.", 1, "check/gone.rs"),
        ("fn f() {} // as `solve/gone.rs`", 1, "solve/gone.rs"),
    ],
}
"""By name of a file, texts with the line and the name of a dead reference."""


@pytest.mark.parametrize(
    ("file", "text", "line", "name"),
    [(file, *row) for file, rows in DEAD.items() for row in rows],
)
def test_a_dead_reference_is_found(
    file: str, text: str, line: int, name: str, references: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.write_text(text)
    found = [(dead.line, dead.name) for dead in references.dead_references(path)]
    assert found == [(line, name)]


ALIVE = {
    "page.md": "`src/planner/mod.rs`, `src/choose/fuse`, `graph/ops`, `test_references.py`,"
    " `exact/moves.rs`, `tests/python/`, `arenaplan.Graph`, `arenaplan.graph.costs`,"
    " `int8/uint8`, `plan.json`, `target/site`"
    "\n```python\n`src/gone.rs`\n```\n",
    "module.py": 'x = "`src/gone.rs`"  # :class:`arenaplan.Graph`\n',
    "room.rs": 'const X: &str = "`src/gone.rs`"; // `pack/src/problem.rs`\n',
}
"""Texts whose references lead somewhere; strings and code of examples are not references."""


@pytest.mark.parametrize("file", ALIVE)
def test_references_that_lead_somewhere_are_not_listed(
    file: str, references: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.write_text(ALIVE[file])
    assert list(references.dead_references(path)) == []


def test_the_tool_fails_on_a_dead_reference(
    references: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page.md").write_text("`src/gone.rs`")
    monkeypatch.setattr(references, "files", lambda: [tmp_path / "page.md"])
    with pytest.raises(SystemExit, match=r"page\.md:1: `src/gone\.rs` does not exist\n1 dead"):
        references.main()
