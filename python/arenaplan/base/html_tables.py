"""HTML tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

_MOST_ROWS: Final = 500


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """
    Return a table; numbers have separators, text is escaped, and rows beyond 500 are only counted.

    Examples
    --------
    >>> html_table("<plan>", ["bytes"], [[1024]])
    '<table><caption>&lt;plan&gt;</caption><tr><th>bytes</th></tr><tr><td>1,024</td></tr></table>'
    """

    def cell(content: object) -> str:
        text = f"{content:,}" if isinstance(content, int) else str(content)
        return f"<td>{escape(text)}</td>"

    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    every = list(rows)
    more = [(f"and {len(every) - _MOST_ROWS:,} more",)] if len(every) > _MOST_ROWS else []
    shown = [*every[:_MOST_ROWS], *more]
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in shown)
    return f"<table><caption>{escape(caption)}</caption><tr>{titles}</tr>{body}</table>"
