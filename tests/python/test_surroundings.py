"""What is around a command: files of strangers' folders, names in tables, lines that install."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import arenaplan as ap
from arenaplan.cli import main
from arenaplan.report.batch import batch_report

ROOT = Path(__file__).parents[2]


def model(folder: Path) -> Path:
    """Write a graph file."""
    graph = ap.Graph("m")
    graph.output(graph.input("x", (64,)))
    path = folder / "m.json"
    graph.save(path)
    return path


@pytest.mark.parametrize("where", ["../notes.txt", "/notes.txt", "inner/../../notes.txt", "link"])
def test_a_configuration_file_does_not_choose_files_outside_of_its_folder(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "checkout"
    folder.mkdir()
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    (folder / "link").symlink_to(notes)
    given = str(notes) if where.startswith("/") else where
    (folder / "arenaplan.toml").write_text(f'[defaults]\nbaseline = "{given}"\n')
    model(folder)
    monkeypatch.chdir(folder)
    assert main(["gate", "m.json", "--update"]) == 2
    assert "leads out of the folder" in capsys.readouterr().err
    assert notes.read_text() == "mine"


@pytest.mark.parametrize("content", ["mine", "{}", "", '{"format": "other"}'])
def test_an_update_replaces_baselines_only(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, baseline = model(tmp_path), tmp_path / "notes.txt"
    baseline.write_text(content)
    line = ["gate", str(path), "--baseline", str(baseline), "--update"]
    assert main(line) == 2
    assert "is no baseline" in capsys.readouterr().err
    assert baseline.read_text() == content
    baseline.unlink()
    assert main(line) == 0
    assert main(line) == 0, "a baseline is replaced"


def test_ids_of_a_table_reach_no_terminal_as_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.csv"
    evil = "\x1b[31mRED\x1b]0;t\x07"
    path.write_text(f"id,lower,upper,size\n{evil},0,2,64\nb,0,2,64\n")
    assert main(["pack", str(path), "--budget", "100", "--why"]) == 1
    told = capsys.readouterr()
    assert "RED" in told.out
    assert "\x1b" not in told.out + told.err
    assert "\x07" not in told.out + told.err


def test_names_of_files_in_a_report_are_no_formulas() -> None:
    for cell, safe in (("=A1", "'=A1"), ("@x", "'@x"), ("a\x1bb", "a\ufffdb"), ("net", "net")):
        assert batch_report._harmless(cell) == safe
    assert batch_report._harmless(-5) == -5


def test_no_line_installs_a_package_that_nobody_published() -> None:
    """Whoever registers a name on the index runs code where that line is pasted."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    files += [*(ROOT / ".github").rglob("*.yml"), *(ROOT / "python").rglob("*.py")]
    files += [*(ROOT / "python").rglob("*.toml"), *(ROOT / "examples").rglob("*.py")]
    line = re.compile(r"""pip3? install [^\n]*["' ]arenaplan\b(?![/.-])|["'` ]arenaplan\[""")
    wrong = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in files
        if (found := line.search(path.read_text(encoding="utf-8")))
    ]
    assert not wrong
    action = (ROOT / ".github/actions/gate/action.yml").read_text()
    package = action.partition("  package:")[2].partition("  token:")[0]
    assert "required: true" in package
    assert "default:" not in package
