"""``make quick``: what changed decides what runs."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def quick() -> ModuleType:
    """The tool that runs what changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        return importlib.import_module("quick")


def test_tests_that_import_a_changed_module_run(quick: ModuleType) -> None:
    found = quick.tests_of(["python/arenaplan/base/errors.py"])
    assert "tests/python/test_docs.py" in found
    assert "tests/python/test_quick.py" not in found


def test_tests_that_import_a_changed_helper_run(quick: ModuleType) -> None:
    assert "tests/python/test_docs.py" in quick.tests_of(["tests/python/snippets.py"])


def test_a_changed_test_runs(quick: ModuleType) -> None:
    found = quick.tests_of(["tests/python/test_quick.py"])
    assert found == ["tests/python/test_quick.py"]


@pytest.mark.parametrize(
    ("name", "crate"),
    [
        ("src/check/mod.rs", "arenaplan"),
        ("pack/src/bound.rs", "arenaplan-pack"),
        ("python/src/lib.rs", "arenaplan-python"),
    ],
)
def test_the_crate_of_a_changed_rust_file_is_checked_and_tested(
    name: str, crate: str, quick: ModuleType
) -> None:
    commands = list(quick.commands([name]))
    assert ["cargo", "check", "--locked", "--package", crate] in commands
    tested = ["cargo", "test", "--locked", "--lib", "--package", crate]
    assert (tested in commands) == (crate != quick.UNTESTED)


def test_a_changed_integration_test_runs_alone(quick: ModuleType) -> None:
    commands = list(quick.commands(["tests/it/forged/replay.rs"]))
    assert commands[-1] == ["cargo", "test", "--locked", "--test", "it", "forged::"]


def test_nothing_runs_for_documents(quick: ModuleType) -> None:
    assert list(quick.commands(["README.md", "docs/maps.svg"])) == []


def test_changed_files_are_those_of_git(
    quick: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    monkeypatch.setattr(quick, "ROOT", tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(tmp_path)]
    for name in ("same.py", "changed.py", "gone.py"):
        (tmp_path / name).write_text("x = 1\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "First"]):
        subprocess.check_call([*git, *command])
    (tmp_path / "changed.py").write_text("x = 2\n")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "new.py").write_text("x = 3\n")
    assert quick.changed() == ["changed.py", "new.py"]
