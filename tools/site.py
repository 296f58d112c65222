"""
Hooks of MkDocs: documents of the root become pages, links of the repository links of the site.

README.md, DESIGN.md and others are written to be read in the repository, and link to files there.
On the site, such a link leads to the page of the document, to a published schema, or to the file in
the repository if the site knows where that is (`REPOSITORY_URL`); otherwise it is plain text.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import gallery  # noqa: E402

LOGS = sorted((ROOT / "benches" / "log").glob("*.md"))
DOCUMENTS = {
    "README.md": "overview.md",
    "DESIGN.md": "design.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "benches/README.md": "benchmarks.md",
    **{f"benches/log/{path.name}": f"benchmarks/{path.name}" for path in LOGS},
}
PAGES = {page: document for document, page in DOCUMENTS.items()}
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def on_files(files: Files, *, config: Any, **_: Any) -> Files:
    """Add the documents of the root, the schemas and the maps of the gallery."""
    for document, page in DOCUMENTS.items():
        files.append(File.generated(config, page, content=(ROOT / document).read_text("utf-8")))
    for schema in sorted((ROOT / "schema").glob("*.json")):
        path = f"schema/{schema.name}"
        files.append(File.generated(config, path, content=schema.read_text("utf-8")))
    for name, content in gallery.drawings().items():
        files.append(File.generated(config, f"gallery/{name}", content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Return the text of a page with links of the site and code without lines for tests."""
    path = page.file.src_uri
    document = Path(PAGES.get(path, f"docs/{path}"))
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [_linked(markdown[end : fence.start()], path, document, config.repo_url)]
        parts += [_shown(fence[0])]
        end = fence.end()
    return "".join([*parts, _linked(markdown[end:], path, document, config.repo_url)])


def _linked(text: str, page: str, document: Path, repository: str | None) -> str:
    """Return text of ``document``, which is ``page`` of the site, with the site's links."""

    def link(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        if "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        path, hash_, anchor = target.partition("#")
        file = os.path.normpath(document.parent / path)
        here = os.path.dirname(page)
        if file in DOCUMENTS:
            found = os.path.relpath(DOCUMENTS[file], here)
        elif file.startswith("docs/"):
            found = os.path.relpath(file.removeprefix("docs/"), here)
        elif file.startswith("schema/"):
            found = os.path.relpath(file, here)
        elif repository:
            found = f"{repository}/blob/main/{file}"
        else:
            return label
        return f"{image}[{label}]({found}{hash_}{anchor})"

    return LINK.sub(link, text)


def _shown(fence: str) -> str:
    """Return a block of code as readers should see it: no flags and hidden lines of rustdoc."""
    head, *lines = fence.splitlines(keepends=True)
    if head.lstrip(" `~").startswith("rust"):
        head = head.partition(",")[0].rstrip("\n") + "\n"
        lines = [line for line in lines if not re.match(r" *# |#$", line)]
    return "".join([head, *lines])
