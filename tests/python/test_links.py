"""Links and anchors between the documents of the repository lead somewhere."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "benches").rglob("*.md"),
]
MADE = ROOT / "docs" / "gallery"
"""Files that `make site` writes."""

_FENCE = re.compile(r"^( *)(```+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


@cache
def text_of(path: Path) -> str:
    """Return a document without its code."""
    return re.sub(r"`[^`\n]*`", lambda code: code[0].replace("](", "] ("), _prose(path))


def _prose(path: Path) -> str:
    return _FENCE.sub("", path.read_text("utf-8"))


@cache
def anchors(path: Path) -> set[str]:
    """Return the anchors of the headings of a document, as GitHub and the site make them."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(_prose(path)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.add(slug if not seen[slug] else f"{slug}-{seen[slug]}")
        seen[slug] += 1
    return found


def broken(document: Path) -> list[str]:
    """Return the links of a document inside the repository that lead nowhere."""
    wrong = []
    for target in _LINK.findall(text_of(document)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        if MADE in file.parents:
            continue
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            wrong.append(target)
    return wrong


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    assert not broken(document)


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`, c?\n[1](#a-b-c) [2](#a-b) [3](none.md) [4](page.md#x) [5](https://x.y)\n"
    )
    assert broken(page) == ["#a-b", "none.md", "page.md#x"]
