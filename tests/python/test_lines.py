"""The line budget: code lines are counted, and a room above its budget is found."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def lines() -> ModuleType:
    """The tool that counts lines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        return importlib.import_module("lines")


RUST = """//! Head.

use std::fmt; // counted

/* a comment
   of two lines */
/// Documentation.
fn f<'a>(x: &'a str) -> char {
    let text = "two lines \\"
        // in a string";
    let raw = r#"a "quoted" // line"#;

    '"'
}

#[cfg(test)]
use std::mem;

#[cfg(test)]
mod tests {
    #[test]
    fn a_test() { assert_eq!("}", "}"); }
}

const LAST: u8 = b'{';
"""

PYTHON = '''"""
Head of two lines.
"""

import sys  # counted


def f(x: int) -> str:
    """Return a text."""
    # a comment
    y = """two
    lines"""

    return y * x


LIMIT = 3
"""The documentation of a constant."""
'''


def test_code_lines_of_rust_have_no_comments_and_no_tests(lines: ModuleType) -> None:
    assert lines.rust_lines(RUST) == 8


def test_code_lines_of_python_have_no_comments_and_no_docstrings(lines: ModuleType) -> None:
    assert lines.python_lines(PYTHON) == 6


def test_a_room_above_its_budget_a_new_and_a_gone_one_are_found(lines: ModuleType) -> None:
    found = list(lines.faults({"a": 10, "b": 11, "new": 1}, {"a": 10, "b": 10, "gone": 5}))
    assert [text.split(":")[0] for text in found] == [
        "b has 11 code lines, 1 above its budget of 10",
        "gone is gone",
        "new has no budget",
    ]


def test_budgets_only_fall(lines: ModuleType) -> None:
    budgets = {"a": 10, "b": 10, "gone": 5}
    assert lines.lowered({"a": 9, "b": 11, "new": 1}, budgets) == {"a": 9, "b": 10, "new": 1}


def test_the_tool_fails_on_a_room_above_its_budget(
    lines: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets = tmp_path / "lines.toml"
    monkeypatch.setattr(lines, "BUDGETS", budgets)
    monkeypatch.setattr(lines.sys, "argv", ["lines.py"])
    monkeypatch.setattr(lines, "counted", lambda: {"src/check": 11})
    budgets.write_text('"src/check" = 10\n')
    with pytest.raises(SystemExit, match="src/check has 11 code lines, 1 above"):
        lines.main()
    monkeypatch.setattr(lines, "counted", lambda: {"src/check": 10})
    lines.main()
