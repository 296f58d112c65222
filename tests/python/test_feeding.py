"""The recipes of the page on feeding train what they say; those of absent libraries are skipped."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import snippets

PAGE = Path(__file__).resolve().parents[2] / "docs" / "feeding.md"
LIBRARIES = {"with_torch.py": "torch", "with_grain.py": "grain"}


def test_the_recipes_without_libraries_learn_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    snippets.run_page(PAGE)
    said = re.findall(r"# (\d+ True)$", PAGE.read_text(), re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == said == ["128 True", "32 True"]


@pytest.mark.parametrize("title", LIBRARIES)
def test_the_recipe_of_a_library_learns_the_line(title: str) -> None:
    pytest.importorskip(LIBRARIES[title])
    blocks = list(snippets.blocks_of(PAGE.read_text()))
    names: dict[str, Any] = {}
    exec(compile(blocks[0].text, "feeding.md", "exec"), names)
    (recipe,) = [block.text for block in blocks if block.title == title]
    exec(compile(recipe, title, "exec"), names)
    assert names["reports"][-1].losses["loss"] < 1e-3


def test_every_recipe_is_tried() -> None:
    titles = [block.title for block in snippets.blocks_of(PAGE.read_text()) if block.title]
    assert titles == list(LIBRARIES)
